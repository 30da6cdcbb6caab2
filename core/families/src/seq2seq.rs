//! What transformers' encoder-decoders share around their stacks.

use std::rc::Rc;

use plimsoll_catalog::software::rules;
use plimsoll_ground::Result;
use plimsoll_scenario::{Attention, AttentionMask};
use plimsoll_torch::nn::{EncoderAttention, Linear, Scope, kv_cache};
use plimsoll_torch::ops::{self, Fill, Pointwise, Rearrangement};
use plimsoll_torch::tensor::{Context, DType, ModuleId, Tensor};
use plimsoll_torch::{Batch, Field};

use super::{Output, Plan};

/// How many tokens the encoder and the decoder read.
#[derive(Clone, Copy, Debug)]
pub struct Lengths {
    /// `input.seq`.
    pub source: u64,
    /// `input.target_seq`; as long as the source where it is not given.
    pub target: u64,
}

impl Lengths {
    /// Of the plan.
    ///
    /// # Errors
    /// When the scenario has no sequence.
    pub fn read(plan: &Plan) -> Result<Self> {
        let source = plan.seq()?;
        Ok(Self { source, target: plan.input.target_seq.unwrap_or(source) })
    }
}

/// `input_ids`, `labels` and, where one is given, the encoder's attention mask: int64.
pub fn batch(cx: &Rc<Context>, plan: &Plan, lengths: Lengths) -> Batch {
    let tokens = |n| ops::empty(cx, &[plan.input.batch, n], DType::Int64);
    let labels = ops::labels(cx, &[plan.input.batch, lengths.target], DType::Int64);
    let batch = Batch::of(tokens(lengths.source)).with(Field::Labels, labels);
    match plan.input.attention_mask {
        AttentionMask::None => batch,
        _ => batch.with(Field::Mask, tokens(lengths.source)),
    }
}

/// `shift_tokens_right`: the decoder's input ids, made from the labels.
pub fn shift_right(labels: &Tensor) -> Tensor {
    let cx = labels.cx();
    let (batch, seq) = (labels.size(0), labels.size(1));
    let shifted = ops::fill(cx, Fill::NewZeros, &[batch, seq], DType::Int64);
    if seq > 1 {
        drop(ops::rearrangement(cx, Rearrangement::Clone, &[batch, seq - 1], DType::Int64));
    }
    drop(ops::pointwise(Pointwise::EqScalar, &shifted, &[], &[batch, seq], DType::Bool));
    shifted
}

/// The loss of the logits, and what a `Seq2SeqLMOutput` holds beside it: the logits and the encoder's last hidden state.
pub fn output(logits: Tensor, labels: &Tensor, encoded: Tensor) -> Output {
    let vocab = logits.size(-1);
    let rows = logits.numel() / vocab.max(1);
    let loss = ops::cross_entropy(&ops::view(&logits, &[rows, vocab]), &ops::view(labels, &[rows]));
    Output { held: vec![loss.clone(), logits, encoded], loss }
}

/// `lm_head`, tied to the token embedding or with a weight of its own.
pub fn head(place: &Scope, weight: &Tensor, tied: bool) -> Linear {
    if tied { Linear::tied(place, weight) } else { Linear::head(place, weight.size(1), weight.size(0)) }
}

/// `BartAttention` and `WhisperAttention`: self-attention, or attention to the encoder's hidden states.
#[derive(Debug)]
pub struct Attend {
    k_proj: Linear,
    v_proj: Linear,
    q_proj: Linear,
    out_proj: Linear,
    core: EncoderAttention,
    heads: u64,
    kind: Kind,
    causal: bool,
    module: ModuleId,
}

/// What attention returns beside its output: a layer holds it.
#[derive(Debug, Default)]
pub struct Beside {
    /// The probabilities of eager attention.
    pub weights: Option<Tensor>,
    /// Keys and values, `past_key_value`.
    #[allow(dead_code, reason = "held alive, as the layer holds it")]
    pub present: Option<[Tensor; 2]>,
}

/// Whose attention it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// BART: the kernel scales.
    Bart,
    /// Whisper: keys have no bias, queries are scaled first, and all three are made contiguous.
    Whisper,
    /// CLIP: all three projections are made before any is split into heads.
    Clip,
}

impl Attend {
    /// `features` in and out, on as many heads as the plan of attention says.
    pub fn new(scope: &Scope, kind: Kind, features: u64, heads: u64, core: &EncoderAttention, causal: bool) -> Self {
        let linear = |name: &'static str, bias| Linear::new(&scope.child(name), features, features, bias);
        Self {
            k_proj: linear("k_proj", kind != Kind::Whisper),
            v_proj: linear("v_proj", true),
            q_proj: linear("q_proj", true),
            out_proj: linear("out_proj", true),
            core: core.clone(),
            heads,
            kind,
            causal,
            module: scope.module(),
        }
    }

    /// Keys and values of `states`.
    fn project(
        &self,
        states: &Tensor,
        split: impl Fn(&Tensor) -> Tensor,
        turned: impl Fn(&Tensor) -> Tensor,
    ) -> (Tensor, Tensor) {
        let rules = states.cx().machine().rules;
        let whisper = self.kind == Kind::Whisper;
        if !rules.has(&rules::SEQ2SEQ_PROJECTS_FIRST) || (whisper && rules.has(&rules::WHISPER_SPLITS_AT_ONCE)) {
            let key = turned(&split(&self.k_proj.forward(states)));
            return (key, turned(&split(&self.v_proj.forward(states))));
        }
        // Where both are projected first: Whisper's are split by then, BART's are not.
        let mut key = self.k_proj.forward(states);
        if whisper {
            key = split(&key);
        }
        let mut value = self.v_proj.forward(states);
        if whisper {
            value = split(&value);
            key = turned(&key);
            value = turned(&value);
        } else {
            key = turned(&split(&key));
            value = turned(&split(&value));
        }
        (key, value)
    }

    /// The output, and what is returned beside it.
    pub fn forward(&self, hidden: &Tensor, encoded: Option<&Tensor>, mask: Option<&Tensor>) -> (Tensor, Beside) {
        hidden.cx().within(self.module, || {
            let features = hidden.size(-1);
            // `_shape`, which BART's own SDPA class had too.
            let shared = if self.kind == Kind::Clip { &rules::CLIP_SHARES_SDPA } else { &rules::BART_SHARES_SDPA };
            let older = !hidden.cx().machine().rules.has(shared);
            let older_eager = older && self.core.implementation == Attention::Eager;
            // CLIP's own class with the kernel was written like the ones that share theirs.
            let own_bart = older && self.kind == Kind::Bart;
            let last_bart = own_bart && hidden.cx().machine().rules.has(&rules::SEQ2SEQ_PROJECTS_FIRST);
            let own = (own_bart && !last_bart) || (older_eager && self.kind == Kind::Clip);
            let copied = own || self.kind == Kind::Whisper;
            // The kernel scales where a class of its own calls it.
            let scales = older_eager || (self.kind == Kind::Whisper && !older);
            let split = |x: &Tensor| ops::view(x, &[x.size(0), x.size(1), self.heads, features / self.heads]);
            let turned = |x: &Tensor| {
                let turned = ops::transpose(x, 1, 2);
                if copied { ops::contiguous(&turned) } else { turned }
            };
            let heads = |x: &Tensor| turned(&split(x));
            let (mut query, mut key, mut value) = match self.kind {
                Kind::Clip if !own => {
                    let (query, key) = (self.q_proj.forward(hidden), self.k_proj.forward(hidden));
                    let value = self.v_proj.forward(hidden);
                    (heads(&query), heads(&key), heads(&value))
                }
                Kind::Bart | Kind::Whisper | Kind::Clip => {
                    let mut query = self.q_proj.forward(hidden);
                    if scales {
                        query = ops::mul_scalar(&query);
                    }
                    if !own {
                        query = heads(&query);
                    }
                    let (key, value) = match encoded {
                        Some(encoded) => kv_cache::cross(hidden.cx(), || self.project(encoded, split, turned)),
                        None => {
                            let (key, value) = self.project(hidden, split, turned);
                            kv_cache::update(key, value, None)
                        }
                    };
                    // Its own classes split the queries last.
                    (if own { heads(&query) } else { query }, key, value)
                }
            };
            if last_bart && (older_eager || mask.is_some()) {
                // What the products take in one piece, and the kernel where there is a mask.
                query = ops::contiguous(&query);
                key = ops::contiguous(&key);
                value = ops::contiguous(&value);
            }
            let (mut out, weights, named) = if older_eager {
                let (out, named) = self.core.forward_unscaled([&query, &key, &value], mask);
                // Whisper's returned what others kept for themselves.
                (out, (self.kind == Kind::Whisper).then(|| named[0].clone()), Some(named))
            } else {
                let (out, weights) = self.core.forward([&query, &key, &value], mask, None, self.causal);
                (out, weights, None)
            };
            out = ops::contiguous(&ops::reshape(&out, &[hidden.size(0), hidden.size(1), features]));
            out = self.out_proj.forward(&out);
            drop(named);
            // Classes of their own returned them to who asked for them, and BART's decoder keys and values to whoever did.
            let remembers = own && self.kind == Kind::Bart && (self.causal || encoded.is_some());
            (
                out,
                Beside {
                    weights: weights.filter(|_| !older || self.kind == Kind::Whisper),
                    present: remembers.then_some([key, value]),
                },
            )
        })
    }
}
