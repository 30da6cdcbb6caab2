//! What was changed can be taken back; what is worth keeping is kept, and stands side by side.

use anyhow::{Result, ensure};
use plimsoll_core::scenario::{BESIDE, Link};
use serde_json::Value;

use crate::{axe, figures::agreed, journey::journey, page::Page};

async fn goes(page: &Page, how: &str) -> Result<()> {
    page.eval(&format!("history.{how}(); return true")).await.map(drop)
}

#[test]
fn undo_redo_and_back_lead_along_the_same_trail() -> Result<()> {
    journey("trail", async |journey| {
        let page = journey.planner().await?;
        page.address_with(&["?"]).await?;
        let opened = agreed(&page).await?;
        page.choose("precision", "bf16").await?;
        page.address_with(&["precision=bf16"]).await?;
        let in_bf16 = agreed(&page).await?;
        ensure!(in_bf16.process != opened.process);
        let said = page.reads("course", "what was changed", |text| text.contains("Changed: Precision")).await?;
        ensure!(said.contains(&opened.peak) && said.contains(&in_bf16.peak), "{said}");

        // Typing a number is one change, whatever stood in the field on the way.
        page.retype("seq", "512").await?;
        page.address_with(&["seq=512"]).await?;
        agreed(&page).await?;
        page.click_hook("undo").await?;
        page.until("the sequence to be as before", async || {
            let link = page.address_with(&["precision=bf16"]).await?;
            Ok(if link.as_str().contains("seq=512") { Err(link) } else { Ok(()) })
        })
        .await?;
        ensure!(agreed(&page).await?.process == in_bf16.process);
        page.click_hook("redo").await?;
        page.address_with(&["precision=bf16", "seq=512"]).await?;

        // The browser's own buttons do the same, and stay on the page.
        goes(&page, "back").await?;
        page.until("Back to lead one step back", async || {
            let link = page.address_with(&["precision=bf16"]).await?;
            Ok(if link.as_str().contains("seq=512") { Err(link) } else { Ok(()) })
        })
        .await?;
        ensure!(agreed(&page).await?.process == in_bf16.process);
        goes(&page, "forward").await?;
        page.address_with(&["seq=512"]).await?;

        // All of it at once, and that can be taken back too.
        page.click_hook("as-opened").await?;
        page.until("what the page was opened with", async || {
            let seen = agreed(&page).await?;
            Ok(if seen.process == opened.process { Ok(()) } else { Err(seen.peak) })
        })
        .await?;
        page.eval("document.activeElement.blur(); return true").await?;
        page.eval(
            "dispatchEvent(new KeyboardEvent('keydown', { key: 'z', ctrlKey: true, bubbles: true })); return true",
        )
        .await?;
        page.address_with(&["seq=512"]).await?;
        Ok(())
    })
}

#[test]
fn plans_are_kept_and_stand_side_by_side() -> Result<()> {
    journey("plans", async |journey| {
        let page = journey.planner().await?;
        page.address_with(&["?"]).await?;
        agreed(&page).await?;
        page.retype("plan-name", "as it was").await?;
        page.click_hook("keep-plan").await?;
        page.reads("plan", "the plan in the list", |text| text.contains("as it was")).await?;
        page.choose("precision", "fp32").await?;
        page.address_with(&["precision=fp32"]).await?;
        let now = agreed(&page).await?;
        let beside = page
            .reads("beside", "both runs with what sets them apart", |text| {
                text.contains("against now") && text.contains("differs in Precision")
            })
            .await?;
        ensure!(beside.contains(&now.peak), "{beside}");
        axe::is_clean(&page, "plans side by side").await?;

        // It is there again after the page was closed.
        page.reload().await?;
        page.reads("plan", "the plan that was kept", |text| text.contains("as it was")).await?;
        page.reads("beside", "the comparison", |text| text.contains("against now")).await?;
        page.click("[data-testid='plan'] .take").await?;
        page.until("the plan to be opened", async || {
            let link = page.address_with(&["?"]).await?;
            Ok(if link.as_str().contains("precision=fp32") { Err(link) } else { Ok(()) })
        })
        .await?;
        Ok(())
    })
}

/// One link brings all plans along, to somebody who has none; a damaged one says so and keeps the scenario.
#[test]
fn a_link_brings_plans_along() -> Result<()> {
    journey("plans-link", async |journey| {
        let page = journey.browser().await?;
        let plans = Link::pack(r#"[{"name":"the other","link":"?model=gpt2&batch=2","pinned":true}]"#);
        page.open(&format!("?model=gpt2&batch=4#{BESIDE}={plans}")).await?;
        page.reads("plan", "the plan of the link", |text| text.contains("the other")).await?;
        page.reads("beside", "the comparison", |text| text.contains("against now")).await?;
        page.open("?model=gpt2&batch=2#p=AAAA").await?;
        page.reads("notice", "what is wrong", |text| text.contains("plans were left out")).await?;
        let batch = page.eval("return location.search").await?;
        ensure!(matches!(&batch, Value::String(query) if query.contains("batch=2")), "{batch}");
        Ok(())
    })
}
