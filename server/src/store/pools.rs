//! The connections, and the tables made or brought up to date when they are opened.

use std::borrow::Cow;
use std::ops::{Deref, DerefMut};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use sqlx::migrate::{Migration, MigrationType, Migrator};
use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{PgPool, Postgres, SqlSafeStr as _, Sqlite, SqliteConnection, SqlitePool, Transaction};

use super::health::Health;
use super::{OpenError, StoreError, Target};

/// Connections that read.
const READERS: u32 = 4;

/// How long to wait for a connection, or for another process that writes to the same file.
const PATIENCE: Duration = Duration::from_secs(5);

/// Up to this size in bytes a file is looked through before it is used, which takes a second; larger ones meanwhile.
const LOOKED_AT: u64 = 256 << 20;

/// Size in bytes that SQLite cuts its write-ahead log back to once it was written home.
const LOG_KEPT: &str = "67108864";

/// The numbered migrations of one database, in order. One that was released is never changed: a new one follows it.
const SQLITE: &[(i64, &str, &str)] = &[
    (1, "first", include_str!("../../migrations/sqlite/0001_first.sql")),
    (2, "hulls", include_str!("../../migrations/sqlite/0002_hulls.sql")),
];
const POSTGRES: &[(i64, &str, &str)] = &[
    (1, "first", include_str!("../../migrations/postgres/0001_first.sql")),
    (2, "hulls", include_str!("../../migrations/postgres/0002_hulls.sql")),
];

/// Where to read and where to write.
#[derive(Clone, Debug)]
pub(super) enum Pools {
    /// SQLite has one writer at a time: given one connection, it never finds the file locked by ourselves.
    Sqlite {
        /// Cannot write at all.
        readers: SqlitePool,
        /// The one connection that can.
        writer: SqlitePool,
        /// Whether what it writes is found again.
        health: Arc<Health>,
    },
    /// PostgreSQL's connections do both.
    Postgres(PgPool, Arc<Health>),
}

/// Writes that become true together.
#[derive(Debug)]
pub(super) enum Tx {
    Sqlite(Alone),
    Postgres(Transaction<'static, Postgres>),
}

/// SQLite's writing connection within a transaction. SQLite ends the transaction by itself when the disk is full, and
/// sqlx's own would not know: a connection that did not come to its commit is closed, and a new one opened.
#[derive(Debug)]
pub(super) struct Alone {
    connection: PoolConnection<Sqlite>,
    committed: bool,
    health: Arc<Health>,
}

impl Deref for Alone {
    type Target = SqliteConnection;

    fn deref(&self) -> &SqliteConnection {
        &self.connection
    }
}

impl DerefMut for Alone {
    fn deref_mut(&mut self) -> &mut SqliteConnection {
        &mut self.connection
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        if !self.committed {
            self.connection.close_on_drop();
            self.health.let_go();
        }
    }
}

/// The same body for either kind of [`Pools`], with `$pool` the connections that read. The SQL is one text: both
/// databases read `$1` and the types in use.
macro_rules! reading {
    ($pools:expr, $pool:ident => $body:expr) => {
        match $pools {
            $crate::store::pools::Pools::Sqlite { readers: $pool, .. } => $body,
            $crate::store::pools::Pools::Postgres($pool, _) => $body,
        }
    };
}
pub(super) use reading;

/// The same body for either kind of [`Tx`], with `$tx` the connection.
macro_rules! within {
    ($tx:expr, $connection:ident => $body:expr) => {
        match $tx {
            $crate::store::pools::Tx::Sqlite(tx) => {
                let $connection = &mut **tx;
                $body
            }
            $crate::store::pools::Tx::Postgres(tx) => {
                let $connection = &mut **tx;
                $body
            }
        }
    };
}
pub(super) use within;

impl Pools {
    /// Opens the database, making the file, its folder and the tables where they are missing.
    pub(super) async fn open(target: &Target) -> Result<Self, OpenError> {
        match target {
            Target::Sqlite(path) => {
                if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
                    std::fs::create_dir_all(folder).map_err(|e| OpenError::Folder(folder.to_owned(), e))?;
                }
                private(path);
                let options = SqliteConnectOptions::new()
                    .filename(path)
                    .create_if_missing(true)
                    .journal_mode(SqliteJournalMode::Wal)
                    // FULL forces the log to the disk before a write is acknowledged. NORMAL would be enough for a
                    // killed process, but not for a power cut; records that wait together share one write.
                    .synchronous(SqliteSynchronous::Full)
                    .foreign_keys(true)
                    .pragma("journal_size_limit", LOG_KEPT)
                    .busy_timeout(PATIENCE);
                let pool = |most| SqlitePoolOptions::new().max_connections(most).acquire_timeout(PATIENCE);
                let open = |source| broken(target, source);
                // Kept open: the log that it writes to stays the same.
                let writer = pool(1).idle_timeout(None).max_lifetime(None);
                let writer = writer.connect_with(options.clone()).await.map_err(open)?;
                migrate(target, SQLITE, async |migrator| migrator.run(&writer).await).await?;
                let readers = pool(READERS).connect_with(options.read_only(true)).await.map_err(open)?;
                if std::fs::metadata(path).is_ok_and(|found| found.len() <= LOOKED_AT) {
                    sound(target, &readers).await?;
                }
                Ok(Self::Sqlite { readers, writer, health: Arc::new(Health::of_file(path)) })
            }
            Target::Postgres(url) => {
                let options: PgConnectOptions = url.parse().map_err(|source| broken(target, source))?;
                let options = options.application_name("plimsoll");
                let pool = PgPoolOptions::new().max_connections(READERS + 2).acquire_timeout(PATIENCE);
                let pool = pool.connect_with(options).await.map_err(|source| broken(target, source))?;
                migrate(target, POSTGRES, async |migrator| migrator.run(&pool).await).await?;
                Ok(Self::Postgres(pool, Arc::default()))
            }
        }
    }

    fn health(&self) -> &Arc<Health> {
        match self {
            Self::Sqlite { health, .. } | Self::Postgres(_, health) => health,
        }
    }

    /// Whether what is written now will be found again.
    pub(super) fn check(&self) -> Result<(), StoreError> {
        self.health().check()
    }

    /// Notes an error that says that the database is not what it was.
    pub(super) fn found(&self, error: &StoreError) {
        self.health().found(error);
    }

    /// Begins to write, alone: no other writer is let in before it ends.
    pub(super) async fn write(&self) -> Result<Tx, StoreError> {
        self.check()?;
        match self {
            Self::Sqlite { writer, health, .. } => {
                async {
                    let health = Arc::clone(health);
                    let mut tx = Alone { connection: writer.acquire().await?, committed: false, health };
                    sqlx::query("BEGIN IMMEDIATE").execute(&mut *tx).await?;
                    Ok(Tx::Sqlite(tx))
                }
                .await
            }
            Self::Postgres(pool, _) => {
                async {
                    let mut tx = pool.begin().await?;
                    // The row stays locked until the transaction ends.
                    sqlx::query("SELECT last FROM revision FOR UPDATE").fetch_one(&mut *tx).await?;
                    Ok(Tx::Postgres(tx))
                }
                .await
            }
        }
        .map_err(StoreError::of)
    }

    /// Lets go of all connections; SQLite writes its log home.
    pub(super) async fn close(&self) {
        match self {
            Self::Sqlite { readers, writer, .. } => {
                readers.close().await;
                writer.close().await;
            }
            Self::Postgres(pool, _) => pool.close().await,
        }
    }
}

impl Tx {
    /// Makes it true: once this returns, neither a killed process nor a power cut undoes it.
    pub(super) async fn commit(self) -> Result<(), StoreError> {
        match self {
            Self::Sqlite(mut tx) => {
                tx.health.begun()?;
                let committed = sqlx::query("COMMIT").execute(&mut *tx).await.map(|_| ());
                tx.committed = committed.is_ok();
                // Once more: what went into files that were taken away meanwhile is not acknowledged.
                if committed.is_ok() {
                    tx.health.begun()?;
                }
                committed
            }
            Self::Postgres(tx) => tx.commit().await,
        }
        .map_err(StoreError::of)
    }
}

/// Makes a database that is not there yet, for its owner alone: records of others and hashes of tokens are in it. SQLite
/// gives its log the same permissions.
#[cfg(unix)]
fn private(path: &Path) {
    use std::os::unix::fs::OpenOptionsExt as _;
    // It may be there already; where nothing can be made, SQLite says what is wrong.
    let _ = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
}

#[cfg(not(unix))]
fn private(_: &Path) {}

/// Whether SQLite finds nothing wrong with the structure of a file.
async fn sound(target: &Target, readers: &SqlitePool) -> Result<(), OpenError> {
    let said = sqlx::query_scalar::<_, String>("PRAGMA quick_check(1)").fetch_one(readers).await;
    let what = match said {
        Ok(said) if said == "ok" => return Ok(()),
        Ok(said) => said,
        Err(error) => error.to_string(),
    };
    Err(OpenError::Damaged { place: target.to_string(), what })
}

/// Why a database could not be opened: it is not there, or it is not ours. SQLite's 26 is `SQLITE_NOTADB`, 11
/// `SQLITE_CORRUPT`.
fn broken(target: &Target, source: sqlx::Error) -> OpenError {
    let place = target.to_string();
    let code = source.as_database_error().and_then(|error| error.code().map(Cow::into_owned));
    match (target, code.as_deref()) {
        (Target::Sqlite(_), Some("26" | "11")) => OpenError::Foreign { place, source },
        _ => OpenError::Open { place, source },
    }
}

async fn migrate(
    target: &Target,
    steps: &[(i64, &'static str, &'static str)],
    run: impl AsyncFnOnce(Migrator) -> Result<(), sqlx::migrate::MigrateError>,
) -> Result<(), OpenError> {
    use sqlx::migrate::MigrateError::{Execute, VersionMissing};
    let steps = steps.iter().map(|(version, name, sql)| {
        Migration::new(*version, Cow::Borrowed(*name), MigrationType::Simple, sql.into_sql_str(), false)
    });
    run(Migrator::with_migrations(steps.collect())).await.map_err(|source| match source {
        VersionMissing(_) => OpenError::Newer(target.to_string()),
        Execute(source) => broken(target, source),
        source => OpenError::Migrate { place: target.to_string(), source },
    })
}
