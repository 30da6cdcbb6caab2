//! How the errors spread: bars of equal width around zero.

/// Errors beyond this share of the truth stand in the outermost bars.
const FURTHEST: f64 = 0.5;

/// Bars on each side of zero.
const SIDE: usize = 10;

/// A bar.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bin {
    /// From this error on.
    pub from: f64,
    /// Up to this one.
    pub to: f64,
    /// How many.
    pub count: usize,
}

/// Bins around zero, narrow enough for the errors at hand: an error of exactly zero stands in a bar of its own middle.
pub fn bins(errors: &[f64]) -> Vec<Bin> {
    let widest = errors.iter().map(|e| e.abs()).fold(0.0, f64::max).min(FURTHEST);
    let step = step(widest);
    let half = step / 2.0;
    let mut bins: Vec<Bin> = (-(SIDE as i32)..=SIDE as i32)
        .map(|i| {
            let middle = f64::from(i) * step;
            Bin { from: middle - half, to: middle + half, count: 0 }
        })
        .collect();
    for error in errors {
        let place = (error / step).round().clamp(-(SIDE as f64), SIDE as f64) + SIDE as f64;
        // Between 0 and 2 x SIDE.
        if let Some(bin) = bins.get_mut(place as usize) {
            bin.count += 1;
        }
    }
    bins
}

/// The smallest round step with which `SIDE` of them reach `widest`.
fn step(widest: f64) -> f64 {
    const STEPS: [f64; 9] = [0.0005, 0.001, 0.002, 0.0025, 0.005, 0.01, 0.02, 0.025, 0.05];
    let reaches = |step: &&f64| **step * SIDE as f64 >= widest - 1e-12;
    STEPS.iter().find(reaches).copied().unwrap_or(0.05)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_is_in_a_bar() {
        for errors in [vec![], vec![0.0], vec![0.004, -0.0049, 0.0], vec![-3.0, 9.0, 0.2], vec![0.5, -0.5]] {
            let bins = bins(&errors);
            assert_eq!(bins.iter().map(|b| b.count).sum::<usize>(), errors.len(), "{errors:?}");
            assert_eq!(bins.len(), 2 * SIDE + 1);
            let middle = bins[SIDE];
            assert!(middle.from < 0.0 && middle.to > 0.0);
            for error in errors.iter().filter(|e| e.abs() < FURTHEST) {
                assert!(bins.iter().any(|b| b.count > 0 && *error >= b.from - 1e-9 && *error <= b.to + 1e-9));
            }
        }
    }

    #[test]
    fn small_errors_take_narrow_bars() {
        assert!((step(0.003) - 0.0005).abs() < 1e-12);
        assert!((step(0.3) - 0.05).abs() < 1e-12);
        assert!((step(0.0) - 0.0005).abs() < 1e-12);
    }
}
