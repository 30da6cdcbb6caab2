//! The rungs of a ladder: one lever more on each, the effective batch the same on all.

use plimsoll_core::Scenario;
use plimsoll_core::estimate::Run;
use plimsoll_core::measurement::{DeviceKind, MeasuredDevice};
use plimsoll_core::scenario::{ADAPTERS, Change, Checkpointing, OptimizerImpl, Precision};

/// One rung.
#[derive(Clone, Debug)]
pub struct Rung {
    /// The lever.
    pub name: &'static str,
    /// What is run, or why this rung is left out.
    pub scenario: Result<Scenario, String>,
}

/// The lowest rung: fp32, nothing else.
pub fn lowest(asked: &Scenario) -> Scenario {
    let changes = [
        Change::Full,
        Change::Precision(Precision::Fp32),
        Change::Checkpointing(Checkpointing::None),
        Change::Implementation(first(asked)),
    ];
    changes.iter().fold(asked.clone(), |here, change| change.apply(&here).unwrap_or(here))
}

/// The implementation that an optimizer has when nothing is said.
fn first(asked: &Scenario) -> OptimizerImpl {
    asked.training.optimizer.implementations().first().copied().unwrap_or(OptimizerImpl::ForLoop)
}

/// The mixed precision the device is made for: bf16 where the hardware has it.
pub fn mixed(device: &MeasuredDevice) -> Precision {
    let major = device.capability.as_deref().and_then(|text| text.split('.').next()?.parse::<u32>().ok());
    match (device.kind, major) {
        // bf16 came with Ampere; before it PyTorch emulates it, slowly.
        (DeviceKind::Cuda, Some(0..=7)) => Precision::Fp16Amp,
        _ => Precision::Bf16Amp,
    }
}

/// Every rung above the lowest, in order, each on top of those before it.
pub fn above(asked: &Scenario, precision: Precision) -> Vec<Rung> {
    let mut here = lowest(asked);
    let mut rungs = Vec::new();
    let mut climb = |name, change: Result<Change, &str>| {
        let scenario = change.map_err(str::to_owned).and_then(|change| possible(&change, &here));
        if let Ok(next) = &scenario {
            here = next.clone();
        }
        rungs.push(Rung { name, scenario });
    };
    climb("+ mixed precision", Ok(Change::Precision(precision)));
    let parts = parts(asked.input.batch).ok_or("the micro-batch is one sample already");
    climb("+ accumulation", parts.map(Change::Parts));
    climb("+ checkpointing", Ok(Change::Checkpointing(Checkpointing::Full)));
    climb("+ fused optimizer", Ok(Change::Implementation(OptimizerImpl::Fused)));
    // Our own families would train with them too; but nobody adapts what was never trained before, and peft may not be there.
    let adapted = !asked.family().is_own();
    let adapters = Change::Adapters(asked.training.lora.clone().unwrap_or(ADAPTERS));
    climb("+ LoRA", adapted.then_some(adapters).ok_or("adapters are for Hugging Face models"));
    rungs
}

/// In how many parts a micro-batch is cut: four, two, or the next number that divides it.
fn parts(batch: u64) -> Option<u64> {
    [4, 2].into_iter().chain(3..=batch).find(|parts| batch >= *parts && batch.is_multiple_of(*parts))
}

/// The scenario after a change, if it makes sense, also to the engine where that estimates it.
fn possible(change: &Change, here: &Scenario) -> Result<Scenario, String> {
    let next = change.apply(here).map_err(|error| error.problem)?;
    if next.estimated().is_ok() {
        Run::new(&next).map_err(|error| error.problem)?;
    }
    Ok(next)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::records::sample;

    fn scenario(value: Value) -> Scenario {
        Scenario::from_value_to_measure(&value).unwrap()
    }

    #[test]
    fn the_effective_batch_is_the_same_on_every_rung() {
        for batch in [1, 2, 3, 5, 8, 12, 97] {
            let asked = scenario(json!({
                "model": { "catalog": "gpt2" }, "input": { "batch": batch, "seq": 32 },
                "training": { "accumulation": 3, "precision": "bf16", "checkpointing": "full", "optimizer_impl": "fused" },
            }));
            let rungs = above(&asked, Precision::Bf16Amp);
            for rung in rungs.iter().filter_map(|rung| rung.scenario.as_ref().ok()) {
                assert_eq!(rung.input.batch * rung.training.accumulation, 3 * batch);
            }
            assert_eq!(rungs[1].scenario.is_err(), batch == 1);
        }
        assert_eq!([2, 3, 4, 6, 8, 9, 25].map(parts), [2, 3, 4, 2, 4, 3, 5].map(Some));
    }

    #[test]
    fn each_rung_stands_on_the_one_before() {
        let asked = scenario(json!({ "model": { "catalog": "gpt2" }, "input": { "batch": 8, "seq": 32 } }));
        assert_eq!(lowest(&asked).training.precision, Precision::Fp32);
        let rungs = above(&asked, Precision::Fp16Amp);
        let names: Vec<_> = rungs.iter().map(|rung| rung.name).collect();
        assert_eq!(names, ["+ mixed precision", "+ accumulation", "+ checkpointing", "+ fused optimizer", "+ LoRA"]);
        let top = rungs[4].scenario.as_ref().unwrap();
        assert_eq!((top.input.batch, top.training.accumulation), (2, 4));
        assert_eq!(top.training.precision, Precision::Fp16Amp);
        assert_eq!(top.training.checkpointing, Checkpointing::Full);
        assert_eq!(top.training.optimizer_impl, OptimizerImpl::Fused);
        assert_eq!(top.training.lora.as_ref().map(|lora| lora.rank), Some(16));
    }

    #[test]
    fn what_a_model_lacks_is_left_out_with_a_reason() {
        let asked = scenario(json!({
            "model": { "family": "nbeats" }, "input": { "batch": 64 }, "training": { "optimizer": "adafactor" },
        }));
        let rungs = above(&asked, Precision::Bf16Amp);
        let reasons: Vec<_> = rungs.iter().filter_map(|rung| rung.scenario.as_ref().err()).collect();
        assert_eq!(reasons.len(), 3, "{reasons:?}");
        assert!(reasons[0].contains("no gradient checkpointing"));
        assert!(reasons[1].contains("no fused implementation"));
    }

    #[test]
    fn bf16_where_the_card_has_it() {
        let mut device = sample::record().device;
        for (capability, precision) in [
            (Some("12.0"), Precision::Bf16Amp),
            (Some("8.0"), Precision::Bf16Amp),
            (Some("7.5"), Precision::Fp16Amp),
            (None, Precision::Bf16Amp),
        ] {
            device.capability = capability.map(str::to_owned);
            assert_eq!(mixed(&device), precision, "{capability:?}");
        }
        device.kind = DeviceKind::Cpu;
        device.capability = Some("7.5".to_owned());
        assert_eq!(mixed(&device), Precision::Bf16Amp);
    }
}
