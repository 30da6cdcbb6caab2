//! The stand-in: what is loaded into Python. Functions that C calls, by the names and types of NVIDIA's public
//! documentation; they turn pointers into values, ask the model, and write the answer back.
//!
//! Nothing here may unwind into C: no call panics on what it is given, and a lock that was poisoned is used on.
#![allow(non_snake_case, reason = "the names are those that C asks for")]
#![allow(clippy::too_many_arguments, reason = "as many as CUDA's functions have")]

mod absent;
mod asked;
mod attributes;
mod blas;
mod book;
mod call;
mod cards;
mod convolved;
mod copy;
mod cupti;
mod current;
mod dnn;
mod driver;
mod driver_memory;
mod graph;
mod kernels;
mod memory;
mod nvml;
mod nvrtc;
mod overflow;
mod pages;
mod plans;
mod properties;
mod runtime;
mod runtime_streams;
mod selected;
mod space;
mod streams;
mod truth;
