//! A model that somebody recorded: opened on the page, its sizes changed, handed on in a link, or named by one.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use fantoccini::{Locator, key::Key};
use plimsoll_core::{
    Scenario, catalog,
    scenario::{HullModel, Link, ModelSource},
};
use url::Url;

use crate::{
    figures::{agreed, expected},
    journey::journey,
    page::Page,
};

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/hulls").join(name)
}

/// What the engine says of a hull in the page's scenario.
fn asked(page: &Url, hull: &HullModel) -> Result<Scenario> {
    let mut scenario = Link::decode_strict(page.as_str())?;
    scenario.model.source = ModelSource::Hull(hull.clone());
    Ok(scenario)
}

async fn open(page: &Page, path: &Path) -> Result<()> {
    let place = page.client().find(Locator::Css("[data-testid=hull-file]")).await?;
    place.send_keys(&path.display().to_string()).await?;
    Ok(())
}

#[test]
fn a_recorded_model_is_opened_and_a_link_holds_it() -> Result<()> {
    journey("hull", async |journey| {
        let page = journey.planner().await?;
        page.address_with(&["?"]).await?;
        agreed(&page).await?;
        page.unfold("Recorded").await?;
        open(&page, &file("gcn.hull")).await?;
        page.address_with(&["hull=sha256", "axes=S%3A3000", "#h="]).await?;
        page.reads("hull", "what it is", |text| {
            ["GCN", "torch 2.11", "Witnesses", "direct recordings come out"].iter().all(|word| text.contains(word))
        })
        .await?;
        agreed(&page).await?;

        page.retype("axis-S", "20000").await?;
        let address = page.address_with(&["axes=S%3A20000"]).await?;
        let figures = agreed(&page).await?;
        let hull = HullModel::of(&std::fs::read(file("gcn.hull"))?)?.with_axis("S", 20_000);
        ensure!(figures == expected(&asked(&address, &hull)?)?, "{figures:?}");
        // The other answers come from the worker.
        page.reads("max-batch", "the largest batch", |text| text.chars().any(|c| c.is_ascii_digit())).await?;

        // A size that it does not hold for is refused, and the last answer stays.
        page.retype("axis-S", "7").await?;
        page.until("that 7 is too small", async || {
            let said = page.eval("return document.getElementById('axis-S-error').textContent").await?;
            Ok(if said.to_string().contains("the least") { Ok(()) } else { Err(said) })
        })
        .await?;
        page.retype("axis-S", "20000").await?;

        let other = journey.browser().await?;
        other.open(address.as_str()).await?;
        ensure!(agreed(&other).await? == figures && other.address().await? == address);
        Ok(())
    })
}

#[test]
fn what_is_no_hull_is_said_to_be_none() -> Result<()> {
    journey("no hull", async |journey| {
        let page = journey.planner().await?;
        let before = agreed(&page).await?;
        page.unfold("Recorded").await?;
        let folder = tempfile::tempdir()?;
        let broken = folder.path().join("broken.hull");
        let good = std::fs::read(file("gcn.hull"))?;
        std::fs::write(&broken, good.get(..good.len() / 2).context("it is empty")?)?;
        open(&page, &broken).await?;
        page.reads("hull-error", "what is wrong", |text| text.contains("cannot be unpacked")).await?;
        ensure!(agreed(&page).await? == before);
        Ok(())
    })
}

#[test]
fn a_link_names_a_hull_that_the_server_keeps() -> Result<()> {
    journey("hull of the server", async |journey| {
        let bytes = std::fs::read(file("gcn.hull"))?;
        let hull = HullModel::of(&bytes)?.with_axis("S", 5000);
        let id = hull.hash().strip_prefix("sha256:").context("no hash")?;
        let link = format!("?hull=sha256%3A{id}&axes=S%3A5000&batch=3");
        let host = format!("127.0.0.1:{}", journey.home().port().context("no port")?);
        for (address, said) in [("0".repeat(64), "422"), (id.to_owned(), "201"), (id.to_owned(), "200")] {
            let answer = put(&host, &address, &bytes)?;
            ensure!(answer.starts_with(&format!("HTTP/1.1 {said}")), "{answer}");
        }
        let other = journey.browser().await?;
        other.open(&link).await?;
        let address = other.address_with(&["#h="]).await?;
        let figures = agreed(&other).await?;
        ensure!(figures == expected(&asked(&address, &hull)?)?, "{figures:?}");
        Ok(())
    })
}

fn put(host: &str, id: &str, bytes: &[u8]) -> Result<String> {
    let mut stream = TcpStream::connect(host)?;
    let length = bytes.len();
    write!(
        stream,
        "PUT /api/v1/hulls/{id} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/octet-stream\r\n\
         Content-Length: {length}\r\nConnection: close\r\n\r\n"
    )?;
    stream.write_all(bytes)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// A model of the catalog that exists as a recording: found by what people call it, fetched beside the planner's files, and
/// named by a short link.
#[test]
fn a_recording_of_the_catalog_is_found_fetched_and_named() -> Result<()> {
    journey("shipped hull", async |journey| {
        let page = journey.planner().await?;
        agreed(&page).await?;
        page.retype("model-search", "sd 1.5 lora").await?;
        page.press(Key::Enter).await?;
        let address = page.address_with(&["hull=sha256"]).await?;
        ensure!(!address.as_str().contains("#h="), "the link carries what every host has: {address}");
        let model = catalog::recorded_model("sd-1.5-unet-lora").context("it is not in the catalog")?;
        let bytes = std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("../data/hulls/sd-1.5-unet-lora.hull"))?;
        let hull = HullModel::of(&bytes)?;
        ensure!(model.hash == hull.hash(), "{model:?}");
        let figures = expected(&asked(&address, &hull)?)?;
        page.reads("peak-process", "the peak", |text| text.starts_with(&figures.peak)).await?;
        // Whoever opens the link has it too.
        let other = journey.browser().await?;
        other.open(address.as_str()).await?;
        other.reads("peak-process", "the peak", |text| text.starts_with(&figures.peak)).await?;
        other.reads("hull", "what it is", |text| text.contains("torch 2.11")).await?;
        // Its sizes are its own, and can be changed.
        other.retype("axis-S", "768").await?;
        let address = other.address_with(&["axes=S%3A768"]).await?;
        let larger = expected(&asked(&address, &hull.with_axis("S", 768))?)?;
        ensure!(larger.process > figures.process, "{larger:?}");
        other.reads("peak-process", "the peak", |text| text.starts_with(&larger.peak)).await.map(drop)
    })
}
