//! Records of measurements. `cargo fuzz run record`; with a stable compiler `cargo run --release --package plimsoll-fuzz --bin record`.
#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|input: &[u8]| plimsoll_fuzz::record(input));

#[cfg(not(fuzzing))]
fn main() -> std::process::ExitCode {
    plimsoll_fuzz::harness::main("record")
}
