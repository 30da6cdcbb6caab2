//! Numbers and words in columns: rounding that still sums, text cut to fit.

use plimsoll_core::Bytes;

/// One unit for a whole column, so that its rows can be compared and summed by eye.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unit {
    bytes: u64,
    name: &'static str,
}

impl Unit {
    /// The largest unit of which `largest` has at least one.
    pub const fn of(largest: Bytes) -> Self {
        match largest.get() {
            0..1_048_576 => Self { bytes: 1 << 10, name: "KiB" },
            1_048_576..1_073_741_824 => Self { bytes: 1 << 20, name: "MiB" },
            _ => Self { bytes: 1 << 30, name: "GiB" },
        }
    }

    /// `bytes` in hundredths of the unit, rounded to the nearest.
    pub fn hundredths(self, bytes: Bytes) -> u64 {
        let scaled = (u128::from(bytes.get()) * 100 + u128::from(self.bytes) / 2) / u128::from(self.bytes);
        u64::try_from(scaled).unwrap_or(u64::MAX)
    }

    /// `12.34 GiB`, from hundredths.
    pub fn show(self, hundredths: u64) -> String {
        format!("{}.{:02} {}", hundredths / 100, hundredths % 100, self.name)
    }

    /// `bytes` in this unit.
    pub fn text(self, bytes: Bytes) -> String {
        self.show(self.hundredths(bytes))
    }
}

/// Splits `whole` in proportion to `parts` so that the shares sum to it exactly: what is left after rounding down goes to
/// the largest remainders.
pub fn shares(parts: &[u64], whole: u64) -> Vec<u64> {
    let sum: u128 = parts.iter().map(|&p| u128::from(p)).sum();
    if sum == 0 {
        return vec![0; parts.len()];
    }
    let exact = |part: u64| u128::from(part) * u128::from(whole);
    let mut shares: Vec<u64> = parts.iter().map(|&p| u64::try_from(exact(p) / sum).unwrap_or(u64::MAX)).collect();
    let mut left = whole.saturating_sub(shares.iter().sum());
    let mut order: Vec<(usize, u128)> = parts.iter().map(|&p| exact(p) % sum).enumerate().collect();
    order.sort_by_key(|(_, remainder)| std::cmp::Reverse(*remainder));
    for (index, _) in order {
        if let Some(share) = shares.get_mut(index).filter(|_| left > 0) {
            *share += 1;
            left -= 1;
        }
    }
    shares
}

/// An op without the autograd node it ran in (`nll_loss_backward@NllLossBackward0`): the name says "backward" already.
pub fn plain_op(op: &str) -> &str {
    op.split_once('@').map_or(op, |(op, _)| op)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_sum_to_the_whole() {
        assert_eq!(shares(&[1, 1, 1], 100), [34, 33, 33]);
        assert_eq!(shares(&[0, 5, 0], 7), [0, 7, 0]);
        assert_eq!(shares(&[0, 0], 7), [0, 0]);
        let parts = [u64::MAX, 1, u64::MAX / 3];
        assert_eq!(shares(&parts, 1000).iter().sum::<u64>(), 1000);
    }

    #[test]
    fn one_unit_for_a_column() {
        let unit = Unit::of(Bytes::from_gib(3));
        assert_eq!(unit.text(Bytes::from_mib(512)), "0.50 GiB");
        assert_eq!(Unit::of(Bytes::from_mib(3)).text(Bytes::from_kib(512)), "0.50 MiB");
        assert_eq!(Unit::of(Bytes::ZERO).text(Bytes::ZERO), "0.00 KiB");
    }
}
