//! Which sizes a model is recorded at: off every lattice, so that a rounding does not look like a line, and beside one
//! another, so that its offset is pinned down.

use plimsoll_core::ledger::hull::Axis;

/// Points at which recordings are made.
#[derive(Debug)]
pub struct Points {
    /// Those that expressions are made from.
    pub trials: Vec<Vec<u64>>,
    /// Those that the tape must come out at.
    pub witnesses: Vec<Vec<u64>>,
    /// One more of them, beyond the trials of short axes, which the model may refuse.
    pub beyond: Option<Vec<u64>>,
    /// Where every axis but the batch is as long as in any of them, if there is another: a model that is shortened in the trials is
    /// recorded whole there too.
    pub largest: Option<Vec<u64>>,
    /// A single sample.
    pub alone: Vec<u64>,
    /// Single samples that their own expressions are made from, where these are others than of several.
    pub singles: Vec<Vec<u64>>,
}

/// Batches of the trials. A single sample is no trial: some operators do something else with it.
const BATCHES: [u64; 7] = [2, 3, 2, 5, 3, 4, 2];
/// The witness's batch.
const OTHER_BATCH: u64 = 6;

/// Values of an axis below this differ by less than what sizes are rounded up to: all trials of one may be rounded alike (to 64, what
/// attention keeps of 33 to 64 rows).
const SHORT: u64 = 148;

/// Where a short axis has a witness beyond its trials: behind every rounding up to 128.
fn far(axis: &Axis) -> Option<u64> {
    (axis.step == 1 && axis.usual < SHORT).then_some(axis.usual + 131)
}

/// Values of an axis at the trials, and the witness's.
fn values(axis: &Axis) -> ([u64; 7], u64) {
    let (usual, step) = (axis.usual, axis.step);
    if step == 1 {
        let less = usual.saturating_sub(1).max(1);
        let low = if usual < SHORT { usual / 2 + 1 } else { usual * 3 / 4 + 1 };
        return ([usual, usual, usual + 1, less, low, usual * 9 / 10, usual * 5 / 4 + 3], usual * 4 / 5 + 1);
    }
    let less = usual.saturating_sub(step).max(step);
    ([usual, usual, usual + step, less, usual + 3 * step, usual + 2 * step, usual + 6 * step], usual + 4 * step)
}

/// The least value at which an axis is recorded.
pub fn least(axis: &Axis) -> u64 {
    let (trials, witness) = values(axis);
    trials.into_iter().fold(witness, u64::min)
}

/// A point with another batch.
fn with_batch(point: &[u64], batch: u64) -> Vec<u64> {
    [batch].into_iter().chain(point.iter().skip(1).copied()).collect()
}

impl Points {
    /// For these axes, the batch first.
    pub fn of(axes: &[Axis]) -> Self {
        let others: Vec<([u64; 7], u64)> = axes.iter().skip(1).map(values).collect();
        // Several axes go apart: each takes the same values in another order.
        let at = |trial: usize, axis: usize| (trial + 2 * axis * trial.min(1) * usize::from(trial > 1)) % 7;
        let trials = match others.len() {
            0 => vec![vec![2], vec![3], vec![5]],
            _ => (0..7)
                .map(|trial| {
                    let rest = others.iter().enumerate().map(|(axis, (values, _))| values[at(trial, axis)]);
                    [BATCHES[trial]].into_iter().chain(rest).collect()
                })
                .collect(),
        };
        let mut singles: Vec<Vec<u64>> = trials.iter().map(|trial: &Vec<u64>| with_batch(trial, 1)).collect();
        singles.dedup();
        let witness = |batch: u64| [batch].into_iter().chain(others.iter().map(|(_, witness)| *witness)).collect();
        let beyond = axes.iter().skip(1).any(|axis| far(axis).is_some()).then(|| {
            let rest = axes.iter().skip(1).zip(&others).map(|(axis, (_, witness))| far(axis).unwrap_or(*witness));
            [OTHER_BATCH - 2].into_iter().chain(rest).collect()
        });
        let longest = others.iter().map(|(values, witness)| values.iter().copied().fold(*witness, u64::max));
        let largest = (!others.is_empty()).then(|| [BATCHES[0]].into_iter().chain(longest).collect());
        Self {
            trials,
            largest,
            witnesses: vec![witness(OTHER_BATCH)],
            beyond,
            alone: match others.len() {
                0 => vec![1],
                _ => witness(1),
            },
            singles,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_off_the_lattice_and_beside_one_another() {
        let axis = |name: &str, usual, step| Axis { name: name.to_owned(), usual, least: 1, step };
        let points = Points::of(&[axis("B", 2, 1), axis("S", 256, 1)]);
        let sides: Vec<u64> = points.trials.iter().map(|point| point[1]).collect();
        assert_eq!(sides, [256, 256, 257, 255, 193, 230, 323]);
        assert_eq!((&points.witnesses[0][..], &points.alone[..]), (&[6, 205][..], &[1, 205][..]));
        assert_eq!(points.largest, Some(vec![2, 323]));
        assert_eq!(least(&axis("S", 256, 1)), 193);
        let coarse = Points::of(&[axis("B", 2, 1), axis("S", 224, 32)]);
        assert!(coarse.trials.iter().all(|point| point[1] % 32 == 0));
        assert!(coarse.trials.iter().all(|point| *point != coarse.witnesses[0]));
        assert_eq!(Points::of(&[axis("B", 2, 1)]).trials, [[2], [3], [5]]);
        // All of 33 to 64 are rounded alike.
        let short = Points::of(&[axis("B", 2, 1), axis("S", 256, 1), axis("T", 48, 1)]);
        assert!(short.trials.iter().any(|point| point[2] > 32) && short.trials.iter().any(|point| point[2] < 32));
        assert_eq!((short.witnesses, short.beyond), (vec![vec![6, 205, 39]], Some(vec![4, 205, 179])));
        assert_eq!(Points::of(&[axis("B", 2, 1), axis("S", 256, 1)]).beyond, None);
    }
}
