//! Where things are in the checkout, and which versions it asks for.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::OnceLock,
};

use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::shell;

/// The workspace root.
pub fn root() -> &'static Path {
    static ROOT: OnceLock<PathBuf> = OnceLock::new();
    ROOT.get_or_init(|| {
        let manifest =
            std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from);
        manifest.parent().map_or_else(|| manifest.clone(), Path::to_path_buf)
    })
}

/// What `cargo metadata` says of the workspace's own packages.
pub fn metadata() -> Result<Value> {
    let text = shell::output(shell::cargo().args(["metadata", "--no-deps", "--format-version", "1"]))
        .context("`cargo metadata` failed: run it by hand to see why")?;
    serde_json::from_str(&text).context("`cargo metadata` printed something that is not JSON")
}

/// Cargo's target directory.
pub fn target() -> Result<PathBuf> {
    let metadata = metadata()?;
    metadata
        .get("target_directory")
        .and_then(Value::as_str)
        .map(PathBuf::from)
        .context("no target directory in `cargo metadata`")
}

/// The version of a package in Cargo.lock.
pub fn locked_version(package: &str) -> Result<String> {
    let lock = fs::read_to_string(root().join("Cargo.lock")).context("cannot read Cargo.lock")?;
    version_in(&lock, package).with_context(|| format!("Cargo.lock has no package `{package}`"))
}

fn version_in(lock: &str, package: &str) -> Option<String> {
    let name = format!("name = \"{package}\"");
    let mut lines = lock.lines().skip_while(|line| *line != name);
    let version = lines.nth(1)?;
    Some(version.strip_prefix("version = \"")?.trim_end_matches('"').to_owned())
}

/// Every file below `path` (or `path` itself), sorted; directories for which `skip` holds are not entered.
pub fn files(path: &Path, skip: &dyn Fn(&Path) -> bool) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut waiting = vec![path.to_path_buf()];
    while let Some(path) = waiting.pop() {
        if path.is_file() {
            found.push(path);
        } else if path.is_dir() && !skip(&path) {
            for entry in fs::read_dir(&path).with_context(|| format!("cannot read {}", path.display()))? {
                waiting.push(entry?.path());
            }
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_come_from_the_lock_file() {
        let lock = "[[package]]\nname = \"wasm-bindgen-macro\"\nversion = \"1.0.0\"\n\n\
                    [[package]]\nname = \"wasm-bindgen\"\nversion = \"0.2.130\"\nsource = \"x\"\n";
        assert_eq!(version_in(lock, "wasm-bindgen").as_deref(), Some("0.2.130"));
        assert_eq!(version_in(lock, "wasm"), None);
        assert_eq!(version_in("", "wasm-bindgen"), None);
    }

    #[test]
    fn files_are_sorted_and_skipped_directories_left_out() {
        let src = root().join("xtask");
        let all = files(&src, &|path| path.ends_with("test")).unwrap();
        assert!(all.contains(&src.join("src/main.rs")) && all.is_sorted());
        assert!(all.iter().all(|path| !path.starts_with(src.join("src/test"))));
    }
}
