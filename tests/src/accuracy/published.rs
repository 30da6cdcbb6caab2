//! What others measured and published, beside today's estimate of the same: the scoreboard's second table.

use anyhow::Context as _;
use plimsoll_core::device::cublas_workspace;
use plimsoll_core::estimate::Run;
use plimsoll_core::single::Single;
use plimsoll_core::software::Version;
use plimsoll_core::{Scenario, catalog};
use serde::Deserialize;
use serde_json::Value;

use super::percent::{percent, relative, signed_percent};
use super::report::Page;
use super::statistics::Spread;

const PUBLISHED: &str = include_str!("../../corpus/published.jsonl");

/// A difference beyond this is explained in the page.
const FAR: f64 = 0.1;

/// One published figure.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// Its name in this table.
    pub id: String,
    /// Repository and file.
    pub source: String,
    /// The commit it was read at.
    pub commit: String,
    /// What was run.
    pub what: String,
    /// The card.
    pub gpu: String,
    /// What was read, in the publisher's words.
    pub metric: String,
    /// The figure in bytes.
    pub bytes: u64,
    /// The versions, as far as they are stated.
    pub software: String,
    /// The same as a scenario.
    #[serde(default)]
    pub scenario: Option<Value>,
    /// The same as one op or module alone.
    #[serde(default)]
    pub single: Option<Single>,
    /// What the benchmark's process held besides, in bytes: the module it compares with.
    #[serde(default)]
    pub beside: u64,
    /// Why it is estimated as neither.
    #[serde(default)]
    pub left_out: Option<String>,
    /// What differs between what was run and what is estimated.
    #[serde(default)]
    pub note: Option<String>,
    /// Which of litgpt's own code ran, and what that takes.
    #[serde(default)]
    pub litgpt: Option<Litgpt>,
}

/// A run of litgpt as `tests/tools/trace/litgpt.py` repeats it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Litgpt {
    /// Where its code stood.
    pub commit: String,
    /// Its name for the model.
    pub config: String,
    /// Its names for what has adapters.
    pub lora: Vec<String>,
    /// The peak of that code on PyTorch's fake tensors, with cuBLAS's workspace, in bytes.
    pub traced: u64,
}

/// A figure with our own beside it.
#[derive(Clone, Debug)]
pub struct Compared {
    /// What was published.
    pub row: Published,
    /// Ours, in bytes.
    pub ours: u64,
}

impl Compared {
    /// `(ours - published) / published`.
    pub fn error(&self) -> f64 {
        relative(self.ours, self.row.bytes)
    }

    /// `(traced - published) / published` of the very code that ran, where it was run again.
    pub fn of_its_own_code(&self) -> Option<f64> {
        self.row.litgpt.as_ref().map(|litgpt| relative(litgpt.traced, self.row.bytes))
    }

    /// Whether it is of an op or a module alone.
    pub fn is_single(&self) -> bool {
        self.row.single.is_some()
    }
}

/// Every row, those that are estimated with today's estimate.
///
/// # Errors
/// A row that cannot be read, that is neither estimated nor left out, or that the engine refuses.
pub fn published() -> anyhow::Result<(Vec<Compared>, Vec<Published>)> {
    let (mut compared, mut left_out) = (Vec::new(), Vec::new());
    for (i, line) in PUBLISHED.lines().enumerate() {
        let place = || format!("tests/corpus/published.jsonl, line {}", i + 1);
        let row: Published = serde_json::from_str(line).with_context(place)?;
        match ours(&row).with_context(place)? {
            Some(ours) => compared.push(Compared { row, ours }),
            None => {
                row.left_out.as_ref().context("it has no scenario, no single op and no reason").with_context(place)?;
                left_out.push(row);
            }
        }
    }
    Ok((compared, left_out))
}

/// `max_memory_allocated` by our account.
fn ours(row: &Published) -> anyhow::Result<Option<u64>> {
    if let Some(scenario) = &row.scenario {
        let run = Run::new(&Scenario::from_value(scenario)?)?;
        return Ok(Some(run.estimate().peak.allocated.get()));
    }
    let Some(single) = row.single else { return Ok(None) };
    let id = if row.gpu.contains("H100") { "h100-sxm" } else { "a100-80gb" };
    let gpu = catalog::gpu(id).context("the card is not in the catalog")?;
    // Liger's rows are of 2024 and 2025: PyTorch 2.4 to 2.7, whose workspaces are those of 2.6.
    let peak = single.peak(cublas_workspace(gpu, Version::new(2, 6)).bytes);
    Ok(Some(peak.get().saturating_add(row.beside)))
}

/// Writes the section.
pub fn section(page: &mut Page, compared: &[Compared], left_out: &[Published]) {
    page.line("\n## Published by others\n");
    page.line(
        "Peaks of single GPUs that others measured and published with enough detail to be run again, where the figure is PyTorch's own\n\
         count (`max_memory_allocated`, or active bytes). Ours is today's estimate of the same run by transformers, peft and\n\
         bitsandbytes: most of these runs used other model code (litgpt, torchtune), older versions, and real data. What a scenario can\n\
         say of theirs it says: litgpt's head and loss in chunks (`loss_impl`), logits that its loop holds until the next ones\n\
         (`keep_outputs`; in 2023 the longest sample came first, when there were none to hold), embeddings that are not tied. Of versions\n\
         only that of bitsandbytes is followed, where it is stated or litgpt's own requirement at the time says it\n\
         (`bitsandbytes==0.42.0` from March to December 2024; from June on its LoRA script warned of any other): before 0.43.2 every\n\
         four-bit product kept its input (#1270). Figures are printed with two or three digits. Nothing was fitted to them.\n",
    );
    page.head(&["what", "rows", "median", "95th percentile", "worst"], &["what"]);
    let mut line = |name: &str, of: &dyn Fn(&&Compared) -> bool| {
        let spread = Spread::of(compared.iter().filter(of).map(Compared::error));
        let cells = [name.to_owned(), spread.count.to_string()];
        page.row(&[&cells[..], &[spread.median, spread.p95, spread.worst].map(percent)[..]].concat());
    };
    let quantized = |c: &&Compared| c.row.what.contains("nf4");
    line("ops and modules alone", &|c| c.is_single());
    line("model runs, base not quantized", &|c| !c.is_single() && !quantized(c));
    line("model runs, 4-bit base", &|c| !c.is_single() && quantized(c));
    line("all", &|_| true);
    its_own_code(page, compared);
    page.line("\nModel runs:\n");
    let words = ["run", "card", "its own code", "software", "source"];
    let columns = ["run", "card", "published, GB", "ours, GB", "difference", "its own code", "software", "source"];
    page.head(&columns, &words);
    for c in compared.iter().filter(|c| !c.is_single()) {
        let gb = |bytes: u64| format!("{:.2}", bytes as f64 / 1e9);
        page.row(&[
            c.row.what.clone(),
            c.row.gpu.clone(),
            gb(c.row.bytes),
            gb(c.ours),
            signed_percent(c.error()),
            c.of_its_own_code().map_or_else(|| "-".to_owned(), signed_percent),
            c.row.software.clone(),
            format!("{} at {:.7} ({})", c.row.source, c.row.commit, c.row.id),
        ]);
    }
    page.line("\nOps and modules alone (Liger-Kernel's benchmark of the Hugging Face implementations, and of its own where that is said; the module it compares with, where the\n\
         script builds it too, is added):\n");
    page.head(&["op", "card", "published, MiB", "ours, MiB", "difference"], &["op", "card"]);
    for c in compared.iter().filter(|c| c.is_single()) {
        let mib = |bytes: u64| format!("{:.2}", bytes as f64 / 1_048_576.0);
        let cells = [c.row.what.clone(), c.row.gpu.clone(), mib(c.row.bytes), mib(c.ours), signed_percent(c.error())];
        page.row(&cells);
    }
    explained(page, compared);
    reasons(page, left_out);
}

/// What litgpt's own code takes, which tells a fault of the method from other model code.
fn its_own_code(page: &mut Page, compared: &[Compared]) {
    let own = Spread::of(compared.iter().filter_map(Compared::of_its_own_code));
    page.line(&format!(
        "\nlitgpt's own model code, run on PyTorch's fake tensors (`tests/tools/trace/litgpt.py`, PyTorch 2.11) with its finetuning\n\
         script's steps, takes what was published: {} runs, median {}, worst {}. So where ours is off, the model code is another.\n\
         (The tables of 2023 name commit 8641822. Its RMS norm in bfloat16 takes 3 to 5 % less than they say of Llama 2 7B; the float32\n\
         one of 6178c7c, three days before the page, takes what they say, and is what ran here.) What differs most:\n",
        own.count,
        percent(own.median),
        percent(own.worst),
    ));
    page.line(
        "- Lightning's plugin quantizes every linear, the head too, and from float16: bitsandbytes 0.42 unpacks a float16 weight and\n  \
           makes a bfloat16 copy of it, both as large as the whole head (3.67 GB with gemma-2-9b). transformers leaves the head as it is.\n\
         - peft makes the adapters of a bfloat16 model float32, so that dropout keeps a float32 copy of each adapted linear's input.\n  \
           litgpt's are bfloat16, and one copy serves query, key and value.\n\
         - Fabric makes the logits of all chunks float32 before the loss; the chunked loss that stands for litgpt's does so one chunk\n  \
           after the other.\n\
         - Under autocast each chunk of the head has a copy of the frozen weight of its own, kept until backward: nine in r0057, eight here.",
    );
}

/// Rows further than [`FAR`], each with what is known of the difference.
fn explained(page: &mut Page, compared: &[Compared]) {
    page.line(&format!("\nFurther off than {}:\n", percent(FAR)));
    for c in compared.iter().filter(|c| c.error().abs() > FAR) {
        let why = c.row.note.as_deref().unwrap_or("not explained");
        page.line(&format!("- {} ({}), {}: {why}.", c.row.what, c.row.id, signed_percent(c.error())));
    }
}

/// What is left out, by reason.
fn reasons(page: &mut Page, left_out: &[Published]) {
    let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
    for row in left_out {
        let why = row.left_out.as_deref().unwrap_or_default();
        match reasons.iter_mut().find(|(reason, _)| *reason == why) {
            Some((_, ids)) => ids.push(&row.id),
            None => reasons.push((why, vec![&row.id])),
        }
    }
    page.line("\nLeft out:\n");
    for (why, ids) in reasons {
        page.line(&format!("- {}: {why}.", ids.join(", ")));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_figures_are_met_in_the_median() {
        let (compared, left_out) = published().unwrap();
        assert!(compared.len() >= 50 && !left_out.is_empty());
        let all = Spread::of(compared.iter().map(Compared::error));
        assert!(all.median <= 0.03, "{all:?}");
        // Two decimals of a MiB are printed.
        let single = Spread::of(compared.iter().filter(|c| c.is_single()).map(Compared::error));
        assert!(single.worst < 1e-4, "{single:?}");
    }

    #[test]
    fn litgpt_takes_what_it_published() {
        let (compared, _) = published().unwrap();
        let own: Vec<f64> = compared.iter().filter_map(Compared::of_its_own_code).collect();
        assert!(own.len() >= 20 && own.iter().all(|error| error.abs() < 0.01), "{own:?}");
        // All runs of litgpt, not those that come out well.
        let all = compared.iter().filter(|c| c.row.source.contains("litgpt"));
        assert_eq!(all.count(), own.len());
    }

    #[test]
    fn what_is_far_off_says_why() {
        let (compared, _) = published().unwrap();
        for c in compared.iter().filter(|c| c.error().abs() > FAR) {
            let why = c.row.note.as_deref().unwrap_or_default();
            assert!(
                !why.is_empty() && !why.contains("not explained"),
                "{} {} is {} off",
                c.row.id,
                c.row.what,
                signed_percent(c.error())
            );
        }
    }
}
