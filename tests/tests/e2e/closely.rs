//! The timeline, looked at closely: by keys, wheel, buttons and by sweeping over a part of it.

use anyhow::{Context as _, Result, ensure};
use fantoccini::key::Key;
use serde_json::json;

use crate::{command::devtools, figures::agreed, journey::journey, page::Page};

#[test]
fn the_timeline_is_read_down_to_single_allocations() -> Result<()> {
    journey("closely", async |journey| {
        let page = journey.planner().await?;
        page.address_with(&["?"]).await?;
        agreed(&page).await?;
        let peak = page.reads("timeline-status", "the peak", |text| text.starts_with("The peak")).await?;

        // By keys: the cursor stays at the peak, and at the closest every change is named.
        page.tab_to("timeline").await?;
        ensure!(events(&page).await?.is_none(), "it opens on all of it");
        for _ in 0..14 {
            page.type_text("+").await?;
        }
        let closest = part(&page, |now| now.1 - now.0 == 12).await.context("the closest")?;
        let status = page.reads("timeline-status", "what happens here", |text| text.contains("Here +")).await?;
        ensure!(status.starts_with("The peak"), "{status}");
        // What is drawn is as many steps as there are events.
        let last = page.attribute("timeline", "aria-valuemax").await?;
        ensure!(last.as_deref() == Some("11"), "{last:?}");
        page.press(Key::Left).await?;
        page.reads("timeline-status", "the change before", |text| !text.starts_with("The peak")).await?;
        // Beyond its edge it moves on.
        page.press(Key::End).await?;
        page.press(Key::Right).await?;
        part(&page, |now| now.0 > closest.0).await?;
        page.type_text("0").await?;
        page.is_gone("timeline-part").await?;
        page.type_text("p").await?;
        page.reads("timeline-status", "the peak", |text| text == peak).await?;

        // By buttons.
        page.click_hook("timeline-closer").await?;
        let half = part(&page, |now| now.1 > now.0).await?;
        page.click_hook("timeline-further").await?;
        page.is_gone("timeline-part").await?;

        // By a sweep, and closer by the wheel.
        let place = "const box = document.querySelector(`[data-testid='timeline']`).getBoundingClientRect();
            scrollTo(0, scrollY + box.top - 200);
            const now = document.querySelector(`[data-testid='timeline']`).getBoundingClientRect();
            return [now.left, now.width, now.top + 120]";
        let place = page.eval(place).await?;
        let at = |i: usize| place.get(i).and_then(|v| v.as_f64()).unwrap_or_default();
        let (from, to, y) = (at(0) + at(1) * 0.4, at(0) + at(1) * 0.6, at(2));
        for (kind, x, buttons) in
            [("mousePressed", from, 1), ("mouseMoved", (from + to) / 2.0, 1), ("mouseMoved", to, 1)]
        {
            mouse(&page, kind, x, y, buttons).await?;
        }
        mouse(&page, "mouseReleased", to, y, 0).await?;
        let swept = part(&page, |now| now != half).await?;
        ensure!(swept.1 - swept.0 < half.1 - half.0, "{swept:?} is no part of {half:?}");
        let wheel = json!({ "type": "mouseWheel", "x": (from + to) / 2.0, "y": y, "deltaX": 0, "deltaY": -200 });
        devtools(page.client(), "Input.dispatchMouseEvent", wheel).await?;
        let turned = part(&page, |now| now.1 - now.0 < swept.1 - swept.0).await?;
        ensure!(turned.0 >= swept.0 && turned.1 <= swept.1, "{turned:?} lies outside of {swept:?}");

        // Another run is shown whole.
        page.retype("batch", "2").await?;
        page.is_gone("timeline-part").await
    })
}

/// A model in the worker answers the same.
#[test]
fn a_large_model_is_looked_at_closely_too() -> Result<()> {
    journey("closely-large", async |journey| {
        let page = journey.browser().await?;
        page.open("?model=llama-3.3-70b&gpu=b200&lora=16&checkpointing=full&batch=1").await?;
        agreed(&page).await?;
        page.tab_to("timeline").await?;
        page.type_text("++++").await?;
        let now = part(&page, |now| now.1 > now.0).await?;
        ensure!(now.1 > 1000, "{now:?}");
        page.reads("timeline-status", "the peak", |text| text.starts_with("The peak")).await?;
        Ok(())
    })
}

/// The first and the last event that are shown; `None` where all are.
async fn events(page: &Page) -> Result<Option<(u64, u64)>> {
    let Some(text) = page.glance("timeline-part").await?.filter(|text| !text.is_empty()) else { return Ok(None) };
    let text = text.replace(',', "");
    let numbers: Vec<u64> = text.split(' ').filter_map(|word| word.parse().ok()).collect();
    let [from, to, _] = numbers.as_slice() else { anyhow::bail!("{text:?} names no events") };
    Ok(Some((from - 1, *to)))
}

/// Waits until a part is shown as is wanted.
async fn part(page: &Page, wanted: impl Fn((u64, u64)) -> bool) -> Result<(u64, u64)> {
    page.until("another part of the timeline", async || {
        let seen = events(page).await?;
        Ok(seen.filter(|seen| wanted(*seen)).ok_or(format!("{seen:?}")))
    })
    .await
}

async fn mouse(page: &Page, kind: &str, x: f64, y: f64, buttons: u32) -> Result<()> {
    let event = json!({ "type": kind, "x": x, "y": y, "button": "left", "buttons": buttons, "clickCount": 1 });
    devtools(page.client(), "Input.dispatchMouseEvent", event).await?;
    Ok(())
}
