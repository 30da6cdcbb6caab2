//! Scenarios, as JSON and as TOML. `cargo fuzz run scenario`; with a stable compiler `cargo run --release --package plimsoll-fuzz --bin scenario`.
#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|input: &[u8]| plimsoll_fuzz::scenario(input));

#[cfg(not(fuzzing))]
fn main() -> std::process::ExitCode {
    plimsoll_fuzz::harness::main("scenario")
}
