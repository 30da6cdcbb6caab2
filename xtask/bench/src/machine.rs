//! In words, what was measured on.

use std::{
    fs,
    process::Command,
    time::{SystemTime, UNIX_EPOCH},
};

use crate::shell;

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
    let mac = || shell::output(Command::new("sysctl").args(["-n", "machdep.cpu.brand_string"]));
    linux().or_else(mac).filter(|name| !name.is_empty())
}

/// The compiler's version and Node's.
pub fn versions() -> String {
    let of = |program: &str| shell::output(Command::new(program).arg("--version"));
    let rustc = of("rustc").unwrap_or_else(|| "an unknown rustc".to_owned());
    let rustc = rustc.split(" (").next().unwrap_or_default().to_owned();
    let node = of("node").unwrap_or_else(|| "unknown".to_owned());
    format!("plimsoll {}, {rustc}, Node {}", env!("CARGO_PKG_VERSION"), node.trim_start_matches('v'))
}

/// Today in UTC, `2026-11-20`.
pub fn date() -> String {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    civil(seconds / 86_400)
}

/// The calendar date of a day counted from 1970-01-01; H. Hinnant, "chrono-Compatible Low-Level Date Algorithms".
fn civil(days: u64) -> String {
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_become_dates() {
        for (days, date) in [(0, "1970-01-01"), (11_016, "2000-02-29"), (20_454, "2026-01-01"), (47_540, "2100-02-28")]
        {
            assert_eq!(civil(days), date);
        }
        assert_eq!(civil(47_541), "2100-03-01");
    }
}
