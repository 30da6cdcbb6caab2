//! Other tools that answer the same question: what they say of eight runs, what Plimsoll says of them, and who can do what.
//! `cargo xtask reference` writes it to `docs/compare.md`.

use std::fmt::Write as _;

use anyhow::Context as _;
use plimsoll_core::estimate::Run;
use plimsoll_core::{Bytes, Scenario};
use serde::Deserialize;
use serde_json::{Value, json};

/// What was read off the tools, each run with the same eight configurations.
const PEERS: &str = include_str!("peers.json");

/// The tools and what they can do.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Peers {
    tools: Vec<Tool>,
    features: Features,
}

/// One tool.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Tool {
    name: String,
    /// Which version was read and run, or when its last change was.
    version: String,
    licence: String,
    kind: String,
    /// What it means by training.
    training: String,
    /// What its authors publish about how near it comes.
    proof: String,
    /// What it prints for each of [`runs`], GiB; `None` where it has no such run.
    gib: Vec<Option<f64>>,
}

/// Who can do what, in a word each.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Features {
    columns: Vec<String>,
    /// What, then a word for each column.
    rows: Vec<Vec<String>>,
}

/// One of the eight runs.
#[derive(Debug)]
struct Asked {
    letter: char,
    words: &'static str,
    scenario: Value,
    /// `max_memory_allocated` of two steps of PyTorch 2.11 with transformers 5.17 on a hollow H200: the same model out of
    /// its config, AdamW (foreach), gradients clipped. `None` where it ran out of memory, or was not run.
    rehearsed: Option<u64>,
}

/// The eight runs.
fn runs() -> [Asked; 8] {
    let llama_7b = |batch: u64, seq: u64, training: Value| scenario("llama-2-7b", batch, seq, training);
    let tiny = |training: Value| scenario("tinyllama-1.1b", 8, 2048, training);
    let adapters = json!({ "rank": 16 });
    [
        Asked {
            letter: 'A',
            words: "Llama 2 7B, batch 1 x 2048, bfloat16 autocast",
            scenario: llama_7b(1, 2048, json!({ "precision": "bf16-amp" })),
            rehearsed: Some(134_835_455_488),
        },
        Asked {
            letter: 'B',
            words: "the same in pure bfloat16",
            scenario: llama_7b(1, 2048, json!({ "precision": "bf16" })),
            rehearsed: Some(67_451_299_328),
        },
        Asked {
            letter: 'C',
            words: "B at batch 4, checkpointing",
            scenario: llama_7b(4, 2048, json!({ "precision": "bf16", "checkpointing": "full" })),
            rehearsed: Some(67_451_397_632),
        },
        Asked {
            letter: 'D',
            words: "Llama 3 8B, batch 1 x 8192, pure bfloat16, checkpointing",
            scenario: scenario("llama-3-8b", 1, 8192, json!({ "precision": "bf16", "checkpointing": "full" })),
            rehearsed: Some(80_369_853_952),
        },
        Asked {
            letter: 'E',
            words: "TinyLlama 1.1B, batch 8 x 2048, bfloat16 autocast",
            scenario: tiny(json!({ "precision": "bf16-amp" })),
            rehearsed: Some(60_770_369_536),
        },
        Asked {
            letter: 'F',
            words: "the same in float32",
            scenario: tiny(json!({ "precision": "fp32" })),
            rehearsed: None,
        },
        Asked {
            letter: 'G',
            words: "B with LoRA of rank 16, checkpointing",
            scenario: llama_7b(
                1,
                2048,
                json!({ "precision": "bf16", "checkpointing": "full", "lora": adapters.clone() }),
            ),
            rehearsed: None,
        },
        Asked {
            letter: 'H',
            words: "G on a base in NF4",
            scenario: llama_7b(
                1,
                2048,
                json!({ "precision": "bf16", "checkpointing": "full", "lora": adapters, "quantization": "nf4" }),
            ),
            rehearsed: None,
        },
    ]
}

fn scenario(model: &str, batch: u64, seq: u64, training: Value) -> Value {
    json!({
        "model": { "catalog": model },
        "input": { "batch": batch, "seq": seq },
        "training": training,
        "device": { "gpu": "h200" },
    })
}

/// The highest point of one run, as `max_memory_allocated` counts.
fn allocated(asked: &Asked) -> anyhow::Result<Bytes> {
    let scenario = Scenario::from_value(&asked.scenario).with_context(|| asked.words)?;
    Ok(Run::new(&scenario).with_context(|| asked.words)?.into_estimate().peak.allocated)
}

/// `docs/compare.md`.
///
/// # Errors
/// A run the engine refuses, or a table that is not as it should be.
pub fn page() -> anyhow::Result<String> {
    let Peers { tools, features } = serde_json::from_str(PEERS).context("tests/src/compare/peers.json")?;
    let runs = runs();
    let mut page =
        String::from("<!-- Written by `cargo xtask reference` from tests/src/compare. -->\n# Beside other tools\n\n");
    page.push_str(
        "What other public tools say of the same runs, what they mean by it, and what they can do that Plimsoll cannot. All of \
         them were read and run in 2026, in the versions named; their figures are theirs, ours are of today (the tests compare). \
         If you know that a line is wrong or old, say so: it is a row of `tests/src/compare/peers.json`.\n\n## Eight runs\n\n\
         AdamW, GiB at the highest point, one card. ",
    );
    let words: Vec<String> = runs.iter().map(|run| format!("**{}**: {}", run.letter, run.words)).collect();
    writeln!(page, "{}.\n", words.join("; "))?;
    heading(&mut page, &runs.iter().map(|run| run.letter.to_string()).collect::<Vec<_>>(), "tool", "---:")?;
    let ours: Vec<Option<f64>> =
        runs.iter().map(|run| Ok(Some(allocated(run)?.gib()))).collect::<anyhow::Result<_>>()?;
    figures(&mut page, "**Plimsoll** (`max_memory_allocated`)", &ours)?;
    let rehearsed: Vec<Option<f64>> =
        runs.iter().map(|run| run.rehearsed.map(|bytes| Bytes::new(bytes).gib())).collect();
    figures(&mut page, "PyTorch 2.11 on a hollow H200", &rehearsed)?;
    for tool in &tools {
        figures(&mut page, &tool.name, &tool.gib)?;
    }
    page.push_str(
        "\nHow to read it:\n\n\
         - The second line is the real PyTorch with the real transformers on a card that exists only as a library \
         ([rehearsing](rehearsing.md)): A to E are Plimsoll's to the byte, and F runs out of the card's 140 GiB, as Plimsoll says it \
         would. G and H were not rehearsed for this page; rows like them are in [the scoreboard](accuracy.md).\n\
         - MemTracker follows the real graph too, but with the processor's kernels and lists of autocast: on a card, float32 \
         attention with fewer key than query heads (F) has no kernel that spares the scores, so that they are kept.\n\
         - Most of the rest mean another kind of training: 16-bit weights beside float32 master copies, as Megatron and DeepSpeed do, \
         16 to 18 bytes a parameter. That B, C and D are twice too high with them is another question answered, not a wrong sum. A dash: \
         no such run there.\n\
         - Where A and B are the same figure, autocast over float32 weights and pure 16-bit weights are not told apart.\n\
         - Tools that count attention's scores as if they were written out (EleutherAI, asmirnov, gpu_poor, calculon, fm-training-estimator) are far too high \
         where the sequence is long and the model small (E).\n\n## What each means, and what it proves\n\n",
    );
    page.push_str(
        "| tool | read | licence | what it is | what it means by training | what it publishes of its error |\n",
    );
    page.push_str("| --- | --- | --- | --- | --- | --- |\n");
    for tool in &tools {
        let Tool { name, version, licence, kind, training, proof, .. } = tool;
        writeln!(page, "| {name} | {version} | {licence} | {kind} | {training} | {proof} |")?;
    }
    page.push_str(
        "\nPlimsoll's own error, row by row, is [the scoreboard](accuracy.md). Of papers without public code, xMem (arXiv 2510.21048) reports the best \
         error on real runs, a median of 2.9 % on the runs of its own that could be compared; six of those whose figures are at hand to \
         the MiB stand in the scoreboard.\n\n## Who can do what\n\n\
         llmfit, which is for inference, stands here for its care about hardware and shared measurements.\n\n",
    );
    heading(&mut page, &features.columns, "", "---")?;
    for row in &features.rows {
        writeln!(page, "| {} |", row.join(" | "))?;
    }
    page.push_str(
        "\n## When another one is the better choice\n\n\
         - Training with Megatron, with tensor, pipeline, context or expert parallelism, or in fp8: **SimuMax**; its published cases are \
         the most careful of its kind, and it says how long a step takes.\n\
         - A model whose program depends on its data, with the code and some minutes at hand: **MemTracker** with `FakeTensorMode`, or \
         `plimsoll rehearse`, which runs the script itself, `torch.compile` and all.\n\
         - Serving a model with vLLM or llama.cpp: **hf-mem**, **gguf-parser-go** or **llmfit**; Plimsoll follows transformers' `generate` only.\n\
         - What a run really did, afterwards: PyTorch's **memory_viz** has every block with its stack; `plimsoll inspect` lays the \
         snapshot over the estimate.\n\
         - Who is on the card right now: **nvitop** or **nvtop**; `plimsoll watch` shows the load line, and little else.\n",
    );
    Ok(page)
}

/// The head of a table.
fn heading(page: &mut String, columns: &[String], first: &str, rule: &str) -> std::fmt::Result {
    writeln!(page, "| {first} | {} |", columns.join(" | "))?;
    writeln!(page, "| --- |{}", format!(" {rule} |").repeat(columns.len()))
}

/// A line of GiB.
fn figures(page: &mut String, name: &str, gib: &[Option<f64>]) -> std::fmt::Result {
    let cells: Vec<String> = gib.iter().map(|gib| gib.map_or("-".to_owned(), |gib| format!("{gib:.1}"))).collect();
    writeln!(page, "| {name} | {} |", cells.join(" | "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_rehearsed_is_what_is_said_to_the_byte() {
        for run in runs() {
            if let Some(rehearsed) = run.rehearsed {
                assert_eq!(allocated(&run).unwrap().get(), rehearsed, "{}", run.words);
            }
        }
    }

    /// The hollow H200 has 139.65 GiB, and ran out in its first backward.
    #[test]
    fn what_ran_out_of_memory_is_said_not_to_fit() {
        let [.., f, _, _] = runs();
        assert_eq!(f.letter, 'F');
        assert!(allocated(&f).unwrap().gib() > 139.65);
    }

    #[test]
    fn every_line_is_whole() {
        let Peers { tools, features } = serde_json::from_str(PEERS).unwrap();
        assert!(tools.iter().all(|tool| tool.gib.len() == runs().len()));
        assert!(features.rows.iter().all(|row| row.len() == features.columns.len() + 1));
    }
}
