//! Causal masks as transformers made them before `masking_utils.py`: numbers that are added to the scores, made once for all
//! layers, with the dtype's minimum where nothing may be seen. Read in 4.51.3.

use plimsoll_catalog::software::rules;
use plimsoll_scenario::Attention;

use crate::ops::{self, Fill, Pointwise, Rearrangement, Reduction};
use crate::tensor::{DType, Tensor};

/// `LlamaModel._update_causal_mask`, which most models copied. `mask` is the given `[batch, seq]` mask and whether anything in
/// it is padded; `None` comes back where attention may rely on its own `is_causal`.
pub fn older_causal_mask(embeds: &Tensor, mask: Option<(&Tensor, bool)>, attention: Attention) -> Option<Tensor> {
    // Without a mask there is one column more, which attention cuts off.
    older_mask_with(embeds, mask, attention, 1)
}

/// `FalconModel._update_causal_mask`, which has no column more.
pub fn older_falcon_mask(embeds: &Tensor, mask: Option<(&Tensor, bool)>, attention: Attention) -> Option<Tensor> {
    older_mask_with(embeds, mask, attention, 0)
}

/// With so many columns more where no mask is given.
fn older_mask_with(embeds: &Tensor, mask: Option<(&Tensor, bool)>, attention: Attention, more: u64) -> Option<Tensor> {
    if attention == Attention::Sdpa && skipped(mask) {
        return None;
    }
    let (batch, seq) = (embeds.size(0), embeds.size(1));
    let keys = embeds.cx().seen(seq, false).keys;
    let columns = if mask.is_some() { keys } else { keys + more };
    combined(upper(embeds, columns), mask, [batch, 1, seq, columns], attention)
}

/// `Gemma2Model._update_causal_mask`, which Gemma 3 copied: made whatever is given, for its caches are as long as they can become.
pub fn older_hybrid_mask(embeds: &Tensor, mask: Option<(&Tensor, bool)>) -> Option<Tensor> {
    let (batch, seq) = (embeds.size(0), embeds.size(1));
    let keys = embeds.cx().seen(seq, false).keys;
    // What sees nothing stays so.
    combined(upper(embeds, keys), mask, [batch, 1, seq, keys], Attention::Eager)
}

/// What each of their layers that look through a window makes of it (`is_sliding` in `Gemma2DecoderLayer.forward`), and what it holds
/// besides until its forward returns.
pub fn older_hybrid_window(mask: &Tensor, window: u64) -> (Tensor, Vec<Tensor>) {
    let outside = {
        let ones = ops::fill(mask.cx(), Fill::OnesLike, mask.dims(), DType::Bool);
        ops::each(Pointwise::Tril, &ones, DType::Bool)
    };
    let windowed = ops::where_scalar(&outside, mask);
    let cx = mask.cx();
    if !cx.machine().rules.has(&rules::WINDOWS_INDEXED) {
        return (windowed, vec![outside]);
    }
    let offset = {
        let last = {
            let before = ops::fill(cx, Fill::ToCopy, &[], DType::Int64);
            ops::each(Pointwise::AddTensor, &before, DType::Int64)
        };
        ops::each(Pointwise::Clamp, &last, DType::Int64)
    };
    let columns = ops::arange(cx, mask.size(2).max(window).min(mask.size(3)));
    let sizes = [mask.size(0), mask.size(1), mask.size(2), columns.numel()];
    let picked = ops::rearrangement(cx, Rearrangement::IndexTensor, &sizes, mask.dtype());
    drop(windowed);
    (picked, vec![outside, columns, offset])
}

/// The minimum above the diagonal.
fn upper(embeds: &Tensor, columns: u64) -> Tensor {
    let (cx, seq, dtype) = (embeds.cx(), embeds.size(1), embeds.dtype());
    let full = ops::fill(cx, Fill::Full, &[seq, columns], dtype);
    let upper = if seq > 1 { ops::each(Pointwise::Triu, &full, dtype) } else { full.clone() };
    drop(full);
    drop(beyond(embeds, columns));
    upper
}

/// `MistralModel._update_causal_mask`: by positions, without a triangle, and by those of the window where there is one.
pub fn older_windowed_mask(
    embeds: &Tensor,
    mask: Option<(&Tensor, bool)>,
    attention: Attention,
    window: Option<u64>,
) -> Option<Tensor> {
    let (cx, dtype) = (embeds.cx(), embeds.dtype());
    let (batch, seq) = (embeds.size(0), embeds.size(1));
    let keys = cx.seen(seq, false).keys;
    // Nothing is looked for where the window is shorter.
    if attention == Attention::Sdpa && window.is_none_or(|window| keys < window) && skipped(mask) {
        return None;
    }
    let columns = if mask.is_some() { keys } else { keys + 1 };
    let full = ops::fill(cx, Fill::Full, &[seq, columns], dtype);
    let beyond = beyond(embeds, columns);
    let before = window.map(|_| {
        let positions = ops::arange(cx, columns);
        let first = ops::pointwise(Pointwise::SubTensor, &positions, &[], &[seq, 1], DType::Int64);
        ops::pointwise(Pointwise::LeTensor, &positions, &[&first], &[seq, columns], DType::Bool)
    });
    let causal = combined(full, mask, [batch, 1, seq, columns], attention);
    drop((beyond, before));
    causal
}

/// `torch.arange(target_length) > cache_position.reshape(-1, 1)`.
fn beyond(embeds: &Tensor, columns: u64) -> Tensor {
    let positions = ops::arange(embeds.cx(), columns);
    ops::pointwise(Pointwise::GtTensor, &positions, &[], &[embeds.size(1), columns], DType::Bool)
}

/// What is causal, of every sample, and where padding is hidden a copy.
fn combined(causal: Tensor, mask: Option<(&Tensor, bool)>, sizes: [u64; 4], attention: Attention) -> Option<Tensor> {
    let dtype = causal.dtype();
    let view = ops::unsqueeze(&ops::unsqueeze(&causal, 0), 0);
    drop(causal);
    let Some((given, _)) = mask else { return Some(ops::expand(&view, &sizes)) };
    let copy = ops::rearrangement(view.cx(), Rearrangement::Clone, &sizes, dtype);
    drop(view);
    {
        let hidden = {
            let sum = ops::pointwise(Pointwise::AddTensor, &copy, &[given], &sizes, dtype.promote(given.dtype()));
            ops::each(Pointwise::EqScalar, &sum, DType::Bool)
        };
        // Written into its place.
        drop(ops::pointwise(Pointwise::MaskedFillScalar, &copy, &[&hidden], &sizes, dtype));
    }
    Some(if attention == Attention::Sdpa { unmask_unattended(copy) } else { copy })
}

/// `_prepare_4d_causal_attention_mask_for_sdpa`, which GPT-2 called. Its eager attention has the causal part in its layers, and
/// here what hides padding, `[batch, 1, 1, seq]`.
pub fn two_part_causal_mask(embeds: &Tensor, mask: Option<(&Tensor, bool)>, attention: Attention) -> Option<Tensor> {
    let dtype = embeds.dtype();
    let (batch, seq) = (embeds.size(0), embeds.size(1));
    if attention == Attention::Eager {
        return mask.map(|(given, _)| inverted(given, dtype));
    }
    if skipped(mask) {
        return None;
    }
    let (given, _) = mask?;
    let keys = embeds.cx().seen(seq, false).keys;
    Some(unmask_unattended(both_parts(embeds, given, &[batch, 1, seq, keys])))
}

/// `_prepare_4d_causal_attention_mask`, which eager attention of several models had: made whether a mask was given or not.
pub fn whole_two_part_mask(embeds: &Tensor, mask: Option<(&Tensor, bool)>) -> Option<Tensor> {
    let seq = embeds.size(1);
    let sizes = [embeds.size(0), 1, seq, embeds.cx().seen(seq, false).keys];
    match mask {
        Some((given, _)) => Some(both_parts(embeds, given, &sizes)),
        // A single query sees everything.
        None => (seq > 1).then(|| ops::expand(&causal_part(embeds), &sizes)),
    }
}

/// `AttentionMaskConverter.to_4d`: the causal part, filled where padding hides.
fn both_parts(embeds: &Tensor, given: &Tensor, sizes: &[u64]) -> Tensor {
    let dtype = embeds.dtype();
    if embeds.size(1) == 1 {
        // A single query has no causal part.
        return expanded(given, sizes, dtype);
    }
    let causal = causal_part(embeds);
    let padding = expanded(given, sizes, dtype);
    let hidden = ops::each(Pointwise::ToCopy, &padding, DType::Bool);
    let filled = ops::pointwise(Pointwise::MaskedFillScalar, &causal, &[&hidden], sizes, dtype);
    drop((hidden, padding, causal));
    filled
}

/// `AttentionMaskConverter._make_causal_mask`: `[1, 1, seq, seq]`.
fn causal_part(embeds: &Tensor) -> Tensor {
    let (cx, seq) = (embeds.cx(), embeds.size(1));
    let full = ops::fill(cx, Fill::Full, &[seq, seq], DType::Float32);
    let positions = ops::arange(cx, seq);
    let below = {
        // An argument of the comparison, gone with it.
        let next = ops::each(Pointwise::AddTensor, &positions, DType::Int64);
        ops::pointwise(Pointwise::LtScalar, &positions, &[&next], &[seq, seq], DType::Bool)
    };
    drop((below, positions));
    ops::unsqueeze(&ops::unsqueeze(&ops::to(&full, embeds.dtype()), 0), 0)
}

/// `_prepare_4d_attention_mask` and its variant for scaled_dot_product_attention, of `queries` that look at what `mask` is about.
pub fn older_cross_mask(mask: (&Tensor, bool), queries: u64, dtype: DType, attention: Attention) -> Option<Tensor> {
    if attention == Attention::Sdpa && skipped(Some(mask)) {
        return None;
    }
    let (given, _) = mask;
    Some(expanded(given, &[given.size(0), 1, queries, given.size(1)], dtype))
}

/// `AttentionMaskConverter._expand_mask`: the mask's numbers for every query, turned round.
fn expanded(mask: &Tensor, sizes: &[u64], dtype: DType) -> Tensor {
    // `mask[:, None, None, :].expand(...).to(dtype)`, which is no copy of what has the dtype.
    let expanded = if mask.dtype() == dtype {
        ops::expand(&ops::unsqueeze(&ops::unsqueeze(mask, 1), 1), sizes)
    } else {
        ops::pointwise(Pointwise::ToCopy, mask, &[], sizes, dtype)
    };
    let inverted = ops::each(Pointwise::RsubScalar, &expanded, dtype);
    let hidden = ops::each(Pointwise::ToCopy, &inverted, DType::Bool);
    let filled = ops::pointwise(Pointwise::MaskedFillScalar, &inverted, &[&hidden], sizes, dtype);
    // What the function has names for stays until it returns.
    drop((hidden, expanded, inverted));
    filled
}

/// The mask of BERT and those like it: `_prepare_4d_attention_mask_for_sdpa`, or `get_extended_attention_mask` for eager
/// attention. One that was not given is made of ones. Beside it, the mask that it was made of.
/// `of` are words or what they are embedded in; the mask has `dtype`.
pub fn older_padding_mask(
    of: &Tensor,
    dtype: DType,
    mask: Option<(&Tensor, bool)>,
    attention: Attention,
) -> (Option<Tensor>, Tensor) {
    let cx = of.cx();
    let (batch, seq) = (of.size(0), of.size(1));
    let given = match mask {
        Some((given, _)) => given.clone(),
        None => ops::fill(cx, Fill::Ones, &[batch, seq], DType::Float32),
    };
    if attention == Attention::Eager {
        return (Some(inverted(&given, dtype)), given);
    }
    let padded = mask.is_some_and(|(_, padded)| padded);
    let made = (!skipped(Some((&given, padded)))).then(|| expanded(&given, &[batch, 1, seq, seq], dtype));
    (made, given)
}

/// `get_extended_attention_mask` of a decoder: what is hidden by position, in ones and zeros, times the mask, `[batch, keys]`,
/// turned into numbers that are added.
pub fn extended_decoder_mask(mask: &Tensor, queries: u64, dtype: DType) -> Tensor {
    let cx = mask.cx();
    let (batch, keys) = (mask.size(0), mask.size(1));
    let extended = {
        let positions = ops::arange(cx, queries);
        let sizes = [batch, queries, queries];
        let repeated = ops::rearrangement(cx, Rearrangement::Repeat, &sizes, DType::Int64);
        let seen = ops::pointwise(Pointwise::LeTensor, &repeated, &[&positions], &sizes, DType::Bool);
        drop(repeated);
        let mut causal = ops::each(Pointwise::ToCopy, &seen, mask.dtype());
        drop(seen);
        if queries < keys {
            let before = ops::fill(cx, Fill::Ones, &[batch, queries, keys - queries], mask.dtype());
            causal = ops::cat(&[&before, &causal], 2);
        }
        let extended = ops::pointwise(Pointwise::MulTensor, &causal, &[mask], &[batch, 1, queries, keys], mask.dtype());
        drop((positions, causal));
        extended
    };
    subtracted(ops::to(&extended, dtype), dtype)
}

/// `(1 - numbers) * min`, which takes the numbers' name.
fn subtracted(numbers: Tensor, dtype: DType) -> Tensor {
    let complement = ops::each(Pointwise::RsubScalar, &numbers, dtype);
    let made = ops::each(Pointwise::MulTensor, &complement, dtype);
    drop((complement, numbers));
    made
}

/// `(1 - mask) * min`, a number for each key: `invert_attention_mask`, and what T5's encoder and GPT-2 write out.
pub fn inverted(mask: &Tensor, dtype: DType) -> Tensor {
    let (batch, keys) = (mask.size(0), mask.size(1));
    let row = ops::view(mask, &[batch, 1, 1, keys]);
    subtracted(ops::to(&row, dtype), dtype)
}

/// `AttentionMaskConverter._ignore_causal_mask_sdpa`, outside of generation.
fn skipped(mask: Option<(&Tensor, bool)>) -> bool {
    let Some((mask, padded)) = mask else { return true };
    let ones = ops::each(Pointwise::EqScalar, mask, DType::Bool);
    let all = ops::reduction(Reduction::All, &ones, &[], DType::Bool);
    drop((ones, all));
    !padded
}

/// `_unmask_unattended`: rows that see nothing see everything.
fn unmask_unattended(mask: Tensor) -> Tensor {
    let (batch, queries) = (mask.size(0), mask.size(2));
    let rows = [batch, 1, queries, 1];
    let blind = {
        let least = ops::each(Pointwise::EqScalar, &mask, DType::Bool);
        ops::reduction(Reduction::All, &least, &rows, DType::Bool)
    };
    let seeing = ops::each(Pointwise::BitwiseNot, &blind, DType::Bool);
    drop(blind);
    ops::pointwise(Pointwise::MulTensor, &mask, &[&seeing], mask.dims(), mask.dtype())
}
