//! Times every case as WebAssembly, under Node: `cargo xtask bench` runs it.

#[cfg(target_arch = "wasm32")]
fn main() -> std::process::ExitCode {
    use plimsoll_bench::{CASES, line, time};
    use plimsoll_testkit::wasm::{now, print};

    // Linear memory only ever grows: its size is the most that was needed so far, 64 KiB a page.
    let memory = || core::arch::wasm32::memory_size::<0>() as u64 * 65536;
    for case in CASES {
        match time(&case, now, || 0.0) {
            Ok(timing) => print(&line(&case, &timing, memory())),
            Err(error) => {
                print(&format!("{}: {error}", case.id));
                return std::process::ExitCode::FAILURE;
            }
        }
    }
    std::process::ExitCode::SUCCESS
}

#[cfg(not(target_arch = "wasm32"))]
fn main() {}
