//! One question to a Python: a short text is run, and what it prints is the answer.

use std::io::Read as _;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use super::process::{kill, kill_group};
use crate::interrupt;

/// Longest answer that is read, in bytes.
const ANSWER: u64 = 1 << 16;
/// How long the answer of a process that has ended is waited for: another may hold its output open.
const AFTERWARDS: Duration = Duration::from_secs(1);
/// How often Ctrl-C and the end of the process are looked for.
const TICK: Duration = Duration::from_millis(10);

/// What it prints, when it ends in time, whatever it leaves running behind it. `None` also on Ctrl-C.
pub fn ask(mut command: Command, patience: Duration) -> Option<String> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    let mut child = command.spawn().ok()?;
    let answer = listen(&mut child, patience);
    // What it started may be there still, and it itself.
    match child.try_wait() {
        Ok(Some(_)) => kill_group(child.id()),
        _ => kill(child.id()),
    }
    // Where there are no groups, the process itself at least; it may be gone by now, which is as good.
    let _ = child.kill();
    let _ = child.wait();
    answer
}

fn listen(child: &mut Child, patience: Duration) -> Option<String> {
    let stdout = child.stdout.take()?;
    let (sender, answer) = mpsc::channel();
    thread::spawn(move || {
        let mut text = String::new();
        if stdout.take(ANSWER).read_to_string(&mut text).is_ok() {
            // Nobody waits any more.
            let _ = sender.send(text);
        }
    });
    let start = Instant::now();
    let mut ended = None;
    loop {
        match answer.recv_timeout(TICK) {
            Ok(text) => return Some(text),
            Err(RecvTimeoutError::Disconnected) => return None,
            Err(RecvTimeoutError::Timeout) => {}
        }
        if ended.is_none() && !matches!(child.try_wait(), Ok(None)) {
            ended = Some(Instant::now());
        }
        let left = ended.is_some_and(|at: Instant| at.elapsed() > AFTERWARDS);
        if left || start.elapsed() > patience || interrupt::asked() {
            return None;
        }
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    fn shell(text: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", text]);
        command
    }

    #[test]
    fn an_answer_is_what_is_printed() {
        assert_eq!(ask(shell("printf yes"), Duration::from_secs(60)).as_deref(), Some("yes"));
        assert_eq!(ask(shell("exec cat /dev/zero"), Duration::from_secs(60)).map(|text| text.len()), Some(1 << 16));
    }

    #[test]
    fn a_child_that_holds_the_output_is_not_waited_for() {
        let start = Instant::now();
        assert_eq!(ask(shell("sleep 300 & printf yes"), Duration::from_secs(200)), None);
        assert!(start.elapsed() < Duration::from_secs(100), "only the end of the process was waited for");
    }

    #[test]
    fn silence_has_an_end() {
        assert_eq!(ask(shell("exec sleep 300"), Duration::from_millis(50)), None);
    }
}
