//! Facts with their sources: graphics cards and what they hold back, published models, and what changed between versions
//! of PyTorch, transformers and bitsandbytes.
#![forbid(unsafe_code)]

pub mod device;
mod entries;
pub mod families;
mod recorded;
pub mod search;
pub mod software;

pub use entries::{Gpu, Model, Vendor, config, gpu, gpus, model, models};
pub use recorded::{FILES, Recorded, file, place_of, recorded, recorded_as, recorded_model};
