//! Finding the user's Python: the one that is named, else the active environment's, else the one in PATH.

use std::env;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::ask::ask;
use super::quarters::Quarters;
use crate::exit::Failure;

/// How long an interpreter may take to say whether it has torch. Looking costs some 50 ms; a cold network disk more.
const PATIENCE: Duration = Duration::from_secs(20);

/// Looks for torch without importing it.
const HAS_TORCH: &str =
    "import importlib.util, sys; sys.stdout.write('yes' if importlib.util.find_spec('torch') else 'no')";

const INSTALL: &str = "install PyTorch (https://pytorch.org/get-started/locally tells the command for your card), \
     activate the environment that has it, or name its Python with --python PATH";

/// An interpreter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Python {
    /// How it is started: a path, or a name that PATH resolves.
    pub program: PathBuf,
}

/// The interpreter to use. One that is named is taken as it is: if it has no torch, the worker says so.
pub fn find(named: Option<&Path>) -> Result<Python, Failure> {
    if let Some(program) = named {
        return Ok(Python { program: program.to_owned() });
    }
    let mut without = Vec::new();
    for program in candidates(|name| env::var_os(name).map(PathBuf::from)) {
        match has_torch(&program) {
            Some(true) => return Ok(Python { program }),
            Some(false) => without.push(program.display().to_string()),
            None => {}
        }
    }
    let (problem, hint) = if without.is_empty() {
        ("no Python was found".to_owned(), format!("install Python 3.9 or newer; then {INSTALL}"))
    } else {
        (format!("no Python with PyTorch was found (looked at {})", without.join(", ")), INSTALL.to_owned())
    };
    Err(Failure::Environment { problem, hint })
}

/// Where to look, in this order.
fn candidates(variable: impl Fn(&str) -> Option<PathBuf>) -> Vec<PathBuf> {
    let mut all = Vec::new();
    let environment = if cfg!(windows) { "Scripts/python.exe" } else { "bin/python" };
    all.extend(variable("VIRTUAL_ENV").map(|root| root.join(environment)));
    let conda = if cfg!(windows) { "python.exe" } else { "bin/python" };
    all.extend(variable("CONDA_PREFIX").map(|root| root.join(conda)));
    all.extend(["python3", "python"].map(PathBuf::from));
    all
}

/// Whether torch can be imported there; `None` where that is no Python that answers.
fn has_torch(program: &Path) -> Option<bool> {
    let quarters = Quarters::new().ok()?;
    let python = Python { program: program.to_owned() };
    let answer = ask(quarters.inline(&python, HAS_TORCH), PATIENCE)?;
    match answer.as_str() {
        "yes" => Some(true),
        "no" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_active_environment_comes_first() {
        let all = candidates(|name| (name == "VIRTUAL_ENV").then(|| PathBuf::from("/env")));
        assert!(all[0].starts_with("/env"));
        assert_eq!(all[1..], ["python3", "python"].map(PathBuf::from));
        let all = candidates(|name| Some(PathBuf::from(format!("/{name}"))));
        assert!(all[0].starts_with("/VIRTUAL_ENV") && all[1].starts_with("/CONDA_PREFIX"));
    }

    #[test]
    fn one_that_is_named_is_taken() {
        assert_eq!(find(Some(Path::new("/x/python"))).unwrap().program, Path::new("/x/python"));
    }

    #[test]
    fn what_is_no_python_has_no_torch() {
        assert_eq!(has_torch(Path::new("/nonexistent/python")), None);
    }
}
