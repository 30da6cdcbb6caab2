//! What the tests share: the reference corpus, how far the engine is from it, and the scoreboard.
#![forbid(unsafe_code)]

pub mod accuracy;
pub mod worked;
