//! The catalog's recordings, shipped beside the page, each under the SHA-256 of its bytes, by which scenarios and links name it.

use std::fs;
use std::path::Path;

use anyhow::Result;
use sha2::{Digest as _, Sha256};

use crate::files::Files;
use crate::measurements::below;

/// Adds `hulls/HASH.hull` for each file of the folder.
///
/// # Errors
/// One cannot be read.
pub fn ship(folder: &Path, files: &mut Files) -> Result<()> {
    for path in below(folder)?.into_iter().filter(|path| path.extension().is_some_and(|e| e == "hull")) {
        let content = fs::read(&path)?;
        let hash: String = Sha256::digest(&content).iter().map(|byte| format!("{byte:02x}")).collect();
        files.add(format!("hulls/{hash}.hull"), content)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hull_lies_under_its_hash() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("one.hull"), "1").unwrap();
        fs::write(folder.path().join("README.md"), "no hull").unwrap();
        let mut files = Files::default();
        ship(folder.path(), &mut files).unwrap();
        let names: Vec<&str> = files.iter().map(|(name, _)| name).collect();
        // printf 1 | sha256sum
        assert_eq!(names, ["hulls/6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b.hull"]);
    }
}
