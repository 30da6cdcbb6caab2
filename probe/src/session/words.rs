//! How a worker ended, in words, and the day.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::worker::End;

/// How a worker ended that should not have: what happened, and what to do.
pub fn death(end: &End) -> (String, String) {
    match (end.signal, end.code) {
        (Some(9), _) => (
            "the worker was killed by SIGKILL (signal 9)".to_owned(),
            "most often that is the kernel's out-of-memory killer: the machine's own memory ran out; close programs or \
             take a smaller model"
                .to_owned(),
        ),
        (Some(signal), _) => (
            format!("the worker was ended by {} (signal {signal})", signal_name(signal)),
            "the end of its standard error may say why".to_owned(),
        ),
        (None, Some(0)) => (
            "the worker ended without saying goodbye".to_owned(),
            "something in Python ended the process; the end of its standard error may say what".to_owned(),
        ),
        (None, Some(code)) => (
            format!("the worker ended with code {code}"),
            "the end of its standard error may say why".to_owned(),
        ),
        (None, None) => ("the worker is gone".to_owned(), "run it again".to_owned()),
    }
}

/// POSIX' numbers where all systems agree on them.
const fn signal_name(signal: i32) -> &'static str {
    match signal {
        1 => "SIGHUP",
        2 => "SIGINT",
        3 => "SIGQUIT",
        4 => "SIGILL",
        6 => "SIGABRT",
        8 => "SIGFPE",
        9 => "SIGKILL",
        11 => "SIGSEGV",
        13 => "SIGPIPE",
        15 => "SIGTERM",
        _ => "a signal",
    }
}

/// Today, UTC: `2026-11-20`.
pub fn today() -> String {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map(|d| d.as_secs()).unwrap_or_default();
    date(seconds / 86_400)
}

/// The date of a day counted from 1970-01-01, by the usual arithmetic of the Gregorian calendar: years that begin in March.
fn date(days: u64) -> String {
    let z = days + 719_468;
    let (era, day_of_era) = (z / 146_097, z % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    format!("{year}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days() {
        assert_eq!(date(0), "1970-01-01");
        assert_eq!(date(19_782), "2024-02-29");
        assert_eq!(date(20_777), "2026-11-20");
        assert_eq!(date(10_956), "1999-12-31");
    }

    #[test]
    fn deaths() {
        let end = |code, signal| End { code, signal, stderr: String::new() };
        assert!(death(&end(None, Some(9))).1.contains("out-of-memory killer"));
        assert!(death(&end(None, Some(11))).0.contains("SIGSEGV (signal 11)"));
        assert!(death(&end(Some(1), None)).0.contains("code 1"));
        assert!(death(&end(Some(0), None)).0.contains("without saying goodbye"));
    }
}
