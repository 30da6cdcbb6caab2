//! The engine in WebAssembly gives the same answers as natively, byte for byte. `cargo xtask test` runs it under Node.

#[cfg(target_arch = "wasm32")]
fn main() -> std::process::ExitCode {
    let parity = || plimsoll_tests::accuracy::compare(include_str!("../corpus/estimates.hashes"));
    plimsoll_testkit::wasm::run(&[("every_answer_is_the_native_one", parity)])
}

#[cfg(not(target_arch = "wasm32"))]
fn main() {}
