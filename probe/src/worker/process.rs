//! The worker's process: started in a group of its own, listened to, and never left behind.

use std::io::{self, Write};
use std::process::{Child, ChildStdin, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use plimsoll_core::measurement::DeviceKind;
use serde::Serialize;

use super::discover::Python;
use super::quarters::Quarters;
use super::reader::{self, Line, Tail};
use crate::exit::Failure;
use crate::interrupt::{self, Running};

/// How long the worker may take to end after it closed its side, before it is killed.
const GOODBYE: Duration = Duration::from_secs(10);

/// How long the last words of a worker that has ended are waited for, when another process holds its output open.
const AFTERWARDS: Duration = Duration::from_secs(2);

/// More than this on standard error says nothing more, in bytes: a day of progress bars has a tenth.
const FLOOD: u64 = 256 << 20;

/// What a worker is started with.
#[derive(Clone, Copy, Debug)]
pub struct Launch<'a> {
    /// The interpreter.
    pub python: &'a Python,
    /// The script's text.
    pub script: &'a str,
    /// On what kind of device it will run.
    pub device: DeviceKind,
    /// The card it may see, as CUDA counts them in the order of the bus; `None` leaves that to the environment.
    pub card: Option<u32>,
}

/// A running worker. Dropping it ends it.
#[derive(Debug)]
pub struct Worker {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<Line>,
    tail: Tail,
    tail_thread: Option<JoinHandle<()>>,
    status: Option<ExitStatus>,
    /// Whether it has ended, and everything it started: its number may belong to others now.
    over: bool,
    /// When it was seen to have ended although its output is open still.
    ended: Option<Instant>,
    /// Kept so that it is removed when the worker is dropped, and not before.
    _quarters: Quarters,
}

/// What came next.
#[derive(Debug)]
pub enum Next {
    /// A line.
    Line(Line),
    /// Nothing within the time.
    Silence,
    /// The worker has closed its side: it is gone, or will be.
    Gone,
}

/// How a worker ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    /// The exit code, unless a signal ended it.
    pub code: Option<i32>,
    /// The signal.
    pub signal: Option<i32>,
    /// The end of what it wrote to standard error.
    pub stderr: String,
}

impl Worker {
    /// Writes the script to a folder that only its owner can open, and starts it there.
    pub fn start(launch: &Launch<'_>) -> Result<Self, Failure> {
        let quarters = Quarters::new()?;
        let mut process = quarters.script(launch.python, launch.script)?;
        process.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        process.env("TOKENIZERS_PARALLELISM", "false").env("HF_HUB_OFFLINE", "1");
        if let (DeviceKind::Cuda, Some(card)) = (launch.device, launch.card) {
            // NVML and sysfs count in the order of the bus; CUDA does only when it is told to.
            process.env("CUDA_DEVICE_ORDER", "PCI_BUS_ID").env("CUDA_VISIBLE_DEVICES", card.to_string());
        }
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut process, 0);
        let mut child = process.spawn().map_err(|error| not_started(launch.python, &error))?;
        interrupt::running(Some(Running { pid: child.id(), folder: quarters.path().to_owned() }));
        let (Some(stdin), Some(stdout), Some(stderr)) = (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            kill(child.id());
            return Err(not_started(launch.python, &io::Error::other("it has no standard streams")));
        };
        let (tail, tail_thread) = Tail::of(stderr);
        Ok(Self {
            child,
            stdin: Some(stdin),
            lines: reader::lines(stdout),
            tail,
            tail_thread: Some(tail_thread),
            status: None,
            over: false,
            ended: None,
            _quarters: quarters,
        })
    }

    /// The process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends one line. A worker that is gone shows in [`Self::next`], so a broken pipe is no failure of its own.
    pub fn send(&mut self, line: &impl Serialize) {
        let Some(stdin) = self.stdin.as_mut() else { return };
        let mut text = serde_json::to_string(line).unwrap_or_default();
        text.push('\n');
        if stdin.write_all(text.as_bytes()).and_then(|()| stdin.flush()).is_err() {
            self.stdin = None;
        }
    }

    /// The next line, waited for at most so long.
    pub fn next(&mut self, patience: Duration) -> Next {
        if self.tail.total() > FLOOD {
            return Next::Line(Line::Endless(format!("over {FLOOD} bytes on standard error")));
        }
        match self.lines.recv_timeout(patience) {
            Ok(line) => Next::Line(line),
            Err(RecvTimeoutError::Timeout) if self.has_left() => Next::Gone,
            Err(RecvTimeoutError::Timeout) => Next::Silence,
            Err(RecvTimeoutError::Disconnected) => Next::Gone,
        }
    }

    /// Whether it ended some time ago, though what it started holds its output open.
    fn has_left(&mut self) -> bool {
        if self.ended.is_none() && matches!(self.child.try_wait(), Ok(Some(_))) {
            self.ended = Some(Instant::now());
        }
        self.ended.is_some_and(|at| at.elapsed() > AFTERWARDS)
    }

    /// Waits until it has ended, for a while; then ends it.
    pub fn finish(&mut self) -> End {
        self.stdin = None;
        let start = Instant::now();
        while self.status.is_none() && start.elapsed() < GOODBYE {
            match self.child.try_wait() {
                Ok(None) => thread::sleep(Duration::from_millis(2)),
                Ok(status) => self.status = status,
                Err(_) => break,
            }
        }
        self.kill()
    }

    /// Ends it now, and everything it started.
    pub fn kill(&mut self) -> End {
        self.stdin = None;
        if !self.over {
            if self.status.is_none() {
                kill(self.child.id());
                // Where there are no groups, the process itself at least.
                let _ = self.child.kill();
                self.status = self.child.wait().ok();
            } else {
                // What it started may be there still.
                kill_group(self.child.id());
            }
            self.over = true;
            interrupt::running(None);
        }
        if let Some(thread) = self.tail_thread.take() {
            // Whoever left its group may hold the pipe open: what there is by now must do.
            let start = Instant::now();
            while !thread.is_finished() && start.elapsed() < Duration::from_secs(1) {
                thread::sleep(Duration::from_millis(1));
            }
        }
        End { code: self.status.and_then(|s| s.code()), signal: signal(self.status), stderr: self.tail.text() }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.kill();
    }
}

fn not_started(python: &Python, error: &io::Error) -> Failure {
    Failure::Environment {
        problem: format!("cannot start {}: {error}", python.program.display()),
        hint: match error.kind() {
            io::ErrorKind::NotFound => "check the path given to --python".to_owned(),
            io::ErrorKind::PermissionDenied => "name a Python interpreter with --python PATH".to_owned(),
            _ => "name another Python with --python PATH".to_owned(),
        },
    }
}

/// Ends a worker and everything in its group. It may be gone already, which is as good.
#[cfg(unix)]
pub fn kill(pid: u32) {
    kill_group(pid);
}

#[cfg(unix)]
pub(super) fn kill_group(pid: u32) {
    let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
    if let Some(pid) = pid {
        let _ = rustix::process::kill_process_group(pid, rustix::process::Signal::KILL);
    }
}

/// Ends a worker and everything it started. It may be gone already, which is as good.
#[cfg(not(unix))]
pub fn kill(pid: u32) {
    let _ = std::process::Command::new("taskkill")
        .args(["/T", "/F", "/PID", &pid.to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
}

/// A process that has ended gives its number to others here: nothing is ended by it.
#[cfg(not(unix))]
pub(super) fn kill_group(_: u32) {}

#[cfg(unix)]
fn signal(status: Option<ExitStatus>) -> Option<i32> {
    status.and_then(|s| std::os::unix::process::ExitStatusExt::signal(&s))
}

#[cfg(not(unix))]
fn signal(_: Option<ExitStatus>) -> Option<i32> {
    None
}
