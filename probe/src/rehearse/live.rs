//! How deep it sits while it runs: a line now and then, where somebody looks on.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use plimsoll_core::Bytes;
use serde::Deserialize;

use super::peaks::Moment;

/// How often what the processes leave is looked at.
const TICK: Duration = Duration::from_millis(250);
/// Lines come at most this often.
const EVERY: Duration = Duration::from_secs(2);

/// What a process holds of a card now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
struct Now {
    device: u32,
    allocated: Bytes,
    reserved: Bytes,
    at: Moment,
}

/// Somebody who looks on, until it is dropped.
#[derive(Debug)]
pub struct Live {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Live {
    /// Tells what the processes of `folder` hold, against the load line.
    pub fn start(folder: PathBuf, context: Bytes, load_line: Bytes) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&over);
        let look = move || {
            let (mut told, mut before) = (Instant::now(), BTreeMap::new());
            while !stop.load(Ordering::Relaxed) {
                thread::sleep(TICK);
                if told.elapsed() >= EVERY {
                    let now = read(&folder);
                    for (process, now) in now.iter().filter(|(process, now)| before.get(*process) != Some(*now)) {
                        eprintln!("{}", line(process, now, context, load_line));
                        told = Instant::now();
                    }
                    before = now;
                }
            }
        };
        Self { over, thread: thread::Builder::new().name("live".to_owned()).spawn(look).ok() }
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It only told; what it could not tell stands below.
            let _ = thread.join();
        }
    }
}

/// What each process left last, by its number.
fn read(folder: &Path) -> BTreeMap<String, Now> {
    let Ok(entries) = fs::read_dir(folder) else { return BTreeMap::new() };
    let now = entries.flatten().map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|e| e == "now"));
    let each = |path: PathBuf| {
        let process = path.file_stem()?.to_string_lossy().split('-').next()?.to_owned();
        let now: Now = serde_json::from_slice(&fs::read(&path).ok()?).ok()?;
        // A process that does not use a card says so of it too.
        (!now.reserved.is_zero()).then(|| (format!("process {process}, card {}", now.device), now))
    };
    now.filter_map(each).collect()
}

fn line(who: &str, now: &Now, context: Bytes, load_line: Bytes) -> String {
    let process = now.reserved + context;
    let Now { allocated, reserved, at, .. } = now;
    format!("{who}: allocated {allocated}, reserved {reserved}, process {process} of {load_line}, {}", at.text())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_process_left_is_a_line() {
        let folder = tempfile::tempdir().unwrap();
        let left = r#"{"allocated": 1048576, "reserved": 2097152, "device": 1, "at": ["backward", 3]}"#;
        fs::write(folder.path().join("42-1.now"), left).unwrap();
        fs::write(folder.path().join("42-0.now"), left.replace("2097152", "0")).unwrap();
        fs::write(folder.path().join("43-0.now"), "{").unwrap();
        let now = read(folder.path());
        assert_eq!(now.len(), 1, "{now:?}");
        let (who, now) = now.iter().next().unwrap();
        assert_eq!(
            line(who, now, Bytes::from_mib(100), Bytes::from_gib(8)),
            "process 42, card 1: allocated 1.0 MiB, reserved 2.0 MiB, process 102.0 MiB of 8.00 GiB, in the backward of step 3"
        );
    }
}
