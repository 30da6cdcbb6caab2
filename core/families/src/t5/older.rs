//! What T5's stacks made for themselves before they shared it: masks, and positions that are counted.

use plimsoll_catalog::software::rules;
use plimsoll_scenario::Attention;
use plimsoll_torch::nn::{extended_decoder_mask, inverted, older_causal_mask};
use plimsoll_torch::ops::{self, Fill};
use plimsoll_torch::tensor::{Context, DType, Tensor};

/// Whether positions are counted on the card: `cache_position`.
pub(super) fn counts_in_tensors(cx: &Context) -> bool {
    let rules = cx.machine().rules;
    rules.has(&rules::T5_COUNTS_POSITIONS) && !rules.has(&rules::T5_ASKS_CACHE)
}

/// The masks of `T5Stack.forward` before it shared them, of the stack itself and of what was encoded, and those of ones that are
/// made where none is given.
pub(super) fn older_masks(
    embeds: &Tensor,
    given: Option<&Tensor>,
    encoded: Option<&Tensor>,
) -> ([Option<Tensor>; 2], [Option<Tensor>; 2]) {
    let (cx, dtype) = (embeds.cx(), embeds.dtype());
    let ones = |sizes: [u64; 2], dtype| ops::fill(cx, Fill::Ones, &sizes, dtype);
    let made = |of: &Tensor, dtype| given.is_none().then(|| ones([of.size(0), of.size(1)], dtype));
    let numbers = |made: &Option<Tensor>, dtype| given.or(made.as_ref()).map(|mask| inverted(mask, dtype));
    let Some(encoded) = encoded else {
        let made = made(embeds, DType::Float32);
        return ([numbers(&made, dtype), None], [made, None]);
    };
    let own = ones([embeds.size(0), cx.seen(embeds.size(1), false).keys], DType::Float32);
    let causal = if cx.machine().rules.has(&rules::T5_COUNTS_POSITIONS) {
        older_causal_mask(embeds, Some((&own, false)), Attention::Eager)
    } else {
        Some(extended_decoder_mask(&own, embeds.size(1), dtype))
    };
    let made = made(encoded, DType::Int64);
    ([causal, numbers(&made, encoded.dtype())], [Some(own), made])
}
