//! What BERT and those built on it share: `BertEmbeddings`, `BertLayer` and the batch.

use std::rc::Rc;

use plimsoll_catalog::software::rules;
use plimsoll_ground::{Error, Result};
use plimsoll_scenario::{Attention, AttentionMask, Task};
use plimsoll_torch::nn::{
    Activation, Embedding, EncoderAttention, LayerNorm, Linear, ModuleList, Scope, bidirectional_mask,
    older_padding_mask,
};
use plimsoll_torch::ops::{self, Pointwise, Rearrangement, Reduction};
use plimsoll_torch::tensor::{Context, DType, ModuleId, Tensor, checkpoint_all};
use plimsoll_torch::{Batch, Field};

use super::config::{Config, divide};
use super::{Plan, causal_lm};

/// The sizes and probabilities the modules are built from.
pub struct Sizes<'c> {
    /// `vocab_size`.
    pub vocab: u64,
    /// Width of the embeddings: `hidden_size`, or ELECTRA's `embedding_size`.
    pub embedding: u64,
    /// `hidden_size`.
    pub hidden: u64,
    /// `intermediate_size`.
    pub inner: u64,
    /// `num_attention_heads`.
    pub heads: u64,
    /// `max_position_embeddings`.
    pub positions: u64,
    /// `type_vocab_size`.
    pub types: u64,
    /// `hidden_dropout_prob`.
    pub dropout: f64,
    /// `hidden_act`.
    pub act: &'c str,
    /// sdpa or eager, and its dropout.
    pub attention: EncoderAttention,
}

impl<'c> Sizes<'c> {
    /// The keys of `BertConfig`, with the defaults that differ between the families.
    ///
    /// # Errors
    /// Sizes that are no sizes or contradict one another; a decoder.
    pub fn read(config: &Config<'c>, plan: &Plan, vocab: u64, [hidden, inner, heads]: [u64; 3]) -> Result<Self> {
        for unsupported in ["add_cross_attention", "is_decoder"] {
            if config.flag(unsupported, false)? {
                return Err(config.error(unsupported, "is not estimated yet", "set it to false"));
            }
        }
        let hidden = config.size("hidden_size", hidden)?;
        let heads = config.size("num_attention_heads", heads)?;
        divide(config, ("hidden_size", hidden), ("num_attention_heads", heads))?;
        Ok(Self {
            vocab: config.size("vocab_size", vocab)?,
            embedding: hidden,
            hidden,
            inner: config.size("intermediate_size", inner)?,
            heads,
            positions: config.size("max_position_embeddings", 512)?,
            types: config.size("type_vocab_size", 2)?,
            dropout: config.probability("hidden_dropout_prob", 0.1)?,
            act: config.text("hidden_act", "gelu")?,
            attention: EncoderAttention {
                implementation: plan.attention,
                rules: plan.rules.clone(),
                dropout: config.probability("attention_probs_dropout_prob", 0.1)?,
                softmax_fp32: false,
                shared_since: None,
            },
        })
    }
}

/// Checks that there are position embeddings for every token; `reserved` of them stand for none.
///
/// # Errors
/// When there are not.
pub fn check_positions(seq: u64, positions: u64, reserved: u64) -> Result<()> {
    let most = positions.saturating_sub(reserved);
    if seq <= most {
        return Ok(());
    }
    Err(Error::new(
        "input.seq",
        format!("{seq} tokens, but the model has position embeddings for {most}"),
        format!("use at most {most}"),
    ))
}

/// `BertEmbeddings`, and RoBERTa's, which counts positions from the tokens.
#[derive(Debug)]
pub struct Embeddings {
    word: Embedding,
    position: Embedding,
    token_type: Embedding,
    norm: LayerNorm,
    dropout: (f64, ModuleId),
    /// Two int64 buffers `[1, positions]`.
    position_ids: Tensor,
    token_type_ids: Tensor,
    counts_tokens: bool,
    /// Under adapters and checkpoints the words are a leaf that requires grad (`enable_input_require_grads`): a frozen
    /// model's checkpoints would have no gradient.
    leaf: bool,
    module: ModuleId,
}

impl Embeddings {
    /// Tables, norm and buffers; `counts_tokens` is RoBERTa's way.
    pub fn new(scope: &Scope, sizes: &Sizes<'_>, plan: &Plan, counts_tokens: bool) -> Self {
        let table = |name, rows| Embedding::new(&scope.child(name), rows, sizes.embedding);
        let word = table("word_embeddings", sizes.vocab);
        let early = (!counts_tokens).then(|| table("position_embeddings", sizes.positions));
        let token_type = table("token_type_embeddings", sizes.types);
        let norm = LayerNorm::new(&scope.child("LayerNorm"), sizes.embedding, true);
        // RoBERTa registers its positions last.
        let position = early.unwrap_or_else(|| table("position_embeddings", sizes.positions));
        Self {
            word,
            position,
            token_type,
            norm,
            dropout: (sizes.dropout, scope.child("dropout").module()),
            counts_tokens,
            leaf: plan.adapters && plan.checkpointing,
            position_ids: scope.buffer_of(&[1, sizes.positions], DType::Int64),
            token_type_ids: scope.buffer_of(&[1, sizes.positions], DType::Int64),
            module: scope.module(),
        }
    }

    /// The word embedding, for a head that shares its weight.
    pub fn word(&self) -> &Embedding {
        &self.word
    }

    /// `forward`.
    pub fn forward(&self, ids: &Tensor) -> Tensor {
        let cx = ids.cx();
        cx.within(self.module, || {
            let (batch, seq) = (ids.size(0), ids.size(1));
            let position_ids =
                if self.counts_tokens { counted_positions(ids) } else { ops::narrow(&self.position_ids, 1, seq) };
            // torch.gather(self.token_type_ids.expand(...), 1, position_ids)
            let rows = position_ids.size(0).max(self.token_type_ids.size(0));
            let older = !cx.machine().rules.has(&rules::ENCODERS_SHARE_MASK);
            let gathered = if older {
                ops::narrow(&self.token_type_ids, 1, seq)
            } else {
                ops::rearrangement(cx, Rearrangement::Gather, &[rows, seq], DType::Int64)
            };
            let token_type_ids = ops::expand(&gathered, &[batch, seq]);
            let words = self.word.forward(ids);
            let words = if self.leaf { words.into_required_output() } else { words };
            let types = self.token_type.forward(&token_type_ids);
            let mut embeddings = ops::add(&words, &types);
            let positions = self.position.forward(&position_ids);
            embeddings =
                if older { ops::add_in_place(embeddings, &positions) } else { ops::add(&embeddings, &positions) };
            embeddings = self.norm.forward(&embeddings);
            let (p, module) = self.dropout;
            embeddings = cx.within(module, || ops::dropout(&embeddings, p));
            drop((words, types, positions));
            embeddings
        })
    }
}

/// `create_position_ids_from_input_ids`: int32 arithmetic on which tokens are none.
fn counted_positions(ids: &Tensor) -> Tensor {
    let sizes = ids.dims();
    let mask = {
        let given = ops::pointwise(Pointwise::NeScalar, ids, &[], sizes, DType::Bool);
        ops::pointwise(Pointwise::ToCopy, &given, &[], sizes, DType::Int32)
    };
    let indices = {
        let sum = ops::reduction(Reduction::Cumsum, &mask, sizes, DType::Int64);
        let narrowed = ops::pointwise(Pointwise::ToCopy, &sum, &[], sizes, DType::Int32);
        drop(sum);
        let shifted = ops::pointwise(Pointwise::AddTensor, &narrowed, &[], sizes, DType::Int32);
        drop(narrowed);
        let masked = ops::pointwise(Pointwise::MulTensor, &shifted, &[&mask], sizes, DType::Int32);
        drop(shifted);
        masked
    };
    let wide = ops::pointwise(Pointwise::ToCopy, &indices, &[], sizes, DType::Int64);
    let out = ops::pointwise(Pointwise::AddTensor, &wide, &[], sizes, DType::Int64);
    drop((wide, mask, indices));
    out
}

/// `BertSelfAttention`.
#[derive(Debug)]
struct SelfAttention {
    query: Linear,
    key: Linear,
    value: Linear,
    core: EncoderAttention,
    heads: u64,
    module: ModuleId,
}

impl SelfAttention {
    fn new(scope: &Scope, sizes: &Sizes<'_>) -> Self {
        let linear = |name| Linear::new(&scope.child(name), sizes.hidden, sizes.hidden, true);
        Self {
            query: linear("query"),
            key: linear("key"),
            value: linear("value"),
            core: sizes.attention.clone(),
            heads: sizes.heads,
            module: scope.module(),
        }
    }

    fn forward(&self, hidden: &Tensor, mask: Option<&Tensor>) -> (Tensor, Option<Tensor>) {
        hidden.cx().within(self.module, || {
            let (batch, seq, width) = (hidden.size(0), hidden.size(1), hidden.size(2));
            let shape = [batch, seq, self.heads, width / self.heads];
            let heads = |linear: &Linear| ops::transpose(&ops::view(&linear.forward(hidden), &shape), 1, 2);
            let rules = hidden.cx().machine().rules;
            // Until transformers 5 eager attention was in the class, and split the queries last at first.
            let own = self.core.implementation == Attention::Eager && !rules.has(&rules::ENCODERS_SHARE_MASK);
            let late = own && !rules.has(&rules::ENCODERS_SPLIT_QUERIES_FIRST);
            let split = |projected: &Tensor| ops::transpose(&ops::view(projected, &shape), 1, 2);
            let projected = self.query.forward(hidden);
            let (query, key, value);
            if late {
                key = heads(&self.key);
                value = heads(&self.value);
                query = split(&projected);
            } else {
                query = split(&projected);
                drop(projected);
                key = heads(&self.key);
                value = heads(&self.value);
            }
            if own {
                let (out, [scores, probabilities]) = self.core.forward_named([&query, &key, &value], mask);
                let out = ops::view(&out, &[batch, seq, width]);
                // Names go in the order in which they came.
                if late {
                    drop((key, value, query));
                } else {
                    drop((query, key, value));
                }
                drop(scores);
                return (out, (!late).then_some(probabilities));
            }
            let (out, weights) = self.core.forward([&query, &key, &value], mask, None, false);
            (ops::contiguous(&ops::reshape(&out, &[batch, seq, width])), weights)
        })
    }
}

/// `BertSelfOutput` and `BertOutput`: `LayerNorm(dropout(dense(hidden)) + input)`.
#[derive(Debug)]
pub struct AddAndNorm {
    dense: Linear,
    norm: LayerNorm,
    dropout: (f64, ModuleId),
    dropping: fn(&Tensor, f64) -> Tensor,
    module: ModuleId,
}

impl AddAndNorm {
    /// From `inputs` to `hidden` features.
    pub fn new(scope: &Scope, inputs: u64, hidden: u64, dropout: f64) -> Self {
        Self {
            dense: Linear::new(&scope.child("dense"), inputs, hidden, true),
            norm: LayerNorm::new(&scope.child("LayerNorm"), hidden, true),
            dropout: (dropout, scope.child("dropout").module()),
            dropping: ops::dropout,
            module: scope.module(),
        }
    }

    /// The same with a dropout of the model's own.
    pub fn dropping(self, dropping: fn(&Tensor, f64) -> Tensor) -> Self {
        Self { dropping, ..self }
    }

    /// `forward`.
    pub fn forward(&self, hidden: &Tensor, input: &Tensor) -> Tensor {
        let cx = hidden.cx();
        cx.within(self.module, || {
            let mut hidden = self.dense.forward(hidden);
            let (p, module) = self.dropout;
            hidden = cx.within(module, || (self.dropping)(&hidden, p));
            hidden = self.norm.forward(&ops::add(&hidden, input));
            hidden
        })
    }
}

/// `BertLayer`.
#[derive(Debug)]
struct Layer {
    attention: SelfAttention,
    attention_output: AddAndNorm,
    intermediate: Linear,
    act: Activation,
    output: AddAndNorm,
    modules: [ModuleId; 3],
}

impl Layer {
    fn new(scope: &Scope, sizes: &Sizes<'_>) -> Option<Self> {
        let attention = scope.child("attention");
        let intermediate = scope.child("intermediate");
        Some(Self {
            attention: SelfAttention::new(&attention.child("self"), sizes),
            attention_output: AddAndNorm::new(&attention.child("output"), sizes.hidden, sizes.hidden, sizes.dropout),
            intermediate: Linear::new(&intermediate.child("dense"), sizes.hidden, sizes.inner, true),
            act: Activation::new(&intermediate.child("intermediate_act_fn"), sizes.act)?,
            output: AddAndNorm::new(&scope.child("output"), sizes.inner, sizes.hidden, sizes.dropout),
            modules: [scope.module(), attention.module(), intermediate.module()],
        })
    }

    /// What comes out, and the probabilities that stand beside it.
    fn forward(&self, hidden: &Tensor, mask: Option<&Tensor>) -> (Tensor, Option<Tensor>) {
        let cx = hidden.cx();
        let [layer, attention, intermediate] = self.modules;
        let (hidden, mask) = (&cx.argument(layer, hidden), &cx.argument_if(layer, mask));
        let mask = mask.as_ref();
        cx.within(layer, || {
            // The probabilities stay bound to `_` until the layer returns.
            let (attended, weights) = cx.within(attention, || {
                let (out, weights) = self.attention.forward(hidden, mask);
                (self.attention_output.forward(&out, hidden), weights)
            });
            let out = {
                let inner = cx.within(intermediate, || {
                    let mut inner = self.intermediate.forward(&attended);
                    inner = self.act.forward(&inner);
                    inner
                });
                self.output.forward(&inner, &attended)
            };
            drop(attended);
            (out, weights)
        })
    }
}

/// `BertEncoder`.
#[derive(Debug)]
pub struct Encoder {
    layers: ModuleList<Layer>,
    plan: Plan,
}

impl Encoder {
    /// `num_hidden_layers` layers.
    ///
    /// # Errors
    /// An activation that is not known, too many layers.
    pub fn new(scope: &Scope, config: &Config<'_>, sizes: &Sizes<'_>, plan: &Plan) -> Result<Self> {
        let count = config.layers("num_hidden_layers", 12)?;
        let layers = ModuleList::new(scope, "layer", count, |scope, _| Layer::new(scope, sizes))
            .ok_or_else(|| super::unknown_activation(config, "hidden_act", sizes.act))?;
        Ok(Self { layers, plan: plan.clone() })
    }

    /// In what dtype a mask of numbers is: that of what words are embedded in, whose table has `weight`; for eager attention the model's own,
    /// before [`rules::ENCODERS_SHARE_MASK`].
    pub fn mask_dtype(&self, embeds: &Tensor, weight: &Tensor) -> DType {
        let shared = embeds.cx().machine().rules.has(&rules::ENCODERS_SHARE_MASK);
        if self.plan.attention == Attention::Eager && !shared { weight.dtype() } else { embeds.dtype() }
    }

    /// The mask in the form attention takes, or none, for words or what they are embedded in, with `dtype` where it is of numbers.
    /// Beside it, what it was made of where that has a name in the model's forward.
    pub fn mask(&self, of: &Tensor, dtype: DType, given: Option<&Tensor>) -> (Option<Tensor>, Option<Tensor>) {
        let (given, attention) = (causal_lm::given_mask(given, &self.plan), self.plan.attention);
        if of.cx().machine().rules.has(&rules::ENCODERS_SHARE_MASK) {
            (bidirectional_mask(of, given, dtype, attention), None)
        } else {
            let (mask, made_of) = older_padding_mask(of, dtype, given, attention);
            (mask, Some(made_of))
        }
    }

    /// `forward`.
    pub fn forward(&self, embeds: &Tensor, mask: Option<&Tensor>) -> Tensor {
        let cx = embeds.cx();
        let rules = cx.machine().rules;
        let returned = self.plan.attention == Attention::Eager
            && rules.has(&rules::ENCODERS_SPLIT_QUERIES_FIRST)
            && !rules.has(&rules::ENCODERS_SHARE_MASK);
        let run = |layer: &Rc<Layer>, hidden: Tensor| {
            if !cx.checkpoints(self.plan.checkpointing) {
                return layer.forward(&hidden, mask);
            }
            let layer = Rc::clone(layer);
            let inputs = std::iter::once(hidden).chain(mask.cloned()).collect();
            let function = move |inputs: &[Tensor]| {
                let (out, weights) = layer.forward(&inputs[0], inputs.get(1));
                std::iter::once(out).chain(weights.filter(|_| returned)).collect()
            };
            let mut outputs = checkpoint_all(cx, inputs, Rc::new(function)).into_iter();
            match outputs.next() {
                Some(out) => (out, outputs.next()),
                None => unreachable!("the function above returns its output first"),
            }
        };
        if !returned {
            return self.layers.run(cx, embeds.clone(), |_| (), |layer, hidden| run(layer, hidden).0);
        }
        let mut beside = None;
        self.layers.run_each(cx, embeds.clone(), |layer, hidden| {
            let (out, weights) = run(layer, hidden.clone());
            beside = weights;
            drop(hidden);
            out
        })
    }
}

/// Token ids, labels, one a token or one a sample for classification, and the attention mask where one is given.
pub fn batch(cx: &Rc<Context>, plan: &Plan, seq: u64) -> Batch {
    let batch = plan.input.batch;
    let tokens = || ops::empty(cx, &[batch, seq], DType::Int64);
    let classifies = plan.task == Task::SequenceClassification;
    let sizes = [batch, seq];
    let labels = |sizes| ops::labels(cx, sizes, DType::Int64);
    let made = Batch::of(tokens()).with(Field::Labels, labels(if classifies { &sizes[..1] } else { &sizes }));
    if plan.input.attention_mask == AttentionMask::None { made } else { made.with(Field::Mask, tokens()) }
}
