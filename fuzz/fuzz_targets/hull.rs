//! The JSON within hulls. `cargo fuzz run hull`; with a stable compiler `cargo run --release --package plimsoll-fuzz --bin hull`.
#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|input: &[u8]| plimsoll_fuzz::hull(input));

#[cfg(not(fuzzing))]
fn main() -> std::process::ExitCode {
    plimsoll_fuzz::harness::main("hull")
}
