//! Memory snapshots. `cargo fuzz run snapshot`; with a stable compiler `cargo run --release --package plimsoll-fuzz --bin snapshot`.
#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|input: &[u8]| plimsoll_fuzz::snapshot(input));

#[cfg(not(fuzzing))]
fn main() -> std::process::ExitCode {
    plimsoll_fuzz::harness::main("snapshot")
}
