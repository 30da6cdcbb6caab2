//! The pictures of README.md and what other sites show of a link to the planner: taken of the page itself.
//!
//! CONTRIBUTING.md says how; what they show changes with the page, so that they are looked at before they are committed.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use fantoccini::key::Key;
use serde_json::json;

use crate::{
    accessibility::still, command::devtools, figures::agreed, journey::journey, page::Page, surroundings, theme,
};

#[test]
#[ignore = "writes docs/pictures and web/assets/social.png"]
fn pictures_of_the_page() -> Result<()> {
    journey("pictures", async |journey| {
        let page = journey.browser().await?;
        theme::system(&page, "light").await?;
        page.open("").await?;
        settled(&page).await?;
        take(&page, "docs/pictures/first.png", 1280, 800).await?;

        page.retype("model-search", "qwen 8b").await?;
        page.press(Key::Enter).await?;
        page.retype("gpu-search", "5070 ti").await?;
        page.press(Key::Enter).await?;
        page.address_with(&["model=qwen3-8b", "gpu=rtx-5070-ti"]).await?;
        settled(&page).await?;
        page.eval("document.activeElement.blur()").await?;
        take(&page, "docs/pictures/fit.png", 1280, 1160).await?;

        page.click(".remedies button").await?;
        settled(&page).await?;
        page.eval("document.activeElement.blur(); scrollTo(0, 0)").await?;
        theme::system(&page, "dark").await?;
        take(&page, "docs/pictures/taken.png", 1280, 800).await?;

        // What a site shows of a link: the mark and what it is about, in the page's own type and colours.
        theme::system(&page, "light").await?;
        page.eval(SOCIAL).await?;
        take(&page, "web/assets/social.png", 1200, 630).await
    })
}

/// Leaves the mark and two lines on the page.
const SOCIAL: &str = "
    const mark = document.querySelector('.masthead svg').outerHTML;
    document.body.innerHTML = `<div id='social'>${mark}<h1>Plimsoll</h1>
        <p>How deep a training run will sit in GPU memory</p></div>`;
    const say = (selector, rules) => Object.entries(rules).forEach(([name, value]) =>
        document.querySelectorAll(selector).forEach(element => element.style.setProperty(name, value)));
    say('#social', { display: 'grid', 'place-content': 'center', 'justify-items': 'center', gap: '28px', height: '630px' });
    say('#social svg', { width: '420px', height: '210px' });
    say('#social h1', { 'font-size': '92px', 'font-stretch': '118%', 'font-weight': '680', 'line-height': '1' });
    say('#social p', { 'font-size': '34px' });";

/// Waits until everything that was asked is known and stands still.
async fn settled(page: &Page) -> Result<()> {
    agreed(page).await?;
    page.until("the neighbours to be known", async || {
        let seen = page.eval("return document.querySelectorAll('.rung-button').length").await?;
        Ok(crate::page::check(seen.as_u64().is_some_and(|n| n > 5), seen))
    })
    .await?;
    still(page).await
}

/// Takes a picture of the window at a size, and keeps it at a path of the project.
async fn take(page: &Page, path: &str, width: u32, height: u32) -> Result<()> {
    let metrics = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
    devtools(page.client(), "Emulation.setDeviceMetricsOverride", metrics).await?;
    still(page).await?;
    // A bar to scroll with is the system's, and not the page's.
    devtools(page.client(), "Emulation.setScrollbarsHidden", json!({ "hidden": true })).await?;
    let picture = page.client().screenshot().await?;
    ensure!(picture.starts_with(b"\x89PNG"), "it is no PNG");
    let path: PathBuf = surroundings::root().join(path);
    fs::create_dir_all(path.parent().context("no folder")?)?;
    fs::write(&path, picture).with_context(|| format!("cannot write {}", path.display()))
}
