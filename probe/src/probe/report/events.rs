//! What happened besides.

use std::fmt::Write as _;

use plimsoll_core::measurement::EventKind;

use super::Report;
use crate::view::{Paint, WIDTH, wrapped};

/// Columns before the text.
const INDENT: usize = 12;

/// The events in order, with the second they happened in.
pub fn events(report: &Report<'_>, paint: Paint) -> String {
    if report.record.events.is_empty() {
        return String::new();
    }
    let mut out = format!("  {}\n", paint.strong("Events"));
    for event in &report.record.events {
        let mut at = format!("{:>8.1} s", event.at as f64 / 1e6);
        for line in wrapped(&event.message, WIDTH - INDENT) {
            let line = match event.kind {
                EventKind::OutOfMemory | EventKind::Limit | EventKind::Failed => paint.signal(&line),
                _ => line,
            };
            let _ = writeln!(out, "{}  {line}", paint.quiet(&at));
            at = " ".repeat(INDENT - 2);
        }
    }
    out
}
