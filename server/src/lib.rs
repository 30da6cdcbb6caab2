//! The server: hosts the planner, from inside the binary or from a folder, and keeps measurements.
//!
//! [`Site`] is the planner's files with everything a response needs worked out once at start; [`Api`] is the
//! measurements of a [`store::Store`] over HTTP; [`app`] answers requests from both; [`serve`] puts that on a socket.
//! The planner works just as well from any static file host: nothing in it needs this server.
#![forbid(unsafe_code)]

mod api;
mod app;
mod encoding;
mod etag;
mod host;
mod patient;
mod places;
mod policy;
mod settle;
mod site;
mod socket;
pub mod store;

pub use api::{Api, Settings};
pub use app::app;
pub use site::{File, Site};
pub use socket::{DEFAULT_LISTEN, ServeError, serve, stop_signal};
