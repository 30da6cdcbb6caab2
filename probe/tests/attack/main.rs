//! What was tried against Plimsoll, tried again: this machine only, and for a bounded time. The short form runs with the
//! other tests; the long one is ignored and takes minutes (`cargo xtask attack`).
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "the helpers of a test may fail it as its own lines may")]

mod crowd;
mod heavy;
mod kills;
mod names;
mod strangers;
mod terminal;

use std::path::Path;

use plimsoll_testkit::server::Server;

/// The program.
fn plimsoll() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_plimsoll"))
}

/// A server with an empty database of its own.
fn server(folder: &Path) -> Server {
    let database = format!("sqlite://{}", folder.join("measurements.db").display());
    Server::start(plimsoll(), &["--database", &database, "--uploads-per-minute", "0"]).unwrap()
}
