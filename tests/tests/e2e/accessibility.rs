//! Nothing for axe to object to, and nothing beyond the edge: light and dark, wide and narrow.

use anyhow::{Result, ensure};
use fantoccini::key::Key;
use serde_json::json;

use crate::{
    axe,
    command::devtools,
    figures::agreed,
    journey::{Journey, journey},
    page::Page,
    theme,
};

#[test]
fn light_and_wide() -> Result<()> {
    journey("axe-light-1280", async |journey| looks_right(journey, "light", 1280).await)
}

#[test]
fn dark_and_wide() -> Result<()> {
    journey("axe-dark-1280", async |journey| looks_right(journey, "dark", 1280).await)
}

#[test]
fn light_and_narrow() -> Result<()> {
    journey("axe-light-320", async |journey| looks_right(journey, "light", 320).await)
}

#[test]
fn dark_and_narrow() -> Result<()> {
    journey("axe-dark-320", async |journey| looks_right(journey, "dark", 320).await)
}

/// The checks would notice.
#[test]
fn faults_are_noticed() -> Result<()> {
    journey("axe-itself", async |journey| {
        let page = journey.planner().await?;
        agreed(&page).await?;
        page.eval("document.querySelector(`label[for='batch']`).remove()").await?;
        page.eval("document.querySelector(`[data-testid='verdict']`).style.setProperty('color', 'rgb(200 200 190)')")
            .await?;
        let violations = axe::violations(&page).await?.join("\n");
        ensure!(violations.contains("#batch") && violations.contains("color-contrast"), "{violations}");

        sized(&page, 320).await?;
        nothing_beyond_the_edge(&page).await?;
        page.eval(
            "document.body.append(Object.assign(document.createElement('div'), { id: 'wide' }));
            document.getElementById('wide').style.setProperty('width', '400px');
            document.getElementById('wide').style.setProperty('height', '1px')",
        )
        .await?;
        ensure!(nothing_beyond_the_edge(&page).await.is_err());
        Ok(())
    })
}

async fn looks_right(journey: &Journey, scheme: &str, width: u32) -> Result<()> {
    let page = journey.browser().await?;
    theme::system(&page, scheme).await?;
    sized(&page, width).await?;
    page.open("").await?;
    agreed(&page).await?;
    still(&page).await?;
    nothing_beyond_the_edge(&page).await?;
    axe::is_clean(&page, "as it opens").await?;

    // Everything that can be there at once: a notice, every fold open, an error at a field and one at the config.
    page.open("?model=llama-3.2-1b&gpu=no-such-card&batch=64&seq=4096&lora=16").await?;
    page.reads("notice", "what is wrong", |text| !text.is_empty()).await?;
    page.eval("document.querySelectorAll('details').forEach(fold => { fold.open = true })").await?;
    page.retype("batch", "many").await?;
    page.click_hook("config-paste").await?;
    page.paste("{}").await?;
    page.reads("config-error", "an error", |text| text.contains("model_type")).await?;
    still(&page).await?;
    nothing_beyond_the_edge(&page).await?;
    axe::is_clean(&page, "with everything open").await?;

    // A list that is open, and the cursor on the timeline.
    page.click_hook("gpu-search").await?;
    page.attribute_is("gpu-search", "aria-expanded", "true").await?;
    still(&page).await?;
    nothing_beyond_the_edge(&page).await?;
    axe::is_clean(&page, "with a list open").await?;
    page.press(Key::Escape).await?;

    // A model of its own sizes has other fields.
    page.open("?family=nanogpt&n_layer=2").await?;
    agreed(&page).await?;
    page.eval("document.querySelectorAll('details').forEach(fold => { fold.open = true })").await?;
    still(&page).await?;
    nothing_beyond_the_edge(&page).await?;
    axe::is_clean(&page, "with a small family").await?;

    // Cards that do different things.
    page.open("?model=llama-3.2-1b&gpu=rtx-5070-ti&gpus=4&strategy=data-parallel&batch=3&seq=1024").await?;
    agreed(&page).await?;
    still(&page).await?;
    nothing_beyond_the_edge(&page).await?;
    axe::is_clean(&page, "with two roles").await
}

/// Sets the width of the window in CSS pixels; no window of a desktop is as narrow as a telephone.
pub async fn sized(page: &Page, width: u32) -> Result<()> {
    let metrics = json!({ "width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false });
    devtools(page.client(), "Emulation.setDeviceMetricsOverride", metrics).await?;
    Ok(())
}

/// Waits until nothing moves: half-way through a transition colours are nobody's choice.
pub async fn still(page: &Page) -> Result<()> {
    page.until("everything to stand still", async || {
        let moving = page
            .eval(
                "return document.getAnimations().filter(a => a.playState === 'running').length
                    + document.querySelectorAll('.is-pending').length",
            )
            .await?;
        Ok(if moving == 0 { Ok(()) } else { Err(moving) })
    })
    .await
}

/// Nothing may lie to the right of the window, unless it is in a box that scrolls by itself.
pub async fn nothing_beyond_the_edge(page: &Page) -> Result<()> {
    let script = "const root = document.documentElement, edge = root.clientWidth;
        const scrolls = element => /auto|scroll|hidden|clip/.test(getComputedStyle(element).overflowX);
        const boxed = element => { for (let e = element.parentElement; e && e !== document.body; e = e.parentElement)
            if (scrolls(e) && e.getBoundingClientRect().right <= edge + 1) return true; return false };
        const beyond = [...document.body.querySelectorAll('*')]
            .filter(e => e.checkVisibility() && e.getBoundingClientRect().width > 1
                && e.getBoundingClientRect().right > edge + 1 && !boxed(e))
            .map(e => `${e.tagName.toLowerCase()}#${e.id}.${e.getAttribute('class')} to ${e.getBoundingClientRect().right}`);
        return { scrolls: root.scrollWidth > edge ? `the page is ${root.scrollWidth} wide in ${edge}` : '', beyond };";
    let seen = page.eval(script).await?;
    let fits = seen.get("scrolls").is_some_and(|s| s == "")
        && seen.get("beyond").and_then(|b| b.as_array()).is_some_and(Vec::is_empty);
    ensure!(fits, "beyond the edge: {seen}");
    Ok(())
}
