//! What the processors have worked for this program.

use std::fs;
use std::time::Duration;

/// The time of all programs that it started and that have ended, as Linux counts it; elsewhere unknown.
pub fn used() -> Option<Duration> {
    children(&fs::read_to_string("/proc/self/stat").ok()?)
}

/// Fields 16 and 17 of proc_pid_stat(5), in hundredths of a second: the kernel's USER_HZ is 100 on every architecture that
/// Rust has a compiler for.
fn children(stat: &str) -> Option<Duration> {
    // The second field is a name in brackets, and may hold anything.
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace().skip(13);
    let mut ticks = || fields.next()?.parse::<u64>().ok();
    Some(Duration::from_millis(10 * (ticks()? + ticks()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_times_of_what_was_started_are_summed() {
        let stat = "1 (a) b) S 0 1 1 0 -1 4194560 5032 101 1 2 30 40 250 50 20 0 1 0 3 4 5 6";
        assert_eq!(children(stat), Some(Duration::from_secs(3)));
        assert_eq!(children("nonsense"), None);
        assert_eq!(used().is_some(), cfg!(target_os = "linux"));
    }
}
