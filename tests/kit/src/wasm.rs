//! Tests in WebAssembly, which by itself has no output and no clock: `tests/kit/run.mjs` lends it both.

use std::panic;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

mod host {
    #[link(wasm_import_module = "host")]
    unsafe extern "C" {
        /// Prints a line: so many bytes of UTF-8 from there on.
        pub fn print(text: *const u8, length: usize);
        /// Milliseconds since some moment.
        pub safe fn now() -> f64;
    }
}

/// Milliseconds since some moment.
pub fn now() -> f64 {
    host::now()
}

/// Prints a line.
pub fn print(line: &str) {
    // SAFETY: the host only reads, and only what the line has.
    unsafe { host::print(line.as_ptr(), line.len()) }
}

/// Runs tests as cargo's own harness does, and ends in the summary that it would print. Here a panic ends the program.
pub fn run(tests: &[(&str, fn() -> Result<(), String>)]) -> ExitCode {
    let passed = Arc::new(AtomicUsize::new(0));
    let before = Arc::clone(&passed);
    panic::set_hook(Box::new(move |panic| {
        print(&format!("{panic}"));
        print(&format!("\ntest result: FAILED. {} passed; 1 failed; 0 ignored\n", before.load(Ordering::Relaxed)));
    }));
    print(&format!("\nrunning {} tests", tests.len()));
    let mut failed = 0;
    for (name, test) in tests {
        match test() {
            Ok(()) => {
                passed.fetch_add(1, Ordering::Relaxed);
                print(&format!("test {name} ... ok"));
            }
            Err(problem) => {
                failed += 1;
                print(&format!("test {name} ... FAILED\n{problem}"));
            }
        }
    }
    let verdict = if failed == 0 { "ok" } else { "FAILED" };
    print(&format!(
        "\ntest result: {verdict}. {} passed; {failed} failed; 0 ignored\n",
        passed.load(Ordering::Relaxed)
    ));
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
