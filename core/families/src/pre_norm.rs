//! The layer most decoders have: norm, attention, add; norm, feed-forward, add.

use plimsoll_torch::nn::{Activation, GatedMlp, Linear, Norm};
use plimsoll_torch::ops;
use plimsoll_torch::tensor::{ModuleId, Tensor};

use super::attend::Attend;
use super::decoder::{Keywords, Layer};
use super::latent_attention::LatentAttention;
use super::shared_moe::SharedMoe;
use super::sparse::SparseMoeBlock;

/// A layer's feed-forward.
#[derive(Debug)]
pub enum FeedForward {
    /// `LlamaMLP`.
    Gated(Box<GatedMlp>),
    /// Two linears with an activation between them.
    Plain(Box<PlainMlp>),
    /// A mixture of experts.
    Sparse(Box<SparseMoeBlock>),
    /// One with experts that every token goes to beside the chosen.
    Shared(Box<SharedMoe>),
}

impl FeedForward {
    /// `forward`, and a router's logits where it returns them.
    pub fn forward(&self, x: &Tensor) -> (Tensor, Option<Tensor>) {
        match self {
            Self::Gated(mlp) => (mlp.forward(x), None),
            Self::Plain(mlp) => (mlp.forward(x), None),
            Self::Sparse(mlp) => mlp.forward(x),
            Self::Shared(mlp) => (mlp.forward(x), None),
        }
    }
}

/// `fc2(act(fc1(x)))`, dropped out where the family does.
#[derive(Debug)]
pub struct PlainMlp {
    /// The first linear.
    pub fc1: Linear,
    /// The second.
    pub fc2: Linear,
    /// The activation between.
    pub act: Activation,
    /// Dropout of the result.
    pub dropout: f64,
    /// Its module.
    pub module: ModuleId,
}

impl PlainMlp {
    /// `forward`.
    pub fn forward(&self, x: &Tensor) -> Tensor {
        x.cx().within(self.module, || {
            let mut hidden = self.fc1.forward(x);
            hidden = self.act.forward(&hidden);
            hidden = self.fc2.forward(&hidden);
            ops::dropout(&hidden, self.dropout)
        })
    }
}

/// The attention of a layer.
pub trait SelfAttention: std::fmt::Debug {
    /// The attended hidden states, and the probabilities that eager attention returns beside them.
    fn forward(&self, hidden: &Tensor, keywords: &Keywords) -> (Tensor, Option<Tensor>);

    /// What sets it apart from that of other layers of its model: those of one kind do the same.
    fn kind(&self) -> u64 {
        0
    }
}

impl SelfAttention for Attend {
    fn forward(&self, hidden: &Tensor, keywords: &Keywords) -> (Tensor, Option<Tensor>) {
        Self::forward(self, hidden, keywords)
    }

    fn kind(&self) -> u64 {
        self.options.rotary
    }
}

impl SelfAttention for LatentAttention {
    fn forward(&self, hidden: &Tensor, keywords: &Keywords) -> (Tensor, Option<Tensor>) {
        Self::forward(self, hidden, keywords)
    }
}

/// `LlamaDecoderLayer`.
#[derive(Debug)]
pub struct PreNormLayer<A = Attend> {
    /// Attention.
    pub self_attn: A,
    /// Feed-forward.
    pub mlp: FeedForward,
    /// Before attention.
    pub input_layernorm: Norm,
    /// Before the feed-forward.
    pub post_attention_layernorm: Norm,
    /// Whether it looks through the sliding window, or is linear.
    pub windowed: bool,
    /// Its module.
    pub module: ModuleId,
}

impl<A: SelfAttention> Layer for PreNormLayer<A> {
    fn forward(&self, hidden: &Tensor, keywords: &Keywords) -> Tensor {
        let (hidden, keywords) = &keywords.given(self.module, hidden);
        hidden.cx().within(self.module, || {
            let residual = hidden;
            let mut hidden = self.input_layernorm.forward(residual);
            let (attended, _weights) = self.self_attn.forward(&hidden, keywords);
            hidden = attended;
            hidden = ops::add(residual, &hidden);
            let residual = hidden;
            let mut hidden = self.post_attention_layernorm.forward(&residual);
            let (fed, _router_logits) = self.mlp.forward(&hidden);
            hidden = fed;
            ops::add(&residual, &hidden)
        })
    }

    fn windowed(&self) -> bool {
        self.windowed
    }

    fn kind(&self) -> u64 {
        2 * self.self_attn.kind() + u64::from(matches!(self.mlp, FeedForward::Sparse(_) | FeedForward::Shared(_)))
    }
}
