//! A model's own `config.json`, pasted.

use anyhow::{Context as _, Result, ensure};
use plimsoll_core::{
    Scenario,
    scenario::{Link, ModelSource},
};
use serde_json::{Value, json};

use crate::{
    figures::{agreed, expected},
    journey::journey,
    page::Page,
};

/// A config.json as Qwen2.5-1.5B's is written, half as deep, so that it is in no catalog.
fn qwen() -> String {
    let config = json!({
        "architectures": ["Qwen2ForCausalLM"],
        "attention_dropout": 0.0,
        "bos_token_id": 151_643,
        "eos_token_id": 151_645,
        "hidden_act": "silu",
        "hidden_size": 1536,
        "initializer_range": 0.02,
        "intermediate_size": 8960,
        "max_position_embeddings": 32_768,
        "max_window_layers": 21,
        "model_type": "qwen2",
        "num_attention_heads": 12,
        "num_hidden_layers": 14,
        "num_key_value_heads": 2,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1_000_000.0,
        "sliding_window": 32_768,
        "tie_word_embeddings": true,
        "torch_dtype": "bfloat16",
        "transformers_version": "4.43.1",
        "use_cache": true,
        "use_sliding_window": false,
        "vocab_size": 151_936,
    });
    format!("{config:#}\n")
}

#[test]
fn a_pasted_config_gives_its_own_verdict() -> Result<()> {
    journey("pasted-config", async |journey| {
        let page = journey.planner().await?;
        let before = page.address_with(&["?"]).await?;
        agreed(&page).await?;
        page.unfold("config.json").await?;
        page.click_hook("config-paste").await?;
        page.paste(&qwen()).await?;
        let address = page.address_with(&["hf=qwen2", "#m="]).await?;
        let figures = agreed(&page).await?;
        ensure!(error(&page).await?.is_empty(), "an error: {}", error(&page).await?);

        // Not only what the link says: what the pasted text says, in the scenario that stood there before.
        let mut scenario = Link::decode_strict(before.as_str())?;
        let config: Value = serde_json::from_str(&qwen())?;
        scenario.model.source = ModelSource::HuggingFace(config.as_object().cloned().context("no object")?);
        ensure!(figures == expected(&Scenario::from_value(&scenario.to_value())?)?, "{figures:?}");

        // The link holds the model.
        let other = journey.browser().await?;
        other.open(address.as_str()).await?;
        ensure!(agreed(&other).await? == figures && other.address().await? == address);
        Ok(())
    })
}

#[test]
fn what_is_wrong_with_a_config_is_said_and_the_text_stays() -> Result<()> {
    journey("wrong-config", async |journey| {
        let page = journey.planner().await?;
        page.address_with(&["?"]).await?;
        let before = agreed(&page).await?;
        page.unfold("config.json").await?;
        // Neither listed nor shaped like a decoder, which would be estimated as Llama.
        let unsupported = qwen().replace("\"qwen2\"", "\"mamba\"").replace("num_attention_heads", "state_size");
        let cut = &qwen()[..200];
        for (text, named) in [
            (&*unsupported, &["mamba", "does not estimate", "plimsoll probe"][..]),
            (cut, &["JSON"]),
            ("[1, 2, 3]", &["object"]),
            ("{}", &["model_type"]),
            ("nothing of the kind", &["JSON"]),
        ] {
            page.click_hook("config-paste").await?;
            page.select_all().await?;
            page.paste(text).await?;
            page.until(&format!("an error that names {named:?}"), async || {
                let error = error(&page).await?;
                Ok(if named.iter().all(|word| error.contains(word)) { Ok(()) } else { Err(error) })
            })
            .await?;
            ensure!(page.value("config-paste").await? == text, "the pasted text is gone");
        }
        // Nothing of it was taken.
        ensure!(agreed(&page).await? == before);

        // Mended, it is taken and the error goes.
        page.click_hook("config-paste").await?;
        page.select_all().await?;
        page.paste(&qwen()).await?;
        page.address_with(&["hf=qwen2"]).await?;
        agreed(&page).await?;
        ensure!(error(&page).await?.is_empty(), "the error stays: {}", error(&page).await?);
        Ok(())
    })
}

/// A config whose sizes cannot be: it is a model all the same, so it is taken, and said to be wrong wherever it is.
#[test]
fn a_config_that_does_not_add_up_is_named_here_and_in_its_link() -> Result<()> {
    journey("uneven-config", async |journey| {
        let page = journey.planner().await?;
        page.address_with(&["?"]).await?;
        let before = agreed(&page).await?;
        page.unfold("config.json").await?;
        page.click_hook("config-paste").await?;
        let uneven = qwen().replace("\"num_attention_heads\": 12", "\"num_attention_heads\": 11");
        page.paste(&uneven).await?;
        page.reads("config-error", "what does not divide", |text| text.contains("num_attention_heads 11")).await?;
        ensure!(page.value("config-paste").await? == uneven, "the pasted text is gone");
        // The last answer stays.
        ensure!(page.glance("peak-process").await?.as_deref() == Some(before.peak.as_str()));

        let other = journey.browser().await?;
        other.open(page.address_with(&["#m="]).await?.as_str()).await?;
        other.reads("fault", "what does not divide", |text| text.contains("num_attention_heads 11")).await?;
        ensure!(other.glance("verdict").await?.as_deref() == Some("No estimate"));
        other.retype("model-search", "gpt2").await?;
        other.press(fantoccini::key::Key::Enter).await?;
        other.address_with(&["model=gpt2"]).await?;
        agreed(&other).await?;
        Ok(())
    })
}

/// What is said to be wrong with the config; empty when nothing is.
async fn error(page: &Page) -> Result<String> {
    Ok(page.glance("config-error").await?.unwrap_or_default())
}
