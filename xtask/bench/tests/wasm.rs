//! Times every case as WebAssembly, under Node.
#![cfg(target_arch = "wasm32")]

use plimsoll_bench::{CASES, line, time};
use wasm_bindgen::prelude::*;
use wasm_bindgen_test::{console_log, wasm_bindgen_test};

#[wasm_bindgen]
extern "C" {
    #[wasm_bindgen(js_namespace = performance)]
    fn now() -> f64;
}

/// Linear memory only ever grows: its size is the most that was needed so far, 64 KiB a page.
fn memory() -> u64 {
    core::arch::wasm32::memory_size::<0>() as u64 * 65536
}

#[wasm_bindgen_test]
fn times() {
    for case in CASES {
        let timing = time(&case, now).unwrap();
        console_log!("{}", line(&case, &timing, memory()));
    }
}
