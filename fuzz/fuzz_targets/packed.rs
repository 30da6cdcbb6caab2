//! Whole hulls, packed. `cargo fuzz run packed`; with a stable compiler `cargo run --release --package plimsoll-fuzz --bin packed`.
#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|input: &[u8]| plimsoll_fuzz::packed(input));

#[cfg(not(fuzzing))]
fn main() -> std::process::ExitCode {
    plimsoll_fuzz::harness::main("packed")
}
