//! How far a session is, on standard error.

use crate::session::{Update, Watcher};

/// Shows a session while it runs.
#[derive(Debug, Default)]
pub struct Progress;

impl Progress {
    /// For this process's standard error.
    pub fn new() -> Self {
        Self
    }
}

impl Watcher for Progress {
    fn see(&mut self, update: &Update<'_>) {
        if let Update::Event(event) = update {
            eprintln!("{}", event.message);
        }
    }
}
