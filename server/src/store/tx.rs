//! What is written, within one transaction.

use plimsoll_core::measurement::Standing;
use sqlx::Row as _;

use super::columns::{INSERT, NEAR, RENEW, bound, figures};
use super::engine::engine;
use super::entry::{Entry, Figures, standing, stands};
use super::pools::{Tx, within};
use super::{StoreError, judge};

/// How many of the newest records with the same key are its neighbours. More would say no more, and each is read anew
/// with every record that joins them.
const NEIGHBOURS: i64 = 64;

const RECORD: &str = "INSERT INTO record (seq, content) VALUES ($1, $2)";

const KNOWN: &str = "SELECT status, reasons FROM measurement WHERE id = $1";

const JUDGED: &str = "UPDATE measurement SET status = $1, reasons = $2, change = $3 WHERE seq = $4";

const CHANGE: &str = "UPDATE revision SET last = last + 1 RETURNING last";

/// Of a record that today's rules refuse: it stays as it is, and is not looked at again.
const LEFT: &str = "UPDATE measurement SET engine = $1 WHERE seq = $2";

const USED: &str = "UPDATE token SET last_used = $1 WHERE id = $2 AND (last_used IS NULL OR last_used <> $1)";

/// What became of a record that was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Whether it was not there before.
    pub new: bool,
    /// What is thought of it.
    pub standing: Standing,
    /// Why, when it is quarantined.
    pub reasons: Vec<String>,
}

/// A record's neighbour, or itself.
struct Near {
    seq: i64,
    standing: Standing,
    reasons: String,
    figures: Figures,
}

impl Tx {
    /// Keeps a record unless it is there, and judges it and its neighbours anew.
    pub(super) async fn put(&mut self, entry: &Entry) -> Result<Kept, StoreError> {
        if let Some((status, reasons)) = self.known(&entry.id).await? {
            return Ok(Kept { new: false, standing: status, reasons: parse(&reasons) });
        }
        let mut near = match &entry.neighbourhood {
            Some(key) => self.near(key).await?,
            None => Vec::new(),
        };
        let others: Vec<Figures> = near.iter().map(|one| one.figures).collect();
        let reasons = judge::reasons(&entry.figures, &others);
        let status = status(&reasons);
        let change = self.change().await?;
        let seq = self.insert(entry, change, status, &json(&reasons)).await?;
        near.insert(0, Near { seq, standing: status, reasons: json(&reasons), figures: entry.figures });
        self.judge_others(&near).await?;
        Ok(Kept { new: true, standing: status, reasons })
    }

    /// What the newcomer, the first of `near`, changes about the others.
    async fn judge_others(&mut self, near: &[Near]) -> Result<(), StoreError> {
        let figures: Vec<Figures> = near.iter().map(|one| one.figures).collect();
        for (at, one) in near.iter().enumerate().skip(1) {
            let mut others = figures.clone();
            others.remove(at);
            let reasons = judge::reasons(&one.figures, &others);
            let (status, reasons) = (status(&reasons), json(&reasons));
            if status != one.standing || (status == Standing::Quarantined && reasons != one.reasons) {
                let change = self.change().await?;
                within!(self, c => {
                    let judged = sqlx::query(JUDGED).bind(standing(status)).bind(&reasons).bind(change).bind(one.seq);
                    judged.execute(c).await.map(|_| ())
                })
                .map_err(StoreError::of)?;
            }
        }
        Ok(())
    }

    /// Makes a record's summary anew, and judges it and its neighbours by it; without an entry it is only noted that
    /// nothing could be made.
    pub(super) async fn renew(&mut self, seq: i64, entry: Option<&Entry>) -> Result<(), StoreError> {
        let Some(entry) = entry else {
            return within!(self, c => sqlx::query(LEFT).bind(engine()).bind(seq).execute(c).await.map(|_| ()))
                .map_err(StoreError::of);
        };
        let mut near = match &entry.neighbourhood {
            Some(key) => self.near(key).await?,
            None => Vec::new(),
        };
        near.retain(|one| one.seq != seq);
        let others: Vec<Figures> = near.iter().map(|one| one.figures).collect();
        let reasons = judge::reasons(&entry.figures, &others);
        let (status, reasons) = (status(&reasons), json(&reasons));
        let change = self.change().await?;
        within!(&mut *self, c => {
            let query = sqlx::query(RENEW.as_str()).bind(change).bind(standing(status)).bind(&reasons);
            bound!(query, entry).bind(seq).execute(c).await.map(|_| ())
        })
        .map_err(StoreError::of)?;
        near.insert(0, Near { seq, standing: status, reasons, figures: entry.figures });
        self.judge_others(&near).await
    }

    async fn known(&mut self, id: &str) -> Result<Option<(Standing, String)>, StoreError> {
        within!(self, c => {
            let row = sqlx::query(KNOWN).bind(id).fetch_optional(c).await.map_err(StoreError::of)?;
            row.map(|row| Ok((stands(row.try_get(0)?), row.try_get(1)?))).transpose().map_err(StoreError::of)
        })
    }

    async fn near(&mut self, key: &str) -> Result<Vec<Near>, StoreError> {
        within!(self, c => {
            let rows = sqlx::query(NEAR.as_str()).bind(key).bind(NEIGHBOURS).fetch_all(c).await.map_err(StoreError::of)?;
            let near = rows.iter().map(|row| {
                Ok(Near {
                    seq: row.try_get("seq")?,
                    standing: stands(row.try_get("status")?),
                    reasons: row.try_get("reasons")?,
                    figures: figures(row)?,
                })
            });
            near.collect::<Result<_, sqlx::Error>>().map_err(StoreError::of)
        })
    }

    async fn change(&mut self) -> Result<i64, StoreError> {
        within!(self, c => {
            let row = sqlx::query(CHANGE).fetch_one(c).await.map_err(StoreError::of)?;
            row.try_get(0).map_err(StoreError::of)
        })
    }

    async fn insert(&mut self, entry: &Entry, change: i64, status: Standing, reasons: &str) -> Result<i64, StoreError> {
        let seq: i64 = within!(&mut *self, c => {
            let query = sqlx::query(INSERT.as_str())
                .bind(&entry.id)
                .bind(&entry.received)
                .bind(change)
                .bind(standing(status))
                .bind(reasons);
            let row = bound!(query, entry).fetch_one(c).await.map_err(StoreError::of)?;
            row.try_get(0).map_err(StoreError::of)?
        });
        within!(self, c => sqlx::query(RECORD).bind(seq).bind(&entry.content).execute(c).await.map(|_| ()))
            .map_err(StoreError::of)?;
        Ok(seq)
    }

    /// Notes the day a token was used.
    pub(super) async fn used(&mut self, token: &str, day: &str) -> Result<(), StoreError> {
        within!(self, c => sqlx::query(USED).bind(day).bind(token).execute(c).await.map(|_| ())).map_err(StoreError::of)
    }
}

fn status(reasons: &[String]) -> Standing {
    if reasons.is_empty() { Standing::Accepted } else { Standing::Quarantined }
}

/// Reasons as the database keeps them.
fn json(reasons: &[String]) -> String {
    // Texts always have a JSON form.
    serde_json::to_string(reasons).unwrap_or_default()
}

/// Reasons from the database.
pub(super) fn parse(reasons: &str) -> Vec<String> {
    serde_json::from_str(reasons).unwrap_or_default()
}
