//! Generation: `GenerationMixin.generate` of transformers, greedy, with its `DynamicCache`.

use std::rc::Rc;

use crate::nn::kv_cache;
use crate::ops;
use crate::tensor::{Context, DType, Past, Tensor};

/// What one forward of a generation is given.
#[derive(Clone, Copy, Debug)]
pub struct Step<'a> {
    /// `input_ids`: the whole prompt at first, then the latest token.
    pub ids: &'a Tensor,
    /// `attention_mask`: of all tokens so far.
    pub mask: Option<&'a Tensor>,
    /// `position_ids`, where the model takes them.
    pub positions: Option<&'a Tensor>,
}

/// A model that makes text token by token.
pub trait Generate {
    /// The logits of the last position, `[batch, 1, vocabulary]`.
    fn logits(&self, step: Step<'_>) -> Tensor;

    /// Whether its forward takes `position_ids`.
    fn takes_positions(&self) -> bool {
        true
    }
}

/// Tokens after the prompt's that are always generated one by one.
const FIRST: u64 = 4;

/// Events that are spent on the others. A token of an 8B model takes some 3,000; all those of a short answer, or of a small
/// model, fit in here.
const EVENTS: u64 = 1 << 18;

/// Of the tokens `done + 1` to `further`, those that are generated; the others are skipped. The last ones always are,
/// for there a growing cache is largest, and so are those at `turns`; the rest are spread evenly.
fn listed(done: u64, further: u64, per_token: u64, turns: &[u64]) -> Vec<u64> {
    const LAST: u64 = 8;
    let most = (EVENTS / per_token.max(1)).max(2 * LAST);
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
    /// `model_kwargs["position_ids"]`.
    positions: Option<Tensor>,
    /// `model_inputs`: ids and positions of the latest forward.
    inputs: Vec<Tensor>,
    /// `next_token_logits`, and `next_token_scores`, which is the same tensor.
    scores: Option<Tensor>,
    /// `next_tokens`.
    tokens: Option<Tensor>,
    /// `unfinished_sequences`.
    unfinished: Tensor,
}

/// `model.generate(input_ids, attention_mask, max_new_tokens=..., do_sample=False)`; `begin_decode` runs where the
/// prompt is done with. Says whether the model put anything into the cache. Nothing is let go of at the end: the run ends where the last token is known.
pub fn generate(
    cx: &Rc<Context>,
    model: &dyn Generate,
    batch: &[Tensor],
    max_new_tokens: u64,
    begin_decode: impl Fn(),
) -> bool {
    let Some(prompt) = batch.first() else { return false };
    let size = prompt.size(0);
    // A mask that is not given is made of ones.
    let mask = match batch.get(2) {
        Some(mask) => mask.clone(),
        None => ops::fresh(cx, "ones", prompt.dims(), DType::Int64),
    };
    let positions = model.takes_positions().then(|| positions(&mask));
    cx.replace_past(Some(Past::default()));
    let mut sampler = Sampler {
        cx,
        ids: prompt.clone(),
        mask: Some(mask.clone()),
        positions: positions.clone(),
        inputs: Vec::new(),
        scores: None,
        tokens: None,
        unfinished: ops::fresh(cx, "ones", &[size], DType::Int64),
    };
    let logits = {
        let ids = ops::fresh(cx, "clone", prompt.dims(), DType::Int64);
        model.logits(Step { ids: &ids, mask: Some(&mask), positions: positions.as_ref() })
    };
    let remembers = cx.past_layers() > 0;
    sampler.choose(logits, max_new_tokens == 1);
    if max_new_tokens > 1 {
        begin_decode();
    }
    let further = max_new_tokens.saturating_sub(1);
    let begin = cx.position();
    let mut done = 0;
    let first = FIRST.min(further);
    while done < first {
        done += 1;
        sampler.forward(model, done == further);
    }
    let per_token = (cx.position() - begin) as u64 / first.max(1);
    for token in listed(done, further, per_token, &sampler.turns(done)) {
        sampler.skip(token - done - 1);
        done = token;
        sampler.forward(model, done == further);
    }
    cx.end();
    remembers
}

/// `_prepare_position_ids_for_generation`.
fn positions(mask: &Tensor) -> Tensor {
    let cx = mask.cx();
    let cumsum = ops::fresh(cx, "cumsum", mask.dims(), DType::Int64);
    let _positions = ops::fresh(cx, "sub.Tensor", mask.dims(), DType::Int64);
    drop(cumsum);
    let _zeros = ops::fresh(cx, "eq.Scalar", mask.dims(), DType::Bool);
    ops::fresh(cx, "masked_fill.Scalar", mask.dims(), DType::Int64)
}

impl Sampler<'_> {
    /// A token after the first.
    fn forward(&mut self, model: &dyn Generate, last: bool) {
        let (cx, size) = (self.cx, self.ids.size(0));
        let latest = || ops::fresh(cx, "clone", &[size, 1], DType::Int64);
        let ids = latest();
        let positions = self.positions.is_some().then(latest);
        // The mask is handed on as it is, and held by both names.
        self.inputs = [Some(ids.clone()), positions.clone(), self.mask.clone()].into_iter().flatten().collect();
        cx.rewind_past();
        let logits = model.logits(Step { ids: &ids, mask: self.mask.as_ref(), positions: positions.as_ref() });
        drop((ids, positions));
        self.choose(logits, last);
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
        let grown = || ops::fresh(cx, "cat", &longer, DType::Int64);
        self.positions = self.positions.is_some().then(grown);
        self.mask = self.mask.is_some().then(grown);
        self.ids = grown();
    }

    /// What follows a forward: the arguments of the next one, the token, and whether it was the last.
    fn choose(&mut self, logits: Tensor, last: bool) {
        let (cx, size) = (self.cx, self.ids.size(0));
        let longer = self.ids.size(1) + 1;
        let fresh = |op, sizes: &[u64], dtype| ops::fresh(cx, op, sizes, dtype);
        // _update_model_kwargs_for_generation
        // The function's own name holds the old positions to its end.
        let old = self.positions.clone();
        if old.is_some() {
            let next = {
                let one = {
                    let _range = ops::arange(cx, 1);
                    fresh("add.Tensor", &[size, 1], DType::Int64)
                };
                let next = fresh("add.Tensor", &[size, 1], DType::Int64);
                drop(one);
                next
            };
            self.positions = Some(fresh("cat", &[size, longer], DType::Int64));
            drop(next);
        }
        if self.mask.is_some() {
            let _ones = fresh("new_ones", &[size, 1], DType::Int64);
            self.mask = Some(fresh("cat", &[size, longer], DType::Int64));
        }
        drop(old);
        self.scores = Some(fresh("_to_copy", &[size, logits.size(-1)], DType::Float32));
        self.tokens = Some(fresh("argmax", &[size], DType::Int64));
        self.ids = fresh("cat", &[size, longer], DType::Int64);
        // stopping_criteria: the length alone.
        let criteria = {
            let _none = fresh("full", &[size], DType::Bool);
            let _length = fresh("full", &[size], DType::Bool);
            fresh("bitwise_or.Tensor", &[size], DType::Bool)
        };
        let going_on = fresh("bitwise_not", &[size], DType::Bool);
        drop(criteria);
        self.unfinished = fresh("bitwise_and.Tensor", &[size], DType::Int64);
        drop(going_on);
        let most = fresh("max", &[], DType::Int64);
        let done = fresh("eq.Scalar", &[], DType::Bool);
        drop(most);
        if last {
            cx.end();
        }
        drop((done, logits));
    }
}
