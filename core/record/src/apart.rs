//! How far a measurement is from a scenario: what one run says about another.

use plimsoll_scenario::{Levers, Scenario, lever};
use serde_json::Value;

use super::point::{minor, names};
use super::{DeviceKind, MeasurementPoint, Standing};

/// What another model of the same architecture counts.
const MODEL: f64 = 4.0;

/// What another task counts: another head and another loss.
const TASK: f64 = 2.0;

impl MeasurementPoint {
    /// How far it is from a scenario; less is nearer, and 0 is the very run. `None` where it says nothing about it: another
    /// architecture, another mode, a run that did not finish, a processor.
    pub fn distance(&self, scenario: &Scenario) -> Option<f64> {
        let (family, model) = names(scenario);
        let counts = self.device_kind != DeviceKind::Cpu && self.finished && self.standing == Standing::Accepted;
        if !counts || self.family != family || self.mode != scenario.training.mode.as_str() {
            return None;
        }
        let unlike = |differs: bool, weight: f64| if differs { weight } else { 0.0 };
        let other = unlike(self.model != model, MODEL) + unlike(self.task != scenario.model.task.as_str(), TASK);
        Some(other + self.levers().distance(&Levers::of(scenario)))
    }

    /// Every lever that is not at its default. Of a line from before they were kept, those it names.
    pub fn levers(&self) -> Levers {
        let mut levers = self.levers.clone().unwrap_or_default();
        let mut put = |path: &str, value: Option<Value>| {
            if let (Some(lever), Some(value)) = (lever(path), value) {
                levers.put(lever, value);
            }
        };
        // A card that is in no catalog is none that a scenario can name.
        put("device.gpu", Some(self.gpu.as_deref().into()));
        if self.levers.is_none() {
            put("software.torch", Some(minor(&self.torch).into()));
            put("input.batch", Some(self.batch.into()));
            put("input.seq", self.seq.map(Value::from));
            put("training.accumulation", Some(self.accumulation.into()));
            put("training.lora.rank", self.lora.map(Value::from));
            put("training.prepare_kbit", self.prepare_kbit.map(Value::from));
            put("training.quantization", self.quantization.as_deref().map(Value::from));
            for (path, word) in [
                ("training.mode", &self.mode),
                ("training.precision", &self.precision),
                ("training.optimizer", &self.optimizer),
                ("training.optimizer_impl", &self.optimizer_impl),
                ("training.checkpointing", &self.checkpointing),
                ("training.attention", &self.attention),
            ] {
                put(path, Some(word.as_str().into()));
            }
        }
        levers
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_scenario::{Change, LossImpl, Mode, levers};
    use serde_json::json;

    use super::*;
    use crate::{EXAMPLE, Measurement};

    fn example() -> (Measurement, Scenario) {
        let record = Measurement::from_json(EXAMPLE).unwrap();
        let mut scenario = record.as_run().unwrap();
        scenario.device.gpu = "rtx-4090".to_owned();
        (record, scenario)
    }

    /// The line of a run of this scenario, on its card.
    fn line(record: &Measurement, scenario: &Scenario) -> MeasurementPoint {
        MeasurementPoint { gpu: Some(scenario.device.gpu.clone()), ..record.line(scenario, None) }
    }

    #[test]
    fn the_same_run_is_no_way_off_and_any_lever_sets_runs_apart() {
        let (record, example) = example();
        let qlora = Change::Qlora.apply(&example).unwrap();
        let generation = Change::Mode(Mode::Inference).apply(&example).unwrap();
        for start in [&example, &qlora, &generation] {
            let point = line(&record, start);
            assert_eq!(point.distance(start), Some(0.0));
            for lever in levers() {
                for value in lever.offers(start) {
                    let next = Change::Set(lever, value).apply(start).unwrap();
                    let same = lever.get(start) == lever.get(&next) || !lever.row.near.counts();
                    let distance = point.distance(&next);
                    // In another mode nothing is compared; where the line is drawn is no part of what ran.
                    assert_eq!(distance.is_some_and(|d| d <= 0.0), same && distance.is_some(), "{}", lever.path);
                    let back = line(&record, &next).distance(start);
                    assert!(
                        back.zip(distance).is_none_or(|(a, b)| (a - b).abs() < 1e-9),
                        "{} the other way",
                        lever.path
                    );
                }
            }
        }
    }

    /// Two runs whose peaks are a gigabyte apart were once taken for the same.
    #[test]
    fn a_loss_that_keeps_no_logits_is_another_run() {
        let (record, all) = example();
        let fused = Change::Loss(LossImpl::FusedLinear).apply(&all).unwrap();
        assert_eq!(line(&record, &all).distance(&fused), Some(2.0));
    }

    /// Lines that a server kept, or an export holds, from before the levers stood in them.
    #[test]
    fn a_line_without_levers_tells_what_it_names() {
        let (record, scenario) = example();
        let mut old = serde_json::to_value(line(&record, &scenario)).unwrap();
        assert!(old.as_object_mut().unwrap().remove("levers").is_some());
        let old: MeasurementPoint = serde_json::from_value(old).unwrap();
        assert_eq!(old.levers, None);
        let read = serde_json::to_value(&old).unwrap();
        assert_eq!(read.get("levers"), None, "it is written as it came");
        assert_eq!(old.distance(&scenario), Some(0.0));
        let lora = Change::Qlora.apply(&scenario).unwrap();
        assert!(old.distance(&lora) > Some(10.0));
        let twice =
            Change::Set(lever("input.batch").unwrap(), json!(2 * scenario.input.batch)).apply(&scenario).unwrap();
        assert_eq!(old.distance(&twice), Some(1.0));
    }
}
