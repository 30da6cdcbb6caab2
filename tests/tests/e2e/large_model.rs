//! A model too large for one frame is computed in the worker, and the answer is the same.

use anyhow::{Result, ensure};
use fantoccini::key::Key;

use plimsoll_core::{Scenario, estimate::estimate, scenario::Link};
use serde_json::json;

use crate::{figures::agreed, journey::journey};

#[test]
fn a_large_model_is_computed_in_the_worker() -> Result<()> {
    journey("large-model", async |journey| {
        let page = journey.browser().await?;
        page.open("?model=llama-3.2-1b&gpu=b200&batch=1&seq=256&precision=bf16").await?;
        let small = agreed(&page).await?;
        page.retype("model-search", "llama-3.1-70b").await?;
        page.press(Key::Enter).await?;
        page.address_with(&["model=llama-3.1-70b"]).await?;
        let large = agreed(&page).await?;
        ensure!(large.process > 20 * small.process, "{} and {}", small.peak, large.peak);

        // Typing on while it is at work ends at the last scenario, not at one that was overtaken.
        page.retype("batch", "2").await?;
        page.retype("batch", "3").await?;
        page.retype("seq", "384").await?;
        page.address_with(&["batch=3", "seq=384"]).await?;
        agreed(&page).await?;

        // What is alive at the cursor comes from the worker as well.
        let sum = page.glance("timeline-status").await?;
        page.tab_to("timeline").await?;
        page.press(Key::Home).await?;
        page.attribute_is("timeline", "aria-valuenow", "0").await?;
        ensure!(page.glance("timeline-status").await? != sum);
        Ok(())
    })
}

/// A link of some hundred bytes that asks for more than any run may take: the page says what was too large, and stays.
#[test]
fn a_link_that_asks_for_too_much_is_refused_in_words() -> Result<()> {
    journey("too-large", async |journey| {
        let scenario = Scenario::from_value(&json!({
            "model": { "hf": {
                "model_type": "t5", "architectures": ["T5ForConditionalGeneration"], "vocab_size": 32, "d_model": 8, "d_kv": 4, "d_ff": 8,
                "num_layers": 2048, "num_decoder_layers": 2048, "num_heads": 2,
            } },
            "input": { "batch": 1, "seq": 8 },
            "training": { "accumulation": 1_048_576, "checkpointing": "full" },
        }))?;
        let Err(refused) = estimate(&scenario) else { anyhow::bail!("it is estimated") };
        let page = journey.browser().await?;
        page.open(&Link::encode(&scenario)).await?;
        page.reads("fault", "what was too large", |text| text.contains(refused.problem.trim_end_matches('.'))).await?;
        page.retype("model-search", "gpt2").await?;
        page.press(Key::Enter).await?;
        page.address_with(&["model=gpt2"]).await?;
        page.retype("accumulation", "1").await?;
        agreed(&page).await.map(drop)
    })
}
