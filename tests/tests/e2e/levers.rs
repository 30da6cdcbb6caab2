//! What if: every lever leads where it says it does.

use anyhow::{Context as _, Result, ensure};
use fantoccini::key::Key;
use serde_json::{Value, json};

use crate::{
    figures::{Figures, agreed},
    journey::journey,
    page::{Page, check},
};

#[test]
fn every_lever_leads_where_it_says() -> Result<()> {
    journey("levers", async |journey| {
        let page = journey.planner().await?;
        // A run that every lever moves.
        page.open("?model=llama-3.2-1b&batch=4").await?;
        let start = page.address_with(&["?"]).await?;
        let before = agreed(&page).await?;
        let levers = known(&page).await?;
        ensure!(levers.len() >= 5, "only these levers: {levers:?}");
        for (row, lever) in levers.iter().enumerate() {
            page.click(&format!(".whatif tbody tr:nth-child({}) button", row + 1)).await?;
            let after = moved(&page, &before).await.with_context(|| format!("{lever:?}"))?;
            ensure!(gib(&after) == lever.peak, "{lever:?} led to {after:?}");
            ensure!(after.verdict == lever.verdict.to_lowercase(), "{lever:?} led to {after:?}");
            page.open(start.as_str()).await?;
            ensure!(agreed(&page).await? == before, "the link did not lead back");
            // A button is not one before its lever is known.
            known(&page).await?;
        }
        Ok(())
    })
}

#[test]
fn a_mark_of_the_ladder_is_pulled_with_the_keyboard() -> Result<()> {
    journey("ladder", async |journey| {
        let page = journey.planner().await?;
        page.address_with(&["?"]).await?;
        let before = agreed(&page).await?;
        let levers = known(&page).await?;
        let focus = "const mark = document.querySelector(`[data-lever='${arguments[0]}']`);
            mark?.focus(); return mark !== null && document.activeElement === mark";
        page.until("the mark of pure bf16", async || {
            let focused = page.eval_with(focus, vec![json!("pure bf16")]).await?;
            Ok(check(focused == true, focused))
        })
        .await?;
        page.press(Key::Enter).await?;
        page.address_with(&["precision=bf16"]).await?;
        let after = moved(&page, &before).await?;
        let lever = levers.iter().find(|lever| lever.name == "pure bf16").context("not in the table")?;
        ensure!(gib(&after) == lever.peak, "{lever:?} led to {after:?}");
        Ok(())
    })
}

/// One row of the table.
#[derive(Debug)]
struct Lever {
    name: String,
    peak: String,
    verdict: String,
}

/// The table, once every row of it is known.
async fn known(page: &Page) -> Result<Vec<Lever>> {
    // The heat map above them comes last and moves them: a click that was on its way would meet one of its cells.
    let script = "const map = document.querySelector('.heat');
        if (!map?.checkVisibility() || map.closest('section').classList.contains('is-pending')) return [];
        return [...document.querySelectorAll('.whatif tbody tr')].map(row => [
        row.querySelector('th small').previousSibling.data.trim(),
        row.cells[1].innerText, row.cells[3].innerText, !row.querySelector('button').disabled])";
    page.until("every lever to be known", async || {
        let rows = page.eval(script).await?;
        let lever = |row: &Value| {
            let text = |i: usize| row.get(i)?.as_str().map(str::to_owned);
            let usable = row.get(3)?.as_bool()?;
            Some(Lever { name: text(0)?, peak: text(1)?, verdict: text(2)? }).filter(|_| usable)
        };
        let levers: Option<Vec<Lever>> = rows.as_array().into_iter().flatten().map(lever).collect();
        Ok(levers.filter(|levers| !levers.is_empty()).ok_or(rows))
    })
    .await
}

/// The figures of another run than `before`.
async fn moved(page: &Page, before: &Figures) -> Result<Figures> {
    let from = before.peak.as_str();
    page.reads("peak-process", "another peak", |text| text != from).await?;
    // The address follows a moment later; until then the engine is asked about the old one and does not agree.
    agreed(page).await
}

/// The peak as the table writes it.
fn gib(figures: &Figures) -> String {
    format!("{:.2}", figures.process as f64 / f64::from(1 << 30))
}
