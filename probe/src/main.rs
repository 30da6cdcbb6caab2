//! The native binary `plimsoll`.
fn main() {}
