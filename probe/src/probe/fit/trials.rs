//! The trials of a fit: which micro-batches are tried, and what came of it.

use plimsoll_core::estimate::max_batch;
use plimsoll_core::measurement::{DeviceKind, MeasuredDevice, Outcome};
use plimsoll_core::scenario::{Inputs, limits};
use plimsoll_core::{Bytes, Error, Measurement, Scenario};

use super::search::{Search, blind};
use crate::exit::Failure;
use crate::probe::bench::{Bench, Trial};
use crate::probe::figures::{self, Figures};
use crate::records::Store;
use crate::session::{Work, on_card, with_shape};

/// Percent of the largest micro-batch that is recommended: a real run meets longer samples and other users.
pub const RECOMMENDED: u64 = 90;

/// What a fit found.
#[derive(Debug, Default)]
pub struct Fit {
    /// Every trial with its micro-batch, in order.
    pub trials: Vec<(u64, Figures)>,
    /// The largest micro-batch that trains; 0 when not even one sample does. `None` when it was stopped before that was
    /// known.
    pub largest: Option<u64>,
    /// What the estimate says it is; `None` where it does not know the model.
    pub predicted: Option<u64>,
    /// Whether the estimate speaks of the device: of a card, not of a processor.
    pub comparable: bool,
    /// Where it ran, as its driver names it.
    pub device: Option<String>,
    /// Largest and smallest micro-batch that were known from records of earlier trials.
    pub known: Option<(u64, u64)>,
}

impl Fit {
    /// What to train with.
    pub fn recommended(&self) -> Option<u64> {
        let largest = self.largest.filter(|largest| *largest > 0)?;
        Some((u128::from(largest) * u128::from(RECOMMENDED) / 100).max(1).try_into().unwrap_or(largest))
    }

    /// How many trials doubling and halving would have taken.
    pub fn blind(&self) -> Option<u32> {
        self.largest.map(|largest| blind(largest, limits::BATCH))
    }

    /// By how much the prediction is off, in samples.
    pub fn off(&self) -> Option<u64> {
        Some(self.largest?.abs_diff(self.predicted?))
    }
}

/// Where a fit begins.
#[derive(Clone, Copy, Debug)]
pub struct Start<'a> {
    /// What is to be fitted; its own batch says nothing.
    pub scenario: &'a Scenario,
    /// Hard cap of the process.
    pub limit: Option<Bytes>,
    /// The device, as far as it is known before PyTorch is asked.
    pub device: Option<&'a MeasuredDevice>,
    /// Records of earlier trials of the same on the same device.
    pub known: &'a [Measurement],
}

/// What the estimate says is the largest micro-batch that runs at all. The load line is left out: a trial does not know it.
pub fn predict(start: &Start<'_>, device: Option<&MeasuredDevice>) -> Result<u64, Error> {
    let mut scenario = start.scenario.clone();
    if let Some(device) = device {
        scenario = on_card(&scenario, device, start.limit);
    }
    if scenario.device.memory.is_none() || device.is_none_or(|device| device.kind != DeviceKind::Cuda) {
        scenario.device.memory = start.limit.or(scenario.device.memory);
    }
    // A run above the line, or one that must give cached memory back, still runs.
    scenario.device.load_line = None;
    let capacity = capacity(&scenario)?;
    scenario.device.load_line = Some(capacity);
    max_batch(&scenario)
}

fn capacity(scenario: &Scenario) -> Result<Bytes, Error> {
    match scenario.device.memory {
        Some(memory) => Ok(memory),
        None => Ok(plimsoll_core::estimate::Run::new(&with_shape(scenario, 1, 1))?.estimate().device.capacity),
    }
}

/// Refuses what has no batch.
pub fn check(scenario: &Scenario) -> Result<(), Error> {
    if !matches!(scenario.family().inputs, Inputs::Graph { .. }) {
        return Ok(());
    }
    Err(Error::new(
        "model",
        "a sample of it is a whole graph, and a step takes one",
        "there is no batch to fit; measure it with plimsoll probe run",
    ))
}

/// Tries until the answer is known, keeping a record of each trial.
///
/// # Errors
/// What a trial cannot do without: Python, PyTorch, the device; a worker that fails for another reason than memory; a
/// record that cannot be kept.
pub fn find_largest(start: &Start<'_>, bench: &mut dyn Bench, store: &Store) -> Result<Fit, Failure> {
    check(start.scenario)?;
    let predicted = predict(start, start.device);
    let mut fit = Fit { predicted: predicted.ok(), ..Fit::default() };
    let mut search = Search::new(fit.predicted, limits::BATCH);
    recall(start.known, &mut search, &mut fit);
    let mut device_known = start.device.is_some();
    if let Some(device) = start.device {
        fit.comparable = device.kind == DeviceKind::Cuda;
        fit.device = Some(device.name.clone());
    }
    while let Some(batch) = search.next() {
        if bench.stopped() {
            return Ok(fit);
        }
        bench.say(&format!("Trial {}: {} {batch}", fit.trials.len() + 1, Work::of(start.scenario).batch()));
        let scenario = with_shape(start.scenario, batch, start.scenario.training.accumulation);
        let record =
            match bench.measure(&Trial { scenario: &scenario, limit: start.limit, adapt: false, snapshot: None }) {
                Err(_) if bench.stopped() => return Ok(fit),
                outcome => outcome?,
            };
        fit.comparable = record.device.kind == DeviceKind::Cuda;
        fit.device = Some(record.device.name.clone());
        let figures = Figures::of(&record);
        // Before its first attempt a worker that is stopped has none to call so.
        let ended = matches!(figures.outcome, Some(Outcome::Finished | Outcome::OutOfMemory | Outcome::Limit));
        if figures.outcome == Some(Outcome::Interrupted) || !ended && bench.stopped() {
            return Ok(fit);
        }
        store.keep(&record)?;
        let fits = match figures.outcome {
            Some(Outcome::Finished) => true,
            Some(Outcome::OutOfMemory | Outcome::Limit) => false,
            _ => return Err(failed(Work::of(start.scenario), batch, &figures)),
        };
        bench.say(&format!(
            "  {}, process {}",
            figures::outcome(figures.outcome),
            figures::size(figures.measured.process)
        ));
        search.tried(batch, fits);
        fit.trials.push((batch, figures));
        if !device_known {
            // Now the card is known: the estimate can speak of it instead of the one the scenario names.
            device_known = true;
            if let Ok(better) = predict(start, Some(&record.device)) {
                fit.predicted = Some(better);
                search.aim(better);
            }
        }
    }
    fit.largest = Some(search.largest());
    Ok(fit)
}

/// Takes over what earlier trials found.
fn recall(known: &[Measurement], search: &mut Search, fit: &mut Fit) {
    let (mut good, mut bad) = (0, u64::MAX);
    for record in known {
        let figures = Figures::of(record);
        match figures.outcome {
            Some(Outcome::Finished) => good = good.max(figures.batch),
            Some(Outcome::OutOfMemory | Outcome::Limit) => bad = bad.min(figures.batch),
            _ => {}
        }
    }
    // Records that contradict one another are of no use.
    if good >= bad {
        return;
    }
    if good > 0 {
        search.know(good, true);
    }
    if bad < u64::MAX {
        search.know(bad, false);
    }
    if good > 0 || bad < u64::MAX {
        fit.known = Some((good, bad));
    }
}

fn failed(work: Work, batch: u64, figures: &Figures) -> Failure {
    Failure::Environment {
        problem: format!(
            "the trial with a {} of {batch} failed: {}",
            work.batch(),
            figures.failure.as_deref().unwrap_or("the worker did not say why")
        ),
        hint: "try it alone with plimsoll probe run, which says more".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::probe::bench::paper::Paper;

    fn scenario() -> Scenario {
        Scenario::from_value(&json!({ "model": { "catalog": "gpt2" }, "input": { "seq": 256 } })).unwrap()
    }

    /// Half a GiB and 300 MiB for each sample: 39 fit in 12 GiB.
    fn by_sample(scenario: &Scenario) -> Option<u64> {
        Some((512 + 300 * scenario.input.batch) << 20)
    }

    /// Exactly as the engine says.
    fn by_engine(scenario: &Scenario) -> Option<u64> {
        let mut scenario = scenario.clone();
        scenario.device.memory = Some(Bytes::from_gib(1000));
        Some(plimsoll_core::estimate::Run::new(&scenario).ok()?.estimate().peak.process.get())
    }

    fn start(scenario: &Scenario) -> Start<'_> {
        Start { scenario, limit: None, device: None, known: &[] }
    }

    fn store() -> (tempfile::TempDir, Store) {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::at(folder.path());
        (folder, store)
    }

    #[test]
    fn a_wrong_estimate_costs_trials_and_no_truth() {
        let (_folder, store) = store();
        let mut bench = Paper::card(by_sample);
        let fit = find_largest(&start(&scenario()), &mut bench, &store).unwrap();
        assert_eq!(fit.largest, Some(39));
        assert_eq!(fit.recommended(), Some(35));
        assert_eq!(fit.trials.len(), bench.tried.len());
        assert_eq!(store.list().unwrap().records.len(), fit.trials.len(), "a record of each");
        assert!(bench.tried.iter().all(|scenario| scenario.training.accumulation == 1));
    }

    #[test]
    fn a_right_estimate_takes_two_trials_or_few_more() {
        for limit in [6, 8, 12] {
            let (_folder, store) = store();
            let scenario = scenario();
            let mut bench = Paper::card(by_engine);
            let start = Start { limit: Some(Bytes::from_gib(limit)), ..start(&scenario) };
            let fit = find_largest(&start, &mut bench, &store).unwrap();
            // The formula has no end of the card, near which the allocator gives cached memory back.
            assert!(fit.off().unwrap() <= 2, "{limit} GiB: {:?} for {:?}", fit.predicted, fit.largest);
            assert!(fit.trials.len() <= 4, "{limit} GiB: {} trials", fit.trials.len());
            assert!(fit.blind().unwrap() as usize >= fit.trials.len() + 3, "{:?}", fit.largest);
        }
    }

    #[test]
    fn not_even_one() {
        let (_folder, store) = store();
        let mut bench = Paper::card(|_| Some(u64::MAX));
        let fit = find_largest(&start(&scenario()), &mut bench, &store).unwrap();
        assert_eq!((fit.largest, fit.recommended()), (Some(0), None));
    }

    #[test]
    fn earlier_trials_count() {
        let (_folder, store) = store();
        let mut bench = Paper::card(by_sample);
        find_largest(&start(&scenario()), &mut bench, &store).unwrap();
        let known: Vec<Measurement> = store.list().unwrap().records.into_iter().map(|(_, record)| record).collect();
        let mut again = Paper::card(by_sample);
        let scenario = scenario();
        let fit = find_largest(&Start { known: &known, ..start(&scenario) }, &mut again, &store).unwrap();
        assert_eq!((fit.largest, again.tried.len(), fit.known), (Some(39), 0, Some((39, 40))));
    }

    #[test]
    fn ctrl_c_keeps_what_was_found() {
        let (_folder, store) = store();
        let mut bench = Paper { stop_in: Some(2), ..Paper::card(by_sample) };
        let fit = find_largest(&start(&scenario()), &mut bench, &store).unwrap();
        assert_eq!((fit.largest, fit.trials.len()), (None, 1));
        assert_eq!(store.list().unwrap().records.len(), 1);
    }

    #[test]
    fn a_worker_that_fails_ends_it() {
        let (_folder, store) = store();
        let mut bench = Paper::card(|_| None);
        let failure = find_largest(&start(&scenario()), &mut bench, &store).unwrap_err();
        assert!(failure.to_string().contains("did not say why"), "{failure}");
    }

    #[test]
    fn a_graph_has_no_batch() {
        let graph = Scenario::from_value_to_measure(&json!({ "model": { "family": "gat" } })).unwrap();
        assert!(check(&graph).is_err());
        check(&scenario()).unwrap();
    }
}
