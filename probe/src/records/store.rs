//! The records kept on this machine: a folder with one file for each.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use plimsoll_core::Measurement;

use super::atomic::{UNFINISHED, replace};
use super::{cannot, data_directory, name, read, text};
use crate::exit::Failure;

/// A folder of records.
#[derive(Clone, Debug)]
pub struct Store {
    folder: PathBuf,
}

/// What a folder of records holds.
#[derive(Debug, Default)]
pub struct Listing {
    /// Every record with its file, in the order of their names.
    pub records: Vec<(PathBuf, Measurement)>,
    /// The files that hold none, and why.
    pub broken: Vec<(PathBuf, String)>,
}

impl Store {
    /// The user's own: `measurements` in [`data_directory`].
    ///
    /// # Errors
    /// As [`data_directory`].
    pub fn local() -> Result<Self, Failure> {
        Ok(Self::at(data_directory()?.join("measurements")))
    }

    /// One in a folder of the user's choice, which need not exist yet.
    pub fn at(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into() }
    }

    /// Where it is.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Keeps a record and says in which file. The same record again is the same file.
    ///
    /// # Errors
    /// [`Failure::Environment`] when it cannot be written.
    pub fn keep(&self, measurement: &Measurement) -> Result<PathBuf, Failure> {
        self.put(&name::file_name(measurement), &text(measurement))
    }

    /// Keeps a record under a name of the caller's.
    ///
    /// # Errors
    /// As [`Store::keep`].
    pub fn keep_as(&self, name: &str, measurement: &Measurement) -> Result<PathBuf, Failure> {
        self.put(name, &text(measurement))
    }

    fn put(&self, name: &str, text: &str) -> Result<PathBuf, Failure> {
        let path = self.folder.join(name);
        let hint = "set PLIMSOLL_DATA to a folder that may be written to, or give --out";
        fs::create_dir_all(&self.folder)
            .and_then(|()| replace(&path, text.as_bytes()))
            .map_err(|error| cannot("write", &path, &error, hint))?;
        self.sweep();
        Ok(path)
    }

    /// Every record, and what could not be read. A folder that does not exist holds none.
    ///
    /// # Errors
    /// [`Failure::Environment`] when the folder itself cannot be read.
    pub fn list(&self) -> Result<Listing, Failure> {
        let entries = match fs::read_dir(&self.folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Listing::default()),
            Err(error) => return Err(cannot("read", &self.folder, &error, "check who may read it")),
        };
        let mut paths: Vec<PathBuf> = entries
            .flatten()
            .map(|entry| entry.path())
            .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
            .collect();
        paths.sort();
        let mut listing = Listing::default();
        for path in paths {
            match read(&path) {
                Ok(record) => listing.records.push((path, record)),
                Err(failure) => listing.broken.push((path, failure.to_string())),
            }
        }
        Ok(listing)
    }

    /// Takes away what killed writers left; a younger file may be somebody's who still writes.
    fn sweep(&self) {
        let Ok(entries) = fs::read_dir(&self.folder) else { return };
        for entry in entries.flatten() {
            let unfinished = entry.file_name().to_str().is_some_and(|name| name.ends_with(UNFINISHED));
            let changed = entry.metadata().and_then(|found| found.modified());
            let age = changed.ok().and_then(|at| SystemTime::now().duration_since(at).ok());
            if unfinished && age.is_some_and(|age| age > ABANDONED) {
                // Nothing depends on it.
                let _ = fs::remove_file(entry.path());
            }
        }
    }
}

/// After this time nobody still writes a file of some hundred kilobytes.
const ABANDONED: Duration = Duration::from_secs(3600);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::sample;

    #[test]
    fn what_is_kept_is_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::at(folder.path().join("not").join("there"));
        assert!(store.list().unwrap().records.is_empty());
        let record = sample::record();
        let path = store.keep(&record).unwrap();
        assert_eq!(store.keep(&record).unwrap(), path, "the same record is the same file");
        let listing = store.list().unwrap();
        assert_eq!(listing.records, [(path, record)]);
        assert!(listing.broken.is_empty());
    }

    #[test]
    fn broken_files_are_named_and_the_others_read() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::at(folder.path());
        store.keep(&sample::record()).unwrap();
        for (name, content) in [("a.json", "{"), ("b.json", "{}"), ("notes.txt", "x"), (".x.unfinished", "{")] {
            fs::write(folder.path().join(name), content).unwrap();
        }
        let listing = store.list().unwrap();
        assert_eq!(listing.records.len(), 1);
        let names: Vec<_> = listing.broken.iter().map(|(path, _)| path.file_name().unwrap()).collect();
        assert_eq!(names, ["a.json", "b.json"]);
        assert!(listing.broken.iter().all(|(_, why)| why.contains("record")), "{:?}", listing.broken);
    }

    #[test]
    fn only_what_was_abandoned_is_swept() {
        let folder = tempfile::tempdir().unwrap();
        let (old, young) = (folder.path().join(".a.unfinished"), folder.path().join(".b.unfinished"));
        for path in [&old, &young] {
            fs::write(path, "{").unwrap();
        }
        let file = fs::File::options().write(true).open(&old).unwrap();
        file.set_modified(SystemTime::now() - 2 * ABANDONED).unwrap();
        Store::at(folder.path()).keep(&sample::record()).unwrap();
        assert!(!old.exists());
        assert!(young.exists());
    }
}
