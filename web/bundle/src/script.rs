//! What is added to the script that wasm-bindgen makes.

use anyhow::{Result, ensure};

use crate::halves::LENT;
use crate::watched::NOTES;

/// Where the script says what it lends to the WebAssembly.
const LENDS: &str = "\"./planner_bg.js\": import0,";

/// What has the rest of the planner follow its first half, and the line that it is told the rest's name in.
const REST: &str = include_str!("rest.js");
const NAME: &str = "const REST = \"\";\n";

/// The script of a planner in two halves: `rest` is the name of the file of the other.
///
/// # Errors
/// wasm-bindgen makes another script than it did.
pub fn with_rest(script: &str, rest: &str) -> Result<String> {
    for (text, place) in [(script, LENDS), (REST, NAME)] {
        ensure!(text.matches(place).count() == 1, "the planner's script has not one {place}");
    }
    let (module, load) = LENT;
    let lends = format!("{LENDS} {module}: {{ {load}: loadRest }},");
    let name = format!("const REST = \"{rest}\";\n");
    Ok(script.replacen(LENDS, &lends, 1) + &REST.replacen(NAME, &name, 1))
}

/// The script of a planner that notes its calls: `called` is the numbers of the functions that were, where the script runs.
///
/// # Errors
/// wasm-bindgen makes another script than it did.
pub fn with_calls(script: &str) -> Result<String> {
    ensure!(
        script.contains("let wasmModule, wasmInstance, wasm;"),
        "the planner's script keeps its WebAssembly elsewhere"
    );
    let numbers =
        format!("Array.from(new Uint8Array(wasm.{NOTES}.buffer)).flatMap((called, at) => (called ? [at] : []))");
    Ok(format!("{script}\nObject.defineProperty(globalThis, \"called\", {{ get: () => {numbers} }});\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_that_is_another_is_not_added_to() {
        let script = format!("let wasmModule, wasmInstance, wasm;\n{LENDS}\n");
        let whole = with_rest(&script, "rest-0123456789abcdef.wasm").unwrap();
        assert!(whole.contains("import0, rest: { load: loadRest },"), "{whole}");
        assert!(whole.contains("const REST = \"rest-0123456789abcdef.wasm\";"), "{whole}");
        assert!(with_calls(&script).unwrap().contains("wasm.called.buffer"));
        assert!(with_rest("", "rest.wasm").is_err() && with_calls("").is_err());
    }
}
