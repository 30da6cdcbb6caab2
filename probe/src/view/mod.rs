//! An estimate as text for people: 80 columns, numbers first, one file for each part.

mod bar;
mod breakdown;
mod chart;
mod explanation;
mod facts;
mod grid;
mod headline;
mod holdings;
mod number;
mod paint;
mod phases;
mod reading;
mod recorded;
mod remedies;
mod snapshot;
mod stack;

#[cfg(test)]
mod sample;
#[cfg(test)]
mod tests;

use plimsoll_core::estimate::{Explanation, Holding};
use plimsoll_core::{Estimate, Scenario, summary};

pub use grid::grid;
pub use headline::question;
pub use number::Unit;
pub use paint::Paint;
pub use plimsoll_core::grouped;
pub use plimsoll_core::summary::{fit, wrapped};
pub use reading::reading;
pub use recorded::recorded;
pub use remedies::remedies;
pub use snapshot::{Snapped, snapshot};

/// Everything the report is written from.
#[derive(Clone, Copy, Debug)]
pub struct Report<'a> {
    /// What was asked.
    pub scenario: &'a Scenario,
    /// The answer.
    pub estimate: &'a Estimate,
    /// What is alive at the peak, largest first.
    pub holdings: &'a [Holding],
    /// Every byte at the peak, where that is asked for; it takes the place of the largest groups.
    pub explanation: Option<&'a Explanation>,
}

/// Columns the text may take, the margin included.
pub const WIDTH: usize = 80;

/// Columns of standard output where it is a terminal that says so, else [`WIDTH`]: for tables that grow with the page.
pub fn columns() -> usize {
    let terminal = terminal_size::terminal_size_of(std::io::stdout());
    terminal.map_or(WIDTH, |(terminal_size::Width(columns), _)| usize::from(columns))
}

/// The whole report.
pub fn report(report: &Report<'_>, paint: Paint) -> String {
    let parts = summary::parts(report.estimate);
    let blocks = [
        question(report.scenario, paint),
        headline::verdict(report.estimate, paint) + &bar::bar(report.estimate, &parts, paint),
        facts::facts(report.estimate, paint),
        breakdown::breakdown(report.estimate, &parts, report.holdings, paint),
        phases::phases(report.estimate, paint),
        match report.explanation {
            Some(explanation) => explanation::explanation(explanation, report.estimate, paint),
            None => holdings::holdings(report.holdings, paint),
        },
        facts::notes(&report.estimate.warnings, paint),
    ];
    let blocks: Vec<&str> = blocks.iter().map(String::as_str).filter(|part| !part.is_empty()).collect();
    format!("\n{}", blocks.join("\n"))
}
