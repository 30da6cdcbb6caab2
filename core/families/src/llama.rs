//! Llama and the decoders that read like it: `llama`, `mistral`, `ministral3`, `qwen2`, `qwen3`, `granite`
//! (transformers `models/{llama,mistral,ministral3,qwen2,qwen3,granite}/modeling_*.py`).

use std::rc::Rc;

use plimsoll_catalog::software::{Rules, rules};
use plimsoll_ground::Result;
use plimsoll_scenario::Attention;
use plimsoll_torch::nn::{
    AttentionCore, Embedding, GatedMlp, LayerRotary, Linear, ModuleList, Probabilities, RmsNorm, RotaryEmbedding,
    Scope, apply_rotary_pos_emb, causal_mask, kv_cache, sliding_window_causal_mask, windowless_causal_mask,
};
use plimsoll_torch::ops::{self, Pointwise};
use plimsoll_torch::tensor::{Context, DType, ModuleId, Tensor};

use super::causal_lm::Readout;
use super::checkpointed::checkpoint_layer;
use super::config::{Config, MAX_SIZE, divide};
use super::decoder_head::DecoderHead;
use super::decoder_only::{DecoderOnly, Headed, Shell};
use super::turns::{Turns, rotary};
use super::{Model, Plan, causal_lm};

/// The sizes that differ between the six.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    vocab: u64,
    hidden: u64,
    intermediate: u64,
    layers: u64,
    heads: u64,
    kv_heads: u64,
    head_dim: u64,
    qkv_bias: bool,
    out_bias: bool,
    mlp_bias: bool,
    /// Qwen3 normalises queries and keys per head.
    qk_norm: bool,
    /// Granite multiplies embeddings and what is added to the residual stream, by whatever number.
    scaled: bool,
    /// Ministral 3 multiplies queries by a factor of their position.
    scaled_queries: bool,
    dropout: f64,
    tied: bool,
    /// `sliding_window`, where it is in force.
    window: Option<u64>,
    turns: Turns,
    /// First layer the window applies to when the config does not list its layers' types.
    first_windowed: u64,
}

impl Sizes {
    /// With the defaults of `configuration_{llama,mistral,qwen2,qwen3,granite}.py`.
    fn read(scope: &Scope, config: &Config<'_>) -> Result<Self> {
        let family = config.model_type();
        let (vocab, intermediate, kv_default) = match family {
            "mistral" => (32_000, 14_336, Some(8)),
            "ministral3" => (131_072, 14_336, Some(8)),
            "qwen2" | "qwen3" => (151_936, 22_016, Some(32)),
            _ => (32_000, 11_008, None),
        };
        let hidden = config.size("hidden_size", 4096)?;
        let heads = config.size("num_attention_heads", 32)?;
        let kv_heads = match config.optional_size("num_key_value_heads")? {
            Some(n) => n,
            // `null` is as many as there are heads.
            None if config.mentions("num_key_value_heads") => heads,
            // Only a family's own default may differ from the number of heads, and only when that divides it.
            None => kv_default.filter(|n| heads.is_multiple_of(*n) && *n <= heads).unwrap_or(heads),
        };
        divide(config, ("num_attention_heads", heads), ("num_key_value_heads", kv_heads))?;
        let head_dim = match (family, config.optional_size("head_dim")?) {
            // As with others that have a number of their own, `null` is none.
            ("qwen3" | "ministral3", _) => config.size("head_dim", 128)?,
            (_, Some(n)) => n,
            (_, None) => divide(config, ("hidden_size", hidden), ("num_attention_heads", heads))?,
        };
        if heads * head_dim > MAX_SIZE {
            return Err(config.error(
                "head_dim",
                format!("{heads} heads of {head_dim} make {} dimensions", heads * head_dim),
                format!("choose sizes so that all heads together have at most {MAX_SIZE}"),
            ));
        }
        if !head_dim.is_multiple_of(2) {
            return Err(config.error(
                "head_dim",
                format!("rotary embeddings turn pairs, but a head has {head_dim} dimensions"),
                "choose sizes that give an even head_dim",
            ));
        }
        let attention_bias = config.flag("attention_bias", false)?;
        let layers = config.layers("num_hidden_layers", if family == "ministral3" { 34 } else { 32 })?;
        // An absent sliding_window is Mistral's default of 4096; `null` is none.
        let default = (!config.mentions("sliding_window")).then_some(4096);
        let (window, first_windowed) = match family {
            "mistral" => (config.optional_size("sliding_window")?.or(default), 0),
            "ministral3" => (config.optional_size("sliding_window")?, 0),
            "qwen2" | "qwen3" if config.flag("use_sliding_window", false)? => {
                let first = config.count("max_window_layers", 28)?;
                (config.optional_size("sliding_window")?.or(default), first)
            }
            _ => (None, 0),
        };
        Ok(Self {
            vocab: config.size("vocab_size", vocab)?,
            hidden,
            intermediate: config.size("intermediate_size", intermediate)?,
            layers,
            heads,
            kv_heads,
            head_dim,
            qkv_bias: match family {
                "qwen2" => true,
                "mistral" | "ministral3" => false,
                _ => attention_bias,
            },
            out_bias: matches!(family, "llama" | "qwen3" | "granite") && attention_bias,
            mlp_bias: matches!(family, "llama" | "granite") && config.flag("mlp_bias", false)?,
            qk_norm: family == "qwen3",
            scaled: family == "granite",
            scaled_queries: family == "ministral3",
            dropout: config.probability("attention_dropout", 0.0)?,
            tied: config.flag("tie_word_embeddings", false)?,
            window,
            turns: Turns::read(scope, config)?,
            first_windowed,
        })
    }
}

/// What every layer is handed by keyword, and so what a checkpoint captures.
#[derive(Clone, Debug)]
struct Masks {
    /// `position_embeddings`, where the model makes them.
    rotary: Option<(Tensor, Tensor)>,
    /// `attention_mask`.
    mask: Option<Tensor>,
    /// `position_ids`, which only layers with angles of their own read.
    position_ids: Option<Tensor>,
}

#[derive(Debug)]
struct Attend {
    q_proj: Linear,
    k_proj: Linear,
    v_proj: Linear,
    o_proj: Linear,
    norms: Option<(RmsNorm, RmsNorm)>,
    rotary_emb: LayerRotary,
    core: AttentionCore,
    head_dim: u64,
    window: Option<u64>,
    scaled_queries: bool,
    module: ModuleId,
}

/// `get_llama_4_attn_scale(position_ids, ...)`: a factor for every position, grown with its logarithm.
fn query_scale(position_ids: &Tensor, dtype: DType) -> Tensor {
    let mut scale = ops::each(Pointwise::DivTensor, position_ids, DType::Float32);
    let steps = [Pointwise::Floor, Pointwise::AddTensor, Pointwise::Log, Pointwise::MulTensor, Pointwise::AddTensor];
    for step in steps {
        scale = ops::each(step, &scale, DType::Float32);
    }
    ops::to(&ops::unsqueeze(&ops::unsqueeze(&scale, 1), -1), dtype)
}

impl Attend {
    fn new(scope: &Scope, sizes: &Sizes, core: AttentionCore, window: Option<u64>) -> Self {
        let linear = |name: &'static str, i, o, bias| Linear::new(&scope.child(name), i, o, bias);
        let (q, kv) = (sizes.heads * sizes.head_dim, sizes.kv_heads * sizes.head_dim);
        Self {
            q_proj: linear("q_proj", sizes.hidden, q, sizes.qkv_bias),
            k_proj: linear("k_proj", sizes.hidden, kv, sizes.qkv_bias),
            v_proj: linear("v_proj", sizes.hidden, kv, sizes.qkv_bias),
            o_proj: linear("o_proj", q, sizes.hidden, sizes.out_bias),
            norms: sizes.qk_norm.then(|| {
                let norm = |name: &'static str| RmsNorm::new(&scope.child(name), sizes.head_dim);
                (norm("q_norm"), norm("k_norm"))
            }),
            rotary_emb: sizes.turns.layer(scope, sizes.head_dim),
            core,
            head_dim: sizes.head_dim,
            window,
            scaled_queries: sizes.scaled_queries,
            module: scope.module(),
        }
    }

    fn forward(&self, hidden: &Tensor, masks: &Masks) -> (Tensor, Option<Tensor>) {
        hidden.cx().within(self.module, || {
            let (batch, seq) = (hidden.size(0), hidden.size(1));
            let mask = masks.mask.as_ref();
            let own = self.core.is_own(hidden.cx().machine().rules);
            let heads = |projected: &Tensor, norm: Option<&RmsNorm>| {
                let count = projected.size(-1) / self.head_dim;
                let split = ops::view(projected, &[batch, seq, count, self.head_dim]);
                let split = norm.map_or(split.clone(), |n| n.forward(&split));
                ops::transpose(&split, 1, 2)
            };
            let (q_norm, k_norm) = (self.norms.as_ref().map(|n| &n.0), self.norms.as_ref().map(|n| &n.1));
            let (mut query, mut key, mut value);
            if own {
                // Classes of their own split what they projected when all of it was there.
                query = self.q_proj.forward(hidden);
                key = self.k_proj.forward(hidden);
                value = self.v_proj.forward(hidden);
                (query, key, value) = (heads(&query, q_norm), heads(&key, k_norm), heads(&value, None));
            } else {
                query = heads(&self.q_proj.forward(hidden), q_norm);
                key = heads(&self.k_proj.forward(hidden), k_norm);
                value = heads(&self.v_proj.forward(hidden), None);
            }
            let angles = self.rotary_emb.angles(&value, masks.position_ids.as_ref(), masks.rotary.as_ref());
            (query, key) = apply_rotary_pos_emb(&query, &key, &angles.cos, &angles.sin);
            let _named = angles.turned();
            if let Some(position_ids) = masks.position_ids.as_ref().filter(|_| self.scaled_queries) {
                query = ops::mul(&query, &query_scale(position_ids, query.dtype()));
            }
            (key, value) = kv_cache::update(key, value, self.window);
            if own {
                [query, key, value] = self.core.of_own([query, key, value], mask);
            }
            let (mut out, weights) = self.core.forward(&query, &key, &value, mask);
            out = ops::contiguous(&ops::reshape(&out, &[batch, seq, out.size(2) * self.head_dim]));
            out = self.o_proj.forward(&out);
            // `if not output_attentions: attn_weights = None`
            (out, weights.filter(|_| !own))
        })
    }
}

#[derive(Debug)]
struct DecoderLayer {
    self_attn: Attend,
    mlp: GatedMlp,
    input_layernorm: RmsNorm,
    post_attention_layernorm: RmsNorm,
    module: ModuleId,
    windowed: bool,
    /// `residual_multiplier` is there.
    scaled: bool,
}

impl DecoderLayer {
    fn new(scope: &Scope, sizes: &Sizes, core: &AttentionCore, act: &str, windowed: bool) -> Option<Self> {
        let attention = Attend::new(&scope.child("self_attn"), sizes, core.clone(), sizes.window.filter(|_| windowed));
        let mlp = GatedMlp::new(&scope.child("mlp"), sizes.hidden, sizes.intermediate, act, sizes.mlp_bias)?;
        Some(Self {
            self_attn: attention,
            mlp,
            input_layernorm: RmsNorm::new(&scope.child("input_layernorm"), sizes.hidden),
            post_attention_layernorm: RmsNorm::new(&scope.child("post_attention_layernorm"), sizes.hidden),
            module: scope.module(),
            windowed,
            scaled: sizes.scaled,
        })
    }

    /// `residual + hidden_states`, or `residual + hidden_states * self.residual_multiplier`.
    fn add(&self, residual: &Tensor, hidden: &Tensor) -> Tensor {
        if self.scaled { ops::add(residual, &ops::mul_scalar(hidden)) } else { ops::add(residual, hidden) }
    }

    fn forward(&self, hidden: &Tensor, masks: &Masks) -> Tensor {
        hidden.cx().within(self.module, || {
            let residual = hidden.clone();
            let normed = self.input_layernorm.forward(hidden);
            let (attended, _weights) = self.self_attn.forward(&normed, masks);
            drop(normed);
            let hidden = self.add(&residual, &attended);
            drop((attended, residual));
            let residual = hidden;
            let normed = self.post_attention_layernorm.forward(&residual);
            let out = self.mlp.forward(&normed);
            drop(normed);
            self.add(&residual, &out)
        })
    }
}

/// Whether the model makes the mask of the one kind of layers it has, as Mistral's does.
fn one_kind(config: &Config<'_>) -> bool {
    matches!(config.model_type(), "mistral" | "ministral3")
}

/// Whether a mask is made as of a model that knows windows: Qwen2's was not in 4.48 alone.
fn knows_windows(config: &Config<'_>, software: Rules) -> bool {
    match config.model_type() {
        "mistral" | "qwen3" => true,
        "qwen2" => !software.has(&rules::SHARED_SDPA) || software.has(&rules::QWEN2_KNOWS_WINDOWS_AGAIN),
        _ => false,
    }
}

/// The kinds of Qwen's layers, where the config lists them.
fn listed<'a>(config: &Config<'a>, sizes: &Sizes) -> Result<Option<Vec<&'a str>>> {
    match config.model_type() {
        "qwen2" | "qwen3" => config.layer_types(sizes.layers, causal_lm::WINDOWED),
        _ => Ok(None),
    }
}

/// Which layers look through the window: all of Mistral's, those of Qwen's that are listed or are late enough.
fn windowed(listed: Option<&[&str]>, sizes: &Sizes, layer: u64) -> bool {
    sizes.window.is_some()
        && match listed {
            Some(types) => types.get(layer as usize) == Some(&"sliding_attention"),
            None => layer >= sizes.first_windowed,
        }
}

#[derive(Debug)]
struct CausalLm {
    cx: Rc<Context>,
    embed_tokens: Embedding,
    layers: ModuleList<DecoderLayer>,
    norm: RmsNorm,
    rotary_emb: Option<RotaryEmbedding>,
    head: DecoderHead,
    model: ModuleId,
    window: Option<u64>,
    /// `embedding_multiplier` is there.
    scaled: bool,
    /// Qwen makes the full mask whether a layer uses it or not; Mistral makes the one kind it uses.
    always_full: bool,
    /// Its layers may be windowed.
    knows_windows: bool,
    seq: u64,
    plan: Plan,
}

/// `{Llama,Mistral,Qwen2,Qwen3,Granite}ForCausalLM(config)`.
pub fn build(scope: &Scope, config: &Config<'_>, plan: &Plan) -> Result<Box<dyn Model>> {
    let sizes = Sizes::read(scope, config)?;
    let act = config.text("hidden_act", "silu")?;
    let core = AttentionCore {
        implementation: plan.attention,
        rules: plan.rules.clone(),
        dropout: sizes.dropout,
        probabilities: Probabilities::Float32,
        eager_contiguous: true,
        shared_since: None,
        adds_in_place: false,
    };
    let model = scope.child("model");
    let embed_tokens = Embedding::new(&model.child("embed_tokens"), sizes.vocab, sizes.hidden);
    let listed = listed(config, &sizes)?;
    let windowed = |i| windowed(listed.as_deref(), &sizes, i);
    let layer = |scope: &Scope, i| DecoderLayer::new(scope, &sizes, &core, act, windowed(i));
    let layers = ModuleList::new(&model, "layers", sizes.layers, layer)
        .ok_or_else(|| super::unknown_activation(config, "hidden_act", act))?;
    let norm = RmsNorm::new(&model.child("norm"), sizes.hidden);
    let rotary_emb = rotary(&model, config, sizes.head_dim);
    let head = DecoderHead::new(scope, config, plan, (&embed_tokens, false), || {
        causal_lm::head(scope, &embed_tokens, sizes.tied)
    })?
    .read_out(if sizes.scaled { Readout::Divided } else { Readout::Plain });
    Ok(Box::new(Headed(CausalLm {
        cx: Rc::clone(scope.cx()),
        embed_tokens,
        layers,
        norm,
        rotary_emb,
        head,
        model: model.module(),
        window: sizes.window,
        scaled: sizes.scaled,
        always_full: !one_kind(config),
        knows_windows: knows_windows(config, scope.cx().machine().rules),
        seq: plan.seq()?,
        plan: plan.clone(),
    })))
}

impl DecoderOnly for CausalLm {
    fn shell(&self) -> Shell<'_> {
        Shell { cx: &self.cx, head: &self.head, seq: self.seq, plan: &self.plan }
    }

    /// `LlamaModel.forward`: the last hidden state.
    fn hidden(&self, ids: &Tensor, mask: Option<&Tensor>, positions: Option<&Tensor>) -> Tensor {
        let cx = &self.cx;
        cx.within(self.model, || {
            let mut embeds = causal_lm::input_embeddings(&self.embed_tokens, ids, &self.plan);
            if self.scaled {
                embeds = ops::mul_scalar(&embeds);
            }
            let position_ids = positions.cloned().unwrap_or_else(|| causal_lm::position_ids(cx, self.seq));
            let (full, windowed) = self.masks(&embeds, mask, &position_ids);
            let rotary = self.rotary_emb.as_ref().map(|rotary| rotary.forward(&embeds, &position_ids));
            let full = Masks { rotary: rotary.clone(), mask: full, position_ids: Some(position_ids.clone()) };
            let windowed = Masks { rotary, mask: windowed, position_ids: Some(position_ids) };
            let hidden = self.layers.run(
                cx,
                embeds.clone(),
                |layer| layer.windowed,
                |layer, hidden| {
                    let masks = if layer.windowed { &windowed } else { &full };
                    if !cx.checkpoints(self.plan.checkpointing) {
                        return layer.forward(&hidden, masks);
                    }
                    let (layer, Masks { rotary, mask, position_ids }) = (Rc::clone(layer), masks.clone());
                    checkpoint_layer(cx, vec![hidden], (mask, position_ids), move |inputs, mask, position_ids| {
                        layer.forward(&inputs[0], &Masks { rotary: rotary.clone(), mask, position_ids })
                    })
                },
            );
            self.norm.forward(&hidden)
        })
    }
}

impl CausalLm {
    /// The masks of full and of windowed layers, made in this order.
    fn masks(&self, embeds: &Tensor, mask: Option<&Tensor>, position_ids: &Tensor) -> (Option<Tensor>, Option<Tensor>) {
        let given = causal_lm::given_mask(mask, &self.plan);
        let attention: Attention = self.plan.attention;
        let any = |windowed| self.layers.iter().any(|l| l.windowed == windowed);
        let make = || match self.knows_windows {
            true => windowless_causal_mask(embeds, given, Some(position_ids), attention),
            false => causal_mask(embeds, given, position_ids, attention),
        };
        let full = (self.always_full || any(false)).then(make).flatten();
        let windowed = match self.window {
            Some(w) if any(true) => sliding_window_causal_mask(embeds, given, position_ids, attention, w),
            _ => None,
        };
        (full, windowed)
    }
}
