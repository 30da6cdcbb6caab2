//! The files that are made, before they are written.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use sha2::{Digest as _, Sha256};

/// Names below the planner's folder, `/` between their parts, and contents.
#[derive(Debug, Default)]
pub struct Files(BTreeMap<String, Vec<u8>>);

impl Files {
    /// Adds one.
    ///
    /// # Errors
    /// There is another one of that name.
    pub fn add(&mut self, name: impl Into<String>, content: impl Into<Vec<u8>>) -> Result<()> {
        let (name, content) = (name.into(), content.into());
        if self.0.get(&name).is_some_and(|other| *other != content) {
            bail!("there are two files {name}");
        }
        self.0.insert(name, content);
        Ok(())
    }

    /// Adds one under a name that changes with its content, `stem-0123456789abcdef.extension`, and tells that name.
    ///
    /// # Errors
    /// There is another one of that name.
    pub fn add_hashed(&mut self, stem: &str, extension: &str, content: Vec<u8>) -> Result<String> {
        let name = format!("{stem}-{}.{extension}", hash(&content));
        self.add(name.clone(), content)?;
        Ok(name)
    }

    /// Each in order of its name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.0.iter().map(|(name, content)| (name.as_str(), content.as_slice()))
    }

    /// Puts them in place of the folder `out`, at once: nobody finds half of them there.
    ///
    /// # Errors
    /// Something cannot be written or removed.
    pub fn replace(&self, out: &Path) -> Result<Vec<PathBuf>> {
        let mut part = out.as_os_str().to_owned();
        part.push(".part");
        let part = PathBuf::from(part);
        remove(&part)?;
        for (name, content) in self.iter() {
            let path = part.join(name);
            let folder = path.parent().unwrap_or(&part);
            fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
            fs::write(&path, content).with_context(|| format!("cannot write {}", path.display()))?;
        }
        remove(out)?;
        fs::rename(&part, out).with_context(|| format!("cannot write {}", out.display()))?;
        Ok(self.0.keys().map(|name| out.join(name)).collect())
    }

    /// Bytes as they are, and as a browser that takes Brotli is sent them.
    pub fn sizes(&self) -> (usize, usize) {
        let plain = || self.iter().filter(|(name, _)| !name.ends_with(".br") && !name.ends_with(".gz"));
        let sent = plain().map(|(name, content)| self.0.get(&format!("{name}.br")).map_or(content.len(), Vec::len));
        (plain().map(|(_, content)| content.len()).sum(), sent.sum())
    }
}

fn remove(folder: &Path) -> Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", folder.display()))
        }
        _ => Ok(()),
    }
}

/// The first 64 bits of the content's SHA-256: enough that no two versions of a file share a name.
pub fn hash(content: &[u8]) -> String {
    let mut text = String::with_capacity(16);
    for byte in Sha256::digest(content).iter().take(8) {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_change_with_the_content_and_only_then() {
        let mut files = Files::default();
        // printf 1 | sha256sum
        assert_eq!(files.add_hashed("a", "css", b"1".to_vec()).unwrap(), "a-6b86b273ff34fce1.css");
        assert_eq!(files.add_hashed("a", "css", b"1".to_vec()).unwrap(), "a-6b86b273ff34fce1.css");
        assert_eq!(files.iter().count(), 1);
        files.add("b", "1").unwrap();
        assert!(files.add("b", "2").is_err());
    }

    #[test]
    fn a_folder_is_replaced_as_a_whole() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("dist");
        fs::create_dir_all(out.join("old")).unwrap();
        let mut files = Files::default();
        files.add("fonts/one.woff2", "1").unwrap();
        files.add("index.html", "2345").unwrap();
        files.add("index.html.br", "2").unwrap();
        assert_eq!(files.replace(&out).unwrap().len(), 3);
        assert!(!out.join("old").exists() && fs::read(out.join("fonts/one.woff2")).unwrap() == b"1");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        assert_eq!(files.sizes(), (5, 2));
    }
}
