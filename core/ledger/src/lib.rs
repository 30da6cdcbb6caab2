//! The ledger: what a run writes. Every storage that ever lived, the stream of births and deaths, the kernels that ran, and
//! where each phase of the loop begins. It knows no reader.
#![forbid(unsafe_code)]

pub mod cub;
mod dtype;
mod event;
pub mod file;
pub mod hull;
mod law;
mod ledger;
mod module;
mod names;
mod parameters;
mod phase;
mod recorder;
mod shapes;
mod storage;
mod work;

pub use cub::{Scan, Sort};
pub use dtype::DType;
pub use event::{Event, Stream, What};
pub use law::{Law, Parts, Rows, Rule, Split, Sum};
pub use ledger::Ledger;
pub use module::{Module, ModuleId, Modules};
pub use names::{GradFnId, Names, OpId, OpSet};
pub use parameters::Parameters;
pub use phase::{PhaseMark, PhaseName};
pub use recorder::{Birth, Recorder};
pub use shapes::{ShapeId, Shapes};
pub use storage::{Kind, Owner, Storage};
pub use work::{Launch, Work, WorkId};
