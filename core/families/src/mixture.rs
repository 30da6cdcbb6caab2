//! Which layers of the Qwens' mixtures have experts, and what each layer has behind its attention.

use plimsoll_ground::Result;
use plimsoll_torch::nn::{GatedMlp, Scope};

use super::config::Config;
use super::pre_norm::FeedForward;
use super::sparse::{BlockSizes, SparseMoeBlock};

/// `decoder_sparse_step` and `mlp_only_layers`, beside what a block of experts is made of.
#[derive(Debug)]
pub struct Mixture<'a> {
    block: BlockSizes<'a>,
    step: u64,
    dense: Vec<u64>,
}

impl<'a> Mixture<'a> {
    /// Blocks of these sizes, in the layers that the configuration says.
    ///
    /// # Errors
    /// A step that is no size.
    pub fn read(config: &Config<'_>, block: BlockSizes<'a>) -> Result<Self> {
        let dense = config.counts("mlp_only_layers").unwrap_or_default();
        Ok(Self { block, step: config.size("decoder_sparse_step", 1)?, dense })
    }

    /// The `mlp` of layer `i`: a block of experts, or one of `intermediate` features. `None` for an unknown activation.
    pub fn feed_forward(&self, mlp: &Scope, i: u64, intermediate: u64) -> Option<FeedForward> {
        let BlockSizes { hidden, act, .. } = self.block;
        if !self.dense.contains(&i) && (i + 1).is_multiple_of(self.step) {
            return Some(FeedForward::Sparse(Box::new(SparseMoeBlock::new(mlp, &self.block)?)));
        }
        Some(FeedForward::Gated(Box::new(GatedMlp::new(mlp, hidden, intermediate, act, false)?)))
    }
}
