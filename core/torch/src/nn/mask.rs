//! Attention masks as transformers 5 makes them (`masking_utils.py`).

use std::rc::Rc;

use plimsoll_scenario::Attention;

use crate::Op;
use crate::ops;
use crate::tensor::{Context, DType, Geometry, Seen, Tensor};

/// `create_causal_mask`. `mask` is the given `[batch, seq]` mask and whether anything in it is padded; `None` comes back
/// where attention may rely on its own `is_causal`.
pub fn causal_mask(
    embeds: &Tensor,
    mask: Option<(&Tensor, bool)>,
    position_ids: &Tensor,
    attention: Attention,
) -> Option<Tensor> {
    create(embeds, mask, Some(position_ids), attention, Skip::Allowed, None)
}

/// `create_causal_mask(..., allow_is_causal_skip=False)` without position ids: made even where nothing is padded.
pub fn whole_causal_mask(embeds: &Tensor, mask: Option<(&Tensor, bool)>, attention: Attention) -> Option<Tensor> {
    create(embeds, mask, None, attention, Skip::Never, None)
}

/// `create_causal_mask` of an encoder-decoder's decoder, which hands it no position ids.
pub fn decoder_causal_mask(embeds: &Tensor, mask: Option<(&Tensor, bool)>, attention: Attention) -> Option<Tensor> {
    create(embeds, mask, None, attention, Skip::Allowed, None)
}

/// `create_sliding_window_causal_mask`: never skipped once the sequence is as long as the window.
pub fn sliding_window_causal_mask(
    embeds: &Tensor,
    mask: Option<(&Tensor, bool)>,
    position_ids: &Tensor,
    attention: Attention,
    window: u64,
) -> Option<Tensor> {
    create(embeds, mask, Some(position_ids), attention, Skip::Allowed, Some(window))
}

/// Whether sdpa may do without a mask and say `is_causal` instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Skip {
    Allowed,
    Never,
}

fn create(
    embeds: &Tensor,
    mask: Option<(&Tensor, bool)>,
    position_ids: Option<&Tensor>,
    attention: Attention,
    skip: Skip,
    window: Option<u64>,
) -> Option<Tensor> {
    let cx = embeds.cx();
    let batch = embeds.size(0);
    let seen = cx.seen(embeds.size(1), window.is_some());
    let seq = embeds.size(1);
    let padding = match mask {
        Some((mask, padded)) => Some((ops::to(mask, DType::Bool), padded)),
        None => {
            if let Some(position_ids) = position_ids.filter(|_| !cx.remembers()) {
                find_packed_sequence_indices(cx, batch, position_ids);
            }
            None
        }
    };
    match attention {
        Attention::Sdpa => sdpa_mask(cx, batch, (seq, seen), padding.as_ref(), skip, window),
        Attention::Eager => {
            let allowed = sdpa_mask(cx, batch, (seq, seen), padding.as_ref(), Skip::Never, window)?;
            Some(additive(&allowed, embeds.dtype()))
        }
    }
}

/// `torch.where(mask, torch.tensor(0.0), min)`: the zero lives on the device, the minimum is a number.
pub fn additive(allowed: &Tensor, dtype: DType) -> Tensor {
    let cx = allowed.cx();
    let _zero = ops::fresh(cx, Op::Full, &[], dtype);
    let _minimum = ops::fresh(cx, Op::ScalarTensor, &[], dtype);
    ops::fresh(cx, Op::WhereSelf, allowed.dims(), dtype)
}

/// `find_packed_sequence_indices`: whether positions ever jump; ends in a look at the device and nothing is kept.
fn find_packed_sequence_indices(cx: &Rc<Context>, batch: u64, position_ids: &Tensor) {
    let seq = position_ids.size(-1);
    let first = ops::fresh(cx, Op::SubTensor, &[batch, 1], DType::Int64);
    let prepended = ops::fresh(cx, Op::Cat, &[batch, seq + 1], DType::Int64);
    let difference = ops::fresh(cx, Op::SubTensor, &[batch, seq], DType::Int64);
    drop(prepended);
    let jumps = ops::fresh(cx, Op::NeScalar, &[batch, seq], DType::Bool);
    let packed = ops::fresh(cx, Op::Cumsum, &[batch, seq], DType::Int64);
    drop(ops::inside::Scratch::converted(cx, Op::Cumsum, &[batch, seq], DType::Int64));
    drop(jumps);
    let equal = ops::fresh(cx, Op::EqScalar, &[batch], DType::Bool);
    drop((ops::fresh(cx, Op::All, &[], DType::Bool), equal));
    drop((first, difference, packed));
}

/// `fast_all(mask)`: a sum and a comparison.
fn fast_all(cx: &Rc<Context>) {
    let sum = ops::fresh(cx, Op::Sum, &[], DType::Int64);
    drop((ops::fresh(cx, Op::EqScalar, &[], DType::Bool), sum));
}

/// `and_masks`: the functions' results folded into a scalar `True`, one after the other.
pub(super) fn and_masks(cx: &Rc<Context>, masks: &[&dyn Fn() -> Tensor]) -> Tensor {
    let mut result = ops::fresh(cx, Op::NewOnes, &[], DType::Bool);
    for mask in masks {
        let mask = mask();
        let (dims, rank) = Geometry::broadcast_dims(result.geometry(), mask.geometry());
        result = ops::fresh(cx, Op::BitwiseAndTensor, &dims[..rank], DType::Bool);
    }
    result
}

/// `_ignore_causal_mask_sdpa`: whether attention may rely on its own `is_causal`.
fn skips_causal(
    cx: &Rc<Context>,
    batch: u64,
    (queries, seen): (u64, Seen),
    padding: Option<&(Tensor, bool)>,
    window: Option<u64>,
) -> bool {
    let keys = seen.keys;
    let fresh = |op, sizes: &[u64], dtype| ops::fresh(cx, op, sizes, dtype);
    // The columns of the keys that are left.
    let _columns = padding.filter(|(mask, _)| mask.size(-1) > keys).map(|_| {
        let indices = {
            let _positions = ops::arange(cx, keys);
            fresh(Op::AddTensor, &[keys], DType::Int64)
        };
        let columns = fresh(Op::IndexTensor, &[batch, keys], DType::Bool);
        (indices, columns)
    });
    if window.is_some_and(|w| keys >= w) {
        return false;
    }
    let padded = padding.is_some_and(|(_, padded)| *padded);
    if queries == 1 || queries == keys {
        if padding.is_some() {
            fast_all(cx);
        }
        if !padded {
            return true;
        }
    }
    if seen.query_offset == 0 && padded {
        // Once more on the first q_length columns, before it gives up.
        fast_all(cx);
    }
    false
}

/// `sdpa_mask`: a boolean `[batch or 1, 1, queries, keys]`, or nothing where `is_causal` says it all.
fn sdpa_mask(
    cx: &Rc<Context>,
    batch: u64,
    (queries, seen): (u64, Seen),
    padding: Option<&(Tensor, bool)>,
    skip: Skip,
    window: Option<u64>,
) -> Option<Tensor> {
    if skip == Skip::Allowed && skips_causal(cx, batch, (queries, seen), padding, window) {
        return None;
    }
    let batches = ops::arange(cx, batch);
    let heads = ops::arange(cx, 1);
    let shifted = |length| {
        let positions = ops::arange(cx, length);
        let out = ops::fresh(cx, Op::AddTensor, &[length], DType::Int64);
        drop(positions);
        out
    };
    let keys = seen.keys;
    let (query_indices, key_indices) = (shifted(queries), shifted(keys));
    let square = [1, 1, queries, keys];
    let causal = || ops::fresh(cx, Op::LeTensor, &square, DType::Bool);
    let recent = || {
        // kv_idx > q_idx - sliding_window
        let bound = ops::fresh(cx, Op::SubTensor, &[1, 1, queries, 1], DType::Int64);
        let out = ops::fresh(cx, Op::GtTensor, &square, DType::Bool);
        drop(bound);
        out
    };
    let pattern = || if window.is_some() { and_masks(cx, &[&recent, &causal]) } else { causal() };
    let columns = || ops::fresh(cx, Op::IndexTensor, &[batch, 1, 1, keys], DType::Bool);
    let allowed = if padding.is_some() { and_masks(cx, &[&pattern, &columns]) } else { pattern() };
    drop((batches, heads, query_indices, key_indices));
    // Expanded to the batch without a copy.
    Some(ops::expand(&allowed, &[batch, 1, queries, keys]))
}
