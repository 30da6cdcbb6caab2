//! What the tests share: the reference corpus, how far the engine is from it, and the scoreboard.
#![forbid(unsafe_code)]

pub mod accuracy;
pub mod compare;
pub mod product;
pub mod scenario_page;
pub mod small;
pub mod worked;
