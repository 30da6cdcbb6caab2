//! What a build and the tests need besides cargo: finds it, and installs what is missing after saying what and why.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

use crate::{
    shell::{self, headline},
    workspace,
};

/// The target the planner is built for.
pub const WASM_TARGET: &str = "wasm32-unknown-unknown";

/// The standard library for WebAssembly.
pub fn wasm_target() -> Result<()> {
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

/// SQLite and the cryptography of TLS are C: better said now than after minutes of building.
pub fn c_compiler() -> Result<()> {
    // Where it is Microsoft's, cargo finds it by other means than PATH.
    let there = cfg!(windows)
        || ["CC", "HOST_CC"].iter().any(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty()))
        || ["cc", "gcc", "clang"].iter().any(|name| !shell::find_program(name, &[]).is_empty());
    ensure!(
        there,
        "there is no C compiler, which SQLite and TLS need: install one (Debian, Ubuntu: `apt-get install \
         build-essential`; macOS: `xcode-select --install`)"
    );
    Ok(())
}

/// `wasm-opt 132`, or that there is none, of what npm has installed.
pub fn wasm_opt_version() -> String {
    let said = shell::output(Command::new(wasm_opt()).arg("--version"));
    let version = said.as_deref().and_then(|text| text.strip_prefix("wasm-opt version ")?.split(' ').next());
    version.map_or_else(|| "without wasm-opt".to_owned(), |version| format!("wasm-opt {version}"))
}

/// Where npm puts `wasm-opt`.
pub fn wasm_opt() -> PathBuf {
    npm_directory().join("node_modules/.bin").join(if cfg!(windows) { "wasm-opt.cmd" } else { "wasm-opt" })
}

fn npm_directory() -> PathBuf {
    workspace::root().join("tests/tools")
}

/// The accessibility checker the browser tests inject into the page.
pub fn axe() -> Result<PathBuf> {
    npm()?;
    Ok(npm_directory().join("node_modules/axe-core/axe.min.js"))
}

/// Installs what tests/tools/package.json pins, when it is not there yet.
pub fn npm() -> Result<()> {
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
    fn every_npm_tool_is_pinned_to_one_version() {
        let package = json(&npm_directory().join("package.json")).unwrap();
        for name in ["binaryen", "axe-core"] {
            let version = package["devDependencies"][name].as_str().unwrap();
            assert!(version.starts_with(|c: char| c.is_ascii_digit()), "{name} {version}");
        }
    }
}
