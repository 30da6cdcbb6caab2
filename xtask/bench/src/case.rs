//! Times one case natively, in a process of its own, so that its memory is that of one estimate.

use std::{fs, time::Instant};

use anyhow::{Context as _, Result};
use plimsoll_bench::{CASES, line, time};

/// Prints the result line of a case.
///
/// # Errors
/// There is no such case, or its estimate is refused.
pub fn run(id: &str) -> Result<()> {
    let case = CASES.iter().find(|case| case.id == id).with_context(|| format!("there is no case `{id}`"))?;
    let start = Instant::now();
    let timing = time(case, || start.elapsed().as_secs_f64() * 1e3, || processor_time().unwrap_or(0.0))?;
    println!("{}", line(case, &timing, peak_memory().unwrap_or(0)));
    Ok(())
}

/// The processor time of all threads that this process had, in milliseconds, as Linux counts it: in hundredths of a second
/// (`utime` and `stime` of proc_pid_stat(5), in units of `USER_HZ`).
fn processor_time() -> Option<f64> {
    const MILLISECONDS: f64 = 10.0;
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // The name of the program, which may hold anything, ends with the last parenthesis.
    let (_, rest) = stat.rsplit_once(')')?;
    let mut ticks = rest.split_whitespace().skip(11).take(2).map(|word| word.parse::<f64>().ok());
    Some((ticks.next()?? + ticks.next()??) * MILLISECONDS)
}

/// The most memory this process ever had resident, in bytes, as Linux counts it.
fn peak_memory() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let kib = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?.trim().trim_end_matches(" kB");
    kib.trim().parse::<u64>().ok().map(|kib| kib * 1024)
}
