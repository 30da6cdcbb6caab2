//! The engine in wasm gives the same answers as natively, byte for byte.
//!
//! `cargo test -p plimsoll-tests --target wasm32-unknown-unknown --test wasm_parity` (runs under Node).
#![cfg(target_arch = "wasm32")]

use wasm_bindgen_test::wasm_bindgen_test;

#[wasm_bindgen_test]
fn every_answer_is_the_native_one() {
    if let Err(problem) = plimsoll_tests::accuracy::compare(include_str!("../corpus/estimates.hashes")) {
        panic!("{problem}");
    }
}
