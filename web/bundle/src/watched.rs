//! The planner with a note of each function that was called: what `later.txt` is written from.

use std::fmt::Write as _;

use anyhow::{Context as _, Result};
use walrus::ir::{MemArg, StoreKind, Value};
use walrus::{FunctionId, FunctionKind, Module};

use crate::later::mark;

/// What the memory of the notes is exported as: a byte for each function, in the order of [`Watched::marks`].
pub const NOTES: &str = "called";

/// The bytes of a page of memory.
const PAGE: usize = 65536;

/// WebAssembly that notes what is called of it.
#[derive(Debug)]
pub struct Watched {
    pub wasm: Vec<u8>,
    /// The [mark] of each function, a line each.
    pub marks: String,
}

/// Has each function of it set a byte of its own, in a memory of its own.
///
/// # Errors
/// It is no WebAssembly; it has more functions than a number of 32 bits counts.
pub fn watched(wasm: &[u8]) -> Result<Watched> {
    let mut module = Module::from_buffer(wasm).context("the planner's WebAssembly cannot be read")?;
    let functions: Vec<FunctionId> = module.funcs.iter_local().map(|(id, _)| id).collect();
    let pages = u64::try_from(functions.len().div_ceil(PAGE))?;
    let notes = module.memories.add_local(false, false, pages, Some(pages), None);
    module.exports.add(NOTES, notes);
    let mut marks = String::new();
    for (at, id) in functions.into_iter().enumerate() {
        let function = module.funcs.get_mut(id);
        writeln!(marks, "{:08x}", function.name.as_deref().map_or(0, mark))?;
        if let FunctionKind::Local(local) = &mut function.kind {
            let mut body = local.builder_mut().func_body();
            body.const_at(0, Value::I32(i32::try_from(at)?)).const_at(1, Value::I32(1));
            body.store_at(2, notes, StoreKind::I32_8 { atomic: false }, MemArg { align: 1, offset: 0 });
        }
    }
    Ok(Watched { wasm: module.emit_wasm(), marks })
}
