//! What everything stands on: sizes in bytes, figures as people read them, errors that say what to do next, closed
//! vocabularies, and "did you mean".
#![forbid(unsafe_code)]

mod bytes;
mod error;
mod grouped;
mod hidden;
mod nearest;
mod vocabulary;

pub use bytes::Bytes;
pub use error::{Error, Reason, Result};
pub use grouped::grouped;
pub use hidden::{is_hidden, shown};
pub use nearest::{nearest, nearest_ids, quoted};
pub use vocabulary::{Vocabulary, Word};
