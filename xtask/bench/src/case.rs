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
    let timing = time(case, || start.elapsed().as_secs_f64() * 1e3)?;
    println!("{}", line(case, &timing, peak_memory().unwrap_or(0)));
    Ok(())
}

/// The most memory this process ever had resident, in bytes, as Linux counts it.
fn peak_memory() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let kib = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?.trim().trim_end_matches(" kB");
    kib.trim().parse::<u64>().ok().map(|kib| kib * 1024)
}
