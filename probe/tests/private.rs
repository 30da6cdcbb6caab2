//! Nothing that others may have left where temporary files are, nor what lies in the current folder, is imported by a
//! Python that Plimsoll starts.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "the helpers of a test may fail it as its own lines may")]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// What the worker, the survey and the search for PyTorch import, or what they import in turn.
const MODULES: &[&str] = &[
    "codecs",
    "collections",
    "contextlib",
    "copyreg",
    "ctypes",
    "dataclasses",
    "enum",
    "faulthandler",
    "functools",
    "heapq",
    "importlib",
    "io",
    "json",
    "keyword",
    "linecache",
    "numbers",
    "operator",
    "os",
    "platform",
    "queue",
    "random",
    "re",
    "reprlib",
    "runpy",
    "shutil",
    "signal",
    "site",
    "stat",
    "string",
    "struct",
    "subprocess",
    "tempfile",
    "textwrap",
    "threading",
    "token",
    "tokenize",
    "torch",
    "traceback",
    "types",
    "typing",
    "warnings",
    "weakref",
];

/// A place with a trap in it.
struct Trap {
    folder: tempfile::TempDir,
}

impl Trap {
    fn new() -> Self {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let trap = Self { folder };
        for place in [trap.shared(), trap.current()] {
            fs::create_dir(&place).unwrap();
            for module in MODULES {
                let text = format!("open({:?}, 'a').write('{module} in {}\\n')\n", trap.sprung(), place.display());
                fs::write(place.join(format!("{module}.py")), text).unwrap();
            }
        }
        // As the folder for everybody's temporary files is.
        fs::set_permissions(trap.shared(), fs::Permissions::from_mode(0o1777)).unwrap();
        trap
    }

    fn shared(&self) -> PathBuf {
        self.folder.path().join("shared")
    }

    fn current(&self) -> PathBuf {
        self.folder.path().join("current")
    }

    fn sprung(&self) -> PathBuf {
        self.folder.path().join("sprung")
    }

    fn plimsoll(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
        command.args(args).current_dir(self.current()).stdin(Stdio::null());
        command.env("TMPDIR", self.shared()).env("PLIMSOLL_DATA", self.folder.path().join("data"));
        // An accident that is often seen: `PYTHONPATH=$PYTHONPATH:/more` where there was none.
        command.env("PYTHONPATH", ":.").env_remove("VIRTUAL_ENV").env_remove("CONDA_PREFIX");
        command
    }

    fn assert_untouched(&self, what: &str, output: &Output) {
        let sprung = fs::read_to_string(self.sprung()).unwrap_or_default();
        assert_eq!(sprung, "", "{what}: {}", String::from_utf8_lossy(&output.stderr));
        let left = fs::read_dir(self.shared()).unwrap().flatten();
        let left: Vec<_> = left.map(|e| e.file_name()).filter(|n| n.to_string_lossy().contains("plimsoll")).collect();
        assert!(left.is_empty(), "{what}: left behind: {left:?}");
    }
}

/// python3 as it is, python3 that knows no PYTHONSAFEPATH, as none does before 3.11, and all that pyenv has.
fn pythons(folder: &Path) -> Vec<PathBuf> {
    let old = folder.join("old-python");
    fs::write(&old, "#!/bin/sh\nunset PYTHONSAFEPATH\nexec python3 \"$@\"\n").unwrap();
    fs::set_permissions(&old, fs::Permissions::from_mode(0o755)).unwrap();
    let mut all = vec![PathBuf::from("python3"), old];
    let pyenv = std::env::var_os("HOME").map(|home| Path::new(&home).join(".pyenv/versions"));
    for version in pyenv.and_then(|folder| fs::read_dir(folder).ok()).into_iter().flatten().flatten() {
        let name = version.file_name().to_string_lossy().into_owned();
        let minor = name.strip_prefix("3.").and_then(|rest| rest.split('.').next()?.parse::<u32>().ok());
        if minor.is_some_and(|minor| minor >= 9) {
            all.push(version.path().join("bin/python"));
        }
    }
    all
}

#[test]
fn the_worker_imports_nothing_of_others() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    for python in pythons(folder.path()) {
        let trap = Trap::new();
        let python = python.display().to_string();
        let args = ["probe", "run", "--family", "mlp", "--batch", "1", "--device", "cpu", "--steps", "1"];
        let output = trap.plimsoll(&args).args(["--python", &python]).output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr);
        // It came as far as to look for PyTorch, or even to the end.
        assert!(told.contains("PyTorch") || output.status.code() == Some(0), "{python}: {told}");
        trap.assert_untouched(&python, &output);
    }
}

#[test]
fn looking_for_a_python_imports_nothing_of_others() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    for python in pythons(folder.path()).into_iter().skip(1) {
        let trap = Trap::new();
        let environment = trap.folder.path().join("environment");
        fs::create_dir_all(environment.join("bin")).unwrap();
        let link = environment.join("bin/python");
        fs::write(&link, format!("#!/bin/sh\nexec '{}' \"$@\"\n", python.display())).unwrap();
        fs::set_permissions(&link, fs::Permissions::from_mode(0o755)).unwrap();
        let args = ["probe", "run", "--family", "mlp", "--batch", "1", "--device", "cpu", "--steps", "1"];
        let output = trap.plimsoll(&args).env("VIRTUAL_ENV", &environment).output().unwrap();
        trap.assert_untouched(&python.display().to_string(), &output);
    }
}

#[test]
fn the_survey_imports_nothing_of_others() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    for python in pythons(folder.path()) {
        let trap = Trap::new();
        let python = python.display().to_string();
        let output = trap.plimsoll(&["probe", "suite", "--only", "none-such", "--python", &python]).output().unwrap();
        trap.assert_untouched(&python, &output);
    }
}

#[test]
fn tracing_imports_nothing_of_others() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    for python in pythons(folder.path()) {
        let trap = Trap::new();
        let python = python.display().to_string();
        // The model's own module is the user's, and is looked for last: none of it is read where there is no PyTorch.
        let args = ["trace", "no_such_model:make", "--input", "x=float32[B,3]", "--python", &python];
        let output = trap.plimsoll(&args).output().unwrap();
        assert_ne!(output.status.code(), Some(0), "{python}");
        let sprung = fs::read_to_string(trap.sprung()).unwrap_or_default();
        // `torch` alone may be the one of the current folder, where no Python has its own: the model is looked for there.
        let others = sprung.lines().filter(|line| !line.starts_with("torch in ") || line.contains("shared"));
        assert_eq!(others.collect::<Vec<_>>(), [""; 0], "{python}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
fn rehearsing_imports_nothing_of_others() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    for python in pythons(folder.path()) {
        let trap = Trap::new();
        let python = python.display().to_string();
        // The command itself is the user's, and imports what it likes: this one is no Python.
        let output = trap.plimsoll(&["rehearse", "--python", &python, "--", "true"]).output().unwrap();
        trap.assert_untouched(&python, &output);
    }
}

#[test]
fn a_folder_of_the_dead_is_swept_by_the_next_start() {
    let trap = Trap::new();
    let dead = trap.shared().join("plimsoll-worker-dead");
    fs::create_dir(&dead).unwrap();
    fs::write(dead.join("lock"), "").unwrap();
    fs::write(dead.join("worker.py"), "").unwrap();
    let args = ["probe", "run", "--family", "mlp", "--batch", "1", "--device", "cpu", "--python", "python3"];
    let output = trap.plimsoll(&args).output().unwrap();
    trap.assert_untouched("python3", &output);
}
