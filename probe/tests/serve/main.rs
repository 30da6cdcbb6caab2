//! `plimsoll serve` with measurements, as a process: killed, on a full disk, under load, and with its companions
//! `token`, `export` and `import`.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "the helpers of a test may fail it as its own lines may")]

mod commands;
mod crash;
mod full_disk;
mod load;

use std::path::Path;

/// The program.
fn plimsoll() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_plimsoll"))
}

/// The address of a SQLite database in a folder.
fn sqlite(folder: &Path) -> String {
    format!("sqlite://{}", folder.join("measurements.db").display())
}

/// Whether SQLite finds nothing wrong with a file.
fn is_sound(path: &Path) -> bool {
    use sqlx::{Connection as _, Row as _};
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let url = format!("sqlite://{}", path.display());
        let mut connection = sqlx::SqliteConnection::connect(&url).await.unwrap();
        let rows = sqlx::query("PRAGMA integrity_check").fetch_all(&mut connection).await.unwrap();
        rows.len() == 1 && rows[0].get::<String, _>(0) == "ok"
    })
}
