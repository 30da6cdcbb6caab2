//! How far the engine is from the reference corpus, and `docs/accuracy.md`, which says so.

mod cards;
mod cards_report;
mod corpus;
mod families;
mod fingerprint;
mod hollow;
mod largest;
mod on_card;
mod own;
mod percent;
mod published;
mod recipe;
mod report;
mod rules_of_thumb;
mod runs;
mod score;
mod several;
mod statistics;
mod work;
mod worst;

pub use cards::{CardErrors, CardOutcome, CardRow, cards};
pub use corpus::{Expected, ExpectedPhase, Row, traced};
pub use families::{FamilyOutcome, FamilyRecipe, FamilyRow, RECIPES, families};
pub use fingerprint::{compare, fingerprint, fingerprints};
pub use hollow::{Differs, HollowExpected, HollowRow, hollow};
pub use largest::{Found, Largest, Predicted, largest};
pub use on_card::{Apart, CardRun, Group, OnCard, OnCardError, on_card};
pub use own::{OwnPhase, OwnRow, own};
pub use published::{Compared, Published, published};
pub use recipe::Recipe;
pub use report::{real_cards, report};
pub use rules_of_thumb::{RULES, Rule, Shape};
pub use runs::{MeasuredRun, Rerun, runs};
pub use score::{Outcome, PhaseScore, Score, evaluate};
pub use statistics::Spread;
pub use work::{WorkRow, work};
