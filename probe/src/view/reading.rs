//! A ledger as text for people: its peak, memory over time as a drawing, and who holds the peak.

use std::fmt::Write as _;

use plimsoll_core::Bytes;
use plimsoll_core::estimate::{Category, PhaseName, Reading};

use super::chart::{COLUMNS, chart, peak_mark};
use super::facts::work;
use super::holdings::holdings;
use super::number::plain_op;
use super::{Paint, WIDTH, fit, grouped, wrapped};

/// Rows of a table of who holds the peak.
const MOST: usize = 8;

/// The whole text.
pub fn reading(reading: &Reading, paint: Paint) -> String {
    let summary = reading.summary();
    let peak = &summary.peak;
    let mut out = String::from("\n");
    let line = |out: &mut String, label: &str, text: &str| {
        let _ = writeln!(out, "  {label:<25} {text}");
    };
    line(&mut out, "Highest point", &paint.strong(&peak.requested.to_string()));
    if let Some(phase) = peak.phase {
        let step = if peak.step > 0 { format!(" of step {}", peak.step) } else { String::new() };
        let module = if peak.module.is_empty() { String::new() } else { format!(" in {}", peak.module) };
        line(&mut out, "", &fit(&format!("{}{step}, {}{module}", phase.as_str(), plain_op(&peak.op)), WIDTH - 28));
    }
    line(&mut out, "Allocated, reserved", &format!("{}, {}", peak.allocated, peak.reserved));
    line(&mut out, "Storages, kernels", &format!("{}, {}", grouped(summary.storages), grouped(summary.launches)));
    line(&mut out, "Parameters", &grouped(summary.parameters.total));
    out.push_str(&work(&summary.work));
    if summary.events > 0 {
        out.push('\n');
        out.push_str(&drawing(reading, paint));
    }
    let categories = Category::ALL.map(|category| (category.label().to_owned(), summary.at_peak.get(category)));
    out.push_str(&table("By category", &categories, paint));
    out.push_str(&table("By module", &reading.held_by(|holding| holding.module.clone()), paint));
    out.push_str(&table("By op", &reading.held_by(|holding| plain_op(&holding.op).to_owned()), paint));
    let largest = holdings(&summary.holdings, paint);
    if !largest.is_empty() {
        out.push('\n');
        out.push_str(&largest);
    }
    out
}

/// Who holds how much of the peak.
fn table(title: &str, rows: &[(String, Bytes)], paint: Paint) -> String {
    let rows: Vec<_> = rows.iter().filter(|(_, bytes)| !bytes.is_zero()).collect();
    if rows.is_empty() {
        return String::new();
    }
    let mut out = format!("\n  {}\n", paint.strong(title));
    for (name, bytes) in rows.iter().take(MOST) {
        let name = if name.is_empty() { "(the run itself)" } else { name };
        let _ = writeln!(out, "    {:>10}  {}", bytes.to_string(), fit(name, WIDTH - 18));
    }
    let rest: Bytes = rows.iter().skip(MOST).map(|(_, bytes)| *bytes).sum();
    if !rest.is_zero() {
        let _ = writeln!(out, "    {}", paint.quiet(&format!("{:>10}  others", rest.to_string())));
    }
    out
}

/// Live memory over the stream of births and deaths, the highest of each stretch, with the phases below.
fn drawing(reading: &Reading, paint: Paint) -> String {
    let mut out = chart(&reading.heights(COLUMNS));
    let mut marks = vec![' '; COLUMNS];
    let mut shown = Vec::new();
    for (column, phase) in reading.beginnings(COLUMNS) {
        if let Some(mark) = marks.get_mut(column).filter(|mark| **mark == ' ') {
            *mark = letter(phase);
        }
        if !shown.contains(&phase) {
            shown.push(phase);
        }
    }
    let _ = writeln!(out, "  {:>10} {}", "", marks.iter().collect::<String>().trim_end());
    out.push_str(&peak_mark(reading.peak_column(COLUMNS), paint));
    let key: Vec<String> = shown.iter().map(|phase| format!("{} {}", letter(*phase), phase.as_str())).collect();
    for line in wrapped(&key.join("  "), COLUMNS) {
        let _ = writeln!(out, "  {:>10} {}", "", paint.quiet(&line));
    }
    out
}

/// What stands for a phase below the drawing.
const fn letter(phase: PhaseName) -> char {
    match phase {
        PhaseName::Load => 'L',
        PhaseName::Input => 'i',
        PhaseName::Forward => 'F',
        PhaseName::Backward => 'B',
        PhaseName::Clip => 'c',
        PhaseName::Optimizer => 'O',
        PhaseName::ZeroGrad => 'z',
        PhaseName::Prefill => 'P',
        PhaseName::Decode => 'D',
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_core::Scenario;
    use plimsoll_core::estimate::Run;
    use plimsoll_core::ledger::Ledger;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_ledger_is_drawn_and_summed_up() {
        let scenario = Scenario::from_value(&json!({
            "model": { "hf": { "model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
                "num_attention_heads": 4, "vocab_size": 300 } },
            "input": { "batch": 2, "seq": 32 },
        }));
        let run = Run::new(&scenario.unwrap()).unwrap();
        let text = reading(&Reading::new(run.ledger().clone()), Paint::with_colour(false));
        for part in [
            &run.estimate().peak.requested.to_string(),
            "By category",
            "By module",
            "By op",
            "What fills it",
            "Work of a step",
            "F forward",
            "█",
            "^",
        ] {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
        let sum: Bytes = Reading::new(run.ledger().clone()).held_by(|h| h.module.clone()).iter().map(|(_, b)| *b).sum();
        assert_eq!(sum, run.estimate().peak.requested);
    }

    #[test]
    fn an_empty_ledger_has_nothing_to_draw() {
        let text = reading(&Reading::new(Ledger::default()), Paint::with_colour(false));
        assert!(text.contains("Highest point") && !text.contains('^'), "{text}");
    }
}
