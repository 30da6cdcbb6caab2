//! How far estimates are off, over groups of records.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Facet, MeasurementPoint, Metric, Standing};

/// How far estimates are off within one group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Group {
    /// The value they share.
    pub key: String,
    /// Records of the group, compared or not.
    pub n: u64,
    /// Of `max_memory_allocated`; absent when no record could be compared.
    pub allocated: Option<Spread>,
    /// Of `max_memory_reserved`.
    pub reserved: Option<Spread>,
    /// Of the process's memory.
    pub process: Option<Spread>,
}

/// Errors of a group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// Records compared.
    pub n: u64,
    /// Median of the absolute relative errors.
    pub median: f64,
    /// The signed error that is furthest from zero.
    pub worst: f64,
    /// Whose it is.
    pub worst_id: String,
}

impl Spread {
    /// Of signed errors and whose they are, whose id `id` tells; `None` without any. Of two equally far the first stays.
    pub fn of<W>(errors: impl Iterator<Item = (f64, W)>, id: impl Fn(W) -> String) -> Option<Self> {
        let mut sizes = Vec::new();
        let mut worst: Option<(f64, W)> = None;
        for (error, whose) in errors {
            sizes.push(error.abs());
            if worst.as_ref().is_none_or(|(most, _)| error.abs() > most.abs()) {
                worst = Some((error, whose));
            }
        }
        let (worst, whose) = worst?;
        let n = sizes.len() as u64;
        Some(Self { n, median: median(&mut sizes)?, worst, worst_id: id(whose) })
    }
}

/// The middle, or the mean of the two in the middle; `None` without any.
fn median(values: &mut [f64]) -> Option<f64> {
    if values.is_empty() {
        return None;
    }
    let even = values.len().is_multiple_of(2);
    let (below, middle, _) = values.select_nth_unstable_by(values.len() / 2, f64::total_cmp);
    match below.iter().copied().max_by(f64::total_cmp) {
        Some(lower) if even => Some(f64::midpoint(lower, *middle)),
        _ => Some(*middle),
    }
}

/// The accepted points, grouped; in the order of their keys.
pub fn groups(points: &[MeasurementPoint], by: Facet) -> Vec<Group> {
    let mut sorted: BTreeMap<String, Vec<&MeasurementPoint>> = BTreeMap::new();
    for point in points.iter().filter(|p| p.standing == Standing::Accepted) {
        sorted.entry(by.of(point)).or_default().push(point);
    }
    let spread = |members: &[&MeasurementPoint], metric| {
        Spread::of(members.iter().filter_map(|p| Some((p.error(metric)?, &p.id))), String::clone)
    };
    let group = |(key, members): (String, Vec<&MeasurementPoint>)| Group {
        key,
        n: members.len() as u64,
        allocated: spread(&members, Metric::Allocated),
        reserved: spread(&members, Metric::Reserved),
        process: spread(&members, Metric::Process),
    };
    sorted.into_iter().map(group).collect()
}

#[cfg(test)]
mod tests {
    use plimsoll_ground::Bytes;

    use super::*;
    use crate::{EXAMPLE, Measurement, Peaks};

    fn example() -> Measurement {
        Measurement::from_json(EXAMPLE).unwrap()
    }

    #[test]
    fn groups_count_what_is_accepted_and_compare_what_can_be() {
        let peaks = |bytes: u64| Peaks { allocated: Some(Bytes::new(bytes)), ..Peaks::default() };
        let point = |id: &str, measured, estimated| MeasurementPoint {
            id: id.to_owned(),
            measured: peaks(measured),
            estimated: Some(peaks(estimated)),
            ..example().point().unwrap()
        };
        let out = MeasurementPoint { standing: Standing::Quarantined, ..point("q", 100, 900) };
        let alone = MeasurementPoint { estimated: None, ..point("e", 100, 0) };
        let points =
            [point("a", 100, 101), point("b", 100, 96), point("c", 100, 102), point("d", 100, 100), out, alone];
        let found = groups(&points, Facet::Family);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].key.as_str(), found[0].n), ("gpt2", 5));
        let spread = found[0].allocated.clone().unwrap();
        assert_eq!((spread.n, spread.worst, spread.worst_id.as_str()), (4, -0.04, "b"));
        assert!((spread.median - 0.015).abs() < 1e-12);
        assert_eq!(found[0].reserved, None);
        assert_eq!(Spread::of(std::iter::empty(), |(): ()| String::new()), None);
    }
}
