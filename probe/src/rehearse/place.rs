//! Where things are: PyTorch's package, and the library that stands in for the card.

use std::env;
use std::path::{Path, PathBuf};
use std::time::Duration;

use plimsoll_hollow::LIBRARY;

use crate::exit::Failure;
use crate::worker::{Python, Quarters, ask};

/// Says where torch is without importing it.
const WHERE: &str = "import importlib.util, os, sys; s = importlib.util.find_spec('torch'); \
    sys.stdout.write(os.path.dirname(s.origin) if s and s.origin else '')";

const INSTALL: &str =
    "name a Python that has PyTorch's CUDA build with --python PATH; on Linux, pip install torch brings it";

/// How long Python may take to say it, on a machine that is busy with other work.
const PATIENCE: Duration = Duration::from_secs(60);

/// The folder of PyTorch's package. Python is asked in `quarters`, where it finds nothing to import but what is its own.
pub fn torch(quarters: &Quarters, python: &Path) -> Result<PathBuf, Failure> {
    let asked = Python { program: python.to_owned() };
    let answer = ask(quarters.inline(&asked, WHERE), PATIENCE);
    let folder = answer.ok_or_else(|| Failure::Environment {
        problem: format!("cannot run {}", python.display()),
        hint: INSTALL.to_owned(),
    })?;
    if folder.is_empty() {
        return Err(Failure::Environment {
            problem: format!("{} has no PyTorch", python.display()),
            hint: INSTALL.to_owned(),
        });
    }
    Ok(PathBuf::from(folder))
}

/// The stand-in: beside this program, or where a package or cargo puts it.
pub fn stand_in() -> Result<PathBuf, Failure> {
    let program = env::current_exe().unwrap_or_default();
    let folder = program.parent().unwrap_or(Path::new("."));
    // Cargo makes the one in deps with the program; beside it may lie an older one.
    let places = [folder.join("deps"), folder.to_owned(), folder.join("../lib/plimsoll"), folder.join("..")];
    places.iter().map(|place| place.join(LIBRARY)).find(|file| file.is_file()).ok_or_else(|| Failure::Environment {
        problem: format!("{LIBRARY} is not beside {}", program.display()),
        hint: "keep the two together, as they were unpacked or built".to_owned(),
    })
}
