//! What the processes of one rehearsal hold of each card: a file a process, in a folder that all of them see. So a card is
//! shared as a real one is: it is full for all when it is full, and NVML tells of every process.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

/// Bytes of one entry, a card each.
const ENTRY: u64 = 8;

/// A process that holds something of a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Holder {
    /// Which.
    pub pid: u32,
    /// How many bytes.
    pub used: u64,
}

/// The folder, and this process's file in it once it holds something.
#[derive(Debug)]
pub(super) struct Book {
    folder: Option<PathBuf>,
    own: OnceLock<Option<(u32, File)>>,
}

impl Book {
    /// In `folder`; without one every process has cards of its own.
    pub(super) fn new(folder: Option<PathBuf>) -> Arc<Self> {
        Arc::new(Self { folder, own: OnceLock::new() })
    }

    /// This process holds `used` bytes of a card from now on.
    pub(super) fn note(&self, card: usize, used: u64) {
        let Some(folder) = &self.folder else { return };
        let own = self.own.get_or_init(|| {
            let pid = std::process::id();
            let name = format!("{pid}-{}", began(pid)?);
            let file = File::options().write(true).create(true).truncate(true).open(folder.join(name));
            file.ok().map(|file| (pid, file))
        });
        // A child that was forked holds nothing: CUDA does not outlive a fork.
        if let Some((pid, file)) = own.as_ref().filter(|(pid, _)| *pid == std::process::id()) {
            debug_assert_eq!(*pid, std::process::id());
            // A disk that is full makes this process invisible to the others, and nothing else.
            let _ = file.write_all_at(&used.to_le_bytes(), card as u64 * ENTRY);
        }
    }

    /// The other processes that hold something of a card.
    pub(super) fn others(&self, card: usize) -> Vec<Holder> {
        let Some(entries) = self.folder.as_deref().and_then(|folder| fs::read_dir(folder).ok()) else {
            return Vec::new();
        };
        let mut holders: Vec<Holder> = entries.flatten().filter_map(|entry| holder(&entry.path(), card)).collect();
        holders.retain(|holder| holder.pid != std::process::id() && holder.used > 0);
        holders.sort_by_key(|holder| holder.pid);
        holders
    }

    /// What they hold together.
    pub(super) fn taken_by_others(&self, card: usize) -> u64 {
        self.others(card).iter().fold(0, |sum, holder| sum.saturating_add(holder.used))
    }
}

/// Reads one file; that of a process that is gone is removed: its memory went with it.
fn holder(path: &Path, card: usize) -> Option<Holder> {
    let (pid, since) = path.file_name()?.to_str()?.split_once('-')?;
    let (pid, since): (u32, u64) = (pid.parse().ok()?, since.parse().ok()?);
    if began(pid) != Some(since) {
        // Another may have removed it, which is as good.
        let _ = fs::remove_file(path);
        return None;
    }
    let mut bytes = [0; ENTRY as usize];
    File::open(path).ok()?.read_exact_at(&mut bytes, card as u64 * ENTRY).ok()?;
    Some(Holder { pid, used: u64::from_le_bytes(bytes) })
}

/// When a process began, in clock ticks since the system did: with its number it tells it from every other. `None` when
/// it is gone, or only waits to be asked for its exit code (`proc_pid_stat(5)`, fields 3 and 22).
fn began(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is a name in brackets, and may hold anything.
    let (_, rest) = stat.rsplit_once(") ")?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    if matches!(fields.first(), Some(&"Z" | &"X")) {
        return None;
    }
    fields.get(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_are_seen_and_the_dead_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let book = Book::new(Some(folder.path().to_owned()));
        book.note(1, 7 << 20);
        assert_eq!(book.others(1), [], "nobody is another to itself");
        // Who reads this is another process: the first one, which runs as long as the system does.
        let init = began(1).unwrap();
        fs::write(folder.path().join(format!("1-{init}")), [0_u64, 5 << 20].map(u64::to_le_bytes).concat()).unwrap();
        fs::write(folder.path().join(format!("1-{}", init + 1)), (9_u64 << 20).to_le_bytes()).unwrap();
        fs::write(folder.path().join("notes.txt"), "x").unwrap();
        assert_eq!(book.others(1), [Holder { pid: 1, used: 5 << 20 }]);
        assert_eq!((book.taken_by_others(0), book.taken_by_others(1), book.taken_by_others(2)), (0, 5 << 20, 0));
        assert!(!folder.path().join(format!("1-{}", init + 1)).exists(), "another had that number");
        assert_eq!(Book::new(None).others(0), []);
    }
}
