//! The database of measurements: which one, and opening it.

use plimsoll_core::Error;
use plimsoll_server::store::{OpenError, Store, StoreError, Target};

use crate::exit::Failure;
use crate::records::data_directory;

/// What the file is called in the user's data directory.
const FILE: &str = "measurements.db";

/// Which database.
#[derive(Debug, clap::Args)]
pub struct Which {
    /// Where measurements are kept: sqlite://FILE or postgres://USER@HOST/NAME; unless given, a file in your data
    /// directory
    #[arg(long, value_name = "URL", env = "PLIMSOLL_DATABASE", hide_env_values = true)]
    database: Option<String>,
}

impl Which {
    /// The one that is named, or the user's own.
    pub fn target(&self) -> Result<Target, Failure> {
        match &self.database {
            // Read here and not by clap, which repeats what it cannot read: a password may be in it.
            Some(text) => text
                .parse()
                .map_err(|error: OpenError| Error::new("--database", error.to_string(), error.hint()).into()),
            None => Ok(Target::Sqlite(data_directory()?.join(FILE))),
        }
    }

    /// Opens it, and makes it where it is not yet.
    pub async fn open(&self) -> Result<Store, Failure> {
        Ok(Store::open(&self.target()?).await?)
    }
}

impl From<OpenError> for Failure {
    fn from(error: OpenError) -> Self {
        Self::Environment { problem: error.to_string(), hint: error.hint().to_owned() }
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::Environment { problem: error.to_string(), hint: error.hint().to_owned() }
    }
}

/// Runs what waits for the database, with so many threads.
pub fn block_on<T>(threads: usize, work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(threads).enable_all().build().map_err(|error| Failure::Environment {
        problem: format!("cannot start threads: {error}"),
        hint: "end some other processes".to_owned(),
    })?;
    runtime.block_on(work)
}
