//! A release build carries the planner: builds it, and tells the crate where its files are.
//!
//! Debug builds carry none, and neither does a build without the feature `planner`: `plimsoll serve --planner` serves one
//! from a folder. `cargo install` sees neither a target directory of ours nor a `web/dist`, so that the planner is built
//! here, by a cargo of its own in a directory of its own: nothing that this machine happens to have lying about gets in.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The target the planner is built for.
const TARGET: &str = "wasm32-unknown-unknown";

/// What the planner is made of, from the root of the project. `web` as a whole would not do: `web/dist` lies in it.
const SOURCES: [&str; 9] = [
    "web/src",
    "web/assets",
    "web/styles",
    "web/index.html",
    "web/Cargo.toml",
    "web/bundle",
    "core",
    "data",
    "Cargo.lock",
];

/// What cargo tells a build script of its own work, which another cargo would take for itself.
const OURS: [&str; 8] = [
    "CARGO_BUILD_TARGET",
    "CARGO_BUILD_TARGET_DIR",
    "CARGO_BUILD_RUSTFLAGS",
    "CARGO_ENCODED_RUSTFLAGS",
    "CARGO_TARGET_DIR",
    "RUSTC_WORKSPACE_WRAPPER",
    "RUSTFLAGS",
    "TARGET",
];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    let file = out.join("planner.rs");
    let carries = env::var_os("CARGO_FEATURE_PLANNER").is_some() && env::var("PROFILE").as_deref() == Ok("release");
    let done = if carries { build(&out, &file) } else { fs::write(&file, "[]").map_err(|error| error.to_string()) };
    if let Err(problem) = done {
        let problem = format!("the planner was not built: {problem}\nto build without it: `--no-default-features`");
        for line in problem.lines() {
            println!("cargo::error={line}");
        }
    }
}

/// Builds the planner, and writes an expression that includes its files.
fn build(out: &Path, file: &Path) -> Result<(), String> {
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default()).join("..");
    for source in SOURCES {
        println!("cargo::rerun-if-changed={}", root.join(source).display());
    }
    has_target(&root)?;
    let target = out.join("target");
    let wasm =
        ["build", "--package", "plimsoll-web", "--bin", "planner", "--target", TARGET, "--profile", "wasm-release"];
    run(cargo(&root, &target).args(wasm))?;
    let mut bundle = cargo(&root, &target);
    // It runs once: what linking it more slowly would gain is lost many times over.
    bundle.env("CARGO_PROFILE_RELEASE_LTO", "off").env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16");
    bundle.args(["run", "--release", "--package", "plimsoll-bundle", "--", "--release", "--wasm"]);
    bundle.arg(target.join(TARGET).join("wasm-release/planner.wasm"));
    bundle.arg("--out").arg(out.join("planner")).arg("--embed").arg(file);
    if let Some(wasm_opt) = wasm_opt(&root) {
        bundle.arg("--wasm-opt").arg(wasm_opt);
    }
    run(&mut bundle)
}

fn has_target(root: &Path) -> Result<(), String> {
    let mut rustc = Command::new(env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    let asked = rustc.current_dir(root).args(["--print", "target-libdir", "--target", TARGET]).output();
    let there = asked.is_ok_and(|said| Path::new(String::from_utf8_lossy(&said.stdout).trim()).is_dir());
    let hint = format!("Rust's standard library for {TARGET} is missing: `rustup target add {TARGET}` installs it");
    if there { Ok(()) } else { Err(hint) }
}

/// The cargo that runs this, for a work of its own.
fn cargo(root: &Path, target: &Path) -> Command {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    for name in OURS {
        cargo.env_remove(name);
    }
    cargo.current_dir(root).env("CARGO_TARGET_DIR", target).arg("--locked");
    cargo
}

/// The `wasm-opt` that the project pins, where npm has installed it: without it the planner is larger and otherwise the same.
fn wasm_opt(root: &Path) -> Option<PathBuf> {
    let program =
        root.join("tests/tools/node_modules/.bin").join(if cfg!(windows) { "wasm-opt.cmd" } else { "wasm-opt" });
    println!("cargo::rerun-if-changed={}", root.join("tests/tools/package.json").display());
    program.is_file().then_some(program)
}

fn run(command: &mut Command) -> Result<(), String> {
    let done = command.output().map_err(|error| format!("cargo cannot be started: {error}"))?;
    if done.status.success() {
        return Ok(());
    }
    Err(format!("cargo failed ({}):\n{}", done.status, String::from_utf8_lossy(&done.stderr).trim_end()))
}
