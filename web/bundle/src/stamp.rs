//! Whether anything has changed since the planner was made, told as make does: by the age of files.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context as _, Result};

use crate::measurements::below;

/// A file that is as old as what was made, and names it.
#[derive(Debug)]
pub struct Stamp {
    path: PathBuf,
    how: String,
}

impl Stamp {
    /// The one beside the WebAssembly, for what is made of it in this way.
    pub fn of(wasm: &Path, how: String) -> Self {
        Self { path: wasm.with_extension("bundled"), how }
    }

    /// Whether everything is there, made in this way, and nothing it was made of is younger; this program is part of that.
    ///
    /// # Errors
    /// A folder cannot be read.
    pub fn holds(&self, inputs: &[&PathBuf]) -> Result<bool> {
        let (Ok(made), Some(set)) = (fs::read_to_string(&self.path), changed(&self.path)) else { return Ok(false) };
        let mut lines = made.lines();
        if lines.next() != Some(&self.how) || !lines.all(|output| Path::new(output).is_file()) {
            return Ok(false);
        }
        let program = std::env::current_exe().context("cannot find this program")?;
        for input in inputs.iter().copied().chain([&program]) {
            if below(input)?.iter().any(|file| changed(file).is_none_or(|time| time > set)) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Says that these were made now.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn set<'a>(&self, outputs: impl Iterator<Item = &'a PathBuf>) -> Result<()> {
        let mut text = self.how.clone();
        for output in outputs {
            text.push('\n');
            text.push_str(&output.to_string_lossy());
        }
        fs::write(&self.path, text).with_context(|| format!("cannot write {}", self.path.display()))
    }
}

fn changed(file: &Path) -> Option<SystemTime> {
    fs::metadata(file).ok()?.modified().ok()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn it_holds_until_something_changes() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| folder.path().join(name);
        let (wasm, output) = (file("planner.wasm"), file("index.html"));
        fs::write(&wasm, "1").unwrap();
        fs::write(&output, "1").unwrap();
        let stamp = Stamp::of(&wasm, "plainly".to_owned());
        assert!(!stamp.holds(&[&wasm]).unwrap());
        stamp.set([&output].into_iter()).unwrap();
        assert!(stamp.holds(&[&wasm]).unwrap());
        assert!(!Stamp::of(&wasm, "otherwise".to_owned()).holds(&[&wasm]).unwrap());

        let later = SystemTime::now() + Duration::from_secs(60);
        fs::File::options().write(true).open(&wasm).unwrap().set_modified(later).unwrap();
        assert!(!stamp.holds(&[&wasm]).unwrap());
        stamp.set([&output].into_iter()).unwrap();
        fs::remove_file(&output).unwrap();
        assert!(!stamp.holds(&[]).unwrap());
    }
}
