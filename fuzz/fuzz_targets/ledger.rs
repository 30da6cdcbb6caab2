//! Files of ledgers. `cargo fuzz run ledger`; with a stable compiler `cargo run --release --package plimsoll-fuzz --bin ledger`.
#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|input: &[u8]| plimsoll_fuzz::ledger(input));

#[cfg(not(fuzzing))]
fn main() -> std::process::ExitCode {
    plimsoll_fuzz::harness::main("ledger")
}
