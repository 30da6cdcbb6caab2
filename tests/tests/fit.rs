//! No dead end: models and cards that people put together, as the planner opens on them, each led to a recipe that fits.
#![cfg(not(target_arch = "wasm32"))]

use plimsoll_core::Scenario;
use plimsoll_core::estimate::fit::{Allowed, fit};
use plimsoll_core::estimate::{Run, Verdict};
use serde_json::json;

/// A model and a card, and a word of the first recipe: what somebody who knows both would say.
const PAIRS: [(&str, &str, &str); 20] = [
    ("qwen3-8b", "rtx-5070-ti", "QLoRA"),
    ("qwen3-8b", "rtx-5070-ti-laptop", "QLoRA"),
    ("llama-3.1-8b", "rtx-3060", "QLoRA"),
    ("llama-3.1-8b", "rtx-3090", "LoRA on a 16-bit base"),
    ("llama-3.1-8b", "rtx-4090", "LoRA on a 16-bit base"),
    ("mistral-7b-v0.3", "rtx-3060", "QLoRA"),
    ("mistral-7b-v0.3", "rtx-4090", "LoRA on a 16-bit base"),
    ("llama-3.2-1b", "rtx-5070-ti-laptop", "pure bf16"),
    ("llama-3.2-3b", "rtx-4070", "LoRA on a 16-bit base"),
    ("qwen3-4b", "rtx-4060", "QLoRA"),
    ("qwen3-14b", "rtx-5090", "LoRA on an 8-bit base"),
    ("qwen3-32b", "rtx-5090", "QLoRA"),
    ("gemma-2-9b", "rtx-4090", "LoRA on a 16-bit base"),
    ("phi-4", "rtx-5090", "LoRA on an 8-bit base"),
    ("llama-3.3-70b", "h100-sxm", "QLoRA"),
    ("llama-3.3-70b", "a100-80gb", "QLoRA"),
    ("llama-3.3-70b", "rtx-pro-6000", "QLoRA"),
    ("gpt2-xl", "rtx-4060", "LoRA on a 16-bit base"),
    ("smollm3-3b", "rtx-4060", "LoRA on a 16-bit base"),
    ("qwen2.5-7b", "l40s", "pure bf16"),
];

#[test]
fn every_pair_that_can_be_brought_together_is() {
    for (model, gpu, word) in PAIRS {
        let value = json!({
            "model": {"catalog": model}, "input": {"batch": 4, "seq": 1024}, "device": {"gpu": gpu}
        });
        let scenario = Scenario::from_value(&value).unwrap();
        let answer = fit(&scenario, Allowed::default()).unwrap();
        let first = answer.recipes.first().unwrap_or_else(|| panic!("{model} on {gpu}: {:?}", answer.nearest));
        assert!(first.name.starts_with(word), "{model} on {gpu}: {}", first.name);
        for recipe in &answer.recipes {
            let next = recipe.scenario().unwrap();
            let verdict = Run::new(&next).unwrap().estimate().verdict;
            assert_eq!(verdict, Verdict::Fits, "{model} on {gpu}: {}", recipe.name);
            assert_eq!(next.input.batch * next.training.accumulation, 4, "{model} on {gpu}: {}", recipe.name);
        }
    }
}
