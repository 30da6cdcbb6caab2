//! Hollow cards: CUDA devices that exist only as a library.
//!
//! The real, unmodified PyTorch runs on them: dispatch, autograd, the choice of attention kernels, the caching allocator
//! and its `OutOfMemoryError` are PyTorch's own. Memory is counted against a capacity; kernels do nothing; what the host
//! reads back is zero, or what a [rule](Rules) says.
//!
//! Two halves share this crate, so that they cannot disagree on what they tell one another:
//!
//! * the **stand-in**, a shared library that is loaded into Python before anything else. It answers for the CUDA driver and
//!   runtime, cuBLAS, cuBLASLt, cuDNN and NVML, as far as PyTorch calls them, written from their public documentation;
//! * the **dock**, which reads from an installed PyTorch what it imports and writes, for each library it names, an empty one
//!   of that name whose functions say that they are not simulated.
//!
//! NVIDIA's own closed libraries are not loaded beside it, and nothing here imitates what they recognise NVIDIA's driver by:
//! `cuGetExportTable` answers "not found" for every table.
//!
//! This is the one crate of the workspace with `unsafe` in it, and only the stand-in has it: it is called from C, through
//! pointers. What can be decided without a pointer (addresses, attributes, rules, layouts) is decided in modules without one.
#![deny(unsafe_code)]

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod capability;
mod card;
mod dock;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod identity;
mod imports;
mod stub;

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
#[allow(unsafe_code, reason = "called from C, through pointers")]
mod stand_in;

pub use card::{Card, Rules, Setup, VARIABLE};
pub use dock::{Dock, LIBRARY};
