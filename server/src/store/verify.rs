//! Looking whether everything that is kept is what was kept: by the database's own check, and record by record.

use std::time::Duration;

use sha2::{Digest as _, Sha256};
use sqlx::Row as _;
use tokio::time::sleep;

use super::pools::{Pools, reading};
use super::{Store, StoreError};

/// Records looked at in one go, and how long others have the database in between.
const RECORDS: i64 = 64;
const PAUSE: Duration = Duration::from_millis(20);

/// How long it is until everything is looked at once more.
const EACH: Duration = Duration::from_secs(3600);

const FROM: &str = "SELECT measurement.seq, id, content FROM measurement JOIN record ON record.seq = measurement.seq \
    WHERE measurement.seq > $1 ORDER BY measurement.seq LIMIT $2";

impl Store {
    /// Looks at everything once, while others read and write: the structure, and each record against its id.
    ///
    /// # Errors
    /// The first thing that is wrong. Uploads are refused from then on.
    pub async fn verify(&self) -> Result<(), StoreError> {
        let outcome = self.verify_all().await;
        self.noted(outcome)
    }

    /// Looks at everything again and again, until something is wrong.
    pub async fn keep_verifying(&self) {
        // A database that is away for a moment is no reason to stop.
        while !matches!(self.verify().await, Err(StoreError::Damaged(_))) {
            sleep(EACH).await;
        }
    }

    async fn verify_all(&self) -> Result<(), StoreError> {
        if let Pools::Sqlite { readers, .. } = &self.pools {
            let mut reader = readers.acquire().await.map_err(StoreError::of)?;
            // What a connection has read before lies in its cache, and would be looked at instead of the file.
            sqlx::query("PRAGMA shrink_memory").execute(&mut *reader).await.map_err(StoreError::of)?;
            let row = sqlx::query("PRAGMA quick_check(1)").fetch_one(&mut *reader).await.map_err(StoreError::of)?;
            drop(reader);
            let said: String = row.try_get(0).map_err(StoreError::of)?;
            if said != "ok" {
                return Err(StoreError::Damaged(said));
            }
        }
        let mut last = 0;
        loop {
            let rows: Vec<(i64, String, String)> = reading!(&self.pools, pool => {
                let rows = sqlx::query(FROM).bind(last).bind(RECORDS).fetch_all(pool).await.map_err(StoreError::of)?;
                let rows = rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?, row.try_get(2)?)));
                rows.collect::<Result<_, sqlx::Error>>().map_err(StoreError::of)?
            });
            let Some((seq, ..)) = rows.last() else { return Ok(()) };
            last = *seq;
            rows.iter().try_for_each(|(_, id, content)| whole(id, content))?;
            sleep(PAUSE).await;
        }
    }
}

/// SHA-256 of a record's text, which is its id.
pub(super) fn hash(content: &[u8]) -> String {
    Sha256::digest(content).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Whether a record is the one that was given under its id.
pub(super) fn whole(id: &str, content: &str) -> Result<(), StoreError> {
    if hash(content.as_bytes()) == id {
        return Ok(());
    }
    Err(StoreError::Damaged(format!("the record {id} is not what was given under this id")))
}
