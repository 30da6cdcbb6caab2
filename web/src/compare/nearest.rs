//! Which measurements say most about a scenario: the same run first, then what is near it.

use plimsoll_core::Scenario;
use plimsoll_core::measurement::{DeviceKind, MeasurementPoint, Standing};
use plimsoll_core::scenario::{ModelSource, Quantization};

use super::Entry;

/// How far a measurement is from a scenario; less is nearer. `None` where it says nothing about it: another
/// architecture, another mode, a run that did not finish, a processor.
pub fn distance(point: &MeasurementPoint, scenario: &Scenario) -> Option<f64> {
    let (family, model) = names(scenario);
    if point.device_kind == DeviceKind::Cpu || !point.finished || point.standing == Standing::Quarantined {
        return None;
    }
    let training = &scenario.training;
    if point.family != family || point.mode != training.mode.as_str() {
        return None;
    }
    let unlike = |differs: bool, weight: f64| if differs { weight } else { 0.0 };
    let octaves = |a: u64, b: u64| (a.max(1) as f64 / b.max(1) as f64).log2().abs();
    let quantization = Some(training.quantization.as_str()).filter(|_| training.quantization != Quantization::None);
    let recipe = unlike(point.precision != training.precision.as_str(), 3.0)
        + unlike(point.optimizer != training.optimizer.as_str(), 2.0)
        + unlike(point.optimizer_impl != training.optimizer_impl.as_str(), 1.0)
        + unlike(point.checkpointing != training.checkpointing.as_str(), 3.0)
        + unlike(point.attention != training.attention.as_str(), 2.0)
        + unlike(point.lora.is_some() != training.lora.is_some(), 6.0)
        + unlike(point.quantization.as_deref() != quantization, 4.0)
        + unlike(point.prepare_kbit.unwrap_or(true) != training.prepare_kbit, 3.0);
    let load = octaves(point.batch, scenario.input.batch)
        + octaves(point.seq.unwrap_or(1), scenario.input.seq.unwrap_or(1))
        + 0.25 * octaves(point.accumulation, training.accumulation);
    let card = unlike(point.gpu.as_deref() != Some(scenario.device.gpu.as_str()), 2.5);
    Some(unlike(point.model != model, 4.0) + recipe + load + card)
}

/// The nearest measurements, nearest first; none that is further than a different model and a different recipe.
pub fn nearest<'e>(entries: &'e [Entry], scenario: &Scenario, most: usize) -> Vec<(&'e Entry, f64)> {
    const FURTHEST: f64 = 12.0;
    let mut near: Vec<(&Entry, f64)> = entries
        .iter()
        .filter_map(|entry| Some((entry, distance(&entry.point, scenario)?)))
        .filter(|(_, distance)| *distance <= FURTHEST)
        .collect();
    near.sort_by(|a, b| a.1.total_cmp(&b.1).then_with(|| b.0.point.taken.cmp(&a.0.point.taken)));
    near.truncate(most);
    near
}

/// Architecture and model, as a [`MeasurementPoint`] names them.
fn names(scenario: &Scenario) -> (String, String) {
    let source = &scenario.model.source;
    let family = match source {
        ModelSource::Family { name, .. } => name.clone(),
        other => other.model_type().unwrap_or_default(),
    };
    let model = match source {
        ModelSource::Catalog(id) => id.clone(),
        _ => family.clone(),
    };
    (family, model)
}

#[cfg(test)]
mod tests {
    use plimsoll_core::measurement::EXAMPLE;
    use plimsoll_core::{Measurement, Scenario};

    use super::super::tests::point;
    use super::super::{Entry, Origin};
    use super::*;

    fn scenario() -> Scenario {
        Measurement::from_json(EXAMPLE).unwrap().as_run().unwrap()
    }

    #[test]
    fn the_same_run_is_nearest_and_another_architecture_is_no_neighbour() {
        let mut same = point("same", 8, 8);
        same.gpu = Some(scenario().device.gpu);
        assert_eq!(distance(&same, &scenario()), Some(0.0));
        let mut twice = point("twice", 8, 8);
        twice.batch *= 2;
        // A quantized base, and one that peft did not prepare, are runs of their own.
        let mut quantized = scenario();
        quantized.training.quantization = Quantization::Nf4;
        let as_measured = distance(&same, &quantized);
        quantized.training.prepare_kbit = false;
        assert!(as_measured > Some(0.0) && distance(&same, &quantized) > as_measured);
        (same.quantization, same.prepare_kbit) = (Some("nf4".to_owned()), Some(false));
        assert_eq!(distance(&same, &quantized), Some(0.0));
        (same.quantization, same.prepare_kbit) = (None, None);
        let mut other = point("other", 8, 8);
        other.family = "llama".to_owned();
        let mut out = point("out", 8, 80);
        out.standing = Standing::Quarantined;
        let entries: Vec<Entry> =
            [twice, other, same, out].map(|point| Entry { point, origin: Origin::Shipped }).into();
        let near: Vec<&str> = nearest(&entries, &scenario(), 5).iter().map(|(e, _)| e.point.id.as_str()).collect();
        assert_eq!(near, ["same", "twice"]);
        assert_eq!(nearest(&entries, &scenario(), 1).len(), 1);
    }
}
