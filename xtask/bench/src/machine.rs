//! In words, what was measured on.

use std::fs;
use std::process::Command;

use time::OffsetDateTime;

use crate::process::output;

/// `2 cores, AMD EPYC, Linux on x86_64`.
pub fn describe() -> String {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let plural = if cores == 1 { "core" } else { "cores" };
    let processor = processor().unwrap_or_else(|| "a processor that does not say its name".to_owned());
    let system = match std::env::consts::OS {
        "linux" => "Linux",
        "macos" => "macOS",
        "windows" => "Windows",
        other => other,
    };
    format!("{cores} {plural}, {processor}, {system} on {}", std::env::consts::ARCH)
}

fn processor() -> Option<String> {
    let linux = || {
        let text = fs::read_to_string("/proc/cpuinfo").ok()?;
        let line = text.lines().find(|line| line.starts_with("model name"))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    let mac = || output(Command::new("sysctl").args(["-n", "machdep.cpu.brand_string"])).ok();
    linux().or_else(mac).filter(|name| !name.is_empty())
}

/// What else ran on the machine before anything was timed, where it says so and it was more than a tenth of a core: the processes
/// that wanted one over the last minute (`/proc/loadavg`).
pub fn others() -> Option<String> {
    let text = fs::read_to_string("/proc/loadavg").ok()?;
    said(text.split_whitespace().next()?)
}

fn said(load: &str) -> Option<String> {
    let busy = load.parse::<f64>().ok().is_some_and(|load| load > 0.1);
    busy.then(|| {
        format!(
            "not idle: in the minute before, other work wanted {load} cores. Medians are of a machine so shared; the fastest \
             run of each case is nearer to what an idle one takes."
        )
    })
}

/// The compiler's version and Node's.
pub fn versions() -> String {
    let of = |program: &str| output(Command::new(program).arg("--version"));
    let rustc = of("rustc").unwrap_or_else(|_| "an unknown rustc".to_owned());
    let rustc = rustc.split(" (").next().unwrap_or_default().to_owned();
    let node = of("node").unwrap_or_else(|_| "unknown".to_owned());
    format!("plimsoll {}, {rustc}, Node {}", env!("CARGO_PKG_VERSION"), node.trim_start_matches('v'))
}

/// Today in UTC, `2026-11-20`.
pub fn date() -> String {
    OffsetDateTime::now_utc().date().to_string()
}

#[cfg(test)]
mod tests {
    use super::said;

    #[test]
    fn a_busy_machine_is_said_to_be_busy() {
        assert!(said("13.20").is_some_and(|text| text.contains("13.20 cores")));
        assert_eq!((said("0.04"), said("?")), (None, None));
    }
}
