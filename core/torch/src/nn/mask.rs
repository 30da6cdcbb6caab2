//! Attention masks as transformers makes them since 4.53 (`masking_utils.py`).

use std::rc::Rc;

use plimsoll_catalog::software::rules;
use plimsoll_scenario::Attention;

use super::chunked_mask::{left_padding, same_chunk};
use super::older_mask::{older_causal_mask, older_falcon_mask, older_windowed_mask};
use crate::ops::{self, Fill, Pointwise, Rearrangement, Reduction};
use crate::tensor::{Context, DType, Geometry, Seen, Tensor};

/// `create_causal_mask`, which looks for packed sequences where it is handed positions. `mask` is the given `[batch, seq]` mask and whether anything in it is padded; `None` comes back
/// where attention may rely on its own `is_causal`.
pub fn causal_mask<'p>(
    embeds: &Tensor,
    mask: Option<(&Tensor, bool)>,
    position_ids: impl Into<Option<&'p Tensor>>,
    attention: Attention,
) -> Option<Tensor> {
    let cx = embeds.cx();
    if !cx.machine().rules.has(&rules::BOOLEAN_MASKS) {
        return older_causal_mask(embeds, mask, attention);
    }
    create(embeds, mask, position_ids.into(), attention, Skip::Allowed, None)
}

/// So, of the models that made their masks by themselves until the last ([`rules::LAST_DECODERS_SHARE_MASK`]).
pub fn late_causal_mask<'p>(
    embeds: &Tensor,
    mask: Option<(&Tensor, bool)>,
    position_ids: impl Into<Option<&'p Tensor>>,
    attention: Attention,
) -> Option<Tensor> {
    if !embeds.cx().machine().rules.has(&rules::LAST_DECODERS_SHARE_MASK) {
        return older_causal_mask(embeds, mask, attention);
    }
    create(embeds, mask, position_ids.into(), attention, Skip::Allowed, None)
}

/// So, of GPT-2 ([`rules::GPT2_HAS_BOOLEAN_MASKS`]).
pub fn gpt2_causal_mask(
    embeds: &Tensor,
    mask: Option<(&Tensor, bool)>,
    position_ids: &Tensor,
    attention: Attention,
) -> Option<Tensor> {
    if !embeds.cx().machine().rules.has(&rules::GPT2_HAS_BOOLEAN_MASKS) {
        return older_causal_mask(embeds, mask, attention);
    }
    create(embeds, mask, Some(position_ids), attention, Skip::Allowed, None)
}

/// `create_causal_mask(..., allow_is_causal_skip=False)` without position ids: made even where nothing is padded. Falcon's, which
/// made none there either before all models shared it.
pub fn whole_causal_mask(embeds: &Tensor, mask: Option<(&Tensor, bool)>, attention: Attention) -> Option<Tensor> {
    if !embeds.cx().machine().rules.has(&rules::LAST_DECODERS_SHARE_MASK) {
        return older_falcon_mask(embeds, mask, attention);
    }
    create(embeds, mask, None, attention, Skip::Never, None)
}

/// `create_causal_mask` of an encoder-decoder's decoder, which hands it no position ids.
pub fn decoder_causal_mask(embeds: &Tensor, mask: Option<(&Tensor, bool)>, attention: Attention) -> Option<Tensor> {
    create(embeds, mask, None, attention, Skip::Allowed, None)
}

/// [`causal_mask`] of a model that knows windows and has none.
pub fn windowless_causal_mask(
    embeds: &Tensor,
    mask: Option<(&Tensor, bool)>,
    position_ids: Option<&Tensor>,
    attention: Attention,
) -> Option<Tensor> {
    let rules = embeds.cx().machine().rules;
    if rules.has(&rules::WINDOWED_MASKS_BY_POSITION) && !rules.has(&rules::BOOLEAN_MASKS) {
        return older_windowed_mask(embeds, mask, attention, None);
    }
    causal_mask(embeds, mask, position_ids, attention)
}

/// `create_sliding_window_causal_mask`: never skipped once the sequence is as long as the window.
pub fn sliding_window_causal_mask<'p>(
    embeds: &Tensor,
    mask: Option<(&Tensor, bool)>,
    position_ids: impl Into<Option<&'p Tensor>>,
    attention: Attention,
    window: u64,
) -> Option<Tensor> {
    if !embeds.cx().machine().rules.has(&rules::BOOLEAN_MASKS) {
        return older_windowed_mask(embeds, mask, attention, Some(window));
    }
    create(embeds, mask, position_ids.into(), attention, Skip::Allowed, Some(Local::Window(window)))
}

/// `create_chunked_causal_mask`: tokens look back to where their chunk of `size` begins.
pub fn chunked_causal_mask<'p>(
    embeds: &Tensor,
    mask: Option<(&Tensor, bool)>,
    position_ids: impl Into<Option<&'p Tensor>>,
    attention: Attention,
    size: u64,
) -> Option<Tensor> {
    create(embeds, mask, position_ids.into(), attention, Skip::Allowed, Some(Local::Chunk(size)))
}

/// `create_recurrent_attention_mask`: the given mask itself where anything in it is padded, which is looked for on the card.
pub fn recurrent_mask(embeds: &Tensor, mask: Option<(&Tensor, bool)>) -> Option<Tensor> {
    let (given, padded) = mask?;
    if embeds.size(1) == 1 {
        return None;
    }
    let ones = ops::each(Pointwise::EqScalar, given, DType::Bool);
    let all = ops::reduction(Reduction::All, &ones, &[], DType::Bool);
    drop((ones, all));
    padded.then(|| given.clone())
}

/// How far back a layer looks that does not look at everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Local {
    /// So many tokens.
    Window(u64),
    /// To the last multiple of so many.
    Chunk(u64),
}

impl Local {
    /// `local_size`.
    const fn size(self) -> u64 {
        match self {
            Self::Window(size) | Self::Chunk(size) => size,
        }
    }
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
    local: Option<Local>,
) -> Option<Tensor> {
    let cx = embeds.cx();
    let batch = embeds.size(0);
    let seen = cx.seen(embeds.size(1), local.is_some());
    let seq = embeds.size(1);
    let padding = match mask {
        Some((mask, padded)) => Some((ops::to(mask, DType::Bool), padded)),
        None => {
            if let Some(position_ids) = position_ids.filter(|_| !cx.remembers()) {
                let rules = cx.machine().rules;
                let packed = find_packed_sequence_indices(cx, batch, position_ids);
                if rules.has(&rules::PACKED_MASKS) && !rules.has(&rules::PACKED_IS_ASKED) {
                    let allowed = packed_mask(&packed, seq, local);
                    drop(packed);
                    return Some(match attention {
                        Attention::Sdpa => allowed,
                        Attention::Eager => additive(&allowed, embeds.dtype()),
                    });
                }
            }
            None
        }
    };
    let left =
        matches!(local, Some(Local::Chunk(_))).then(|| left_padding(cx, batch, padding.as_ref().map(|(m, _)| m)));
    let local = local.map(|local| (local, left.as_ref()));
    match attention {
        Attention::Sdpa => sdpa_mask(cx, batch, (seq, seen), padding.as_ref(), skip, local),
        Attention::Eager => {
            let allowed = sdpa_mask(cx, batch, (seq, seen), padding.as_ref(), Skip::Never, local)?;
            Some(additive(&allowed, embeds.dtype()))
        }
    }
}

/// `torch.where(mask, torch.tensor(0.0), min)`: the zero lives on the device, the minimum is a number.
pub fn additive(allowed: &Tensor, dtype: DType) -> Tensor {
    let cx = allowed.cx();
    let zero = ops::fill(cx, Fill::Full, &[], dtype);
    let minimum = ops::fill(cx, Fill::ScalarTensor, &[], dtype);
    ops::pointwise(Pointwise::WhereSelf, allowed, &[&zero, &minimum], allowed.dims(), dtype)
}

/// `find_packed_sequence_indices`: which sequence each token is of, by where positions jump.
fn find_packed_sequence_indices(cx: &Rc<Context>, batch: u64, position_ids: &Tensor) -> Tensor {
    let seq = position_ids.size(-1);
    let first = ops::pointwise(Pointwise::SubTensor, position_ids, &[], &[batch, 1], DType::Int64);
    let prepended = ops::rearrangement(cx, Rearrangement::Cat, &[batch, seq + 1], DType::Int64);
    let difference = ops::pointwise(Pointwise::SubTensor, &prepended, &[position_ids], &[batch, seq], DType::Int64);
    drop(prepended);
    let jumps = ops::pointwise(Pointwise::NeScalar, &difference, &[], &[batch, seq], DType::Bool);
    let packed = ops::reduction(Reduction::Cumsum, &jumps, &[batch, seq], DType::Int64);
    drop(jumps);
    if cx.machine().rules.has(&rules::PACKED_IS_ASKED) {
        // (packed_sequence_mask[:, -1] == 0).all()
        let equal = ops::pointwise(Pointwise::EqScalar, &packed, &[], &[batch], DType::Bool);
        drop((ops::reduction(Reduction::All, &equal, &[], DType::Bool), equal));
    }
    drop((first, difference));
    packed
}

/// `and_masks(mask_function, packed_sequence_mask_function(packed))`, a boolean `[batch, 1, seq, seq]`, as transformers made
/// it of whatever was given no mask until it asked.
fn packed_mask(packed: &Tensor, seq: u64, local: Option<Local>) -> Tensor {
    let (cx, batch) = (packed.cx(), packed.size(0));
    let keys = ops::arange(cx, seq);
    let (batches, heads) = (ops::arange(cx, batch), ops::arange(cx, 1));
    let square = [1, 1, seq, seq];
    let causal = || ops::pointwise(Pointwise::LeTensor, &keys, &[&keys], &square, DType::Bool);
    let recent = || {
        let bound = ops::pointwise(Pointwise::SubTensor, &keys, &[], &[1, 1, seq, 1], DType::Int64);
        ops::pointwise(Pointwise::GtTensor, &keys, &[&bound], &square, DType::Bool)
    };
    let windowed = || and_masks(cx, seq, &[&recent, &causal]);
    // `packed[batch_idx, index]`: both indices are written out.
    let of_each = |sizes: [u64; 4]| {
        let index = || ops::rearrangement(cx, Rearrangement::IndexTensor, &sizes, DType::Int64);
        let indices = [index(), index()];
        let out = index();
        drop(indices);
        out
    };
    let same = || {
        let (queries, keys) = (of_each([batch, 1, seq, 1]), of_each([batch, 1, 1, seq]));
        ops::pointwise(Pointwise::EqTensor, &queries, &[&keys], &[batch, 1, seq, seq], DType::Bool)
    };
    let pattern: &dyn Fn() -> Tensor = if local.is_some() { &windowed } else { &causal };
    let allowed = and_masks(cx, seq, &[pattern, &same]);
    drop((keys, batches, heads));
    allowed
}

/// `fast_all(mask)`, a sum and a comparison; `mask.all()` before [`rules::PADDING_IS_SUMMED`].
fn fast_all(mask: &Tensor) {
    if !mask.cx().machine().rules.has(&rules::PADDING_IS_SUMMED) {
        drop(ops::reduction(Reduction::All, mask, &[], DType::Bool));
        return;
    }
    let sum = ops::reduction(Reduction::Sum, mask, &[], DType::Int64);
    drop((ops::pointwise(Pointwise::EqScalar, &sum, &[], &[], DType::Bool), sum));
}

/// `and_masks`: the functions' results folded into a scalar `True`, one after the other. Mapped over, it is one for each of the
/// `queries`.
pub(super) fn and_masks(cx: &Rc<Context>, queries: u64, masks: &[&dyn Fn() -> Tensor]) -> Tensor {
    let mapped = [1, 1, queries, 1];
    let sizes: &[u64] = if cx.machine().rules.has(&rules::MASKS_BROADCAST) { &[] } else { &mapped };
    let mut result = ops::fill(cx, Fill::NewOnes, sizes, DType::Bool);
    for mask in masks {
        let mask = mask();
        let (dims, rank) = Geometry::broadcast_dims(result.geometry(), mask.geometry());
        let both = ops::pointwise(Pointwise::BitwiseAndTensor, &result, &[&mask], &dims[..rank], DType::Bool);
        // The operand without a name goes before the name is given anew.
        drop(mask);
        result = both;
    }
    result
}

/// `_ignore_causal_mask_sdpa`: whether attention may rely on its own `is_causal`.
fn skips_causal(
    cx: &Rc<Context>,
    batch: u64,
    (queries, seen): (u64, Seen),
    padding: Option<&(Tensor, bool)>,
    local: Option<Local>,
) -> bool {
    let keys = seen.keys;
    // The columns of the keys that are left.
    let _columns = padding.filter(|(mask, _)| mask.size(-1) > keys).map(|_| {
        let indices = {
            let positions = ops::arange(cx, keys);
            ops::each(Pointwise::AddTensor, &positions, DType::Int64)
        };
        let columns = ops::rearrangement(cx, Rearrangement::IndexTensor, &[batch, keys], DType::Bool);
        (indices, columns)
    });
    if local.is_some_and(|local| keys >= local.size()) {
        return false;
    }
    let padded = padding.is_some_and(|(_, padded)| *padded);
    if queries == 1 || queries == keys {
        if let Some((mask, _)) = padding {
            fast_all(mask);
        }
        if !padded {
            return true;
        }
    }
    let again = seen.query_offset == 0 && padded && cx.machine().rules.has(&rules::PADDING_IS_SUMMED);
    if let Some((mask, _)) = padding.filter(|_| again) {
        // Once more on the first q_length columns, before it gives up.
        fast_all(mask);
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
    local: Option<(Local, Option<&Tensor>)>,
) -> Option<Tensor> {
    if skip == Skip::Allowed && skips_causal(cx, batch, (queries, seen), padding, local.map(|(local, _)| local)) {
        return None;
    }
    let (broadcast, counts) = {
        let rules = cx.machine().rules;
        (rules.has(&rules::MASKS_BROADCAST), rules.has(&rules::MASKS_COUNT_QUERIES))
    };
    let keys = seen.keys;
    // Mapped over are the model's own positions, and keys that were counted first and shifted in their place.
    let mapped = (!broadcast).then(|| ops::arange(cx, keys));
    let batches = ops::arange(cx, batch);
    let heads = ops::arange(cx, 1);
    let shifted = |length| {
        let positions = ops::arange(cx, length);
        let out = ops::pointwise(Pointwise::AddTensor, &positions, &[], &[length], DType::Int64);
        drop(positions);
        out
    };
    let (query_indices, key_indices) = match mapped {
        Some(keys) => (keys.clone(), keys),
        None if counts => (shifted(queries), shifted(keys)),
        // The model's own positions are there anyway: any handle stands for them.
        None => {
            let keys = shifted(keys);
            (keys.clone(), keys)
        }
    };
    let square = [1, 1, queries, keys];
    let causal = || ops::pointwise(Pointwise::LeTensor, &key_indices, &[&query_indices], &square, DType::Bool);
    let recent = || {
        // kv_idx > q_idx - sliding_window
        let bound = ops::pointwise(Pointwise::SubTensor, &query_indices, &[], &[1, 1, queries, 1], DType::Int64);
        let out = ops::pointwise(Pointwise::GtTensor, &key_indices, &[&bound], &square, DType::Bool);
        drop(bound);
        out
    };
    let pattern = || match local {
        None => causal(),
        Some((_, None)) => and_masks(cx, queries, &[&recent, &causal]),
        Some((_, Some(left))) => and_masks(cx, queries, &[&|| same_chunk(&query_indices, &key_indices, left), &causal]),
    };
    let columns = || ops::picked(cx, &[batch, 1, 1, keys], DType::Bool);
    let allowed = if padding.is_some() { and_masks(cx, queries, &[&pattern, &columns]) } else { pattern() };
    drop((batches, heads, query_indices, key_indices));
    // Expanded to the batch without a copy.
    Some(ops::expand(&allowed, &[batch, 1, queries, keys]))
}
