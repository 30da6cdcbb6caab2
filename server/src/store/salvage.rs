//! What can be read of a damaged database: every record that is still what it was, one by one.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use plimsoll_core::Measurement;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions as _, Row as _};

use super::verify::hash;
use super::{OpenError, Target};

/// Rows that may be missing one after the other before the end is reached, where the database does not say how many
/// there are.
const GAP: i64 = 100_000;

const WITH_ID: &str = "SELECT CAST(content AS BLOB), (SELECT id FROM measurement WHERE measurement.seq = record.seq) \
    FROM record WHERE rowid = $1";
const WITHOUT_ID: &str = "SELECT CAST(content AS BLOB), NULL FROM record WHERE rowid = $1";

/// A record that could be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Salvaged {
    /// SHA-256 of what was read.
    pub id: String,
    /// The record's text.
    pub content: String,
    /// Whether the database knows it by that id: it is then what was given, to the byte. Else it reads as a record, and
    /// may have been changed.
    pub verified: bool,
}

/// Reads all that can be read of an SQLite database, from a copy: the damaged file stays as it is. How many rows could
/// not be read.
///
/// # Errors
/// It cannot be copied or opened at all, or is no SQLite database.
pub async fn salvage<E: From<OpenError>>(
    target: &Target,
    mut keep: impl FnMut(Salvaged) -> Result<(), E>,
) -> Result<u64, E> {
    let Target::Sqlite(path) = target else {
        return Err(OpenError::Target("a PostgreSQL database (its own tools save what can be saved)".to_owned()).into());
    };
    let place = target.to_string();
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let cannot = |source: io::Error| OpenError::Folder(folder.to_owned(), source);
    let copies = copied(path).map_err(cannot)?;
    let open = |source| OpenError::Open { place: place.clone(), source };
    let options = SqliteConnectOptions::new().filename(copies.path().join(COPY)).create_if_missing(false);
    let mut connection = options.connect().await.map_err(open)?;
    let last = last(&mut connection).await;
    let (mut at, mut missing, mut lost) = (0, 0, 0);
    while last.map_or(missing < GAP, |last| at < last) {
        at += 1;
        match read(&mut connection, at).await {
            Row::Is(salvaged) => {
                missing = 0;
                keep(salvaged)?;
            }
            Row::Lost => {
                missing += 1;
                lost += 1;
            }
            Row::None => missing += 1,
        }
    }
    // Where nothing says how many there were, what was looked for after the last was never there.
    Ok(if last.is_none() { lost.min(at as u64).saturating_sub(missing as u64) } else { lost })
}

const COPY: &str = "copy.db";

/// The database and its log, in a folder that goes when it is dropped.
fn copied(path: &Path) -> io::Result<tempfile::TempDir> {
    let folder = tempfile::tempdir()?;
    fs::copy(path, folder.path().join(COPY))?;
    let mut log: PathBuf = path.as_os_str().to_owned().into();
    log.as_mut_os_string().push("-wal");
    if log.exists() {
        fs::copy(log, folder.path().join(format!("{COPY}-wal")))?;
    }
    Ok(folder)
}

/// The number of the last row, as far as anything says it.
async fn last(connection: &mut SqliteConnection) -> Option<i64> {
    for sql in ["SELECT max(rowid) FROM record", "SELECT seq FROM sqlite_sequence WHERE name = 'measurement'"] {
        let row = sqlx::query(sql).fetch_one(&mut *connection).await;
        if let Some(last) = row.ok().and_then(|row| row.try_get::<i64, _>(0).ok()) {
            return Some(last);
        }
    }
    None
}

/// What there is at one place.
enum Row {
    Is(Salvaged),
    Lost,
    None,
}

async fn read(connection: &mut SqliteConnection, at: i64) -> Row {
    let mut found = sqlx::query(WITH_ID).bind(at).fetch_optional(&mut *connection).await;
    if found.is_err() {
        found = sqlx::query(WITHOUT_ID).bind(at).fetch_optional(&mut *connection).await;
    }
    let row = match found {
        Ok(Some(row)) => row,
        Ok(None) => return Row::None,
        Err(_) => return Row::Lost,
    };
    let known: Option<String> = row.try_get(1).unwrap_or_default();
    let Some(content) = row.try_get::<Vec<u8>, _>(0).ok().and_then(|bytes| String::from_utf8(bytes).ok()) else {
        return Row::Lost;
    };
    let id = hash(content.as_bytes());
    let verified = known.as_deref() == Some(&id);
    let reads = || Measurement::from_json(&content).is_ok_and(|record| record.validate().is_empty());
    if verified || reads() { Row::Is(Salvaged { id, content, verified }) } else { Row::Lost }
}
