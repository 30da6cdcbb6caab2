//! The ledger: what a run writes. Every storage that ever lived, the stream of births and deaths, and where each phase of
//! the loop begins. It knows no reader.
#![forbid(unsafe_code)]

mod dtype;
mod event;
mod ledger;
mod module;
mod parameters;
mod phase;

pub use dtype::DType;
pub use event::Event;
pub use ledger::{Kind, Ledger, MAX_RANK, PhaseMark, StorageInfo};
pub use module::ModuleId;
pub use parameters::Parameters;
pub use phase::PhaseName;
