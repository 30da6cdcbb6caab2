//! The rows of `corpus/compiled-hollow.jsonl`: what `torch.compile` makes of runs on hollow cards, and where the estimate says that it lies.

use anyhow::Context as _;
use plimsoll_core::Scenario;
use plimsoll_core::estimate::Run;
use serde::Deserialize;
use serde_json::Value;

use super::hollow::HollowExpected;
use super::percent::percent;
use super::report::Page;
use super::statistics::Spread;

/// One run through `torch.compile`.
#[derive(Clone, Debug, Deserialize)]
pub struct CompiledRow {
    /// Stable id.
    pub id: String,
    /// What was run, in the scenario's own format.
    pub scenario: Value,
    /// What PyTorch counted.
    pub expected: HollowExpected,
}

/// A row beside its estimate; bytes of what is reserved.
#[derive(Clone, Copy, Debug)]
pub struct CompiledOutcome {
    /// Between what the estimate says that it lies.
    pub between: [u64; 2],
    /// What the run without `torch.compile` takes.
    pub as_written: u64,
    /// What PyTorch reserved.
    pub taken: u64,
}

/// Every row, in the order of the file.
///
/// # Errors
/// A line that is not a row, by number.
pub fn compiled_on_hollow_cards() -> anyhow::Result<Vec<CompiledRow>> {
    let read = |(i, line)| {
        serde_json::from_str(line).with_context(|| format!("tests/corpus/compiled-hollow.jsonl, line {}", i + 1))
    };
    include_str!("../../corpus/compiled-hollow.jsonl").lines().enumerate().map(read).collect()
}

impl CompiledRow {
    /// The estimate beside it.
    ///
    /// # Errors
    /// A scenario that is not estimated, or has no interval.
    pub fn outcome(&self) -> anyhow::Result<CompiledOutcome> {
        let scenario = Scenario::from_value(&self.scenario).with_context(|| self.id.clone())?;
        let run = Run::on_hollow_card(&scenario).with_context(|| self.id.clone())?;
        let (peak, compiled) = (&run.estimate().peak, run.estimate().compiled.with_context(|| self.id.clone())?);
        let context = peak.process.saturating_sub(peak.reserved);
        let between = [compiled.process_low, compiled.process_high].map(|end| end.saturating_sub(context).get());
        Ok(CompiledOutcome { between, as_written: peak.reserved.get(), taken: self.expected.reserved })
    }

    fn trains_adapters(&self) -> bool {
        self.scenario["training"].get("lora").is_some()
    }
}

impl CompiledOutcome {
    /// Whether PyTorch reserved what the estimate says.
    pub fn is_inside(&self) -> bool {
        let [low, high] = self.between;
        (low..=high).contains(&self.taken)
    }
}

/// Writes the section.
///
/// # Errors
/// As [`CompiledRow::outcome`].
pub fn section(page: &mut Page) -> anyhow::Result<()> {
    let rows = compiled_on_hollow_cards()?;
    page.line("\n## Through torch.compile\n");
    page.line(
        "Models of the catalog with two to four of their layers, drawn by lot with precision, batch, length, optimizer and card (but for four\n\
         on quantized bases, which were chosen), run by the worker with the model compiled: the real PyTorch 2.11 and inductor on hollow cards. torch.compile is not modelled; the estimate is of the run\n\
         without, and has an interval beside (`compiled` in its JSON). *inside* is how many reserved what lies in it, *wide* its upper end over its\n\
         lower one, and the last two columns say by how much the run as it is written differs from the compiled one.\n",
    );
    let titles =
        ["which", "rows", "inside", "wide, median", "95th percentile", "as written, median", "95th percentile"];
    page.head(&titles, &["which"]);
    for (title, adapters) in [("all weights trained", false), ("adapters trained", true)] {
        let of = rows.iter().filter(|row| row.trains_adapters() == adapters);
        let outcomes = of.map(CompiledRow::outcome).collect::<anyhow::Result<Vec<_>>>()?;
        let wide = Spread::of(outcomes.iter().map(|o| o.between[1] as f64 / o.between[0] as f64));
        let off = Spread::of(outcomes.iter().map(|o| (o.as_written as f64 - o.taken as f64) / o.taken as f64));
        page.row(&[
            title.to_owned(),
            outcomes.len().to_string(),
            format!("{} of {}", outcomes.iter().filter(|o| o.is_inside()).count(), outcomes.len()),
            format!("{:.2} x", wide.median),
            format!("{:.2} x", wide.p95),
            percent(off.median),
            percent(off.p95),
        ]);
    }
    Ok(())
}
