//! Joins the planner's WebAssembly to JavaScript.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use wasm_bindgen_cli_support::Bindgen;

/// What rustc's output uses: without being told, `wasm-opt` takes some of it for a mistake.
const FEATURES: [&str; 6] = [
    "--enable-bulk-memory",
    "--enable-nontrapping-float-to-int",
    "--enable-sign-ext",
    "--enable-mutable-globals",
    "--enable-reference-types",
    "--enable-multivalue",
];

/// The planner's script and its WebAssembly.
#[derive(Debug)]
pub struct Planner {
    /// The script that loads the WebAssembly and lends it the browser.
    pub script: String,
    /// The WebAssembly.
    pub wasm: Vec<u8>,
}

/// What is left of the names of functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Names {
    /// As one reads them, in a stack trace.
    Readable,
    /// As the compiler gives them: whoever takes them from there looks functions up by them.
    Mangled,
}

/// Makes them from what cargo built, as small as `wasm-opt` gets it where there is one.
///
/// # Errors
/// It is not there, or was built with another version of wasm-bindgen; `wasm-opt` fails.
pub fn join(built: &Path, names: Names, wasm_opt: Option<&Path>) -> Result<Planner> {
    ensure!(built.is_file(), "there is no {}: have cargo build it first", built.display());
    let mut bindgen = Bindgen::new();
    bindgen.input_path(built).out_name("planner").typescript(false).web(true)?;
    // The page says where the WebAssembly is: its name changes with its content.
    bindgen.omit_default_module_path(true);
    bindgen.remove_producers_section(true).demangle(names == Names::Readable);
    let mut output = bindgen.generate_output().with_context(|| format!("{} cannot be joined", built.display()))?;
    ensure!(
        output.snippets().values().all(Vec::is_empty) && output.local_modules().is_empty(),
        "a dependency of the planner brings JavaScript of its own, which nobody would find in web/dist"
    );
    let script = output.js().to_owned();
    let wasm = output.wasm_mut().emit_wasm();
    let wasm = match wasm_opt {
        Some(program) => optimised(program, built, &wasm)?,
        None => wasm,
    };
    Ok(Planner { script, wasm })
}

/// The same, made smaller by `wasm-opt`, names of functions and all.
fn optimised(program: &Path, built: &Path, wasm: &[u8]) -> Result<Vec<u8>> {
    let (from, to) = (built.with_extension("joined.wasm"), built.with_extension("small.wasm"));
    fs::write(&from, wasm).with_context(|| format!("cannot write {}", from.display()))?;
    let done = Command::new(program).args(["-Oz", "-g"]).args(FEATURES).arg(&from).arg("-o").arg(&to).output();
    let done = done.with_context(|| format!("cannot start {}", program.display()))?;
    ensure!(done.status.success(), "{} failed: {}", program.display(), String::from_utf8_lossy(&done.stderr));
    fs::read(&to).with_context(|| format!("cannot read {}", to.display()))
}
