//! The mask that hides padding only (`create_bidirectional_mask` in `masking_utils.py`).

use plimsoll_scenario::Attention;

use super::mask::{additive, and_masks};
use crate::ops::{self, Pointwise, Reduction};
use crate::tensor::{DType, Tensor};

/// `create_bidirectional_mask`: for the queries of `embeds` and the keys that `mask` (`[batch, keys]`, and whether
/// anything in it is padded) is about. `None` where every key may be seen. An additive mask has `dtype`.
pub fn bidirectional_mask(
    embeds: &Tensor,
    mask: Option<(&Tensor, bool)>,
    dtype: DType,
    attention: Attention,
) -> Option<Tensor> {
    create(embeds, mask, dtype, attention, None)
}

/// `create_bidirectional_sliding_window_mask`: keys at most `window` away; never skipped once the sequence is as long.
pub fn sliding_window_bidirectional_mask(
    embeds: &Tensor,
    mask: Option<(&Tensor, bool)>,
    dtype: DType,
    attention: Attention,
    window: u64,
) -> Option<Tensor> {
    create(embeds, mask, dtype, attention, Some(window))
}

fn create(
    embeds: &Tensor,
    mask: Option<(&Tensor, bool)>,
    dtype: DType,
    attention: Attention,
    window: Option<u64>,
) -> Option<Tensor> {
    let cx = embeds.cx();
    let (batch, queries) = (embeds.size(0), embeds.size(1));
    let keys = mask.map_or(queries, |(mask, _)| mask.size(1));
    let padding = mask.map(|(mask, _)| ops::to(mask, DType::Bool));
    if let Some(padding) = &padding {
        drop(ops::reduction(Reduction::All, padding, &[], DType::Bool));
    }
    if !mask.is_some_and(|(_, padded)| padded) && window.is_none_or(|window| keys < window) {
        return None;
    }
    let places = (ops::arange(cx, batch), ops::arange(cx, 1));
    let shifted = |n| {
        let positions = ops::arange(cx, n);
        ops::pointwise(Pointwise::AddTensor, &positions, &[], &[n], DType::Int64)
    };
    let indices = (shifted(queries), shifted(keys));
    let square = [1, 1, queries, keys];
    let anything = || ops::pointwise(Pointwise::GeScalar, &indices.0, &[], &[1, 1, queries, 1], DType::Bool);
    let near = || {
        // abs(q_idx - kv_idx) <= sliding_window
        let mut distance = ops::pointwise(Pointwise::SubTensor, &indices.0, &[&indices.1], &square, DType::Int64);
        distance = ops::pointwise(Pointwise::Abs, &distance, &[], &square, DType::Int64);
        ops::pointwise(Pointwise::LeScalar, &distance, &[], &square, DType::Bool)
    };
    let pattern = || if window.is_some() { and_masks(cx, queries, &[&near, &anything]) } else { anything() };
    let columns = || ops::picked(cx, &[batch, 1, 1, keys], DType::Bool);
    let allowed = if padding.is_some() { and_masks(cx, queries, &[&pattern, &columns]) } else { pattern() };
    drop((places, indices));
    let allowed = ops::expand(&allowed, &[batch, 1, queries, keys]);
    let mask = match attention {
        Attention::Sdpa => allowed,
        Attention::Eager => additive(&allowed, dtype),
    };
    drop(padding);
    Some(mask)
}
