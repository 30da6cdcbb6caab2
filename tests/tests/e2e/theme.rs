//! Light and dark: the system's choice, until a person makes another.

use anyhow::{Result, ensure};
use serde_json::json;

use crate::{command::devtools, journey::journey, page::Page};

#[test]
fn the_theme_follows_the_system_until_it_is_chosen() -> Result<()> {
    journey("theme", async |journey| {
        let page = journey.planner().await?;
        system(&page, "light").await?;
        page.attribute_is("theme-toggle", "aria-pressed", "false").await?;
        let light = ground(&page).await?;
        system(&page, "dark").await?;
        page.attribute_is("theme-toggle", "aria-pressed", "true").await?;
        let dark = settled(&page, |now| now != light).await?;

        // Chosen, it no longer follows, and it is remembered.
        page.click_hook("theme-toggle").await?;
        page.attribute_is("theme-toggle", "aria-pressed", "false").await?;
        settled(&page, |now| now == light).await?;
        page.reload().await?;
        ensure!(ground(&page).await? == light, "the choice was forgotten");
        page.attribute_is("theme-toggle", "aria-pressed", "false").await?;
        page.click_hook("theme-toggle").await?;
        system(&page, "light").await?;
        settled(&page, |now| now == dark).await?;
        page.attribute_is("theme-toggle", "aria-pressed", "true").await
    })
}

/// Sets what the system prefers.
pub async fn system(page: &Page, scheme: &str) -> Result<()> {
    let features = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
    devtools(page.client(), "Emulation.setEmulatedMedia", json!({ "features": features })).await?;
    Ok(())
}

/// The colours of the page and of its ink.
async fn ground(page: &Page) -> Result<String> {
    let colour = page.eval("return `${getComputedStyle(document.documentElement).backgroundColor} ${getComputedStyle(document.body).color}`").await?;
    Ok(colour.as_str().unwrap_or_default().to_owned())
}

async fn settled(page: &Page, wanted: impl Fn(&str) -> bool) -> Result<String> {
    page.until("the other colours", async || {
        let now = ground(page).await?;
        Ok(if wanted(&now) { Ok(now) } else { Err(now) })
    })
    .await
}
