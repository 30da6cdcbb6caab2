//! Ctrl-C and SIGTERM: the first asks, the second leaves at once. Neither leaves a worker behind.

use std::path::PathBuf;
use std::process;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::exit::{self, Failure};
use crate::{signals, worker};

static INSTALLED: AtomicBool = AtomicBool::new(false);
static ASKED: AtomicBool = AtomicBool::new(false);
static RUNNING: Mutex<Option<Running>> = Mutex::new(None);

/// What must not outlive this process.
#[derive(Debug)]
pub struct Running {
    /// The worker's process, which leads a group of its own.
    pub pid: u32,
    /// The folder that was made for it.
    pub folder: PathBuf,
}

/// Handles the signals from now on. Asking twice is asking once.
pub fn install() -> Result<(), Failure> {
    if INSTALLED.swap(true, Ordering::SeqCst) {
        return Ok(());
    }
    signals::listen(handle).map_err(|error| Failure::Environment {
        problem: format!("cannot listen for Ctrl-C: {error}"),
        hint: "end some other processes".to_owned(),
    })
}

/// Whether somebody asked to stop.
pub fn asked() -> bool {
    ASKED.load(Ordering::SeqCst)
}

/// Says what runs now; `None` once it is gone.
pub fn running(what: Option<Running>) {
    if let Ok(mut running) = RUNNING.lock() {
        *running = what;
    }
}

/// Runs in a thread of its own, not within the signal.
fn handle() {
    if !ASKED.swap(true, Ordering::SeqCst) {
        return;
    }
    if let Ok(Some(running)) = RUNNING.lock().map(|mut running| running.take()) {
        worker::kill(running.pid);
        // Nobody is left to tell when it cannot be removed.
        let _ = std::fs::remove_dir_all(&running.folder);
    }
    process::exit(i32::from(exit::INTERRUPTED));
}
