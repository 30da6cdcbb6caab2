//! The planner's files as a Rust expression, for a build script whose program carries them.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context as _, Result};
use sha2::{Digest as _, Sha256};

use crate::files::Files;

/// An array of names, contents and their SHA-256, of the files that lie in `out`.
///
/// # Errors
/// The folder has no absolute path that is text.
pub fn expression(files: &Files, out: &Path) -> Result<String> {
    let out = std::path::absolute(out)?;
    let mut text = String::from("[\n");
    for (name, content) in files.iter() {
        let path = out.join(name);
        let path = path.to_str().with_context(|| format!("{} is not UTF-8", path.display()))?;
        let hash: [u8; 32] = Sha256::digest(content).into();
        writeln!(text, "    ({name:?}, include_bytes!({path:?}).as_slice(), {hash:?}),")?;
    }
    text.push_str("]\n");
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_file_is_a_row() {
        let mut files = Files::default();
        files.add("a\"b.js", "1").unwrap();
        let text = expression(&files, Path::new("/dist")).unwrap();
        assert!(
            text.starts_with("[\n    (\"a\\\"b.js\", include_bytes!(\"/dist/a\\\"b.js\").as_slice(), [107, 134, 178"),
            "{text}"
        );
        assert!(text.ends_with("),\n]\n") && text.lines().count() == 3);
    }
}
