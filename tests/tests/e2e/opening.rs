//! The first screen: a filled scenario and its verdict, before anything was touched.

use anyhow::{Result, bail, ensure};
use plimsoll_core::Scenario;
use plimsoll_core::estimate::estimate;
use plimsoll_core::scenario::Link;
use serde_json::{Value, json};

use crate::{
    command::devtools,
    figures::agreed,
    journey::journey,
    watch::{findings, nothing_wrong},
};

#[test]
fn opens_on_a_filled_scenario_and_the_engines_verdict() -> Result<()> {
    journey("opening", async |journey| {
        let page = journey.planner().await?;
        // The address bar holds the scenario from the start, and the figures are the engine's for it.
        let address = page.address_with(&["?"]).await?;
        let figures = agreed(&page).await?;
        let scenario = Link::decode_strict(address.as_str())?;
        ensure!(!page.value("model-search").await?.is_empty() && !page.value("gpu-search").await?.is_empty());
        ensure!(page.value("batch").await? == scenario.input.batch.to_string());
        ensure!(Some(page.value("seq").await?) == scenario.input.seq.map(|seq| seq.to_string()));
        ensure!(page.glance("notice").await?.is_none(), "a notice although no link was given");
        ensure!(figures.parts.len() >= 5, "hardly anything fills the peak: {figures:?}");
        ensure!(page.client().title().await?.contains("Plimsoll"));

        // For those who listen, the verdict is said as well.
        let spoken = page.reads_unseen("verdict-status", |text| text.contains(&figures.peak)).await?;
        ensure!(spoken.to_lowercase().starts_with(&figures.verdict), "spoken: {spoken}");
        Ok(())
    })
}

/// What the page was served with, before the planner took its place; noted before anything of the page runs.
const SERVED: &str = "
    const note = new MutationObserver(() => {
        const panel = document.querySelector('.served .verdict-panel');
        const end = document.querySelector('.wreck');
        if (!end) return;
        note.disconnect();
        const text = selector => panel?.querySelector(selector)?.textContent.replace(/\\s+/g, ' ').trim() ?? null;
        window.served = ['.verdict-subject', '.verdict', '.figure-peak', '.figure-headroom', '.where'].map(text);
    });
    note.observe(document, { subtree: true, childList: true });";

/// Whether this address is one at which what was served is shown: asked when all styles are there.
const SHOWN: &str = "
    const probe = Object.assign(document.createElement('div'), { className: 'served' });
    document.body.append(probe);
    const shown = getComputedStyle(probe).display !== 'none';
    probe.remove();
    return shown;";

#[test]
fn the_verdict_in_the_served_page_is_the_planners() -> Result<()> {
    journey("served", async |journey| {
        let page = journey.browser().await?;
        devtools(page.client(), "Page.addScriptToEvaluateOnNewDocument", json!({ "source": SERVED })).await?;
        page.open("").await?;
        agreed(&page).await?;
        let served = page.eval("return window.served").await?;
        ensure!(page.eval(SHOWN).await? == true, "what was served is hidden: {served}");
        let now = page
            .eval(
                "return ['.verdict-subject', '.verdict', '.figure-peak', '.figure-headroom', '.where'].map(selector =>
                    document.querySelector('#verdict ' + selector).textContent.replace(/\\s+/g, ' ').trim())",
            )
            .await?;
        let bare = |texts: &Value| texts.to_string().replace(' ', "");
        ensure!(bare(&served) == bare(&now), "served {served}, painted {now}");

        // By now the address holds the link to what was served: loaded again, it is answered at once.
        let link = page.address_with(&["?"]).await?;
        page.reload().await?;
        ensure!(page.eval(SHOWN).await? == true, "hidden at {link}");
        // Another page gets no verdict at all.
        page.open("#/compare").await?;
        ensure!(page.eval(SHOWN).await? == false, "shown where measurements are compared");
        Ok(())
    })
}

/// Every peak that stood in the place of the served verdict and could be seen.
const SEEN: &str = "
    window.seen = [];
    new MutationObserver(() => {
        const peak = document.querySelector(`[data-served='peak-process']`)?.textContent.replace(/\\s+/g, '');
        if (!peak || 'asked' in document.documentElement.dataset || seen.includes(peak)) return;
        seen.push(peak);
    }).observe(document, { subtree: true, childList: true, attributes: true });";

#[test]
fn a_links_verdict_is_painted_before_the_planner_and_is_its_own() -> Result<()> {
    journey("served-link", async |journey| {
        let page = journey.browser().await?;
        devtools(page.client(), "Page.addScriptToEvaluateOnNewDocument", json!({ "source": SEEN })).await?;
        for link in ["?model=gpt2&batch=7", "#model=llama-3.1-8b&gpu=rtx-5070-ti"] {
            page.open("#/compare").await?;
            page.open(link).await?;
            page.reload().await?;
            agreed(&page).await?;
            let now = page
                .eval("return document.querySelector(`[data-testid='peak-process']`).textContent.replace(/\\s+/g, '')")
                .await?;
            let seen = page.eval("return window.seen").await?;
            ensure!(seen == json!([now]), "{link}: {seen} was seen, and then {now}");
        }
        // A run that is refused has none, and says why as ever.
        let absurd = json!({
            "model": { "hf": { "model_type": "gpt2", "n_embd": 1 << 24, "n_head": 1, "n_layer": 1 } },
            "input": { "batch": 1, "seq": 8 },
        });
        let absurd = Scenario::from_value(&absurd)?;
        let Err(refused) = estimate(&absurd) else { bail!("it is estimated") };
        page.open(&Link::encode(&absurd)).await?;
        page.reload().await?;
        page.reads("fault", "why it is refused", |text| text.contains(refused.problem.trim_end_matches('.'))).await?;
        let seen = page.eval("return window.seen").await?;
        ensure!(seen == json!([]), "{seen} was seen of a run that is refused");
        Ok(())
    })
}

#[test]
fn the_largest_batch_can_be_taken() -> Result<()> {
    journey("largest-batch", async |journey| {
        let page = journey.browser().await?;
        page.open("?model=llama-3.2-1b&gpu=h200&batch=3&seq=512").await?;
        let before = agreed(&page).await?;
        ensure!(before.largest != "none" && before.largest != "3", "{before:?}");
        page.click("[data-testid='max-batch'] button").await?;
        page.address_with(&[&format!("batch={}", before.largest)]).await?;
        let after = agreed(&page).await?;
        ensure!(after.verdict == "fits" && after.largest == before.largest, "{after:?}");
        ensure!(after.process > before.process && page.value("batch").await? == before.largest);
        Ok(())
    })
}

/// The watch that every journey keeps would notice.
#[test]
fn complaints_of_the_browser_are_noticed() -> Result<()> {
    journey("watch", async |journey| {
        let page = journey.planner().await?;
        nothing_wrong(page.client()).await?;
        page.eval("console.error('a word of complaint')").await?;
        page.eval("setTimeout(() => { throw new Error('an error of a script') })").await?;
        page.eval("document.body.append(Object.assign(document.createElement('script'), { text: 'self.ran = 1' }))")
            .await?;
        page.eval("document.body.append(Object.assign(new Image(), { src: 'http://127.0.0.1:9/x.png' }))").await?;
        let seen = std::cell::RefCell::new(String::new());
        page.until("every complaint", async || {
            let new = findings(page.client()).await?.join("\n");
            let mut seen = seen.borrow_mut();
            seen.push_str(&new);
            let wanted = ["a word of complaint", "an error of a script", "policy: script-src-elem", "policy: img-src"];
            let missing: Vec<&str> = wanted.into_iter().filter(|wanted| !seen.contains(wanted)).collect();
            Ok(if missing.is_empty() { Ok(()) } else { Err(format!("{missing:?} not in {seen}")) })
        })
        .await?;
        ensure!(page.eval("return self.ran ?? null").await?.is_null(), "an inline script ran");
        // They were meant: the watch at the journey's end starts anew.
        page.eval("sessionStorage.clear()").await?;
        Ok(())
    })
}
