//! A server that is killed in the middle of a storm of uploads, again and again: what it acknowledged is there.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::server::Server;
use crate::storm::{Storm, lost};

/// Uploads at a time.
const CLIENTS: usize = 16;

/// Uploads that are acknowledged before it is killed, at least.
const FIRST: u64 = 5;

/// How long that may take on a machine that is busy with other work.
const PATIENCE: Duration = Duration::from_secs(50);

/// Moments after that at which it is killed, in turn: each a little later than the one before.
const MOMENTS: u64 = 32;
const APART: Duration = Duration::from_micros(13_337);

/// Kills a server on this database so many times, and looks for what it acknowledged in the next one; how much that was.
/// `check` runs after each kill, while nobody has the database open.
///
/// # Errors
/// Something that was acknowledged is lost, or the server does not start or work.
pub fn killed(plimsoll: &Path, database: &str, kills: u64, check: impl Fn() -> Result<()>) -> Result<usize> {
    let arguments = ["--database", database, "--uploads-per-minute", "0"];
    let (mut acknowledged, mut last) = (Vec::<String>::new(), 0);
    let found = |server: &Server, acknowledged: &[String], round: u64| {
        let lost = lost(&server.address, acknowledged)?;
        ensure!(lost.is_empty(), "after {round} kills {} of {} are lost: {lost:?}", lost.len(), acknowledged.len());
        Ok(())
    };
    for round in 0..kills {
        let server = Server::start(plimsoll, &arguments)?;
        // What was acknowledged before the last kill is here, every single one; all of it is looked for at the end.
        found(&server, acknowledged.get(last..).unwrap_or_default(), round)?;
        last = acknowledged.len();
        let storm = Storm { clients: CLIENTS, time: Duration::from_secs(60), reads: 0, first: round * 1_000_000 };
        let count = AtomicU64::new(0);
        let address = server.address.clone();
        let log = scope(|threads| {
            let storming = threads.spawn(|| storm.counted(&address, &count));
            let start = Instant::now();
            while count.load(Ordering::Relaxed) < FIRST && start.elapsed() < PATIENCE {
                sleep(Duration::from_millis(1));
            }
            // At ever other moments of its work.
            sleep(APART * u32::try_from(round % MOMENTS).unwrap_or(0));
            server.kill()?;
            storming.join().unwrap_or_else(|_| Err(anyhow::anyhow!("a client panicked")))
        })?;
        // Every connection broke off: the kill met them all at work.
        ensure!(log.errors.len() == CLIENTS, "{:?}", log.errors);
        ensure!(log.acknowledged.len() as u64 >= FIRST, "nothing is acknowledged");
        check()?;
        acknowledged.extend(log.acknowledged);
    }
    let server = Server::start(plimsoll, &arguments)?;
    found(&server, &acknowledged, kills)?;
    server.end()?;
    check()?;
    Ok(acknowledged.len())
}
