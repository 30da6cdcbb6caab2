//! The question in a line, the verdict in a line.

use plimsoll_core::estimate::Verdict;
use plimsoll_core::summary::{self, card_name, model_name, recipe};
use plimsoll_core::{Estimate, Scenario};

use super::{Paint, WIDTH, fit, wrapped};

/// What was asked.
pub fn question(scenario: &Scenario, paint: Paint) -> String {
    let title = fit(&format!("{} on {}", model_name(scenario), card_name(scenario)), WIDTH - 2);
    let mut out = format!("  {}\n", paint.strong(&title));
    for line in wrapped(&recipe(scenario), WIDTH - 2) {
        out.push_str(&format!("  {}\n", paint.quiet(&line)));
    }
    out
}

/// Whether it fits, and by how much.
pub fn verdict(estimate: &Estimate, paint: Paint) -> String {
    let comment = summary::verdict(estimate);
    let label = match estimate.verdict {
        Verdict::Fits => "FITS",
        Verdict::Tight => "TIGHT",
        Verdict::DoesNotFit => "DOES NOT FIT",
    };
    let (peak, line) = (estimate.peak.process.to_string(), estimate.device.load_line);
    let sizes = format!("peak {}, load line {line}:", paint.strong(&peak));
    let plain = label.len() + peak.len() + line.to_string().len() + comment.len();
    // What stands between them takes 24 columns. Only absurd sizes need a second line.
    let between = if plain + 24 > WIDTH { "\n  " } else { " " };
    format!("  {}   {sizes}{between}{comment}\n", paint.verdict(estimate.verdict, label))
}
