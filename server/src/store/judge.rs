//! Which records contradict what else is known, and why.
//!
//! A record is never dropped for that: it is kept, shown with the reason, and left out of the aggregates. What is said
//! of a record depends on the records beside it, not on the order in which they came.

use plimsoll_core::Bytes;
use plimsoll_core::measurement::Metric;

use super::entry::Figures;

/// Fewest others that a record can contradict.
const OTHERS: usize = 3;

/// A record contradicts its neighbours when it is further from their median than this many times their median absolute
/// deviation.
const DEVIATIONS: u64 = 3;

/// And further than this share of their median, in percent: the same run gives the same bytes again and again, so that
/// the deviation is often nothing at all.
const NOISE: u64 = 5;

/// A measurement further than this from the estimate, in percent of the measurement, is doubted.
const ESTIMATE: u64 = 40;

/// And further than this: of a run of some megabytes, constant costs are any share.
const SMALL: Bytes = Bytes::from_mib(256);

/// Why `own` is quarantined: what it contradicts, each in a sentence; nothing when it is not.
pub(super) fn reasons(own: &Figures, others: &[Figures]) -> Vec<String> {
    let mut reasons = Vec::new();
    for metric in Metric::ALL {
        let index = metric as usize;
        let of = |figures: &Figures| figures.measured.get(index).copied().flatten();
        let Some(measured) = of(own) else { continue };
        let mut beside: Vec<u64> = others.iter().filter_map(of).collect();
        if beside.len() >= OTHERS {
            let middle = median(&mut beside);
            let mut deviations: Vec<u64> = beside.iter().map(|value| value.abs_diff(middle)).collect();
            let allowed = median(&mut deviations).saturating_mul(DEVIATIONS).max(percent(middle, NOISE));
            if measured.abs_diff(middle) > allowed {
                reasons.push(format!(
                    "{}: {} is {:.1} % from {}, the median of {} other measurements of the same scenario, card and \
                     software",
                    metric.as_str(),
                    Bytes::new(measured),
                    share(measured.abs_diff(middle), middle),
                    Bytes::new(middle),
                    beside.len(),
                ));
            }
        }
        let Some(estimated) = own.estimated.get(index).copied().flatten() else { continue };
        let difference = measured.abs_diff(estimated);
        if difference > percent(measured, ESTIMATE) && difference > SMALL.get() {
            reasons.push(format!(
                "{}: {} is {:.1} % from the estimate, {}",
                metric.as_str(),
                Bytes::new(measured),
                share(difference, measured),
                Bytes::new(estimated),
            ));
        }
    }
    reasons
}

/// The middle one, or the lower of the two.
fn median(values: &mut [u64]) -> u64 {
    values.sort_unstable();
    values.get(values.len().saturating_sub(1) / 2).copied().unwrap_or(0)
}

fn percent(of: u64, percent: u64) -> u64 {
    of / 100 * percent
}

fn share(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64 * 100.0
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn measured(allocated: u64) -> Figures {
        Figures { measured: [Some(allocated), None, None], estimated: [None; 3] }
    }

    #[test]
    fn three_others_are_needed_to_contradict_them() {
        let others = [measured(10 * GIB), measured(10 * GIB), measured(10 * GIB)];
        assert_eq!(reasons(&measured(12 * GIB), &others[..2]), [""; 0]);
        let said = reasons(&measured(12 * GIB), &others);
        assert_eq!(
            said,
            [
                "allocated: 12.00 GiB is 20.0 % from 10.00 GiB, the median of 3 other measurements of the same scenario, \
              card and software"
            ]
        );
    }

    #[test]
    fn what_scatters_may_scatter() {
        let tight = [10 * GIB; 5].map(measured);
        assert!(reasons(&measured(10 * GIB + GIB / 3), &tight).is_empty(), "within the noise");
        let wide = [8, 9, 10, 11, 12].map(|gib| measured(gib * GIB));
        assert!(reasons(&measured(13 * GIB), &wide).is_empty(), "three deviations of one gibibyte");
        assert_eq!(reasons(&measured(14 * GIB), &wide).len(), 1);
    }

    #[test]
    fn other_figures_are_not_neighbours() {
        let others = [Figures { measured: [None, Some(GIB), Some(GIB)], estimated: [None; 3] }; 4];
        assert!(reasons(&measured(10 * GIB), &others).is_empty());
    }

    #[test]
    fn far_from_the_estimate_is_doubted_unless_both_are_small() {
        let of = |measured, estimated| {
            reasons(&Figures { measured: [Some(measured), None, None], estimated: [Some(estimated), None, None] }, &[])
        };
        assert_eq!(of(10 * GIB, 5 * GIB), ["allocated: 10.00 GiB is 50.0 % from the estimate, 5.00 GiB"]);
        assert!(of(10 * GIB, 7 * GIB).is_empty());
        assert!(of(GIB / 100, GIB / 10).is_empty());
        assert_eq!(of(u64::MAX, 0).len(), 1);
    }
}
