//! Running `plimsoll probe run` with the stand-in for Python.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use plimsoll_testkit::attended;
use portable_pty::{CommandBuilder, PtySize, native_pty_system};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// The stand-in.
const PYTHON: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/stub/python");

/// 8 samples, accumulated twice.
const SCENARIO: &str = r#"{"model": {"family": "mlp"}, "input": {"batch": 8}, "training": {"accumulation": 2}}"#;

/// A run that is to be made.
pub struct Stub {
    mode: String,
    python: String,
    device: String,
    more: Vec<String>,
    folder: PathBuf,
    out: PathBuf,
    has_card: bool,
    /// A signal that it is started to ignore.
    ignored: Option<&'static str>,
}

/// What it left.
pub struct Ran {
    pub code: Option<i32>,
    pub record: Option<Value>,
    pub stdout: String,
    pub stderr: String,
}

impl Stub {
    pub fn new(mode: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let python = Command::new("python3").arg("--version").output();
        assert!(python.is_ok(), "the stand-in for the worker is a Python script: install python3 to run these tests");
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!(
            "probe-{}-{}",
            std::process::id(),
            NEXT.fetch_add(1, Ordering::Relaxed)
        ));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("scenario.json"), SCENARIO).unwrap();
        let out = folder.join("record.json");
        let mode = mode.to_owned();
        Self {
            mode,
            python: PYTHON.to_owned(),
            device: "cpu".to_owned(),
            more: Vec::new(),
            folder,
            out,
            has_card: false,
            ignored: None,
        }
    }

    /// No stand-in: the Python with PyTorch that `PLIMSOLL_TEST_PYTHON` names, on one thread, because tests share the
    /// machine.
    #[allow(dead_code, reason = "only one of the test programs asks for it")]
    pub fn real() -> Self {
        let stub = Self::new("none");
        let python = std::env::var("PLIMSOLL_TEST_PYTHON").unwrap_or_else(|_| "python3".to_owned());
        let wrapper = stub.folder.join("python");
        let notes = stub.pids().display().to_string();
        // `exec` keeps the number of the process.
        let script = format!("#!/bin/sh\necho $$ >> '{notes}'\nexport OMP_NUM_THREADS=1\nexec '{python}' \"$@\"\n");
        fs::write(&wrapper, script).unwrap();
        fs::set_permissions(&wrapper, fs::Permissions::from_mode(0o755)).unwrap();
        let scenario = r#"{"model": {"family": "mlp", "hidden": 256}, "input": {"batch": 64},
            "training": {"accumulation": 2, "precision": "fp32"}}"#;
        stub.python(&wrapper.display().to_string()).scenario(scenario)
    }

    pub fn with(mut self, args: &[&str]) -> Self {
        self.more.extend(args.iter().map(|&a| a.to_owned()));
        self
    }

    /// Started like by `nohup`, which has a signal ignored.
    #[allow(dead_code, reason = "only one of the test programs asks for it")]
    pub fn ignoring(mut self, signal: &'static str) -> Self {
        self.ignored = Some(signal);
        self
    }

    pub fn device(mut self, device: &str) -> Self {
        device.clone_into(&mut self.device);
        self
    }

    /// A machine with one AMD card of 24 GiB, as the kernel's files show it, of which others hold so much. The device is
    /// left open.
    pub fn card(mut self, used_mib: u64) -> Self {
        let device = self.sysfs().join("class/drm/card0/device");
        fs::create_dir_all(&device).unwrap();
        let used = (used_mib << 20).to_string();
        let total = (24_560_u64 << 20).to_string();
        for (name, content) in [
            ("vendor", "0x1002"),
            ("product_name", "AMD Radeon RX 7900 XTX"),
            ("uevent", "DRIVER=amdgpu\nPCI_SLOT_NAME=0000:03:00.0"),
            ("mem_info_vram_total", &total),
            ("mem_info_vram_used", &used),
            ("gpu_busy_percent", "0"),
        ] {
            fs::write(device.join(name), format!("{content}\n")).unwrap();
        }
        self.has_card = true;
        self.device.clear();
        self
    }

    fn sysfs(&self) -> PathBuf {
        self.folder.join("sys")
    }

    pub fn python(mut self, python: &str) -> Self {
        python.clone_into(&mut self.python);
        self
    }

    pub fn scenario(self, text: &str) -> Self {
        fs::write(self.folder.join("scenario.json"), text).unwrap();
        self
    }

    pub fn out(mut self, out: &str) -> Self {
        self.out = self.folder.join(out);
        self
    }

    fn args(&self) -> Vec<String> {
        let scenario = self.folder.join("scenario.json").display().to_string();
        let out = self.out.display().to_string();
        let mut args: Vec<String> =
            ["probe", "run", &scenario, "--python", &self.python, "--out", &out].map(str::to_owned).to_vec();
        if !self.device.is_empty() && !self.more.iter().any(|a| a == "--device") {
            args.extend(["--device".to_owned(), self.device.clone()]);
        }
        args.extend(self.more.iter().cloned());
        args
    }

    fn pids(&self) -> PathBuf {
        self.folder.join("pids")
    }

    pub fn json(self) -> Ran {
        self.with(&["--format", "json"]).start().end().1
    }

    pub fn text(self) -> Ran {
        self.start().end().1
    }

    pub fn start(self) -> Running {
        let ignored: Vec<&str> = self.ignored.into_iter().collect();
        let mut command = attended::ignoring(&ignored, env!("CARGO_BIN_EXE_plimsoll"));
        if self.has_card {
            command.env("PLIMSOLL_SYSFS", self.sysfs());
        }
        let mut child = command
            .args(self.args())
            .env("PLIMSOLL_DATA", self.folder.join("data"))
            .env("PLIMSOLL_STUB", &self.mode)
            .env("PLIMSOLL_STUB_PIDS", self.pids())
            // Scripts of workers, so that what is left behind can be seen.
            .env("TMPDIR", &self.folder)
            .env_remove("CLICOLOR_FORCE")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdout = child.stdout.take().unwrap();
        let stdout = thread::spawn(move || {
            let mut text = String::new();
            stdout.read_to_string(&mut text).unwrap();
            text
        });
        let (sender, lines) = channel();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        thread::spawn(move || {
            for line in stderr.split(b'\n').map_while(Result::ok) {
                if sender.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                    return;
                }
            }
        });
        Running { stub: self, child, stdout, lines, seen: String::new() }
    }
}

/// A run under way.
pub struct Running {
    stub: Stub,
    child: Child,
    stdout: JoinHandle<String>,
    lines: Receiver<String>,
    seen: String,
}

impl Running {
    /// Until the first step was told of.
    pub fn wait_for_step(&mut self) {
        loop {
            let line = self.lines.recv_timeout(Duration::from_secs(120));
            let line = line.unwrap_or_else(|_| panic!("no step in {}", self.seen));
            self.seen.push_str(&line);
            self.seen.push('\n');
            if line.contains("step 1 of") {
                return;
            }
        }
    }

    /// Lets a worker go on that is held.
    #[allow(dead_code, reason = "only one of the test programs asks for it")]
    pub fn go(&self) {
        fs::write(self.stub.folder.join("go"), "").unwrap();
    }

    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        // It may have ended by itself.
        let _ = kill_process(pid, signal);
    }

    pub fn out(&self) -> &Path {
        &self.stub.out
    }

    /// The records that were kept on the machine.
    pub fn kept(&self) -> PathBuf {
        self.stub.folder.join("data/measurements")
    }

    /// Waits for the end: who was started, and what is left.
    pub fn end(mut self) -> (Vec<u32>, Ran) {
        let start = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            if start.elapsed() > Duration::from_secs(180) {
                self.child.kill().unwrap();
                panic!("it does not end; so far: {}", self.seen);
            }
            thread::sleep(Duration::from_millis(2));
        };
        let stdout = self.stdout.join().unwrap();
        while let Ok(line) = self.lines.recv_timeout(Duration::from_secs(10)) {
            self.seen.push_str(&line);
            self.seen.push('\n');
        }
        assert!(!self.seen.contains("panicked"), "{}", self.seen);
        let pids = fs::read_to_string(self.stub.pids()).unwrap_or_default();
        let pids = pids.lines().map(|line| line.parse().unwrap()).collect();
        let record = fs::read_to_string(&self.stub.out).ok().map(|text| serde_json::from_str(&text).unwrap());
        if status.code().is_some() {
            let left: Vec<String> = fs::read_dir(&self.stub.folder)
                .unwrap()
                .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
                .filter(|name| name.contains("plimsoll"))
                .collect();
            assert!(left.is_empty(), "left behind: {left:?}");
        }
        (pids, Ran { code: status.code(), record, stdout, stderr: self.seen })
    }
}

/// Asserts that processes end within some seconds.
pub fn assert_gone(pids: &[u32], when: &str) {
    let start = Instant::now();
    for pid in pids {
        while is_alive(*pid) {
            assert!(start.elapsed() < Duration::from_secs(10), "{when}: process {pid} is still there");
            thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Whether a process runs: one that has ended and waits for its parent to ask does not.
fn is_alive(pid: u32) -> bool {
    let output = Command::new("ps").args(["-o", "stat=", "-p", &pid.to_string()]).output();
    let state = match fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => stat.rsplit(") ").next().unwrap_or_default().to_owned(),
        Err(_) if cfg!(target_os = "linux") => return false,
        Err(_) => String::from_utf8(output.unwrap().stdout).unwrap().trim().to_owned(),
    };
    !state.is_empty() && !state.starts_with('Z')
}

/// Everything that a terminal of 80 columns is sent.
pub fn on_a_terminal(stub: &Stub) -> String {
    let size = PtySize { rows: 30, cols: 80, pixel_width: 0, pixel_height: 0 };
    let pair = native_pty_system().openpty(size).unwrap();
    let mut command = CommandBuilder::new(env!("CARGO_BIN_EXE_plimsoll"));
    command.args(stub.args());
    command.env("PLIMSOLL_STUB", &stub.mode);
    command.env("TERM", "xterm-256color");
    command.env("PLIMSOLL_DATA", stub.folder.join("data"));
    command.env_remove("NO_COLOR");
    let mut child = pair.slave.spawn_command(command).unwrap();
    drop(pair.slave);
    let mut reader = pair.master.try_clone_reader().unwrap();
    let screen = thread::spawn(move || {
        let (mut screen, mut buffer) = (Vec::new(), [0; 4096]);
        // The end of a pseudo-terminal is an error on Linux.
        while let Ok(read @ 1..) = reader.read(&mut buffer) {
            screen.extend_from_slice(&buffer[..read]);
        }
        String::from_utf8_lossy(&screen).into_owned()
    });
    let status = child.wait().unwrap();
    drop(pair.master);
    let screen = screen.join().unwrap();
    assert!(status.success(), "{screen}");
    screen
}
