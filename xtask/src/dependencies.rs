//! What the project depends on: from where, under which licence, and whether anything is known against it.

use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

use crate::{
    shell::{self, note},
    workspace,
};

/// What deny.toml allows and forbids, as far as it can be checked without a network.
#[derive(Debug)]
struct Rules {
    licences: Vec<String>,
    banned: Vec<String>,
    registries: Vec<String>,
}

/// Checks every package in Cargo.lock by deny.toml, and with cargo-deny where it is installed.
pub fn check() -> Result<()> {
    let text = std::fs::read_to_string(workspace::root().join("deny.toml")).context("cannot read deny.toml")?;
    let rules = Rules::read(&text)?;
    let listed = shell::output(shell::cargo().args(["metadata", "--locked", "--format-version", "1"]));
    let listed = listed.context("`cargo metadata --locked` failed: run it by hand to see why")?;
    let metadata: Value = serde_json::from_str(&listed)?;
    let packages = metadata.get("packages").and_then(Value::as_array).context("no packages in `cargo metadata`")?;
    let faults: Vec<String> = packages.iter().flat_map(|package| rules.faults(package)).collect();
    ensure!(faults.is_empty(), "{}", faults.join("; "));
    let foreign = packages.iter().filter(|package| package.get("source").is_some_and(Value::is_string)).count();
    // `--no-deps` by mistake would find nothing wrong with nothing.
    ensure!(foreign > 0, "`cargo metadata` told of no dependency");
    note(&format!("{} packages: sources and licences are as deny.toml has them", packages.len()));
    advisories()
}

/// What is known against a dependency stands in a database on the network: asked where there is a program that does.
fn advisories() -> Result<()> {
    if shell::find_program("cargo-deny", &[]).is_empty() {
        note("not looked at: security advisories (cargo-deny is not installed; the audit workflow asks daily)");
        return Ok(());
    }
    let mut fetch = shell::cargo();
    if shell::output(fetch.args(["deny", "fetch", "db"])).is_none() {
        note("not looked at: security advisories (their database cannot be fetched from here)");
        return Ok(());
    }
    shell::run(Command::new(env!("CARGO")).current_dir(workspace::root()).args(["deny", "check", "advisories"]))
}

impl Rules {
    fn read(text: &str) -> Result<Self> {
        let rules: Value = toml::from_str(text).context("deny.toml cannot be read")?;
        let list = |pointer: &str| -> Result<Vec<String>> {
            let list = rules.pointer(pointer).and_then(Value::as_array);
            let list = list.with_context(|| format!("deny.toml has no list {pointer}"))?;
            let text = |one: &Value| one.as_str().or_else(|| one.get("crate")?.as_str()).map(str::to_owned);
            list.iter().map(|one| text(one).with_context(|| format!("deny.toml: {one} in {pointer}"))).collect()
        };
        Ok(Self {
            licences: list("/licenses/allow")?,
            banned: list("/bans/deny")?,
            registries: list("/sources/allow-registry")?,
        })
    }

    /// What is wrong with a package of `cargo metadata`.
    fn faults(&self, package: &Value) -> Vec<String> {
        let of = |key: &str| package.get(key).and_then(Value::as_str).unwrap_or_default();
        let (name, licence, source) = (of("name"), of("license"), of("source"));
        let mut faults = Vec::new();
        if self.banned.iter().any(|banned| banned == name) {
            faults.push(format!("{name} is not to be used"));
        }
        // What is in the workspace has no source.
        let known = self.registries.iter().any(|known| source.strip_prefix("registry+") == Some(known));
        if !source.is_empty() && !known {
            faults.push(format!("{name} comes from {source}"));
        }
        match self.allows(licence) {
            Ok(true) => {}
            Ok(false) => faults.push(format!("{name} is under {licence:?}")),
            Err(error) => faults.push(format!("{name}: {error:#}")),
        }
        faults
    }

    /// Whether an SPDX expression can be met by what is allowed; `/` is an old `OR`.
    fn allows(&self, licence: &str) -> Result<bool> {
        let spaced = licence.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
        let mut words = spaced.split_whitespace().peekable();
        let met = self.any(&mut words)?;
        ensure!(words.next().is_none(), "{licence:?} is no licence");
        Ok(met)
    }

    fn any<'a>(&self, words: &mut std::iter::Peekable<impl Iterator<Item = &'a str>>) -> Result<bool> {
        let mut met = self.all(words)?;
        while words.next_if_eq(&"OR").is_some() {
            met |= self.all(words)?;
        }
        Ok(met)
    }

    fn all<'a>(&self, words: &mut std::iter::Peekable<impl Iterator<Item = &'a str>>) -> Result<bool> {
        let mut met = self.one(words)?;
        while words.next_if_eq(&"AND").is_some() {
            met &= self.one(words)?;
        }
        Ok(met)
    }

    fn one<'a>(&self, words: &mut std::iter::Peekable<impl Iterator<Item = &'a str>>) -> Result<bool> {
        match words.next() {
            Some("(") => {
                let met = self.any(words)?;
                ensure!(words.next() == Some(")"), "a bracket is not closed");
                Ok(met)
            }
            Some(name) if name != ")" => {
                let name = match words.next_if_eq(&"WITH") {
                    Some(_) => format!("{name} WITH {}", words.next().unwrap_or_default()),
                    None => name.to_owned(),
                };
                Ok(self.licences.contains(&name))
            }
            _ => bail!("it names no licence"),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rules() -> Rules {
        Rules::read(include_str!("../../deny.toml")).unwrap()
    }

    #[test]
    fn licences_are_read_as_spdx_has_them() {
        let rules = rules();
        for good in [
            "MIT",
            "MIT OR GPL-3.0",
            "GPL-3.0/MIT",
            "(MIT OR GPL-3.0) AND Unicode-3.0",
            "MIT AND ISC",
            "Apache-2.0 WITH LLVM-exception",
            "MIT OR Apache-2.0 OR LGPL-2.1-or-later",
        ] {
            assert!(rules.allows(good).unwrap(), "{good}");
        }
        for bad in ["GPL-3.0", "MIT AND GPL-3.0", "GPL-3.0 WITH LLVM-exception", "(GPL-3.0 OR AGPL-3.0) AND MIT"] {
            assert!(!rules.allows(bad).unwrap(), "{bad}");
        }
        for broken in ["", "MIT OR", "(MIT", "MIT)", "AND"] {
            assert!(rules.allows(broken).is_err() || !rules.allows(broken).unwrap(), "{broken}");
        }
    }

    #[test]
    fn what_is_banned_or_from_elsewhere_is_found() {
        let package = |name: &str, source: Value| json!({"name": name, "license": "MIT", "source": source});
        let faults = |package: &Value| rules().faults(package).len();
        let registry = json!("registry+https://github.com/rust-lang/crates.io-index");
        assert_eq!(faults(&package("serde", registry.clone())), 0);
        assert_eq!(faults(&package("plimsoll-core", Value::Null)), 0);
        assert_eq!(faults(&package("openssl-sys", registry)), 1);
        assert_eq!(faults(&package("serde", json!("git+https://example.org/serde"))), 1);
        assert_eq!(faults(&json!({"name": "x", "license": null, "source": null})), 1);
    }

    #[test]
    fn the_projects_own_dependencies_are_fine() {
        check().unwrap();
    }
}
