//! How a worker ended, in words.

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deaths() {
        let end = |code, signal| End { code, signal, stderr: String::new() };
        assert!(death(&end(None, Some(9))).1.contains("out-of-memory killer"));
        assert!(death(&end(None, Some(11))).0.contains("SIGSEGV (signal 11)"));
        assert!(death(&end(Some(1), None)).0.contains("code 1"));
        assert!(death(&end(Some(0), None)).0.contains("without saying goodbye"));
    }
}
