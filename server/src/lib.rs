//! The server: hosts the planner that was built into the binary.
//!
//! [`Site`] is the planner's files with everything a response needs worked out once at start; [`app`] answers
//! requests from it; [`serve`] puts that on a socket. The planner works just as well from any static file host:
//! nothing in it needs this server.
#![forbid(unsafe_code)]

mod app;
mod encoding;
mod html;
mod policy;
mod site;
mod socket;

pub use app::app;
pub use site::{File, Site};
pub use socket::{DEFAULT_LISTEN, ServeError, serve, stop_signal};
