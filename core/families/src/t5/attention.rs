//! T5's attention: the position bias that one layer computes and the others are handed, as transformers shares it among models
//! and as it was T5's own.

use std::rc::Rc;

use plimsoll_catalog::software::rules;
use plimsoll_torch::nn::{Embedding, EncoderAttention, Linear, Scope, kv_cache};
use plimsoll_torch::ops::{self, Fill, Pointwise};
use plimsoll_torch::tensor::{Context, DType, ModuleId, Tensor};

use super::Sizes;
use super::older::counts_in_tensors;
use crate::Plan;

/// `T5Attention`.
#[derive(Debug)]
pub(super) struct Attend {
    q: Linear,
    k: Linear,
    v: Linear,
    o: Linear,
    pub(super) relative_attention_bias: Option<Embedding>,
    core: EncoderAttention,
    heads: u64,
    head_dim: u64,
    /// Whether it stands in the decoder.
    decoder: bool,
    /// Self-attention of the decoder.
    causal: bool,
    checkpointing: bool,
    module: ModuleId,
}

impl Attend {
    pub(super) fn new(scope: &Scope, sizes: &Sizes, plan: &Plan, bias: bool, decoder: bool, causal: bool) -> Self {
        let inner = sizes.heads * sizes.head_dim;
        let linear = |name: &'static str, i, o| Linear::new(&scope.child(name), i, o, false);
        Self {
            q: linear("q", sizes.hidden, inner),
            k: linear("k", sizes.hidden, inner),
            v: linear("v", sizes.hidden, inner),
            o: linear("o", inner, sizes.hidden),
            relative_attention_bias: bias
                .then(|| Embedding::new(&scope.child("relative_attention_bias"), sizes.buckets, sizes.heads)),
            core: sizes.attention(plan),
            heads: sizes.heads,
            head_dim: sizes.head_dim,
            decoder,
            causal,
            checkpointing: plan.checkpointing,
            module: scope.module(),
        }
    }

    /// The output, the position bias (handed on to the next layer), and the probabilities of eager attention.
    pub(super) fn forward(
        &self,
        hidden: &Tensor,
        mask: Option<&Tensor>,
        encoded: Option<&Tensor>,
        position_bias: Option<&Tensor>,
    ) -> (Tensor, Tensor, Option<Tensor>) {
        hidden.cx().within(self.module, || {
            let heads =
                |x: &Tensor| ops::transpose(&ops::view(x, &[x.size(0), x.size(1), self.heads, self.head_dim]), 1, 2);
            let query = heads(&self.q.forward(hidden));
            let project = |states: &Tensor| (heads(&self.k.forward(states)), heads(&self.v.forward(states)));
            let (key, value) = match encoded {
                Some(encoded) => kv_cache::cross(hidden.cx(), || project(encoded)),
                None => {
                    let (key, value) = project(hidden);
                    kv_cache::update(key, value, None)
                }
            };
            let position_bias = match (position_bias, &self.relative_attention_bias) {
                (Some(bias), _) => bias.clone(),
                (None, Some(table)) => self.compute_bias(table, query.size(2), key.size(2)),
                (None, None) => self.no_bias(&query, &key),
            };
            let (mut out, weights) = self.core.forward([&query, &key, &value], mask, Some(&position_bias), self.causal);
            let sizes = [hidden.size(0), hidden.size(1), self.heads * self.head_dim];
            out = ops::contiguous(&ops::reshape(&out, &sizes));
            out = self.o.forward(&out);
            (out, position_bias, weights)
        })
    }

    /// A bias of zeros, for what has no table.
    fn no_bias(&self, query: &Tensor, key: &Tensor) -> Tensor {
        let sizes = [1, self.heads, query.size(2), key.size(2)];
        let zeros = ops::fill(query.cx(), Fill::Zeros, &sizes, query.dtype());
        if self.checkpointing { zeros.into_leaf(true) } else { zeros }
    }

    /// [`Attend::forward`] of the versions whose attention is T5's own: the mask goes into the position bias, once, and that
    /// into the scores, in their place.
    pub(super) fn forward_alone(
        &self,
        hidden: &Tensor,
        mask: Option<&Tensor>,
        encoded: Option<&Tensor>,
        position_bias: Option<&Tensor>,
    ) -> (Tensor, Tensor, Option<Tensor>) {
        let cx = hidden.cx();
        cx.within(self.module, || {
            let heads =
                |x: &Tensor| ops::transpose(&ops::view(x, &[x.size(0), x.size(1), self.heads, self.head_dim]), 1, 2);
            let query = heads(&self.q.forward(hidden));
            let project = |states: &Tensor| (heads(&self.k.forward(states)), heads(&self.v.forward(states)));
            let (key, value) = match encoded {
                Some(encoded) => kv_cache::cross(cx, || project(encoded)),
                None => {
                    let (key, value) = project(hidden);
                    kv_cache::update(key, value, None)
                }
            };
            let mut scores = ops::matmul(&query, &ops::transpose(&key, 3, 2));
            let mut real_seq_length = None;
            let bias = match position_bias {
                Some(bias) => bias.clone(),
                None => {
                    // cache_position[-1] + 1; a cross-attention is handed it.
                    real_seq_length = (encoded.is_none() && counts_in_tensors(cx)).then(|| one_number(cx));
                    let bias = match &self.relative_attention_bias {
                        Some(table) => self.cut(&self.compute_bias(table, query.size(2), key.size(2))),
                        None => self.no_bias(&query, &key),
                    };
                    mask.map_or(bias.clone(), |mask| ops::add(&bias, mask))
                }
            };
            scores = ops::add_in_place(scores, &bias);
            // `scores.float()` is a copy of half ones, whatever softmax could do inside.
            let softened = {
                let wide = ops::to(&scores, DType::Float32);
                ops::softmax(&wide)
            };
            let mut weights = ops::to(&softened, scores.dtype());
            drop(softened);
            weights = ops::dropout(&weights, self.core.dropout);
            let mut out = ops::matmul(&weights, &value);
            out = ops::contiguous(&ops::transpose(&out, 1, 2));
            out = ops::view(&out, &[hidden.size(0), hidden.size(1), self.heads * self.head_dim]);
            out = self.o.forward(&out);
            // Names go in the order in which they came.
            drop((query, key, value, scores, real_seq_length, weights));
            (out, bias, None)
        })
    }

    /// `position_bias[:, :, -seq_length:, :]`, which is all of it: nodes nonetheless.
    fn cut(&self, bias: &Tensor) -> Tensor {
        if !counts_in_tensors(bias.cx()) {
            return bias.clone();
        }
        let outer = ops::whole(&ops::whole(bias));
        ops::whole(&ops::sliced(&outer))
    }

    /// `compute_bias`: `[1, heads, queries, keys]` out of the table of buckets.
    fn compute_bias(&self, table: &Embedding, queries: u64, keys: u64) -> Tensor {
        let cx = table.weight().cx();
        // Where positions are counted, the stack's own cache_position serves; what a cache has seen is added.
        let context_position = (!counts_in_tensors(cx)).then(|| {
            let positions = ops::arange(cx, queries);
            if cx.machine().rules.has(&rules::T5_ASKS_CACHE) {
                ops::pointwise(Pointwise::AddTensor, &positions, &[], &[queries, 1], DType::Int64)
            } else {
                positions
            }
        });
        let memory_position = ops::arange(cx, keys);
        let relative_position = ops::pointwise(
            Pointwise::SubTensor,
            &memory_position,
            context_position.as_ref().as_slice(),
            &[queries, keys],
            DType::Int64,
        );
        let bucket = relative_position_bucket(&relative_position, !self.decoder);
        let values = table.forward(&bucket);
        drop((bucket, context_position, memory_position, relative_position));
        ops::unsqueeze(&ops::permute(&values, &[2, 0, 1]), 0)
    }
}

/// A tensor of one position, made of another.
pub(super) fn one_number(cx: &Rc<Context>) -> Tensor {
    ops::fill(cx, Fill::ScalarTensor, &[], DType::Int64)
}

/// `_relative_position_bucket`.
fn relative_position_bucket(relative_position: &Tensor, bidirectional: bool) -> Tensor {
    let (cx, sizes) = (relative_position.cx(), relative_position.dims());
    let each = |op, x: &Tensor, dtype| ops::each(op, x, dtype);
    let both = |op, x: &Tensor, y: &Tensor| ops::pointwise(op, x, &[y], sizes, DType::Int64);
    let (buckets, distance) = if bidirectional {
        let later = each(Pointwise::GtScalar, relative_position, DType::Bool);
        let whole = each(Pointwise::ToCopy, &later, DType::Int64);
        drop(later);
        let scaled = each(Pointwise::MulTensor, &whole, DType::Int64);
        drop(whole);
        let buckets = each(Pointwise::AddTensor, &scaled, DType::Int64);
        drop(scaled);
        (Some(buckets), each(Pointwise::Abs, relative_position, DType::Int64))
    } else {
        let zeros = ops::fill(cx, Fill::ZerosLike, sizes, DType::Int64);
        let minimum = both(Pointwise::Minimum, relative_position, &zeros);
        drop(zeros);
        let distance = each(Pointwise::Neg, &minimum, DType::Int64);
        drop(minimum);
        (None, distance)
    };
    let is_small = each(Pointwise::LtScalar, &distance, DType::Bool);
    let mut large = each(Pointwise::ToCopy, &distance, DType::Float32);
    for op in [Pointwise::DivTensor, Pointwise::Log, Pointwise::DivTensor, Pointwise::MulTensor] {
        large = each(op, &large, DType::Float32);
    }
    large = each(Pointwise::ToCopy, &large, DType::Int64);
    large = each(Pointwise::AddTensor, &large, DType::Int64);
    let last = ops::fill(cx, Fill::FullLike, sizes, DType::Int64);
    let clipped = both(Pointwise::Minimum, &large, &last);
    drop((last, large));
    let chosen = ops::pointwise(Pointwise::WhereSelf, &distance, &[&is_small, &clipped], sizes, DType::Int64);
    let buckets = match buckets {
        // relative_buckets += ... writes over them.
        Some(buckets) => buckets,
        None => each(Pointwise::AddTensor, &chosen, DType::Int64),
    };
    drop((chosen, distance, is_small, clipped));
    buckets
}
