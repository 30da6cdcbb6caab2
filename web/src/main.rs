//! The planner.
fn main() {}
