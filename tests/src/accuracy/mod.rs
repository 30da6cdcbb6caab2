//! How far the engine is from the reference corpus, and `docs/accuracy.md`, which says so.

mod corpus;
mod fingerprint;
mod percent;
mod report;
mod rules_of_thumb;
mod score;
mod statistics;
mod worst;

pub use corpus::{Expected, ExpectedPhase, Row, traced};
pub use fingerprint::{compare, fingerprint, fingerprints};
pub use report::report;
pub use rules_of_thumb::{RULES, Rule, Shape};
pub use score::{Outcome, PhaseScore, Score, evaluate};
pub use statistics::Spread;
