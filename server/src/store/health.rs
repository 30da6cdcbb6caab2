//! Whether the database is still the one that was opened, and whether it is sound: an upload is acknowledged only while
//! both hold.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::StoreError;

/// What is known of the database besides its content.
#[derive(Debug, Default)]
pub(super) struct Health {
    /// The files of an SQLite database.
    files: Option<Files>,
    /// What was found wrong and does not go away by itself.
    trouble: Mutex<Option<StoreError>>,
}

/// An SQLite database's file, and the log beside it. Moved or deleted, both live on for whoever has them open; what is
/// written then is gone with the process.
#[derive(Debug)]
struct Files {
    path: PathBuf,
    log_path: PathBuf,
    file: Option<Identity>,
    /// The log that the writing connection has open; `None` until it has one.
    log: Mutex<Option<Identity>>,
}

/// What tells two files apart whatever they are called: device and number.
type Identity = (u64, u64);

#[cfg(unix)]
fn identity(path: &Path) -> Option<Identity> {
    use std::os::unix::fs::MetadataExt as _;
    fs::metadata(path).ok().map(|found| (found.dev(), found.ino()))
}

/// Files that are open can be neither moved nor deleted here.
#[cfg(not(unix))]
fn identity(path: &Path) -> Option<Identity> {
    fs::metadata(path).ok().map(|_| (0, 0))
}

impl Health {
    /// Of an SQLite database that was just opened.
    pub(super) fn of_file(path: &Path) -> Self {
        let mut log_path = path.as_os_str().to_owned();
        log_path.push("-wal");
        let files =
            Files { file: identity(path), path: path.to_owned(), log_path: log_path.into(), log: Mutex::default() };
        Self { files: Some(files), trouble: Mutex::default() }
    }

    /// Whether what is written now will be found again.
    ///
    /// # Errors
    /// What is wrong.
    pub(super) fn check(&self) -> Result<(), StoreError> {
        let trouble = self.trouble().clone();
        if let Some(trouble) = trouble {
            return Err(trouble);
        }
        match &self.files {
            Some(files) if identity(&files.path) != files.file => Err(files.gone(&files.path)),
            _ => Ok(()),
        }
    }

    /// The writing connection has begun: it has the log open that stands there now, unless it had one before.
    pub(super) fn begun(&self) -> Result<(), StoreError> {
        self.check()?;
        let Some(files) = &self.files else { return Ok(()) };
        let found = identity(&files.log_path);
        let mut known = files.log.lock().unwrap_or_else(PoisonError::into_inner);
        match *known {
            Some(known) if found != Some(known) => {
                let gone = files.gone(&files.log_path);
                // What went into the old log is lost to whoever opens the file anew: that does not pass.
                self.remember(&gone);
                Err(gone)
            }
            Some(_) => Ok(()),
            None => {
                *known = found;
                Ok(())
            }
        }
    }

    /// The writing connection was let go of: the next opens the log anew.
    pub(super) fn let_go(&self) {
        if let Some(files) = &self.files {
            *files.log.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
    }

    /// Notes an error that says more than that one thing could not be done. A file that was taken away may be put back.
    pub(super) fn found(&self, error: &StoreError) {
        if matches!(error, StoreError::Damaged(_)) {
            self.remember(error);
        }
    }

    fn remember(&self, error: &StoreError) {
        let mut trouble = self.trouble();
        if trouble.is_none() {
            eprintln!("plimsoll serve: {error}; {}", error.hint());
            *trouble = Some(error.clone());
        }
    }

    fn trouble(&self) -> MutexGuard<'_, Option<StoreError>> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Files {
    fn gone(&self, path: &Path) -> StoreError {
        StoreError::Gone(path.display().to_string())
    }
}
