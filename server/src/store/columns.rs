//! The columns of a measurement: named once, for writing and for reading.

use std::sync::LazyLock;

use plimsoll_core::measurement::{Facet, Metric};
use sqlx::{ColumnIndex, Database, Decode, Row, Type};

use super::entry::Figures;

/// Before the summary, in a statement that inserts.
const OF_A_NEW_ONE: [&str; 5] = ["id", "received", "change", "status", "reasons"];

/// Before the summary, in one that makes it anew.
const OF_A_RENEWED_ONE: [&str; 3] = ["change", "status", "reasons"];

pub(super) static INSERT: LazyLock<String> = LazyLock::new(|| {
    let columns: Vec<String> = OF_A_NEW_ONE.map(str::to_owned).into_iter().chain(summary()).collect();
    let places: Vec<String> = (1..=columns.len()).map(|at| format!("${at}")).collect();
    format!("INSERT INTO measurement ({}) VALUES ({}) RETURNING seq", columns.join(", "), places.join(", "))
});

pub(super) static RENEW: LazyLock<String> = LazyLock::new(|| {
    let columns = OF_A_RENEWED_ONE.map(str::to_owned).into_iter().chain(summary());
    let set: Vec<String> = (1..).zip(columns).map(|(at, column)| format!("{column} = ${at}")).collect();
    format!("UPDATE measurement SET {} WHERE seq = ${}", set.join(", "), set.len() + 1)
});

pub(super) static NEWER: LazyLock<String> = LazyLock::new(|| {
    let columns: Vec<String> = facets().chain(sizes()).collect();
    format!(
        "SELECT seq, change, id, status, {} FROM measurement WHERE change > $1 ORDER BY change LIMIT $2",
        columns.join(", ")
    )
});

pub(super) static NEAR: LazyLock<String> = LazyLock::new(|| {
    let sizes: Vec<String> = sizes().collect();
    format!(
        "SELECT seq, status, reasons, {} FROM measurement WHERE neighbourhood = $1 ORDER BY seq DESC LIMIT $2",
        sizes.join(", ")
    )
});

/// What is made of a record, in the order that [`bound`] binds it.
fn summary() -> impl Iterator<Item = String> {
    let texts = |names: &'static [&'static str]| names.iter().map(|name| (*name).to_owned());
    texts(&["neighbourhood"]).chain(facets()).chain(sizes()).chain(texts(&["point", "engine"]))
}

/// Quoted: `precision` is a word of SQL.
fn facets() -> impl Iterator<Item = String> {
    Facet::ALL.iter().map(|facet| format!("\"{facet}\""))
}

fn sizes() -> impl Iterator<Item = String> {
    ["measured", "estimated"].into_iter().flat_map(|what| Metric::ALL.map(|metric| size(what, metric)))
}

fn size(what: &str, metric: Metric) -> String {
    format!("{what}_{}", metric.as_str())
}

/// A statement with the summary of an entry bound to it.
macro_rules! bound {
    ($query:expr, $entry:expr) => {{
        let mut query = $query.bind($entry.neighbourhood.as_deref());
        for facet in &$entry.facets {
            query = query.bind(facet);
        }
        for size in $entry.figures.measured.into_iter().chain($entry.figures.estimated) {
            query = query.bind(size.map(|n| i64::try_from(n).unwrap_or(i64::MAX)));
        }
        query.bind(&$entry.point).bind($crate::store::engine::engine())
    }};
}
pub(super) use bound;

/// The sizes of a row of [`NEWER`] or [`NEAR`].
pub(super) fn figures<'r, R>(row: &'r R) -> Result<Figures, sqlx::Error>
where
    R: Row,
    for<'a> &'a str: ColumnIndex<R>,
    Option<i64>: Decode<'r, R::Database> + Type<R::Database>,
    R::Database: Database,
{
    let sizes = |what: &str| {
        let mut found = [None; 3];
        for (place, metric) in found.iter_mut().zip(Metric::ALL) {
            let bytes: Option<i64> = row.try_get(size(what, metric).as_str())?;
            *place = bytes.and_then(|bytes| u64::try_from(bytes).ok());
        }
        Ok::<_, sqlx::Error>(found)
    };
    Ok(Figures { measured: sizes("measured")?, estimated: sizes("estimated")? })
}
