//! The mask that hides padding only (`create_bidirectional_mask` in `masking_utils.py`).

use super::mask::{additive, and_masks};
use crate::ops;
use crate::scenario::Attention;
use crate::tensor::{DType, Tensor};

/// `create_bidirectional_mask`: for the queries of `embeds` and the keys that `mask` (`[batch, keys]`, and whether
/// anything in it is padded) is about. `None` where every key may be seen. An additive mask has `dtype`.
pub fn bidirectional_mask(
    embeds: &Tensor,
    mask: Option<(&Tensor, bool)>,
    dtype: DType,
    attention: Attention,
) -> Option<Tensor> {
    let (mask, padded) = mask?;
    let cx = embeds.cx();
    let (batch, queries, keys) = (embeds.size(0), embeds.size(1), mask.size(1));
    let padding = ops::to(mask, DType::Bool);
    drop(ops::fresh(cx, "all", &[], DType::Bool));
    if !padded {
        return None;
    }
    let places = (ops::arange(cx, batch), ops::arange(cx, 1));
    let shifted = |n| {
        let _positions = ops::arange(cx, n);
        ops::fresh(cx, "add.Tensor", &[n], DType::Int64)
    };
    let indices = (shifted(queries), shifted(keys));
    let anything = || ops::fresh(cx, "ge.Scalar", &[1, 1, queries, 1], DType::Bool);
    let columns = || ops::fresh(cx, "index.Tensor", &[batch, 1, 1, keys], DType::Bool);
    let allowed = and_masks(cx, &[&anything, &columns]);
    drop((places, indices));
    let allowed = ops::expand(&allowed, &[batch, 1, queries, keys]);
    let mask = match attention {
        Attention::Sdpa => allowed,
        Attention::Eager => additive(&allowed, dtype),
    };
    drop(padding);
    Some(mask)
}
