//! `plimsoll probe ladder`, `fit` and `suite` against the stand-in for the worker; no PyTorch is needed.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "the helpers of a test may fail it as its own lines may")]

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use plimsoll_testkit::attended::attended;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

/// The stand-in for the worker.
const STUB: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/stub/python");

/// What a Python with PyTorch answers when it is asked what it has.
const SURVEY: &str = r#"{"torch": "2.11.0+cu130", "has": ["transformers", "peft", "torchvision"], "kind": "cpu"}"#;

/// A place with a Python, and folders for records.
struct Dock {
    folder: TempDir,
    mode: &'static str,
}

impl Dock {
    fn new(mode: &'static str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let python = folder.path().join("python");
        let script = format!("#!/bin/sh\nif [ \"$1\" = -c ]; then echo '{SURVEY}'; exit 0; fi\nexec {STUB} \"$@\"\n");
        fs::write(&python, script).unwrap();
        fs::set_permissions(&python, fs::Permissions::from_mode(0o755)).unwrap();
        Self { folder, mode }
    }

    fn out(&self) -> PathBuf {
        self.folder.path().join("records")
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = attended(env!("CARGO_BIN_EXE_plimsoll"));
        command.arg("probe").args(words).arg("--python").arg(self.folder.path().join("python"));
        command.arg("--out").arg(self.out()).args(["--device", "cpu"]);
        command.env("PLIMSOLL_STUB", self.mode).env("PLIMSOLL_STUB_PIDS", self.folder.path().join("pids"));
        command.env("TMPDIR", self.folder.path()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Lets a worker go on that is held.
    fn go(&self) {
        fs::write(self.folder.path().join("go"), "").unwrap();
    }

    fn run(&self, words: &[&str]) -> Output {
        self.command(words).output().unwrap()
    }

    fn json(&self, words: &[&str], code: i32) -> Value {
        let output = self.run(&[words, &["--format", "json"]].concat());
        assert_eq!(output.status.code(), Some(code), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Runs it and presses Ctrl-C once a line of standard error holds these words.
    fn interrupted(&self, words: &[&str], at: &str) -> (Option<i32>, String) {
        let mut child = self.command(words).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let seen = lines.by_ref().map_while(Result::ok).find(|line| line.contains(at));
        assert!(seen.is_some(), "nobody said {at:?}");
        kill_process(Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap(), Signal::INT).unwrap();
        let rest = std::thread::spawn(move || lines.map_while(Result::ok).count());
        let output = child.wait_with_output().unwrap();
        rest.join().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    }

    /// How many records are kept.
    fn records(&self) -> usize {
        let Ok(entries) = fs::read_dir(self.out()) else { return 0 };
        let paths = entries.map(|entry| entry.unwrap().path());
        paths.inspect(|path| assert!(path.extension().is_some_and(|e| e == "json"), "{}", path.display())).count()
    }

    /// How many workers were started.
    fn workers(&self) -> usize {
        fs::read_to_string(self.folder.path().join("pids")).unwrap_or_default().lines().count()
    }
}

fn text(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn batches(fit: &Value) -> Vec<u64> {
    fit["trials"].as_array().unwrap().iter().map(|trial| trial["batch"].as_u64().unwrap()).collect()
}

#[test]
fn fit_finds_what_the_worker_takes() {
    // The stand-in holds 64 MiB for each sample.
    for (limit, largest) in [("640MiB", 10), ("64MiB", 1), ("6400MiB", 100)] {
        let dock = Dock::new("limit");
        let fit = dock.json(&["fit", "--family", "mlp", "--limit", limit], 0);
        assert_eq!(fit["max_batch"], largest, "{fit}");
        assert_eq!(fit["recommended"], std::cmp::max(1, largest * 9 / 10));
        let tried = batches(&fit);
        assert!(tried.contains(&largest) && tried.contains(&(largest + 1)), "{tried:?}");
        assert_eq!((dock.records(), dock.workers()), (tried.len(), tried.len()), "each in a process of its own");
    }
}

#[test]
fn fit_tells_people_what_it_found() {
    let dock = Dock::new("limit");
    let output = dock.run(&["fit", "--family", "mlp", "--limit", "640MiB"]);
    let text = text(&output);
    for words in
        ["over the limit", "Largest micro-batch that trains  10", "Recommended                      9", "90 % of it"]
    {
        assert!(text.contains(words), "{words}: {text}");
    }
    assert!(text.lines().filter(|line| !line.contains('/')).all(|line| line.chars().count() <= 80), "{text}");
}

#[test]
fn fit_when_nothing_fits_or_the_worker_dies() {
    let dock = Dock::new("oom-all");
    let fit = dock.json(&["fit", "--family", "mlp"], 1);
    assert_eq!((&fit["max_batch"], &fit["recommended"]), (&Value::from(0), &Value::Null));
    let dock = Dock::new("sigkill");
    let output = dock.run(&["fit", "--family", "mlp"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(String::from_utf8_lossy(&output.stderr).contains("SIGKILL"));
    let graph = Dock::new("fine").run(&["fit", "--family", "gat"]);
    assert_eq!(graph.status.code(), Some(2));
}

#[test]
fn ladder_measures_every_rung_and_says_what_is_left_out() {
    let dock = Dock::new("fine");
    let ladder = dock.json(&["ladder", "--family", "mlp", "--batch", "8"], 0);
    let rungs = ladder["rungs"].as_array().unwrap();
    let names: Vec<&str> = rungs.iter().map(|rung| rung["name"].as_str().unwrap()).collect();
    assert_eq!(
        names,
        ["fp32", "+ mixed precision", "+ accumulation", "+ checkpointing", "+ fused optimizer", "+ LoRA"]
    );
    let ran: Vec<bool> = rungs.iter().map(|rung| rung["figures"]["outcome"] == "finished").collect();
    assert_eq!(ran, [true, true, true, false, true, false]);
    assert!(rungs[3]["reason"].as_str().unwrap().contains("no gradient checkpointing"));
    assert_eq!(rungs[4]["scenario"]["input"]["batch"], 2);
    assert_eq!((dock.records(), dock.workers()), (4, 4));
}

#[test]
fn ladder_goes_on_past_what_does_not_fit() {
    // The stand-in takes two samples at most: the rungs with accumulation fit.
    let dock = Dock::new("oom");
    let output = dock.run(&["ladder", "--family", "mlp", "--batch", "8"]);
    assert_eq!(output.status.code(), Some(0));
    let text = text(&output);
    assert_eq!(text.matches("out of memory").count(), 2, "{text}");
    assert_eq!(text.matches(" 2 x 4 ").count(), 2, "{text}");
}

#[test]
fn ladder_presets_are_overridden_by_flags() {
    let dock = Dock::new("fine");
    let ladder = dock.json(&["ladder", "--preset", "nbeats", "--batch", "24", "--optimizer", "sgd"], 0);
    assert_eq!(ladder["scenario"]["input"]["batch"], 24, "{ladder}");
    assert_eq!(ladder["scenario"]["training"]["optimizer"], "sgd");
}

#[test]
fn ladder_keeps_what_is_done_at_ctrl_c() {
    let dock = Dock::new("slow@2");
    let (code, text) = dock.interrupted(&["ladder", "--family", "mlp", "--batch", "8"], "Rung 2");
    assert_eq!(code, Some(130));
    assert!(text.contains("fp32") && text.contains("interrupted"), "{text}");
    assert!((1..=2).contains(&dock.records()));
}

#[test]
fn suite_measures_once() {
    let dock = Dock::new("fine");
    let suite = dock.json(&["suite", "--only", "mlp"], 0);
    let status = |suite: &Value| -> Vec<String> {
        let entries = suite["entries"].as_array().unwrap();
        entries.iter().map(|entry| entry["status"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(status(&suite), ["measured", "measured"]);
    assert_eq!((dock.records(), dock.workers()), (2, 2));
    let again = dock.json(&["suite", "--only", "mlp", "--time-budget", "0s"], 0);
    assert_eq!(status(&again), ["measured before", "measured before"]);
    assert_eq!((dock.records(), dock.workers()), (2, 2));
    let more = dock.json(&["suite", "--only", "mlp", "--only", "nbeats", "--time-budget", "0s"], 0);
    assert_eq!(status(&more), ["measured before", "measured before", "not reached", "not reached"]);
    assert_eq!(dock.workers(), 2);
}

#[test]
fn suite_is_taken_up_where_it_was_left() {
    let dock = Dock::new("slow@2");
    let words = ["suite", "--only", "mlp", "--only", "nbeats"];
    let (code, text) = dock.interrupted(&words, "2 of 4");
    assert_eq!(code, Some(130));
    assert!(text.contains("1 measured, 0 measured before, 0 skipped, 0 failed, 3 not reached"), "{text}");
    // Stopped early enough, the second worker was none yet.
    dock.go();
    let output = dock.run(&words);
    assert_eq!(output.status.code(), Some(0));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("3 measured, 1 measured before"), "{text}");
}

#[test]
fn suite_goes_on_past_failures() {
    let dock = Dock::new("sigkill");
    let output = dock.run(&["suite", "--only", "mlp"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output).contains("2 failed"), "{}", text(&output));
}

#[test]
fn suite_fits_look_for_nothing_twice() {
    let dock = Dock::new("limit");
    let words = ["suite", "--fits", "--only", "fit-mlp", "--limit", "640MiB"];
    let fits = dock.json(&words, 0);
    assert_eq!(fits["fits"][0]["max_batch"], 10, "{fits}");
    let workers = dock.workers();
    assert_eq!(dock.json(&words, 0)["fits"][0]["max_batch"], 10);
    assert_eq!(dock.workers(), workers);
}

#[test]
fn suite_lists_and_refuses() {
    let list = text(&Dock::new("fine").run(&["suite", "--list"]));
    assert_eq!(list.lines().filter(|line| !line.starts_with(' ')).count(), 36, "{list}");
    assert!(list.lines().all(|line| line.chars().count() <= 80), "{list}");
    for (words, hint) in [
        (["suite", "--only", "mpl"].as_slice(), "--list"),
        (&["suite", "--time-budget", "30"], "30m"),
        (&["ladder", "--preset", "bert"], "nbeats"),
        (&["ladder"], "--preset gpt2"),
    ] {
        let output = Dock::new("fine").run(words);
        assert_eq!(output.status.code(), Some(2));
        assert!(String::from_utf8_lossy(&output.stderr).contains(hint), "{words:?}");
    }
}
