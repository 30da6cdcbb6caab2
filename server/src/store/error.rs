//! Why the database did not do what was asked.

use std::path::PathBuf;

use sqlx::{error::DatabaseError, migrate::MigrateError};

/// Why there is no database, for those who run the server; [`OpenError::hint`] says what to do.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// `--database` names none.
    #[error("`{0}` names no database")]
    Target(String),
    /// The folder of the database cannot be made.
    #[error("cannot make the folder {}: {}", .0.display(), .1)]
    Folder(PathBuf, #[source] std::io::Error),
    /// The database cannot be opened or reached.
    #[error("cannot open the database {place}: {source}")]
    Open {
        /// Which one, without passwords.
        place: String,
        /// What the driver says.
        #[source]
        source: sqlx::Error,
    },
    /// What is there was not made by Plimsoll, or is damaged.
    #[error("cannot use the database {place}: {source}")]
    Foreign {
        /// Which one, without passwords.
        place: String,
        /// What the driver says.
        #[source]
        source: sqlx::Error,
    },
    /// Something in it is not as it was written.
    #[error("the database {place} is damaged: {what}")]
    Damaged {
        /// Which one, without passwords.
        place: String,
        /// What SQLite says.
        what: String,
    },
    /// A later Plimsoll has changed its tables.
    #[error("the database {0} was made by a newer Plimsoll")]
    Newer(String),
    /// Its tables could not be made or brought up to date.
    #[error("cannot bring the database {place} up to date: {source}")]
    Migrate {
        /// Which one, without passwords.
        place: String,
        /// What the driver says.
        #[source]
        source: MigrateError,
    },
}

impl OpenError {
    /// What to do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Target(_) => {
                "give --database sqlite://FILE or --database postgres://USER@HOST/NAME, or leave it out: a file in your \
                 data directory is then used"
            }
            Self::Folder(..) => "check who may write there, or name another file with --database sqlite://FILE",
            Self::Open { .. } => {
                "check that it exists and may be read and written; --database names another one, and --no-database \
                 serves the planner alone"
            }
            Self::Foreign { .. } => {
                "name another one with --database; if it was Plimsoll's, put back a copy. --no-database serves the \
                 planner alone"
            }
            Self::Damaged { .. } => SALVAGE,
            Self::Newer(_) => "update Plimsoll, or name another database with --database",
            Self::Migrate { .. } => "name another database with --database, or put back a copy of this one",
        }
    }
}

const SALVAGE: &str = "put back a copy, or save what can be read with `plimsoll export --salvage --out DIR` and read that \
    into a new database with `plimsoll import DIR/measurements`; nothing is acknowledged until then";

/// Why a database that was opened did not do what was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// No room is left to write.
    #[error("the disk of the database is full")]
    Full,
    /// It does not answer, or too late.
    #[error("the database cannot be reached: {0}")]
    Away(String),
    /// The file is not where it was when it was opened.
    #[error("the file {0} was moved, deleted or replaced while it was in use")]
    Gone(String),
    /// Something in it is not as it was written.
    #[error("the database is damaged: {0}")]
    Damaged(String),
    /// Anything else.
    #[error("the database failed: {0}")]
    Failed(String),
}

impl StoreError {
    /// What to do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Full => "make room on the disk; what was acknowledged is safe",
            Self::Away(_) => "check whether the database runs",
            Self::Gone(_) => {
                "stop the server, put the file back together with those that end in -wal and -shm, and start it again; \
                 nothing is acknowledged until then"
            }
            Self::Damaged(_) => SALVAGE,
            Self::Failed(_) => {
                "check the disk and who may write there; a PostgreSQL server has a log of its own that tells more"
            }
        }
    }

    /// Of an operation on a database that was opened before.
    pub(crate) fn of(error: sqlx::Error) -> Self {
        match &error {
            sqlx::Error::Database(inner) if is_full(inner.as_ref()) => Self::Full,
            sqlx::Error::Database(inner) if is_damaged(inner.as_ref()) => Self::Damaged(inner.message().to_owned()),
            // What was written could be read back: a text that is none, a summary that is no JSON.
            sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_) => Self::Damaged(error.to_string()),
            sqlx::Error::Database(inner) if is_away(inner.as_ref()) => Self::Away(inner.message().to_owned()),
            sqlx::Error::Io(io) if io.kind() == std::io::ErrorKind::StorageFull => Self::Full,
            sqlx::Error::Io(io) => Self::Away(io.to_string()),
            sqlx::Error::PoolTimedOut | sqlx::Error::PoolClosed | sqlx::Error::WorkerCrashed => {
                Self::Away(error.to_string())
            }
            _ => Self::Failed(error.to_string()),
        }
    }
}

/// SQLite: 13 is `SQLITE_FULL`; 4874 is `SQLITE_IOERR_SHMSIZE`, the index of the write-ahead log that cannot grow; 778
/// is `SQLITE_IOERR_WRITE` (<https://www.sqlite.org/rescode.html>). PostgreSQL: class 53100 is `disk_full`.
fn is_full(error: &dyn DatabaseError) -> bool {
    let code = error.code();
    let sqlite = error.try_downcast_ref::<sqlx::sqlite::SqliteError>().is_some();
    match code.as_deref() {
        Some("13" | "4874" | "778") => sqlite,
        Some("53100") => !sqlite,
        _ => false,
    }
}

/// SQLite: 11 is `SQLITE_CORRUPT`, 26 `SQLITE_NOTADB`. PostgreSQL: XX001 is `data_corrupted`, XX002 `index_corrupted`.
fn is_damaged(error: &dyn DatabaseError) -> bool {
    let code = error.code().unwrap_or_default();
    if error.try_downcast_ref::<sqlx::sqlite::SqliteError>().is_some() {
        return code.parse::<u32>().is_ok_and(|code| matches!(code & 0xff, 11 | 26));
    }
    ["XX001", "XX002"].contains(&&*code)
}

/// SQLite: 8 is `SQLITE_READONLY`, a file that can be written to no longer; 5 and 6 are `SQLITE_BUSY` and `SQLITE_LOCKED` after all waiting. PostgreSQL: class 53 is "insufficient
/// resources", 57P "operator intervention" as in a shutdown, 08 a broken connection.
fn is_away(error: &dyn DatabaseError) -> bool {
    let code = error.code().unwrap_or_default();
    if error.try_downcast_ref::<sqlx::sqlite::SqliteError>().is_some() {
        return code.parse::<u32>().is_ok_and(|code| matches!(code & 0xff, 5 | 6 | 8));
    }
    ["53", "57P", "08"].iter().any(|class| code.starts_with(class))
}
