//! What of `docs/` the engine writes: `scoreboard accuracy | schema | reference [--check]`, which `cargo xtask` runs.
//!
//! Cargo builds it beside the tests for WebAssembly too, where there are no files to write.
#![forbid(unsafe_code)]

#[cfg(not(target_arch = "wasm32"))]
mod accuracy;
#[cfg(not(target_arch = "wasm32"))]
mod command;
#[cfg(not(target_arch = "wasm32"))]
mod page;
#[cfg(not(target_arch = "wasm32"))]
mod reference;
#[cfg(not(target_arch = "wasm32"))]
mod schema;

#[cfg(not(target_arch = "wasm32"))]
fn main() -> std::process::ExitCode {
    command::main()
}

#[cfg(target_arch = "wasm32")]
fn main() {}
