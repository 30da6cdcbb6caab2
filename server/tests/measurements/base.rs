//! An empty database of either kind.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use plimsoll_server::store::{Store, Target};
use plimsoll_testkit::postgres::{Postgres, Waits};
use tempfile::TempDir;

/// A database that goes when it is dropped.
pub struct Base {
    pub target: Target,
    _folder: Option<TempDir>,
    _server: Option<Arc<Postgres>>,
}

/// One server for all tests that run at a time.
static SERVER: Mutex<Weak<Postgres>> = Mutex::new(Weak::new());

impl Base {
    pub fn sqlite() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let target = Target::Sqlite(folder.path().join("not").join("there").join("measurements.db"));
        Self { target, _folder: Some(folder), _server: None }
    }

    pub fn postgres() -> Self {
        let mut shared = SERVER.lock().unwrap_or_else(PoisonError::into_inner);
        let server = shared.upgrade().unwrap_or_else(|| {
            let server = Arc::new(Postgres::start(Waits::Never).unwrap());
            *shared = Arc::downgrade(&server);
            server
        });
        let target = server.database().unwrap().parse().unwrap();
        Self { target, _folder: None, _server: Some(server) }
    }

    pub async fn open(&self) -> Store {
        Store::open(&self.target).await.unwrap()
    }
}
