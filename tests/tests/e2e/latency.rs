//! How long a person waits: from a key to the painted answer; from opening the page to the verdict that is served in it, and
//! to the planner's own.
//!
//! `cargo xtask bench browser` takes these against the planner that is given away, and writes what they say into
//! docs/performance.md. Each says its figures in lines that begin with [`MARK`].

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use fantoccini::key::Key;
use serde_json::json;

use crate::{called, command::devtools, figures::agreed, journey::journey, page::Page, watch::findings};

/// What a line with a figure begins with: name, samples, median, 95th percentile, slowest, in ms.
const MARK: &str = "plimsoll-browser";

/// Keys that are timed, of each model.
const KEYS: usize = 60;

/// How long the page rests between two keys.
const REST: Duration = Duration::from_millis(350);

/// Opened so often, with nothing in the browser's cache.
const OPENED: usize = 9;

/// A link that somebody was sent.
const LINK: &str = "?model=llama-3.1-8b&gpu=rtx-5070-ti";

/// How many times slower the processor is made for it.
const THROTTLE: u32 = 4;

/// Notes when the figure that answers a key was painted: changed, and the frame after that begun.
const WATCH: &str = "
    const figure = document.querySelector(`[data-testid='peak-process']`);
    window.timed = [];
    let since = null;
    addEventListener('keydown', event => { since = event.timeStamp; }, true);
    new MutationObserver(() => {
        const began = since;
        since = null;
        if (began === null) return;
        requestAnimationFrame(() => {
            const channel = new MessageChannel();
            channel.port1.onmessage = () => timed.push(performance.now() - began);
            channel.port2.postMessage(0);
        });
    }).observe(figure, { subtree: true, childList: true, characterData: true });";

/// The same of the verdict that is served in the page and of the planner's own, which takes its place: the planner stands
/// then, and its fields follow. Runs before anything of the page does.
const OPENING: &str = "
    window.painted = {};
    const when = (name, selector) => {
        const watch = new MutationObserver(() => {
            const figure = document.querySelector(selector);
            if (!/[0-9]/.test(figure?.textContent ?? '')) return;
            // What is served is the answer to another question: hidden until the link's own stands in its place.
            if (name === 'served' && 'asked' in document.documentElement.dataset) return;
            watch.disconnect();
            requestAnimationFrame(() => {
                const channel = new MessageChannel();
                channel.port1.onmessage = () => { painted[name] = performance.now(); };
                channel.port2.postMessage(0);
            });
        });
        watch.observe(document, { subtree: true, childList: true, characterData: true });
    };
    when('served', `[data-served='peak-process']`);
    when('planner', `[data-testid='peak-process']`);";

#[test]
#[ignore = "measures: cargo xtask bench browser"]
fn from_a_key_to_the_painted_answer() -> Result<()> {
    journey("latency-keys", async |journey| {
        // Adapters: the peak is of what is computed, so that each batch has another one.
        for (name, link) in [
            ("GPT-2", "?model=gpt2"),
            ("Llama 3.1 8B with LoRA", "?model=llama-3.1-8b&gpu=b200&lora=16"),
            ("Llama 3.3 70B with LoRA", "?model=llama-3.3-70b&gpu=b200&lora=16"),
        ] {
            let page = journey.browser().await?;
            page.open(link).await?;
            agreed(&page).await?;
            page.retype("batch", "1").await?;
            agreed(&page).await?;
            page.eval(WATCH).await?;
            for key in 0..KEYS {
                // Up and down again: a batch of one and of two to eight, each another answer.
                page.press(if key % 14 < 7 { Key::Up } else { Key::Down }).await?;
                counted(&page, key + 1).await?;
                tokio::time::sleep(REST).await;
            }
            report(&format!("key {name}"), &page.eval("return timed").await?)?;
        }
        Ok(())
    })
}

/// Waits until so many answers were painted.
async fn counted(page: &Page, many: usize) -> Result<()> {
    page.until(&format!("answer {many} to be painted"), async || {
        let seen = page.eval("return timed.length").await?;
        Ok(crate::page::check(seen.as_u64().is_some_and(|n| n >= many as u64), seen))
    })
    .await
}

#[test]
#[ignore = "measures: cargo xtask bench browser"]
fn from_opening_to_the_first_verdict() -> Result<()> {
    journey("latency-opening", async |journey| {
        for (name, link, throttle) in [
            ("opening", "", 1),
            ("opening, processor throttled", "", THROTTLE),
            ("a link to an 8B", LINK, 1),
            ("a link to an 8B, processor throttled", LINK, THROTTLE),
        ] {
            let (mut served, mut stands) = (Vec::new(), Vec::new());
            for _ in 0..OPENED {
                // A browser of its own: nothing compiled, nothing kept.
                let page = journey.browser().await?;
                devtools(page.client(), "Page.addScriptToEvaluateOnNewDocument", json!({ "source": OPENING })).await?;
                devtools(page.client(), "Emulation.setCPUThrottlingRate", json!({ "rate": throttle })).await?;
                page.open(link).await?;
                let painted = page
                    .until("both verdicts", async || {
                        let painted = page.eval("return window.painted").await?;
                        let both = painted["served"].is_number() && painted["planner"].is_number();
                        Ok(if both { Ok(painted) } else { Err(painted) })
                    })
                    .await?;
                served.push(painted["served"].clone());
                stands.push(painted["planner"].clone());
                devtools(page.client(), "Emulation.setCPUThrottlingRate", json!({ "rate": 1 })).await?;
            }
            let where_from =
                if link.is_empty() { "served in the page" } else { "the engine's, before the planner is made" };
            report(&format!("{name}, the first verdict, {where_from}"), &json!(served))?;
            report(
                &format!("{name}, the planner stands (its own verdict; the fields follow a frame later)"),
                &json!(stands),
            )?;
        }
        Ok(())
    })
}

/// How often the page stood still to wait for the rest of the planner.
const WAITED: &str = "return performance.getEntriesByType('resource')
    .filter(entry => entry.initiatorType === 'xmlhttprequest' && entry.name.includes('/rest-')).length";

/// What is fetched first is all that the page calls while it opens; a list that has become stale is found out here.
#[test]
#[ignore = "measures: cargo xtask bench browser"]
fn what_is_fetched_first_opens_the_page() -> Result<()> {
    journey("latency-first-half", async |journey| {
        for link in called::OPENED {
            let page = journey.browser().await?;
            page.open(link).await?;
            agreed(&page).await?;
            ensure!(page.eval(WAITED).await? == 0, "{link:?}: the page stood still for the rest of the planner");
        }
        // Where the rest cannot be had, it stands all the same, until something of it is asked for.
        let page = journey.browser().await?;
        devtools(page.client(), "Network.enable", json!({})).await?;
        devtools(page.client(), "Network.setBlockedURLs", json!({ "urls": ["*/rest-*"] })).await?;
        page.open(LINK).await?;
        let peak = page.reads("peak-process", "a figure", |text| text.contains("GiB")).await?;
        devtools(page.client(), "Network.setBlockedURLs", json!({ "urls": [] })).await?;
        page.open("?model=t5-base").await?;
        ensure!(agreed(&page).await?.process > 0, "after {peak}");
        // The console tells of the request that was blocked, and of nothing else.
        let found = findings(page.client()).await?;
        ensure!(found.iter().all(|line| line.contains("/rest-")), "{found:?}");
        Ok(())
    })
}

/// Says the figures in a line of their own.
fn report(name: &str, times: &serde_json::Value) -> Result<()> {
    let mut times: Vec<f64> = times.as_array().context("no times")?.iter().filter_map(|time| time.as_f64()).collect();
    ensure!(times.len() >= OPENED, "{} times of {name}", times.len());
    times.sort_by(f64::total_cmp);
    let at = |share: f64| times.get(((times.len() - 1) as f64 * share).round() as usize).copied().unwrap_or(f64::NAN);
    println!("{MARK} {name}: {} {:.1} {:.1} {:.1}", times.len(), at(0.5), at(0.95), at(1.0));
    Ok(())
}
