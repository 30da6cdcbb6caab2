//! `plimsoll watch` as people and scripts meet it, on a machine whose cards are a directory of this test.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "the helpers of a test may fail it as its own lines may")]

use std::fs;
use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use plimsoll_testkit::attended::attended;
use portable_pty::{CommandBuilder, PtySize, native_pty_system};
use serde_json::Value;

const MIB: u64 = 1 << 20;
/// How long anything may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// A machine with one card of AMD's and somebody on it.
struct Machine(PathBuf);

impl Machine {
    fn new(name: &str) -> Self {
        let root = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("watch").join(name);
        let _ = fs::remove_dir_all(&root);
        let machine = Self(root);
        machine.write("sys/class/drm/card0-DP-1/status", "connected");
        let device = "sys/class/drm/card0/device";
        for (file, content) in [
            ("vendor", "0x1002"),
            ("device", "0x744c"),
            ("product_name", "AMD Radeon RX 7900 XTX"),
            ("uevent", "DRIVER=amdgpu\nPCI_SLOT_NAME=0000:03:00.0"),
            ("mem_info_vram_total", "25753026560"),
            ("gpu_busy_percent", "93"),
            ("hwmon/hwmon3/power1_average", "312400000"),
            ("hwmon/hwmon3/power1_cap", "327000000"),
            ("hwmon/hwmon3/temp1_input", "71000"),
        ] {
            machine.write(&format!("{device}/{file}"), content);
        }
        machine.use_memory(18_000 * MIB);
        machine.write("proc/sys/kernel/osrelease", "6.8.0-45-generic");
        machine.process(12_345, "/usr/bin/python3\0-u\0/home/ada/train.py\0--lr\x001\0", 17_600 * MIB);
        machine.process(1_200, "/usr/lib/xorg/Xorg\0", 312 * MIB);
        machine
    }

    /// A machine without any card.
    fn empty(name: &str) -> Self {
        let machine = Self::new(name);
        fs::remove_dir_all(machine.0.join("sys/class")).unwrap();
        machine
    }

    fn write(&self, path: &str, content: &str) {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{content}\n")).unwrap();
    }

    fn use_memory(&self, bytes: u64) {
        // Put in place whole, as the kernel would answer.
        self.write("used", &bytes.to_string());
        fs::rename(self.0.join("used"), self.0.join("sys/class/drm/card0/device/mem_info_vram_used")).unwrap();
    }

    fn process(&self, pid: u32, command: &str, bytes: u64) {
        let process = self.0.join(format!("proc/{pid}"));
        fs::create_dir_all(process.join("fd")).unwrap();
        fs::create_dir_all(process.join("fdinfo")).unwrap();
        fs::write(process.join("cmdline"), command).unwrap();
        symlink("/dev/dri/renderD128", process.join("fd/5")).unwrap();
        let kib = bytes / 1024;
        let fdinfo = format!(
            "pos:\t0\ndrm-driver:\tamdgpu\ndrm-client-id:\t{pid}\ndrm-pdev:\t0000:03:00.0\ndrm-memory-vram:\t{kib} KiB\n"
        );
        fs::write(process.join("fdinfo/5"), fdinfo).unwrap();
    }

    fn variables(&self) -> [(&'static str, PathBuf); 2] {
        [("PLIMSOLL_SYSFS", self.0.join("sys")), ("PLIMSOLL_PROCFS", self.0.join("proc"))]
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = attended(env!("CARGO_BIN_EXE_plimsoll"));
        command.arg("watch").args(args).envs(self.variables()).env_remove("CLICOLOR_FORCE");
        command
    }

    fn watch(&self, args: &[&str]) -> Output {
        self.command(args).stdin(Stdio::null()).output().unwrap()
    }

    fn text(&self, args: &[&str]) -> String {
        let output = self.watch(args);
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    fn refuses(&self, args: &[&str], code: i32, parts: &[&str]) {
        let output = self.watch(args);
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{args:?}: {message}");
        assert!(output.stdout.is_empty(), "{args:?}");
        for part in parts {
            assert!(message.contains(part), "{args:?}: no {part:?} in {message}");
        }
    }
}

#[test]
fn once() {
    let text = Machine::new("once").text(&["--once"]);
    let expected = [
        "AMD Radeon RX 7900 XTX                       driver 6.8.0-45-generic, card 0",
        "17.58 GiB of 23.98 GiB   4.42 GiB to spare",
        "load line 22.00 GiB ^",
        "utilisation   93 %",
        "power        312 W of 327 W   71 C",
        "12345   17.19 GiB   python3 train.py",
        "1200   312.0 MiB   Xorg",
    ];
    for part in expected {
        assert!(text.contains(part), "no {part:?} in {text}");
    }
    assert!(!text.contains("/home/ada") && !text.contains("03:00"), "{text}");
}

#[test]
fn a_load_line_of_ones_own() {
    let machine = Machine::new("line");
    let text = machine.text(&["--once", "--load-line", "16 GiB"]);
    assert!(text.contains("load line 16.00 GiB ^") && text.contains("over by 1.58 GiB"), "{text}");
    machine.refuses(&["--once", "--load-line", "deep"], 2, &["--load-line", "is not a size", "11 GiB"]);
}

#[test]
fn once_for_programs() {
    let answer: Value = serde_json::from_str(&Machine::new("json").text(&["--once", "--format", "json"])).unwrap();
    let card = &answer["cards"][0];
    for (key, value) in [
        ("index", Value::from(0)),
        ("name", "AMD Radeon RX 7900 XTX".into()),
        ("gpu", "rx-7900-xtx".into()),
        ("driver", "6.8.0-45-generic".into()),
        ("capability", Value::Null),
        ("total", 25_753_026_560u64.into()),
        ("reserved", Value::Null),
        ("capacity", 25_753_026_560u64.into()),
        ("load_line", (22u64 << 30).into()),
        ("used", (18_000 * MIB).into()),
        ("utilization", 93.into()),
        ("power", 312_400.into()),
        ("power_limit", 327_000.into()),
        ("temperature", 71.into()),
    ] {
        assert_eq!(card[key], value, "{key}");
    }
    assert_eq!(card["processes"][0]["pid"], 12_345);
    assert_eq!(card["processes"][0]["memory"], 17_600 * MIB);
    assert_eq!((&answer["schema"], &answer["note"]), (&Value::from(1), &Value::Null));
    assert!(!answer.to_string().contains("03:00"), "{answer}");
}

#[test]
fn no_card_at_all() {
    let machine = Machine::empty("none");
    for args in [&[] as &[&str], &["--once"], &["--csv"], &["--once", "--gpu", "0"]] {
        machine.refuses(args, 3, &["error: No card can be read here", "must be passed in"]);
    }
    // A program asked for a list and gets one: empty, with the reason.
    let answer: Value = serde_json::from_str(&machine.text(&["--once", "--format", "json"])).unwrap();
    assert_eq!(answer["cards"], Value::Array(Vec::new()));
    assert!(answer["note"].as_str().unwrap().contains("No card can be read here"), "{answer}");
}

#[test]
fn what_does_not_go_together() {
    let machine = Machine::new("wrong");
    machine.refuses(&["--gpu", "3", "--once"], 2, &["there is no card 3", "the only one is 0"]);
    machine.refuses(&["--gpu", "3", "--once", "--format", "json"], 2, &["there is no card 3"]);
    machine.refuses(&["--format", "json"], 2, &["--format", "--once", "--csv"]);
    machine.refuses(&["--once", "--csv"], 2, &["cannot be used with"]);
    machine.refuses(&["--samples", "3"], 2, &["--csv"]);
    machine.refuses(&["--csv", "--samples", "0"], 2, &["--samples"]);
    machine.refuses(&["--interval", "0"], 2, &["--interval", "250ms"]);
    machine.refuses(&[], 2, &["standard output is no terminal", "--once", "--csv"]);
}

#[test]
fn so_many_lines() {
    let text = Machine::new("csv").text(&["--csv", "--samples", "3", "--interval", "50ms"]);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 4, "{text}");
    assert_eq!(lines[0], "time,card,name,used,capacity,load_line,utilization,power,power_limit,temperature");
    for line in &lines[1..] {
        let (time, rest) = line.split_once(',').unwrap();
        assert!(time.parse::<f64>().unwrap() > 1.7e9, "{line}");
        assert_eq!(rest, "0,AMD Radeon RX 7900 XTX,18874368000,25753026560,23622320128,93,312400,327000,71");
    }
}

#[test]
fn each_line_is_out_at_once_and_ctrl_c_ends_it_well() {
    let machine = Machine::new("follow");
    let mut child = machine.command(&["--csv", "--interval", "100ms"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut next = || lines.next().unwrap().unwrap();
    assert!(next().starts_with("time,"));
    assert!(next().contains(",18874368000,"));
    machine.use_memory(20_000 * MIB);
    let start = Instant::now();
    while !next().contains(",20971520000,") {
        assert!(start.elapsed() < PATIENCE);
    }
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_reader_that_leaves_is_no_error() {
    let mut child = Machine::new("pipe")
        .command(&["--csv", "--interval", "50ms"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let mut message = String::new();
    child.stderr.take().unwrap().read_to_string(&mut message).unwrap();
    assert_eq!(message, "");
}

/// The program on a terminal.
struct Terminal {
    child: Box<dyn portable_pty::Child + Send + Sync>,
    keys: Box<dyn std::io::Write + Send>,
    output: Receiver<Vec<u8>>,
    seen: Vec<u8>,
    // Closing it would hang up.
    _master: Box<dyn portable_pty::MasterPty + Send>,
}

impl Terminal {
    fn start(machine: &Machine, args: &[&str], variables: &[(&str, &str)]) -> Self {
        let size = PtySize { rows: 30, cols: 80, pixel_width: 0, pixel_height: 0 };
        let pty = native_pty_system().openpty(size).unwrap();
        let mut command = CommandBuilder::new(env!("CARGO_BIN_EXE_plimsoll"));
        command.arg("watch");
        command.args(args);
        for (key, value) in machine.variables() {
            command.env(key, value);
        }
        for key in ["NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "CI"] {
            command.env_remove(key);
        }
        command.env("TERM", "xterm-256color");
        for (key, value) in variables {
            command.env(key, value);
        }
        let child = pty.slave.spawn_command(command).unwrap();
        drop(pty.slave);
        let mut reader = pty.master.try_clone_reader().unwrap();
        let keys = pty.master.take_writer().unwrap();
        let (send, output) = channel();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(length @ 1..) = reader.read(&mut buffer) {
                if send.send(buffer[..length].to_vec()).is_err() {
                    break;
                }
            }
        });
        Self { child, keys, output, seen: Vec::new(), _master: pty.master }
    }

    /// Everything written so far, with its escape sequences.
    fn raw(&self) -> String {
        String::from_utf8_lossy(&self.seen).into_owned()
    }

    fn wait_for(&mut self, text: &str) {
        let start = Instant::now();
        while !self.raw().contains(text) {
            assert!(start.elapsed() < PATIENCE, "no {text:?} in {:?}", self.raw());
            if let Ok(more) = self.output.recv_timeout(Duration::from_millis(100)) {
                self.seen.extend(more);
            }
        }
    }

    /// Waits for the end and returns the exit code and all that was written.
    fn end(mut self) -> (u32, String) {
        let start = Instant::now();
        let code = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status.exit_code();
            }
            if start.elapsed() > PATIENCE {
                let _ = self.child.kill();
                panic!("it does not end: {:?}", self.raw());
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        while let Ok(more) = self.output.recv_timeout(Duration::from_millis(300)) {
            self.seen.extend(more);
        }
        (code, self.raw())
    }
}

const ANOTHER_SCREEN: &str = "\u{1b}[?1049h";
const FIRST_SCREEN: &str = "\u{1b}[?1049l";
const NO_CURSOR: &str = "\u{1b}[?25l";
const CURSOR: &str = "\u{1b}[?25h";
const WRAP: &str = "\u{1b}[?7h";

/// The terminal is as it was: its last word about each of these is the right one.
fn given_back(raw: &str) {
    let last = |text: &str| raw.rfind(text).unwrap_or_else(|| panic!("no {text:?} in {raw:?}"));
    assert!(last(ANOTHER_SCREEN) < last(FIRST_SCREEN), "{raw:?}");
    assert!(last(NO_CURSOR) < last(CURSOR), "{raw:?}");
    assert!(last("\u{1b}[?7l") < last(WRAP), "{raw:?}");
    assert!(raw.get(last(FIRST_SCREEN)..).unwrap().contains("card 0: peak 17.58 GiB of 23.98 GiB"), "{raw:?}");
}

#[test]
fn the_view_gives_the_terminal_back_however_it_is_left() {
    for (number, leave) in ["q", "\u{1b}", "\u{3}", "SIGTERM", "SIGINT", "SIGHUP"].iter().enumerate() {
        let machine = Machine::new(&format!("leave{number}"));
        let mut terminal = Terminal::start(&machine, &["--interval", "100ms"], &[]);
        terminal.wait_for("17.58 GiB");
        let signal = match *leave {
            "SIGTERM" => Some(rustix::process::Signal::TERM),
            "SIGINT" => Some(rustix::process::Signal::INT),
            "SIGHUP" => Some(rustix::process::Signal::HUP),
            key => {
                terminal.keys.write_all(key.as_bytes()).unwrap();
                terminal.keys.flush().unwrap();
                None
            }
        };
        if let Some(signal) = signal {
            let pid = i32::try_from(terminal.child.process_id().unwrap()).unwrap();
            rustix::process::kill_process(rustix::process::Pid::from_raw(pid).unwrap(), signal).unwrap();
        }
        let (code, raw) = terminal.end();
        assert_eq!(code, 0, "{leave:?}: {raw:?}");
        given_back(&raw);
    }
}

#[test]
fn the_view_moves() {
    let machine = Machine::new("moves");
    let mut terminal = Terminal::start(&machine, &["--interval", "100ms"], &[]);
    terminal.wait_for("17.58 GiB");
    machine.use_memory(23_000 * MIB);
    terminal.wait_for("over by");
    // Red, the sparkline, the mark and the warning.
    for part in ["\u{1b}[31m", "\u{2588}", "\u{2296}", "warning:", "93 % of the card is in use"] {
        terminal.wait_for(part);
    }
    terminal.keys.write_all(b"q").unwrap();
    let (code, raw) = terminal.end();
    assert_eq!(code, 0);
    assert!(raw.contains("peak 22.46 GiB of 23.98 GiB"), "{raw:?}");
    // No frame is higher than the screen: nothing scrolls.
    let view = raw.get(..raw.rfind(FIRST_SCREEN).unwrap()).unwrap();
    let heights: Vec<usize> =
        view.split("\u{1b}[1;1H").skip(1).map(|frame| 1 + frame.matches("\r\n").count()).collect();
    assert!(heights.len() > 1 && heights.iter().all(|height| (10..=30).contains(height)), "{heights:?}");
}

#[test]
fn without_colour_the_view_has_none() {
    let machine = Machine::new("plain");
    let mut terminal = Terminal::start(&machine, &["--interval", "100ms"], &[("NO_COLOR", "1")]);
    terminal.wait_for("load line 22.00 GiB ^");
    terminal.keys.write_all(b"q").unwrap();
    let (_, raw) = terminal.end();
    assert!(raw.is_ascii() && !raw.contains("\u{1b}[2m") && !raw.contains("\u{1b}[1m"), "{raw:?}");
}

#[test]
fn once_on_a_terminal_is_in_colour_and_stays_there() {
    let mut terminal = Terminal::start(&Machine::new("coloured"), &["--once"], &[]);
    terminal.wait_for("Xorg");
    let (code, raw) = terminal.end();
    assert_eq!(code, 0);
    assert!(raw.contains('\u{2296}') && raw.contains("\u{1b}[34m"), "{raw:?}");
    assert!(!raw.contains(ANOTHER_SCREEN) && !raw.contains(NO_CURSOR), "{raw:?}");
}
