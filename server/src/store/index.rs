//! What lists and aggregates need of every record, in memory: a hundred bytes each.
//!
//! Any mix of filters is then a scan of a few hundred microseconds over a hundred thousand records, on both databases
//! alike, and no SQL is ever put together from a query. What a list shows of each record is read from the database.

use std::collections::{BTreeMap, HashMap};

use plimsoll_core::measurement::{Facet, Group, Metric, Spread, Standing};

use super::entry::Figures;

/// How many facets there are.
const FACETS: usize = Facet::ALL.len();

/// What is asked for: a value for each facet that is filtered by, and which standing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// In the order of [`Facet::ALL`].
    pub facets: [Option<String>; FACETS],
    /// One standing, or all.
    pub standing: Option<Standing>,
}

impl Filter {
    /// Only what was accepted.
    pub fn accepted() -> Self {
        Self { standing: Some(Standing::Accepted), ..Self::default() }
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
    /// Signed errors of the estimate, where there is one.
    errors: [Option<f64>; 3],
}

/// A row as the database has it.
#[derive(Clone, Debug)]
pub(super) struct Loaded {
    pub seq: i64,
    pub change: i64,
    pub id: String,
    pub standing: Standing,
    /// In the order of [`Facet::ALL`].
    pub facets: Vec<String>,
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

impl Index {
    /// The last change that is in it.
    pub(super) fn change(&self) -> i64 {
        self.change
    }

    /// Takes in rows in the order of their changes.
    pub(super) fn apply(&mut self, loaded: impl IntoIterator<Item = Loaded>) {
        for row in loaded {
            self.change = self.change.max(row.change);
            let mut facets = [0; FACETS];
            for (number, value) in facets.iter_mut().zip(row.facets) {
                *number = self.number(value);
            }
            let errors = Metric::ALL.map(|metric| row.figures.error(metric));
            let id = bytes(&row.id);
            let new = Row { seq: row.seq, id, accepted: row.standing == Standing::Accepted, facets, errors };
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
        let wanted: Vec<(usize, Vec<u32>)> = Facet::ALL
            .iter()
            .filter_map(|facet| {
                let facet = *facet;
                let wanted = filter.facets.get(facet as usize)?.as_ref()?;
                let meant = (0..).zip(&self.values).filter(|(_, value)| facet.means(wanted, value));
                Some((facet as usize, meant.map(|(number, _)| number).collect()))
            })
            .collect();
        self.rows.iter().rev().filter(move |row| {
            let stands = filter.standing.is_none_or(|standing| (standing == Standing::Accepted) == row.accepted);
            stands && wanted.iter().all(|(at, meant)| row.facets.get(*at).is_some_and(|number| meant.contains(number)))
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

    /// How far the estimates of the rows that match were off, by one facet, in the order of its values; as
    /// [`plimsoll_core::measurement::groups`] has it of the points themselves.
    pub(super) fn compare(&self, by: Facet, filter: &Filter) -> Vec<Group> {
        let mut groups: BTreeMap<&str, Vec<&Row>> = BTreeMap::new();
        for row in self.matching(filter) {
            let value = row.facets.get(by as usize).and_then(|number| self.values.get(*number as usize));
            groups.entry(value.map_or("", String::as_str)).or_default().push(row);
        }
        let group = |(key, rows): (&str, Vec<&Row>)| Group {
            key: key.to_owned(),
            n: rows.len() as u64,
            allocated: spread(&rows, Metric::Allocated),
            reserved: spread(&rows, Metric::Reserved),
            process: spread(&rows, Metric::Process),
        };
        groups.into_iter().map(group).collect()
    }
}

fn spread(rows: &[&Row], metric: Metric) -> Option<Spread> {
    let errors = rows.iter().filter_map(|row| Some((row.errors.get(metric as usize).copied().flatten()?, row)));
    Spread::of(errors, |row| row.id.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// 64 hexadecimal digits as bytes.
fn bytes(hex: &str) -> [u8; 32] {
    let mut bytes = [0; 32];
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = hex.get(2 * at..2 * at + 2).and_then(|pair| u8::from_str_radix(pair, 16).ok()).unwrap_or(0);
    }
    bytes
}
