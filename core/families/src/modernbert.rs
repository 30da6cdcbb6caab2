//! ModernBERT (transformers `models/modernbert/modeling_modernbert.py`).

use std::rc::Rc;

use plimsoll_catalog::software::rules;
use plimsoll_ground::Result;
use plimsoll_scenario::{Attention, Task};
use plimsoll_torch::Batch;
use plimsoll_torch::nn::{
    Activation, Embedding, EncoderAttention, LayerNorm, Linear, ModuleList, RotaryEmbedding, Scope,
    apply_rotary_pos_emb, apply_rotary_pos_emb_float, bidirectional_mask, older_cross_mask,
    sliding_window_bidirectional_mask,
};
use plimsoll_torch::ops::{self, Fill, Pointwise, Reduction};
use plimsoll_torch::tensor::{Context, DType, ModuleId, Tensor, checkpoint};

use super::config::{Config, divide};
use super::{Model, Output, Plan, bert_encoder, causal_lm, classification};

/// What the layers of one type share: their mask, and their rotary table or, where each has its own, the positions.
#[derive(Clone, Debug)]
struct Shared {
    mask: Option<Tensor>,
    turns: Turns,
}

/// By what queries and keys are turned.
#[derive(Clone, Debug)]
enum Turns {
    /// Cosines and sines that the model computed.
    Tables(Tensor, Tensor),
    /// Positions, of which each layer computes its own: before [`rules::MODERNBERT_ANGLES_ONCE`].
    Positions(Tensor),
}

#[derive(Clone, Copy, Debug)]
struct Sizes<'c> {
    hidden: u64,
    intermediate: u64,
    heads: u64,
    act: &'c str,
    norm_bias: bool,
    attention_bias: bool,
    mlp_bias: bool,
    attention_dropout: f64,
    mlp_dropout: f64,
}

/// `ModernBertEncoderLayer`.
#[derive(Debug)]
struct Layer {
    /// None in the first layer, whose input the embeddings have normed.
    attn_norm: Option<LayerNorm>,
    wqkv: Linear,
    /// None where the model has it.
    rotary_emb: Option<RotaryEmbedding>,
    attn_wo: Linear,
    core: EncoderAttention,
    heads: u64,
    mlp_norm: LayerNorm,
    wi: Linear,
    act: Activation,
    mlp_dropout: f64,
    wo: Linear,
    sliding: bool,
    attn: ModuleId,
    mlp: ModuleId,
    module: ModuleId,
}

impl Layer {
    /// The first layer has no norm, and some look through a window.
    const fn kind(&self) -> (bool, bool) {
        (self.attn_norm.is_some(), self.sliding)
    }

    fn new(scope: &Scope, sizes: &Sizes<'_>, plan: &Plan, first: bool, sliding: bool) -> Option<Self> {
        let (attn, mlp) = (scope.child("attn"), scope.child("mlp"));
        let (hidden, inner) = (sizes.hidden, sizes.intermediate);
        let norm = |name: &'static str| LayerNorm::new(&scope.child(name), hidden, sizes.norm_bias);
        Some(Self {
            attn_norm: (!first).then(|| norm("attn_norm")),
            wqkv: Linear::new(&attn.child("Wqkv"), hidden, 3 * hidden, sizes.attention_bias),
            rotary_emb: (!scope.cx().machine().rules.has(&rules::MODERNBERT_ANGLES_ONCE))
                .then(|| RotaryEmbedding::new(&attn.child("rotary_emb"), hidden / sizes.heads)),
            attn_wo: Linear::new(&attn.child("Wo"), hidden, hidden, sizes.attention_bias),
            core: EncoderAttention {
                implementation: plan.attention,
                rules: plan.rules.clone(),
                dropout: sizes.attention_dropout,
                softmax_fp32: true,
                shared_since: None,
            },
            heads: sizes.heads,
            mlp_norm: norm("mlp_norm"),
            wi: Linear::new(&mlp.child("Wi"), hidden, 2 * inner, sizes.mlp_bias),
            act: Activation::new(&mlp.child("act"), sizes.act)?,
            mlp_dropout: sizes.mlp_dropout,
            wo: Linear::new(&mlp.child("Wo"), inner, hidden, sizes.mlp_bias),
            sliding,
            attn: attn.module(),
            mlp: mlp.module(),
            module: scope.module(),
        })
    }

    fn attention(&self, hidden: &Tensor, shared: &Shared) -> (Tensor, Option<Tensor>) {
        hidden.cx().within(self.attn, || {
            let [batch, seq, width] = [hidden.size(0), hidden.size(1), hidden.size(2)];
            let qkv = ops::view(&self.wqkv.forward(hidden), &[batch, seq, 3, self.heads, width / self.heads]);
            let own = match (&self.rotary_emb, &shared.turns) {
                (Some(rotary), Turns::Positions(positions)) => Some(rotary.forward(&qkv, positions)),
                _ => None,
            };
            let parts = ops::unbind(&qkv, 2);
            let turned = |i: usize| ops::transpose(&parts[i], 1, 2);
            let value = turned(2);
            let (query, key) = match (&own, &shared.turns) {
                (Some((cos, sin)), _) => apply_rotary_pos_emb(&turned(0), &turned(1), cos, sin),
                (None, Turns::Tables(cos, sin)) => apply_rotary_pos_emb_float(&turned(0), &turned(1), cos, sin),
                // Who has no table of its own is given one.
                (None, Turns::Positions(_)) => (turned(0), turned(1)),
            };
            let (mut out, weights) = self.core.forward([&query, &key, &value], shared.mask.as_ref(), None, false);
            out = ops::contiguous(&ops::reshape(&out, &[batch, seq, width]));
            // Before, attention was a function of its own, whose names ended with it.
            let named = Some((query, key, own));
            let named = named.filter(|_| hidden.cx().machine().rules.has(&rules::MODERNBERT_RUNS_AS_WRITTEN));
            let projected = self.attn_wo.forward(&out);
            let dropped = ops::dropout(&projected, self.core.dropout);
            drop((qkv, named));
            (dropped, weights)
        })
    }

    fn feed_forward(&self, hidden: &Tensor) -> Tensor {
        hidden.cx().within(self.mlp, || {
            let parts = {
                let both = self.wi.forward(hidden);
                ops::split(&both, both.size(-1) / 2, -1)
            };
            let product = {
                let input = self.act.forward(&parts[0]);
                ops::mul(&input, &parts[1])
            };
            let dropped = ops::dropout(&product, self.mlp_dropout);
            drop(product);
            self.wo.forward(&dropped)
        })
    }

    fn forward(&self, hidden: &Tensor, shared: &Shared) -> Tensor {
        let cx = hidden.cx();
        let given = |tensor: &Tensor| cx.argument(self.module, tensor);
        let hidden = &given(hidden);
        let turns = match &shared.turns {
            Turns::Tables(cos, sin) => Turns::Tables(given(cos), given(sin)),
            Turns::Positions(positions) => Turns::Positions(given(positions)),
        };
        let shared = &Shared { mask: shared.mask.as_ref().map(given), turns };
        cx.within(self.module, || {
            // `_` is a name like any other: it holds the probabilities until the layer is done.
            let (attended, _weights) = {
                let normed = self.attn_norm.as_ref().map_or_else(|| hidden.clone(), |norm| norm.forward(hidden));
                self.attention(&normed, shared)
            };
            let mut hidden = ops::add(hidden, &attended);
            let out = {
                let normed = self.mlp_norm.forward(&hidden);
                self.feed_forward(&normed)
            };
            hidden = ops::add(&hidden, &out);
            hidden
        })
    }
}

/// What stands behind the prediction head.
#[derive(Debug)]
enum Head {
    /// `ModernBertForMaskedLM`: `decoder`, its weight the word embedding's or its own.
    MaskedLm { weight: Tensor, bias: Option<Tensor>, module: ModuleId },
    /// `ModernBertForSequenceClassification`: of the first token, or of the mean of all.
    SequenceClassification { mean: bool, drop: (f64, ModuleId), classifier: Box<Linear> },
}

#[derive(Debug)]
struct ModernBert {
    cx: Rc<Context>,
    tok_embeddings: Embedding,
    norm: LayerNorm,
    embedding_dropout: f64,
    layers: ModuleList<Layer>,
    final_norm: LayerNorm,
    full_rotary: Option<RotaryEmbedding>,
    sliding_rotary: Option<RotaryEmbedding>,
    dense: Linear,
    act: Activation,
    head_norm: LayerNorm,
    prediction: Head,
    window: u64,
    /// A padding token is known, and looked for where no mask is given.
    pads: bool,
    seq: u64,
    plan: Plan,
    embeddings: ModuleId,
    head: ModuleId,
    module: ModuleId,
}

/// `ModernBertForMaskedLM(config)` or `ModernBertForSequenceClassification(config)`.
pub fn build(scope: &Scope, config: &Config<'_>, plan: &Plan) -> Result<Box<dyn Model>> {
    let act = config.text("hidden_activation", "gelu")?;
    let sizes = Sizes {
        hidden: config.size("hidden_size", 768)?,
        intermediate: config.size("intermediate_size", 1152)?,
        heads: config.size("num_attention_heads", 12)?,
        act,
        norm_bias: config.flag("norm_bias", false)?,
        attention_bias: config.flag("attention_bias", false)?,
        mlp_bias: config.flag("mlp_bias", false)?,
        attention_dropout: config.probability("attention_dropout", 0.0)?,
        mlp_dropout: config.probability("mlp_dropout", 0.0)?,
    };
    let head_dim = divide(config, ("hidden_size", sizes.hidden), ("num_attention_heads", sizes.heads))?;
    if !head_dim.is_multiple_of(2) {
        return Err(config.error(
            "num_attention_heads",
            format!("rotary embeddings turn pairs, but a head has {head_dim} dimensions"),
            "choose sizes that give an even head size",
        ));
    }
    if config.flag("sparse_prediction", false)? {
        return Err(config.error("sparse_prediction", "is not estimated yet", "set it to false"));
    }
    let count = config.layers("num_hidden_layers", 22)?;
    let vocab = config.size("vocab_size", 50_368)?;
    let model = scope.child("model");
    let place = model.child("embeddings");
    let tok_embeddings = Embedding::new(&place.child("tok_embeddings"), vocab, sizes.hidden);
    let norm = LayerNorm::new(&place.child("norm"), sizes.hidden, sizes.norm_bias);
    // Only their neighbourhood see those that the config lists so, or all but every third.
    let listed = config.layer_types(count, causal_lm::WINDOWED)?;
    let every = config.size("global_attn_every_n_layers", 3)?;
    let slides = |i: u64| match &listed {
        Some(types) => types.get(i as usize) == Some(&"sliding_attention"),
        None => !i.is_multiple_of(every),
    };
    let layers = ModuleList::try_new(&model, "layers", count, |scope, i| {
        let layer = Layer::new(scope, &sizes, plan, i == 0, slides(i));
        layer.ok_or_else(|| super::unknown_activation(config, "hidden_activation", act))
    })?;
    let final_norm = LayerNorm::new(&model.child("final_norm"), sizes.hidden, sizes.norm_bias);
    let once = scope.cx().machine().rules.has(&rules::MODERNBERT_ANGLES_ONCE);
    let rotary = |sliding| {
        let model = once.then_some(&model)?;
        layers.iter().any(|l| l.sliding == sliding).then(|| RotaryEmbedding::new(&model.child("rotary_emb"), head_dim))
    };
    let (full_rotary, sliding_rotary) = (rotary(false), rotary(true));
    let head = scope.child("head");
    let act = config.text("classifier_activation", "gelu")?;
    let dense = Linear::new(&head.child("dense"), sizes.hidden, sizes.hidden, config.flag("classifier_bias", false)?);
    let head_act = Activation::new(&head.child("act"), act)
        .ok_or_else(|| super::unknown_activation(config, "classifier_activation", act))?;
    let head_norm = LayerNorm::new(&head.child("norm"), sizes.hidden, sizes.norm_bias);
    let prediction = if plan.task == Task::SequenceClassification {
        Head::SequenceClassification {
            mean: match config.text("classifier_pooling", "cls")? {
                "cls" => false,
                "mean" => true,
                other => {
                    let problem = format!("there is no pooling {other:?}");
                    return Err(config.error("classifier_pooling", problem, "give \"cls\" or \"mean\""));
                }
            },
            drop: (config.probability("classifier_dropout", 0.0)?, scope.child("drop").module()),
            classifier: {
                let labels = classification::num_labels(config, plan.task)?;
                Box::new(Linear::new(&scope.child("classifier"), sizes.hidden, labels, true))
            },
        }
    } else {
        let place = scope.child("decoder");
        let tied = config.flag("tie_word_embeddings", true)?;
        let weight = if tied {
            place.shares(tok_embeddings.weight());
            tok_embeddings.weight().clone()
        } else {
            place.parameter(&[vocab, sizes.hidden])
        };
        let bias = config.flag("decoder_bias", true)?.then(|| place.parameter(&[vocab]));
        Head::MaskedLm { weight, bias, module: place.module() }
    };
    Ok(Box::new(ModernBert {
        cx: Rc::clone(scope.cx()),
        tok_embeddings,
        norm,
        embedding_dropout: config.probability("embedding_dropout", 0.0)?,
        layers,
        final_norm,
        full_rotary,
        sliding_rotary,
        dense,
        act: head_act,
        head_norm,
        prediction,
        window: config.size("local_attention", 128)? / 2,
        pads: config.has("pad_token_id") || !config.mentions("pad_token_id"),
        seq: plan.seq()?,
        plan: plan.clone(),
        embeddings: model.child("embeddings").module(),
        head: head.module(),
        module: model.module(),
    }))
}

impl ModernBert {
    /// `ModernBertPredictionHead.forward`.
    fn predict(&self, hidden: &Tensor) -> Tensor {
        self.cx.within(self.head, || {
            let dense = self.act.forward(&self.dense.forward(hidden));
            self.head_norm.forward(&dense)
        })
    }

    /// What was done before [`rules::MODERNBERT_RUNS_AS_WRITTEN`] where no mask was given: one of ones.
    fn looks_for_padding(&self, ids: &Tensor) -> Tensor {
        if self.pads {
            causal_lm::warn_if_padding_and_no_attention_mask(ids);
        }
        ops::fill(&self.cx, Fill::Ones, ids.dims(), DType::Bool)
    }

    /// `_update_attention_mask`: the mask in numbers for every query, and the same with what is far away hidden.
    fn numbers(&self, mask: Option<&Tensor>) -> [Option<Tensor>; 2] {
        let (seq, dtype) = (self.seq, self.tok_embeddings.weight().dtype());
        let full = mask.and_then(|mask| older_cross_mask((mask, false), seq, dtype, Attention::Eager));
        let near = full.as_ref().map(|full| {
            // Distances are counted by the host.
            let window = ops::fill(&self.cx, Fill::ToCopy, &[1, 1, seq, seq], DType::Bool);
            let outside = ops::each(Pointwise::BitwiseNot, &window, DType::Bool);
            ops::pointwise(Pointwise::MaskedFillScalar, full, &[&outside], full.dims(), dtype)
        });
        [full, near]
    }

    /// `ModernBertModel.forward`: the last hidden state.
    fn base(&self, ids: &Tensor, mask: Option<&Tensor>) -> Tensor {
        let cx = &self.cx;
        cx.within(self.module, || {
            let older = !cx.machine().rules.has(&rules::MODERNBERT_RUNS_AS_WRITTEN);
            let ones = (older && mask.is_none()).then(|| self.looks_for_padding(ids));
            let position_ids = ops::unsqueeze(&ops::arange(cx, self.seq), 0);
            let early = older.then(|| self.numbers(mask.or(ones.as_ref())));
            drop(ones);
            let mut hidden = cx.within(self.embeddings, || {
                let normed = {
                    let embeds = causal_lm::input_embeddings(&self.tok_embeddings, ids, &self.plan);
                    self.norm.forward(&embeds)
                };
                ops::dropout(&normed, self.embedding_dropout)
            });
            let embeds = hidden.clone();
            let [full, near] = early.unwrap_or_else(|| {
                let (attention, dtype) = (self.plan.attention, hidden.dtype());
                let padding = causal_lm::given_mask(mask, &self.plan);
                let full = bidirectional_mask(&hidden, padding, dtype, attention);
                [full, sliding_window_bidirectional_mask(&hidden, padding, dtype, attention, self.window)]
            });
            // `attention_mask_mapping` holds a mask that no layer reads too.
            let masks = (full.clone(), near.clone());
            // `mask_kwargs` holds what the layers begin with.
            let embeds = (!older).then_some(embeds);
            let shared = |rotary: &Option<RotaryEmbedding>, mask| {
                let turns = if cx.machine().rules.has(&rules::MODERNBERT_ANGLES_ONCE) {
                    let (cos, sin) = rotary.as_ref()?.forward(&hidden, &position_ids);
                    Turns::Tables(cos, sin)
                } else {
                    Turns::Positions(position_ids.clone())
                };
                Some(Shared { mask, turns })
            };
            let full = shared(&self.full_rotary, full);
            let near = shared(&self.sliding_rotary, near);
            hidden = self.layers.run(cx, hidden, Layer::kind, |layer, hidden| {
                let Some(shared) = (if layer.sliding { &near } else { &full }) else { return hidden };
                if cx.checkpoints(self.plan.checkpointing) {
                    let (layer, shared) = (Rc::clone(layer), shared.clone());
                    checkpoint(cx, vec![hidden], Rc::new(move |inputs| layer.forward(&inputs[0], &shared)))
                } else {
                    layer.forward(&hidden, shared)
                }
            });
            hidden = self.final_norm.forward(&hidden);
            drop((position_ids, masks, embeds));
            hidden
        })
    }
}

impl Model for ModernBert {
    fn batch(&self) -> Batch {
        match self.prediction {
            Head::MaskedLm { .. } => causal_lm::batch(&self.cx, &self.plan, self.seq),
            Head::SequenceClassification { .. } => bert_encoder::batch(&self.cx, &self.plan, self.seq),
        }
    }

    fn forward(&self, batch: &Batch) -> Output {
        let cx = &self.cx;
        match &self.prediction {
            Head::MaskedLm { weight, bias, module } => {
                let (ids, mask, labels) = batch.parts();
                let hidden = self.base(ids, mask);
                let logits = {
                    let transformed = self.predict(&hidden);
                    cx.within(*module, || ops::linear(&transformed, weight, bias.as_ref()))
                };
                // ForMaskedLMLoss, where the model is given the labels.
                let loss = if cx.is_inference() {
                    logits.clone()
                } else if classification::is_outside(cx) {
                    ops::no_loss(&logits)
                } else {
                    classification::loss(&ops::to(&logits, DType::Float32), labels)
                };
                drop(hidden);
                Output { held: vec![loss.clone(), logits], loss }
            }
            Head::SequenceClassification { mean, drop: (p, module), classifier } => {
                let (ids, given, labels) = batch.parts();
                let older = !cx.machine().rules.has(&rules::MODERNBERT_RUNS_AS_WRITTEN);
                let made = (older && given.is_none()).then(|| self.looks_for_padding(ids));
                let mask = given.or(made.as_ref());
                let hidden = self.base(ids, mask);
                let (pooled, named) = if *mean { mean_of(&hidden, mask) } else { (ops::select(&hidden, 1), None) };
                let mut predicted = self.predict(&pooled);
                predicted = cx.within(*module, || ops::dropout(&predicted, *p));
                let logits = classifier.forward(&predicted);
                let loss = classification::loss(&logits, labels);
                drop((hidden, pooled, named, predicted, made));
                Output { held: vec![loss.clone(), logits], loss }
            }
        }
    }
}

/// The mean of the states whose tokens are real, and the mask, made of ones where none is given.
fn mean_of(hidden: &Tensor, mask: Option<&Tensor>) -> (Tensor, Option<Tensor>) {
    let cx = hidden.cx();
    let sizes = [hidden.size(0), hidden.size(1)];
    let mask = mask.cloned().unwrap_or_else(|| ops::fill(cx, Fill::Ones, &sizes, DType::Bool));
    let sum = {
        let real = ops::mul(hidden, &ops::unsqueeze(&mask, -1));
        ops::sum_middle(&real)
    };
    let count = ops::reduction(Reduction::SumDimIntList, &mask, &[sizes[0], 1], DType::Int64);
    let mean = ops::div(&sum, &count);
    (mean, Some(mask))
}
