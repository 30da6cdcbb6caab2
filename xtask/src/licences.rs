//! What the project depends on is from where, and under the licences, that deny.toml allows. cargo-deny reads that file too,
//! and in CI does; this is so that nobody needs it to find out.

use std::collections::HashSet;
use std::fs;

use serde_json::Value;
use spdx::{Expression, Licensee, ParseMode};

use crate::{shell, workspace};

/// What deny.toml allows and forbids, as far as it can be checked without a network.
struct Rules {
    licences: Vec<Licensee>,
    banned: HashSet<String>,
    registries: Vec<String>,
}

impl Rules {
    fn read() -> Self {
        let text = fs::read_to_string(workspace::root().join("deny.toml")).unwrap();
        let rules: Value = toml::from_str(&text).unwrap();
        let list = |pointer: &str| rules.pointer(pointer).unwrap().as_array().unwrap().clone();
        let text = |one: Value| one.as_str().or_else(|| one["crate"].as_str()).unwrap().to_owned();
        Self {
            licences: list("/licenses/allow").into_iter().map(|one| Licensee::parse(&text(one)).unwrap()).collect(),
            banned: list("/bans/deny").into_iter().map(text).collect(),
            registries: list("/sources/allow-registry").into_iter().map(text).collect(),
        }
    }

    /// What is wrong with a package of `cargo metadata`.
    fn faults(&self, package: &Value) -> Vec<String> {
        let of = |key: &str| package[key].as_str().unwrap_or_default();
        let (name, licence, source) = (of("name"), of("license"), of("source"));
        let mut faults = Vec::new();
        if self.banned.contains(name) {
            faults.push(format!("{name} is not to be used"));
        }
        // What is in the workspace has no source.
        let known = self.registries.iter().any(|known| source.strip_prefix("registry+") == Some(known));
        if !source.is_empty() && !known {
            faults.push(format!("{name} comes from {source}"));
        }
        // Old packages write `MIT/Apache-2.0`.
        match Expression::parse_mode(licence, ParseMode::LAX) {
            Ok(met) if met.evaluate(|asked| self.licences.iter().any(|allowed| allowed.satisfies(asked))) => {}
            Ok(_) => faults.push(format!("{name} is under {licence:?}")),
            Err(error) => faults.push(format!("{name} is under {licence:?}: {error}")),
        }
        faults
    }
}

#[test]
fn the_projects_dependencies_are_as_deny_toml_has_them() {
    let rules = Rules::read();
    let listed = shell::output(shell::cargo().args(["metadata", "--locked", "--format-version", "1"]));
    let metadata: Value = serde_json::from_str(&listed.expect("`cargo metadata --locked` failed")).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    // `--no-deps` by mistake would find nothing wrong with nothing.
    assert!(packages.iter().any(|package| package["source"].is_string()));
    let faults: Vec<String> = packages.iter().flat_map(|package| rules.faults(package)).collect();
    assert!(faults.is_empty(), "{}", faults.join("; "));
}

#[test]
fn what_is_forbidden_is_found() {
    let rules = Rules::read();
    let registry = "registry+https://github.com/rust-lang/crates.io-index";
    let faults = |name: &str, licence: &str, source: Option<&str>| {
        rules.faults(&serde_json::json!({ "name": name, "license": licence, "source": source })).len()
    };
    for licence in ["MIT", "GPL-3.0/MIT", "(MIT OR GPL-3.0) AND Unicode-3.0", "Apache-2.0 WITH LLVM-exception"] {
        assert_eq!(faults("a", licence, Some(registry)), 0, "{licence}");
    }
    for licence in ["GPL-3.0", "MIT AND GPL-3.0", "(GPL-3.0 OR AGPL-3.0) AND MIT", "", "no licence"] {
        assert_eq!(faults("a", licence, Some(registry)), 1, "{licence}");
    }
    assert_eq!(faults("plimsoll-core", "MIT", None), 0);
    assert_eq!(faults("openssl-sys", "MIT", Some(registry)), 1);
    assert_eq!(faults("serde", "MIT", Some("git+https://example.org/serde")), 1);
}
