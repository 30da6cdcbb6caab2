//! From a size at several points to an expression over the axes.
//!
//! Simple things first: a constant, a product of axes, sums of those, roundings. An expression is taken only where at least
//! one point more agrees with it than it has unknowns.

use rustc_hash::FxHashMap;

use super::expr::{Expr, Term};

/// What strided convolutions, pooling and kernels divide by.
const DIVISORS: [u64; 23] = [2, 4, 8, 16, 32, 64, 128, 256, 5, 10, 20, 40, 80, 160, 320, 640, 3, 6, 7, 12, 14, 28, 56];
/// Of how many tokens a scan keeps one state (`n_chunks` in selective_scan.cpp of mamba_ssm). Divisors this large have an axis rounded up
/// and no other offset: two values that lie apart by chance would take one.
const CHUNKS: [u64; 1] = [2048];
/// What kernels round a length up to.
const MULTIPLES: [u64; 7] = [32, 8, 16, 64, 128, 256, 512];
/// Coefficients with larger denominators are accidents.
const MOST_DENOMINATOR: i128 = 4096;
/// The most terms of a sum.
const MOST_TERMS: usize = 3;

/// Powers of axes, and their product at every point.
type Monomial = (Vec<(u32, u32)>, Vec<i128>);

/// Expressions that were found, each once.
#[derive(Debug)]
pub struct Solver {
    /// The values of the axes, a row a point.
    points: Vec<Vec<u64>>,
    table: Vec<Expr>,
    numbers: FxHashMap<Expr, u32>,
    found: FxHashMap<Vec<u64>, Option<u32>>,
    /// Lengths that occur as a dimension, by their values: what others are products or roundings of.
    known: Vec<(Vec<u64>, u32)>,
    monomials: Vec<Monomial>,
    /// Roundings whose offset these points do not pin down.
    pub loose: usize,
}

impl Solver {
    /// For sizes at these points, adding to a table.
    pub fn new(points: Vec<Vec<u64>>, table: Vec<Expr>) -> Self {
        let numbers = table.iter().enumerate().map(|(number, expr)| (expr.clone(), number as u32)).collect();
        let monomials = monomials(&points);
        let (found, known) = (FxHashMap::default(), Vec::new());
        Self { points, table, numbers, found, known, monomials, loose: 0 }
    }

    /// The table with what was added.
    pub fn into_table(self) -> Vec<Expr> {
        self.table
    }

    /// The number of an expression.
    pub fn number(&mut self, expr: Expr) -> u32 {
        if let Some(number) = self.numbers.get(&expr) {
            return *number;
        }
        let number = self.table.len() as u32;
        self.table.push(expr.clone());
        self.numbers.insert(expr, number);
        number
    }

    /// The expression of a dimension.
    pub fn dimension(&mut self, values: &[u64]) -> Option<u32> {
        self.cached(values, |solver| {
            let found = solver.sum(values, 2).or_else(|| solver.rounded_down(values));
            let found = found.or_else(|| solver.rounded_up(values)).or_else(|| solver.product(values));
            let found = found.or_else(|| solver.sum(values, MOST_TERMS));
            let varies = values.windows(2).any(|pair| pair[0] != pair[1]);
            if let Some(number) = found.filter(|_| varies) {
                solver.known.push((values.to_vec(), number));
            }
            found
        })
    }

    /// The expression of bytes: of these dimensions, where they have expressions.
    pub fn bytes(&mut self, values: &[u64], dimensions: &[Vec<u64>]) -> Option<u32> {
        let simple = self.sum(values, 1);
        if simple.is_some() {
            return simple;
        }
        let factors: Option<Vec<u32>> = dimensions.iter().map(|d| self.dimension(d)).collect();
        if let Some(factors) = factors {
            let numbers = |at: usize| dimensions.iter().map(|d| u128::from(d[at])).product::<u128>();
            let made = (0..values.len()).map(numbers).collect::<Vec<_>>();
            if let Some((n, d)) = ratio(values, &made) {
                return Some(self.number(Expr::Product(n, d, factors)));
            }
        }
        self.dimension(values)
    }

    fn cached(&mut self, values: &[u64], find: impl FnOnce(&mut Self) -> Option<u32>) -> Option<u32> {
        if let Some(found) = self.found.get(values) {
            return *found;
        }
        let found = find(self);
        self.found.insert(values.to_vec(), found);
        found
    }

    /// A sum of at most so many terms.
    fn sum(&mut self, values: &[u64], most: usize) -> Option<u32> {
        let count = self.monomials.len();
        let mut choice: Vec<usize> = Vec::new();
        for terms in 1..=most {
            if terms + 1 > values.len() && count > 1 {
                return None;
            }
            choice.clear();
            choice.extend(0..terms.min(count));
            if choice.len() < terms {
                return None;
            }
            loop {
                if let Some(found) = self.combination(&choice, values) {
                    return Some(self.number(found));
                }
                // The next combination in order.
                let Some(at) = (0..terms).rev().find(|&i| choice[i] < count - terms + i) else { break };
                choice[at] += 1;
                for i in at + 1..terms {
                    choice[i] = choice[i - 1] + 1;
                }
            }
        }
        None
    }

    fn combination(&self, choice: &[usize], values: &[u64]) -> Option<Expr> {
        let columns: Vec<&[i128]> = choice.iter().map(|&i| self.monomials[i].1.as_slice()).collect();
        let solved = solve(&columns, values)?;
        if solved.iter().any(|(n, _)| *n == 0) {
            // A smaller sum says it; of nothing but zeros, the constant.
            return (choice == [0]).then(|| Expr::Sum(Vec::new()));
        }
        let term = |(&i, (n, d)): (&usize, &(i128, i128))| {
            Some(Term { n: i64::try_from(*n).ok()?, d: i64::try_from(*d).ok()?, p: self.monomials[i].0.clone() })
        };
        choice.iter().zip(&solved).map(term).collect::<Option<Vec<Term>>>().map(Expr::Sum)
    }

    /// An axis and an offset, divided and rounded down; times the batch or not.
    fn rounded_down(&mut self, values: &[u64]) -> Option<u32> {
        let axes = self.points.first().map_or(0, Vec::len);
        for (axis, by) in (1..axes).flat_map(|axis| CHUNKS.map(|by| (axis, by))) {
            if self.points.iter().zip(values).all(|(point, y)| point[axis].div_ceil(by) == *y) {
                let whole = Term { n: 1, d: 1, p: vec![(axis as u32, 1)] };
                let rest = Term { n: by as i64 - 1, d: 1, p: Vec::new() };
                let inner = self.number(Expr::Sum(vec![whole, rest]));
                return Some(self.number(Expr::Floor(inner, by)));
            }
        }
        for axis in 1..axes {
            for by_batch in [false, true] {
                let batch = |point: &[u64]| if by_batch { point[0] } else { 1 };
                if self.points.iter().zip(values).any(|(point, y)| y % batch(point) != 0) {
                    continue;
                }
                for by in DIVISORS {
                    let (mut low, mut high) = (i64::MIN, i64::MAX);
                    for (point, y) in self.points.iter().zip(values) {
                        let exact =
                            ((y / batch(point)) as i64).saturating_mul(by as i64).saturating_sub(point[axis] as i64);
                        low = low.max(exact);
                        high = high.min(exact.saturating_add(by as i64 - 1));
                    }
                    if low > high {
                        continue;
                    }
                    self.loose += usize::from(low != high);
                    let wished = [0, by as i64 - 1, -(by as i64)];
                    let offset = wished.into_iter().find(|c| (low..=high).contains(c)).unwrap_or(low);
                    let mut terms = vec![Term { n: 1, d: 1, p: vec![(axis as u32, 1)] }];
                    if offset != 0 {
                        terms.push(Term { n: offset, d: 1, p: Vec::new() });
                    }
                    let inner = self.number(Expr::Sum(terms));
                    let floor = self.number(Expr::Floor(inner, by));
                    if !by_batch {
                        return Some(floor);
                    }
                    let batch = self.number(Expr::Sum(vec![Term { n: 1, d: 1, p: vec![(0, 1)] }]));
                    return Some(self.number(Expr::Product(1, 1, vec![batch, floor])));
                }
            }
        }
        None
    }

    /// A known length, rounded up.
    fn rounded_up(&mut self, values: &[u64]) -> Option<u32> {
        for to in MULTIPLES {
            if values.iter().any(|y| y % to != 0) {
                continue;
            }
            let rounds =
                |known: &[u64]| known.iter().zip(values).all(|(x, y)| x.checked_next_multiple_of(to) == Some(*y));
            let found = self.known.iter().find(|(known, _)| rounds(known)).map(|(_, number)| *number);
            let found = found.or_else(|| {
                let axes = self.points.first().map_or(0, Vec::len);
                let axis = (0..axes).find(|&a| rounds(&self.points.iter().map(|p| p[a]).collect::<Vec<_>>()))?;
                Some(self.number(Expr::Sum(vec![Term { n: 1, d: 1, p: vec![(axis as u32, 1)] }])))
            });
            if let Some(number) = found {
                return Some(self.number(Expr::Up(number, to)));
            }
        }
        None
    }

    /// A fraction of a product of the batch and one or two known lengths.
    fn product(&mut self, values: &[u64]) -> Option<u32> {
        let batch: Vec<u64> = self.points.iter().map(|point| point[0]).collect();
        let known = self.known.clone();
        for power in 0..=2u32 {
            let scaled = |at: usize| u128::from(batch[at]).pow(power);
            for (i, (first, a)) in known.iter().enumerate() {
                let one: Vec<u128> = (0..values.len()).map(|at| scaled(at) * u128::from(first[at])).collect();
                let mut found = ratio(values, &one).map(|fraction| (fraction, vec![*a]));
                if found.is_none() {
                    found = known[i..].iter().find_map(|(second, b)| {
                        let two: Vec<u128> = one.iter().zip(second).map(|(x, y)| x * u128::from(*y)).collect();
                        ratio(values, &two).map(|fraction| (fraction, vec![*a, *b]))
                    });
                }
                if let Some(((n, d), mut factors)) = found {
                    let number = self.number(Expr::Sum(vec![Term { n: 1, d: 1, p: vec![(0, 1)] }]));
                    factors.extend((0..power).map(|_| number));
                    return Some(self.number(Expr::Product(n, d, factors)));
                }
            }
        }
        None
    }
}

/// Products of powers of the axes with their values, simple ones first.
fn monomials(points: &[Vec<u64>]) -> Vec<Monomial> {
    let axes = points.first().map_or(0, Vec::len);
    // Axes that never vary say nothing.
    let varies = |axis: usize| points.windows(2).any(|pair| pair[0][axis] != pair[1][axis]);
    let mut all: Vec<Vec<(u32, u32)>> = vec![Vec::new()];
    for axis in (0..axes).filter(|&axis| varies(axis)) {
        let most = if axis == 0 { 2 } else { 4 };
        let before = all.clone();
        for power in 1..=most {
            all.extend(before.iter().map(|p| {
                let mut longer = p.clone();
                longer.push((axis as u32, power));
                longer
            }));
        }
    }
    let degree = |powers: &Vec<(u32, u32)>| powers.iter().map(|(_, power)| *power).sum::<u32>();
    all.retain(|powers| degree(powers) <= 5);
    all.sort_by_key(|powers| (degree(powers), powers.clone()));
    all.into_iter()
        .map(|powers| {
            let value = |point: &Vec<u64>| {
                powers.iter().fold(1i128, |all, (axis, power)| all * i128::from(point[*axis as usize]).pow(*power))
            };
            let values = points.iter().map(value).collect();
            (powers, values)
        })
        .collect()
}

/// The constant fraction between values and numbers, where there is one.
fn ratio(values: &[u64], of: &[u128]) -> Option<(u64, u64)> {
    let (first, base) = (u128::from(*values.first()?), *of.first()?);
    if base == 0 {
        return None;
    }
    let same = values
        .iter()
        .zip(of)
        .all(|(y, x)| matches!((u128::from(*y).checked_mul(base), x.checked_mul(first)), (Some(a), Some(b)) if a == b));
    let divisor = gcd(first as i128, base as i128) as u128;
    if !same || divisor == 0 {
        return None;
    }
    let fraction = (u64::try_from(first / divisor).ok()?, u64::try_from(base / divisor).ok()?);
    (i128::from(fraction.1) <= MOST_DENOMINATOR).then_some(fraction)
}

/// Coefficients of the columns that give the values at every point; `None` where there are none, or they are no sane
/// fractions.
fn solve(columns: &[&[i128]], values: &[u64]) -> Option<Vec<(i128, i128)>> {
    let unknowns = columns.len();
    let mut rows: Vec<Vec<i128>> =
        (0..values.len()).map(|at| columns.iter().map(|c| c[at]).chain([i128::from(values[at])]).collect()).collect();
    // Without fractions: rows are multiplied crosswise and kept small.
    for column in 0..unknowns {
        let pivot = (column..rows.len()).find(|&row| rows[row][column] != 0)?;
        rows.swap(column, pivot);
        for row in 0..rows.len() {
            if row == column || rows[row][column] == 0 {
                continue;
            }
            let (a, b) = (rows[column][column], rows[row][column]);
            let shared = gcd(a, b);
            let (a, b) = (a / shared, b / shared);
            let pivot = rows[column].clone();
            for (left, right) in rows[row].iter_mut().zip(pivot) {
                *left = left.checked_mul(a)?.checked_sub(right.checked_mul(b)?)?;
            }
            let shared = rows[row].iter().fold(0, |all, x| gcd(all, *x));
            if shared > 1 {
                rows[row].iter_mut().for_each(|x| *x /= shared);
            }
        }
    }
    if rows[unknowns.min(rows.len())..].iter().any(|row| row[unknowns] != 0) {
        return None;
    }
    (0..unknowns)
        .map(|at| {
            let (n, d) = (rows[at][unknowns], rows[at][at]);
            let shared = gcd(n, d).max(1) * d.signum();
            let (n, d) = (n / shared, d / shared);
            (d <= MOST_DENOMINATOR).then_some((n, d))
        })
        .collect()
}

fn gcd(a: i128, b: i128) -> i128 {
    let (mut x, mut y) = (a.unsigned_abs(), b.unsigned_abs());
    while y != 0 {
        (x, y) = (y, x % y);
    }
    x as i128
}

#[cfg(test)]
mod tests {
    use super::Solver;
    use crate::hull::values;

    fn found(of: impl Fn(u64, u64) -> u64) -> impl Fn(u64, u64) -> Option<u64> {
        let points: Vec<Vec<u64>> =
            [[2, 256], [3, 256], [2, 257], [5, 255], [3, 193], [4, 230], [2, 323]].iter().map(|p| p.to_vec()).collect();
        let sizes: Vec<u64> = points.iter().map(|p| of(p[0], p[1])).collect();
        let mut solver = Solver::new(points, Vec::new());
        let number = solver.dimension(&sizes);
        let table = solver.into_table();
        move |b, s| values(&table, &[b, s]).get(number? as usize).copied().flatten()
    }

    #[test]
    fn sums_and_roundings_are_found_and_hold_elsewhere() {
        let laws: [fn(u64, u64) -> u64; 8] = [
            |_, _| 0,
            |_, _| 77,
            |b, _| 12 * b,
            |b, s| 3 * b * s * s,
            |b, s| 5 + 7 * b * s,
            |b, s| b * (s - 1),
            |_, s| s.div_ceil(32),
            |b, s| b * ((s + 3) / 8),
        ];
        for (index, law) in laws.iter().enumerate() {
            let expr = found(law);
            for (b, s) in [(1, 300), (7, 513), (32, 224)] {
                assert_eq!(expr(b, s), Some(law(b, s)), "law {index} at {b}, {s}");
            }
        }
    }

    /// Points on both sides of 2048 alone would be explained by a smaller divisor and an offset as well.
    #[test]
    fn a_state_for_so_many_tokens_is_counted_at_any_length() {
        for lengths in [[2048, 2048, 2049, 2047, 1537, 1843, 2563], [1024, 1024, 1536, 512, 2560, 2048, 4096]] {
            let points: Vec<Vec<u64>> =
                [2, 3, 2, 5, 3, 4, 2].into_iter().zip(lengths).map(|(b, s)| vec![b, s]).collect();
            let chunks: Vec<u64> = points.iter().map(|point| point[1].div_ceil(2048)).collect();
            let mut solver = Solver::new(points, Vec::new());
            let number = solver.dimension(&chunks).unwrap();
            let table = solver.into_table();
            for length in [512, 2048, 2049, 4096, 8192, 100_000] {
                assert_eq!(values(&table, &[2, length])[number as usize], Some(length.div_ceil(2048)), "{length}");
            }
        }
    }

    #[test]
    fn what_has_no_expression_gets_none() {
        let expr = found(|b, s| (b * 7919 + s * 104_729) % 1009);
        assert_eq!(expr(2, 256), None);
    }
}
