//! Links: everything comes back; a broken one says so and never leaves an empty page.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use fantoccini::key::Key;
use plimsoll_core::scenario::Link;
use serde_json::Value;

use crate::{command::permit_clipboard, figures::agreed, journey::journey, page::Page};

#[test]
fn a_link_restores_everything_in_a_fresh_browser() -> Result<()> {
    journey("link-round-trip", async |journey| {
        let page = journey.planner().await?;
        page.address_with(&["?"]).await?;
        let untouched = controls(&page).await?;

        page.retype("model-search", "qwen3-0.6b").await?;
        page.press(Key::Enter).await?;
        page.address_with(&["model=qwen3-0.6b"]).await?;
        page.retype("gpu-search", "rtx-4090").await?;
        page.press(Key::Enter).await?;
        page.retype("batch", "6").await?;
        page.retype("seq", "768").await?;
        page.retype("accumulation", "3").await?;
        page.choose("precision", "fp16-amp").await?;
        page.choose("optimizer", "adam").await?;
        page.choose("optimizer-impl", "for-loop").await?;
        page.choose("checkpointing", "full").await?;
        page.click_hook("lora").await?;
        page.retype("lora-rank", "24").await?;
        page.unfold("More of the loop").await?;
        page.choose("attention", "eager").await?;
        page.choose("zero-grad-at", "before-backward").await?;
        page.click_hook("clip-grad-norm").await?;
        page.unfold("Memory and load line").await?;
        page.retype("load-line", "20 GiB").await?;
        page.press(Key::Tab).await?;

        let said = [
            "model=qwen3-0.6b",
            "gpu=rtx-4090",
            "batch=6",
            "seq=768",
            "accumulation=3",
            "precision=fp16",
            "optimizer=adam",
            "impl=for-loop",
            "checkpointing=full",
            "lora=24",
            "attention=eager",
            "zero_grad_at=before-backward",
            "clip=false",
            "load_line=20",
        ];
        let address = page.address_with(&said).await?;
        let figures = agreed(&page).await?;
        let changed = controls(&page).await?;
        ensure!(changed != untouched);

        // The button copies what the address bar holds.
        permit_clipboard(page.client()).await?;
        page.click_hook("copy-link").await?;
        page.reads("copy-link", "Copied", |text| text == "Copied").await?;
        let copied = page
            .client()
            .execute_async(
                "navigator.clipboard.readText().then(arguments[0], error => arguments[0](`${error}`))",
                vec![],
            )
            .await?;
        ensure!(copied == address.as_str(), "copied {copied}, not {address}");

        let other = journey.browser().await?;
        other.open(address.as_str()).await?;
        ensure!(agreed(&other).await? == figures);
        let restored = controls(&other).await?;
        ensure!(restored == changed, "{}", differences(&changed, &restored));
        ensure!(other.address().await? == address, "the address became {}", other.address().await?);
        ensure!(other.glance("notice").await?.is_none());

        // So does loading the page again.
        page.reload().await?;
        ensure!(agreed(&page).await? == figures && controls(&page).await? == changed);
        Ok(())
    })
}

#[test]
fn a_broken_link_says_what_is_wrong_with_it() -> Result<()> {
    journey("broken-link", async |journey| {
        let page = journey.browser().await?;
        for (link, named) in [
            ("?model=llama-3.2-1b&gpu=no-such-card&batch=banana&seq=512", &["no-such-card", "banana"][..]),
            ("?model=no-such-model&precision=bf16", &["no-such-model"]),
            ("?wings=2&seq=512", &["wings"]),
            ("?hf=llama#m=!!!!", &["m"]),
            ("?hf=qwen2&batch=2", &["qwen2"]),
            ("?batch=99999999999999999999", &["batch", "too large"]),
            ("?batch=0", &["batch"]),
            ("?%ff%fe=%zz&&&=&batch", &[]),
        ] {
            page.open(link).await.with_context(|| link.to_owned())?;
            let notice = page.reads("notice", "what is wrong", |text| !text.is_empty()).await.context(link)?;
            for word in named {
                ensure!(notice.contains(word), "{link}: the notice does not name {word}: {notice}");
            }
            agreed(&page).await.context(link)?;
            page.click_hook("notice-dismiss").await?;
            page.is_gone("notice").await?;
        }
        // What was good in a link was taken, and what the address says now is whole.
        page.open("?model=llama-3.2-1b&gpu=no-such-card&batch=banana&seq=512").await?;
        let address = page.address_with(&["seq=512"]).await?;
        agreed(&page).await?;
        ensure!(page.value("seq").await? == "512");
        page.until("the link to become a good one", async || {
            let address = page.address().await?;
            Ok(Link::decode_strict(address.as_str()).map_err(|error| format!("{error} in {address}")))
        })
        .await
        .with_context(|| format!("opened as {address}"))?;
        Ok(())
    })
}

#[test]
fn a_link_of_a_newer_version_says_so() -> Result<()> {
    journey("newer-link", async |journey| {
        let page = journey.browser().await?;
        page.open("?v=99&model=llama-3.2-1b&tide=high").await?;
        let notice = page.reads("notice", "that it is newer", |text| text.contains("newer")).await?;
        ensure!(notice.contains("99"), "which version is not said: {notice}");
        agreed(&page).await?;
        page.click_hook("notice-dismiss").await?;
        page.is_gone("notice").await
    })
}

/// A link followed while the planner is open, as from its history or a bookmark.
#[test]
fn going_back_restores_the_scenario_before() -> Result<()> {
    journey("history", async |journey| {
        let page = journey.browser().await?;
        page.open("?model=gpt2&gpu=t4&batch=2&seq=256").await?;
        page.address_with(&["gpu=t4"]).await?;
        let first = agreed(&page).await?;
        page.client().goto(&page.address().await?.as_str().replace("batch=2", "batch=5")).await?;
        page.address_with(&["batch=5"]).await?;
        let second = agreed(&page).await?;
        ensure!(second != first);
        page.client().back().await?;
        page.address_with(&["batch=2"]).await?;
        ensure!(agreed(&page).await? == first);
        Ok(())
    })
}

/// The state of every control, by its name.
async fn controls(page: &Page) -> Result<BTreeMap<String, String>> {
    let script = "return [...document.querySelectorAll('form.controls :is(input, textarea, select)')]
        .filter(control => control.dataset.testid !== 'config-paste')
        .map(control => ['radio', 'checkbox'].includes(control.type)
            ? [`${control.name || control.id} ${control.type === 'radio' ? control.value : ''}`, `${control.checked}`]
            : [control.id || control.ariaLabel, control.value])";
    let state = page.eval(script).await?;
    let pair = |pair: &Value| Some((pair.get(0)?.as_str()?.to_owned(), pair.get(1)?.as_str()?.to_owned()));
    let controls: Option<BTreeMap<_, _>> = state.as_array().into_iter().flatten().map(pair).collect();
    let controls = controls.with_context(|| format!("a control without a name: {state}"))?;
    ensure!(controls.len() > 20, "too few controls: {controls:?}");
    Ok(controls)
}

fn differences(one: &BTreeMap<String, String>, other: &BTreeMap<String, String>) -> String {
    let keys = one.keys().chain(other.keys()).collect::<std::collections::BTreeSet<_>>();
    let different = keys.into_iter().filter(|key| one.get(*key) != other.get(*key));
    different.map(|key| format!("{key}: {:?}, then {:?}\n", one.get(key), other.get(key))).collect()
}
