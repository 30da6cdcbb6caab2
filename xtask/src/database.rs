//! The PostgreSQL that the server is tested with: finds its programs, or installs them where that is asked for.

use std::process::Command;

use anyhow::Result;
use plimsoll_bench::postgres;

use crate::browser::may_install;
use crate::shell::{self, headline, note};

/// Finds it; with `install`, gets Debian's where this process may.
pub fn ready(install: bool) -> Result<()> {
    let mut found = postgres::programs();
    if found.is_err() && install && may_install() {
        headline("Installing PostgreSQL with apt-get: the server is tested with it");
        shell::run(Command::new("apt-get").arg("update"))?;
        let mut get = Command::new("apt-get");
        get.env("DEBIAN_FRONTEND", "noninteractive");
        shell::run(get.args(["install", "--yes", "--no-install-recommends", "postgresql"]))?;
        found = postgres::programs();
    }
    note(&format!("with the PostgreSQL in {}", found?.display()));
    Ok(())
}
