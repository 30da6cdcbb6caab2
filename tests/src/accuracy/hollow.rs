//! The rows of `corpus/hollow.jsonl`: PyTorch's own host code on simulated cards.

use anyhow::Context as _;
use serde::Deserialize;
use serde_json::Value;

use super::percent::percent;
use super::report::Page;
use super::statistics::Spread;

const HOLLOW: &str = include_str!("../../corpus/hollow.jsonl");

/// One training run.
#[derive(Clone, Debug, Deserialize)]
pub struct HollowRow {
    /// Stable id.
    pub id: String,
    /// The model in words.
    pub name: String,
    /// What was run, in the scenario's own format.
    pub scenario: Value,
    /// What PyTorch counted.
    pub expected: HollowExpected,
    /// By how much the engine is known to differ.
    #[serde(default)]
    pub differs: Differs,
}

/// What PyTorch counted, in bytes.
#[derive(Clone, Debug, Deserialize)]
pub struct HollowExpected {
    /// `max_memory_allocated`.
    pub allocated: u64,
    /// `max_memory_reserved`.
    pub reserved: u64,
    /// `host_memory_stats()["allocated_bytes.peak"]`, where activations are offloaded.
    #[serde(default)]
    pub pinned: Option<u64>,
}

/// The engine's figures less PyTorch's.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub struct Differs {
    /// Of what is allocated.
    pub allocated: i64,
    /// Of what is reserved.
    pub reserved: i64,
}

/// Every row, in the order of the file.
///
/// # Errors
/// A line that is not a row, by number.
pub fn hollow() -> anyhow::Result<Vec<HollowRow>> {
    let read =
        |(i, line)| serde_json::from_str(line).with_context(|| format!("tests/corpus/hollow.jsonl, line {}", i + 1));
    HOLLOW.lines().enumerate().map(read).collect()
}

impl HollowRow {
    fn torch(&self) -> &str {
        self.scenario["software"]["torch"].as_str().unwrap_or("2.11")
    }

    fn card(&self) -> &str {
        self.scenario["device"]["gpu"].as_str().unwrap_or_default()
    }
}

/// Writes the section.
///
/// # Errors
/// As [`hollow`].
pub fn section(page: &mut Page) -> anyhow::Result<()> {
    let rows = hollow()?;
    page.line("\n## Real PyTorch on hollow cards\n");
    page.line(
        "Training steps of PyTorch's own host code, its caching allocator and its choice of kernels on cards that exist only as a library\n\
         ([rehearsing](rehearsing.md)): *allocated* is `max_memory_allocated`, *reserved* `max_memory_reserved`. What cuDNN takes for a\n\
         convolution is nothing there. The test `hollow` holds each row to its difference, to the byte.\n",
    );
    let titles = ["which", "rows", "allocated exact", "worst", "reserved exact", "95th percentile", "worst"];
    page.head(&titles, &["which"]);
    let mut versions: Vec<&str> = rows.iter().map(HollowRow::torch).collect();
    versions.sort_unstable_by_key(|version| version.split('.').map(|n| n.parse().unwrap_or(0)).collect::<Vec<u32>>());
    versions.dedup();
    for version in versions {
        line(page, &format!("PyTorch {version}"), rows.iter().filter(|row| row.torch() == version));
    }
    let mut cards: Vec<&str> = rows.iter().map(HollowRow::card).collect();
    cards.sort_unstable();
    cards.dedup();
    for card in cards {
        line(page, &format!("`{card}`"), rows.iter().filter(|row| row.card() == card));
    }
    line(page, "all", rows.iter());
    Ok(())
}

fn line<'a>(page: &mut Page, title: &str, rows: impl Iterator<Item = &'a HollowRow> + Clone) {
    let share = |differs: i64, whole: u64| differs as f64 / whole as f64;
    let allocated = Spread::of(rows.clone().map(|row| share(row.differs.allocated, row.expected.allocated)));
    let reserved = Spread::of(rows.map(|row| share(row.differs.reserved, row.expected.reserved)));
    page.row(&[
        title.to_owned(),
        allocated.count.to_string(),
        format!("{} of {}", allocated.exact, allocated.count),
        percent(allocated.worst),
        format!("{} of {}", reserved.exact, reserved.count),
        percent(reserved.p95),
        percent(reserved.worst),
    ]);
}
