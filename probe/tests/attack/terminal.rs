//! Nothing of other people's names commands a terminal.

use std::fs;
use std::process::{Command, Output, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use crate::plimsoll;

/// Sets the title of a window, colours, rings, and turns the order of reading around.
const EVIL: &str = "\u{1b}]0;pwn\u{7}\u{1b}[31m\u{9b}31m\u{202e}EVIL";

fn run(args: &[&str]) -> Output {
    let mut command = Command::new(plimsoll());
    command.args(args).stdin(Stdio::null()).env("CLICOLOR_FORCE", "1");
    command.output().unwrap()
}

#[test]
fn names_of_files_and_arguments_are_written_out() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join(format!("{EVIL}.toml"));
    fs::write(&file, "[model]\nnonsense = 1\n").unwrap();
    let (file, missing) = (file.to_str().unwrap().to_owned(), format!("{EVIL}-missing.toml"));
    let flag = format!("--{EVIL}");
    for args in [
        vec!["estimate", file.as_str()],
        vec!["estimate", missing.as_str()],
        vec!["estimate", flag.as_str()],
        vec![EVIL],
        vec!["probe", "run", "--family", "mlp", "--device", "cpu", "--python", missing.as_str()],
        vec!["import", missing.as_str()],
    ] {
        let output = run(&args);
        let told = String::from_utf8(output.stderr).unwrap();
        assert!(told.contains("EVIL"), "{args:?}: {told}");
        for bad in ["\u{1b}]", "\u{7}", "\u{1b}[31m\u{9b}", "\u{9b}", "\u{202e}"] {
            assert!(!told.contains(bad), "{args:?}: {told:?}");
        }
    }
}

#[test]
fn a_fifo_among_records_is_passed_over() {
    let folder = tempfile::tempdir().unwrap();
    let made = Command::new("mkfifo").arg(folder.path().join("x.json")).status().unwrap();
    assert!(made.success());
    let (path, database) = (folder.path().to_owned(), format!("sqlite://{}", folder.path().join("a.db").display()));
    let (done, told) = mpsc::channel();
    let mut child = Command::new(plimsoll())
        .args(["import", path.to_str().unwrap(), "--database", &database])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let pid = child.id();
    let waits = std::thread::spawn(move || {
        let status = child.wait().unwrap();
        let _ = done.send(());
        status
    });
    if told.recv_timeout(Duration::from_secs(120)).is_err() {
        let _ = Command::new("kill").args(["-9", &pid.to_string()]).status();
    }
    assert_eq!(waits.join().unwrap().code(), Some(0));
}
