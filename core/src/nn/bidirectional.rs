//! Attention in both directions: what transformers' encoders do between their projections.

use crate::ops::{self, SdpaRules};
use crate::scenario::Attention;
use crate::tensor::{DType, Tensor};

/// `create_bidirectional_mask` (transformers 5 `masking_utils.py`). `mask` is the given `[batch, seq]` mask and whether
/// anything in it is padded; `None` comes back where every token may look at every other.
pub fn bidirectional_mask(embeds: &Tensor, mask: Option<(&Tensor, bool)>, attention: Attention) -> Option<Tensor> {
    let cx = embeds.cx();
    let (given, padded) = mask?;
    let padding = ops::to(given, DType::Bool);
    drop(ops::fresh(cx, "all", &[], DType::Bool));
    if !padded {
        return None;
    }
    let (batch, seq) = (given.size(0), given.size(1));
    let batches = ops::arange(cx, batch);
    let heads = ops::arange(cx, 1);
    let shifted = || {
        let positions = ops::arange(cx, seq);
        let out = ops::fresh(cx, "add.Tensor", &[seq], DType::Int64);
        drop(positions);
        out
    };
    let (queries, keys) = (shifted(), shifted());
    // and_masks(bidirectional, padding): folded into a scalar `True` one after the other.
    let mut allowed = ops::fresh(cx, "new_ones", &[], DType::Bool);
    let queries_at_all = ops::fresh(cx, "ge.Scalar", &[1, 1, seq, 1], DType::Bool);
    allowed = {
        let both = ops::fresh(cx, "bitwise_and.Tensor", &[1, 1, seq, 1], DType::Bool);
        drop((queries_at_all, allowed));
        both
    };
    let columns = ops::fresh(cx, "index.Tensor", &[batch, 1, 1, seq], DType::Bool);
    allowed = {
        let both = ops::fresh(cx, "bitwise_and.Tensor", &[batch, 1, seq, seq], DType::Bool);
        drop((columns, allowed));
        both
    };
    drop((batches, heads, queries, keys));
    match attention {
        Attention::Sdpa => Some(allowed),
        Attention::Eager => {
            // torch.where(mask, torch.tensor(0.0), min): the zero lives on the device, the minimum is a number.
            let zero = ops::fresh(cx, "_to_copy", &[], embeds.dtype());
            let minimum = ops::fresh(cx, "scalar_tensor", &[], embeds.dtype());
            let additive = ops::fresh(cx, "where.self", allowed.dims(), embeds.dtype());
            drop((minimum, zero, allowed, padding));
            Some(additive)
        }
    }
}

/// `sdpa_attention_forward` of a module with `is_causal = False`, and the `eager_attention_forward` of BERT and ViT.
#[derive(Clone, Debug)]
pub struct BidirectionalAttention {
    /// sdpa or eager.
    pub implementation: Attention,
    /// Which kernels the card has.
    pub rules: SdpaRules,
    /// Dropout on the probabilities.
    pub dropout: f64,
    /// Eager attention's softmax runs in float32 and is cast back (the ViT way; BERT's runs in its own dtype).
    pub softmax_fp32: bool,
}

impl BidirectionalAttention {
    /// From `[batch, heads, seq, dim]` to a contiguous `[batch, seq, heads, dim]`, and the probabilities that eager
    /// attention returns beside it.
    pub fn forward(&self, q: &Tensor, k: &Tensor, v: &Tensor, mask: Option<&Tensor>) -> (Tensor, Option<Tensor>) {
        match self.implementation {
            Attention::Sdpa => {
                let out = ops::scaled_dot_product_attention(&self.rules, q, k, v, mask, self.dropout, false);
                (ops::contiguous(&ops::transpose(&out, 1, 2)), None)
            }
            Attention::Eager => {
                let mut weights = {
                    let product = ops::matmul(q, &ops::transpose(k, 2, 3));
                    ops::mul_scalar(&product)
                };
                if let Some(mask) = mask {
                    weights = ops::add(&weights, mask);
                }
                weights = if self.softmax_fp32 {
                    ops::to(&ops::softmax_fp32(&weights), q.dtype())
                } else {
                    ops::softmax(&weights)
                };
                weights = ops::dropout(&weights, self.dropout);
                let out = ops::matmul(&weights, v);
                (ops::contiguous(&ops::transpose(&out, 1, 2)), Some(weights))
            }
        }
    }
}
