//! Facts with their sources: graphics cards and what they hold back, published models, and what changed between versions
//! of PyTorch, transformers and bitsandbytes.
#![forbid(unsafe_code)]

pub mod device;
mod entries;
pub mod families;
pub mod search;
pub mod software;

pub use entries::{Gpu, Model, Vendor, config, gpu, gpus, model, models};
