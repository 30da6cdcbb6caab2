//! The tools a build needs besides cargo: finds them, and installs what is missing after saying what and why.

use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::{
    shell::{self, headline, note},
    workspace,
};

/// The Trunk that builds the planner. 0.22 needs a newer rustc than rust-toolchain.toml names.
const TRUNK: &str = "0.21.14";

/// The target the planner is built for.
pub const WASM_TARGET: &str = "wasm32-unknown-unknown";

/// The oldest `wasm-opt` that reads what rustc 1.95 writes: the one Trunk 0.21.14 would download.
const OLDEST_WASM_OPT: u32 = 123;

/// The programs found or installed, each at exactly the version asked for.
#[derive(Debug)]
pub struct Tools {
    /// `trunk`.
    pub trunk: PathBuf,
    /// `wasm-bindgen`; its test runner lies beside it.
    pub wasm_bindgen: PathBuf,
    /// `wasm-opt`, when there is one: without it the planner is larger and otherwise the same.
    pub wasm_opt: Option<PathBuf>,
    wasm_opt_version: String,
    wasm_bindgen_version: String,
}

impl Tools {
    /// Finds or installs all of them.
    pub fn ready() -> Result<Self> {
        wasm_target()?;
        let wasm_bindgen_version = workspace::locked_version("wasm-bindgen")?;
        let trunk = installed(&Wanted {
            package: "trunk",
            program: "trunk",
            version: TRUNK,
            arguments: &["--locked", "--no-default-features", "--features", "rustls"],
            why: "it builds the planner (about five minutes, once)",
        })?;
        // Without --locked: the lock file it is published with names a dependency that is not everywhere to be had.
        let wasm_bindgen = installed(&Wanted {
            package: "wasm-bindgen-cli",
            program: "wasm-bindgen",
            version: &wasm_bindgen_version,
            arguments: &[],
            why: "it joins WebAssembly to JavaScript, and must be the version in Cargo.lock (about three minutes, once)",
        })?;
        let (wasm_opt, wasm_opt_version) = match wasm_opt() {
            Some((path, version)) => (Some(path), version.to_string()),
            None => (None, "none".to_owned()),
        };
        Ok(Self { trunk, wasm_bindgen, wasm_opt, wasm_opt_version, wasm_bindgen_version })
    }

    /// The versions in one line: a planner built with others is a different one.
    pub fn versions(&self) -> String {
        format!("trunk {TRUNK}, wasm-bindgen {}, wasm-opt {}", self.wasm_bindgen_version, self.wasm_opt_version)
    }

    /// Runs wasm tests under Node.
    pub fn wasm_test_runner(&self) -> PathBuf {
        self.wasm_bindgen.with_file_name(format!("wasm-bindgen-test-runner{}", std::env::consts::EXE_SUFFIX))
    }

    /// PATH with these tools first, as Trunk only looks there.
    pub fn path(&self) -> Result<OsString> {
        let ours = [Some(&self.trunk), Some(&self.wasm_bindgen), self.wasm_opt.as_ref()];
        let ours = ours.into_iter().flatten().filter_map(|program| program.parent()).map(Path::to_path_buf);
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::join_paths(ours.chain(std::env::split_paths(&path)))
            .context("a directory in PATH has a `:` in its name")
    }
}

/// A program to be had from crates.io.
struct Wanted<'a> {
    package: &'a str,
    program: &'a str,
    version: &'a str,
    arguments: &'a [&'a str],
    why: &'a str,
}

/// Finds the program at exactly this version, or installs it: among the user's own cargo programs, or into `.tools`
/// when that would replace another version of it.
fn installed(wanted: &Wanted) -> Result<PathBuf> {
    let Wanted { package, program, version, arguments, why } = *wanted;
    let ours = workspace::root().join(".tools");
    let mut others = false;
    for path in shell::find_program(program, &cargo_bins(&ours)) {
        match shell::output(Command::new(&path).arg("--version")) {
            Some(text) if text.split_whitespace().nth(1) == Some(version) => return Ok(path),
            Some(_) => others = true,
            None => {}
        }
    }
    headline(&format!("Installing {package} {version}: {why}"));
    let mut install = shell::cargo();
    install.args(["install", package, "--version", version]).args(arguments);
    if others {
        note(&format!("another version of {program} is there and stays as it is; this one goes to {}", ours.display()));
        install.arg("--root").arg(&ours);
    } else {
        note("into cargo's bin directory, beside your other cargo programs");
    }
    shell::run(&mut install)
        .with_context(|| format!("{package} could not be installed; it needs the network and a C compiler"))?;
    let found = shell::find_program(program, &cargo_bins(&ours)).into_iter().find(|path| {
        shell::output(Command::new(path).arg("--version"))
            .is_some_and(|text| text.split_whitespace().nth(1) == Some(version))
    });
    found.with_context(|| {
        format!("{package} was installed, but no `{program}` {version} is in cargo's bin directory or in PATH")
    })
}

/// Where `cargo install` puts programs.
fn cargo_bins(ours: &Path) -> Vec<PathBuf> {
    let cargo_home = std::env::var_os("CARGO_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::home_dir().map(|home| home.join(".cargo")));
    let install_root = std::env::var_os("CARGO_INSTALL_ROOT").map(PathBuf::from);
    [Some(ours.to_path_buf()), install_root, cargo_home].into_iter().flatten().map(|root| root.join("bin")).collect()
}

/// The standard library for WebAssembly.
fn wasm_target() -> Result<()> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let mut ask = Command::new(rustc);
    ask.current_dir(workspace::root()).args(["--print", "target-libdir", "--target", WASM_TARGET]);
    if shell::output(&mut ask).is_some_and(|directory| Path::new(&directory).is_dir()) {
        return Ok(());
    }
    headline(&format!("Adding Rust's {WASM_TARGET} target: the planner runs in the browser"));
    let mut rustup = Command::new("rustup");
    rustup.current_dir(workspace::root()).args(["target", "add", WASM_TARGET]);
    shell::run(&mut rustup).with_context(|| {
        format!("the {WASM_TARGET} target is missing; without rustup, install it the way you installed Rust")
    })
}

/// The best `wasm-opt` at hand: the one from npm, installed when it can be, or else a recent one in PATH.
fn wasm_opt() -> Option<(PathBuf, u32)> {
    if let Err(error) = npm_tools() {
        note(&format!("{error:#}"));
    }
    let found = shell::find_program("wasm-opt", &[npm_bin()]).into_iter().find_map(|path| {
        let version = wasm_opt_version(&shell::output(Command::new(&path).arg("--version"))?)?;
        (version >= OLDEST_WASM_OPT).then_some((path, version))
    });
    if found.is_none() {
        note("there is no recent wasm-opt: the planner is built without it, larger and otherwise the same");
        note("to have it: install Node.js with npm and run this again");
    }
    found
}

/// `wasm-opt version 132 (version_132)`.
fn wasm_opt_version(text: &str) -> Option<u32> {
    text.strip_prefix("wasm-opt version ")?.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

fn npm_directory() -> PathBuf {
    workspace::root().join("tests/tools")
}

fn npm_bin() -> PathBuf {
    npm_directory().join("node_modules/.bin")
}

/// The accessibility checker the browser tests inject into the page.
pub fn axe() -> Result<PathBuf> {
    npm_tools()?;
    Ok(npm_directory().join("node_modules/axe-core/axe.min.js"))
}

/// Installs what tests/tools/package.json pins, when it is not there yet.
fn npm_tools() -> Result<()> {
    let pinned = json(&npm_directory().join("package.json"))?;
    let pinned =
        pinned.get("devDependencies").and_then(Value::as_object).context("tests/tools/package.json pins nothing")?;
    let present = pinned.iter().all(|(name, version)| {
        json(&npm_directory().join("node_modules").join(name).join("package.json"))
            .is_ok_and(|package| package.get("version") == Some(version))
    });
    if present {
        return Ok(());
    }
    let npm = if cfg!(windows) { "npm.cmd" } else { "npm" };
    if shell::output(Command::new(npm).arg("--version")).is_none() {
        bail!(
            "npm is not installed, so neither wasm-opt nor the accessibility checker can be had from it: install Node.js"
        );
    }
    let names: Vec<String> =
        pinned.iter().map(|(name, version)| format!("{name} {}", version.as_str().unwrap_or_default())).collect();
    headline(&format!(
        "Installing {} into tests/tools: they shrink the planner and check its accessibility",
        names.join(" and ")
    ));
    let mut install = Command::new(npm);
    install.current_dir(workspace::root()).args(["ci", "--no-audit", "--no-fund", "--prefix", "tests/tools"]);
    shell::run(&mut install)
}

fn json(path: &Path) -> Result<Value> {
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    serde_json::from_str(&text).with_context(|| format!("{} is not JSON", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wasm_opt_says_its_version_in_several_ways() {
        assert_eq!(wasm_opt_version("wasm-opt version 132 (version_132)"), Some(132));
        assert_eq!(wasm_opt_version("wasm-opt version 108"), Some(108));
        assert_eq!(wasm_opt_version("something else"), None);
    }

    #[test]
    fn every_npm_tool_is_pinned_to_one_version() {
        let package = json(&npm_directory().join("package.json")).unwrap();
        for name in ["binaryen", "axe-core"] {
            let version = package["devDependencies"][name].as_str().unwrap();
            assert!(version.starts_with(|c: char| c.is_ascii_digit()), "{name} {version}");
        }
    }
}
