//! Generation: `GenerationMixin.generate` of transformers, greedy, with its `DynamicCache` or `EncoderDecoderCache`.

mod begin;
mod older;

use std::rc::Rc;

use plimsoll_catalog::software::rules;

use crate::Batch;
use crate::nn::kv_cache;
use crate::ops::{self, Fill, Pointwise, Rearrangement, Reduction};
use crate::tensor::{Context, DType, Past, Tensor};

/// What one forward of a generation is given.
#[derive(Clone, Copy, Debug)]
pub struct Step<'a> {
    /// `input_ids`: the whole prompt at first, then the latest token.
    pub ids: &'a Tensor,
    /// `attention_mask`: of all tokens so far; of an encoder-decoder, of what the encoder read.
    pub mask: Option<&'a Tensor>,
    /// `position_ids`, where the model takes them.
    pub positions: Option<&'a Tensor>,
    /// `encoder_outputs`: what the encoder made, where there is one.
    encoded: Option<&'a Tensor>,
}

impl<'a> Step<'a> {
    /// What the encoder made, for models that have one.
    pub fn encoded(&self) -> &'a Tensor {
        match self.encoded {
            Some(encoded) => encoded,
            None => unreachable!("an encoder has run before its decoder does"),
        }
    }
}

/// A model that makes text token by token.
pub trait Generate {
    /// The logits of the last position, `[batch, 1, vocabulary]`.
    fn logits(&self, step: Step<'_>) -> Tensor;

    /// Whether its forward takes `position_ids`.
    fn takes_positions(&self) -> bool {
        true
    }

    /// Along how many axes positions count: more than one make a tensor of them all, `[axes, batch, seq]` (M-RoPE).
    fn position_axes(&self) -> u64 {
        1
    }

    /// Whether keys and values are tuples that every forward returns anew, and no cache.
    fn returns_tuples(&self) -> bool {
        false
    }

    /// The encoder whose outputs the text is made of, where there is one.
    fn encoder(&self) -> Option<&dyn Encode> {
        None
    }
}

/// The encoder of a model that makes text.
pub trait Encode {
    /// `encoder(inputs, attention_mask).last_hidden_state`.
    fn encode(&self, inputs: &Tensor, mask: Option<&Tensor>) -> Tensor;

    /// Whether the model has a `generate` of its own around the common one (`WhisperGenerationMixin`).
    fn is_whisper(&self) -> bool {
        false
    }
}

/// Tokens after the prompt's that are always generated one by one.
const FIRST: u64 = 4;

/// Events that are spent on the others. A token of an 8B model takes some 3,000: an answer of 300 tokens fits in here.
const EVENTS: u64 = 1 << 20;

/// The same where many scenarios are asked for ([`Context::skip_more_tokens`]): a short answer, or one of a small model, fits in.
const FEWER_EVENTS: u64 = 1 << 18;

/// Of the tokens `done + 1` to `further`, those that are generated; the others are skipped. The last ones always are,
/// for there a growing cache is largest, and so are those at `turns`; the rest are spread evenly.
///
/// What tensors take is hardly another for it. What the allocator reserves can be, by where its blocks were cut: Pythia 1B in
/// four bits with attention written out, 12 answers of 256 tokens, took 1,962.9 MB of an H200; of 192 of the tokens it is 1,845.5,
/// of all 1,977.6.
fn listed(done: u64, further: u64, events: u64, per_token: u64, turns: &[u64]) -> Vec<u64> {
    const LAST: u64 = 8;
    let most = (events / per_token.max(1)).max(2 * LAST);
    if further - done <= most {
        return (done + 1..=further).collect();
    }
    let spread = most - LAST;
    let even = (1..=spread).map(|i| done + i * (further - done) / spread);
    let mut tokens: Vec<u64> = even.chain(further + 1 - LAST..=further).collect();
    tokens.extend(turns.iter().copied().filter(|turn| (done + 1..=further).contains(turn)));
    tokens.sort_unstable();
    tokens.dedup();
    tokens
}

/// The locals of `_sample`, and what its caller's own names hold beside them.
#[derive(Debug)]
struct Sampler<'a> {
    cx: &'a Rc<Context>,
    /// `input_ids`.
    ids: Tensor,
    /// `model_kwargs["attention_mask"]`.
    mask: Option<Tensor>,
    /// `model_kwargs["cache_position"]`, which versions before [`rules::NO_CACHE_POSITION`] count.
    cache_position: Option<Tensor>,
    /// `model_kwargs["position_ids"]`.
    positions: Option<Tensor>,
    /// Along how many axes they count.
    axes: u64,
    /// `model_kwargs["encoder_outputs"]`. What is generated then has a mask of its own, which nobody gives.
    encoded: Option<Tensor>,
    /// `model_inputs`: ids and positions of the latest forward.
    inputs: Vec<Tensor>,
    /// `next_token_logits`, and `next_token_scores`, which is the same tensor.
    scores: Option<Tensor>,
    /// `next_tokens`.
    tokens: Option<Tensor>,
    /// `unfinished_sequences`.
    unfinished: Tensor,
    /// `this_peer_finished`, while it is the tensor itself that was asked.
    finished: Option<Tensor>,
    /// What the names of `generate` hold to its end.
    _held: Vec<Tensor>,
}

/// What a generation came to.
#[derive(Debug)]
pub struct Generated {
    /// The prompts and what was made of them: what `generate` returns.
    pub ids: Tensor,
    /// Whether the model put anything into the cache.
    pub remembers: bool,
    /// Whether every token was executed, and few enough for another generation of as many.
    pub repeatable: bool,
}

/// What a model holds from one `generate` to the next.
#[derive(Debug, Default)]
pub struct Kept(Option<Tensor>);

/// `model.generate(**batch, max_new_tokens=..., do_sample=False)`; `begin_decode` runs where the prompt is done with.
pub fn generate(
    cx: &Rc<Context>,
    model: &dyn Generate,
    kept: &mut Kept,
    batch: &Batch,
    max_new_tokens: u64,
    begin_decode: impl Fn(),
) -> Generated {
    let begin = begin::begin(cx, model, batch, kept);
    cx.replace_past(Some(Past::of(model.returns_tuples())));
    let size = begin.ids.size(0);
    let mut sampler = Sampler {
        cx,
        ids: begin.ids,
        mask: begin.mask,
        cache_position: None,
        positions: begin.positions,
        axes: model.position_axes(),
        encoded: begin.encoded,
        inputs: Vec::new(),
        scores: None,
        tokens: None,
        unfinished: ops::fill(cx, Fill::Ones, &[size], DType::Int64),
        finished: None,
        _held: begin.held,
    };
    if !cx.machine().rules.has(&rules::NO_CACHE_POSITION) {
        sampler.count_cache_positions();
    }
    let logits = if sampler.picks_by_cache_position() {
        sampler.older_logits(model, true)
    } else {
        let ids = ops::rearrangement(cx, Rearrangement::Clone, sampler.ids.dims(), DType::Int64);
        model.logits(sampler.step(&ids, sampler.positions.as_ref()))
    };
    let remembers = cx.past_layers() > 0;
    sampler.choose(logits);
    if max_new_tokens > 1 {
        begin_decode();
    }
    let further = max_new_tokens.saturating_sub(1);
    let start = cx.position();
    let mut done = 0;
    let first = FIRST.min(further);
    while done < first {
        done += 1;
        sampler.forward(model);
    }
    let per_token = cx.position().events_since(start) as u64 / first.max(1);
    let (events, again) =
        if cx.skips_more_tokens() { (FEWER_EVENTS, FEWER_EVENTS) } else { (EVENTS, EVENTS / 2 + EVENTS / 8) };
    let tokens = listed(done, further, events, per_token, &sampler.turns(done));
    let repeatable = tokens.len() as u64 == further - done && per_token * further <= again;
    for token in tokens {
        sampler.skip(token - done - 1);
        done = token;
        sampler.forward(model);
    }
    // The cache is a local of `generate`.
    drop(cx.replace_past(None));
    Generated { ids: sampler.ids, remembers, repeatable }
}

/// `outputs.logits[:, -1, :]`, which is the model's no longer, in float32 since [`rules::CHOOSES_IN_FLOAT32`].
fn last_logits(logits: &Tensor, last: [u64; 2]) -> Tensor {
    let (cx, rules) = (logits.cx(), logits.cx().machine().rules);
    let copy = |of, sizes: &[u64], dtype| ops::rearrangement(cx, of, sizes, dtype);
    if rules.has(&rules::COPIES_LOGITS_ONCE) {
        return copy(Rearrangement::ToCopy, &last, DType::Float32);
    }
    let all = rules.has(&rules::CHOOSES_IN_FLOAT32) && !rules.has(&rules::COPIES_LAST_LOGITS);
    let copied = copy(Rearrangement::Clone, if all { logits.dims() } else { &last }, logits.dtype());
    if !rules.has(&rules::CHOOSES_IN_FLOAT32) || logits.dtype() == DType::Float32 {
        return copied;
    }
    copy(Rearrangement::ToCopy, &last, DType::Float32)
}

/// The sizes of `position_ids`.
fn position_sizes(axes: u64, batch: u64, seq: u64) -> Vec<u64> {
    if axes > 1 { vec![axes, batch, seq] } else { vec![batch, seq] }
}

impl Sampler<'_> {
    /// What a forward over `ids` is given.
    fn step<'s>(&'s self, ids: &'s Tensor, positions: Option<&'s Tensor>) -> Step<'s> {
        Step { ids, mask: self.mask.as_ref(), positions, encoded: self.encoded.as_ref() }
    }

    /// A token after the first.
    fn forward(&mut self, model: &dyn Generate) {
        if self.picks_by_cache_position() {
            let logits = self.older_logits(model, false);
            return self.choose(logits);
        }
        let (cx, size) = (self.cx, self.ids.size(0));
        let latest = |sizes: &[u64]| ops::rearrangement(cx, Rearrangement::Clone, sizes, DType::Int64);
        let ids = latest(&[size, 1]);
        let positions = self.positions.is_some().then(|| latest(&position_sizes(self.axes, size, 1)));
        let counted = self.cache_position.is_some().then(|| latest(&[1]));
        // The mask is handed on as it is, and held by both names.
        self.inputs =
            [Some(ids.clone()), positions.clone(), counted, self.mask.clone()].into_iter().flatten().collect();
        cx.rewind_past();
        let logits = model.logits(self.step(&ids, positions.as_ref()));
        drop((ids, positions));
        self.choose(logits);
    }

    /// Whether the mask grows with the tokens; that of an encoder-decoder is about what the encoder read.
    fn masks_tokens(&self) -> bool {
        self.mask.is_some() && self.encoded.is_none()
    }

    /// The tokens around which a sliding window fills up, counted as further tokens; `done` of them are made.
    fn turns(&self, done: u64) -> Vec<u64> {
        let windows = self.cx.past_windows();
        let fills = windows.iter().filter_map(|(window, seen)| window.checked_sub(*seen)).map(|left| done + left);
        fills.flat_map(|turn| turn.saturating_sub(1)..=turn + 1).collect()
    }

    /// Lets `tokens` tokens go by: everything that grows with them is made anew at its later size.
    fn skip(&mut self, tokens: u64) {
        if tokens == 0 {
            return;
        }
        let (cx, size) = (self.cx, self.ids.size(0));
        let longer = [size, self.ids.size(1) + tokens];
        kv_cache::skip(cx, tokens);
        let grown = |sizes: &[u64]| ops::rearrangement(cx, Rearrangement::Cat, sizes, DType::Int64);
        let [_, seq] = longer;
        self.positions = self.positions.is_some().then(|| grown(&position_sizes(self.axes, size, seq)));
        if self.masks_tokens() {
            self.mask = Some(grown(&longer));
        }
        if self.cache_position.is_some() && !self.picks_by_cache_position() {
            self.cache_position = Some(grown(&[seq]));
        }
        self.ids = grown(&longer);
    }

    /// What follows a forward: the arguments of the next one, the token, and whether it was the last.
    fn choose(&mut self, logits: Tensor) {
        let (cx, size) = (self.cx, self.ids.size(0));
        let longer = self.ids.size(1) + 1;
        let put = |sizes: &[u64]| ops::rearrangement(cx, Rearrangement::Cat, sizes, DType::Int64);
        let rules = cx.machine().rules;
        if rules.has(&rules::CHOOSES_LAST) {
            self.grow(longer);
        }
        let classes = logits.size(-1);
        let scores = last_logits(&logits, [size, classes]);
        self.scores = Some(scores.clone());
        self.tokens = Some(ops::reduction(Reduction::Argmax, &scores, &[size], DType::Int64));
        drop(scores);
        self.ids = put(&[size, longer]);
        if !rules.has(&rules::CHOOSES_LAST) {
            self.grow(longer);
        }
        // stopping_criteria: the length alone.
        let criteria = {
            let none = ops::fill(cx, Fill::Full, &[size], DType::Bool);
            let length = ops::fill(cx, Fill::Full, &[size], DType::Bool);
            ops::pointwise(Pointwise::BitwiseOrTensor, &none, &[&length], &[size], DType::Bool)
        };
        let going_on = ops::each(Pointwise::BitwiseNot, &criteria, DType::Bool);
        drop(criteria);
        let unfinished = ops::each(Pointwise::BitwiseAndTensor, &self.unfinished, DType::Int64);
        self.unfinished = unfinished;
        drop(going_on);
        let most = ops::reduction(Reduction::Max, &self.unfinished, &[], DType::Int64);
        let done = ops::each(Pointwise::EqScalar, &most, DType::Bool);
        drop(most);
        if !rules.has(&rules::STOP_IS_CHECKED) {
            self.finished = Some(done.clone());
        }
        drop((done, logits));
    }

    /// `_update_model_kwargs_for_generation`: what belongs to the tokens is one longer.
    fn grow(&mut self, longer: u64) {
        let (cx, size) = (self.cx, self.ids.size(0));
        let put = |sizes: &[u64]| ops::rearrangement(cx, Rearrangement::Cat, sizes, DType::Int64);
        // The function's own names hold the old positions and the old mask to its end.
        let old = (self.positions.clone(), self.mask.clone());
        if self.positions.is_some() {
            let next = {
                let one = {
                    let range = ops::arange(cx, 1);
                    let sizes = position_sizes(self.axes, size, 1);
                    ops::pointwise(Pointwise::AddTensor, &range, &[], &sizes, DType::Int64)
                };
                let next = ops::each(Pointwise::AddTensor, &one, DType::Int64);
                drop(one);
                next
            };
            self.positions = Some(put(&position_sizes(self.axes, size, longer)));
            drop(next);
        }
        if self.masks_tokens() {
            let _ones = ops::fill(cx, Fill::NewOnes, &[size, 1], DType::Int64);
            self.mask = Some(put(&[size, longer]));
        }
        self.count_on();
        drop(old);
    }
}
