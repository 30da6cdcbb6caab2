//! How far the engine is from what was traced, measured and published, and the fingerprints of every estimate.

use anyhow::Result;
use plimsoll_tests::accuracy;

use crate::page::{Page, root};

/// Where the scoreboard is kept.
const SCOREBOARD: &str = "docs/accuracy.md";

/// The scoreboard and the fingerprints.
///
/// # Errors
/// A row of the corpus or a record cannot be read or is not valid.
pub fn pages() -> Result<Vec<Page>> {
    let cards = accuracy::cards(&root().join("data/measurements"))?;
    println!("running the reference corpus; {} records of real cards ...", cards.len());
    let report = accuracy::report(&accuracy::evaluate()?, &accuracy::published()?, &cards)?;
    Ok(vec![
        Page { name: SCOREBOARD, fresh: report },
        Page { name: "tests/corpus/estimates.hashes", fresh: accuracy::fingerprints()? },
    ])
}

/// Prints the scoreboard's summary section.
pub fn summary(pages: &[Page]) {
    let report = pages.iter().find(|page| page.name == SCOREBOARD).map_or("", |page| &page.fresh);
    let lines = report.lines().skip_while(|l| *l != "## Summary").skip(1).take_while(|l| !l.starts_with("## "));
    for line in lines.filter(|l| !l.is_empty()) {
        println!("{line}");
    }
}
