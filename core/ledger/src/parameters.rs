//! How many numbers a model holds.

use serde::{Deserialize, Serialize};

/// Numbers (not bytes) in the model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Parameters {
    /// All of them; tied weights count once.
    pub total: u64,
    /// Those that require a gradient.
    pub trainable: u64,
}
