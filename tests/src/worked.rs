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
    /// Hidden size and layers, which the first rule asks for; zero where there are none: then it counts states alone.
    pub shape: [u64; 2],
    /// Why the rules and the estimate differ.
    pub why: &'static str,
    /// What somebody measured, where somebody did.
    pub measured: Option<Measured>,
}

/// A peak that its authors published.
#[derive(Clone, Copy, Debug)]
pub struct Measured {
    /// As they print it, in GiB with two decimals.
    pub gib: f64,
    /// Bytes of parameters that their model has beside the one estimated and that no step touches: weights without a
    /// gradient.
    pub beside: u64,
    /// Who measured what, and how it was estimated.
    pub how: &'static str,
}

impl Example {
    fn new(title: &'static str, scenario: Value, shape: [u64; 2], why: &'static str) -> Self {
        Self { title, scenario, shape, why, measured: None }
    }
}

/// An example with its answer.
#[derive(Debug)]
pub struct Worked {
    /// The run.
    pub example: Example,
    /// What Plimsoll says.
    pub estimate: Estimate,
    /// What each of the first two rules says, in bytes.
    pub rules: [u64; 2],
}

impl Worked {
    /// The peak of the first step, which is what was measured, with the parameters that were not estimated; live
    /// tensors only.
    fn first_step(&self, measured: &Measured) -> Bytes {
        let first = self.estimate.phases.iter().filter(|phase| phase.step == Some(1));
        let peak = first.map(|phase| phase.peak_requested).max().unwrap_or_default();
        peak + Bytes::new(measured.beside)
    }
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

/// Gearhead's model as its memory test runs it: logits are held by the caller and copied when they are shifted, as
/// transformers 4.36 does; there is no optimizer, so one that keeps nothing stands for it; PyTorch 2.4 is the last for
/// ROCm 6.0, which its instructions install.
fn gearhead() -> Value {
    json!({
        "model": { "hf": { "model_type": "gpt2", "vocab_size": 32_000, "n_positions": 512, "n_embd": 384, "n_layer": 6,
            "n_head": 6, "n_inner": 3072, "activation_function": "gelu" } },
        "input": { "batch": 2, "seq": 512 },
        "training": { "precision": "fp32", "optimizer": "sgd", "clip_grad_norm": false, "checkpointing": "full",
            "attention": "eager", "keep_outputs": true },
        "device": { "gpu": "rx-6750-xt" },
        "software": { "torch": "2.4", "transformers": "4.36" },
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

const LOGITS: &str = "the rules know nothing of the vocabulary: logits, their log-softmax and its gradient are float32 copies of \
    batch x tokens x vocabulary, and at a small width they are most of the peak, which stands in backward";
const HELD: &str = "with checkpointing hardly anything but the logits is left, which the rules do not know; a loop that holds its \
    outputs still has those of the last step when the next forward makes its own, and there the highest point stands";
const FOREACH: &str = "foreach AdamW makes a copy of all square roots in its step: 20 bytes a parameter at its peak, not 16, and under \
    autocast the weights' half copies and the activations come at another moment";

/// The examples, in the order of the page.
pub fn examples() -> Vec<Example> {
    let mut list = vec![
        Example::new(
            "GPT of 30.12 M parameters (6 x 384), batch 24 x 512, fp32",
            nanogpt(6, 6, 384, 512, 24, "fp32"),
            [384, 6],
            LOGITS,
        ),
        Example::new("the same, fp16 AMP", nanogpt(6, 6, 384, 512, 24, "fp16-amp"), [384, 6], LOGITS),
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
            list.push(Example::new(title, scenario, [width, layers], LOGITS));
        }
    }
    let accumulated = "N-BEATS (30 blocks), batch 64, fp16 AMP, accumulation 2";
    list.push(Example {
        measured: Some(Measured {
            gib: 0.63,
            beside: 15_458_560,
            how: "one forward and backward, by its authors (thINKblots/gearhead, `MEMORY_OPTIMIZATIONS.md` at 5d5137ad), on an \
                RX 6750 XT. The version of PyTorch is not stated; its instructions install one for ROCm 6.0, of which 2.4 is \
                the last (from 2.6 on hipBLAS would take 32 MiB more and the answer be 0.66). The sizes are not in the page; the count says them: 32,000 tokens and 512 \
                positions at a width of 384, six layers with a feed-forward of 3,072 (the class's default, which its scripts never \
                change), and 3,864,640 that no step touches, a table of 10,000 error codes and a head of 64. It is estimated as \
                a GPT-2 of these sizes with attention written out, plus the float32 bytes of what is never touched. The repository's \
                own model on fake tensors peaks at 675,081,728 bytes",
        }),
        ..Example::new("decoder of 34,083,904 parameters, batch 2 x 512, fp32, checkpointing", gearhead(), [384, 6], HELD)
    });
    list.push(Example::new("N-BEATS (30 blocks), batch 64, fp32", nbeats("fp32", 1), [0, 0], FOREACH));
    list.push(Example::new(accumulated, nbeats("fp16-amp", 2), [0, 0], FOREACH));
    for (title, id, hidden, layers) in [
        ("OPT 125M, batch 1 x 1024, bf16 AMP", "opt-125m", 768, 12),
        ("GPT-2 XL 1.6B, the same", "gpt2-xl", 1600, 48),
        ("Llama 2 7B, the same", "llama-2-7b", 4096, 32),
        ("Llama 2 13B, the same", "llama-2-13b", 5120, 40),
        ("LLaMA 30B, the same", "llama-30b", 6656, 60),
        ("Llama 2 70B, the same", "llama-2-70b", 8192, 80),
    ] {
        // The smallest is as wide as its logits allow; from a billion on the optimizer's step is the highest point.
        let why = if id == "opt-125m" { LOGITS } else { FOREACH };
        list.push(Example::new(title, sized(id), [hidden, layers], why));
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
    let [hidden, layers] = example.shape;
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
    let rules = [(RULES[0].bytes)(&shape), (RULES[1].bytes)(&shape)];
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
        let [first, second] = w.rules.map(gib);
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
    page.push_str("\nMeasured:\n\n");
    for (w, measured) in worked.iter().filter_map(|w| Some((w, w.example.measured.as_ref()?))) {
        let ours = w.first_step(measured);
        let (title, told, how) = (w.example.title, measured.gib, measured.how);
        writeln!(
            page,
            "- {title}: {told:.2} GiB measured, {:.2} estimated ({} bytes): {how}.",
            ours.gib(),
            ours.get()
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
        assert!(gpt.rules.iter().all(|rule| *rule < ours));
    }

    /// The reason given is the one the estimate shows.
    #[test]
    fn the_reason_is_where_the_peak_is() {
        for w in worked().unwrap() {
            let phase = match w.example.why {
                FOREACH => "optimizer",
                HELD => "forward",
                _ => "backward",
            };
            assert_eq!(w.estimate.peak.phase.as_str(), phase, "{}", w.example.title);
        }
    }

    #[test]
    fn what_was_measured_is_what_is_estimated() {
        let w = find("decoder of 34,083,904 parameters");
        let measured = w.example.measured.unwrap();
        assert_eq!(w.estimate.parameters.total + measured.beside / 4, 34_083_904);
        let ours = w.first_step(&measured);
        assert_eq!(format!("{:.2}", ours.gib()), format!("{:.2}", measured.gib));
        // The authors' own model, run on fake tensors: causal masks and what GPT-2 does otherwise are the rest.
        let traced = 675_081_728_u64;
        assert!(ours.get().abs_diff(traced) * 1000 < traced, "{ours:?}");
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
