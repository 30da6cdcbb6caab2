//! Killed in the middle of a storm of uploads, again and again: what was acknowledged is there.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

use plimsoll_testkit::postgres::{Postgres, Waits};
use plimsoll_testkit::server::Server;
use plimsoll_testkit::storm::{Storm, lost};

use crate::{is_sound, plimsoll, sqlite};

/// How often it is killed.
const KILLS: u64 = 20;

/// Uploads at a time.
const CLIENTS: usize = 16;

#[test]
fn sqlite_loses_nothing_that_was_acknowledged() {
    let folder = tempfile::tempdir().unwrap();
    let database = sqlite(folder.path());
    let acknowledged = killed(&database, || assert!(is_sound(&folder.path().join("measurements.db"))));
    println!("{acknowledged} acknowledged uploads over {KILLS} kills, none lost");
}

#[test]
#[ignore = "needs PostgreSQL, see CONTRIBUTING.md"]
fn postgres_loses_nothing_that_was_acknowledged() {
    let postgres = Postgres::start(Waits::ForTheDisk).unwrap();
    let acknowledged = killed(&postgres.database().unwrap(), || {});
    println!("{acknowledged} acknowledged uploads over {KILLS} kills, none lost");
}

/// Kills a server [`KILLS`] times and looks for what it acknowledged in the next one; how much that was.
fn killed(database: &str, check: impl Fn()) -> usize {
    let arguments = ["--database", database, "--uploads-per-minute", "0"];
    let mut acknowledged = Vec::new();
    for round in 0..KILLS {
        let server = Server::start(plimsoll(), &arguments).unwrap();
        // What was acknowledged before the last kill is here, every single one.
        assert_eq!(lost(&server.address, &acknowledged).unwrap(), [""; 0], "after kill {round}");
        let storm = Storm { clients: CLIENTS, time: Duration::from_secs(60), reads: 0, first: round * 1_000_000 };
        let count = AtomicU64::new(0);
        let address = server.address.clone();
        let log = scope(|threads| {
            let storming = threads.spawn(|| storm.counted(&address, &count).unwrap());
            let start = Instant::now();
            while count.load(Ordering::Relaxed) < 5 {
                assert!(start.elapsed() < Duration::from_secs(50), "nothing is acknowledged");
                sleep(Duration::from_millis(1));
            }
            // At ever other moments of its work.
            sleep(Duration::from_micros(round * 13_337));
            server.kill().unwrap();
            storming.join().unwrap()
        });
        // Every connection broke off: the kill met them all at work.
        assert_eq!(log.errors.len(), CLIENTS, "{:?}", log.errors);
        assert!(log.acknowledged.len() >= 5);
        check();
        // What came earlier was looked for then; a sample of it is looked for again at the end.
        acknowledged.extend(log.acknowledged);
    }
    let server = Server::start(plimsoll(), &arguments).unwrap();
    assert_eq!(lost(&server.address, &acknowledged).unwrap(), [""; 0]);
    server.end().unwrap();
    check();
    acknowledged.len()
}
