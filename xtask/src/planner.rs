//! Builds the planner into web/dist and compresses it; does nothing when nothing it is made of has changed.

use std::{
    fs,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, ensure};
use plimsoll_core::Measurement;
use serde_json::json;

use crate::{
    compress,
    shell::{self, headline, note},
    tools::{Tools, WASM_TARGET},
    workspace,
};

/// Everything the planner is made of, below the root.
const INPUTS: [&str; 8] = [
    "web",
    "core",
    "data",
    "xtask/src/planner.rs",
    "xtask/src/compress.rs",
    "Cargo.toml",
    "Cargo.lock",
    "rust-toolchain.toml",
];

/// Where the planner is built.
pub fn dist() -> PathBuf {
    workspace::root().join("web/dist")
}

/// Builds the planner unless it is there already.
pub fn build(tools: &Tools) -> Result<()> {
    let stamp = workspace::target()?.join("xtask/planner.stamp");
    let inputs = inputs(tools)?;
    let recorded = fs::read_to_string(&stamp).unwrap_or_default();
    if recorded == format!("{inputs} {}", contents()?) {
        headline("The planner is built already");
        return Ok(());
    }
    // Trunk works offline, so that it takes the tools it is given; cargo must have its packages before.
    headline("Fetching the planner's packages");
    shell::run(shell::cargo().args(["fetch", "--locked", "--target", WASM_TARGET]))?;

    headline(&format!("Building the planner ({})", tools.versions()));
    shell::run(&mut trunk(tools)?)?;
    ensure!(dist().join("index.html").is_file(), "Trunk wrote no web/dist/index.html");

    ship_measurements()?;

    headline("Compressing the planner");
    compress::beside(&workspace::files(&dist(), &hidden)?)?;
    let (raw, brotli) = sizes()?;
    note(&format!("{} KB, {} KB as sent with brotli", raw.div_ceil(1000), brotli.div_ceil(1000)));

    fs::create_dir_all(stamp.parent().unwrap_or(Path::new(".")))?;
    fs::write(&stamp, format!("{inputs} {}", contents()?)).with_context(|| format!("cannot write {}", stamp.display()))
}

/// Puts the records of `data/measurements` beside the page: a list of them, and each whole.
fn ship_measurements() -> Result<()> {
    let into = dist().join("measurements");
    fs::create_dir_all(&into).with_context(|| format!("cannot make {}", into.display()))?;
    let mut points = Vec::new();
    for file in workspace::files(&workspace::root().join("data/measurements"), &hidden)? {
        if file.extension().is_none_or(|e| e != "json") {
            continue;
        }
        let record = Measurement::from_json(&fs::read_to_string(&file)?)
            .map_err(|error| anyhow::anyhow!("{}: {error}", file.display()))?;
        let point = record.point().map_err(|error| anyhow::anyhow!("{}: {error}", file.display()))?;
        fs::write(into.join(format!("{}.json", point.id)), record.canonical())?;
        points.push(point);
    }
    points.sort_by(|a, b| b.taken.cmp(&a.taken).then_with(|| a.id.cmp(&b.id)));
    note(&format!("{} measurements ship with it", points.len()));
    let list = json!({ "schema": 1, "items": points, "next": null, "total": points.len() });
    fs::write(into.join("index.json"), list.to_string()).context("cannot write measurements/index.json")
}

fn trunk(tools: &Tools) -> Result<Command> {
    let mut trunk = Command::new(&tools.trunk);
    trunk.current_dir(workspace::root().join("web")).arg("build");
    match &tools.wasm_opt {
        Some(_) => trunk.arg("--release"),
        // Trunk runs wasm-opt in its release mode only; the profile is what makes the planner an optimised one.
        None => trunk.args(["--cargo-profile", "wasm-release"]),
    };
    trunk
        .args(["--locked", "--dist", "dist"])
        .env("PATH", tools.path()?)
        .env("TRUNK_OFFLINE", "true")
        .env("TRUNK_SKIP_VERSION_CHECK", "true")
        // Trunk 0.21.14 takes NO_COLOR for a boolean and stops at `NO_COLOR=1`.
        .env_remove("NO_COLOR");
    Ok(trunk)
}

/// A hash over everything the planner is made of.
fn inputs(tools: &Tools) -> Result<String> {
    let mut hasher = DefaultHasher::new();
    tools.versions().hash(&mut hasher);
    for input in INPUTS {
        hash_files(&workspace::root().join(input), &mut hasher)?;
    }
    Ok(format!("{:016x}", hasher.finish()))
}

/// A hash over what was built, so that a planner which was deleted or changed by hand is built again.
fn contents() -> Result<String> {
    let mut hasher = DefaultHasher::new();
    hash_files(&dist(), &mut hasher)?;
    Ok(format!("{:016x}", hasher.finish()))
}

fn hash_files(path: &Path, hasher: &mut DefaultHasher) -> Result<()> {
    let built = dist();
    // web/dist is an output when one hashes web, and what is asked for when one hashes it.
    for file in workspace::files(path, &|directory| hidden(directory) || (directory == built && path != built))? {
        file.strip_prefix(workspace::root()).unwrap_or(&file).hash(hasher);
        fs::read(&file).with_context(|| format!("cannot read {}", file.display()))?.hash(hasher);
    }
    Ok(())
}

/// Directories that belong to tools: `.stage` of Trunk, `node_modules`.
fn hidden(directory: &Path) -> bool {
    directory
        .file_name()
        .and_then(|name| name.to_str())
        .is_some_and(|name| name.starts_with('.') || name == "node_modules")
}

/// One file of the built planner in its three forms, in bytes.
#[derive(Debug)]
pub struct Size {
    /// Path below web/dist.
    pub name: String,
    /// As it is.
    pub raw: u64,
    /// With gzip; as it is where that is no gain.
    pub gzip: u64,
    /// With brotli; as it is where that is no gain.
    pub brotli: u64,
}

/// Every file of the built planner, the largest first.
pub fn sizes_by_file() -> Result<Vec<Size>> {
    let dist = dist();
    let mut sizes = Vec::new();
    for file in workspace::files(&dist, &hidden)? {
        if matches!(file.extension().and_then(|e| e.to_str()), Some("br" | "gz")) {
            continue;
        }
        let raw = fs::metadata(&file)?.len();
        let stored = |suffix: &str| {
            let mut name = file.as_os_str().to_owned();
            name.push(suffix);
            fs::metadata(name).map_or(raw, |form| form.len())
        };
        let name = file.strip_prefix(&dist).unwrap_or(&file).display().to_string();
        sizes.push(Size { name, raw, gzip: stored(".gz"), brotli: stored(".br") });
    }
    sizes.sort_by(|a, b| b.raw.cmp(&a.raw).then_with(|| a.name.cmp(&b.name)));
    Ok(sizes)
}

fn sizes() -> Result<(u64, u64)> {
    Ok(sizes_by_file()?.iter().fold((0, 0), |(raw, brotli), file| (raw + file.raw, brotli + file.brotli)))
}
