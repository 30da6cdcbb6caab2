//! Worked examples: runs that users of this field know, what the rules of thumb say of them, what Plimsoll says, and why
//! the two differ. `cargo xtask reference` writes them to `docs/worked-examples.md`.

use std::fmt::Write as _;

use anyhow::Context as _;
use plimsoll_core::estimate::Run;
use plimsoll_core::{Bytes, Estimate, Scenario};
use serde_json::{Value, json};

use crate::accuracy::{RULES, Shape};

/// One run.
#[derive(Clone, Debug)]
pub struct Example {
    /// What it is.
    pub title: &'static str,
    /// The run itself.
    pub scenario: Value,
    /// Hidden size and layers, which the rules ask for; `None` where they do not apply (no transformer).
    pub shape: Option<[u64; 2]>,
    /// Why the rules and the estimate differ.
    pub why: &'static str,
}

/// An example with its answer.
#[derive(Debug)]
pub struct Worked {
    /// The run.
    pub example: Example,
    /// What Plimsoll says.
    pub estimate: Estimate,
    /// What each of the first two rules says, in bytes.
    pub rules: Option<[u64; 2]>,
}

fn nanogpt(layers: u64, heads: u64, width: u64, block: u64, batch: u64, precision: &str) -> Value {
    json!({
        "model": { "family": "nanogpt", "n_layer": layers, "n_head": heads, "n_embd": width, "vocab_size": 50_257,
            "block_size": block },
        "input": { "batch": batch, "seq": block },
        "training": { "precision": precision, "optimizer": "adamw", "optimizer_impl": "foreach" },
        "device": { "gpu": "rtx-5070-ti-laptop" },
    })
}

fn nbeats(precision: &str, accumulation: u64) -> Value {
    json!({
        "model": { "family": "nbeats" },
        "input": { "batch": 64 },
        "training": { "precision": precision, "optimizer": "adamw", "accumulation": accumulation },
        "device": { "gpu": "rtx-5070-ti-laptop" },
    })
}

fn sized(id: &str) -> Value {
    json!({
        "model": { "catalog": id },
        "input": { "batch": 1, "seq": 1024 },
        "training": { "precision": "bf16-amp", "optimizer": "adamw" },
        "device": { "gpu": "h200" },
    })
}

const LOGITS: &str = "the rule knows nothing of the vocabulary: logits, their log-softmax and its gradient are three float32 copies of \
    batch x tokens x 50,257, and at a small width they are most of the peak";
const SMALL: &str = "the weights are small beside what one step keeps and moves: with so few numbers the library workspaces and the \
    activations of every layer count, which no multiple of the weights holds";
const FOREACH: &str = "foreach AdamW makes a copy of all square roots in its step: 20 bytes a parameter at its peak, not 16, and under \
    autocast the weights' half copies and the activations come at another moment";

/// The examples, in the order of the page.
pub fn examples() -> Vec<Example> {
    let mut list = vec![
        Example {
            title: "GPT of 30.12 M parameters (6 x 384), batch 24 x 512, fp32",
            scenario: nanogpt(6, 6, 384, 512, 24, "fp32"),
            shape: Some([384, 6]),
            why: LOGITS,
        },
        Example {
            title: "the same, fp16 AMP",
            scenario: nanogpt(6, 6, 384, 512, 24, "fp16-amp"),
            shape: Some([384, 6]),
            why: LOGITS,
        },
    ];
    for (layers, heads, width, batch) in [(12, 12, 768, 8), (24, 16, 1024, 4)] {
        for precision in ["fp32", "fp16-amp"] {
            let title = match (width, precision) {
                (768, "fp32") => "GPT 12 x 768, batch 8 x 1024, fp32",
                (768, _) => "GPT 12 x 768, batch 8 x 1024, fp16 AMP",
                (_, "fp32") => "GPT 24 x 1024, batch 4 x 1024, fp32",
                _ => "GPT 24 x 1024, batch 4 x 1024, fp16 AMP",
            };
            let scenario = nanogpt(layers, heads, width, 1024, batch, precision);
            list.push(Example { title, scenario, shape: Some([width, layers]), why: LOGITS });
        }
    }
    list.push(Example {
        title: "N-BEATS (30 blocks), batch 64, fp32",
        scenario: nbeats("fp32", 1),
        shape: None,
        why: FOREACH,
    });
    list.push(Example {
        title: "N-BEATS (30 blocks), batch 64, fp16 AMP, accumulation 2",
        scenario: nbeats("fp16-amp", 2),
        shape: None,
        why: SMALL,
    });
    for (title, id, hidden, layers) in [
        ("OPT 125M, batch 1 x 1024, bf16 AMP", "opt-125m", 768, 12),
        ("GPT-2 XL 1.6B, the same", "gpt2-xl", 1600, 48),
        ("Llama 2 7B, the same", "llama-2-7b", 4096, 32),
        ("Llama 2 13B, the same", "llama-2-13b", 5120, 40),
        ("LLaMA 30B, the same", "llama-30b", 6656, 60),
        ("Llama 2 70B, the same", "llama-2-70b", 8192, 80),
    ] {
        list.push(Example { title, scenario: sized(id), shape: Some([hidden, layers]), why: FOREACH });
    }
    list
}

/// Every example with its answer.
///
/// # Errors
/// An example the engine refuses.
pub fn worked() -> anyhow::Result<Vec<Worked>> {
    examples().into_iter().map(|example| work(example).with_context(|| "a worked example".to_owned())).collect()
}

fn work(example: Example) -> anyhow::Result<Worked> {
    let scenario = Scenario::from_value(&example.scenario).with_context(|| example.title.to_owned())?;
    let estimate = Run::new(&scenario).with_context(|| example.title.to_owned())?.into_estimate();
    let amp = scenario.training.precision.as_str().ends_with("-amp");
    let rules = example.shape.map(|[hidden, layers]| {
        let shape = Shape {
            parameters: estimate.parameters.total,
            hidden,
            layers,
            heads: 1,
            batch: scenario.input.batch,
            seq: scenario.input.seq.unwrap_or(1),
            autocast: amp,
            half: false,
            checkpointing: false,
            scores_kept: false,
        };
        [(RULES[0].bytes)(&shape), (RULES[1].bytes)(&shape)]
    });
    Ok(Worked { example, estimate, rules })
}

/// `docs/worked-examples.md`.
///
/// # Errors
/// As [`worked`].
pub fn page() -> anyhow::Result<String> {
    let mut page =
        String::from("<!-- Written by `cargo xtask reference` from tests/src/worked.rs. -->\n# Worked examples\n\n");
    writeln!(
        page,
        "What two rules of thumb say of runs that most people of this field have met, what Plimsoll says, and why they differ. \
         AdamW (foreach), gradients clipped, no checkpointing. *Rule 1*: {}. *Rule 2*: {}. *Allocated* is \
         `torch.cuda.max_memory_allocated`, on an RTX 5070 Ti Laptop GPU (the size table: an H200). GiB.\n",
        RULES[0].words, RULES[1].words,
    )?;
    page.push_str("| run | parameters | rule 1 | rule 2 | allocated | peak in | most of it |\n");
    page.push_str("| --- | ---: | ---: | ---: | ---: | --- | --- |\n");
    let worked = worked()?;
    for w in &worked {
        let gib = |bytes: u64| format!("{:.2}", Bytes::new(bytes).gib());
        let [first, second] = w.rules.map_or(["-".to_owned(), "-".to_owned()], |rules| rules.map(gib));
        let parts = serde_json::to_value(w.estimate.at_peak)?;
        let most = parts.as_object().and_then(|parts| {
            parts.iter().filter_map(|(name, bytes)| Some((bytes.as_u64()?, name))).max_by_key(|(bytes, _)| *bytes)
        });
        let most = most.map_or(String::new(), |(bytes, name)| format!("{}, {}", name.replace('_', " "), gib(bytes)));
        writeln!(
            page,
            "| {} | {} | {first} | {second} | {} | {} | {most} |",
            w.example.title,
            w.estimate.parameters.total,
            gib(w.estimate.peak.allocated.get()),
            w.estimate.peak.phase.as_str().replace('_', " "),
        )?;
    }
    page.push_str("\nWhy:\n\n");
    let mut told: Vec<(&str, Vec<&str>)> = Vec::new();
    for w in &worked {
        match told.iter_mut().find(|(why, _)| *why == w.example.why) {
            Some((_, titles)) => titles.push(w.example.title),
            None => told.push((w.example.why, vec![w.example.title])),
        }
    }
    for (why, titles) in told {
        writeln!(page, "- {}: {why}.", titles.join("; "))?;
    }
    Ok(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(title: &str) -> Worked {
        worked().unwrap().into_iter().find(|w| w.example.title.starts_with(title)).unwrap()
    }

    #[test]
    fn a_small_gpt_is_mostly_logits() {
        let gpt = find("GPT of 30.12 M");
        assert_eq!(gpt.estimate.parameters.total / 10_000, 3011, "{}", gpt.estimate.parameters.total);
        // Three float32 copies of the logits alone are more than either rule says of the whole run.
        let logits = 24 * 512 * 50_257 * 4;
        let ours = gpt.estimate.peak.allocated.get();
        assert!(ours > 3 * logits, "{ours}");
        assert!(gpt.rules.unwrap().iter().all(|rule| *rule < ours));
    }

    #[test]
    fn large_models_take_twenty_bytes_a_parameter() {
        for title in ["Llama 2 7B", "Llama 2 13B", "LLaMA 30B", "Llama 2 70B"] {
            let w = find(title);
            let per_parameter = w.estimate.peak.allocated.get() as f64 / w.estimate.parameters.total as f64;
            assert!((20.0..20.6).contains(&per_parameter), "{title}: {per_parameter}");
            assert_eq!(w.estimate.peak.phase.as_str(), "optimizer");
        }
    }
}
