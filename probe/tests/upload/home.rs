//! Running `plimsoll upload` with data of the test's own.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

/// A user's home for one test.
pub struct Home(TempDir);

impl Home {
    pub fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// A file in it.
    pub fn file(&self, name: &str, content: &[u8]) -> String {
        let path = self.0.path().join(name);
        fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_owned()
    }

    /// A valid record in it; equal numbers make equal records.
    pub fn record(&self, name: &str, number: u64) -> String {
        // In the form the program writes, so that the file can be compared with what is sent.
        let text = include_str!("record.json");
        let text = text.replace("\"step_micros\": 30000", &format!("\"step_micros\": {}", 30_000 + number));
        self.file(name, text.as_bytes())
    }

    /// `plimsoll upload` with these words, its data and its variables those of this home.
    pub fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
        command.arg("upload").env("PLIMSOLL_DATA", self.data()).env("UPLOAD_TOKEN", "s3cret-of-the-environment");
        command
    }

    /// Where its data are.
    pub fn data(&self) -> PathBuf {
        self.0.path().join("data")
    }

    /// Runs it without a terminal.
    pub fn upload(&self, words: &[&str]) -> Output {
        self.command().args(words).stdin(Stdio::null()).output().unwrap()
    }
}

pub fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}
