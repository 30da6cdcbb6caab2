//! A pasted `config.json`. `cargo fuzz run config`; with a stable compiler `cargo run --release --package plimsoll-fuzz --bin config`.
#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|input: &[u8]| plimsoll_fuzz::config(input));

#[cfg(not(fuzzing))]
fn main() -> std::process::ExitCode {
    plimsoll_fuzz::harness::main("config")
}
