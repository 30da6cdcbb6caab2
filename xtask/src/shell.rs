//! Running other programs, and saying what happens meanwhile.

use std::{
    ffi::OsStr,
    io::{BufRead, BufReader, Write as _},
    path::PathBuf,
    process::{Command, ExitCode, ExitStatus, Stdio},
    sync::OnceLock,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};

/// Prints a headline with the time since the start: `[02:13] Building the planner`.
pub fn headline(text: &str) {
    static START: OnceLock<Instant> = OnceLock::new();
    let seconds = START.get_or_init(Instant::now).elapsed().as_secs();
    eprintln!("[{:02}:{:02}] {text}", seconds / 60, seconds % 60);
}

/// A line under the headline.
pub fn note(text: &str) {
    eprintln!("        {text}");
}

/// `cargo` as the one that runs this program.
pub fn cargo() -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(crate::workspace::root());
    cargo
}

/// Runs a command whose output goes to our standard error, and fails when it fails. Standard output is kept for what
/// was asked for: the planner's address, the tests' results.
pub fn run(command: &mut Command) -> Result<()> {
    note(&format!("$ {}", shown(command)));
    let start = Instant::now();
    let status =
        command.stdout(std::io::stderr()).status().with_context(|| format!("cannot start `{}`", shown(command)))?;
    check(command, status)?;
    if start.elapsed() > Duration::from_secs(2) {
        note(&format!("took {}", seconds(start.elapsed())));
    }
    Ok(())
}

/// Runs a command, shows its standard output line by line as it comes, and hands each line to `see`.
pub fn run_watched(command: &mut Command, mut see: impl FnMut(&str)) -> Result<()> {
    note(&format!("$ {}", shown(command)));
    let mut child =
        command.stdout(Stdio::piped()).spawn().with_context(|| format!("cannot start `{}`", shown(command)))?;
    if let Some(stdout) = child.stdout.take() {
        let mut reader = BufReader::new(stdout);
        let mut line = Vec::new();
        while reader.read_until(b'\n', &mut line)? > 0 {
            // Not every program prints UTF-8, and a closed output is no reason to stop the tests.
            let _ = std::io::stdout().write_all(&line);
            see(String::from_utf8_lossy(&line).trim_end());
            line.clear();
        }
    }
    let status = child.wait()?;
    check(command, status)
}

/// The standard output of a command that says nothing else; `None` when it cannot be started or fails.
pub fn output(command: &mut Command) -> Option<String> {
    let output = command.stderr(Stdio::null()).stdin(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Puts the command in this process's place, so that Ctrl-C and its exit code are its own.
#[cfg(unix)]
pub fn become_command(command: &mut Command) -> Result<ExitCode> {
    use std::os::unix::process::CommandExt as _;
    let error = command.exec();
    Err(error).with_context(|| format!("cannot start `{}`", shown(command)))
}

/// Runs the command to its end and passes on its exit code.
#[cfg(not(unix))]
pub fn become_command(command: &mut Command) -> Result<ExitCode> {
    let status = command.status().with_context(|| format!("cannot start `{}`", shown(command)))?;
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from))
}

/// Fails when the command did.
pub fn check(command: &Command, status: ExitStatus) -> Result<()> {
    if !status.success() {
        bail!("`{}` failed ({status})", shown(command));
    }
    Ok(())
}

/// The command as one would type it, the program by its bare name.
pub fn shown(command: &Command) -> String {
    let program = PathBuf::from(command.get_program());
    let mut text = program.file_name().unwrap_or(command.get_program()).to_string_lossy().into_owned();
    for argument in command.get_args().map(OsStr::to_string_lossy) {
        text.push(' ');
        text.push_str(&argument);
    }
    text
}

/// `1.2 s`, `3 min 20 s`.
pub fn seconds(time: Duration) -> String {
    let whole = time.as_secs();
    if whole < 60 { format!("{:.1} s", time.as_secs_f64()) } else { format!("{} min {} s", whole / 60, whole % 60) }
}

/// Where a program of this name is: the first of `first` and then PATH that has it.
pub fn find_program(name: &str, first: &[PathBuf]) -> Vec<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let name = format!("{name}{}", std::env::consts::EXE_SUFFIX);
    let mut found = Vec::new();
    for directory in first.iter().cloned().chain(std::env::split_paths(&path)) {
        let program = directory.join(&name);
        if program.is_file() && !found.contains(&program) {
            found.push(program);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_read_well() {
        assert_eq!(seconds(Duration::from_millis(1250)), "1.2 s");
        assert_eq!(seconds(Duration::from_secs(200)), "3 min 20 s");
    }

    #[test]
    fn watched_output_is_seen_line_by_line_and_failure_is_told() {
        let mut lines = Vec::new();
        run_watched(Command::new("rustc").arg("--version"), |line| lines.push(line.to_owned())).unwrap();
        assert!(lines.len() == 1 && lines[0].starts_with("rustc "), "{lines:?}");
        let error = run_watched(Command::new("rustc").arg("--no-such-flag"), |_| {}).unwrap_err();
        assert!(error.to_string().contains("rustc --no-such-flag"), "{error}");
        assert!(run(&mut Command::new("no-such-program-anywhere")).is_err());
    }
}
