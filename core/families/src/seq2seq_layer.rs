//! The layer that BART and Whisper build alike: the modules in their order. What each does with them stands with it.

use plimsoll_ground::Result;
use plimsoll_torch::nn::{Activation, EncoderAttention, LayerNorm, Linear, Scope};
use plimsoll_torch::ops;
use plimsoll_torch::tensor::{ModuleId, Tensor};

use super::config::{Config, divide};
use super::seq2seq::{Attend, Kind};

/// What every layer of both stacks has.
#[derive(Clone, Copy, Debug)]
pub struct LayerSizes<'c> {
    /// `d_model`.
    pub hidden: u64,
    /// `dropout`.
    pub dropout: f64,
    /// `activation_dropout`.
    pub activation_dropout: f64,
    /// `activation_function`.
    pub act: &'c str,
}

impl<'c> LayerSizes<'c> {
    /// From the config, with the defaults of `d_model` and `dropout` that the family has.
    ///
    /// # Errors
    /// A value that is none.
    pub fn read(config: &Config<'c>, hidden: u64, dropout: f64) -> Result<Self> {
        Ok(Self {
            hidden: config.size("d_model", hidden)?,
            dropout: config.probability("dropout", dropout)?,
            activation_dropout: config.probability("activation_dropout", 0.0)?,
            act: config.text("activation_function", "gelu")?,
        })
    }
}

/// What the two stacks differ in.
#[derive(Clone, Copy, Debug)]
pub struct StackSizes {
    /// Layers of the stack.
    pub layers: u64,
    /// Attention heads of each.
    pub heads: u64,
    /// Width between `fc1` and `fc2`.
    pub intermediate: u64,
}

impl StackSizes {
    /// From the config: `<stack>_layers`, `<stack>_attention_heads`, `<stack>_ffn_dim`, with the family's defaults.
    ///
    /// # Errors
    /// A value that is none, or heads that do not divide the width.
    pub fn read(config: &Config<'_>, hidden: u64, keys: [&str; 3], defaults: [u64; 3]) -> Result<Self> {
        let ([layers, heads, ffn], [most, many, wide]) = (keys, defaults);
        let sizes = Self {
            layers: config.layers(layers, most)?,
            heads: config.size(heads, many)?,
            intermediate: config.size(ffn, wide)?,
        };
        divide(config, ("d_model", hidden), (heads, sizes.heads))?;
        Ok(sizes)
    }

    /// Of the encoder and of the decoder.
    ///
    /// # Errors
    /// As [`StackSizes::read`].
    pub fn both(config: &Config<'_>, hidden: u64, defaults: [u64; 3]) -> Result<[Self; 2]> {
        let encoder = ["encoder_layers", "encoder_attention_heads", "encoder_ffn_dim"];
        let decoder = ["decoder_layers", "decoder_attention_heads", "decoder_ffn_dim"];
        Ok([Self::read(config, hidden, encoder, defaults)?, Self::read(config, hidden, decoder, defaults)?])
    }
}

/// An encoder's layer or, with cross-attention, a decoder's.
#[derive(Debug)]
pub struct Layer {
    /// `self_attn`.
    pub self_attn: Attend,
    /// `self_attn_layer_norm`.
    pub self_attn_layer_norm: LayerNorm,
    /// `encoder_attn` and its norm.
    pub cross: Option<(Attend, LayerNorm)>,
    fc1: Linear,
    activation_fn: Activation,
    fc2: Linear,
    /// `final_layer_norm`.
    pub final_layer_norm: LayerNorm,
    /// Behind every block.
    pub dropout: f64,
    activation_dropout: f64,
    /// Where it stands in the model.
    pub module: ModuleId,
}

impl Layer {
    /// The modules in the order of their registration; `None` where nobody knows the activation.
    pub fn new(
        scope: &Scope,
        kind: Kind,
        sizes: &LayerSizes<'_>,
        stack: StackSizes,
        core: &EncoderAttention,
        decoder: bool,
    ) -> Option<Self> {
        let hidden = sizes.hidden;
        let attend =
            |name: &'static str, causal| Attend::new(&scope.child(name), kind, hidden, stack.heads, core, causal);
        let norm = |name: &'static str| LayerNorm::new(&scope.child(name), hidden, true);
        let linear = |name: &'static str, i, o| Linear::new(&scope.child(name), i, o, true);
        Some(Self {
            self_attn: attend("self_attn", decoder),
            self_attn_layer_norm: norm("self_attn_layer_norm"),
            cross: decoder.then(|| (attend("encoder_attn", false), norm("encoder_attn_layer_norm"))),
            fc1: linear("fc1", hidden, stack.intermediate),
            activation_fn: Activation::new(&scope.child("activation_fn"), sizes.act)?,
            fc2: linear("fc2", stack.intermediate, hidden),
            final_layer_norm: norm("final_layer_norm"),
            dropout: sizes.dropout,
            activation_dropout: sizes.activation_dropout,
            module: scope.module(),
        })
    }

    /// `fc1`, the activation, `fc2`, each with its dropout. What it is given ends where the name is given the next.
    pub fn feed_forward(&self, mut hidden: Tensor) -> Tensor {
        hidden = self.activation_fn.forward(&self.fc1.forward(&hidden));
        hidden = ops::dropout(&hidden, self.activation_dropout);
        hidden = self.fc2.forward(&hidden);
        ops::dropout(&hidden, self.dropout)
    }
}
