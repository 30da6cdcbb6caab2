//! A worker in a process of its own, as the probe starts it.

use std::{
    env, fs,
    io::{BufRead, BufReader, Read, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, Stdio},
    sync::LazyLock,
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

use super::report::Report;

/// A directory of the test's own, with these files in it.
pub fn directory(name: &str, files: &[(&str, &str)]) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("worker").join(name);
    // What an earlier run left.
    let _ = fs::remove_dir_all(&directory);
    fs::create_dir_all(&directory).unwrap();
    for (name, text) in files {
        fs::write(directory.join(name), text).unwrap();
    }
    directory
}

/// The worker as it is given to whoever asks for it, in a file.
pub fn script() -> &'static Path {
    static SCRIPT: LazyLock<PathBuf> = LazyLock::new(|| {
        let printed = Command::new(env!("CARGO_BIN_EXE_plimsoll")).args(["probe", "--print-worker"]).output().unwrap();
        let folder = directory("script", &[("worker.py", std::str::from_utf8(&printed.stdout).unwrap())]);
        folder.join("worker.py")
    });
    &SCRIPT
}

/// The Python to test with: for tests of how a process begins and ends, of what it imports and holds.
pub fn program() -> PathBuf {
    env::var_os("PLIMSOLL_TEST_PYTHON").unwrap_or_else(|| "python3".into()).into()
}

/// One that has imported PyTorch already, for tests of what is computed and told: the import takes longer than most of
/// what they ask for.
pub fn ready_program() -> PathBuf {
    #[cfg(target_os = "linux")]
    return plimsoll_testkit::ready::instead_of(&program()).to_owned();
    #[cfg(not(target_os = "linux"))]
    program()
}

/// [`program`], on one thread: the tests share the machine.
pub fn python() -> Command {
    told(program())
}

/// [`ready_program`], the same way.
pub fn ready_python() -> Command {
    told(ready_program())
}

fn told(program: PathBuf) -> Command {
    let mut python = Command::new(program);
    python.arg("-u").env("PYTHONSAFEPATH", "1").env("OMP_NUM_THREADS", "1").env("HF_HUB_OFFLINE", "1");
    python.env_remove("PYTHONPATH");
    python
}

/// A worker that is running. Dropping it ends it.
#[derive(Debug)]
pub struct Worker {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

impl Worker {
    /// Starts one, with modules from `modules` before all others, and gives it a first line.
    pub fn start(modules: Option<&Path>, first: &str) -> Self {
        let mut python = python();
        if let Some(modules) = modules {
            python.env("PYTHONPATH", modules);
        }
        Self::of(python, first)
    }

    /// Starts one that has imported PyTorch, and gives it a first line.
    pub fn ready(first: &str) -> Self {
        Self::of(ready_python(), first)
    }

    fn of(mut python: Command, first: &str) -> Self {
        python.arg(script());
        let mut child = python.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let stdin = child.stdin.take();
        let mut worker = Self { child, stdin, stdout };
        worker.send(first);
        worker
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a line, or several at once: a worker that one of them ends reads no other.
    pub fn send(&mut self, line: &str) {
        self.stdin.as_mut().unwrap().write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    /// Waits for an event of this kind for which `is_it` holds.
    pub fn wait_for(&mut self, kind: &str, is_it: impl Fn(&Value) -> bool) -> Value {
        loop {
            let mut line = String::new();
            assert!(self.stdout.read_line(&mut line).unwrap() > 0, "it ended before {kind}: {}", self.stderr());
            let event: Value = serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line}"));
            assert_ne!(event["event"], "error", "{event}");
            // Nothing more would come: the worker waits for the next command.
            assert!(kind == "attempt_end" || event["event"] != "attempt_end", "it ended before {kind}: {event}");
            if event["event"] == kind && is_it(&event) {
                return event;
            }
        }
    }

    /// Closes its standard input, and answers how long it took to end, and how it did.
    pub fn hang_up(mut self) -> (Duration, Option<i32>) {
        let start = Instant::now();
        self.stdin = None;
        let status = self.child.wait().unwrap();
        (start.elapsed(), status.code())
    }

    /// Waits until it ends of itself.
    pub fn report(mut self) -> Report {
        let (mut out, mut errors) = (String::new(), self.child.stderr.take().unwrap());
        // Aside: a worker that cannot say there what it has to say would not end.
        let errors = thread::spawn(move || read(&mut errors));
        self.stdout.read_to_string(&mut out).unwrap();
        let stderr = errors.join().unwrap();
        let status = self.child.wait().unwrap();
        Report::new(out.lines(), stderr, status.code().map_or(-1, i64::from))
    }

    fn stderr(&mut self) -> String {
        read(&mut self.child.stderr.take().unwrap())
    }
}

fn read(errors: &mut ChildStderr) -> String {
    let mut bytes = Vec::new();
    errors.read_to_end(&mut bytes).unwrap();
    String::from_utf8_lossy(&bytes).into_owned()
}

impl Drop for Worker {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
