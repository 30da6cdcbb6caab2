//! The journeys a person takes: the real `plimsoll serve`, a real Chromium, the answers of the engine beside them.
//!
//! `cargo xtask test` builds what they need and says where it is; see [`surroundings`] for running them by hand.
//! Every journey also fails on anything in the browser's console and on any breach of the content security policy.
//! What a failed one saw is kept in `target/e2e`.
#![cfg(not(target_arch = "wasm32"))]

mod accessibility;
mod axe;
mod browser;
mod called;
mod closely;
mod command;
mod compare;
mod cursor;
mod device;
mod evidence;
mod exchange;
mod figures;
mod fitting;
mod heatmap;
mod hulls;
mod journey;
mod large_model;
mod latency;
mod layout;
mod levers;
mod links;
mod opening;
mod page;
mod pasted_config;
mod pictures;
mod plans;
mod process;
mod server;
mod snapshot;
mod static_files;
mod surroundings;
mod theme;
mod watch;
