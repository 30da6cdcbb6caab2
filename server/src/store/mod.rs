//! Where measurements are kept: SQLite or PostgreSQL, behind one [`Store`].

mod columns;
mod engine;
mod entry;
mod error;
mod health;
mod hulls;
mod index;
mod judge;
mod pools;
mod salvage;
mod target;
mod token;
mod tx;
mod verify;
mod writer;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};
use std::time::{Duration, Instant};

use plimsoll_core::Measurement;
use plimsoll_core::measurement::{Facet, Group};
use serde_json::Value;
use sqlx::Row as _;
use tokio::sync::Mutex;
use tokio::time::sleep;

pub use entry::{Entry, Figures};
pub use error::{OpenError, StoreError};
pub use index::Filter;
pub use salvage::{Salvaged, salvage};
pub use target::Target;
pub use token::{LABEL, Token};
pub use tx::Kept;

use columns::{NEWER, figures};
use engine::engine;
use index::{Index, Loaded};
use pools::{Pools, reading};
use writer::Writer;

/// For how long what another process wrote may go unseen.
const UNSEEN: Duration = Duration::from_secs(1);

/// Rows read at a time into the index.
const ROWS: i64 = 4096;

/// Records whose summaries are made anew in one go, and how long others have the processors in between: each is an estimate.
const RENEWED: i64 = 16;
const BETWEEN: Duration = Duration::from_millis(20);

const OUTDATED: &str = "SELECT measurement.seq, id, content FROM measurement JOIN record ON record.seq = measurement.seq \
    WHERE engine < $1 OR engine > $1 LIMIT $2";

/// SQLite takes the numbers as a JSON list: a list of its own it has not.
const POINTS_SQLITE: &str = "SELECT received, status, reasons, point FROM measurement \
    WHERE seq IN (SELECT value FROM json_each($1)) ORDER BY seq DESC";
const POINTS_POSTGRES: &str = "SELECT received, status, reasons, point FROM measurement \
    WHERE seq = ANY($1) ORDER BY seq DESC";

/// The measurements.
#[derive(Clone, Debug)]
pub struct Store {
    pools: Pools,
    writer: Writer,
    cache: Arc<Cache>,
}

#[derive(Debug)]
struct Cache {
    index: RwLock<Index>,
    /// Set when we wrote something that is not in the index yet.
    stale: Arc<AtomicBool>,
    /// When the index was last known to hold everything; locked while it is brought up to date.
    checked: Mutex<Option<Instant>>,
}

/// A page of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// Newest first; each a [`MeasurementPoint`](plimsoll_core::measurement::MeasurementPoint).
    pub items: Vec<Value>,
    /// What to ask for to get the next page; `None` on the last one.
    pub next: Option<i64>,
    /// How many match, on all pages.
    pub total: usize,
}

impl Store {
    /// Opens the database, makes it where there is none, and reads what lists need. Needs a tokio runtime.
    ///
    /// # Errors
    /// It cannot be opened, or is not Plimsoll's.
    pub async fn open(target: &Target) -> Result<Self, OpenError> {
        let pools = Pools::open(target).await?;
        let stale = Arc::new(AtomicBool::new(true));
        let wrote = Arc::clone(&stale);
        let writer = Writer::start(pools.clone(), move || wrote.store(true, Ordering::Release));
        let cache = Cache { index: RwLock::default(), stale, checked: Mutex::new(None) };
        Ok(Self { pools, writer, cache: Arc::new(cache) })
    }

    /// Keeps a record. Once this returns it is on the disk; a record that is there already stays as it is.
    ///
    /// # Errors
    /// The database fails; nothing is kept then.
    pub async fn put(&self, entry: Entry, token: Option<String>) -> Result<Kept, StoreError> {
        let outcome = self.writer.put(entry, token).await;
        self.noted(outcome)
    }

    /// A record as it was given, in canonical JSON.
    ///
    /// # Errors
    /// The database fails, or what it has is not what was given under this id.
    pub async fn record(&self, id: &str) -> Result<Option<String>, StoreError> {
        let sql = "SELECT content FROM record JOIN measurement ON measurement.seq = record.seq WHERE id = $1";
        let found: Result<Option<String>, StoreError> = reading!(&self.pools, pool => {
            let row = sqlx::query(sql).bind(id).fetch_optional(pool).await;
            row.and_then(|row| row.map(|row| row.try_get(0)).transpose()).map_err(StoreError::of)
        });
        let whole = found.and_then(|content| {
            content.iter().try_for_each(|content| verify::whole(id, content))?;
            Ok(content)
        });
        self.noted(whole)
    }

    /// The records that match, newest first, at most `limit`, from those older than `before` on.
    ///
    /// # Errors
    /// The database fails.
    pub async fn list(&self, filter: &Filter, before: Option<i64>, limit: usize) -> Result<Page, StoreError> {
        self.refresh().await?;
        let stretch = self.index().stretch(filter, before, limit);
        let next = stretch.seqs.last().copied().filter(|_| stretch.more);
        let points = self.points(&stretch.seqs).await;
        Ok(Page { items: self.noted(points)?, next, total: stretch.total })
    }

    /// How far estimates were off, by one facet; the largest group first.
    ///
    /// # Errors
    /// The database fails.
    pub async fn compare(&self, by: Facet, filter: &Filter) -> Result<Vec<Group>, StoreError> {
        self.refresh().await?;
        Ok(self.index().compare(by, filter))
    }

    /// A number that changes with whatever lists show.
    ///
    /// # Errors
    /// The database fails.
    pub async fn revision(&self) -> Result<i64, StoreError> {
        self.refresh().await?;
        Ok(self.index().change())
    }

    /// Makes the summaries anew that another engine made: an estimate that is shown is today's. How many
    /// there were. Uploads and reads go on meanwhile.
    ///
    /// # Errors
    /// The database fails, or holds a record that is not what was given: of that no summary is made, and no more is kept.
    pub async fn renew(&self) -> Result<usize, StoreError> {
        let outcome = self.renew_all().await;
        self.noted(outcome)
    }

    async fn renew_all(&self) -> Result<usize, StoreError> {
        let mut renewed = 0;
        loop {
            let outdated = self.outdated().await?;
            if outdated.is_empty() {
                return Ok(renewed);
            }
            outdated.iter().try_for_each(|(_, id, content)| verify::whole(id, content))?;
            renewed += outdated.len();
            let entries = tokio::task::spawn_blocking(move || {
                // What costs too much is refused by the estimate itself, and so are records that today's rules refuse.
                let entry = |content: &str| Entry::new(&Measurement::from_json(content).ok()?).ok();
                outdated.into_iter().map(|(seq, _, content)| (seq, entry(&content))).collect::<Vec<_>>()
            });
            let entries = entries.await.map_err(|error| StoreError::Failed(error.to_string()))?;
            let mut tx = self.pools.write().await?;
            for (seq, entry) in &entries {
                tx.renew(*seq, entry.as_ref()).await?;
            }
            tx.commit().await?;
            self.cache.stale.store(true, Ordering::Release);
            sleep(BETWEEN).await;
        }
    }

    /// Some of the records whose summary another engine made: number, id and text.
    async fn outdated(&self) -> Result<Vec<(i64, String, String)>, StoreError> {
        reading!(&self.pools, pool => {
            let rows = sqlx::query(OUTDATED).bind(engine()).bind(RENEWED).fetch_all(pool).await.map_err(StoreError::of)?;
            let outdated = rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?, row.try_get(2)?)));
            outdated.collect::<Result<_, sqlx::Error>>().map_err(StoreError::of)
        })
    }

    /// Whether uploads can be kept and lists be given.
    ///
    /// # Errors
    /// What stands in the way.
    pub async fn ready(&self) -> Result<(), StoreError> {
        self.pools.check()?;
        self.last_change().await?;
        self.list(&Filter::default(), None, 1).await.map(|_| ())
    }

    /// Remembers an error that says that the database is not what it was.
    fn noted<T>(&self, outcome: Result<T, StoreError>) -> Result<T, StoreError> {
        if let Err(error) = &outcome {
            self.pools.found(error);
        }
        outcome
    }

    /// Finishes what is under way and lets go of the database.
    pub async fn close(&self) {
        self.pools.close().await;
    }

    async fn points(&self, seqs: &[i64]) -> Result<Vec<Value>, StoreError> {
        if seqs.is_empty() {
            return Ok(Vec::new());
        }
        match &self.pools {
            Pools::Sqlite { readers, .. } => {
                let list = format!("{seqs:?}");
                let rows = sqlx::query(POINTS_SQLITE).bind(list).fetch_all(readers).await.map_err(StoreError::of)?;
                rows.iter().map(listed).collect::<Result<_, sqlx::Error>>().map_err(StoreError::of)
            }
            Pools::Postgres(pool, _) => {
                let rows = sqlx::query(POINTS_POSTGRES).bind(seqs).fetch_all(pool).await.map_err(StoreError::of)?;
                rows.iter().map(listed).collect::<Result<_, sqlx::Error>>().map_err(StoreError::of)
            }
        }
    }

    async fn last_change(&self) -> Result<i64, StoreError> {
        reading!(&self.pools, pool => {
            let row = sqlx::query("SELECT last FROM revision").fetch_one(pool).await.map_err(StoreError::of)?;
            row.try_get(0).map_err(StoreError::of)
        })
    }

    /// Sees to it that the index holds all that was written before the call by us, and by others a second ago.
    async fn refresh(&self) -> Result<(), StoreError> {
        let mut checked = self.cache.checked.lock().await;
        let due = checked.is_none_or(|at| at.elapsed() > UNSEEN);
        // Taken down before looking: what is written meanwhile puts it up again.
        if !self.cache.stale.swap(false, Ordering::AcqRel) && !due {
            return Ok(());
        }
        let outcome = self.catch_up().await;
        let outcome = self.noted(outcome);
        match outcome {
            Ok(()) => *checked = Some(Instant::now()),
            Err(_) => self.cache.stale.store(true, Ordering::Release),
        }
        outcome
    }

    async fn catch_up(&self) -> Result<(), StoreError> {
        let last = self.last_change().await?;
        let mut known = self.index().change();
        if last < known {
            // An older copy was put back in its place.
            *self.cache.index.write().unwrap_or_else(PoisonError::into_inner) = Index::default();
            known = 0;
        }
        while known < last {
            let rows = self.newer(known).await?;
            let Some(newest) = rows.last().map(|row| row.change) else { break };
            self.cache.index.write().unwrap_or_else(PoisonError::into_inner).apply(rows);
            known = newest;
        }
        Ok(())
    }

    async fn newer(&self, change: i64) -> Result<Vec<Loaded>, StoreError> {
        reading!(&self.pools, pool => {
            let rows = sqlx::query(NEWER.as_str()).bind(change).bind(ROWS).fetch_all(pool).await.map_err(StoreError::of)?;
            rows.iter().map(loaded).collect::<Result<_, sqlx::Error>>().map_err(StoreError::of)
        })
    }

    fn index(&self) -> RwLockReadGuard<'_, Index> {
        self.cache.index.read().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A row of [`NEWER`].
fn loaded<'r, R: sqlx::Row>(row: &'r R) -> Result<Loaded, sqlx::Error>
where
    for<'a> &'a str: sqlx::ColumnIndex<R>,
    i64: sqlx::Decode<'r, R::Database> + sqlx::Type<R::Database>,
    Option<i64>: sqlx::Decode<'r, R::Database> + sqlx::Type<R::Database>,
    String: sqlx::Decode<'r, R::Database> + sqlx::Type<R::Database>,
{
    Ok(Loaded {
        seq: row.try_get("seq")?,
        change: row.try_get("change")?,
        id: row.try_get("id")?,
        standing: entry::stands(&row.try_get::<String, _>("status")?),
        figures: figures(row)?,
        facets: Facet::ALL.iter().map(|facet| row.try_get(facet.as_str())).collect::<Result<_, _>>()?,
    })
}

/// A row of [`POINTS_SQLITE`] or [`POINTS_POSTGRES`]: the point, with what the server adds to it.
fn listed<'r, R: sqlx::Row>(row: &'r R) -> Result<Value, sqlx::Error>
where
    for<'a> &'a str: sqlx::ColumnIndex<R>,
    String: sqlx::Decode<'r, R::Database> + sqlx::Type<R::Database>,
{
    let text = |column| row.try_get::<String, _>(column);
    let mut point: Value = serde_json::from_str(&text("point")?).map_err(|error| sqlx::Error::Decode(error.into()))?;
    if let Some(point) = point.as_object_mut() {
        point.insert("received".to_owned(), text("received")?.into());
        point.insert("standing".to_owned(), text("status")?.into());
        point.insert("reasons".to_owned(), tx::parse(&text("reasons")?).into());
    }
    Ok(point)
}

/// Today, UTC, as `2026-11-20`.
pub(crate) fn today() -> String {
    time::OffsetDateTime::now_utc().date().to_string()
}
