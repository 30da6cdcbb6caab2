//! Which measurements say most about a scenario: the same run first, then what is near it.

use plimsoll_core::Scenario;

use super::Entry;

/// The nearest measurements, nearest first; none that is further than a different model and a different recipe.
pub fn nearest<'e>(entries: &'e [Entry], scenario: &Scenario, most: usize) -> Vec<(&'e Entry, f64)> {
    const FURTHEST: f64 = 12.0;
    let mut near: Vec<(&Entry, f64)> = entries
        .iter()
        .filter_map(|entry| Some((entry, entry.point.distance(scenario)?)))
        .filter(|(_, distance)| *distance <= FURTHEST)
        .collect();
    near.sort_by(|a, b| a.1.total_cmp(&b.1).then_with(|| b.0.point.taken.cmp(&a.0.point.taken)));
    near.truncate(most);
    near
}

#[cfg(test)]
mod tests {
    use plimsoll_core::measurement::{EXAMPLE, MeasurementPoint, Standing};
    use plimsoll_core::scenario::{Change, Levers};
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
        let twice = Change::Sizes { batch: 2 * scenario().input.batch, seq: None }.apply(&scenario()).unwrap();
        let mut twice = MeasurementPoint { levers: Some(Levers::of(&twice)), ..point("twice", 8, 8) };
        twice.gpu.clone_from(&same.gpu);
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
