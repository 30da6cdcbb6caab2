//! A memory snapshot of a real run, opened over the estimate.

use std::path::PathBuf;

use anyhow::{Result, ensure};
use fantoccini::Locator;
use plimsoll_core::Scenario;
use plimsoll_core::scenario::Link;

use crate::{axe, figures::agreed, journey::journey, page::Page};

/// The run that the snapshot is of.
const RUN: &str = r#"{ "model": { "hf": { "model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 1,
    "num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 1000, "use_cache": false } },
    "input": { "batch": 2, "seq": 64 }, "training": { "precision": "bf16-amp", "clip_grad_norm": false } }"#;

fn made(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../core/snapshot/tests/made").join(name)
}

async fn open(page: &Page, name: &str) -> Result<()> {
    let place = page.client().find(Locator::Css("[data-testid=snapshot-file]")).await?;
    place.send_keys(&made(name).canonicalize()?.display().to_string()).await?;
    Ok(())
}

#[test]
fn a_snapshot_is_laid_over_the_estimate() -> Result<()> {
    journey("snapshot", async |journey| {
        let page = journey.browser().await?;
        page.open(&Link::encode(&Scenario::from_json(RUN)?)).await?;
        agreed(&page).await?;

        // What is none is refused, and nothing else changes.
        open(&page, "train.py").await?;
        page.reads("snapshot-error", "why it is refused", |text| text.contains("is no snapshot")).await?;

        open(&page, "llama.pickle").await?;
        page.reads("snapshot", "what it is", |text| {
            ["llama.pickle", "2 steps of an optimizer", "Free between tensors", "llama.py:"]
                .iter()
                .all(|word| text.contains(word))
        })
        .await?;
        let said = page.reads("snapshot-against", "both", |text| text.contains("requests of the steady step")).await?;
        ensure!(said.contains("All ") && said.matches("equal to the byte").count() == 3, "{said}");
        ensure!(page.glance("snapshot-error").await?.unwrap_or_default().is_empty(), "an old refusal stands");
        axe::is_clean(&page, "a snapshot over an estimate").await?;

        // It follows the scenario.
        page.retype("batch", "4").await?;
        page.reads("snapshot-against", "where they part", |text| text.contains("Then the estimate has")).await?;

        page.click_hook("snapshot-close").await?;
        page.is_gone("snapshot").await
    })
}
