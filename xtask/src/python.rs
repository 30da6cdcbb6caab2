//! The Python that the tests of the worker run in: finds one with PyTorch, or installs one where that is asked for.

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, bail, ensure};

use crate::{
    shell::{self, headline, note},
    workspace,
};

/// What the tests need, one requirement a line, as pip reads it.
const REQUIREMENTS: &str = "probe/tests/worker/requirements.txt";

/// Where it is installed when no Python has it.
const ENVIRONMENT: &str = ".tools/python";

/// Names a Python to test with.
const NAMED: &str = "PLIMSOLL_TEST_PYTHON";

/// Prints the version of each distribution named, or nothing for one that is not there. Nothing is imported: that
/// would take seconds.
const VERSIONS: &str = "\
import sys
from importlib import metadata
for name in sys.argv[1:]:
    try: print(name, metadata.version(name))
    except metadata.PackageNotFoundError: print(name)";

/// A Python that has everything.
#[derive(Debug)]
pub struct Python {
    /// The interpreter.
    pub program: PathBuf,
    /// `torch 2.11.0, ...`.
    pub versions: String,
}

impl Python {
    /// The one that is named; else, with `install`, one of the checkout's own with exactly the versions asked for; else
    /// the first that has the packages, whatever their versions.
    pub fn ready(install: bool) -> Result<Self> {
        let wanted = wanted()?;
        if let Some(program) = env::var_os(NAMED).filter(|named| !named.is_empty()) {
            return look(Path::new(&program), &wanted)
                .map_err(|why| why.context(format!("{NAMED} names a Python, but")));
        }
        let own = own();
        if install {
            if let Ok(python) = look(&own, &wanted)
                && wanted.iter().all(|one| python.versions.contains(&format!("{} {}", one.name, one.version)))
            {
                return Ok(python);
            }
            set_up(&own)?;
            return look(&own, &wanted);
        }
        let mut reasons = Vec::new();
        for program in candidates(|name| env::var_os(name).map(PathBuf::from)).into_iter().chain([own]) {
            match look(&program, &wanted) {
                Ok(python) => return Ok(python),
                Err(why) => reasons.push(format!("{why:#}")),
            }
        }
        bail!(
            "no Python has what it needs ({}). Install {REQUIREMENTS} with pip into the active environment, or into one \
             of the checkout's own: `python3 -m venv {ENVIRONMENT} && {ENVIRONMENT}/bin/pip install -r {REQUIREMENTS}`; \
             or name a Python with {NAMED}",
            reasons.join("; ")
        )
    }
}

/// One line of the requirements.
#[derive(Debug, PartialEq, Eq)]
struct Wanted {
    name: String,
    version: String,
}

fn wanted() -> Result<Vec<Wanted>> {
    let path = workspace::root().join(REQUIREMENTS);
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    requirements(&text)
}

fn requirements(text: &str) -> Result<Vec<Wanted>> {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            let (name, version) =
                line.split_once("==").with_context(|| format!("{REQUIREMENTS}: {line:?} names no version"))?;
            Ok(Wanted { name: name.to_owned(), version: version.to_owned() })
        })
        .collect()
}

/// The interpreter of the checkout's own environment.
fn own() -> PathBuf {
    let program = if cfg!(windows) { "Scripts/python.exe" } else { "bin/python" };
    workspace::root().join(ENVIRONMENT).join(program)
}

/// Where to look, in this order: as `plimsoll probe` does.
fn candidates(variable: impl Fn(&str) -> Option<PathBuf>) -> Vec<PathBuf> {
    let environment = if cfg!(windows) { "Scripts/python.exe" } else { "bin/python" };
    let conda = if cfg!(windows) { "python.exe" } else { "bin/python" };
    let active = variable("VIRTUAL_ENV").map(|root| root.join(environment));
    let base = variable("CONDA_PREFIX").map(|root| root.join(conda));
    active.into_iter().chain(base).chain(["python3", "python"].map(PathBuf::from)).collect()
}

/// This Python, if it has every package.
fn look(program: &Path, wanted: &[Wanted]) -> Result<Python> {
    let mut python = Command::new(program);
    python.args(["-c", VERSIONS]).args(wanted.iter().map(|one| &one.name));
    let shown = program.strip_prefix(workspace::root()).unwrap_or(program).display();
    let Some(answer) = shell::output(&mut python) else { bail!("there is no {shown}") };
    let missing: Vec<&str> = answer.lines().filter(|line| !line.contains(' ')).collect();
    ensure!(missing.is_empty(), "{shown} has no {}", missing.join(", "));
    // Cargo runs tests in their package's directory; a bare name is looked for in PATH wherever that is.
    let program = if program.components().count() > 1 { std::path::absolute(program)? } else { program.to_owned() };
    Ok(Python { program, versions: answer.lines().collect::<Vec<_>>().join(", ") })
}

/// Makes the checkout's own environment.
fn set_up(own: &Path) -> Result<()> {
    headline("Installing PyTorch for the tests of the worker (some gigabytes to download, 5 GB on the disk, once)");
    let root = workspace::root();
    let environment = root.join(ENVIRONMENT);
    shell::run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&environment)).context(
        "cannot make a Python environment: install Python 3.10 or newer with its venv module (Debian, Ubuntu: \
         `apt-get install python3-venv`)",
    )?;
    let mut pip = Command::new(own);
    pip.current_dir(root).args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-cache-dir"]);
    // Python compiles what it imports itself; the rest, most of it, need not be.
    pip.args(["--no-compile", "--requirement", REQUIREMENTS]);
    if let Err(error) = shell::run(&mut pip) {
        note("a download that broke off is as often as not a matter of trying again");
        return Err(error);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_requirement_is_pinned() {
        let wanted = wanted().unwrap();
        let names: Vec<&str> = wanted.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(
            names,
            [
                "torch",
                "torchvision",
                "transformers",
                "peft",
                "bitsandbytes",
                "accelerate",
                "trl",
                "pytorch-lightning",
                "liger-kernel"
            ]
        );
        assert!(wanted.iter().all(|one| one.version.split('.').count() == 3));
        assert!(requirements("# why\n\ntorch==2.11.0\n").is_ok_and(|all| all.len() == 1));
        assert!(requirements("torch>=2.2").is_err());
    }

    #[test]
    fn a_python_without_the_packages_says_which() {
        let wanted = requirements("pip==1.0.0\nno-such-package==1.0.0\nnor-this-one==2.0.0").unwrap();
        if let Err(why) = look(Path::new("python3"), &wanted) {
            let why = why.to_string();
            assert!(why == "there is no python3" || why.contains("has no no-such-package, nor-this-one"), "{why}");
        } else {
            panic!("it has what nobody has");
        }
        let why = look(Path::new("/no/such/python"), &wanted).unwrap_err().to_string();
        assert_eq!(why, "there is no /no/such/python");
    }

    #[test]
    fn the_active_environment_comes_first() {
        let all = candidates(|name| Some(PathBuf::from(format!("/{name}"))));
        assert!(all[0].starts_with("/VIRTUAL_ENV") && all[1].starts_with("/CONDA_PREFIX"));
        assert_eq!(candidates(|_| None), ["python3", "python"].map(PathBuf::from));
    }
}
