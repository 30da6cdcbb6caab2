//! What an input costs: the processor's time, and the memory of this process.

use std::time::Duration;

/// What this process has worked, on all its threads together: on a busy machine the clock on the wall says little.
#[cfg(unix)]
pub fn worked() -> Duration {
    use rustix::time::{ClockId, clock_gettime};
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Where there is no such clock, the one on the wall.
#[cfg(not(unix))]
pub fn worked() -> Duration {
    use std::sync::LazyLock;
    use std::time::Instant;
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    START.elapsed()
}

/// A figure of this process's memory, in bytes; `None` where the system does not tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// What it has now.
    Now,
    /// The most it had since [`forget_peak`].
    Peak,
    /// The most addresses it ever had, whether anything was written there or not: in the browser that is memory.
    Addresses,
}

impl Memory {
    /// Reads it (`proc_pid_status(5)`).
    pub fn read(self) -> Option<u64> {
        let name = match self {
            Self::Now => "VmRSS:",
            Self::Peak => "VmHWM:",
            Self::Addresses => "VmPeak:",
        };
        let status = std::fs::read_to_string("/proc/self/status").ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
        Some(kib << 10)
    }
}

/// The peak is what is there now (`proc_pid_clear_refs(5)`, since Linux 4.0). Where that cannot be, it stays.
pub fn forget_peak() {
    let _ = std::fs::write("/proc/self/clear_refs", "5");
}

#[cfg(all(test, target_os = "linux"))]
pub(crate) mod tests {
    use std::env;
    use std::process::Command;
    use std::sync::{Mutex, MutexGuard, PoisonError};

    use super::*;

    /// What the program takes is seen whole: no two tests that look at it, or take much, run at once.
    pub fn alone() -> MutexGuard<'static, ()> {
        static ALONE: Mutex<()> = Mutex::new(());
        ALONE.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// In a process of its own: what other tests let go of meanwhile would be missing from the peak.
    #[test]
    fn what_is_taken_is_seen_and_forgotten() {
        let mut test = Command::new(env::current_exe().unwrap());
        let said = test.args(["--exact", "watch::tests::seen_and_forgotten", "--ignored"]).output().unwrap();
        let text = String::from_utf8_lossy(&said.stdout);
        assert!(said.status.success() && text.contains("1 passed"), "{text}");
    }

    #[test]
    #[ignore = "runs in a process of its own: what_is_taken_is_seen_and_forgotten starts it"]
    fn seen_and_forgotten() {
        forget_peak();
        let before = Memory::Peak.read().unwrap();
        let taken = vec![1u8; 64 << 20];
        assert!(taken.iter().all(|byte| *byte == 1));
        assert!(Memory::Peak.read().unwrap() > before + (32 << 20));
        drop(taken);
        forget_peak();
        assert!(Memory::Peak.read().unwrap() < before + (32 << 20));
        assert!(Memory::Addresses.read() >= Memory::Peak.read() && Memory::Now.read() <= Memory::Peak.read());
    }
}
