//! What decides is in sight, and nothing scrolls inside itself.

use anyhow::{Result, ensure};
use serde_json::json;

use crate::{accessibility::nothing_beyond_the_edge, command::devtools, figures::agreed, journey::journey, page::Page};

/// The controls that decide, by their hooks.
const DECIDE: [&str; 9] =
    ["model-search", "gpu-search", "batch", "seq", "precision", "optimizer", "checkpointing", "lora", "quantization"];

#[test]
fn what_decides_is_in_sight_beside_the_verdict() -> Result<()> {
    journey("in-sight", async |journey| {
        let page = journey.browser().await?;
        for (width, height) in [(1440, 900), (1280, 800)] {
            window(&page, width, height).await?;
            for link in
                ["?model=qwen3-8b&gpu=rtx-5070-ti&batch=4&lora=16&quantization=nf4", "?model=llama-3.3-70b&lora=16"]
            {
                page.open(link).await?;
                agreed(&page).await?;
                let script = "return arguments[0].filter(hook => {
                    const element = document.querySelector(`[data-testid='${hook}']`);
                    const box = element?.getBoundingClientRect();
                    if (!box || box.top < 0 || box.bottom > innerHeight || box.width === 0) return true;
                    const there = document.elementFromPoint(box.x + box.width / 2, box.y + box.height / 2);
                    return !element.contains(there) && !there?.contains(element);
                })";
                let hidden = page.eval_with(script, vec![json!(DECIDE)]).await?;
                ensure!(hidden == json!([]), "{link} at {width} x {height}: {hidden} cannot be seen");
            }
        }
        Ok(())
    })
}

#[test]
fn the_controls_scroll_with_the_page_alone() -> Result<()> {
    journey("no-box", async |journey| {
        let page = journey.browser().await?;
        window(&page, 1280, 720).await?;
        page.open("?model=llama-3.1-8b&gpu=rtx-4090&lora=16").await?;
        agreed(&page).await?;
        page.eval("document.querySelectorAll('.controls details').forEach(fold => { fold.open = true })").await?;
        let boxed = "const scrolls = e => /auto|scroll/.test(getComputedStyle(e).overflowY) && e.scrollHeight > e.clientHeight + 1;
            return [...document.querySelectorAll('.controls, .controls *')]
                .filter(e => e.checkVisibility() && scrolls(e) && !e.matches('textarea,[role=listbox]'))
                .map(e => e.className)";
        let boxed = page.eval(boxed).await?;
        ensure!(boxed == json!([]), "{boxed} scroll inside themselves");
        // Its end comes into sight when the page is scrolled, before anything else on the page does.
        page.until("the end of the controls to be in sight", async || {
            let script = "scrollTo(0, document.documentElement.scrollHeight);
                const box = document.querySelector('.controls').getBoundingClientRect();
                return [Math.round(box.bottom - innerHeight), Math.round(box.height)]";
            let seen = page.eval(script).await?;
            Ok(crate::page::check(seen.get(0).and_then(|v| v.as_i64()).is_some_and(|below| below <= 0), seen))
        })
        .await
    })
}

/// Every figure and name of the gauge within its frame, and none across another, however far the run is from its card.
#[test]
fn the_gauge_keeps_its_words_at_any_width_and_ratio() -> Result<()> {
    journey("gauge-words", async |journey| {
        let page = journey.browser().await?;
        for width in [320, 390, 768, 1024, 1280, 1440] {
            window(&page, width, 900).await?;
            for link in [
                "",
                "?model=qwen3-8b&gpu=rtx-5070-ti&batch=4",
                "?model=llama-3.3-70b&batch=4",
                "?model=llama-3.1-405b&gpu=rtx-4090&checkpointing=full",
            ] {
                page.open(link).await?;
                agreed(&page).await?;
                page.until("the ladder to be known", async || {
                    let rungs = page.eval("return document.querySelectorAll('.rung-button').length").await?;
                    Ok(crate::page::check(rungs.as_u64().is_some_and(|n| n > 5), rungs))
                })
                .await?;
                let script = "const svg = document.querySelector('.gauge svg'), frame = svg.getBoundingClientRect();
                    const texts = [...svg.querySelectorAll('text')]
                        .filter(t => t.textContent && !t.matches('.mark-text,.mark-figure,.mark-note,.letter'))
                        .map(t => [t.textContent, t.getBoundingClientRect()]);
                    const out = texts.filter(([, b]) => b.left < frame.left || b.right > frame.right
                        || b.top < frame.top || b.bottom > frame.bottom).map(([text]) => `${text} leaves the frame`);
                    texts.forEach(([one, a], i) => texts.slice(i + 1).forEach(([other, b]) => {
                        const across = Math.min(a.right, b.right) - Math.max(a.left, b.left);
                        const down = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
                        if (across > 1 && down > 4) out.push(`${one} runs into ${other}`);
                    }));
                    return out";
                let wrong = page.eval(script).await?;
                ensure!(wrong == json!([]), "{link} at {width}: {wrong}");
                nothing_beyond_the_edge(&page).await?;
            }
        }
        Ok(())
    })
}

/// Sets the size of the window in CSS pixels.
async fn window(page: &Page, width: u32, height: u32) -> Result<()> {
    let metrics = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
    devtools(page.client(), "Emulation.setDeviceMetricsOverride", metrics).await?;
    Ok(())
}
