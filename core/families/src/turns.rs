//! By what a decoder's layers turn queries and keys: angles of the model's, or of each layer's.

use plimsoll_catalog::families;
use plimsoll_catalog::software::rules;
use plimsoll_ground::Result;
use plimsoll_torch::nn::{Angles, LayerRotary, RotaryEmbedding, Scope};

use super::config::Config;

/// What a layer needs to turn queries and keys by.
#[derive(Clone, Copy, Debug)]
pub struct Turns {
    /// Who knows the angles.
    pub angles: Angles,
    /// How many positions a table of them has.
    pub positions: u64,
}

impl Turns {
    /// By the model's angles.
    pub const PLAIN: Self = Self { angles: Angles::Once, positions: 0 };

    /// Those of this model's layers.
    ///
    /// # Errors
    /// When its positions are no number of them.
    pub fn read(scope: &Scope, config: &Config<'_>) -> Result<Self> {
        let default = families::of_type(config.model_type()).and_then(|family| family.positions.default);
        Ok(Self {
            angles: angles(scope, config),
            positions: config.size("max_position_embeddings", default.unwrap_or(2048))?,
        })
    }

    /// `rotary_emb` of the attention at `scope`, which turns `dim` dimensions of a head.
    pub fn layer(self, scope: &Scope, dim: u64) -> LayerRotary {
        LayerRotary::new(scope, self.angles, dim, self.positions)
    }
}

/// How angles come to the layers of this model.
fn angles(scope: &Scope, config: &Config<'_>) -> Angles {
    Angles::of(config.model_type(), scope.cx().machine().rules)
}

/// The model's own `rotary_emb`, turning `dim` dimensions of a head, where its layers do not have theirs.
pub fn rotary(model: &Scope, config: &Config<'_>, dim: u64) -> Option<RotaryEmbedding> {
    let scope = model.child("rotary_emb");
    // GLM's first class knew no scaling.
    let unscaled = config.model_type() == "glm" && !model.cx().machine().rules.has(&rules::SHARED_SDPA);
    let make = if unscaled { RotaryEmbedding::unscaled } else { RotaryEmbedding::new };
    angles(model, config).are_the_models().then(|| make(&scope, dim))
}
