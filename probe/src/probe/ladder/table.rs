//! A ladder as text and as JSON.

use std::path::Path;

use plimsoll_core::{Bytes, Scenario};
use serde_json::{Value, json};

use super::climb::{Climb, Step};
use crate::probe::figures::{difference, duration, outcome, size};
use crate::records;
use crate::view::{Paint, wrapped};

/// For `--format json`.
pub fn value(asked: &Scenario, limit: Option<Bytes>, climb: &Climb) -> Value {
    let step = |step: &Step| {
        json!({
            "name": step.name,
            "scenario": step.scenario.as_ref().map(Scenario::to_value),
            "figures": step.result.as_ref().ok().map(|figures| figures.to_value()),
            "reason": step.result.as_ref().err(),
            "record": step.record.as_ref().map(|path| path.display().to_string()),
        })
    };
    json!({
        "schema": 1, "scenario": asked.to_value(), "limit": limit, "device": climb.device, "stopped": climb.stopped,
        "rungs": climb.steps.iter().map(step).collect::<Vec<_>>(),
    })
}

/// The whole answer for people.
pub fn table(asked: &Scenario, limit: Option<Bytes>, climb: &Climb, folder: &Path, paint: Paint) -> String {
    let model = records::model(&asked.to_value());
    let under = limit.map(|limit| format!(", limit {limit}")).unwrap_or_default();
    let title = format!("{model} on {}{under}", climb.device);
    let samples = asked.input.batch * asked.training.accumulation;
    let subtitle = format!("{samples} samples a step, {}; each rung on top of the last", asked.training.optimizer);
    let mut out = format!("\n  {}\n  {}\n\n", paint.strong(&title), paint.quiet(&subtitle));
    let head = "  rung                micro-batch   allocated     process   per sample    used";
    out.push_str(&format!("{}\n", paint.quiet(head)));
    for step in &climb.steps {
        out.push_str(&row(step, paint));
    }
    out.push_str(&from_bottom_to_top(climb));
    out.push('\n');
    out.push_str(&beside(climb, paint));
    for line in wrapped(&format!("The record of each rung is in {}", folder.display()), 78) {
        out.push_str(&format!("  {}\n", paint.quiet(&line)));
    }
    out
}

fn row(step: &Step, paint: Paint) -> String {
    let name = format!("  {:<18}", step.name);
    let figures = match &step.result {
        Ok(figures) => figures,
        Err(reason) => {
            let lines = wrapped(&format!("left out: {reason}"), 58).join(&format!("\n{:22}", ""));
            return format!("{name}  {}\n", paint.quiet(&lines));
        }
    };
    let shape = format!("{} x {}", figures.batch, figures.accumulation);
    if !figures.finished() {
        let said = outcome(figures.outcome);
        let why = figures.failure.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
        let lines = wrapped(&format!("{said}{why}"), 44).join(&format!("\n{:36}", ""));
        return format!("{name}  {shape:>11}     {}\n", paint.signal(&lines));
    }
    let used = figures.utilization.map_or_else(|| "-".to_owned(), |percent| format!("{percent} %"));
    format!(
        "{name}  {shape:>11} {:>11} {:>11} {:>12} {used:>7}\n",
        size(figures.measured.allocated),
        size(figures.measured.process),
        duration(figures.sample_micros),
    )
}

/// What the levers brought together, where two rungs ran.
fn from_bottom_to_top(climb: &Climb) -> String {
    let ran: Vec<_> = climb.steps.iter().filter_map(|s| Some((s.name, s.result.as_ref().ok()?))).collect();
    let mut ran = ran.into_iter().filter(|(_, figures)| figures.finished());
    let (Some((low, first)), Some((high, last))) = (ran.next(), ran.next_back()) else { return String::new() };
    let memory = |figures: &crate::probe::figures::Figures| figures.measured.allocated.or(figures.measured.process);
    let (Some(from), Some(to)) = (memory(first), memory(last)) else { return String::new() };
    let change = -difference(from, to);
    format!("\n  From {low} to {high}: memory {from} to {to} ({change:+.0} %)\n")
}

/// Every measured peak beside its prediction.
fn beside(climb: &Climb, paint: Paint) -> String {
    if !climb.comparable {
        return String::new();
    }
    let mut out = String::new();
    for step in &climb.steps {
        let Ok(figures) = &step.result else { continue };
        for (index, (name, measured, predicted)) in figures.pairs().into_iter().enumerate() {
            let rung = if index == 0 { step.name } else { "" };
            out.push_str(&format!(
                "  {rung:<18}  {name:<10} {:>13} {:>13} {:>+10.2} %\n",
                measured.to_string(),
                predicted.to_string(),
                difference(measured, predicted)
            ));
        }
        let nothing = figures.pairs().is_empty() && figures.finished();
        if nothing {
            out.push_str(&format!("  {:<18}  no prediction: the engine does not estimate this yet\n", step.name));
        } else if let (false, Some(process)) = (figures.finished(), figures.predicted.and_then(|p| p.process)) {
            out.push_str(&format!("  {:<18}  {:<10} {:>13} {:>13}\n", step.name, "process", "-", process.to_string()));
        }
    }
    if out.is_empty() {
        return out;
    }
    let head = "  rung                peak            measured     predicted    differs by";
    format!("{}\n{out}\n", paint.quiet(head))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::figures::Figures;
    use crate::records::sample;

    fn step(name: &'static str, result: Result<Figures, String>) -> Step {
        Step { name, scenario: None, result, record: None }
    }

    #[test]
    fn what_fits_what_does_not_and_what_was_left_out() {
        let record = sample::record();
        let mut over = record.clone();
        over.attempts[0].outcome = plimsoll_core::measurement::Outcome::OutOfMemory;
        let climb = Climb {
            steps: vec![
                step("fp32", Ok(Figures::of(&over))),
                step("+ mixed precision", Ok(Figures::of(&record))),
                step("+ checkpointing", Err("the family nbeats has no gradient checkpointing".to_owned())),
                step("+ LoRA", Ok(Figures::of(&record))),
            ],
            device: record.device.name.clone(),
            comparable: true,
            stopped: false,
        };
        let asked = Scenario::from_value(&record.scenario).unwrap();
        let text = table(&asked, None, &climb, Path::new("x"), Paint::with_colour(false));
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        for words in [
            "  fp32                      2 x 1     out of memory\n",
            "  + mixed precision         2 x 1    2.33 GiB    2.70 GiB     15.00 ms    80 %\n",
            "left out: the family nbeats has no gradient checkpointing",
            "From + mixed precision to + LoRA: memory 2.33 GiB to 2.33 GiB (+0 %)",
        ] {
            assert!(text.contains(words), "{words}: {text}");
        }
        assert_eq!(text.matches(" %\n").count(), 2 + 6, "{text}");
        let value = value(&asked, None, &climb);
        assert_eq!(value["rungs"][2]["reason"], "the family nbeats has no gradient checkpointing");
        assert_eq!(value["rungs"][0]["figures"]["outcome"], "out_of_memory");
    }
}
