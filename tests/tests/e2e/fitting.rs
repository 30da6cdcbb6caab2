//! From a run that does not fit to one that does.

use anyhow::{Context as _, Result, ensure};
use fantoccini::key::Key;

use crate::{figures::agreed, journey::journey};

/// The first thing many try: a model of eight billion numbers and the card that they have.
#[test]
fn three_actions_lead_to_a_recipe_that_fits() -> Result<()> {
    journey("fitting", async |journey| {
        let page = journey.planner().await?;
        page.address_with(&["?"]).await?;

        page.retype("model-search", "qwen 8b").await?;
        page.press(Key::Enter).await?;
        page.address_with(&["model=qwen3-8b"]).await?;
        page.retype("gpu-search", "5070 ti").await?;
        page.press(Key::Enter).await?;
        page.address_with(&["gpu=rtx-5070-ti"]).await?;
        let before = agreed(&page).await?;
        ensure!(before.verdict == "does not fit" && before.over, "{before:?}");

        page.click(".remedies button").await?;
        page.address_with(&["quantization=nf4-double"]).await?;
        let after = agreed(&page).await?;
        ensure!(after.verdict == "fits" && !after.over, "{after:?}");
        let focused = page.eval("return document.activeElement?.id").await?;
        ensure!(focused == "verdict", "the focus is on {focused}");
        Ok(())
    })
}

/// The same with no pointer at hand.
#[test]
fn the_keyboard_alone_leads_to_a_recipe_that_fits() -> Result<()> {
    journey("fitting-keyboard", async |journey| {
        let page = journey.planner().await?.by_keyboard();
        page.address_with(&["?"]).await?;
        page.retype("model-search", "qwen 8b").await?;
        page.press(Key::Enter).await?;
        page.address_with(&["model=qwen3-8b"]).await?;
        page.retype("gpu-search", "5070 ti").await?;
        page.press(Key::Enter).await?;
        page.address_with(&["gpu=rtx-5070-ti"]).await?;
        agreed(&page).await?;
        page.click(".remedies button").await?;
        page.address_with(&["quantization=nf4-double"]).await?;
        let after = agreed(&page).await?;
        ensure!(after.verdict == "fits" && !after.over, "{after:?}");
        // What is chosen from a strip, from a list, and switched.
        page.choose("precision", "bf16").await?;
        page.choose("optimizer", "lion").await?;
        page.choose("checkpointing", "none").await?;
        page.click_hook("lora").await?;
        page.address_with(&["precision=bf16", "optimizer=lion"]).await?;
        agreed(&page).await?;
        Ok(())
    })
}

#[test]
fn recipes_say_what_they_cost_and_cards_are_named() -> Result<()> {
    journey("recipes", async |journey| {
        let page = journey.browser().await?;
        page.open("?model=llama-3.1-8b&gpu=rtx-4090&batch=1").await?;
        agreed(&page).await?;
        let recipes = page.reads("fit", "a recipe with its cost", |text| text.contains("take it")).await?;
        ensure!(recipes.contains("checkpointing") && recipes.contains("to spare"), "{recipes}");
        page.click("[data-testid='which-card'] button").await?;
        let cards = page.reads("which-card", "the cards that hold it", |text| text.contains("smallest first")).await?;
        ensure!(cards.contains("B200"), "{cards}");

        // Where nothing fits, it says what comes nearest.
        page.open("?model=llama-3.3-70b&gpu=rtx-5090").await?;
        agreed(&page).await?;
        let nothing = page.reads("fit", "that nothing fits", |text| text.contains("Nothing fits")).await?;
        ensure!(nothing.contains("over by") && nothing.contains("The smallest cards that hold"), "{nothing}");
        Ok(())
    })
}

/// The verdict belongs to what the fields show: where one holds no value, the page says so.
#[test]
fn a_field_without_a_value_leaves_no_verdict_in_full_colour() -> Result<()> {
    journey("amiss", async |journey| {
        let page = journey.planner().await?;
        page.address_with(&["?"]).await?;
        agreed(&page).await?;
        page.retype("seq", "2048").await?;
        let amiss = page.reads("amiss", "which field", |text| text.contains("Sequence")).await?;
        ensure!(amiss.contains("The figures are for"), "{amiss}");
        let dimmed = page.eval("return document.querySelector('.hero').classList.contains('is-stale')").await?;
        ensure!(dimmed == true, "the verdict stands as if nothing were wrong");
        page.retype("seq", "512").await?;
        page.is_gone("amiss").await?;
        let address = page.address_with(&["seq=512"]).await.context("the address")?;
        ensure!(!address.as_str().contains("2048"));
        Ok(())
    })
}

/// A model of eight billion numbers on eight cards, which DDP does not hold: the plans, their reasons, and one click.
#[test]
fn several_cards_are_spread_by_a_plan() -> Result<()> {
    journey("plan", async |journey| {
        let page = journey.browser().await?;
        page.open("?model=llama-3.1-8b&gpu=h100-sxm&gpus=8&batch=2&seq=4096").await?;
        let before = agreed(&page).await?;
        ensure!(before.verdict == "does not fit" && before.over, "{before:?}");

        let plans = page.reads("fit", "a plan with its bound", |text| text.contains("take it")).await?;
        for said in [
            "No step is faster than",
            "over NVLink",
            "to spare",
            "Not searched",
            "pipeline, context and expert",
            "ruled out",
        ] {
            ensure!(plans.contains(said), "{said} is not in {plans}");
        }
        page.click("[data-testid='rejected'] summary").await?;
        let reasons = page.reads("rejected", "why DDP is none", |text| text.contains("DDP")).await?;
        ensure!(reasons.contains("alone take"), "{reasons}");

        page.click(".recipes .take").await?;
        page.address_with(&["strategy=", "gpus=8"]).await?;
        let after = agreed(&page).await?;
        ensure!(after.verdict == "fits" && !after.over, "{after:?}");
        let focused = page.eval("return document.activeElement?.id").await?;
        ensure!(focused == "verdict", "the focus is on {focused}");

        // What fits is searched when somebody asks.
        page.click("[data-testid='find-plans']").await?;
        let plans = page.reads("fit", "plans beside one that fits", |text| text.contains("as it is")).await?;
        ensure!(plans.contains("micro-batch"), "{plans}");
        Ok(())
    })
}
