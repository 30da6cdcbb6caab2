//! DeBERTa's disentangled attention: scores of contents with contents, and of contents with relative positions.

use std::rc::Rc;

use plimsoll_catalog::software::rules;
use plimsoll_ground::Result;
use plimsoll_torch::nn::{Linear, Scope};
use plimsoll_torch::ops::{self, Fill, Pointwise};
use plimsoll_torch::tensor::{Context, DType, ModuleId, Tensor};

use super::config::{Config, divide};

/// What of a config bears on attention.
#[derive(Clone, Copy, Debug)]
pub struct Disentangled {
    /// `hidden_size`.
    pub hidden: u64,
    /// `num_attention_heads`.
    pub heads: u64,
    /// `attention_probs_dropout_prob`.
    pub dropout: f64,
    /// `hidden_dropout_prob`, of the relative embeddings too.
    pub hidden_dropout: f64,
    /// Relative positions, where attention looks at them.
    pub relative: Option<Relative>,
    /// `pos_att_type` names `c2p`.
    pub c2p: bool,
    /// `pos_att_type` names `p2c`.
    pub p2c: bool,
    /// Relative embeddings go through the contents' own projections (`share_att_key`).
    pub shared: bool,
}

/// Relative positions.
#[derive(Clone, Copy, Debug)]
pub struct Relative {
    /// How far they reach either way; the table has twice as many rows.
    pub span: u64,
    /// They are put into buckets that widen with the distance.
    pub buckets: bool,
}

impl Disentangled {
    /// With the defaults of `configuration_deberta_v2.py`.
    ///
    /// # Errors
    /// Sizes that are no sizes or contradict one another.
    pub fn read(config: &Config<'_>, positions: u64) -> Result<Self> {
        let hidden = config.size("hidden_size", 1536)?;
        let heads = config.size("num_attention_heads", 24)?;
        let head = divide(config, ("hidden_size", hidden), ("num_attention_heads", heads))?;
        if config.size("attention_head_size", head)? != head {
            let hint = format!("leave it out, or give {head}");
            return Err(config.error("attention_head_size", "all heads together must be as wide as the model", hint));
        }
        // Both count as unset below 1.
        let positive = |key: &str| config.number(key).is_some_and(|n| n >= 1.0);
        let reach = if positive("max_relative_positions") {
            config.size("max_relative_positions", positions)?
        } else {
            positions
        };
        let buckets = positive("position_buckets");
        let span = if buckets { config.size("position_buckets", reach)? } else { reach };
        let relative = config.flag("relative_attention", false)?.then_some(Relative { span, buckets });
        let types = match config.texts("pos_att_type") {
            Some(listed) => listed,
            None => config.text("pos_att_type", "")?.split('|').map(str::trim).collect(),
        };
        Ok(Self {
            hidden,
            heads,
            dropout: config.probability("attention_probs_dropout_prob", 0.1)?,
            hidden_dropout: config.probability("hidden_dropout_prob", 0.1)?,
            relative,
            c2p: types.iter().any(|t| t.eq_ignore_ascii_case("c2p")),
            p2c: types.iter().any(|t| t.eq_ignore_ascii_case("p2c")),
            shared: config.flag("share_att_key", false)?,
        })
    }
}

/// `DisentangledSelfAttention`.
#[derive(Debug)]
pub struct DisentangledSelfAttention {
    query_proj: Linear,
    key_proj: Linear,
    value_proj: Linear,
    pos_key_proj: Option<Linear>,
    pos_query_proj: Option<Linear>,
    pos_dropout: ModuleId,
    dropout: ModuleId,
    config: Disentangled,
    module: ModuleId,
}

impl DisentangledSelfAttention {
    /// Projections in the order of `__init__`.
    pub fn new(scope: &Scope, config: &Disentangled) -> Self {
        let linear = |name: &'static str| Linear::new(&scope.child(name), config.hidden, config.hidden, true);
        let own = config.relative.is_some() && !config.shared;
        Self {
            query_proj: linear("query_proj"),
            key_proj: linear("key_proj"),
            value_proj: linear("value_proj"),
            pos_key_proj: (own && config.c2p).then(|| linear("pos_key_proj")),
            pos_query_proj: (own && config.p2c).then(|| linear("pos_query_proj")),
            pos_dropout: scope.child("pos_dropout").module(),
            dropout: scope.child("dropout").module(),
            config: *config,
            module: scope.module(),
        }
    }

    /// `transpose_for_scores`: `[batch, seq, hidden]` as `[batch * heads, seq, dim]`.
    fn transpose_for_scores(&self, x: &Tensor) -> Tensor {
        let (batch, seq, heads) = (x.size(0), x.size(1), self.config.heads);
        let dim = x.size(2) / heads;
        let split = ops::permute(&ops::view(x, &[batch, seq, heads, dim]), &[0, 2, 1, 3]);
        ops::view(&ops::contiguous(&split), &[batch * heads, seq, dim])
    }

    /// Of hidden states, the mask `[batch, 1, seq, seq]`, relative positions `[1, seq, seq]` and their embeddings.
    pub fn forward(&self, hidden: &Tensor, mask: &Tensor, relative: Option<(&Tensor, &Tensor)>) -> Tensor {
        let cx = hidden.cx();
        cx.within(self.module, || {
            let (batch, seq, heads) = (hidden.size(0), hidden.size(1), self.config.heads);
            let query = self.transpose_for_scores(&self.query_proj.forward(hidden));
            let key = self.transpose_for_scores(&self.key_proj.forward(hidden));
            let value = self.transpose_for_scores(&self.value_proj.forward(hidden));
            let mut scores = ops::bmm(&query, &ops::div_host_number(&ops::transpose(&key, -1, -2)));
            let mut named = None;
            if let Some((positions, embeddings)) = relative {
                let embeddings = cx.within(self.pos_dropout, || dropout(embeddings, self.config.hidden_dropout));
                let bias = self.disentangled_attention_bias(&query, &key, positions, &embeddings);
                scores = match &bias {
                    Some(bias) => ops::add(&scores, bias),
                    None => ops::add_scalar(&scores),
                };
                named = Some((embeddings, bias));
            }
            scores = ops::view(&scores, &[batch, heads, seq, seq]);
            let (mut probabilities, _mask) = if cx.machine().rules.has(&rules::DEBERTA_USES_TORCHS) {
                let mask = ops::each(Pointwise::ToCopy, mask, DType::Bool);
                scores = {
                    let hidden = ops::each(Pointwise::BitwiseNot, &mask, DType::Bool);
                    ops::masked_fill(&scores, &hidden)
                };
                (ops::softmax(&scores), Some(mask))
            } else {
                (ops::masked_softmax(&scores, mask), None)
            };
            probabilities = cx.within(self.dropout, || dropout(&probabilities, self.config.dropout));
            let mut context = ops::bmm(&ops::view(&probabilities, &[batch * heads, seq, seq]), &value);
            let split = ops::view(&context, &[batch, heads, seq, context.size(2)]);
            context = ops::contiguous(&ops::permute(&split, &[0, 2, 1, 3]));
            drop(named);
            ops::view(&context, &[batch, seq, hidden.size(2)])
        })
    }

    /// `disentangled_attention_bias`; `None` where no kind of it is asked for.
    fn disentangled_attention_bias(
        &self,
        query: &Tensor,
        key: &Tensor,
        positions: &Tensor,
        embeddings: &Tensor,
    ) -> Option<Tensor> {
        let (rows, batch) = (query.size(0), query.size(0) / self.config.heads);
        let embeddings = ops::unsqueeze(embeddings, 0);
        let through = |linear: &Linear| {
            let heads = self.transpose_for_scores(&linear.forward(&embeddings));
            ops::repeat_batch(&heads, batch)
        };
        let (pos_query, pos_key) = if self.config.shared {
            let pos_query = through(&self.query_proj);
            (Some(pos_query), Some(through(&self.key_proj)))
        } else {
            let pos_key = self.pos_key_proj.as_ref().map(through);
            (self.pos_query_proj.as_ref().map(through), pos_key)
        };
        // What the function's names hold to its end.
        let mut named = Vec::new();
        let mut score: Option<Tensor> = None;
        if let Some(pos_key) = pos_key.as_ref().filter(|_| self.config.c2p) {
            let mut attended = ops::bmm(query, &ops::transpose(pos_key, -1, -2));
            let index = clamped(positions, false);
            attended = ops::gather(&attended, &spread(&index, rows));
            score = {
                let scaled = ops::div_host_number(&attended);
                // `0 + scaled`
                Some(ops::add_scalar(&scaled))
            };
            named.extend([attended, index]);
        }
        if let Some(pos_query) = pos_query.as_ref().filter(|_| self.config.p2c) {
            let index = clamped(positions, true);
            let mut attended = ops::bmm(key, &ops::transpose(pos_query, -1, -2));
            attended = ops::transpose(&ops::gather(&attended, &spread(&index, rows)), -1, -2);
            let scaled = ops::div_host_number(&attended);
            score = Some(match score {
                Some(score) => ops::add_in_place(score, &scaled),
                None => ops::add_scalar(&scaled),
            });
            named.extend([attended, index]);
        }
        drop((named, pos_query, pos_key));
        score
    }
}

/// `StableDropout`, or since [`rules::DEBERTA_USES_TORCHS`] PyTorch's.
pub fn dropout(x: &Tensor, p: f64) -> Tensor {
    if x.cx().machine().rules.has(&rules::DEBERTA_USES_TORCHS) { ops::dropout(x, p) } else { ops::stable_dropout(x, p) }
}

/// `torch.clamp(positions + span, 0, span * 2 - 1)`, of the negated positions where `negated`.
fn clamped(positions: &Tensor, negated: bool) -> Tensor {
    let sizes = positions.dims();
    let _shifted = {
        let _negative = negated.then(|| ops::pointwise(Pointwise::Neg, positions, &[], sizes, DType::Int64));
        ops::pointwise(Pointwise::AddTensor, positions, &[], sizes, DType::Int64)
    };
    ops::pointwise(Pointwise::Clamp, positions, &[], sizes, DType::Int64)
}

/// One index `[1, seq, seq]` for every head of every sample, without a copy.
fn spread(index: &Tensor, rows: u64) -> Tensor {
    ops::expand(index, &[rows, index.size(1), index.size(2)])
}

/// `build_relative_position`: `[1, seq, seq]`.
pub fn relative_positions(cx: &Rc<Context>, seq: u64, buckets: bool) -> Tensor {
    let (queries, keys) = (ops::arange(cx, seq), ops::arange(cx, seq));
    let mut positions = ops::pointwise(Pointwise::SubTensor, &queries, &[&keys], &[seq, seq], DType::Int64);
    if buckets {
        positions = make_log_bucket_position(&positions);
        positions = ops::to(&positions, DType::Int64);
    }
    drop((queries, keys));
    ops::unsqueeze(&positions, 0)
}

fn make_log_bucket_position(positions: &Tensor) -> Tensor {
    let (cx, sizes) = (positions.cx(), positions.dims());
    let make = |op, x: &Tensor, others: &[&Tensor], dtype| ops::pointwise(op, x, others, sizes, dtype);
    // A script lets go of a value at its last use, Python of what has a name when the function returns.
    let software = cx.machine().rules;
    let python = software.has(&rules::DEBERTA_IS_NO_SCRIPT) || !software.has(&rules::DEBERTA_USES_TORCHS);
    let sign = make(Pointwise::Sign, positions, &[], DType::Int64);
    if !python && cx.runs_script() {
        return fused_log_bucket_position(positions, &sign);
    }
    let near = {
        let below = make(Pointwise::LtScalar, positions, &[], DType::Bool);
        let above = make(Pointwise::GtScalar, positions, &[], DType::Bool);
        make(Pointwise::BitwiseAndTensor, &below, &[&above], DType::Bool)
    };
    let middle = ops::fill(cx, Fill::ToCopy, &[], DType::Int64);
    let distance = make(Pointwise::Abs, positions, &[], DType::Int64);
    let far = make(Pointwise::WhereSelf, &distance, &[&near, &middle], DType::Int64);
    drop((near, middle, distance));
    let mut log = make(Pointwise::DivTensor, &far, &[], DType::Float32);
    for op in [Pointwise::Log, Pointwise::DivTensor, Pointwise::MulTensor, Pointwise::Ceil, Pointwise::AddTensor] {
        log = make(op, &log, &[], DType::Float32);
    }
    let close = make(Pointwise::LeScalar, &far, &[], DType::Bool);
    let named = python.then(|| vec![far.clone(), log.clone(), sign.clone()]);
    drop(far);
    let whole = make(Pointwise::ToCopy, positions, &[], DType::Float32);
    let signed = make(Pointwise::MulTensor, &log, &[&sign], DType::Float32);
    drop((log, sign));
    let bucket = make(Pointwise::WhereSelf, &whole, &[&close, &signed], DType::Float32);
    drop((close, whole, signed));
    drop(named);
    bucket
}

/// The same once it is compiled: two fused kernels, each named after the last operator in it, on both sides of a division by a number that
/// lies on no card.
fn fused_log_bucket_position(positions: &Tensor, sign: &Tensor) -> Tensor {
    let (cx, sizes) = (positions.cx(), positions.dims());
    let make = |op, x: &Tensor, others: &[&Tensor], dtype| ops::pointwise(op, x, others, sizes, dtype);
    let middle = ops::fill(cx, Fill::ToCopy, &[], DType::Int64);
    let log = make(Pointwise::Log, positions, &[&middle], DType::Float32);
    let distance = make(Pointwise::WhereSelf, positions, &[&middle], DType::Int64);
    drop(middle);
    let scaled = make(Pointwise::DivTensor, &log, &[], DType::Float32);
    drop(log);
    make(Pointwise::WhereSelf, &scaled, &[&distance, positions, sign], DType::Float32)
}
