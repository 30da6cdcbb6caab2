//! How the run computes its loss, where the recipe asks for something else than the model's own.

/// Where labels are smoothed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Smoothing {
    /// Nowhere.
    #[default]
    None,
    /// In `cross_entropy(label_smoothing=)`.
    InLoss,
    /// Outside the model, which is not given its labels and returns no loss.
    Outside,
}

/// How the output head and the loss of a causal language model are computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HeadLoss {
    /// The head, then the loss.
    #[default]
    Full,
    /// The head and the loss in chunks of the sequence.
    Chunked,
    /// Liger's fused linear cross-entropy.
    FusedLinear {
        /// An NVIDIA card: products write into buffers that are there already.
        cuda: bool,
        /// Compute capability 8.0 and up, or ROCm: weight gradients are summed inside the product.
        sums_in_product: bool,
    },
    /// TRL's fused output head, in tiles that backward computes again.
    FusedLmHead {
        /// What SFTTrainer asks for beside: the entropy, and whether the label is the likeliest.
        metrics: bool,
    },
}

/// How the run computes its loss.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LossRules {
    /// Where labels are smoothed.
    pub smoothing: Smoothing,
    /// How the head and the loss are computed.
    pub head: HeadLoss,
    /// Whether the loss is a sum that is divided by the number of labels, which the Trainer hands over (`num_items_in_batch`).
    pub counted: bool,
}
