//! A fit as text and as JSON.

use std::path::Path;

use plimsoll_core::{Bytes, Scenario};
use serde_json::{Value, json};

use super::Fit;
use super::trials::RECOMMENDED;
use crate::probe::figures::{duration, outcome, size};
use crate::records;
use crate::session::Work;
use crate::view::{Paint, grouped, wrapped};

impl Fit {
    /// For `--format json`.
    pub fn to_value(&self) -> Value {
        let trials: Vec<Value> = self.trials.iter().map(|(_, figures)| figures.to_value()).collect();
        json!({
            "schema": 1, "device": self.device, "max_batch": self.largest, "recommended": self.recommended(),
            "predicted_max_batch": self.predicted, "comparable": self.comparable, "trials": trials,
            "trials_without_estimate": self.blind(),
        })
    }
}

/// The whole answer for people.
pub fn table(scenario: &Scenario, limit: Option<Bytes>, fit: &Fit, folder: &Path, paint: Paint) -> String {
    let model = records::model(&scenario.to_value());
    let device = fit.device.as_deref().unwrap_or("this machine");
    let under = limit.map(|limit| format!(", limit {limit}")).unwrap_or_default();
    let (training, work) = (&scenario.training, Work::of(scenario));
    let recipe = match work {
        Work::Step => format!(
            "{}, {} ({}), accumulated {} times",
            training.precision, training.optimizer, training.optimizer_impl, training.accumulation
        ),
        Work::Generation { .. } | Work::Forward => recipe_but_batch(scenario),
    };
    let mut out =
        format!("\n  {}\n  {}\n\n", paint.strong(&format!("{model} on {device}{under}")), paint.quiet(&recipe));
    if !fit.trials.is_empty() {
        let head = format!("  trial  {:>12}                        process   allocated   per sample", work.batch());
        out.push_str(&format!("{}\n", paint.quiet(&head)));
    }
    for (number, (batch, figures)) in fit.trials.iter().enumerate() {
        let said = outcome(figures.outcome);
        // Padded before it is painted: colour has no width.
        let said = if figures.finished() { format!("{said:<16}") } else { paint.signal(&format!("{said:<16}")) };
        out.push_str(&format!(
            "  {:>5}  {:>12}   {said} {:>13} {:>11} {:>12}\n",
            number + 1,
            grouped(*batch),
            size(figures.measured.process),
            size(figures.measured.allocated),
            duration(figures.sample_micros),
        ));
    }
    out.push('\n');
    for (label, value, comment) in rows(work, fit) {
        // Padded before it is painted: colour has no width.
        let comment = wrapped(&comment, 34).join(&format!("\n{:46}", ""));
        let line = format!("  {label:<32} {} {comment}", paint.strong(&format!("{value:<10}")));
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out.push('\n');
    if !fit.trials.is_empty() {
        for line in wrapped(&format!("The record of each trial is in {}", folder.display()), 78) {
            out.push_str(&format!("  {}\n", paint.quiet(&line)));
        }
    }
    out
}

/// What is run, of inference: its batch says nothing here.
fn recipe_but_batch(scenario: &Scenario) -> String {
    let mut parts = vec!["inference".to_owned()];
    parts.extend(scenario.input.seq.map(|seq| format!("{seq} tokens")));
    parts.extend(scenario.input.max_new_tokens.map(|new| format!("{new} new tokens")));
    parts.push(scenario.training.precision.to_string());
    parts.join(", ")
}

fn rows(work: Work, fit: &Fit) -> Vec<(&'static str, String, String)> {
    let mut rows = Vec::new();
    let (title, advice) = match work {
        Work::Step => (
            "Largest micro-batch that trains",
            "not even one sample; try --checkpointing full, --optimizer-impl fused or --lora-rank 16",
        ),
        Work::Generation { .. } | Work::Forward => (
            "Largest batch that runs",
            "not even one sample; try --precision bf16, --quantization nf4 or a shorter --seq",
        ),
    };
    match fit.largest {
        None => {
            let least = fit.trials.iter().filter(|(_, f)| f.finished()).map(|(n, _)| *n).max();
            let said = least.map_or_else(String::new, |n| format!("; at least {}", grouped(n)));
            rows.push((title, "unknown".to_owned(), format!("interrupted{said}")));
        }
        Some(0) => {
            rows.push((title, "none".to_owned(), advice.to_owned()));
        }
        Some(largest) => {
            rows.push((title, grouped(largest), String::new()));
            let recommended = fit.recommended().unwrap_or(largest);
            rows.push(("Recommended", grouped(recommended), format!("{RECOMMENDED} % of it")));
        }
    }
    match (fit.predicted, fit.off()) {
        (None, _) => rows.push(("Predicted", "-".to_owned(), "the engine does not estimate this model yet".to_owned())),
        (Some(predicted), _) if !fit.comparable => {
            let why = "the first guess only: the estimate speaks of a CUDA card";
            rows.push(("Predicted", grouped(predicted), why.to_owned()));
        }
        (Some(predicted), None) => rows.push(("Predicted", grouped(predicted), String::new())),
        (Some(predicted), Some(0)) => rows.push(("Predicted", grouped(predicted), "exactly".to_owned())),
        (Some(predicted), Some(off)) => {
            let way = if fit.largest < Some(predicted) { "too many" } else { "too few" };
            rows.push(("Predicted", grouped(predicted), format!("{} {way}", grouped(off))));
        }
    }
    if let (Some(blind), None) = (fit.blind(), fit.known) {
        rows.push(("Trials", fit.trials.len().to_string(), format!("without an estimate: {blind}")));
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_ending_is_told() {
        let fit = |largest, predicted| Fit { largest, predicted, comparable: true, ..Fit::default() };
        let scenario = serde_json::json!({ "model": { "catalog": "gpt2" } });
        let scenario = Scenario::from_value(&scenario).unwrap();
        let told =
            |fit: &Fit| table(&scenario, Some(Bytes::from_gib(11)), fit, Path::new("x"), Paint::with_colour(false));
        for (fit, words) in [
            (fit(Some(33), Some(33)), vec!["gpt2 on this machine, limit 11.00 GiB", "29", "90 % of it", "exactly"]),
            (fit(Some(33), Some(35)), vec!["2 too many"]),
            (fit(Some(33), Some(32)), vec!["1 too few", "without an estimate: 12"]),
            (fit(Some(0), Some(0)), vec!["not even one sample"]),
            (fit(None, None), vec!["interrupted", "does not estimate"]),
            (Fit { comparable: false, ..fit(Some(3), Some(9)) }, vec!["the first guess only:"]),
        ] {
            let text = told(&fit);
            for word in words {
                assert!(text.contains(word), "{word}: {text}");
            }
            assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        }
    }

    #[test]
    fn of_inference_nothing_is_said_that_only_training_has() {
        let scenario = serde_json::json!({
            "model": { "catalog": "gpt2" }, "input": { "seq": 512, "max_new_tokens": 64 },
            "training": { "mode": "inference", "precision": "bf16" },
        });
        let scenario = Scenario::from_value(&scenario).unwrap();
        for largest in [Some(7), Some(0), None] {
            let fit = Fit { largest, predicted: Some(7), comparable: true, ..Fit::default() };
            let text = table(&scenario, None, &fit, Path::new("x"), Paint::with_colour(false));
            assert!(text.contains("inference, 512 tokens, 64 new tokens, bf16"), "{text}");
            assert!(text.contains("Largest batch that runs"), "{text}");
            for word in ["train", "micro", "adamw", "optimizer", "checkpointing"] {
                assert!(!text.contains(word), "{word}: {text}");
            }
        }
    }
}
