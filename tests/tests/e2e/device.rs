//! Another card, found by typing, with the keyboard alone.

use anyhow::{Result, bail, ensure};
use fantoccini::key::Key;

use crate::{figures::agreed, journey::journey, page::Page};

/// "8xH100" is one search: the card, and how many of it.
#[test]
fn several_cards_are_one_search() -> Result<()> {
    journey("cards", async |journey| {
        let page = journey.planner().await?;
        page.address_with(&["?"]).await?;
        page.retype("gpu-search", "8xH100").await?;
        let first = active_option(&page).await?;
        ensure!(first.contains("8 of them"), "{first}");
        page.press(Key::Enter).await?;
        let link = page.address_with(&["gpu=h100", "gpus=8"]).await?;
        agreed(&page).await.map(drop)?;
        ensure!(!link.as_str().contains("strategy="), "the strategy is the usual one");
        Ok(())
    })
}

/// Cards that do different things are drawn side by side; of those that all do the same there is the one drawing.
#[test]
fn cards_of_different_roles_are_drawn_side_by_side() -> Result<()> {
    journey("roles", async |journey| {
        let page = journey.planner().await?;
        let run = "model=llama-3.2-1b&gpu=rtx-5070-ti&batch=2&seq=1024&precision=bf16&gpus=4";
        page.open(&format!("?{run}&strategy=data-parallel")).await?;
        let first = agreed(&page).await?;
        let ships =
            "[...document.querySelectorAll('.fleet .ship')].map(ship => ship.innerText.replace(/\\s+/g, ' ').trim())";
        let drawn = page.eval(&format!("return {ships}")).await?;
        let words: Vec<&str> = drawn.as_array().into_iter().flatten().filter_map(|ship| ship.as_str()).collect();
        let [holder, other] = words.as_slice() else { bail!("{drawn}") };
        ensure!(holder.starts_with("Card 0") && holder.contains(&first.peak), "{holder}");
        ensure!(other.starts_with("Each of cards 1 to 3") && other.contains("to spare"), "{other}");
        page.open(&format!("?{run}&strategy=ddp")).await?;
        agreed(&page).await.map(drop)?;
        ensure!(page.eval(&format!("return {ships}.length")).await? == 0);
        Ok(())
    })
}

#[test]
fn another_card_changes_the_verdict_and_the_address() -> Result<()> {
    journey("device", async |journey| {
        let page = journey.planner().await?;
        page.address_with(&["?"]).await?;
        let before = agreed(&page).await?;
        let card = page.value("gpu-search").await?;

        // Escape leaves everything as it was.
        page.tab_to("gpu-search").await?;
        page.type_text("a100").await?;
        page.attribute_is("gpu-search", "aria-expanded", "true").await?;
        page.press(Key::Escape).await?;
        page.attribute_is("gpu-search", "aria-expanded", "false").await?;
        ensure!(page.value("gpu-search").await? == card && agreed(&page).await? == before);

        page.select_all().await?;
        page.type_text("h200").await?;
        let first = active_option(&page).await?;
        ensure!(first.contains("H200"), "the best match for h200 is {first}");
        page.press(Key::Enter).await?;
        page.address_with(&["gpu=h200"]).await?;
        let after = agreed(&page).await?;
        ensure!(page.value("gpu-search").await?.contains("H200"));
        ensure!(after.verdict == "fits" && after.headroom != before.headroom, "{before:?} to {after:?}");
        ensure!(after.largest != before.largest);

        // Arrow keys walk the list, and the one they stand on is the one that Enter takes.
        page.press(Key::Down).await?;
        let from = active_option(&page).await?;
        page.press(Key::Down).await?;
        let to = active_option(&page).await?;
        ensure!(from != to, "the arrow key does not move");
        page.press(Key::Enter).await?;
        page.attribute_is("gpu-search", "aria-expanded", "false").await?;
        let chosen = page.value("gpu-search").await?;
        ensure!(to.starts_with(&chosen), "{to} was active, {chosen} was taken");
        agreed(&page).await?;

        // What no card is called changes nothing.
        page.select_all().await?;
        page.type_text("no such card").await?;
        page.press(Key::Enter).await?;
        page.press(Key::Tab).await?;
        ensure!(page.value("gpu-search").await? == chosen);
        Ok(())
    })
}

/// The option that the search field says is active, which must be the one that is marked.
async fn active_option(page: &Page) -> Result<String> {
    page.until("an active option", async || {
        let script = "const id = document.querySelector(`[data-testid='gpu-search']`)
                .getAttribute('aria-activedescendant');
            const option = id && document.getElementById(id);
            return option?.getAttribute('aria-selected') === 'true' && option.checkVisibility()
                ? option.innerText.replace(/\\s+/g, ' ').trim() : null";
        let text = page.eval(script).await?;
        Ok(text.as_str().map(str::to_owned).ok_or("none"))
    })
    .await
}
