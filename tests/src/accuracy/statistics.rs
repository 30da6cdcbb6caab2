//! Median, 95th percentile and worst of a list of relative errors.

/// How a list of errors is spread; shares, not percent.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spread {
    /// How many errors.
    pub count: usize,
    /// How many of them are zero.
    pub exact: usize,
    /// The middle one (the mean of the two middle ones).
    pub median: f64,
    /// The smallest that 95 % do not exceed (nearest rank).
    pub p95: f64,
    /// The largest.
    pub worst: f64,
}

impl Spread {
    /// Of the absolute values of `errors`; all zero when there are none.
    pub fn of(errors: impl IntoIterator<Item = f64>) -> Self {
        let mut sorted: Vec<f64> = errors.into_iter().map(f64::abs).collect();
        sorted.sort_by(f64::total_cmp);
        let at = |index: usize| sorted.get(index).copied().unwrap_or(0.0);
        let count = sorted.len();
        Self {
            count,
            exact: sorted.iter().filter(|&&e| e == 0.0).count(),
            median: (at(count.saturating_sub(1) / 2) + at(count / 2)) / 2.0,
            p95: at((count * 95).div_ceil(100).saturating_sub(1)),
            worst: at(count.saturating_sub(1)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Spread;

    #[test]
    fn a_spread_reads_the_sorted_list() {
        let s = Spread::of([0.04, 0.0, -0.02, 0.01]);
        assert_eq!((s.count, s.exact, s.worst), (4, 1, 0.04));
        assert!((s.median - 0.015).abs() < 1e-12);
        let hundred = Spread::of((1..=100).map(f64::from));
        assert_eq!((hundred.median, hundred.p95, hundred.worst), (50.5, 95.0, 100.0));
        assert_eq!(Spread::of([0.3]), Spread { count: 1, exact: 0, median: 0.3, p95: 0.3, worst: 0.3 });
        assert_eq!(Spread::of([]), Spread::default());
    }
}
