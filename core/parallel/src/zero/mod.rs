//! DeepSpeed's ZeRO (`deepspeed/runtime/zero/`, 0.19.8), as its engine runs it.

mod away;
mod early;
mod late;
mod partition;
mod small;
mod swap;
mod whole;

pub use early::Early;
pub use late::Late;
pub use whole::Whole;
