//! Programs started as a person at a terminal starts them.

use std::ffi::OsStr;
use std::process::Command;

/// Sets what each signal does, which Rust has no safe way to, and becomes the program; `exec` keeps the number of the
/// process. The interpreter itself ignores SIGPIPE and SIGXFSZ.
const BECOME: &str = "\
import os, signal, sys
for name in ('SIGINT', 'SIGQUIT', 'SIGHUP', 'SIGTERM', 'SIGPIPE', 'SIGXFSZ'):
    ignored = name in sys.argv[1].split(',')
    signal.signal(getattr(signal, name), signal.SIG_IGN if ignored else signal.SIG_DFL)
os.execvp(sys.argv[2], sys.argv[2:])";

/// A program that hears Ctrl-C even when this process does not: what a shell starts with `&` ignores it, and so does all
/// that is started from there, this test among it.
pub fn attended(program: impl AsRef<OsStr>) -> Command {
    if cfg!(unix) { ignoring(&[], program) } else { Command::new(program) }
}

/// The same on Unix, and it was told to ignore these signals, as `nohup` does with `SIGHUP`.
pub fn ignoring(signals: &[&str], program: impl AsRef<OsStr>) -> Command {
    let mut python = Command::new("python3");
    python.args(["-c", BECOME, &signals.join(",")]).arg(program);
    python
}
