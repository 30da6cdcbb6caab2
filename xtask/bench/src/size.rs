//! How large the planner's files are.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

/// One file of the planner in its three forms, in bytes.
#[derive(Debug)]
pub struct Size {
    /// Path below the planner's folder.
    pub name: String,
    /// As it is.
    pub raw: u64,
    /// With gzip; as it is where that is no gain.
    pub gzip: u64,
    /// With brotli; as it is where that is no gain.
    pub brotli: u64,
}

/// Every file of a planner, the largest first.
///
/// # Errors
/// The folder cannot be read.
pub fn by_file(planner: &Path) -> Result<Vec<Size>> {
    let mut sizes = Vec::new();
    for file in below(planner)? {
        if matches!(file.extension().and_then(|e| e.to_str()), Some("br" | "gz")) {
            continue;
        }
        let raw = fs::metadata(&file)?.len();
        let stored = |suffix: &str| {
            let mut name = file.as_os_str().to_owned();
            name.push(suffix);
            fs::metadata(name).map_or(raw, |form| form.len())
        };
        let name = file.strip_prefix(planner).unwrap_or(&file).display().to_string();
        sizes.push(Size { name, raw, gzip: stored(".gz"), brotli: stored(".br") });
    }
    sizes.sort_by(|a, b| b.raw.cmp(&a.raw).then_with(|| a.name.cmp(&b.name)));
    Ok(sizes)
}

fn below(folder: &Path) -> Result<Vec<PathBuf>> {
    let (mut found, mut waiting) = (Vec::new(), vec![folder.to_path_buf()]);
    while let Some(folder) = waiting.pop() {
        for entry in fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))? {
            let path = entry?.path();
            if path.is_dir() { waiting.push(path) } else { found.push(path) }
        }
    }
    Ok(found)
}
