//! The one unit of the project.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Sub, SubAssign};

use serde::{Deserialize, Serialize};

/// A number of bytes. Always 64 bits wide (a `usize` is 32 bits in the browser) and never a float.
///
/// People read it in GiB (2^30 bytes): see `to_string` and [`Bytes::gib`].
///
/// ```
/// use plimsoll_ground::Bytes;
/// assert_eq!(Bytes::from_gib(11).to_string(), "11.00 GiB");
/// assert_eq!(Bytes::new(8_519_680).to_string(), "8.1 MiB");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct Bytes(u64);

impl Bytes {
    /// No bytes at all.
    pub const ZERO: Self = Self(0);

    /// `n` bytes.
    pub const fn new(n: u64) -> Self {
        Self(n)
    }

    /// `n` KiB (2^10 bytes).
    pub const fn from_kib(n: u64) -> Self {
        Self(n << 10)
    }

    /// `n` MiB (2^20 bytes).
    pub const fn from_mib(n: u64) -> Self {
        Self(n << 20)
    }

    /// `n` GiB (2^30 bytes).
    pub const fn from_gib(n: u64) -> Self {
        Self(n << 30)
    }

    /// The plain number of bytes.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Whether there are none.
    pub const fn is_zero(&self) -> bool {
        self.0 == 0
    }

    /// For people and for drawing only; never feeds back into a byte count.
    pub fn gib(self) -> f64 {
        self.0 as f64 / f64::from(1u32 << 30)
    }

    /// Rounded up to the next multiple of `unit`, which must not be zero.
    pub const fn round_up_to(self, unit: Self) -> Self {
        // Dividing first would cost a multiplication where the unit is known to be a power of two.
        Self(self.0.saturating_add(unit.0 - 1) / unit.0 * unit.0)
    }

    /// The difference, or zero when `other` is larger.
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// The sum, or `None` past 2^64 - 1.
    pub const fn checked_add(self, other: Self) -> Option<Self> {
        match self.0.checked_add(other.0) {
            Some(n) => Some(Self(n)),
            None => None,
        }
    }
}

impl fmt::Display for Bytes {
    /// `11.00 GiB`, `8.1 MiB`, `16.0 KiB`, `512 B`: the largest unit that leaves at least one whole.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let n = self.0 as f64;
        let text = match self.0 {
            0..1024 => format!("{} B", self.0),
            1024..1_048_576 => format!("{:.1} KiB", n / 1024.0),
            1_048_576..1_073_741_824 => format!("{:.1} MiB", n / 1_048_576.0),
            _ => format!("{:.2} GiB", self.gib()),
        };
        f.pad(&text)
    }
}

impl Add for Bytes {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}

impl AddAssign for Bytes {
    fn add_assign(&mut self, other: Self) {
        self.0 += other.0;
    }
}

impl Sub for Bytes {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0 - other.0)
    }
}

impl SubAssign for Bytes {
    fn sub_assign(&mut self, other: Self) {
        self.0 -= other.0;
    }
}

impl Sum for Bytes {
    fn sum<I: Iterator<Item = Self>>(iter: I) -> Self {
        iter.fold(Self::ZERO, Add::add)
    }
}

#[cfg(test)]
mod tests {
    use super::Bytes;

    #[test]
    fn rounding_up_keeps_multiples() {
        let unit = Bytes::new(512);
        assert_eq!(Bytes::new(1).round_up_to(unit), Bytes::new(512));
        assert_eq!(Bytes::new(512).round_up_to(unit), Bytes::new(512));
        assert_eq!(Bytes::ZERO.round_up_to(unit), Bytes::ZERO);
    }

    #[test]
    fn people_read_the_largest_whole_unit() {
        assert_eq!(Bytes::new(511).to_string(), "511 B");
        assert_eq!(Bytes::new(1536).to_string(), "1.5 KiB");
        assert_eq!(Bytes::from_mib(20).to_string(), "20.0 MiB");
        assert_eq!(Bytes::from_gib(12).to_string(), "12.00 GiB");
    }
}
