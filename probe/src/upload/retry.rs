//! How long to wait before the next try.

use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

/// Wait before the second try; doubled with each further one.
const FIRST: Duration = Duration::from_millis(500);
/// No wait of our own is longer.
const LONGEST: Duration = Duration::from_secs(30);
/// A server that wants more patience is left for another day.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// The wait after the `failed`th failed try (from 1): exponential, and spread by `chance` in 0..=1 from half to one and a
/// half of that, so that many clients do not come back at the same moment.
pub fn backoff(failed: u32, chance: f64) -> Duration {
    let doubled = FIRST.saturating_mul(1u32.checked_shl(failed.saturating_sub(1)).unwrap_or(u32::MAX));
    doubled.min(LONGEST).mul_f64(0.5 + chance.clamp(0.0, 1.0))
}

/// A random number in 0..=1; the hasher's keys are random, which is random enough to spread clients.
pub fn chance() -> f64 {
    f64::from((RandomState::new().hash_one(0u8) >> 32) as u32) / f64::from(u32::MAX)
}

/// `Retry-After` in seconds; a date is not read, and our own wait is taken.
pub fn retry_after(header: &str) -> Option<Duration> {
    header.trim().parse().ok().map(Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_a_bound() {
        let millis = |failed| backoff(failed, 0.5).as_millis();
        assert_eq!(
            [1, 2, 3, 4, 7, 8, 40, u32::MAX].map(millis),
            [500, 1000, 2000, 4000, 30_000, 30_000, 30_000, 30_000]
        );
        assert_eq!(backoff(1, 0.0), Duration::from_millis(250));
        assert_eq!(backoff(1, 1.0), Duration::from_millis(750));
    }

    #[test]
    fn chance_is_a_share_and_varies() {
        let drawn: Vec<f64> = (0..20).map(|_| chance()).collect();
        assert!(drawn.iter().all(|c| (0.0..=1.0).contains(c)));
        assert!(drawn.iter().any(|c| *c != drawn[0]));
    }

    #[test]
    fn a_servers_wish_in_seconds() {
        assert_eq!(retry_after(" 7 "), Some(Duration::from_secs(7)));
        assert_eq!(retry_after("Fri, 20 Nov 2026 21:00:00 GMT"), None);
        assert_eq!(retry_after("-1"), None);
    }
}
