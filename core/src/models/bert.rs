//! BERT (transformers `models/bert/modeling_bert.py`).

use std::rc::Rc;

use super::config::{Config, divide};
use super::{Model, Output, Plan, causal_lm, classification};
use crate::nn::{Activation, BidirectionalAttention, Embedding, LayerNorm, Linear, Scope, bidirectional_mask};
use crate::ops;
use crate::scenario::{AttentionMask, Task};
use crate::tensor::{Context, DType, ModuleId, Tensor, checkpoint};
use crate::{Error, Result};

/// The sizes and probabilities the modules are built from.
struct Sizes<'c> {
    vocab: u64,
    hidden: u64,
    inner: u64,
    heads: u64,
    positions: u64,
    types: u64,
    dropout: f64,
    act: &'c str,
    attention: BidirectionalAttention,
}

#[derive(Debug)]
struct Embeddings {
    word: Embedding,
    position: Embedding,
    token_type: Embedding,
    norm: LayerNorm,
    dropout: (f64, ModuleId),
    /// Two int64 buffers `[1, positions]`.
    position_ids: Tensor,
    token_type_ids: Tensor,
    module: ModuleId,
}

impl Embeddings {
    fn new(scope: &Scope, sizes: &Sizes<'_>) -> Self {
        let table = |name, rows| Embedding::new(&scope.child(name), rows, sizes.hidden);
        Self {
            word: table("word_embeddings", sizes.vocab),
            position: table("position_embeddings", sizes.positions),
            token_type: table("token_type_embeddings", sizes.types),
            norm: LayerNorm::new(&scope.child("LayerNorm"), sizes.hidden, true),
            dropout: (sizes.dropout, scope.child("dropout").module()),
            position_ids: scope.buffer_of(&[1, sizes.positions], DType::Int64),
            token_type_ids: scope.buffer_of(&[1, sizes.positions], DType::Int64),
            module: scope.module(),
        }
    }

    fn forward(&self, ids: &Tensor) -> Tensor {
        let cx = ids.cx();
        cx.within(self.module, || {
            let (batch, seq) = (ids.size(0), ids.size(1));
            let position_ids = ops::narrow(&self.position_ids, 1, seq);
            // torch.gather(self.token_type_ids, 1, position_ids)
            debug_assert_eq!(self.token_type_ids.size(0), 1);
            let gathered = ops::fresh(cx, "gather", &[1, seq], DType::Int64);
            let token_type_ids = ops::expand(&gathered, &[batch, seq]);
            let words = self.word.forward(ids);
            let types = self.token_type.forward(&token_type_ids);
            let mut embeddings = ops::add(&words, &types);
            let positions = self.position.forward(&position_ids);
            embeddings = ops::add(&embeddings, &positions);
            embeddings = self.norm.forward(&embeddings);
            let (p, module) = self.dropout;
            embeddings = cx.within(module, || ops::dropout(&embeddings, p));
            drop((words, types, positions));
            embeddings
        })
    }
}

/// `BertSelfAttention`.
#[derive(Debug)]
struct SelfAttention {
    query: Linear,
    key: Linear,
    value: Linear,
    core: BidirectionalAttention,
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
            let query = heads(&self.query);
            let key = heads(&self.key);
            let value = heads(&self.value);
            let (out, weights) = self.core.forward(&query, &key, &value, mask);
            (ops::contiguous(&ops::reshape(&out, &[batch, seq, width])), weights)
        })
    }
}

/// `BertSelfOutput` and `BertOutput`: `LayerNorm(dropout(dense(hidden)) + input)`.
#[derive(Debug)]
struct AddAndNorm {
    dense: Linear,
    norm: LayerNorm,
    dropout: (f64, ModuleId),
    module: ModuleId,
}

impl AddAndNorm {
    fn new(scope: &Scope, inputs: u64, sizes: &Sizes<'_>) -> Self {
        Self {
            dense: Linear::new(&scope.child("dense"), inputs, sizes.hidden, true),
            norm: LayerNorm::new(&scope.child("LayerNorm"), sizes.hidden, true),
            dropout: (sizes.dropout, scope.child("dropout").module()),
            module: scope.module(),
        }
    }

    fn forward(&self, hidden: &Tensor, input: &Tensor) -> Tensor {
        let cx = hidden.cx();
        cx.within(self.module, || {
            let mut hidden = self.dense.forward(hidden);
            let (p, module) = self.dropout;
            hidden = cx.within(module, || ops::dropout(&hidden, p));
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
            attention_output: AddAndNorm::new(&attention.child("output"), sizes.hidden, sizes),
            intermediate: Linear::new(&intermediate.child("dense"), sizes.hidden, sizes.inner, true),
            act: Activation::new(&intermediate.child("intermediate_act_fn"), sizes.act)?,
            output: AddAndNorm::new(&scope.child("output"), sizes.inner, sizes),
            modules: [scope.module(), attention.module(), intermediate.module()],
        })
    }

    fn forward(&self, hidden: &Tensor, mask: Option<&Tensor>) -> Tensor {
        let cx = hidden.cx();
        let [layer, attention, intermediate] = self.modules;
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
            drop((attended, weights));
            out
        })
    }
}

/// `BertPooler`: the first token's state through a linear and a tanh.
#[derive(Debug)]
struct Pooler {
    dense: Linear,
    modules: [ModuleId; 2],
}

impl Pooler {
    fn new(scope: &Scope, hidden: u64) -> Self {
        Self {
            dense: Linear::new(&scope.child("dense"), hidden, hidden, true),
            modules: [scope.module(), scope.child("activation").module()],
        }
    }

    fn forward(&self, hidden: &Tensor) -> Tensor {
        let cx = hidden.cx();
        cx.within(self.modules[0], || {
            let pooled = self.dense.forward(&ops::select(hidden, 1));
            cx.within(self.modules[1], || ops::tanh(&pooled))
        })
    }
}

/// `BertPredictionHeadTransform`.
#[derive(Debug)]
struct Transform {
    dense: Linear,
    act: Activation,
    norm: LayerNorm,
    module: ModuleId,
}

impl Transform {
    fn forward(&self, hidden: &Tensor) -> Tensor {
        hidden.cx().within(self.module, || {
            let mut hidden = self.dense.forward(hidden);
            hidden = self.act.forward(&hidden);
            hidden = self.norm.forward(&hidden);
            hidden
        })
    }
}

#[derive(Debug)]
enum Head {
    /// `BertForMaskedLM`.
    MaskedLm { transform: Transform, decoder: Linear, module: ModuleId },
    /// `BertForSequenceClassification`.
    SequenceClassification { dropout: (f64, ModuleId), classifier: Linear },
}

#[derive(Debug)]
struct Bert {
    cx: Rc<Context>,
    embeddings: Embeddings,
    layers: Vec<Rc<Layer>>,
    pooler: Option<Pooler>,
    head: Head,
    module: ModuleId,
    seq: u64,
    plan: Plan,
}

/// `BertForMaskedLM(config)` or `BertForSequenceClassification(config)`.
pub fn build(scope: &Scope, config: &Config<'_>, plan: &Plan) -> Result<Box<dyn Model>> {
    for unsupported in ["add_cross_attention", "is_decoder"] {
        if config.flag(unsupported, false)? {
            return Err(config.error(unsupported, "is not estimated yet", "set it to false"));
        }
    }
    let dropout = config.probability("hidden_dropout_prob", 0.1)?;
    let act = config.text("hidden_act", "gelu")?;
    let sizes = Sizes {
        vocab: config.size("vocab_size", 30_522)?,
        hidden: config.size("hidden_size", 768)?,
        inner: config.size("intermediate_size", 3072)?,
        heads: config.size("num_attention_heads", 12)?,
        positions: config.size("max_position_embeddings", 512)?,
        types: config.size("type_vocab_size", 2)?,
        dropout,
        act,
        attention: BidirectionalAttention {
            implementation: plan.attention,
            rules: plan.rules.clone(),
            dropout: config.probability("attention_probs_dropout_prob", 0.1)?,
            softmax_fp32: false,
        },
    };
    divide(config, ("hidden_size", sizes.hidden), ("num_attention_heads", sizes.heads))?;
    let count = config.layers("num_hidden_layers", 12)?;
    let seq = plan.seq()?;
    if seq > sizes.positions {
        return Err(Error::new(
            "input.seq",
            format!("{seq} tokens, but the model has {} position embeddings", sizes.positions),
            format!("use at most {}", sizes.positions),
        ));
    }
    let unknown = || super::unknown_activation(config, "hidden_act", act);
    let bert = scope.child("bert");
    let embeddings = Embeddings::new(&bert.child("embeddings"), &sizes);
    let encoder = bert.child("encoder");
    let layers = (0..count)
        .map(|i| Layer::new(&encoder.item("layer", i), &sizes).map(Rc::new))
        .collect::<Option<Vec<_>>>()
        .ok_or_else(unknown)?;
    let classifies = plan.task == Task::SequenceClassification;
    let pooler = classifies.then(|| Pooler::new(&bert.child("pooler"), sizes.hidden));
    let head = match plan.task {
        Task::SequenceClassification => {
            let labels = classification::num_labels(config, plan.task)?;
            let probability = config.probability("classifier_dropout", dropout)?;
            Head::SequenceClassification {
                dropout: (probability, scope.child("dropout").module()),
                classifier: Linear::new(&scope.child("classifier"), sizes.hidden, labels, true),
            }
        }
        _ => masked_lm(scope, config, &sizes, &embeddings.word)?.ok_or_else(unknown)?,
    };
    Ok(Box::new(Bert {
        cx: Rc::clone(scope.cx()),
        embeddings,
        layers,
        pooler,
        head,
        module: bert.module(),
        seq,
        plan: plan.clone(),
    }))
}

/// `BertOnlyMLMHead`: the decoder's weight is the word embedding's, its bias the head's own.
fn masked_lm(scope: &Scope, config: &Config<'_>, sizes: &Sizes<'_>, words: &Embedding) -> Result<Option<Head>> {
    let cls = scope.child("cls");
    let predictions = cls.child("predictions");
    let place = predictions.place();
    let transform = predictions.child("transform");
    let dense = Linear::new(&transform.child("dense"), sizes.hidden, sizes.hidden, true);
    let Some(act) = Activation::new(&transform.child("transform_act_fn"), sizes.act) else { return Ok(None) };
    let norm = LayerNorm::new(&transform.child("LayerNorm"), sizes.hidden, true);
    let transform = Transform { dense, act, norm, module: transform.module() };
    let decoder = predictions.child("decoder");
    let decoder = if config.flag("tie_word_embeddings", true)? {
        let bias = predictions.own_parameter(place, &[sizes.vocab]);
        Linear::tied_with_bias(&decoder, words.weight(), bias)
    } else {
        let decoder = Linear::new(&decoder, sizes.hidden, sizes.vocab, true);
        // Nothing uses it then, but it is there.
        predictions.own_parameter(place, &[sizes.vocab]);
        decoder
    };
    Ok(Some(Head::MaskedLm { transform, decoder, module: predictions.module() }))
}

impl Bert {
    /// `BertModel.forward`: the last hidden state and the pooled one.
    fn base(&self, ids: &Tensor, mask: Option<&Tensor>) -> (Tensor, Option<Tensor>) {
        self.cx.within(self.module, || {
            let embeds = self.embeddings.forward(ids);
            // A frozen model's checkpoints would have no gradient (`enable_input_require_grads`).
            let embeds = if self.plan.adapters && self.plan.checkpointing { embeds.into_leaf(true) } else { embeds };
            let given = causal_lm::given_mask(mask, &self.plan);
            let mask = bidirectional_mask(&embeds, given, self.plan.attention);
            let mut hidden = embeds.clone();
            for layer in &self.layers {
                hidden = if self.plan.checkpointing {
                    let layer = Rc::clone(layer);
                    let inputs = std::iter::once(hidden).chain(mask.clone()).collect();
                    checkpoint(&self.cx, inputs, Rc::new(move |inputs| layer.forward(&inputs[0], inputs.get(1))))
                } else {
                    layer.forward(&hidden, mask.as_ref())
                };
            }
            let pooled = self.pooler.as_ref().map(|pooler| pooler.forward(&hidden));
            drop((embeds, mask));
            (hidden, pooled)
        })
    }
}

impl Model for Bert {
    fn batch(&self) -> Vec<Tensor> {
        let batch = self.plan.input.batch;
        let tokens = || ops::empty(&self.cx, &[batch, self.seq], DType::Int64);
        let mut tensors = vec![tokens()];
        if self.plan.input.attention_mask != AttentionMask::None {
            tensors.push(tokens());
        }
        tensors.push(match self.head {
            Head::MaskedLm { .. } => tokens(),
            Head::SequenceClassification { .. } => ops::empty(&self.cx, &[batch], DType::Int64),
        });
        tensors
    }

    fn forward(&self, batch: &[Tensor]) -> Output {
        let cx = &self.cx;
        let (ids, labels) = (&batch[0], &batch[batch.len() - 1]);
        let mask = (batch.len() == 3).then(|| &batch[1]);
        let (hidden, mut pooled) = self.base(ids, mask);
        let logits = match &self.head {
            Head::MaskedLm { transform, decoder, module } => cx.within(*module, || {
                let transformed = transform.forward(&hidden);
                decoder.forward(&transformed)
            }),
            Head::SequenceClassification { dropout: (p, module), classifier } => {
                pooled = pooled.map(|pooled| cx.within(*module, || ops::dropout(&pooled, *p)));
                classifier.forward(pooled.as_ref().unwrap_or(&hidden))
            }
        };
        let loss = classification::loss(&logits, labels);
        drop((hidden, pooled));
        Output { held: vec![loss.clone(), logits], loss }
    }
}
