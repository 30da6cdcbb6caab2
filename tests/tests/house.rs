//! What `docs/ARCHITECTURE.md` promises of the crates, read from their manifests.
#![cfg(not(target_arch = "wasm32"))]
#![allow(clippy::unwrap_used, reason = "a manifest that cannot be read fails the test")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// From the ground up; crates of one line do not see one another.
const FLOORS: [&[&str]; 10] = [
    &["ground"],
    &["catalog", "ledger", "snapshot"],
    &["scenario", "allocator"],
    &["torch", "exchange"],
    &["parallel"],
    &["families"],
    &["run"],
    &["estimate"],
    &["record", "summary"],
    &["core"],
];

/// What people use, and what is made of it.
const FACES: [&str; 3] = ["web", "probe", "server"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Names of the workspace's own crates that a manifest names in any of its tables of dependencies.
fn dependencies(folder: &Path) -> BTreeSet<String> {
    let manifest = fs::read_to_string(folder.join("Cargo.toml")).unwrap();
    let (mut within, mut found) = (false, BTreeSet::new());
    for line in manifest.lines() {
        if line.starts_with('[') {
            within = line.contains("dependencies");
        }
        let name = line.split(['.', ' ', '=']).next().unwrap_or_default();
        if let (true, Some(name)) = (within, name.strip_prefix("plimsoll-")) {
            found.insert(name.to_owned());
        }
    }
    found
}

fn folder(name: &str) -> PathBuf {
    if name == "core" { root().join("core") } else { root().join("core").join(name) }
}

/// What a person is given to select what a checkpoint keeps is what the probe runs, and so what was compared with the estimate.
#[test]
fn the_policy_that_is_written_down_is_the_workers() {
    let read = |path: &str| fs::read_to_string(root().join(path)).unwrap();
    let policy = read("core/exchange/src/write/keep_selected.py");
    let worker = read("probe/worker/checkpoints.py");
    assert!(policy.starts_with("def keep_selected():") && worker.contains(&policy));
    let checkpoint = read("core/exchange/src/write/offloaded_checkpoint.py");
    assert!(checkpoint.starts_with("def offloaded_checkpoint():") && worker.contains(&checkpoint));
}

#[test]
fn a_crate_sees_only_what_stands_below_it() {
    let mut below: BTreeSet<String> = BTreeSet::new();
    for floor in FLOORS {
        for name in floor {
            // A crate may ask for itself, with other features, in its own tests.
            let mut seen = dependencies(&folder(name));
            seen.remove(*name);
            let up: Vec<_> = seen.difference(&below).collect();
            assert!(up.is_empty(), "{name} sees {up:?}, which do not stand below it");
        }
        below.extend(floor.iter().map(|name| (*name).to_owned()));
    }
    let crates = fs::read_dir(root().join("core")).unwrap().flatten();
    for entry in crates.filter(|entry| entry.path().join("Cargo.toml").exists()) {
        let name = entry.file_name().into_string().unwrap();
        assert!(below.contains(&name), "{name} has no floor: give it one here and in docs/ARCHITECTURE.md");
    }
}

#[test]
fn nobody_who_writes_a_ledger_knows_who_reads_it() {
    for writer in ["torch", "parallel", "families", "run"] {
        let seen = dependencies(&folder(writer));
        let asks = writer == "torch" && seen.contains("allocator");
        assert!(!seen.contains("estimate") && (asks || !seen.contains("allocator")), "{writer} sees {seen:?}");
    }
    // What TRL does follows from addresses.
    let sources = folder("torch").join("src");
    let asking: Vec<String> = (rust_files(&sources).into_iter())
        .filter(|path| fs::read_to_string(path).unwrap().contains("plimsoll_allocator"))
        .map(|path| path.strip_prefix(&sources).unwrap().display().to_string())
        .collect();
    assert_eq!(asking, ["tensor/stash.rs"]);
}

/// The Rust files of a folder and those within.
fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files
}

#[test]
fn faces_see_the_door_only() {
    let behind: BTreeSet<&str> =
        FLOORS.iter().flat_map(|floor| *floor).copied().filter(|name| *name != "core").collect();
    for face in FACES {
        let seen = dependencies(&root().join(face));
        assert!(seen.contains("core"), "{face} does not see the engine: {seen:?}");
        let through: Vec<_> = seen.iter().filter(|name| behind.contains(name.as_str())).collect();
        assert!(through.is_empty(), "{face} sees {through:?} behind the door");
    }
}

#[test]
fn no_crate_allows_unsafe_code() {
    let crates =
        FLOORS.iter().flat_map(|floor| *floor).map(|name| folder(name)).chain(FACES.map(|face| root().join(face)));
    for folder in crates {
        let sources = [folder.join("src/lib.rs"), folder.join("src/main.rs")];
        for source in sources.into_iter().filter(|source| source.exists()) {
            let text = fs::read_to_string(&source).unwrap();
            assert!(text.contains("#![forbid(unsafe_code)]"), "{} does not forbid unsafe code", source.display());
        }
    }
    let hollow = fs::read_to_string(root().join("hollow/src/lib.rs")).unwrap();
    assert!(hollow.contains("#![deny(unsafe_code)]"), "the hollow card denies it");
    assert_eq!(hollow.matches("allow(unsafe_code").count(), 1, "and lets off what C calls, nothing else");
}

#[test]
fn the_map_names_every_crate() {
    let map = fs::read_to_string(root().join("docs/ARCHITECTURE.md")).unwrap();
    let cores = FLOORS.iter().flat_map(|floor| *floor).map(|name| match *name {
        "core" => "| `core` |".to_owned(),
        name => format!("| `core/{name}` |"),
    });
    for row in cores.chain(FACES.iter().chain(&["hollow"]).map(|name| format!("| `{name}` |"))) {
        assert!(map.contains(&row), "docs/ARCHITECTURE.md has no line for {row}");
    }
}
