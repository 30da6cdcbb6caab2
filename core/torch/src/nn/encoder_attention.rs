//! The attention of transformers' encoders and encoder-decoders: with or without causality, between any two lengths.

use plimsoll_catalog::software::{Rule, rules};
use plimsoll_scenario::Attention;

use crate::ops::{self, Pointwise, SdpaRules};
use crate::tensor::Tensor;

/// What a family's attention does between its projections.
#[derive(Clone, Debug)]
pub struct EncoderAttention {
    /// sdpa or eager.
    pub implementation: Attention,
    /// Which kernels the card has.
    pub rules: SdpaRules,
    /// Dropout on the probabilities.
    pub dropout: f64,
    /// Eager attention's softmax runs in float32 and is cast back (CLIP); else in its own dtype (BART, Whisper, T5).
    pub softmax_fp32: bool,
    /// Since when the model calls the attention that all share, where it is known to have done so before transformers 5.
    pub shared_since: Option<&'static Rule>,
}

impl EncoderAttention {
    /// From `[batch, heads, seq, dim]` to `[batch, seq, heads, dim]`, and the probabilities that eager attention
    /// returns beside it. `causal` is the module's `is_causal`; a mask that is given says it all.
    pub fn forward(
        &self,
        [q, k, v]: [&Tensor; 3],
        mask: Option<&Tensor>,
        position_bias: Option<&Tensor>,
        causal: bool,
    ) -> (Tensor, Option<Tensor>) {
        match self.implementation {
            Attention::Sdpa => (self.sdpa([q, k, v], mask, position_bias, causal), None),
            Attention::Eager => {
                let (out, weights) = self.eager([q, k, v], mask, position_bias);
                (out, Some(weights))
            }
        }
    }

    /// Eager attention of a class of a model's own, in which scores and probabilities have names of their own until it returns:
    /// the output, and what they hold.
    pub fn forward_named(&self, [q, k, v]: [&Tensor; 3], mask: Option<&Tensor>) -> (Tensor, [Tensor; 2]) {
        let mut scores = {
            let product = ops::matmul(q, &ops::transpose(k, 2, 3));
            ops::mul_scalar(&product)
        };
        if let Some(mask) = mask {
            scores = ops::add(&scores, mask);
        }
        let mut probabilities = ops::softmax(&scores);
        probabilities = ops::dropout(&probabilities, self.dropout);
        let out = ops::contiguous(&ops::transpose(&ops::matmul(&probabilities, v), 1, 2));
        (out, [scores, probabilities])
    }

    /// Eager attention of a class of a model's own: the queries are scaled already, and probabilities are not returned.
    pub fn forward_unscaled(&self, [q, k, v]: [&Tensor; 3], mask: Option<&Tensor>) -> (Tensor, [Tensor; 2]) {
        let mut scores = ops::matmul(q, &ops::transpose(k, 2, 3));
        if let Some(mask) = mask {
            scores = ops::add(&scores, mask);
        }
        let weights = ops::softmax(&scores);
        drop(scores);
        let probabilities = ops::dropout(&weights, self.dropout);
        let out = ops::contiguous(&ops::transpose(&ops::matmul(&probabilities, v), 1, 2));
        (out, [weights, probabilities])
    }

    /// `sdpa_attention_forward`.
    fn sdpa(
        &self,
        [q, k, v]: [&Tensor; 3],
        mask: Option<&Tensor>,
        position_bias: Option<&Tensor>,
        causal: bool,
    ) -> Tensor {
        let software = q.cx().machine().rules;
        let mut causal = causal && q.size(2) > 1 && mask.is_none();
        let mut mask = mask.cloned();
        if let Some(bias) = position_bias {
            let mut superposed = position_bias_mask(bias, mask.as_ref(), causal, q, k);
            if software.has(&rules::POSITION_BIAS_CONTIGUOUS) {
                superposed = ops::contiguous(&superposed);
            }
            mask = Some(superposed);
            causal = false;
        }
        let copies = !software.has(&rules::SDPA_AS_GIVEN) && self.shared_since.is_some_and(|rule| software.has(rule));
        let [q, k, v] = if copies { [q, k, v].map(ops::contiguous) } else { [q, k, v].map(Clone::clone) };
        let out = ops::scaled_dot_product_attention(&self.rules, &q, &k, &v, mask.as_ref(), self.dropout, causal);
        ops::contiguous(&ops::transpose(&out, 1, 2))
    }

    /// `eager_attention_forward`.
    fn eager(
        &self,
        [q, k, v]: [&Tensor; 3],
        mask: Option<&Tensor>,
        position_bias: Option<&Tensor>,
    ) -> (Tensor, Tensor) {
        let mut weights = {
            let product = ops::matmul(q, &ops::transpose(k, 2, 3));
            ops::mul_scalar(&product)
        };
        if let Some(bias) = position_bias {
            weights = ops::add(&weights, bias);
        }
        if let Some(mask) = mask {
            weights = ops::add(&weights, mask);
        }
        weights =
            if self.softmax_fp32 { ops::to(&ops::softmax_fp32(&weights), q.dtype()) } else { ops::softmax(&weights) };
        weights = ops::dropout(&weights, self.dropout);
        let out = ops::contiguous(&ops::transpose(&ops::matmul(&weights, v), 1, 2));
        (out, weights)
    }
}

/// `create_position_bias_mask`: the bias where a key may be seen, the smallest number elsewhere.
fn position_bias_mask(bias: &Tensor, mask: Option<&Tensor>, causal: bool, q: &Tensor, k: &Tensor) -> Tensor {
    match mask {
        Some(mask) => ops::where_scalar(mask, bias),
        None if causal => {
            let cx = q.cx();
            let (queries, keys) = (q.size(2), k.size(2));
            let positions = (ops::arange(cx, queries), ops::arange(cx, keys));
            let allowed = ops::pointwise(
                Pointwise::GeTensor,
                &positions.0,
                &[&positions.1],
                &[1, 1, queries, keys],
                crate::tensor::DType::Bool,
            );
            drop(positions);
            ops::where_scalar(&allowed, bias)
        }
        None => bias.clone(),
    }
}
