//! Compiles the catalogs under `data/` into Rust statics, so that the browser needs no TOML parser.

use std::path::{Path, PathBuf};
use std::{env, fs, process};

#[path = "build/gpus.rs"]
mod gpus;
#[path = "build/hulls.rs"]
mod hulls;
#[path = "build/models.rs"]
mod models;
#[path = "build/rows.rs"]
mod rows;

fn main() {
    if let Err(problems) = generate() {
        // One line a problem, without a backtrace: these are mistakes in a data file, not in this program.
        for problem in problems {
            println!("cargo::error={problem}");
        }
        process::exit(1);
    }
}

fn generate() -> Result<(), Vec<String>> {
    let root = PathBuf::from(env::var("CARGO_MANIFEST_DIR").map_err(|e| vec![e.to_string()])?).join("../../data");
    let out = PathBuf::from(env::var("OUT_DIR").map_err(|e| vec![e.to_string()])?);
    println!("cargo::rerun-if-changed={}", root.join("gpus.toml").display());
    println!("cargo::rerun-if-changed={}", root.join("models").display());
    for of in ["hulls.toml", "hulls"] {
        println!("cargo::rerun-if-changed={}", root.join(of).display());
    }
    println!("cargo::rerun-if-changed=build");

    let gpus = gpus::generate("data/gpus.toml", &read(&root.join("gpus.toml"))?)?;
    let models = models::generate(&model_files(&root.join("models"))?)?;
    let hulls = hulls::generate("data/hulls.toml", &read(&root.join("hulls.toml"))?, &root.join("hulls"))?;
    fs::write(out.join("hulls.rs"), hulls).map_err(|e| vec![e.to_string()])?;
    fs::write(out.join("gpus.rs"), gpus).map_err(|e| vec![e.to_string()])?;
    fs::write(out.join("models.rs"), models).map_err(|e| vec![e.to_string()])
}

/// `(model_type, file name, content)` of every family, in alphabetical order.
fn model_files(directory: &Path) -> Result<Vec<(String, String, String)>, Vec<String>> {
    let entries = fs::read_dir(directory).map_err(|e| vec![format!("{}: {e}", directory.display())])?;
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.map_err(|e| vec![e.to_string()])?.path();
        if path.extension().is_some_and(|e| e == "toml") {
            let family = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            files.push((family.clone(), format!("data/models/{family}.toml"), read(&path)?));
        }
    }
    files.sort();
    Ok(files)
}

fn read(path: &Path) -> Result<String, Vec<String>> {
    println!("cargo::rerun-if-changed={}", path.display());
    fs::read_to_string(path).map_err(|e| vec![format!("{}: {e}", path.display())])
}
