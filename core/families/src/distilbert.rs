//! DistilBERT (transformers `models/distilbert/modeling_distilbert.py`).

use std::rc::Rc;

use plimsoll_catalog::software::rules;
use plimsoll_ground::Result;
use plimsoll_scenario::{Attention, Task};
use plimsoll_torch::Batch;
use plimsoll_torch::nn::{
    Activation, Embedding, EncoderAttention, LayerNorm, Linear, ModuleList, Scope, bidirectional_mask,
    older_padding_mask,
};
use plimsoll_torch::ops::{self, Fill, Pointwise};
use plimsoll_torch::tensor::{Context, DType, ModuleId, Tensor, checkpoint};

use super::bert_encoder::{batch, check_positions};
use super::config::{Config, divide};
use super::{Model, Output, Plan, causal_lm, classification};

#[derive(Debug)]
struct Embeddings {
    word: Embedding,
    position: Embedding,
    norm: LayerNorm,
    dropout: (f64, ModuleId),
    /// An int64 buffer `[1, positions]`.
    position_ids: Tensor,
    /// Under adapters and checkpoints the words are a leaf that requires grad (`enable_input_require_grads`).
    leaf: bool,
    module: ModuleId,
}

impl Embeddings {
    fn forward(&self, ids: &Tensor) -> Tensor {
        let cx = ids.cx();
        cx.within(self.module, || {
            let words = self.word.forward(ids);
            let words = if self.leaf { words.into_required_output() } else { words };
            let positions = self.position.forward(&ops::narrow(&self.position_ids, 1, ids.size(1)));
            let mut embeddings = ops::add(&words, &positions);
            embeddings = self.norm.forward(&embeddings);
            let (p, module) = self.dropout;
            embeddings = cx.within(module, || ops::dropout(&embeddings, p));
            drop((words, positions));
            embeddings
        })
    }
}

/// `TransformerBlock`.
#[derive(Debug)]
struct Block {
    q_lin: Linear,
    k_lin: Linear,
    v_lin: Linear,
    out_lin: Linear,
    core: EncoderAttention,
    heads: u64,
    sa_layer_norm: LayerNorm,
    lin1: Linear,
    lin2: Linear,
    act: Activation,
    dropout: (f64, ModuleId),
    output_layer_norm: LayerNorm,
    modules: [ModuleId; 3],
}

impl Block {
    fn attention(&self, hidden: &Tensor, mask: Option<&Tensor>) -> (Tensor, Option<Tensor>) {
        let (batch, seq, width) = (hidden.size(0), hidden.size(1), hidden.size(2));
        let shape = [batch, seq, self.heads, width / self.heads];
        let heads = |linear: &Linear| ops::transpose(&ops::view(&linear.forward(hidden), &shape), 1, 2);
        let query = heads(&self.q_lin);
        let key = heads(&self.k_lin);
        let value = heads(&self.v_lin);
        let shares = hidden.cx().machine().rules.has(&rules::ENCODERS_SHARE_MASK);
        if let Some(mask) = mask.filter(|_| !shares && self.core.implementation == Attention::Eager) {
            return (self.older(query, [key, value], mask), None);
        }
        let (mut out, weights) = self.core.forward([&query, &key, &value], mask, None, false);
        out = ops::contiguous(&ops::reshape(&out, &[batch, seq, width]));
        out = self.out_lin.forward(&out);
        (out, weights)
    }

    /// `MultiHeadSelfAttention` before 5: the queries are scaled, and every layer looks for itself what the mask hides.
    /// What it has names for stays until the last linear is done.
    fn older(&self, mut query: Tensor, [key, value]: [Tensor; 2], mask: &Tensor) -> Tensor {
        query = ops::mul_scalar(&query);
        let mut scores = ops::matmul(&query, &ops::transpose(&key, 2, 3));
        let hidden = {
            let zero = ops::each(Pointwise::EqScalar, mask, DType::Bool);
            ops::expand(&ops::view(&zero, &[mask.size(0), 1, 1, mask.size(1)]), scores.dims())
        };
        scores = ops::masked_fill(&scores, &hidden);
        let mut weights = ops::softmax(&scores);
        weights = ops::dropout(&weights, self.core.dropout);
        let mut out = ops::contiguous(&ops::transpose(&ops::matmul(&weights, &value), 1, 2));
        out = self.out_lin.forward(&ops::view(&out, &[out.size(0), out.size(1), out.size(2) * out.size(3)]));
        drop((hidden, query, key, value, scores, weights));
        out
    }

    fn feed_forward(&self, input: &Tensor) -> Tensor {
        let mut x = self.lin1.forward(input);
        x = self.act.forward(&x);
        x = self.lin2.forward(&x);
        let (p, module) = self.dropout;
        x = input.cx().within(module, || ops::dropout(&x, p));
        x
    }

    fn forward(&self, hidden: &Tensor, mask: Option<&Tensor>) -> Tensor {
        let cx = hidden.cx();
        let [block, attention, ffn] = self.modules;
        let (hidden, mask) = (&cx.argument(block, hidden), &cx.argument_if(block, mask));
        let mask = mask.as_ref();
        cx.within(block, || {
            // The probabilities stay bound to `_` until the block returns.
            let (mut attended, weights) = cx.within(attention, || self.attention(hidden, mask));
            attended = self.sa_layer_norm.forward(&ops::add(&attended, hidden));
            let mut out = cx.within(ffn, || self.feed_forward(&attended));
            out = self.output_layer_norm.forward(&ops::add(&out, &attended));
            drop((attended, weights));
            out
        })
    }
}

#[derive(Debug)]
enum Head {
    /// `DistilBertForMaskedLM`.
    MaskedLm { transform: Linear, act: Activation, norm: LayerNorm, projector: Linear },
    /// `DistilBertForSequenceClassification`.
    SequenceClassification { pre_classifier: Linear, classifier: Linear, dropout: (f64, ModuleId) },
}

#[derive(Debug)]
struct DistilBert {
    cx: Rc<Context>,
    embeddings: Embeddings,
    layers: ModuleList<Block>,
    head: Head,
    module: ModuleId,
    seq: u64,
    plan: Plan,
}

/// `DistilBertForMaskedLM(config)` or `DistilBertForSequenceClassification(config)`.
pub fn build(scope: &Scope, config: &Config<'_>, plan: &Plan) -> Result<Box<dyn Model>> {
    let dim = config.size("dim", 768)?;
    let heads = config.size("n_heads", 12)?;
    divide(config, ("dim", dim), ("n_heads", heads))?;
    let count = config.layers("n_layers", 6)?;
    let inner = config.size("hidden_dim", 3072)?;
    let vocab = config.size("vocab_size", 30_522)?;
    let positions = config.size("max_position_embeddings", 512)?;
    let dropout = config.probability("dropout", 0.1)?;
    let act = config.text("activation", "gelu")?;
    let unknown = || super::unknown_activation(config, "activation", act);
    let core = EncoderAttention {
        implementation: plan.attention,
        rules: plan.rules.clone(),
        dropout: config.probability("attention_dropout", 0.1)?,
        softmax_fp32: false,
        shared_since: None,
    };
    let seq = plan.seq()?;
    check_positions(seq, positions, 0)?;
    let base = scope.child("distilbert");
    let embeddings = {
        let scope = base.child("embeddings");
        Embeddings {
            word: Embedding::new(&scope.child("word_embeddings"), vocab, dim),
            position: Embedding::new(&scope.child("position_embeddings"), positions, dim),
            norm: LayerNorm::new(&scope.child("LayerNorm"), dim, true),
            dropout: (dropout, scope.child("dropout").module()),
            position_ids: scope.buffer_of(&[1, positions], DType::Int64),
            leaf: plan.adapters && plan.checkpointing,
            module: scope.module(),
        }
    };
    let transformer = base.child("transformer");
    let block = |scope: &Scope, _| -> Option<Block> {
        let (attention, ffn) = (scope.child("attention"), scope.child("ffn"));
        let project = |name| Linear::new(&attention.child(name), dim, dim, true);
        Some(Block {
            q_lin: project("q_lin"),
            k_lin: project("k_lin"),
            v_lin: project("v_lin"),
            out_lin: project("out_lin"),
            core: core.clone(),
            heads,
            sa_layer_norm: LayerNorm::new(&scope.child("sa_layer_norm"), dim, true),
            lin1: Linear::new(&ffn.child("lin1"), dim, inner, true),
            lin2: Linear::new(&ffn.child("lin2"), inner, dim, true),
            act: Activation::new(&ffn.child("activation"), act)?,
            dropout: (dropout, ffn.child("dropout").module()),
            output_layer_norm: LayerNorm::new(&scope.child("output_layer_norm"), dim, true),
            modules: [scope.module(), attention.module(), ffn.module()],
        })
    };
    let layers = ModuleList::new(&transformer, "layer", count, block).ok_or_else(unknown)?;
    let head = if plan.task == Task::SequenceClassification {
        let labels = classification::num_labels(config, plan.task)?;
        let probability = config.probability("seq_classif_dropout", 0.2)?;
        Head::SequenceClassification {
            pre_classifier: Linear::new(&scope.child("pre_classifier"), dim, dim, true),
            classifier: Linear::new(&scope.child("classifier"), dim, labels, true),
            dropout: (probability, scope.child("dropout").module()),
        }
    } else {
        let transform = Linear::new(&scope.child("vocab_transform"), dim, dim, true);
        let norm = LayerNorm::new(&scope.child("vocab_layer_norm"), dim, true);
        let tied = config.flag("tie_word_embeddings", true)?;
        let projector = classification::projector(&scope.child("vocab_projector"), &embeddings.word, tied);
        let act = Activation::new(&scope.child("activation"), act).ok_or_else(unknown)?;
        Head::MaskedLm { transform, act, norm, projector }
    };
    Ok(Box::new(DistilBert {
        cx: Rc::clone(scope.cx()),
        embeddings,
        layers,
        head,
        module: base.module(),
        seq,
        plan: plan.clone(),
    }))
}

impl DistilBert {
    /// `DistilBertModel.forward`.
    fn base(&self, ids: &Tensor, mask: Option<&Tensor>) -> Tensor {
        self.cx.within(self.module, || {
            let embeds = self.embeddings.forward(ids);
            let given = causal_lm::given_mask(mask, &self.plan);
            let shares_mask = self.cx.machine().rules.has(&rules::ENCODERS_SHARE_MASK);
            let mask = if shares_mask {
                bidirectional_mask(&embeds, given, embeds.dtype(), self.plan.attention)
            } else if self.plan.attention == Attention::Eager {
                let ones = || ops::fill(&self.cx, Fill::Ones, ids.dims(), DType::Float32);
                Some(mask.cloned().unwrap_or_else(ones))
            } else {
                // The name of what was given, or made of ones, is taken.
                older_padding_mask(&embeds, embeds.dtype(), given, self.plan.attention).0
            };
            let hidden = self.layers.run(
                &self.cx,
                embeds.clone(),
                |_| (),
                |layer, hidden| {
                    if self.cx.checkpoints(self.plan.checkpointing) {
                        let layer = Rc::clone(layer);
                        let inputs = std::iter::once(hidden).chain(mask.clone()).collect();
                        checkpoint(&self.cx, inputs, Rc::new(move |inputs| layer.forward(&inputs[0], inputs.get(1))))
                    } else {
                        layer.forward(&hidden, mask.as_ref())
                    }
                },
            );
            drop((embeds, mask));
            hidden
        })
    }
}

impl Model for DistilBert {
    fn batch(&self) -> Batch {
        batch(&self.cx, &self.plan, self.seq)
    }

    fn forward(&self, batch: &Batch) -> Output {
        let (ids, mask, labels) = batch.parts();
        let hidden = self.base(ids, mask);
        let logits = match &self.head {
            Head::MaskedLm { transform, act, norm, projector } => {
                let mut x = transform.forward(&hidden);
                x = act.forward(&x);
                x = norm.forward(&x);
                x = projector.forward(&x);
                x
            }
            Head::SequenceClassification { pre_classifier, classifier, dropout: (p, module) } => {
                let mut pooled = ops::first(&hidden);
                pooled = pre_classifier.forward(&pooled);
                pooled = ops::relu(&pooled);
                pooled = self.cx.within(*module, || ops::dropout(&pooled, *p));
                classifier.forward(&pooled)
            }
        };
        let loss = classification::loss(&logits, labels);
        drop(hidden);
        Output { held: vec![loss.clone(), logits], loss }
    }
}
