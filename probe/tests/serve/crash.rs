//! Killed in the middle of a storm of uploads, again and again: what was acknowledged is there.

use plimsoll_testkit::kills::killed;
use plimsoll_testkit::postgres::{Postgres, Waits};

use crate::{is_sound, plimsoll, sqlite};

/// How often it is killed; `cargo xtask attack` does it more often.
const KILLS: u64 = 20;

#[test]
fn sqlite_loses_nothing_that_was_acknowledged() {
    let folder = tempfile::tempdir().unwrap();
    let check = || {
        assert!(is_sound(&folder.path().join("measurements.db")));
        Ok(())
    };
    let acknowledged = killed(plimsoll(), &sqlite(folder.path()), KILLS, check).unwrap();
    println!("{acknowledged} acknowledged uploads over {KILLS} kills, none lost");
}

#[test]
#[ignore = "needs PostgreSQL, see CONTRIBUTING.md"]
fn postgres_loses_nothing_that_was_acknowledged() {
    let postgres = Postgres::start(Waits::ForTheDisk).unwrap();
    let acknowledged = killed(plimsoll(), &postgres.database().unwrap(), KILLS, || Ok(())).unwrap();
    println!("{acknowledged} acknowledged uploads over {KILLS} kills, none lost");
}
