//! The timeline, read with the keyboard.

use anyhow::{Context as _, Result, ensure};
use fantoccini::key::Key;

use crate::{figures::agreed, journey::journey, page::Page};

#[test]
fn the_keyboard_reads_the_timeline() -> Result<()> {
    journey("cursor", async |journey| {
        let page = journey.planner().await?;
        page.address_with(&["?"]).await?;
        agreed(&page).await?;
        ensure!(page.attribute("timeline-status", "role").await?.as_deref() == Some("status"), "no live region");
        let last: u64 = page.attribute("timeline", "aria-valuemax").await?.unwrap_or_default().parse()?;
        ensure!(last > 50, "a timeline of {last} changes");
        let peak = at(&page).await?;
        ensure!(peak.says.starts_with("The peak"), "opens on {}", peak.says);

        page.tab_to("timeline").await?;
        let first = moved(&page, Key::Home, 0).await?;
        ensure!(first.says.starts_with("Load"), "starts with {}", first.says);
        let second = moved(&page, Key::Right, 1).await?;
        let third = moved(&page, Key::Up, 2).await?;
        ensure!(first.says != second.says && second.says != third.says, "the words stay the same");
        let again = moved(&page, Key::Left, 1).await?;
        ensure!(again == second, "there and back: {second:?}, {again:?}");
        moved(&page, Key::Down, 0).await?;
        // Beyond the ends there is nothing.
        moved(&page, Key::Left, 0).await?;
        let end = moved(&page, Key::End, last).await?;
        ensure!(end.says != first.says && end.total < peak.total);
        moved(&page, Key::Right, last).await?;

        // By phase: every one says its name, and it goes back the way it came.
        moved(&page, Key::Home, 0).await?;
        let mut stops = vec![at(&page).await?];
        for name in ["input", "forward", "backward", "clip", "optimizer"] {
            page.press(Key::PageDown).await?;
            let says = page.reads("timeline-status", name, |text| text.contains(name)).await?;
            ensure!(says.starts_with("Step 1, "), "{says}");
            stops.push(at(&page).await?);
        }
        ensure!(stops.is_sorted_by(|a, b| a.index < b.index), "{stops:?}");
        page.press(Key::PageUp).await?;
        page.reads("timeline-status", "an earlier phase", |text| !text.contains("optimizer")).await?;

        // And to the peak from anywhere, by key or button.
        page.type_text("p").await?;
        page.reads("timeline-status", "the peak", |text| text.starts_with("The peak")).await?;
        ensure!(at(&page).await? == peak);
        moved(&page, Key::Home, 0).await?;
        page.click_hook("to-peak").await?;
        page.reads("timeline-status", "the peak", |text| text.starts_with("The peak")).await?;
        Ok(())
    })
}

/// Where the cursor stands, and what is said there.
#[derive(Debug, PartialEq)]
struct Stand {
    index: u64,
    says: String,
    /// GiB alive, the sum of the kinds listed.
    total: f64,
}

async fn moved(page: &Page, key: Key, to: u64) -> Result<Stand> {
    page.press(key).await?;
    page.attribute_is("timeline", "aria-valuenow", &to.to_string()).await?;
    at(page).await
}

/// Reads it all, and checks that the kinds listed sum to what the cursor says is alive.
async fn at(page: &Page) -> Result<Stand> {
    let script = "const plot = document.querySelector(`[data-testid='timeline']`);
        return [plot.ariaValueNow, plot.ariaValueText,
            document.querySelector(`[data-testid='timeline-status']`).innerText.trim(),
            [...document.querySelectorAll('.alive-bytes')].map(cell => cell.textContent)]";
    let seen = page.eval(script).await?;
    let text = |i: usize| seen.get(i).and_then(|v| v.as_str()).with_context(|| format!("no {i} in {seen}"));
    let (value, says) = (text(1)?, text(2)?);
    let (number, unit) = value.rsplit(", ").next().and_then(|s| s.split_once(' ')).context("no size")?;
    let number: f64 = number.replace(',', "").parse()?;
    let said = match unit {
        "GiB" => number,
        "MiB" => number / 1024.0,
        _ => number / 1024.0 / 1024.0,
    };
    let kinds = seen.get(3).and_then(|v| v.as_array()).context("no kinds")?;
    let kinds: Vec<f64> = kinds.iter().filter_map(|v| v.as_str()).map(|s| s.parse().unwrap_or(0.0)).collect();
    let total: f64 = kinds.iter().sum();
    ensure!(kinds.len() == 8, "{} kinds are listed", kinds.len());
    // Every kind is rounded to a hundredth.
    ensure!((total - said).abs() <= 0.005 * 8.0 + 0.005, "{kinds:?} do not sum to {value}");
    ensure!(
        says.contains(&format!(
            "{} {unit} alive",
            value.rsplit(", ").next().and_then(|s| s.split(' ').next()).unwrap_or("")
        )),
        "{value:?} is at the cursor, {says:?} is said"
    );
    Ok(Stand { index: text(0)?.parse()?, says: says.to_owned(), total })
}
