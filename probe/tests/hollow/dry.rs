//! Commands of ours on a hollow card, and what they leave.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

pub const PROGRAM: &str = env!("CARGO_BIN_EXE_plimsoll");

/// A rehearsal of commands of ours, with a folder for what they keep.
pub struct Dry {
    pub folder: PathBuf,
    options: Vec<String>,
    environment: Vec<(&'static str, &'static str)>,
}

/// What came of it.
pub struct Ran {
    /// The exit code of the command itself, where it is told.
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
    pub folder: PathBuf,
}

pub fn python() -> String {
    env::var("PLIMSOLL_TEST_PYTHON").unwrap_or_else(|_| "python3".to_owned())
}

impl Dry {
    pub fn on(name: &str, options: &[&str]) -> Self {
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("hollow").join(name);
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        Self { folder, options: options.iter().map(|&o| o.to_owned()).collect(), environment: Vec::new() }
    }

    pub fn with(mut self, name: &'static str, value: &'static str) -> Self {
        self.environment.push((name, value));
        self
    }

    pub fn command(&self, command: &[&str]) -> Command {
        let mut process = Command::new(PROGRAM);
        process.args(["rehearse", "--gpu", "rtx-3060", "--python", &python()]).args(&self.options);
        process.arg("--").args(command);
        process
            .env_remove("PYTORCH_CUDA_ALLOC_CONF")
            .env_remove("PYTORCH_ALLOC_CONF")
            .env_remove("CUDA_VISIBLE_DEVICES");
        // Several of them share a machine.
        process.env("OMP_NUM_THREADS", "1").env("PLIMSOLL_DATA", self.folder.join("data"));
        process.envs(self.environment.iter().copied());
        process
    }

    /// Runs a command; `None`, in words, where the Python's PyTorch is not for CUDA.
    pub fn run(&self, command: &[&str]) -> Option<Ran> {
        let output = self.command(command).output().unwrap();
        self.ran(&output)
    }

    fn ran(&self, output: &Output) -> Option<Ran> {
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        if stderr.contains("is not built for CUDA") {
            eprintln!("SKIPPED: {}", stderr.trim());
            return None;
        }
        assert!(!stderr.contains("panicked"), "{stderr}");
        let told = stderr.split("the command failed (exit status: ").nth(1).and_then(|rest| rest.split(')').next());
        let code = told.map_or_else(|| output.status.code().unwrap(), |code| code.parse().unwrap());
        let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
        Some(Ran { code, stdout, stderr, folder: self.folder.clone() })
    }

    /// Runs `plimsoll probe WHAT ARGS`, with the record written beside.
    pub fn probe(&self, what: &str, args: &[&str]) -> Option<Ran> {
        let (out, python) = (self.folder.join("out"), python());
        let command = [&[PROGRAM, "probe", what, "--python", &python, "--out", out.to_str().unwrap()], args].concat();
        self.run(&command)
    }
}

impl Ran {
    /// The record of `probe run`.
    pub fn record(&self) -> Value {
        let text = fs::read_to_string(self.folder.join("out")).unwrap_or_else(|e| panic!("{e}: {}", self.stderr));
        serde_json::from_str(&text).unwrap()
    }

    pub fn ends(&self, code: i32) -> &Self {
        assert_eq!(self.code, code, "{}\n{}", self.stdout, self.stderr);
        self
    }

    pub fn says(&self, part: &str) -> &Self {
        assert!(
            self.stderr.contains(part) || self.stdout.contains(part),
            "no {part:?}: {}\n{}",
            self.stdout,
            self.stderr
        );
        self
    }
}

/// Files below a folder.
pub fn files(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let paths = entries.map(|entry| entry.unwrap().path());
    let mut all: Vec<PathBuf> = paths.flat_map(|p| if p.is_dir() { files(&p) } else { vec![p] }).collect();
    all.sort();
    all
}

pub fn outcomes(record: &Value) -> Vec<(u64, u64, String)> {
    let attempts = record["attempts"].as_array().unwrap();
    let number = |a: &Value, key: &str| a[key].as_u64().unwrap();
    let each = |a: &Value| (number(a, "batch"), number(a, "accumulation"), a["outcome"].as_str().unwrap().to_owned());
    attempts.iter().map(each).collect()
}
