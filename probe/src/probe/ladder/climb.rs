//! Climbing a ladder: one measurement on each rung.

use std::path::PathBuf;

use plimsoll_core::Bytes;
use plimsoll_core::Scenario;
use plimsoll_core::measurement::{DeviceKind, Outcome};
use plimsoll_core::scenario::Precision;

use super::rungs::{self, Rung};
use crate::exit::Failure;
use crate::probe::bench::{Bench, Trial};
use crate::probe::figures::{self, Figures};
use crate::records::{self, Store};

/// What came of one rung.
#[derive(Debug)]
pub struct Step {
    /// The lever.
    pub name: &'static str,
    /// What was run; `None` where nothing was.
    pub scenario: Option<Scenario>,
    /// What it took, or why there is nothing.
    pub result: Result<Figures, String>,
    /// Where its record is.
    pub record: Option<PathBuf>,
}

/// What came of the whole ladder.
#[derive(Debug, Default)]
pub struct Climb {
    /// Every rung from the lowest.
    pub steps: Vec<Step>,
    /// Where it ran, as its driver names it.
    pub device: String,
    /// Whether the estimate speaks of such a device.
    pub comparable: bool,
    /// Whether the user stopped it.
    pub stopped: bool,
}

/// Runs every rung, keeping a record of each.
///
/// # Errors
/// When the lowest rung cannot be run at all, or a record cannot be kept.
pub fn climb(
    asked: &Scenario,
    precision: Option<Precision>,
    limit: Option<Bytes>,
    bench: &mut dyn Bench,
    store: &Store,
) -> Result<Climb, Failure> {
    let mut climb = Climb::default();
    let mut waiting: Vec<Rung> = vec![Rung { name: "fp32", scenario: Ok(rungs::lowest(asked)) }];
    let mut lowest = true;
    while !waiting.is_empty() {
        let rung = waiting.remove(0);
        let scenario = match rung.scenario {
            Ok(scenario) => scenario,
            Err(reason) => {
                climb.steps.push(Step { name: rung.name, scenario: None, result: Err(reason), record: None });
                continue;
            }
        };
        if climb.stopped || bench.stopped() {
            climb.stopped = true;
            let result = Err("not run: interrupted".to_owned());
            climb.steps.push(Step { name: rung.name, scenario: Some(scenario), result, record: None });
            continue;
        }
        bench.say(&format!("Rung {}: {}", climb.steps.len() + 1, rung.name));
        let step = match bench.measure(&Trial { scenario: &scenario, limit, adapt: false, snapshot: None }) {
            Ok(record) => {
                climb.device.clone_from(&record.device.name);
                climb.comparable = record.device.kind == DeviceKind::Cuda;
                if lowest {
                    // Which mixed precision comes next hangs on the card, and now the card is known.
                    waiting.extend(rungs::above(asked, precision.unwrap_or_else(|| rungs::mixed(&record.device))));
                }
                let figures = Figures::of(&record);
                // Before its first attempt a worker that is stopped has none to call so.
                climb.stopped |=
                    figures.outcome == Some(Outcome::Interrupted) || !figures.finished() && bench.stopped();
                bench.say(&format!(
                    "  {}, process {}",
                    figures::outcome(figures.outcome),
                    figures::size(figures.measured.process)
                ));
                let path = records::tells(&record).then(|| store.keep(&record)).transpose()?;
                Step { name: rung.name, scenario: Some(scenario), result: Ok(figures), record: path }
            }
            Err(_) if bench.stopped() && !lowest => {
                climb.stopped = true;
                let result = Err("interrupted".to_owned());
                Step { name: rung.name, scenario: Some(scenario), result, record: None }
            }
            Err(failure) if lowest => return Err(failure),
            // One rung may lack what the others do not: peft, for one.
            Err(failure) => {
                bench.say(&format!("  failed: {failure}"));
                Step { name: rung.name, scenario: Some(scenario), result: Err(failure.to_string()), record: None }
            }
        };
        climb.steps.push(step);
        lowest = false;
    }
    Ok(climb)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::probe::bench::paper::Paper;

    fn asked() -> Scenario {
        let value = json!({ "model": { "catalog": "gpt2" }, "input": { "batch": 8, "seq": 32 } });
        Scenario::from_value(&value).unwrap()
    }

    fn store() -> (tempfile::TempDir, Store) {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::at(folder.path());
        (folder, store)
    }

    /// fp32 is too much, all else is not.
    fn fp32_is_too_much(scenario: &Scenario) -> Option<u64> {
        Some(if scenario.training.precision == Precision::Fp32 { 13 << 30 } else { 5 << 30 })
    }

    #[test]
    fn a_rung_that_does_not_fit_is_shown_and_the_next_is_tried() {
        let (_folder, store) = store();
        let mut bench = Paper::card(fp32_is_too_much);
        let climb = climb(&asked(), None, None, &mut bench, &store).unwrap();
        let outcomes: Vec<_> = climb.steps.iter().map(|step| step.result.as_ref().unwrap().outcome.unwrap()).collect();
        assert_eq!(outcomes[0], Outcome::OutOfMemory);
        assert!(outcomes[1..].iter().all(|outcome| *outcome == Outcome::Finished));
        assert_eq!(climb.steps.len(), 6);
        assert_eq!(store.list().unwrap().records.len(), 6, "a record of each");
        assert!(climb.steps.iter().all(|step| step.record.is_some()));
        assert!(!climb.stopped);
    }

    #[test]
    fn the_card_chooses_the_precision_unless_the_user_does() {
        for (capability, given, expected) in [
            ("7.5", None, Precision::Fp16Amp),
            ("9.0", None, Precision::Bf16Amp),
            ("9.0", Some(Precision::Fp16Amp), Precision::Fp16Amp),
        ] {
            let (_folder, store) = store();
            let mut bench = Paper::card(fp32_is_too_much);
            bench.capability = Some(capability.to_owned());
            climb(&asked(), given, None, &mut bench, &store).unwrap();
            assert!(bench.tried[1..].iter().all(|scenario| scenario.training.precision == expected));
        }
    }

    #[test]
    fn ctrl_c_keeps_what_is_done() {
        let (_folder, store) = store();
        let mut bench = Paper { stop_in: Some(3), ..Paper::card(fp32_is_too_much) };
        let climb = climb(&asked(), None, None, &mut bench, &store).unwrap();
        assert!(climb.stopped);
        assert_eq!((climb.steps.len(), bench.tried.len()), (6, 3));
        assert!(climb.steps[5].result.as_ref().unwrap_err().contains("interrupted"));
        assert_eq!(store.list().unwrap().records.len(), 2, "what was measured until then");
    }

    #[test]
    fn a_failing_worker_is_told() {
        let (_folder, store) = store();
        let mut bench = Paper::card(|scenario| scenario.training.lora.is_none().then_some(1 << 30));
        let climb = climb(&asked(), None, None, &mut bench, &store).unwrap();
        assert_eq!(climb.steps[5].result.as_ref().unwrap().outcome, Some(Outcome::Failed));
    }
}
