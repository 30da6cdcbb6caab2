//! The PostgreSQL that the server is tested with: finds its programs, or installs them where that is asked for.

use std::env;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::browser::may_install;
use crate::shell::{self, headline};

/// Tells the tests in which folder `initdb`, `postgres` and `createdb` are.
const NAMED: &str = "PLIMSOLL_TEST_POSTGRES_BIN";

/// Where systems keep them when they are not in PATH, and in which folder of each entry there.
const PLACES: [(&str, &str); 2] = [("/usr/lib/postgresql", "bin"), ("/opt/homebrew/opt", "bin")];

/// Tells a command where they are.
pub fn find(command: &mut Command) -> Result<PathBuf> {
    let found = programs()?;
    command.env(NAMED, &found);
    Ok(found)
}

/// Gets Debian's where there are none and this process may.
pub fn install() -> Result<()> {
    if programs().is_err() && may_install() {
        headline("Installing PostgreSQL with apt-get: the server is tested with it");
        shell::run(Command::new("apt-get").arg("update"))?;
        let mut get = Command::new("apt-get");
        get.env("DEBIAN_FRONTEND", "noninteractive");
        shell::run(get.args(["install", "--yes", "--no-install-recommends", "postgresql"]))?;
    }
    Ok(())
}

/// The folder that is named, one in PATH, or the newest where systems keep them.
fn programs() -> Result<PathBuf> {
    let named = env::var_os(NAMED).filter(|value| !value.is_empty()).map(PathBuf::from);
    let mut folders: Vec<PathBuf> = named.into_iter().collect();
    folders.extend(env::split_paths(&env::var_os("PATH").unwrap_or_default()));
    for (place, within) in PLACES {
        let Ok(entries) = fs::read_dir(place) else { continue };
        let mut versions: Vec<PathBuf> = entries.flatten().map(|entry| entry.path().join(within)).collect();
        versions.sort();
        folders.extend(versions.into_iter().rev());
    }
    let found = folders.into_iter().find(|folder| folder.join("initdb").is_file() && folder.join("postgres").is_file());
    found.with_context(|| {
        format!(
            "PostgreSQL is not installed: install it (Debian, Ubuntu: `apt-get install postgresql`), or name the folder \
             of initdb and postgres with {NAMED}"
        )
    })
}
