//! The pages that list models and cards, that of the worked examples, and those written from tables.

use std::fmt::Write as _;

use anyhow::{Context as _, Result};
use plimsoll_core::catalog::{self, Gpu, Model};
use plimsoll_core::device;
use plimsoll_core::estimate::Run;
use plimsoll_core::ledger::hull::Axis;
use plimsoll_core::scenario::HullModel;
use plimsoll_core::solve::needs::{self, Method};
use plimsoll_core::{Bytes, Scenario, grouped};
use plimsoll_tests::{compare, scenario_page, worked};
use serde_json::json;

use crate::page::Page;

/// What each model takes, one way after the other; absent where it cannot be trained that way.
type Needs = [Option<Bytes>; 3];

/// The pages of models, of cards and of the worked examples.
///
/// # Errors
/// A worked example is refused.
pub fn pages() -> Result<Vec<Page>> {
    let models: Vec<(&Model, Needs)> =
        catalog::models().iter().map(|m| (m, Method::ALL.map(|way| needs::reserved(m, way).ok()))).collect();
    Ok(vec![
        Page { name: "docs/models.md", fresh: models_page(&models)? },
        Page { name: "docs/gpus.md", fresh: gpus_page(&models)? },
        Page { name: "docs/worked-examples.md", fresh: worked::page()? },
        Page { name: "docs/scenario.md", fresh: scenario_page::page()? },
        Page { name: "docs/compare.md", fresh: compare::page()? },
    ])
}

/// The page of models.
fn models_page(models: &[(&Model, Needs)]) -> Result<String> {
    let card = catalog::gpu(needs::CARD).context("the card of the reference is not in the catalog")?;
    let context = device::context(card).bytes;
    let mut page =
        String::from("<!-- Written by `cargo xtask reference` from data/models and data/hulls.toml. -->\n# Models\n\n");
    writeln!(
        page,
        "{} models. *fp32* to *4-bit* are the weights alone: 4, 2, 1 and half a byte a parameter. *full*, *LoRA* and *QLoRA* are \
         what a process takes at its highest on a {} to train one sample of at most {} tokens (one image, one utterance) with \
         AdamW: full with float32 weights under bfloat16 autocast, LoRA (rank {}, every linear layer) on a bfloat16 base, QLoRA on \
         a base in NF4 with double quantization, under autocast too (the experts of a mixture stay as they are: transformers keeps them in stacked tensors, which bitsandbytes does not quantize). A dash: not estimated that way. GiB throughout; \
         `plimsoll models NAME` tells the same of one model.\n",
        models.len(),
        card.name,
        needs::TOKENS,
        needs::RANK,
    )?;
    page.push_str("| model | id | type | parameters | fp32 | bf16 | 8-bit | 4-bit | full | LoRA | QLoRA |\n");
    page.push_str("| --- | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n");
    for (m, needs) in models {
        let weights = |half_bytes: u64| gib(Bytes::new(m.parameters * half_bytes / 2));
        let needs = needs.map(|n| n.map_or("-".to_owned(), |reserved| gib(reserved + context)));
        writeln!(
            page,
            "| {} | `{}` | {} | {} | {} | {} | {} | {} | {} |",
            m.name,
            m.id,
            m.model_type,
            grouped(m.parameters),
            weights(8),
            weights(4),
            weights(2),
            weights(1),
            needs.join(" | "),
        )?;
    }
    recorded(&mut page)?;
    Ok(page)
}

/// The models that exist as recordings.
fn recorded(page: &mut String) -> Result<()> {
    writeln!(
        page,
        "\n## Recorded models\n\n{} models that no family was written for are [hulls](hull.md): recordings of one training step, named like any other model \
         (`--model ID`), with axes of their own beside the batch (`--set S=768`). *Peak* is what a process takes at its highest on a \
         GeForce RTX 4090 with 2 samples, axes as they stand, AdamW, in the first of the precisions. `data/hulls.toml` says how \
         each is made again.\n",
        catalog::recorded().len()
    )?;
    page.push_str("| model | id | parameters | axes | precisions | peak | what it is |\n");
    page.push_str("| --- | --- | ---: | --- | --- | ---: | --- |\n");
    for row in catalog::recorded() {
        let hull = HullModel::shipped(row);
        let file = hull.file().with_context(|| format!("{} has no file", row.id))?;
        let axis = |axis: &Axis| match axis.step {
            1 => format!("{}={}, from {}", axis.name, axis.usual, axis.least),
            step => format!("{}={}, from {} by {step}", axis.name, axis.usual, axis.least),
        };
        let axes: Vec<String> = file.axes.iter().skip(1).map(axis).collect();
        let precisions = file.precisions();
        let asked = json!({
            "model": { "catalog": row.id }, "input": { "batch": 2 }, "device": { "gpu": "rtx-4090" },
            "training": { "precision": precisions.first() },
        });
        let run = Run::new(&Scenario::from_value(&asked)?)?;
        writeln!(
            page,
            "| {} | `{}` | {} | {} | {} | {} | {} |",
            row.name,
            row.id,
            grouped(row.parameters),
            axes.join("; "),
            precisions.join(", "),
            gib(run.estimate().peak.process),
            row.about,
        )?;
    }
    Ok(())
}

/// The page of cards: the largest model each can train.
fn gpus_page(models: &[(&Model, Needs)]) -> Result<String> {
    let mut page = String::from("<!-- Written by `cargo xtask reference` from data/gpus.toml. -->\n# Cards\n\n");
    writeln!(
        page,
        "{} cards. *Load line*: how deep a run should sit at most. *Held*: what driver and desktop keep. *Context*: what CUDA and \
         its libraries take in a process; a star marks a figure without a reading. The last columns name the largest model of the \
         catalog whose training keeps within the load line with one sample of at most {} tokens, as `docs/models.md` has it.\n",
        catalog::gpus().len(),
        needs::TOKENS,
    )?;
    page.push_str("| card | id | memory | held | context | load line | full | LoRA | QLoRA |\n");
    page.push_str("| --- | --- | ---: | ---: | ---: | ---: | --- | --- | --- |\n");
    for gpu in catalog::gpus() {
        let limits = device::limits(gpu, None, None);
        let context = device::context(gpu);
        let star = if context.assumed { "*" } else { "" };
        let largest: Vec<String> = (0..Method::ALL.len()).map(|way| largest(models, way, gpu)).collect();
        writeln!(
            page,
            "| {} | `{}` | {} | {} | {}{star} | {} | {} |",
            gpu.name,
            gpu.id,
            gib(gpu.memory),
            gib(gpu.memory.saturating_sub(limits.capacity)),
            gib(context.bytes),
            gib(limits.load_line),
            largest.join(" | "),
        )?;
    }
    Ok(page)
}

/// The model with most parameters that fits.
fn largest(models: &[(&Model, Needs)], way: usize, gpu: &Gpu) -> String {
    let fitting = models
        .iter()
        .filter(|(_, needs)| needs.get(way).copied().flatten().is_some_and(|reserved| needs::fits(reserved, gpu)));
    let largest = fitting.max_by_key(|(m, _)| (m.parameters, std::cmp::Reverse(m.id)));
    largest.map_or("-".to_owned(), |(m, _)| format!("{} ({})", m.name, billions(m.parameters)))
}

/// `16.42`.
fn gib(bytes: Bytes) -> String {
    format!("{:.2}", bytes.gib())
}

/// `8.0 B`, `124 M`.
fn billions(n: u64) -> String {
    if n >= 1_000_000_000 { format!("{:.1} B", n as f64 / 1e9) } else { format!("{:.0} M", n as f64 / 1e6) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_catalog_is_as_large_as_promised() {
        assert!(catalog::models().len() >= 120 && catalog::gpus().len() >= 90);
    }

    #[test]
    fn numbers_read_well() {
        assert_eq!((billions(8_030_261_248).as_str(), billions(124_439_808).as_str()), ("8.0 B", "124 M"));
    }
}
