//! What lists and aggregates need of every record, in memory: a hundred bytes each.
//!
//! Any mix of filters is then a scan of a few hundred microseconds over a hundred thousand records, on both databases
//! alike, and no SQL is ever put together from a query. What a list shows of each record is read from the database.

use std::collections::{BTreeMap, HashMap};

use super::entry::{Figures, Status};
use super::facet::{FACETS, Facet, Metric};

/// What is asked for: a value for each facet that is filtered by, and which statuses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// In the order of [`Facet::ALL`].
    pub facets: [Option<String>; FACETS],
    /// One status, or all.
    pub status: Option<Status>,
}

impl Filter {
    /// Only what was accepted.
    pub fn accepted() -> Self {
        Self { status: Some(Status::Accepted), ..Self::default() }
    }

    /// Sets one facet.
    pub fn with(mut self, facet: Facet, value: impl Into<String>) -> Self {
        if let Some(slot) = self.facets.get_mut(facet as usize) {
            *slot = Some(value.into());
        }
        self
    }
}

/// One record.
#[derive(Clone, Debug)]
struct Row {
    seq: i64,
    id: [u8; 32],
    accepted: bool,
    /// Numbers of [`Index::values`].
    facets: [u32; FACETS],
    /// Signed error of the estimate, NaN where there is none.
    errors: [f64; 3],
}

/// A row as the database has it.
#[derive(Clone, Debug)]
pub(super) struct Loaded {
    pub seq: i64,
    pub change: i64,
    pub id: String,
    pub status: Status,
    pub facets: [String; FACETS],
    pub figures: Figures,
}

/// Every record, in the order of arrival.
#[derive(Debug, Default)]
pub(super) struct Index {
    rows: Vec<Row>,
    /// The facets' values, numbered as they come.
    values: Vec<String>,
    numbers: HashMap<String, u32>,
    /// The last change that is in it.
    change: i64,
}

/// A stretch of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Stretch {
    /// Newest first.
    pub seqs: Vec<i64>,
    /// Whether there are older ones.
    pub more: bool,
    /// How many match, on all pages.
    pub total: usize,
}

/// How far estimates were off in one group of records, for one figure.
#[derive(Clone, Debug, PartialEq)]
pub struct Spread {
    /// Records that have both the measurement and the estimate.
    pub n: usize,
    /// Median of the signed errors, as a share: 0.01 is one percent too much.
    pub median_error: f64,
    /// Median of their sizes.
    pub median_absolute_error: f64,
    /// The error of the largest size, signed.
    pub worst_error: f64,
    /// The record it is from.
    pub worst_id: String,
}

/// One group of records.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// What they have in common.
    pub key: String,
    /// How many.
    pub n: usize,
    /// In the order of [`Metric::ALL`]; `None` where no record has both figures.
    pub spreads: [Option<Spread>; 3],
}

impl Index {
    /// The last change that is in it.
    pub(super) fn change(&self) -> i64 {
        self.change
    }

    /// Takes in rows in the order of their changes.
    pub(super) fn apply(&mut self, loaded: impl IntoIterator<Item = Loaded>) {
        for row in loaded {
            self.change = self.change.max(row.change);
            let facets = row.facets.map(|value| self.number(value));
            let errors = Metric::ALL.map(|metric| row.figures.error(metric).unwrap_or(f64::NAN));
            let id = bytes(&row.id);
            let new = Row { seq: row.seq, id, accepted: row.status == Status::Accepted, facets, errors };
            match self.rows.binary_search_by_key(&new.seq, |row| row.seq) {
                Ok(at) => {
                    if let Some(old) = self.rows.get_mut(at) {
                        *old = new;
                    }
                }
                Err(at) => self.rows.insert(at, new),
            }
        }
    }

    fn number(&mut self, value: String) -> u32 {
        if let Some(number) = self.numbers.get(&value) {
            return *number;
        }
        // Every record has eleven at most: memory ends long before the numbers do.
        let number = u32::try_from(self.values.len()).unwrap_or(u32::MAX);
        self.values.push(value.clone());
        self.numbers.insert(value, number);
        number
    }

    /// The rows that match, newest first.
    fn matching<'a>(&'a self, filter: &'a Filter) -> impl Iterator<Item = &'a Row> {
        // A value that no record has, matches none.
        let wanted = filter.facets.iter().enumerate().filter_map(|(at, value)| {
            let value = value.as_ref()?;
            Some((at, self.numbers.get(value).copied()))
        });
        let wanted: Vec<(usize, Option<u32>)> = wanted.collect();
        self.rows.iter().rev().filter(move |row| {
            let status = filter.status.is_none_or(|status| (status == Status::Accepted) == row.accepted);
            status && wanted.iter().all(|(at, number)| number.is_some() && row.facets.get(*at).copied() == *number)
        })
    }

    /// At most `limit` of the rows that match and are older than `before`.
    pub(super) fn stretch(&self, filter: &Filter, before: Option<i64>, limit: usize) -> Stretch {
        let mut stretch = Stretch::default();
        for row in self.matching(filter) {
            stretch.total += 1;
            if before.is_none_or(|before| row.seq < before) {
                if stretch.seqs.len() < limit {
                    stretch.seqs.push(row.seq);
                } else {
                    stretch.more = true;
                }
            }
        }
        stretch
    }

    /// How far the estimates of the rows that match were off, by one facet; the largest group first.
    pub(super) fn compare(&self, by: Facet, filter: &Filter) -> Vec<Group> {
        let mut groups: BTreeMap<u32, Vec<&Row>> = BTreeMap::new();
        for row in self.matching(filter) {
            if let Some(value) = row.facets.get(by as usize) {
                groups.entry(*value).or_default().push(row);
            }
        }
        let groups = groups.into_iter().map(|(value, rows)| Group {
            key: self.values.get(value as usize).cloned().unwrap_or_default(),
            n: rows.len(),
            spreads: Metric::ALL.map(|metric| spread(&rows, metric)),
        });
        let mut groups: Vec<Group> = groups.collect();
        groups.sort_by(|a, b| b.n.cmp(&a.n).then_with(|| a.key.cmp(&b.key)));
        groups
    }
}

fn spread(rows: &[&Row], metric: Metric) -> Option<Spread> {
    let of = |row: &Row| row.errors.get(metric as usize).copied().filter(|error| !error.is_nan());
    let mut errors: Vec<f64> = rows.iter().filter_map(|row| of(row)).collect();
    // Of equals the oldest, whatever came later.
    let worst = rows.iter().filter(|row| of(row).is_some()).max_by(|a, b| {
        let size = |row: &Row| of(row).unwrap_or(0.0).abs();
        size(a).total_cmp(&size(b)).then_with(|| b.seq.cmp(&a.seq))
    })?;
    let median_error = median(&mut errors);
    errors.iter_mut().for_each(|error| *error = error.abs());
    Some(Spread {
        n: errors.len(),
        median_error,
        median_absolute_error: median(&mut errors),
        worst_error: of(worst)?,
        worst_id: worst.id.iter().map(|byte| format!("{byte:02x}")).collect(),
    })
}

/// The middle, or the mean of the two in the middle. Not of nothing.
fn median(values: &mut [f64]) -> f64 {
    let half = values.len() / 2;
    if half >= values.len() {
        return f64::NAN;
    }
    let even = values.len().is_multiple_of(2);
    let (below, middle, _) = values.select_nth_unstable_by(half, f64::total_cmp);
    match below.iter().copied().max_by(f64::total_cmp) {
        Some(lower) if even => f64::midpoint(lower, *middle),
        _ => *middle,
    }
}

/// 64 hexadecimal digits as bytes.
fn bytes(hex: &str) -> [u8; 32] {
    let mut bytes = [0; 32];
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = hex.get(2 * at..2 * at + 2).and_then(|pair| u8::from_str_radix(pair, 16).ok()).unwrap_or(0);
    }
    bytes
}
