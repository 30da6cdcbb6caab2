//! Sizes as expressions over named axes: what a storage takes at any batch and any side.

use serde::{Deserialize, Serialize};

/// One expression of a file's table. It refers to earlier ones only, so that a table is computed in one pass and has no
/// circles.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Expr {
    /// A sum of terms. Its value is a whole number or there is none.
    Sum(Vec<Term>),
    /// An earlier expression divided and rounded down: what strided convolutions and pooling make of a side.
    Floor(u32, u64),
    /// An earlier expression rounded up to a multiple: what kernels do to a sequence.
    Up(u32, u64),
    /// A fraction (numerator, denominator) of the product of earlier ones.
    Product(u64, u64, Vec<u32>),
}

/// A fraction of a product of axes' powers.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Term {
    /// Numerator.
    pub n: i64,
    /// Denominator, at least 1.
    pub d: i64,
    /// Powers of axes, by the axis's number. Those that are left out are 0.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub p: Vec<(u32, u32)>,
}

/// The highest power of an axis.
pub const HIGHEST_POWER: u32 = 8;

impl Expr {
    /// Its value where the axes have these values and the earlier expressions those; `None` where it is no whole number that
    /// can be held, or negative.
    pub fn value(&self, axes: &[u64], earlier: &[Option<u64>]) -> Option<u64> {
        let of = |index: u32| earlier.get(index as usize).copied().flatten();
        match self {
            Self::Sum(terms) => {
                // Over the common denominator, so that halves may add up to a whole.
                let denominator = terms.iter().try_fold(1i128, |all, term| lcm(all, i128::from(term.d)))?;
                let mut sum = 0i128;
                for term in terms {
                    let mut value = i128::from(term.n).checked_mul(denominator / i128::from(term.d))?;
                    for (axis, power) in &term.p {
                        let size = i128::from(*axes.get(*axis as usize)?);
                        for _ in 0..*power {
                            value = value.checked_mul(size)?;
                        }
                    }
                    sum = sum.checked_add(value)?;
                }
                if sum % denominator == 0 { u64::try_from(sum / denominator).ok() } else { None }
            }
            Self::Floor(index, by) => of(*index)?.checked_div(*by),
            Self::Up(index, to) => of(*index)?.checked_next_multiple_of(*to),
            Self::Product(n, d, factors) => {
                let mut value = u128::from(*n);
                for factor in factors {
                    value = value.checked_mul(u128::from(of(*factor)?))?;
                }
                let d = u128::from(*d);
                if d != 0 && value % d == 0 { u64::try_from(value / d).ok() } else { None }
            }
        }
    }

    /// How many multiplications it takes, about.
    pub(super) fn cost(&self) -> usize {
        match self {
            Self::Sum(terms) => {
                let powers = |term: &Term| term.p.iter().map(|(_, power)| *power as usize).sum::<usize>();
                terms.iter().map(|term| 2 + powers(term)).sum::<usize>() + 1
            }
            Self::Floor(..) | Self::Up(..) => 1,
            Self::Product(_, _, factors) => 1 + factors.len(),
        }
    }

    /// Whether a file may say it as number `index` over so many axes.
    pub(super) fn is_sound(&self, index: usize, axes: usize) -> bool {
        let earlier = |other: &u32| (*other as usize) < index;
        match self {
            Self::Sum(terms) => {
                terms.len() <= 16
                    && terms.iter().all(|term| {
                        term.d >= 1
                            && term.d <= 1 << 32
                            && term.p.len() <= axes
                            && term.p.iter().all(|(axis, power)| (*axis as usize) < axes && *power <= HIGHEST_POWER)
                    })
            }
            Self::Floor(other, by) => earlier(other) && *by > 0,
            Self::Up(other, to) => earlier(other) && *to > 0,
            Self::Product(_, d, factors) => *d > 0 && factors.len() <= 16 && factors.iter().all(earlier),
        }
    }
}

/// The values of a table of expressions.
pub fn values(table: &[Expr], axes: &[u64]) -> Vec<Option<u64>> {
    let mut values = Vec::with_capacity(table.len());
    for expr in table {
        let value = expr.value(axes, &values);
        values.push(value);
    }
    values
}

fn lcm(a: i128, b: i128) -> Option<i128> {
    let (mut x, mut y) = (a, b);
    while y != 0 {
        (x, y) = (y, x % y);
    }
    (a / x).checked_mul(b)
}

#[cfg(test)]
mod tests {
    use super::{Expr, Term, values};

    #[test]
    fn a_table_is_computed_in_one_pass() {
        let table = [
            // (S + 31) / 32 of a chain of strided convolutions, squared, for B images of 2048 channels in float32.
            Expr::Sum(vec![Term { n: 1, d: 1, p: vec![(1, 1)] }, Term { n: 31, d: 1, p: vec![] }]),
            Expr::Floor(0, 32),
            Expr::Sum(vec![Term { n: 1, d: 1, p: vec![(0, 1)] }]),
            Expr::Product(8192, 1, vec![1, 1, 2]),
            Expr::Up(2, 32),
            Expr::Sum(vec![Term { n: 1, d: 2, p: vec![(0, 1)] }, Term { n: 1, d: 2, p: vec![] }]),
        ];
        let at = |batch, side| values(&table, &[batch, side]);
        assert_eq!(at(4, 513)[3], Some(8192 * 17 * 17 * 4));
        assert_eq!(at(4, 513)[4], Some(32));
        assert_eq!(at(3, 1)[5], Some(2));
        assert_eq!(at(4, 1)[5], None, "no whole number");
        assert_eq!(at(u64::MAX, u64::MAX)[3], None, "too large to hold");
        assert!(table.iter().enumerate().all(|(index, expr)| expr.is_sound(index, 2)));
        assert!(!Expr::Floor(3, 2).is_sound(3, 2) && !Expr::Floor(0, 0).is_sound(1, 2));
    }
}
