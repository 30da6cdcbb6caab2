//! Where Python is started: a folder that was made for it a moment ago and that nobody else can write to.
//!
//! Python puts the folder of a script, or with `-c` the current folder, before all others that it imports from, and
//! `PYTHONSAFEPATH` means nothing to it before 3.11. In a folder that everybody may write to, as that for temporary
//! files is, whoever left a `json.py` there would have it run by others. So nothing is ever started there: the script
//! and the current folder are in a folder of our own, and neither is imported from.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Once;
use std::time::{Duration, SystemTime};
use std::{env, iter};

use tempfile::TempDir;

use super::discover::Python;
use crate::exit::Failure;
use crate::records::data_directory;

/// How such folders are called, so that those which were left behind are found.
const PREFIX: &str = "plimsoll-worker-";
/// Locked as long as whoever made the folder lives.
const LOCK: &str = "lock";
/// What the lock is called until it is locked.
const UNLOCKED: &str = "lock.new";
/// A folder without a lock may be one that is being made, unless it is that old.
const MADE_WITHIN: Duration = Duration::from_secs(3600);
/// The script that is run.
const SCRIPT: &str = "worker.py";

/// Takes the current folder out of the places to import from, before the first import: before 3.11 `-c` puts it there,
/// as an empty text. `sys` is part of the interpreter and is not looked for.
const NOT_HERE: &str = "import sys; sys.path[:] = [p for p in sys.path if p]\n";

/// Runs the script that is named after it, as if it had been named itself.
const RUN: &str = "del sys.argv[0]; __file__ = sys.argv[0]
with open(__file__, 'rb') as script: code = script.read()
exec(compile(code, __file__, 'exec'))";

/// A private folder. Dropping it removes it; one whose process was killed is removed by the next that is made.
#[derive(Debug)]
pub struct Quarters {
    folder: TempDir,
    /// Open, and so locked, as long as the folder is in use.
    _lock: File,
}

impl Quarters {
    /// Makes one where temporary files belong, or, where others could take it away there, with our own data.
    pub fn new() -> Result<Self, Failure> {
        static SWEPT: Once = Once::new();
        let mut problem = None;
        let places = iter::once(Ok(env::temp_dir())).chain(iter::once_with(data_directory));
        for place in places {
            let place = place?;
            match Self::within(&place) {
                Ok(made) => {
                    SWEPT.call_once(|| sweep(&place));
                    return Ok(made);
                }
                Err(error) => _ = problem.get_or_insert(format!("{}: {error}", place.display())),
            }
        }
        Err(Failure::Environment {
            problem: format!("cannot make a folder for the worker in {}", problem.unwrap_or_default()),
            hint: "point TMPDIR to a folder of your own that can be written to".to_owned(),
        })
    }

    fn within(place: &Path) -> io::Result<Self> {
        // Absolute, because Python is started within it.
        let place = fs::canonicalize(place)?;
        if !guarded(&place)? {
            return Err(io::Error::other("others could put a folder of theirs in the place of ours"));
        }
        let mut builder = tempfile::Builder::new();
        builder.prefix(PREFIX);
        #[cfg(unix)]
        builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o700));
        let folder = builder.tempdir_in(place)?;
        let unlocked = folder.path().join(UNLOCKED);
        let lock = File::create_new(&unlocked)?;
        // A file system without locks has nothing swept.
        if lock.try_lock().is_ok() {
            fs::rename(unlocked, folder.path().join(LOCK))?;
        }
        Ok(Self { folder, _lock: lock })
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Python, told to run this text.
    pub fn inline(&self, python: &Python, text: &str) -> Command {
        let mut command = self.python(python);
        command.args(["-c", &format!("{NOT_HERE}{text}")]);
        command
    }

    /// Python, told to run this text as a script, which is written to the folder. Its output is not kept back.
    pub fn script(&self, python: &Python, text: &str) -> Result<Command, Failure> {
        let path = self.path().join(SCRIPT);
        let written = File::create_new(&path).and_then(|mut file| file.write_all(text.as_bytes()));
        written.map_err(|error| Failure::Environment {
            problem: format!("cannot write the worker's script to {}: {error}", path.display()),
            hint: "point TMPDIR to a folder that can be written to".to_owned(),
        })?;
        let mut command = self.python(python);
        command.arg("-u").args(["-c", &format!("{NOT_HERE}{RUN}")]).arg(path);
        Ok(command)
    }

    /// As [`Quarters::script`], for one that may be started again.
    pub fn rewritten(&self, python: &Python, text: &str) -> Result<Command, Failure> {
        // The first time there is none.
        let _ = fs::remove_file(self.path().join(SCRIPT));
        self.script(python, text)
    }

    fn python(&self, python: &Python) -> Command {
        let mut command = Command::new(absolute(&python.program));
        // What Python starts in turn is started here too: it also finds nothing to import.
        command.current_dir(self.path()).env("PYTHONSAFEPATH", "1");
        if let Some(paths) = env::var_os("PYTHONPATH") {
            match without_here(&paths) {
                Some(paths) => command.env("PYTHONPATH", paths),
                None => command.env_remove("PYTHONPATH"),
            };
        }
        // pyenv chooses by the folder one stands in.
        if let (None, Ok(here)) = (env::var_os("PYENV_DIR"), env::current_dir()) {
            command.env("PYENV_DIR", here);
        }
        command
    }
}

/// A program that is named with its folder, found from any folder; one that PATH resolves stays as it is.
fn absolute(program: &Path) -> PathBuf {
    if program.components().count() > 1 {
        return std::path::absolute(program).unwrap_or_else(|_| program.to_owned());
    }
    program.to_owned()
}

/// The places of `PYTHONPATH` that are the same wherever one stands: an empty or relative one is the current folder or
/// below it, as `PYTHONPATH=$PYTHONPATH:/more` makes one by accident.
fn without_here(paths: &OsStr) -> Option<OsString> {
    let kept: Vec<PathBuf> = env::split_paths(paths).filter(|path| path.is_absolute()).collect();
    env::join_paths(kept).ok().filter(|paths| !paths.is_empty())
}

/// Whether what is made in a folder stays there: nobody else may write to it, or, as where everybody's temporary files
/// are, nobody may rename what belongs to others.
#[cfg(unix)]
fn guarded(folder: &Path) -> io::Result<bool> {
    use std::os::unix::fs::MetadataExt as _;
    let (found, me) = (fs::metadata(folder)?, rustix::process::geteuid().as_raw());
    let (sticky, others) = (found.mode() & 0o1000 != 0, found.mode() & 0o022 != 0);
    Ok((found.uid() == me || found.uid() == 0) && (sticky || !others))
}

/// Each user has a folder for temporary files here.
#[cfg(not(unix))]
fn guarded(_: &Path) -> io::Result<bool> {
    Ok(true)
}

/// Removes what processes of ours left that were killed. What cannot be removed stays: it does no harm.
fn sweep(place: &Path) {
    let Ok(entries) = fs::read_dir(place) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        if name.to_str().is_some_and(|name| name.starts_with(PREFIX)) && is_stale(&entry) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

fn is_stale(entry: &fs::DirEntry) -> bool {
    // Of the entry itself: a link leads elsewhere.
    let Ok(found) = entry.metadata() else { return false };
    if !found.is_dir() || !is_mine(&found) {
        return false;
    }
    match File::open(entry.path().join(LOCK)) {
        // Who else holds it, lives.
        Ok(lock) => lock.try_lock().is_ok(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let age = found.modified().ok().and_then(|at| SystemTime::now().duration_since(at).ok());
            age.is_some_and(|age| age > MADE_WITHIN)
        }
        Err(_) => false,
    }
}

#[cfg(unix)]
fn is_mine(found: &fs::Metadata) -> bool {
    std::os::unix::fs::MetadataExt::uid(found) == rustix::process::geteuid().as_raw()
}

#[cfg(not(unix))]
fn is_mine(_: &fs::Metadata) -> bool {
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_places_that_are_the_same_everywhere_are_imported_from() {
        let joined = |paths: &[&str]| env::join_paths(paths).unwrap();
        assert_eq!(without_here(&joined(&["", "/a", ".", "b", "/c"])), Some(joined(&["/a", "/c"])));
        assert_eq!(without_here(&joined(&["", "."])), None);
    }

    #[test]
    #[cfg(unix)]
    fn a_folder_that_others_may_rename_in_is_no_place() {
        use std::os::unix::fs::PermissionsExt as _;
        let place = tempfile::tempdir().unwrap();
        let chmod = |mode| fs::set_permissions(place.path(), fs::Permissions::from_mode(mode)).unwrap();
        for (mode, good) in [(0o777, false), (0o770, false), (0o1777, true), (0o755, true), (0o700, true)] {
            chmod(mode);
            assert_eq!(Quarters::within(place.path()).is_ok(), good, "{mode:o}");
        }
        chmod(0o700);
        let made = Quarters::within(place.path()).unwrap();
        assert_eq!(fs::metadata(made.path()).unwrap().permissions().mode() & 0o7777, 0o700);
    }

    #[test]
    fn what_the_dead_left_is_swept_and_what_the_living_use_is_not() {
        let place = tempfile::tempdir().unwrap();
        let mine = Quarters::within(place.path()).unwrap();
        let dead = Quarters::within(place.path()).unwrap();
        // As a process that is killed leaves it: the lock is gone, the folder is not.
        let Quarters { folder, _lock } = dead;
        drop(_lock);
        let dead = folder.keep();
        fs::write(dead.join(SCRIPT), "").unwrap();
        let young = place.path().join(format!("{PREFIX}young"));
        fs::create_dir(&young).unwrap();
        let strange = place.path().join("plimsoll-something");
        fs::create_dir(&strange).unwrap();
        sweep(place.path());
        assert!(!dead.exists());
        assert!(mine.path().exists() && young.exists() && strange.exists());
    }

    #[test]
    #[cfg(unix)]
    fn a_link_is_never_swept() {
        let (place, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(other.path().join(LOCK), "").unwrap();
        std::os::unix::fs::symlink(other.path(), place.path().join(format!("{PREFIX}link"))).unwrap();
        sweep(place.path());
        assert!(other.path().join(LOCK).exists());
    }
}
