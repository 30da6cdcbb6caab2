//! Make it fit: which recipes bring a run onto its card, and which cards hold it as it is.
//!
//! Nothing here estimates: every recipe that is named has been run, and "nothing fits" is only said when every combination
//! of the ways and steps has been.

mod cards;
mod cost;
mod plans;
mod recipe;
mod search;
mod space;
#[cfg(test)]
mod tests;

pub use cards::{Berthed, Cards, cards};
pub use cost::{Cost, Kind};
pub use plans::{Bound, Freedom, Plan, Plans, Rejected, Search, Why, plans, seconds, with_tokens};
pub use recipe::{Altered, Miss, Recipe};
pub use search::{Allowed, Fit, fit};
