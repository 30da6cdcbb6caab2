//! What a card takes before and beside PyTorch's tensors, and how much of it is left for them.
//!
//! Nothing here is in PyTorch's allocator except the cuBLAS workspaces: `process = reserved + context`, and a process can
//! have at most `capacity`. Every figure carries where it was read; where no reading was found it says so.

mod context;
mod footprint;
mod limits;
mod links;
mod sourced;
#[cfg(test)]
mod tests;
mod workspace;

pub use context::{Library, context, library, multiprocessors, resident_threads, without_backward};
pub use footprint::{Part, footprint};
pub use limits::{DeviceLimits, desktop, driver_reserve, limits};
pub use links::{Links, links};
pub use sourced::Sourced;
pub use workspace::{Workspace, cublas_workspace, cublaslt_workspace};
