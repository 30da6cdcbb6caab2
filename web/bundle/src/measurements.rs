//! The records of `data/measurements`, shipped beside the page: a list of them, and each whole.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, anyhow};
use plimsoll_core::Measurement;
use serde_json::json;

use crate::files::Files;

/// Adds `measurements/index.json`, newest first as a server would list them, and a file for each record.
///
/// # Errors
/// A record cannot be read or is not valid.
pub fn ship(records: &Path, files: &mut Files) -> Result<()> {
    let mut points = Vec::new();
    for path in below(records)?.into_iter().filter(|path| path.extension().is_some_and(|e| e == "json")) {
        let of_this = |error| anyhow!("{}: {error}", path.display());
        let record = Measurement::from_json(&fs::read_to_string(&path)?).map_err(of_this)?;
        let point = record.point().map_err(of_this)?;
        files.add(format!("measurements/{}.json", point.id), record.canonical())?;
        points.push(point);
    }
    points.sort_by(|a, b| b.taken.cmp(&a.taken).then_with(|| a.id.cmp(&b.id)));
    let list = json!({ "schema": 1, "items": points, "next": null, "total": points.len() });
    files.add("measurements/index.json", list.to_string())
}

/// Every file below a folder, sorted.
pub fn below(folder: &Path) -> Result<Vec<PathBuf>> {
    let (mut found, mut waiting) = (Vec::new(), vec![folder.to_path_buf()]);
    while let Some(path) = waiting.pop() {
        if path.is_dir() {
            for entry in fs::read_dir(&path).with_context(|| format!("cannot read {}", path.display()))? {
                waiting.push(entry?.path());
            }
        } else {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use plimsoll_core::measurement::EXAMPLE;
    use serde_json::Value;

    use super::*;

    #[test]
    fn a_record_is_listed_and_there() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("card")).unwrap();
        fs::write(folder.path().join("card/run.json"), EXAMPLE).unwrap();
        fs::write(folder.path().join("README.md"), "no record").unwrap();
        let mut files = Files::default();
        ship(folder.path(), &mut files).unwrap();
        let (_, list) = files.iter().find(|(name, _)| *name == "measurements/index.json").unwrap();
        let list: Value = serde_json::from_slice(list).unwrap();
        let id = list["items"][0]["id"].as_str().unwrap().to_owned();
        assert_eq!(list["total"], 1);
        assert!(files.iter().any(|(name, _)| name == format!("measurements/{id}.json")));
    }

    #[test]
    fn a_record_that_is_none_is_named() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("run.json"), "{}").unwrap();
        let error = ship(folder.path(), &mut Files::default()).unwrap_err();
        assert!(error.to_string().contains("run.json: "), "{error}");
    }
}
