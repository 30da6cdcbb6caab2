//! What was sent where: a file beside the records, so that no record goes to the same server twice.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::address::Address;
use crate::exit::Failure;
use crate::records::{data_directory, replace};

/// The file's content.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Known {
    schema: u32,
    sent: Vec<Sent>,
}

/// One acknowledged upload.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Sent {
    /// The address it went to.
    to: String,
    /// What was sent, by its content's id.
    content: String,
}

const SCHEMA: u32 = 1;

impl Known {
    /// Whether that server has acknowledged that content.
    pub fn holds(&self, address: &Address, hash: &str) -> bool {
        self.sent.iter().any(|sent| sent.to == address.as_str() && sent.content == hash)
    }
}

/// The file, which need not exist yet.
#[derive(Debug)]
pub struct Ledger {
    path: PathBuf,
}

/// The file while no other upload may change it.
#[derive(Debug)]
pub struct Locked {
    ledger: Ledger,
    /// Lets go when it is dropped, however the process ends.
    _lock: File,
}

impl Ledger {
    /// The user's own.
    pub fn open() -> Result<Self, Failure> {
        Ok(Self::at(&data_directory()?))
    }

    fn at(folder: &Path) -> Self {
        Self { path: folder.join("uploads.json") }
    }

    /// What is in it now.
    pub fn read(&self) -> Result<Known, Failure> {
        let content = match fs::read_to_string(&self.path) {
            Ok(content) => content,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Known::default()),
            Err(error) => return Err(self.cannot("read", &error)),
        };
        match serde_json::from_str::<Known>(&content) {
            Ok(known) if known.schema == SCHEMA => Ok(known),
            Ok(known) => Err(self.cannot("read", &format!("its format is {}, not {SCHEMA}", known.schema))),
            Err(error) => Err(self.cannot("read", &error)),
        }
    }

    /// Waits until no other upload is under way.
    pub fn lock(self) -> Result<Locked, Failure> {
        // A file of its own: the ledger itself is replaced, and a lock on it would be a lock on the old one.
        let path = self.path.with_extension("lock");
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(|error| self.cannot("write", &error))?;
        }
        let file = File::options().create(true).truncate(false).write(true).open(&path);
        let file = file.map_err(|error| self.cannot("lock", &error))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                eprintln!("Another upload is under way; waiting for it.");
                file.lock().map_err(|error| self.cannot("lock", &error))?;
            }
            Err(TryLockError::Error(error)) => return Err(self.cannot("lock", &error)),
        }
        Ok(Locked { ledger: self, _lock: file })
    }

    fn cannot(&self, what: &str, error: &dyn std::fmt::Display) -> Failure {
        Failure::Environment {
            problem: format!("cannot {what} the list of what was sent, {}: {error}", self.path.display()),
            hint: "without it records could be sent twice; put it right, or move it away to begin a new one".to_owned(),
        }
    }
}

impl Locked {
    /// What is in it now.
    pub fn read(&self) -> Result<Known, Failure> {
        self.ledger.read()
    }

    /// Remembers that the server acknowledged the content.
    pub fn add(&mut self, address: &Address, hash: &str) -> Result<(), Failure> {
        let mut known = self.read()?;
        known.schema = SCHEMA;
        known.sent.push(Sent { to: address.as_str().to_owned(), content: hash.to_owned() });
        let text = serde_json::to_string_pretty(&known).unwrap_or_default() + "\n";
        replace(&self.ledger.path, text.as_bytes()).map_err(|error| self.ledger.cannot("write", &error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_remembers_where_what_went() {
        let folder = tempfile::tempdir().unwrap();
        let (a, b) = (Address::parse("https://a.org").unwrap(), Address::parse("https://b.org").unwrap());
        assert!(!Ledger::at(folder.path()).read().unwrap().holds(&a, "1"));
        let mut locked = Ledger::at(folder.path()).lock().unwrap();
        locked.add(&a, "1").unwrap();
        locked.add(&b, "2").unwrap();
        let known = Ledger::at(folder.path()).read().unwrap();
        assert!(known.holds(&a, "1") && known.holds(&b, "2"));
        assert!(!known.holds(&a, "2") && !known.holds(&b, "1"));
    }

    #[test]
    fn a_broken_list_stops_everything() {
        let folder = tempfile::tempdir().unwrap();
        for content in ["", "{", "[]", "{\"schema\": 2, \"sent\": []}"] {
            fs::write(folder.path().join("uploads.json"), content).unwrap();
            let failure = Ledger::at(folder.path()).read().unwrap_err();
            assert!(failure.to_string().contains("sent twice"), "{failure}");
        }
    }

    #[test]
    fn one_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let mut first = Ledger::at(folder.path()).lock().unwrap();
        let other = Ledger::at(folder.path());
        let address = Address::parse("https://a.org").unwrap();
        let waiting = std::thread::spawn(move || {
            let second = other.lock().unwrap();
            second.read().unwrap().sent.len()
        });
        std::thread::sleep(std::time::Duration::from_millis(100));
        first.add(&address, "1").unwrap();
        drop(first);
        assert_eq!(waiting.join().unwrap(), 1, "the second sees what the first wrote");
    }
}
