//! How the process ends: exit codes, and errors in words.

use std::fmt;
use std::io;
use std::process::ExitCode;

use plimsoll_core::{Error, shown};

use crate::view::Paint;

/// The run fits (tight counts: it runs), or the command simply did its work.
pub const OK: u8 = 0;
/// The run does not fit.
pub const DOES_NOT_FIT: u8 = 1;
/// Wrong usage, or a scenario that cannot be estimated.
pub const BAD_SCENARIO: u8 = 2;
/// Something outside: a file that cannot be read, an output that cannot be written.
pub const ENVIRONMENT: u8 = 3;
/// Ctrl-C or SIGTERM, as shells count it: 128 and SIGINT's number.
pub const INTERRUPTED: u8 = 130;

/// Why a command could not do its work.
#[derive(Debug)]
pub enum Failure {
    /// The scenario is wrong.
    Scenario {
        /// The file it came from, when it came from one.
        place: Option<String>,
        /// What is wrong with it.
        error: Error,
    },
    /// The world is: what happened, and what to do.
    Environment {
        /// What happened.
        problem: String,
        /// What to do about it.
        hint: String,
    },
    /// Stopped by Ctrl-C or SIGTERM before there was anything to keep.
    Interrupted,
    /// Standard output was closed; whoever closed it has what he wants.
    Closed,
}

impl Failure {
    /// What happened, without what to do.
    pub fn problem(&self) -> String {
        match self {
            Self::Scenario { error, .. } => format!("{}: {}", error.key, error.problem),
            Self::Environment { problem, .. } => problem.clone(),
            Self::Interrupted => "stopped".to_owned(),
            Self::Closed => "standard output was closed".to_owned(),
        }
    }

    /// The file a scenario's error came from.
    pub fn in_file(self, name: &str) -> Self {
        match self {
            Self::Scenario { place: None, error } => Self::Scenario { place: Some(name.to_owned()), error },
            other => other,
        }
    }
}

/// In one line, for lists of what went wrong.
impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Scenario { error, .. } => error.fmt(f),
            Self::Environment { problem, hint } if hint.is_empty() => f.write_str(problem),
            Self::Environment { problem, hint } => write!(f, "{problem}; {hint}"),
            Self::Interrupted => f.write_str("stopped"),
            Self::Closed => f.write_str("nobody reads the output"),
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Scenario { place: None, error }
    }
}

/// Only for writing to standard output.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::Closed,
            _ => Self::Environment {
                problem: format!("cannot write the answer: {error}"),
                hint: "check where standard output goes".to_owned(),
            },
        }
    }
}

/// Prints the failure, if it is one, and ends the process with its code.
pub fn code(outcome: Result<u8, Failure>) -> ExitCode {
    let (code, message) = match outcome {
        Ok(code) => (code, None),
        Err(Failure::Closed) => (OK, None),
        Err(Failure::Interrupted) => {
            (INTERRUPTED, Some(("stopped:".to_owned(), "nothing was measured yet".to_owned(), String::new())))
        }
        Err(Failure::Scenario { place, error }) => {
            let place = place.map(|p| format!(" in {p}")).unwrap_or_default();
            (BAD_SCENARIO, Some((format!("error{place}:"), format!("{}: {}", error.key, error.problem), error.hint)))
        }
        Err(Failure::Environment { problem, hint }) => (ENVIRONMENT, Some(("error:".to_owned(), problem, hint))),
    };
    if let Some((label, problem, hint)) = message {
        let paint = Paint::for_stderr();
        // Names of files and arguments are other people's: what would command the terminal is written out.
        let mut text = format!("{} {}\n", paint.signal(&shown(&label)), shown(&problem));
        if !hint.is_empty() {
            text.push_str(&format!("{} {}\n", paint.strong("hint:"), shown(&hint)));
        }
        // Nobody is left to tell when standard error is gone too.
        let _ = io::Write::write_all(&mut anstream::stderr(), text.as_bytes());
    }
    ExitCode::from(code)
}
