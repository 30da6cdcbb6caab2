//! DeBERTa v2 and v3 (transformers `models/deberta_v2/modeling_deberta_v2.py`). It has no sdpa: attention is eager
//! whatever is asked for.

use std::rc::Rc;

use plimsoll_catalog::software::rules;
use plimsoll_ground::Result;
use plimsoll_torch::Batch;
use plimsoll_torch::nn::{Activation, Conv1d, Embedding, LayerNorm, Linear, Scope};
use plimsoll_torch::ops::{self, Fill, Pointwise};
use plimsoll_torch::tensor::{Context, DType, ModuleId, Tensor, checkpoint};

use super::bert_encoder::{AddAndNorm, batch, check_positions};
use super::config::Config;
use super::deberta_attention::{Disentangled, DisentangledSelfAttention, dropout, relative_positions};
use super::deberta_head::Head;
use super::{Model, Output, Plan, causal_lm};

/// `mask.unsqueeze(2).to(x.dtype)`, multiplied into x.
fn masked(x: &Tensor, mask: &Tensor) -> Tensor {
    let mask = ops::to(&ops::unsqueeze(mask, 2), x.dtype());
    ops::mul(x, &mask)
}

/// `DebertaV2Embeddings`.
#[derive(Debug)]
struct Embeddings {
    word: Embedding,
    position: Option<Embedding>,
    token_type: Option<Embedding>,
    embed_proj: Option<Linear>,
    norm: LayerNorm,
    dropout: (f64, ModuleId),
    position_ids: Tensor,
    module: ModuleId,
    plan: Plan,
}

impl Embeddings {
    fn forward(&self, ids: &Tensor, token_type_ids: &Tensor, mask: &Tensor) -> Tensor {
        let cx = ids.cx();
        cx.within(self.module, || {
            let words = causal_lm::as_input(self.word.forward(ids), &self.plan);
            let positions = match &self.position {
                Some(table) => table.forward(&ops::narrow(&self.position_ids, 1, ids.size(1))),
                None => ops::fill(cx, Fill::ZerosLike, words.dims(), words.dtype()),
            };
            let mut embeddings = words.clone();
            let in_place = !cx.machine().rules.has(&rules::DEBERTA_ADDS_EMBEDDINGS_APART);
            let add = |embeddings: Tensor, more: &Tensor| {
                if in_place { ops::add_in_place(embeddings, more) } else { ops::add(&embeddings, more) }
            };
            if self.position.is_some() {
                embeddings = add(embeddings, &positions);
            }
            let types = self.token_type.as_ref().map(|table| table.forward(token_type_ids));
            if let Some(types) = &types {
                embeddings = add(embeddings, types);
            }
            if let Some(project) = &self.embed_proj {
                embeddings = project.forward(&embeddings);
            }
            embeddings = self.norm.forward(&embeddings);
            let mask = ops::to(&ops::unsqueeze(mask, 2), embeddings.dtype());
            embeddings = ops::mul(&embeddings, &mask);
            let (p, module) = self.dropout;
            embeddings = cx.within(module, || dropout(&embeddings, p));
            drop((words, positions, types, mask));
            embeddings
        })
    }
}

/// What every layer but its input is handed; relative positions and their embeddings come by keyword.
#[derive(Clone, Debug)]
struct Shared {
    mask: Tensor,
    relative: Option<(Tensor, Tensor)>,
}

/// `DebertaV2Layer`.
#[derive(Debug)]
struct Layer {
    attention: DisentangledSelfAttention,
    attention_output: AddAndNorm,
    intermediate: Linear,
    act: Activation,
    output: AddAndNorm,
    modules: [ModuleId; 3],
}

impl Layer {
    fn new(scope: &Scope, config: &Disentangled, inner: u64, act: &str) -> Option<Self> {
        let (attention, intermediate) = (scope.child("attention"), scope.child("intermediate"));
        let norm = |scope: &Scope, inputs| {
            AddAndNorm::new(&scope.child("output"), inputs, config.hidden, config.hidden_dropout).dropping(dropout)
        };
        Some(Self {
            attention: DisentangledSelfAttention::new(&attention.child("self"), config),
            attention_output: norm(&attention, config.hidden),
            intermediate: Linear::new(&intermediate.child("dense"), config.hidden, inner, true),
            act: Activation::new(&intermediate.child("intermediate_act_fn"), act)?,
            output: norm(scope, inner),
            modules: [scope.module(), attention.module(), intermediate.module()],
        })
    }

    fn forward(&self, hidden: &Tensor, mask: &Tensor, relative: Option<&(Tensor, Tensor)>) -> Tensor {
        let cx = hidden.cx();
        let [layer, attention, intermediate] = self.modules;
        let (hidden, mask) = (&cx.argument(layer, hidden), &cx.argument(layer, mask));
        let relative = relative.map(|(at, table)| (at, cx.argument(layer, table)));
        cx.within(layer, || {
            let attended = cx.within(attention, || {
                let out = self.attention.forward(hidden, mask, relative.as_ref().map(|(at, table)| (*at, table)));
                self.attention_output.forward(&out, hidden)
            });
            let inner = cx.within(intermediate, || {
                let mut inner = self.intermediate.forward(&attended);
                inner = self.act.forward(&inner);
                inner
            });
            self.output.forward(&inner, &attended)
        })
    }
}

/// `ConvLayer`: beside the first layer, from the embeddings.
#[derive(Debug)]
struct ConvLayer {
    conv: Conv1d,
    act: Activation,
    norm: LayerNorm,
    dropout: (f64, ModuleId),
    module: ModuleId,
}

impl ConvLayer {
    fn forward(&self, embeds: &Tensor, residual: &Tensor, mask: &Tensor) -> Tensor {
        let cx = embeds.cx();
        cx.within(self.module, || {
            let turned = |x: &Tensor| ops::contiguous(&ops::permute(x, &[0, 2, 1]));
            let mut out = {
                let channels = turned(embeds);
                self.conv.forward(&channels)
            };
            out = turned(&out);
            let padding = {
                let _rest = ops::each(Pointwise::RsubScalar, mask, mask.dtype());
                ops::each(Pointwise::ToCopy, mask, DType::Bool)
            };
            out = ops::masked_fill_in_place(out, &ops::expand(&ops::unsqueeze(&padding, -1), embeds.dims()));
            out = {
                let (p, module) = self.dropout;
                let dropped = cx.within(module, || dropout(&out, p));
                self.act.forward(&dropped)
            };
            let sum = ops::add(residual, &out);
            let normed = ops::to(&self.norm.forward(&sum), sum.dtype());
            let states = masked(&normed, mask);
            drop((out, padding, sum));
            states
        })
    }
}

/// `DebertaV2Encoder`.
#[derive(Debug)]
struct Encoder {
    layers: Vec<Rc<Layer>>,
    /// The relative embeddings and whether positions are put into buckets.
    relative: Option<(Embedding, bool)>,
    norm: Option<LayerNorm>,
    conv: Option<ConvLayer>,
    module: ModuleId,
    plan: Plan,
}

impl Encoder {
    /// `forward`: every hidden state, as the model asks for all of them whoever asks the model.
    fn forward(&self, embeds: Tensor, given: &Tensor) -> Vec<Tensor> {
        let cx = embeds.cx();
        cx.within(self.module, || {
            let (batch, seq) = (embeds.size(0), embeds.size(1));
            let mask = ops::pointwise(Pointwise::MulTensor, given, &[given], &[batch, 1, seq, seq], given.dtype());
            let positions = self.relative.as_ref().map(|(_, buckets)| relative_positions(cx, seq, *buckets));
            let table = self.relative.as_ref().map(|(table, _)| {
                // `self.rel_embeddings.weight`
                cx.read(table.weight());
                match &self.norm {
                    Some(norm) => norm.forward(table.weight()),
                    None => table.weight().clone(),
                }
            });
            let shared = Shared { mask, relative: positions.zip(table) };
            let mut all = vec![embeds.clone()];
            let mut hidden = embeds.clone();
            for (i, layer) in self.layers.iter().enumerate() {
                hidden = cx.as_layer(i, || {
                    if cx.checkpoints(self.plan.checkpointing) {
                        let (layer, relative) = (Rc::clone(layer), shared.relative.clone());
                        let inputs = vec![hidden, shared.mask.clone()];
                        let run = move |inputs: &[Tensor]| layer.forward(&inputs[0], &inputs[1], relative.as_ref());
                        checkpoint(cx, inputs, Rc::new(run))
                    } else {
                        layer.forward(&hidden, &shared.mask, shared.relative.as_ref())
                    }
                });
                if let Some(conv) = self.conv.as_ref().filter(|_| i == 0) {
                    hidden = conv.forward(&embeds, &hidden, given);
                }
                all.push(hidden.clone());
            }
            all
        })
    }
}

#[derive(Debug)]
struct Deberta {
    cx: Rc<Context>,
    embeddings: Embeddings,
    encoder: Encoder,
    head: Head,
    /// A padding token is known, and looked for where no mask is given.
    pads: bool,
    module: ModuleId,
    seq: u64,
    plan: Plan,
}

/// `DebertaV2ForMaskedLM(config)` or `DebertaV2ForSequenceClassification(config)`, with the defaults of
/// `configuration_deberta_v2.py`.
pub fn build(scope: &Scope, config: &Config<'_>, plan: &Plan) -> Result<Box<dyn Model>> {
    let places = config.size("max_position_embeddings", 512)?;
    let sizes = Disentangled::read(config, places)?;
    let hidden = sizes.hidden;
    let seq = plan.seq()?;
    let biased = config.flag("position_biased_input", true)?;
    if biased {
        check_positions(seq, places, 0)?;
    }
    let vocab = config.size("vocab_size", 128_100)?;
    let width = config.size("embedding_size", hidden)?;
    let act = config.text("hidden_act", "gelu")?;
    let inner = config.size("intermediate_size", 6144)?;
    let count = config.layers("num_hidden_layers", 24)?;
    let types = config.count("type_vocab_size", 0)?;
    let base = scope.child("deberta");
    let norm = |scope: &Scope| LayerNorm::new(&scope.child("LayerNorm"), hidden, true);
    let place = base.child("embeddings");
    let table = |name: &'static str, rows| Embedding::new(&place.child(name), rows, width);
    let embeddings = Embeddings {
        word: table("word_embeddings", vocab),
        position: biased.then(|| table("position_embeddings", places)),
        token_type: (types > 0).then(|| table("token_type_embeddings", types)),
        embed_proj: (width != hidden).then(|| Linear::new(&place.child("embed_proj"), width, hidden, false)),
        norm: norm(&place),
        dropout: (sizes.hidden_dropout, place.child("dropout").module()),
        position_ids: place.buffer_of(&[1, places], DType::Int64),
        module: place.module(),
        plan: plan.clone(),
    };
    let place = base.child("encoder");
    let layers = (0..count)
        .map(|i| Layer::new(&place.item("layer", i), &sizes, inner, act).map(Rc::new))
        .collect::<Option<Vec<_>>>()
        .ok_or_else(|| super::unknown_activation(config, "hidden_act", act))?;
    let relative = sizes.relative.map(|relative| {
        let table = Embedding::new(&place.child("rel_embeddings"), 2 * relative.span, hidden);
        (table, relative.buckets)
    });
    let normed = config.text("norm_rel_ebd", "none")?.split('|').any(|x| x.trim().eq_ignore_ascii_case("layer_norm"));
    let encoder = Encoder {
        layers,
        relative,
        norm: normed.then(|| norm(&place)),
        conv: conv_layer(&place.child("conv"), config, &sizes)?,
        module: place.module(),
        plan: plan.clone(),
    };
    let head = Head::new(scope, config, plan, &sizes, &embeddings.word)?;
    Ok(Box::new(Deberta {
        cx: Rc::clone(scope.cx()),
        embeddings,
        encoder,
        head,
        pads: config.has("pad_token_id") || !config.mentions("pad_token_id"),
        module: base.module(),
        seq,
        plan: plan.clone(),
    }))
}

/// `ConvLayer(config)`, where `conv_kernel_size` asks for one.
fn conv_layer(scope: &Scope, config: &Config<'_>, sizes: &Disentangled) -> Result<Option<ConvLayer>> {
    let kernel = config.count("conv_kernel_size", 0)?;
    if kernel == 0 {
        return Ok(None);
    }
    if kernel.is_multiple_of(2) {
        let hint = "give an odd size: the sequence must stay as long as it is";
        return Err(config.error("conv_kernel_size", format!("{kernel} is even"), hint));
    }
    let groups = config.size("conv_groups", 1)?;
    super::config::divide(config, ("hidden_size", sizes.hidden), ("conv_groups", groups))?;
    let act = config.text("conv_act", "tanh")?;
    Ok(Some(ConvLayer {
        conv: Conv1d::new(&scope.child("conv"), [sizes.hidden, sizes.hidden], kernel, 1, (kernel - 1) / 2, groups),
        act: Activation::new(scope, act).ok_or_else(|| super::unknown_activation(config, "conv_act", act))?,
        norm: LayerNorm::new(&scope.child("LayerNorm"), sizes.hidden, true),
        dropout: (sizes.hidden_dropout, scope.child("dropout").module()),
        module: scope.module(),
    }))
}

impl Deberta {
    /// `DebertaV2Model.forward`: the last hidden state.
    fn base(&self, ids: &Tensor, mask: Option<&Tensor>) -> Tensor {
        let cx = &self.cx;
        cx.within(self.module, || {
            if mask.is_none() && self.pads {
                causal_lm::warn_if_padding_and_no_attention_mask(ids);
            }
            let mask = mask.cloned().unwrap_or_else(|| ops::fill(cx, Fill::Ones, ids.dims(), DType::Float32));
            let token_type_ids = ops::fill(cx, Fill::Zeros, ids.dims(), DType::Int64);
            let embeds = self.embeddings.forward(ids, &token_type_ids, &mask);
            let mut all = self.encoder.forward(embeds, &mask);
            let last = all.pop();
            drop((all, mask, token_type_ids));
            last.unwrap_or_else(|| ids.clone())
        })
    }
}

impl Model for Deberta {
    fn batch(&self) -> Batch {
        batch(&self.cx, &self.plan, self.seq)
    }

    fn forward(&self, batch: &Batch) -> Output {
        let (ids, mask, labels) = batch.parts();
        let hidden = self.base(ids, mask);
        self.head.output(&hidden, labels)
    }
}
