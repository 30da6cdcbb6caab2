//! What becomes of each entry of the suite on the machine at hand: run it, and how; or leave it out, and why.

use plimsoll_core::estimate::{Run, Verdict};
use plimsoll_core::measurement::{DeviceKind, Outcome};
use plimsoll_core::scenario::{ModelSource, Quantization, limits};
use plimsoll_core::{Bytes, Error, Measurement, Scenario};

use crate::probe::entry::{Entry, Over};
use crate::probe::survey::Survey;
use crate::session::{on_card, subject, with_shape};

/// How to run an entry.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// What.
    pub scenario: Scenario,
    /// Hard cap of the process.
    pub limit: Option<Bytes>,
    /// Whether the guard may halve the micro-batch.
    pub adapt: bool,
}

/// Whether an entry is run.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    /// It is.
    Run(Box<Plan>),
    /// It is not.
    Skip(String),
}

/// Plans one entry. `limit` is the user's own hard cap.
///
/// # Errors
/// None for the entries that come with the program.
pub fn plan(entry: &Entry, survey: &Survey, limit: Option<Bytes>) -> Result<Decision, Error> {
    let small = survey.device.kind == DeviceKind::Cpu;
    let scenario = entry.scenario(small)?;
    if let Some(package) = missing(&scenario, survey) {
        return Ok(Decision::Skip(format!("this Python has no {package}; pip install {package}")));
    }
    let known = scenario.estimated().is_ok();
    let mut plan = Plan { scenario, limit, adapt: entry.over.is_some() || !known };
    match entry.over {
        // A processor has no memory that runs out without harm: a cap stands in for the card.
        Some(_) if small => plan.limit = limit.or(entry.small_limit()),
        Some(over) => {
            if over == Over::Limit {
                plan.limit = limit.or(Some(Bytes::new(survey.device.total.get() / 2)));
            }
            if survey.device.total == Bytes::ZERO {
                return Ok(Decision::Skip("how much memory the device has is not known".to_owned()));
            }
            match too_large(&plan, survey)? {
                Some(batch) => plan.scenario.input.batch = batch,
                None => return Ok(Decision::Skip("no micro-batch is too large for this device".to_owned())),
            }
        }
        None if survey.device.kind == DeviceKind::Cuda && known => {
            let run = Run::new(&on_card(&plan.scenario, &survey.device, plan.limit))?;
            let estimate = run.estimate();
            if estimate.verdict == Verdict::DoesNotFit {
                let (process, capacity) = (estimate.peak.process, estimate.device.capacity);
                return Ok(Decision::Skip(format!("it would take {process}, and there are {capacity}")));
            }
        }
        None => {}
    }
    Ok(Decision::Run(Box::new(plan)))
}

/// The package the scenario needs and the Python lacks.
fn missing(scenario: &Scenario, survey: &Survey) -> Option<&'static str> {
    let mut needed = Vec::new();
    match &scenario.model.source {
        ModelSource::Family { name, .. } if matches!(name.as_str(), "resnet" | "convnext" | "swin") => {
            needed.push("torchvision")
        }
        ModelSource::Family { .. } | ModelSource::Hull(_) => {}
        ModelSource::Catalog(_) | ModelSource::HuggingFace(_) => needed.push("transformers"),
    }
    if scenario.training.lora.is_some() {
        needed.push("peft");
    }
    if scenario.training.quantization != Quantization::None {
        needed.push("bitsandbytes");
    }
    needed.into_iter().find(|package| !survey.has.iter().any(|has| has == package))
}

/// The scenario's micro-batch, doubled until the estimate says that it does not fit. One more doubling, so that it is not
/// the allocator's last trick that decides.
fn too_large(plan: &Plan, survey: &Survey) -> Result<Option<u64>, Error> {
    let here = on_card(&plan.scenario, &survey.device, plan.limit);
    let mut batch = here.input.batch;
    while batch <= limits::BATCH / 4 {
        let tried = with_shape(&here, batch, here.training.accumulation);
        if Run::new(&tried)?.estimate().verdict == Verdict::DoesNotFit {
            return Ok(Some(batch * 2));
        }
        batch *= 2;
    }
    Ok(None)
}

/// Whether this record is what the plan would bring: the same scenario, cap, PyTorch and device, measured to an end.
pub fn answers(record: &Measurement, plan: &Plan, survey: &Survey) -> bool {
    record.scenario == plan.scenario.to_value() && same_place(record, plan.limit, survey) && ended(record)
}

/// Whether it was measured here.
pub fn same_place(record: &Measurement, limit: Option<Bytes>, survey: &Survey) -> bool {
    record.allocator.limit == limit
        && record.software.torch == survey.torch
        && record.device.kind == survey.device.kind
        && record.device.hollow == survey.device.hollow
        // The name of a processor is known to the worker only.
        && (survey.device.kind != DeviceKind::Cuda || record.device.name == survey.device.name)
}

fn ended(record: &Measurement) -> bool {
    let outcome = subject(record).map(|(_, attempt)| attempt.outcome);
    matches!(outcome, Some(Outcome::Finished | Outcome::OutOfMemory | Outcome::Limit))
        && record.attempts.last().is_some_and(|last| !matches!(last.outcome, Outcome::Interrupted | Outcome::Failed))
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::probe::{entry, suite};
    use crate::records::sample;

    pub fn survey(gib: u64) -> Survey {
        let mut device = sample::record().device;
        device.total = Bytes::from_gib(gib);
        device.reserved = None;
        device.used_before = None;
        let has = ["transformers", "peft", "torchvision", "bitsandbytes"].map(str::to_owned).to_vec();
        Survey { torch: "2.11.0".to_owned(), has, device, card: None }
    }

    fn entries() -> Vec<Entry> {
        entry::read(suite::ENTRIES).unwrap()
    }

    fn find(name: &str) -> Entry {
        entries().into_iter().find(|entry| entry.name == name).unwrap()
    }

    #[test]
    fn what_is_pushed_over_is_too_large_wherever_it_runs() {
        for gib in [8, 12, 24, 141] {
            let survey = survey(gib);
            let mut limits = Vec::new();
            for entry in entries().iter().filter(|entry| entry.over.is_some()) {
                let Decision::Run(plan) = plan(entry, &survey, None).unwrap() else { panic!("{}", entry.name) };
                let here = on_card(&plan.scenario, &survey.device, plan.limit);
                assert_eq!(Run::new(&here).unwrap().estimate().verdict, Verdict::DoesNotFit);
                assert!(plan.adapt);
                limits.push(plan.limit);
            }
            limits.sort();
            assert_eq!(limits, [None, Some(Bytes::new(Bytes::from_gib(gib).get() / 2))], "one of each kind");
        }
    }

    #[test]
    fn what_the_card_cannot_hold_is_left_out_with_the_reason() {
        let entry = find("llama-1b-lora-checkpointing");
        let Decision::Skip(reason) = plan(&entry, &survey(4), None).unwrap() else { panic!() };
        assert!(reason.contains("it would take"), "{reason}");
        assert!(matches!(plan(&entry, &survey(12), None).unwrap(), Decision::Run(_)));
        let Decision::Skip(_) = plan(&entry, &survey(12), Some(Bytes::from_gib(4))).unwrap() else { panic!() };
    }

    #[test]
    fn what_the_python_lacks_is_named() {
        let mut survey = survey(12);
        survey.has.retain(|package| package == "transformers");
        for (name, package) in [
            ("llama-1b-lora-checkpointing", "peft"),
            ("resnet50-fp16-amp-sgd", "torchvision"),
            ("generate-llama-3b-nf4", "bitsandbytes"),
        ] {
            let Decision::Skip(reason) = plan(&find(name), &survey, None).unwrap() else { panic!() };
            assert!(reason.contains(package), "{reason}");
        }
        assert!(matches!(plan(&find("mlp-fp32-adamw"), &survey, None).unwrap(), Decision::Run(_)));
    }

    #[test]
    fn without_a_card_everything_is_small() {
        let mut survey = survey(64);
        survey.device.kind = DeviceKind::Cpu;
        for entry in entries() {
            let Decision::Run(plan) = plan(&entry, &survey, None).unwrap() else { panic!("{}", entry.name) };
            assert_eq!(plan.limit.is_some(), entry.over.is_some(), "{}", entry.name);
            if let Ok(run) = Run::new(&plan.scenario) {
                let parameters = run.estimate().parameters.total;
                // torchvision's networks are as wide as they are: there only the images are fewer and smaller.
                let fixed = matches!(&plan.scenario.model.source, ModelSource::Family { name, .. }
                    if matches!(name.as_str(), "resnet" | "convnext" | "swin"));
                let most = if fixed { 30_000_000 } else { 4_000_000 };
                assert!(parameters < most, "{} has {parameters} parameters in small", entry.name);
            }
        }
    }

    #[test]
    fn a_record_of_something_else_is_no_answer() {
        let survey = survey(12);
        let Decision::Run(plan) = plan(&find("gpt2-fp32-adamw"), &survey, None).unwrap() else { panic!() };
        let mut record = sample::record();
        record.scenario = plan.scenario.to_value();
        assert!(answers(&record, &plan, &survey));
        let changes: [fn(&mut Measurement); 6] = [
            |record| record.software.torch = "2.12.0".to_owned(),
            |record| record.device.name = "another".to_owned(),
            |record| record.allocator.limit = Some(Bytes::from_gib(1)),
            |record| record.attempts[0].outcome = Outcome::Interrupted,
            |record| record.attempts[0].outcome = Outcome::Failed,
            |record| record.scenario["input"]["batch"] = 3.into(),
        ];
        for change in changes {
            let mut other = record.clone();
            change(&mut other);
            assert!(!answers(&other, &plan, &survey));
        }
        record.attempts[0].outcome = Outcome::OutOfMemory;
        assert!(answers(&record, &plan, &survey), "that memory ran out is an answer");
    }
}
