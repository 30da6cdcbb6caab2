//! `data/hulls.toml` and `data/hulls/*.hull` to `static`s: rows, hashes, and the files themselves where they are carried.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};
use toml::{Table, Value};

use crate::rows::{Row, check_id, tables};

/// What the catalog reads, and what `tests/tools/hulls/make.py` reads to make the file again.
const KEYS: &[&str] = &[
    "id",
    "name",
    "publisher",
    "about",
    "aliases",
    "parameters",
    "source",
    "model",
    "loss",
    "inputs",
    "axes",
    "precision",
    "gpu",
    "answers",
];

/// The Rust source of `RECORDED`, `HASHES` and `CONTENTS`.
///
/// # Errors
/// Every problem found, each naming the row or the file.
pub fn generate(name: &str, text: &str, folder: &Path) -> Result<String, Vec<String>> {
    let files = files(folder).map_err(|error| vec![format!("{}: {error}", folder.display())])?;
    let document: Table = toml::from_str(text).map_err(|error| vec![format!("{name}: {error}")])?;
    let (mut problems, mut ids) = (Vec::new(), BTreeSet::new());
    let mut rows = String::new();
    for table in tables(name, &document, "hull").map_err(|error| vec![error])? {
        let row = Row::new(name, "hull", table, None);
        // Whoever adds a row makes its file with this program. A test asks for both.
        let id = table.get("id").and_then(Value::as_str).unwrap_or_default();
        if !files.iter().any(|file| file.stem == id) {
            println!("cargo::warning={}", row.problem("its file is not made yet (tests/tools/hulls/make.py)"));
            continue;
        }
        match read(&row, &files) {
            Ok((id, line)) => {
                if !ids.insert(id.clone()) {
                    problems.push(row.problem("the id is used twice"));
                }
                rows.push_str(&line);
            }
            Err(problem) => problems.push(problem),
        }
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    let mut out = format!("static RECORDED: &[Recorded] = &[\n{rows}];\n");
    let lines = |of: &dyn Fn(&File) -> String| files.iter().map(of).collect::<String>();
    let hashes = lines(&|file| format!("    {:?},\n", file.hash));
    let contents = lines(&|file| format!("    include_bytes!({:?}),\n", file.path.display().to_string()));
    let written = write!(
        out,
        "const HASHES: &[&str] = &[\n{hashes}];\n\
         #[cfg(target_family = \"wasm\")]\nstatic CONTENTS: &[&[u8]] = &[];\n\
         #[cfg(not(target_family = \"wasm\"))]\nstatic CONTENTS: &[&[u8]] = &[\n{contents}];\n"
    );
    debug_assert!(written.is_ok(), "writing to a String cannot fail");
    Ok(out)
}

struct File {
    path: PathBuf,
    stem: String,
    hash: String,
}

/// Every hull of the folder, in order of the names.
fn files(folder: &Path) -> std::io::Result<Vec<File>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = fs::canonicalize(entry?.path())?;
        if path.extension().is_some_and(|extension| extension == "hull") {
            println!("cargo::rerun-if-changed={}", path.display());
            let mut hash = "sha256:".to_owned();
            for byte in Sha256::digest(fs::read(&path)?) {
                // Writing to a String cannot fail.
                let _ = write!(hash, "{byte:02x}");
            }
            let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            files.push(File { path, stem, hash });
        }
    }
    files.sort_by(|a, b| a.stem.cmp(&b.stem));
    Ok(files)
}

fn read(row: &Row, files: &[File]) -> Result<(String, String), String> {
    row.only(KEYS)?;
    let id = row.text("id")?;
    check_id(id).map_err(|error| row.problem(&error))?;
    let file = files.iter().find(|file| file.stem == id);
    let hash = &file.ok_or_else(|| row.problem(&format!("there is no data/hulls/{id}.hull")))?.hash;
    let parameters = row.whole("parameters")?.ok_or_else(|| row.problem("parameters is missing"))?;
    let text = |key| row.text(key);
    let (name, publisher, about, source) = (text("name")?, text("publisher")?, text("about")?, text("source")?);
    let aliases = row.texts("aliases")?;
    let line = format!(
        "    Recorded {{ id: {id:?}, name: {name:?}, publisher: {publisher:?}, about: {about:?}, aliases: &{aliases:?}, \
         parameters: {parameters}, source: {source:?}, hash: {hash:?} }},\n"
    );
    Ok((id.to_owned(), line))
}

impl Row<'_> {
    /// A list of texts, empty where there is none.
    fn texts(&self, key: &str) -> Result<Vec<String>, String> {
        let bad = || self.problem(&format!("{key} must be a list of texts"));
        match self.get(key) {
            None => Ok(Vec::new()),
            Some(Value::Array(list)) => {
                list.iter().map(|value| value.as_str().map(str::to_owned).ok_or_else(bad)).collect()
            }
            Some(_) => Err(bad()),
        }
    }
}
