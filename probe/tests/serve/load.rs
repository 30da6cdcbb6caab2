//! A short storm of 64 clients; `cargo xtask bench load` lets it last a minute and writes down what it sees.

use std::time::Duration;

use plimsoll_testkit::postgres::{Postgres, Waits};
use plimsoll_testkit::server::Server;
use plimsoll_testkit::storm::{Storm, lost};

use crate::{plimsoll, sqlite};

const STORM: Storm = Storm { clients: 64, time: Duration::from_secs(4), reads: 3, first: 0 };

#[test]
fn sqlite_weathers_64_clients() {
    let folder = tempfile::tempdir().unwrap();
    weathers(&sqlite(folder.path()));
}

#[test]
#[ignore = "needs PostgreSQL, see CONTRIBUTING.md"]
fn postgres_weathers_64_clients() {
    let postgres = Postgres::start(Waits::ForTheDisk).unwrap();
    weathers(&postgres.database().unwrap());
}

fn weathers(database: &str) {
    let server = Server::start(plimsoll(), &["--database", database, "--uploads-per-minute", "0"]).unwrap();
    let log = STORM.at(&server.address).unwrap();
    assert_eq!(log.errors, [""; 0]);
    assert_eq!(log.too_many, 0, "there is no limit");
    assert!(log.acknowledged.len() >= 64 && log.reads.len() >= 64, "{} {}", log.acknowledged.len(), log.reads.len());
    server.end().unwrap();
    let server = Server::start(plimsoll(), &["--database", database]).unwrap();
    assert_eq!(lost(&server.address, &log.acknowledged).unwrap(), [""; 0]);
    let list = server.client().unwrap().get("/api/v1/measurements?status=all&limit=1").unwrap().body;
    assert!(list.contains(&format!("\"total\":{}}}", log.acknowledged.len())), "each once: {list}");
}

#[test]
fn too_much_is_announced() {
    let folder = tempfile::tempdir().unwrap();
    let database = sqlite(folder.path());
    let server = Server::start(plimsoll(), &["--database", &database, "--uploads-per-minute", "30"]).unwrap();
    let log = Storm { clients: 16, reads: 1, ..STORM }.at(&server.address).unwrap();
    assert_eq!(log.errors, [""; 0]);
    assert!(log.too_many > 0);
    // The burst, and one more for every two seconds.
    let most = 31 + log.time.as_secs() as usize / 2 + 1;
    assert!((30..=most).contains(&log.acknowledged.len()), "{}", log.acknowledged.len());
}
