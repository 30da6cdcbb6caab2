//! The planner: a page that says how deep a training run will sit in GPU memory, as one types.
//!
//! The same wasm runs twice: on the page, and in a worker for what would take longer than a frame.
#![forbid(unsafe_code)]

#[cfg(target_arch = "wasm32")]
mod app;

#[cfg(target_arch = "wasm32")]
fn main() {
    app::start();
}

#[cfg(not(target_arch = "wasm32"))]
fn main() {
    eprintln!("The planner runs in a browser: `cargo xtask serve` builds it and serves it.");
    std::process::exit(2);
}
