//! A server that is killed under load, as often as the attack's long form asks for.

use plimsoll_testkit::kills::killed;
use plimsoll_testkit::postgres::{Postgres, Waits};

use crate::plimsoll;

const ON_SQLITE: u64 = 100;
const ON_POSTGRES: u64 = 20;

#[test]
#[ignore = "takes minutes"]
fn a_hundred_kills_on_sqlite_lose_nothing_that_was_acknowledged() {
    let folder = tempfile::tempdir().unwrap();
    let database = format!("sqlite://{}", folder.path().join("measurements.db").display());
    let acknowledged = killed(plimsoll(), &database, ON_SQLITE, || Ok(())).unwrap();
    println!("SQLite: {ON_SQLITE} kills under load, {acknowledged} uploads acknowledged, 0 lost");
}

#[test]
#[ignore = "takes minutes, and needs PostgreSQL"]
fn twenty_kills_on_postgres_lose_nothing_that_was_acknowledged() {
    let postgres = match Postgres::start(Waits::ForTheDisk) {
        Ok(postgres) => postgres,
        Err(error) => return println!("PostgreSQL: not tried: {error:#}"),
    };
    let acknowledged = killed(plimsoll(), &postgres.database().unwrap(), ON_POSTGRES, || Ok(())).unwrap();
    println!("PostgreSQL: {ON_POSTGRES} kills under load, {acknowledged} uploads acknowledged, 0 lost");
}
