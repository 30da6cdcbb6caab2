//! The summary at the end.

use std::{
    io::{self, Write},
    time::Duration,
};

use super::{Outcome, Row, tally::Tally};
use crate::shell::seconds;

/// Whether nothing failed and everything required ran.
pub fn is_success(rows: &[Row]) -> bool {
    rows.iter().all(|row| matches!(row.outcome, Outcome::Passed | Outcome::NotRun { required: false, .. }))
}

/// A table of the stages, why any of them did not pass, and the sum of the tests on the last line.
pub fn print(out: &mut impl Write, rows: &[Row], total: Duration) -> io::Result<()> {
    let mut sum = Tally::default();
    writeln!(
        out,
        "\n{:<16} {:<8} {:>14} {:>14} {:>7} {:>7} {:>8}",
        "stage", "result", "time", "processors", "passed", "failed", "skipped"
    )?;
    let worked = |time: Option<Duration>| time.map_or("-".to_owned(), seconds);
    for row in rows {
        let result = match row.outcome {
            Outcome::Passed => "ok",
            Outcome::Failed(_) => "FAILED",
            Outcome::NotRun { .. } => "not run",
        };
        let count = |n: u64| if row.tally == Tally::default() { "-".to_owned() } else { n.to_string() };
        let Tally { passed, failed, skipped } = row.tally;
        writeln!(
            out,
            "{:<16} {result:<8} {:>14} {:>14} {:>7} {:>7} {:>8}",
            row.name,
            seconds(row.time),
            worked(row.cpu),
            count(passed),
            count(failed),
            count(skipped)
        )?;
        sum += row.tally;
    }
    let cpu = rows.iter().map(|row| row.cpu).sum();
    writeln!(out, "{:<25} {:>14} {:>14}", "total", seconds(total), worked(cpu))?;
    if rows.iter().any(|row| !matches!(row.outcome, Outcome::Passed)) {
        writeln!(out)?;
    }
    for row in rows {
        match &row.outcome {
            Outcome::Passed => {}
            Outcome::Failed(why) => writeln!(out, "{}: FAILED: {why}", row.name)?,
            Outcome::NotRun { why, required: true } => {
                writeln!(out, "{}: required, but could not run: {why}", row.name)?
            }
            Outcome::NotRun { why, required: false } => writeln!(out, "{}: not run: {why}", row.name)?,
        }
    }
    writeln!(out, "\n{} passed, {} failed, {} skipped", sum.passed, sum.failed, sum.skipped)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &'static str, outcome: Outcome, passed: u64, failed: u64, skipped: u64) -> Row {
        Row { name, outcome, tally: Tally { passed, failed, skipped }, time: Duration::from_secs(61), cpu: None }
    }

    fn printed(rows: &[Row]) -> String {
        let mut out = Vec::new();
        print(&mut out, rows, Duration::from_secs(5)).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn the_sum_stands_alone_on_the_last_line() {
        let rows = [row("formatting", Outcome::Passed, 0, 0, 0), row("tests, native", Outcome::Passed, 40, 0, 1)];
        let text = printed(&rows);
        assert_eq!(text.lines().last(), Some("40 passed, 0 failed, 1 skipped"));
        assert!(is_success(&rows));
    }

    #[test]
    fn what_failed_or_could_not_run_is_named_and_fails() {
        let failed = [row("lints, native", Outcome::Failed("clippy".into()), 0, 0, 0)];
        assert!(printed(&failed).contains("lints, native: FAILED: clippy") && !is_success(&failed));
        let missing = [row("tests, browser", Outcome::NotRun { why: "no Chromium".into(), required: true }, 0, 0, 9)];
        assert!(printed(&missing).contains("required, but could not run: no Chromium") && !is_success(&missing));
        let left_out = [row("tests, browser", Outcome::NotRun { why: "asked".into(), required: false }, 0, 0, 9)];
        assert!(is_success(&left_out));
        assert_eq!(printed(&left_out).lines().last(), Some("0 passed, 0 failed, 9 skipped"));
    }
}
