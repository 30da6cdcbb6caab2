//! What tests and measurements work with: a PostgreSQL of one's own, `plimsoll serve` as a process, a client, a storm of
//! clients, records that nobody measured, programs that hear Ctrl-C, a Python that has imported PyTorch; and, in
//! WebAssembly, what a test there says.

#[cfg(not(target_arch = "wasm32"))]
pub mod attended;
#[cfg(not(target_arch = "wasm32"))]
pub mod http;
#[cfg(not(target_arch = "wasm32"))]
pub mod kills;
#[cfg(not(target_arch = "wasm32"))]
pub mod postgres;
#[cfg(target_os = "linux")]
pub mod ready;
#[cfg(not(target_arch = "wasm32"))]
pub mod server;
#[cfg(not(target_arch = "wasm32"))]
pub mod storm;
pub mod synthetic;
#[cfg(target_arch = "wasm32")]
pub mod wasm;
