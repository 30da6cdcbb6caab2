//! A measurement's way home: uploaded or brought along, seen beside its estimate, opened in the planner.

use std::{path::PathBuf, process::Command};

use anyhow::{Context as _, Result, ensure};
use fantoccini::{Locator, key::Key};
use plimsoll_core::{Measurement, measurement};
use tempfile::TempDir;

use crate::{
    accessibility::{nothing_beyond_the_edge, sized, still},
    axe,
    figures::agreed,
    journey::{Journey, journey},
    page::Page,
    surroundings, theme,
};

/// The made-up record of the documentation, on a card of the catalog.
fn record() -> Result<Measurement> {
    let mut record = Measurement::from_json(measurement::EXAMPLE)?;
    record.device.gpu = Some("rtx-5070-ti-laptop".to_owned());
    ensure!(record.validate().is_empty(), "{:?}", record.validate());
    Ok(record)
}

/// It as a file.
fn file(folder: &TempDir, name: &str, record: &Measurement) -> Result<PathBuf> {
    let path = folder.path().join(name);
    std::fs::write(&path, record.canonical())?;
    Ok(path)
}

/// How many records are shipped beside the page: those of the project, which stand there before anybody brings one.
fn shipped() -> Result<u64> {
    let list = std::fs::read_to_string(surroundings::planner()?.join("measurements/index.json"))?;
    let list: serde_json::Value = serde_json::from_str(&list)?;
    list["total"].as_u64().context("the list of shipped records has no total")
}

/// The page tells of so many records.
async fn tells_of(page: &Page, records: u64) -> Result<()> {
    if records == 0 {
        page.reads("compare-empty", "what to do", |text| text.contains("plimsoll probe run")).await?;
    } else {
        let beginning = format!("{records} measurement");
        page.reads("compare-summary", &beginning, |text| text.starts_with(&beginning)).await?;
    }
    Ok(())
}

/// Sends records to the journey's server with the real command.
fn upload(journey: &Journey, folder: &TempDir, paths: &[PathBuf]) -> Result<()> {
    let mut command = Command::new(surroundings::plimsoll()?);
    command.arg("upload").args(paths).args(["--yes", "--to", journey.home().as_str()]);
    let output = command.env("XDG_DATA_HOME", folder.path()).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

#[test]
fn an_uploaded_record_stands_beside_its_estimate() -> Result<()> {
    journey("compare-upload", async |journey| {
        let folder = tempfile::tempdir()?;
        let first = record()?;
        let mut second = record()?;
        // Another day's run that ended a little higher.
        second.taken = "2026-11-19".to_owned();
        let paths = [file(&folder, "a.json", &first)?, file(&folder, "b.json", &second)?];
        upload(journey, &folder, &paths)?;

        let page = journey.planner().await?;
        agreed(&page).await?;
        page.click_hook("to-compare").await?;
        page.address_with(&["#/compare"]).await?;
        tells_of(&page, shipped()? + 2).await?;
        page.choose("metric", "process").await?;
        page.address_with(&["metric=process"]).await?;

        // By keyboard into the scatter: the arrow looks at a run.
        page.eval("document.querySelector(`[data-testid='scatter']`).focus()").await?;
        page.press(Key::Right).await?;
        page.address_with(&["id="]).await?;
        // Ours may not be the first.
        page.open(&format!("#/compare?metric=process&id={}", second.point()?.id)).await?;
        page.reads("detail", "the run", |text| text.contains("gpt2") && text.contains("on this server")).await?;
        let columns = "return document.querySelectorAll(`[data-testid='phases-overlaid'] .predicted`).length";
        page.until("the phases of the whole record", async || {
            let found = page.eval(columns).await?.as_u64().unwrap_or(0);
            Ok(if found >= 7 { Ok(()) } else { Err(found) })
        })
        .await?;

        page.click_hook("open-in-planner").await?;
        page.address_with(&["model=gpt2", "batch=8", "accumulation=4"]).await?;
        page.reads("measured", "what was measured there", |text| text.contains("estimate")).await?;
        page.client().back().await?;
        page.address_with(&["#/compare", "id="]).await?;
        page.reads("detail", "the run again", |text| text.contains("gpt2")).await?;

        // The place can be sent to somebody.
        page.reload().await?;
        page.reads("detail", "the run after loading again", |text| text.contains("gpt2")).await?;
        Ok(())
    })
}

#[test]
fn a_file_needs_no_server_and_a_bad_one_says_why() -> Result<()> {
    journey("compare-file", async |journey| {
        let folder = tempfile::tempdir()?;
        let good = file(&folder, "record.json", &record()?)?;
        let bad = folder.path().join("bad.json");
        std::fs::write(&bad, record()?.canonical().replace("7997054976", "9997054976"))?;
        let page = journey.browser().await?;
        page.open("#/compare").await?;
        tells_of(&page, shipped()?).await?;
        offer(&page, &bad).await?;
        page.reads("record-refused", "why", |text| text.contains("bad.json") && text.contains("peak.allocated"))
            .await?;
        offer(&page, &good).await?;
        page.reads("detail", "the run", |text| text.contains("in this browser only")).await?;
        tells_of(&page, shipped()? + 1).await?;

        // It is here again at the next visit, until it is forgotten.
        page.open("").await?;
        page.open("#/compare").await?;
        page.reload().await?;
        tells_of(&page, shipped()? + 1).await?;
        page.click_hook("forget-records").await?;
        tells_of(&page, shipped()?).await?;
        page.reload().await?;
        tells_of(&page, shipped()?).await?;
        Ok(())
    })
}

#[test]
fn a_link_carries_its_measurement() -> Result<()> {
    journey("compare-link", async |journey| {
        let record = record()?;
        let scenario = record.as_run()?;
        let link = plimsoll_core::scenario::Link::encode(&scenario);
        let packed = record.packed().context("too long for a link")?;
        let page = journey.browser().await?;
        page.open(&format!("{link}#r={packed}")).await?;
        agreed(&page).await?;
        page.reads("measured", "the run", |text| text.contains("Your own run") && text.contains("this very run"))
            .await?;
        // The address keeps it, as long as the scenario is the one that ran.
        page.address_with(&["#r=", "model=gpt2"]).await?;
        page.retype("batch", "9").await?;
        page.until("the measurement to leave the address", async || {
            let address = page.address().await?;
            let left = !address.as_str().contains("r=") && address.as_str().contains("batch=9");
            Ok(if left { Ok(()) } else { Err(address.to_string()) })
        })
        .await?;

        page.open(&format!("{link}#r=AAAA")).await?;
        page.reads("notice", "that it is broken", |text| text.contains("measurement")).await?;
        Ok(())
    })
}

#[test]
fn the_compare_page_looks_right() -> Result<()> {
    for (scheme, width) in [("light", 1280), ("dark", 1280), ("light", 320), ("dark", 320)] {
        journey(&format!("compare-axe-{scheme}-{width}"), async |journey| {
            let folder = tempfile::tempdir()?;
            let page = journey.browser().await?;
            theme::system(&page, scheme).await?;
            sized(&page, width).await?;
            page.open("#/compare").await?;
            tells_of(&page, shipped()?).await?;
            axe::is_clean(&page, "before a run was brought").await?;
            offer(&page, &file(&folder, "record.json", &record()?)?).await?;
            page.reads("detail", "the run", |text| text.contains("gpt2")).await?;
            page.eval("document.querySelectorAll('#compare details').forEach(fold => { fold.open = true })").await?;
            still(&page).await?;
            nothing_beyond_the_edge(&page).await?;
            axe::is_clean(&page, "with a run").await
        })?;
    }
    Ok(())
}

/// Chooses a file.
async fn offer(page: &Page, path: &std::path::Path) -> Result<()> {
    let input = page.client().find(Locator::Id("record-file")).await?;
    input.send_keys(&path.display().to_string()).await?;
    Ok(())
}
