//! What `generate` makes before its loop over tokens.

use std::rc::Rc;

use plimsoll_catalog::software::rules;

use super::{Encode, Generate, Kept};
use crate::Batch;
use crate::ops::{self, Fill, Pointwise, Rearrangement, Reduction};
use crate::tensor::{Context, DType, Tensor};

/// What the loop begins with.
#[derive(Debug)]
pub struct Begin {
    /// `input_ids`: the prompt, or the token a decoder starts with.
    pub ids: Tensor,
    /// `model_kwargs["attention_mask"]`.
    pub mask: Option<Tensor>,
    /// `model_kwargs["position_ids"]`.
    pub positions: Option<Tensor>,
    /// `model_kwargs["encoder_outputs"]`.
    pub encoded: Option<Tensor>,
    /// What the names of `generate` hold besides, to its end.
    pub held: Vec<Tensor>,
}

/// Everything up to the loop, the encoder's forward included.
pub fn begin(cx: &Rc<Context>, model: &dyn Generate, batch: &Batch, kept: &mut Kept) -> Begin {
    let (inputs, mask) = (batch.inputs(), batch.mask());
    let begin = match model.encoder() {
        None => prompt(cx, inputs, mask, model, kept),
        Some(encoder) if encoder.is_whisper() => return whisper(cx, encoder, inputs),
        Some(encoder) => encoder_decoder(cx, encoder, inputs, mask),
    };
    // `_get_logits_processor`
    if cx.machine().rules.has(&rules::PROMPT_IS_ASKED_FOR_DUMMIES) {
        ask(inputs, Pointwise::LtScalar, Reduction::Any);
    }
    begin
}

/// `op(x).any()` or `.all()`, whose answer goes to the host.
fn ask(x: &Tensor, op: Pointwise, over: Reduction) {
    let each = ops::each(op, x, DType::Bool);
    drop(ops::reduction(over, &each, &[], DType::Bool));
}

/// A causal decoder goes on with its prompt. A mask that is not given is made of ones, of which positions are counted; since
/// [`rules::FULL_MASKS_DROPPED`] it goes then.
fn prompt(cx: &Rc<Context>, prompt: &Tensor, given: Option<&Tensor>, model: &dyn Generate, kept: &mut Kept) -> Begin {
    let mask = match given {
        Some(mask) => mask.clone(),
        None => ops::fill(cx, Fill::Ones, prompt.dims(), DType::Int64),
    };
    let (prompt, mask) = (&repeated(prompt), repeated(&mask));
    let first = cx.machine().rules.has(&rules::POSITIONS_BEFORE_LOOP) && model.takes_positions();
    let mut positions = first.then(|| positions(&mask));
    if let (Some(text), axes @ 2..) = (&positions, model.position_axes()) {
        // `self.model.rope_deltas`.
        let deltas = ops::fill(cx, Fill::Zeros, &[mask.size(0), 1], DType::Int64);
        drop(kept.0.replace(deltas));
        let sizes = [axes, text.size(0), text.size(1)];
        positions = Some(ops::rearrangement(cx, Rearrangement::Cat, &sizes, DType::Int64));
    }
    let mut mask = Some(mask);
    if cx.machine().rules.has(&rules::FULL_MASKS_DROPPED) {
        mask.iter().for_each(|mask| ask(mask, Pointwise::EqScalar, Reduction::All));
        // Who gives one hides something.
        mask = mask.filter(|_| given.is_some());
    }
    let held = mask.iter().chain(&positions).cloned().collect();
    Begin { ids: prompt.clone(), mask, positions, encoded: None, held }
}

/// `repeat_interleave(1, dim=0)`, before [`rules::EXPANDS_NOTHING_ONCE`]; since then `x` itself.
fn repeated(x: &Tensor) -> Tensor {
    if x.cx().machine().rules.has(&rules::EXPANDS_NOTHING_ONCE) {
        return x.clone();
    }
    ops::rearrangement(x.cx(), Rearrangement::Clone, x.dims(), x.dtype())
}

/// `_prepare_position_ids_for_generation`.
fn positions(mask: &Tensor) -> Tensor {
    let cumsum = ops::reduction(Reduction::Cumsum, mask, mask.dims(), DType::Int64);
    let positions = ops::pointwise(Pointwise::SubTensor, &cumsum, &[], mask.dims(), DType::Int64);
    drop(cumsum);
    let zeros = ops::each(Pointwise::EqScalar, mask, DType::Bool);
    ops::pointwise(Pointwise::MaskedFillScalar, &positions, &[&zeros], mask.dims(), DType::Int64)
}

/// An encoder-decoder reads its inputs once, and its text begins with one token. A mask that is not given was made of ones
/// before [`rules::POSITIONS_BEFORE_LOOP`]; the decoder has none.
fn encoder_decoder(cx: &Rc<Context>, encoder: &dyn Encode, inputs: &Tensor, mask: Option<&Tensor>) -> Begin {
    let start = start_token(cx);
    let older = !cx.machine().rules.has(&rules::POSITIONS_BEFORE_LOOP);
    let made = (older && mask.is_none()).then(|| ops::fill(cx, Fill::Ones, inputs.dims(), DType::Int64));
    let mask = mask.cloned().or(made);
    let encoded = encoder.encode(inputs, mask.as_ref());
    let ids = repeated(&start_tokens(cx, inputs.size(0)));
    let mask = mask.as_ref().map(repeated);
    let encoded = repeated(&encoded);
    let held = [start, ids.clone()].into_iter().chain(mask.clone()).collect();
    Begin { ids, mask, positions: None, encoded: Some(encoded), held }
}

/// `WhisperGenerationMixin.generate` of one segment: it hands the common `generate` a copy of the features and the tokens to
/// begin with, which is the start token alone, and holds what it made them of.
fn whisper(cx: &Rc<Context>, encoder: &dyn Encode, features: &Tensor) -> Begin {
    let size = features.size(0);
    let init_tokens = ops::fill(cx, Fill::ToCopy, &[size, 1], DType::Int64);
    // `_get_input_segment`
    let segment_input = ops::rearrangement(cx, Rearrangement::Cat, features.dims(), features.dtype());
    let ids = {
        let _batch_idx_map = ops::fill(cx, Fill::ToCopy, &[size], DType::Int64);
        ops::rearrangement(cx, Rearrangement::IndexTensor, &[size, 1], DType::Int64)
    };
    let start = start_token(cx);
    // One that nobody looks at.
    let older = !cx.machine().rules.has(&rules::POSITIONS_BEFORE_LOOP);
    let mask = older.then(|| ops::fill(cx, Fill::Ones, &[size, features.size(1)], DType::Int64));
    let encoded = encoder.encode(&segment_input, None);
    // Made although the tokens to begin with are given.
    drop(start_tokens(cx, size));
    let mask = mask.as_ref().map(repeated);
    let held = [init_tokens, segment_input, start, ids.clone()].into_iter().chain(mask).collect();
    Begin { ids, mask: None, positions: None, encoded: Some(encoded), held }
}

/// `_decoder_start_token_tensor`, which the generation config holds (`_prepare_special_tokens`).
fn start_token(cx: &Rc<Context>) -> Tensor {
    ops::fill(cx, Fill::ToCopy, &[], DType::Int64)
}

/// `decoder_start_token_id` of every sample (`_prepare_decoder_input_ids_for_generation`).
fn start_tokens(cx: &Rc<Context>, size: u64) -> Tensor {
    let ones = ops::fill(cx, Fill::Ones, &[size, 1], DType::Int64);
    ops::pointwise(Pointwise::MulTensor, &ones, &[], &[size, 1], DType::Int64)
}
