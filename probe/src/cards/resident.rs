//! Resident memory of a process and its descendants, from the operating system.

use plimsoll_core::Bytes;

use super::Roots;

pub use platform::{PACE, Resident};

/// Linux: `/proc/PID/statm`.
#[cfg(target_os = "linux")]
mod platform {
    use std::fs::File;
    use std::os::unix::fs::FileExt;
    use std::time::{Duration, Instant};

    use super::{Bytes, Roots};
    use crate::cards::family::family;

    /// How often descendants are looked for.
    const REFRESH: Duration = Duration::from_millis(250);

    /// The fastest it is worth reading.
    pub const PACE: Duration = Duration::from_millis(1);

    /// Reads the same processes again and again. The files stay open, so a reading is one system call, and the number of a
    /// process that has ended cannot come to mean another.
    pub struct Resident {
        roots: Roots,
        pid: u32,
        files: Vec<(u32, File)>,
        /// What the descendants have, in pages, when they were last looked for.
        others: u64,
        found: Option<Instant>,
    }

    impl Resident {
        /// Of this process and its descendants.
        pub fn new(roots: Roots, pid: u32) -> Self {
            Self { roots, pid, files: Vec::new(), others: 0, found: None }
        }

        /// The process and its descendants, as of the last quarter of a second.
        pub fn pids(&mut self) -> Vec<u32> {
            if self.found.is_none_or(|at| at.elapsed() >= REFRESH) {
                let family = family(&self.roots, self.pid);
                self.files.retain(|(pid, _)| family.contains(pid));
                for pid in family {
                    if !self.files.iter().any(|(known, _)| *known == pid)
                        && let Ok(file) = File::open(self.roots.process(pid).join("statm"))
                    {
                        self.files.push((pid, file));
                    }
                }
                let others = self.files.iter().filter(|(pid, _)| *pid != self.pid).filter_map(|(_, file)| pages(file));
                self.others = others.map(|(resident, shared)| resident.saturating_sub(shared)).sum();
                self.found = Some(Instant::now());
            }
            self.files.iter().map(|(pid, _)| *pid).collect()
        }

        /// The process with all it shares, and what its descendants had, when they were last looked for, beyond shared
        /// pages (libraries, `/dev/shm`), which would count twice. `None` once the process has ended.
        pub fn read(&mut self) -> Option<Bytes> {
            self.pids();
            let page = u64::try_from(rustix::param::page_size()).ok()?;
            let (_, file) = self.files.iter().find(|(pid, _)| *pid == self.pid)?;
            let (resident, _) = pages(file)?;
            Some(Bytes::new((resident + self.others) * page))
        }
    }

    /// Second and third column of `statm`: resident pages, and those of them that files and shared memory back.
    fn pages(file: &File) -> Option<(u64, u64)> {
        let mut text = [0; 128];
        let length = file.read_at(&mut text, 0).ok()?;
        let text = str::from_utf8(text.get(..length)?).ok()?;
        let mut columns = text.split_ascii_whitespace().skip(1);
        Some((columns.next()?.parse().ok()?, columns.next()?.parse().ok()?))
    }
}

/// Elsewhere `ps` is asked, which takes some milliseconds: less often, and for the process alone.
#[cfg(not(target_os = "linux"))]
mod platform {
    use std::process::Command;
    use std::time::Duration;

    use super::{Bytes, Roots};

    /// The fastest it is worth reading.
    pub const PACE: Duration = Duration::from_millis(500);

    /// Reads the same process again and again.
    pub struct Resident {
        pid: u32,
    }

    impl Resident {
        /// Of this process.
        pub fn new(_roots: Roots, pid: u32) -> Self {
            Self { pid }
        }

        /// The process.
        pub fn pids(&mut self) -> Vec<u32> {
            vec![self.pid]
        }

        /// `None` once the process has ended, and where there is no `ps`. It answers in KiB.
        pub fn read(&mut self) -> Option<Bytes> {
            let answer = Command::new("ps").args(["-o", "rss=", "-p", &self.pid.to_string()]).output().ok()?;
            let kib: u64 = String::from_utf8_lossy(&answer.stdout).trim().parse().ok()?;
            Some(Bytes::from_kib(kib))
        }
    }
}
