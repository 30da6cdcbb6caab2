//! `plimsoll-bundle` as a program.
#![allow(clippy::unwrap_used, reason = "a helper that fails, fails the test")]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

/// The smallest of all WebAssembly: eight bytes that say what it is.
const EMPTY: &[u8] = b"\0asm\x01\0\0\0";

fn bundle(arguments: &[&str], folder: &Path) -> Output {
    let mut bundle = Command::new(env!("CARGO_BIN_EXE_plimsoll-bundle"));
    bundle.current_dir(folder).args(arguments).output().unwrap()
}

#[test]
fn the_planners_files_are_made_once() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("planner.wasm"), EMPTY).unwrap();
    let arguments = ["--wasm", "planner.wasm", "--out", "dist", "--embed", "planner.rs"];
    let done = bundle(&arguments, folder.path());
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    assert!(String::from_utf8_lossy(&done.stdout).contains(" KB as sent"));

    let dist = folder.path().join("dist");
    let page = fs::read_to_string(dist.join("index.html")).unwrap();
    let named = page.split('"').filter(|part| part.starts_with("planner-") || part.ends_with(".js"));
    let named: Vec<&str> = named.collect();
    assert!(named.len() >= 5, "{named:?}");
    for file in named.iter().chain(&["site.json", "worker.js", "measurements/index.json", "index.html.br"]) {
        assert!(dist.join(file).is_file(), "{file} is not there");
    }
    let embedded = fs::read_to_string(folder.path().join("planner.rs")).unwrap();
    assert!(embedded.contains("(\"index.html\", include_bytes!("), "{embedded}");

    // Nothing has changed: nothing is done, and nothing said.
    let again = bundle(&arguments, folder.path());
    assert!(again.status.success() && again.stdout.is_empty());
    fs::remove_file(dist.join("index.html")).unwrap();
    assert!(!bundle(&arguments, folder.path()).stdout.is_empty() && dist.join("index.html").is_file());
}

#[test]
fn what_is_wrong_is_said() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("broken.wasm"), "no wasm").unwrap();
    for (arguments, code, why) in [
        (&["--wasm", "none.wasm", "--out", "dist"][..], 1, "there is no none.wasm"),
        (&["--wasm", "broken.wasm", "--out", "dist"], 1, "broken.wasm cannot be joined"),
        (&["--out", "dist"], 2, "--wasm is missing"),
    ] {
        let done = bundle(arguments, folder.path());
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.code() == Some(code) && said.contains(why), "{said}");
        assert!(!folder.path().join("dist").exists());
    }
}
