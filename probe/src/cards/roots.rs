//! Where the kernel's files are.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

/// The roots of sysfs and procfs: `/sys` and `/proc`.
///
/// For tests the environment puts other directories in their place: `PLIMSOLL_SYSFS` and `PLIMSOLL_PROCFS`. With
/// `PLIMSOLL_SYSFS` set the given tree is all there is: NVML is not asked.
#[derive(Clone, Debug)]
pub struct Roots {
    sys: PathBuf,
    proc: PathBuf,
    substituted: bool,
}

impl Roots {
    /// The real ones, or those of the environment.
    pub fn from_env() -> Self {
        Self::new(std::env::var_os("PLIMSOLL_SYSFS"), std::env::var_os("PLIMSOLL_PROCFS"))
    }

    fn new(sys: Option<OsString>, proc: Option<OsString>) -> Self {
        let substituted = sys.is_some();
        let path = |given: Option<OsString>, usual: &str| given.map_or_else(|| PathBuf::from(usual), PathBuf::from);
        Self { sys: path(sys, "/sys"), proc: path(proc, "/proc"), substituted }
    }

    /// Trees of a test.
    #[cfg(test)]
    pub fn at(sys: &Path, proc: &Path) -> Self {
        Self::new(Some(sys.into()), Some(proc.into()))
    }

    /// Whether sysfs is not the machine's own.
    pub const fn substituted(&self) -> bool {
        self.substituted
    }

    /// A path below sysfs.
    pub fn sys(&self, path: impl AsRef<Path>) -> PathBuf {
        self.sys.join(path)
    }

    /// A path below procfs.
    pub fn proc(&self, path: impl AsRef<Path>) -> PathBuf {
        self.proc.join(path)
    }

    /// The directory of a process.
    pub fn process(&self, pid: u32) -> PathBuf {
        self.proc.join(pid.to_string())
    }
}

/// The file's text without the line's end; `None` when it cannot be read.
pub fn text(path: &Path) -> Option<String> {
    Some(String::from_utf8_lossy(&fs::read(path).ok()?).trim().to_owned())
}

/// The number in a file; `None` when there is none.
pub fn number(path: &Path) -> Option<u64> {
    text(path)?.parse().ok()
}

/// The entries of a directory by name; none when it cannot be read.
pub fn entries(directory: &Path) -> Vec<PathBuf> {
    let mut entries: Vec<PathBuf> = fs::read_dir(directory).into_iter().flatten().flatten().map(|e| e.path()).collect();
    entries.sort();
    entries
}
