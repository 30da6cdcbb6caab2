//! Gemma 4's text part (transformers `models/gemma4/modeling_gemma4.py` and, of 12B,
//! `models/gemma4_unified/modeling_gemma4_unified.py`): full layers have larger heads than
//! windowed ones; the small models have an input for each layer and layers without keys and values of their own, the mixture has
//! experts beside its feed-forward.

use plimsoll_ground::Result;
use plimsoll_torch::nn::{Activation, Embedding, GatedMlp, Linear, Norm, PowerRmsNorm, RotaryEmbedding, Scope};
use plimsoll_torch::ops;
use plimsoll_torch::tensor::{ModuleId, Tensor};

use super::causal_lm::Readout;
use super::config::Config;
use super::decoder::{Decoder, EmbedScale, Keywords, Layer, Masks, Parts, embed_scale, layers};
use super::decoder_head::DecoderHead;
use super::gemma4_attend::{Gemma4Attend, Options, States};
use super::gemma4_moe::{Beside, Sizes};
use super::gemma4_shared::Sharing;
use super::heads::{HeadDefaults, Heads};
use super::{Model, Plan, causal_lm};

#[derive(Debug)]
struct Gemma4Layer {
    self_attn: Gemma4Attend,
    mlp: GatedMlp,
    input_layernorm: PowerRmsNorm,
    post_attention_layernorm: PowerRmsNorm,
    pre_feedforward_layernorm: PowerRmsNorm,
    post_feedforward_layernorm: PowerRmsNorm,
    layer_scalar: Tensor,
    per_layer: Option<PerLayerInput>,
    beside: Option<Beside>,
    /// Its place, where that sets it apart.
    kind: u64,
    module: ModuleId,
}

/// What a layer does with the input of its own.
#[derive(Debug)]
struct PerLayerInput {
    act_fn: Activation,
    gate: Linear,
    projection: Linear,
    norm: PowerRmsNorm,
}

impl PerLayerInput {
    fn new(layer: &Scope, hidden: u64, features: u64, act: &str) -> Option<Self> {
        Some(Self {
            act_fn: Activation::new(&layer.child("act_fn"), act)?,
            gate: Linear::new(&layer.child("per_layer_input_gate"), hidden, features, false),
            projection: Linear::new(&layer.child("per_layer_projection"), features, hidden, false),
            norm: PowerRmsNorm::new(&layer.child("post_per_layer_input_norm"), hidden),
        })
    }

    fn forward(&self, residual: &Tensor, own: &Tensor) -> Tensor {
        let mut hidden = self.gate.forward(residual);
        hidden = self.act_fn.forward(&hidden);
        hidden = ops::mul(&hidden, own);
        hidden = self.projection.forward(&hidden);
        hidden = self.norm.forward(&hidden);
        ops::add(residual, &hidden)
    }
}

impl Layer for Gemma4Layer {
    fn forward(&self, hidden: &Tensor, keywords: &Keywords) -> Tensor {
        let (hidden, keywords) = &keywords.given(self.module, hidden);
        let own = hidden.cx().argument_if(self.module, keywords.own.as_ref());
        hidden.cx().within(self.module, || {
            let residual = hidden;
            let mut hidden = self.input_layernorm.forward(residual);
            // `_` is the attention's probabilities until the router's take the name.
            let (attended, mut unnamed) = self.self_attn.forward(&hidden, keywords);
            hidden = attended;
            hidden = self.post_attention_layernorm.forward(&hidden);
            hidden = ops::add(residual, &hidden);
            let mut residual = hidden;
            let mut hidden = self.pre_feedforward_layernorm.forward(&residual);
            hidden = self.mlp.forward(&hidden);
            let mut named = Vec::new();
            if let Some(beside) = &self.beside {
                (hidden, named) = beside.forward(&hidden, &residual, || unnamed = None);
            }
            hidden = self.post_feedforward_layernorm.forward(&hidden);
            hidden = ops::add(&residual, &hidden);
            if let (Some(per_layer), Some(own)) = (&self.per_layer, &own) {
                residual = hidden;
                hidden = per_layer.forward(&residual, own);
            }
            hidden = ops::mul_in_place(hidden, &self.layer_scalar);
            drop((residual, named, unnamed));
            hidden
        })
    }

    fn windowed(&self) -> bool {
        self.self_attn.options.window.is_some()
    }

    fn kind(&self) -> u64 {
        self.kind
    }
}

/// Which layers are windowed, how large heads are there and elsewhere, and whose keys and values each uses.
struct Pattern {
    windowed: Vec<bool>,
    /// The first layer that uses those of another.
    first_shared: u64,
    window: u64,
    local: Heads,
    global: Heads,
    values_are_keys: bool,
    bias: bool,
}

impl Pattern {
    fn read(config: &Config<'_>, count: u64) -> Result<Self> {
        let defaults = HeadDefaults { hidden: 2304, heads: 8, kv_heads: Some(4), head_dim: Some(256) };
        let local = Heads::read(config, defaults)?;
        let types = config.layer_types(count, causal_lm::WINDOWED)?;
        let mut windowed: Vec<bool> = (0..count)
            .map(|i| match &types {
                Some(types) => types.get(i as usize) == Some(&"sliding_attention"),
                None => !(i + 1).is_multiple_of(6),
            })
            .collect();
        // "Last layer must use `full_attention`": the class sees to it.
        if let Some(last) = windowed.last_mut() {
            *last = false;
        }
        let values_are_keys = config.flag("attention_k_eq_v", false)?;
        let global = Self::global(config, local, &windowed, values_are_keys)?;
        let shared = config.count("num_kv_shared_layers", 0)?;
        let first_shared = count.saturating_sub(shared);
        let has_source = |i: u64| (0..first_shared).any(|j| windowed.get(j as usize) == windowed.get(i as usize));
        if !(first_shared..count).all(has_source) {
            return Err(config.error(
                "num_kv_shared_layers",
                format!(
                    "{shared} of {count} layers share keys and values that no layer of their kind before them makes"
                ),
                "leave at least one full and one windowed layer their own",
            ));
        }
        Ok(Self {
            windowed,
            first_shared,
            window: causal_lm::window(config, if is_unified(config) { 1024 } else { 512 })?,
            local,
            global,
            values_are_keys,
            bias: config.flag("attention_bias", false)?,
        })
    }

    /// Heads of full layers: `global_head_dim` and, where values are keys, `num_global_key_value_heads`; or what a saved config says of
    /// each layer, in `per_layer_config`.
    fn global(config: &Config<'_>, local: Heads, windowed: &[bool], values_are_keys: bool) -> Result<Heads> {
        const PER_LAYER: &str = "per_layer_config";
        let Some(per_layer) = config.table(PER_LAYER) else {
            let head_dim = config.size("global_head_dim", 512)?;
            let own = config.optional_size("num_global_key_value_heads")?.filter(|_| values_are_keys);
            return local.with(config, head_dim, own.unwrap_or(local.kv_heads));
        };
        let said = |i: u64| -> Result<(u64, u64)> {
            match per_layer.numbered(i) {
                Some(layer) => {
                    Ok((layer.size("head_dim", local.head_dim)?, layer.size("num_key_value_heads", local.kv_heads)?))
                }
                None => Ok((local.head_dim, local.kv_heads)),
            }
        };
        let mut global = None;
        for (i, windowed) in (0..).zip(windowed) {
            let heads = said(i)?;
            let expected = if *windowed { (local.head_dim, local.kv_heads) } else { *global.get_or_insert(heads) };
            if heads != expected {
                return Err(config.error(
                    PER_LAYER,
                    format!(
                        "layer {i} has other heads than the layers of its kind before it, which is not estimated yet"
                    ),
                    "give all full layers the same heads, and windowed ones none of their own",
                ));
            }
        }
        let (head_dim, kv_heads) = global.unwrap_or((local.head_dim, local.kv_heads));
        local.with(config, head_dim, kv_heads)
    }

    fn is_windowed(&self, i: u64) -> bool {
        self.windowed.get(i as usize).copied().unwrap_or(false)
    }

    fn states(&self, i: u64) -> States {
        if i >= self.first_shared {
            return States::Shared;
        }
        let last = (0..self.first_shared).rfind(|j| self.is_windowed(*j) == self.is_windowed(i));
        if last == Some(i) { States::Stored } else { States::Own }
    }

    fn options(&self, i: u64) -> Options {
        let windowed = self.is_windowed(i);
        Options {
            heads: if windowed { self.local } else { self.global },
            bias: self.bias,
            window: windowed.then_some(self.window),
            values_are_keys: self.values_are_keys && !windowed,
            states: self.states(i),
        }
    }
}

/// Whether it is Gemma 4 12B's class.
fn is_unified(config: &Config<'_>) -> bool {
    config.model_type() == "gemma4_unified_text"
}

/// `Gemma4ForCausalLM(config)` or `Gemma4UnifiedForCausalLM(config)`, with the defaults of `configuration_gemma4.py` and
/// `configuration_gemma4_unified.py`.
pub fn build(scope: &Scope, config: &Config<'_>, plan: &Plan) -> Result<Box<dyn Model>> {
    let count = config.layers("num_hidden_layers", 30)?;
    let pattern = Pattern::read(config, count)?;
    let hidden = pattern.local.hidden;
    let intermediate = config.size("intermediate_size", 9216)?;
    let doubled = config.flag("use_double_wide_mlp", false)?;
    let act = config.text("hidden_activation", "gelu_pytorch_tanh")?;
    // 12B's class knows of neither, whatever its config says.
    let (features, experts) = if is_unified(config) {
        (0, None)
    } else {
        (config.count("hidden_size_per_layer_input", 256)?, Sizes::read(config)?)
    };
    let direction = "use_bidirectional_attention";
    if config.has(direction) && config.text(direction, "")? != "vision" {
        return Err(config.error(direction, "is not estimated yet", "set it to null or to \"vision\""));
    }
    let core = causal_lm::attention(plan, config.probability("attention_dropout", 0.0)?);
    let model = scope.child("model");
    let embedding = model.child("embed_tokens");
    let embed_tokens = Embedding::new(&embedding, config.size("vocab_size", 262_144)?, hidden);
    let scale = embed_scale(&embedding);
    let layer = |scope: &Scope, i| -> Option<Box<dyn Layer>> {
        let norm = |name: &'static str| PowerRmsNorm::new(&scope.child(name), hidden);
        let options = pattern.options(i);
        let wide = doubled && options.states == States::Shared;
        let self_attn = Gemma4Attend::new(&scope.child("self_attn"), options, core.clone());
        Some(Box::new(Gemma4Layer {
            self_attn,
            mlp: GatedMlp::new(&scope.child("mlp"), hidden, intermediate * if wide { 2 } else { 1 }, act, false)?,
            input_layernorm: norm("input_layernorm"),
            post_attention_layernorm: norm("post_attention_layernorm"),
            pre_feedforward_layernorm: norm("pre_feedforward_layernorm"),
            post_feedforward_layernorm: norm("post_feedforward_layernorm"),
            per_layer: match features {
                0 => None,
                features => Some(PerLayerInput::new(scope, hidden, features, act)?),
            },
            beside: match experts {
                None => None,
                Some(sizes) => Some(Beside::new(scope, sizes, hidden, act)?),
            },
            // What is the layer's own reaches the card after what its modules have.
            layer_scalar: scope.buffer_of(&[1], scope.buffer_dtype()),
            // What layers share ties them to one another: none of those is a copy of the one before.
            kind: match (features, options.states) {
                (0, States::Own) => 0,
                _ => i + 1,
            },
            module: scope.module(),
        }))
    };
    let layers = layers(config, ("hidden_activation", act), (&model, count), layer)?;
    let norm = Norm::Power(PowerRmsNorm::new(&model.child("norm"), hidden));
    let rotary_emb = super::turns::rotary(&model, config, pattern.global.head_dim);
    let both = (0..count).any(|i| pattern.is_windowed(i));
    let local_rotary = both.then(|| RotaryEmbedding::new(&model.child("rotary_emb"), pattern.local.head_dim));
    let sharing = Some(Sharing::new(&model, config, (count, hidden, features))?);
    let tied = config.flag("tie_word_embeddings", true)?;
    let mut head =
        DecoderHead::new(scope, config, plan, (&embed_tokens, true), || causal_lm::head(scope, &embed_tokens, tied))?;
    if config.has("final_logit_softcapping") {
        head = head.read_out(Readout::SoftCapped);
    }
    let masks = Masks::Both(pattern.window);
    let parts = Parts { embed_tokens, layers, norm, rotary_emb, head, masks };
    Ok(Decoder {
        embed_scale: Some(EmbedScale::Buffer(scale)),
        local_rotary,
        sharing,
        ..Decoder::new(scope, &model, plan, parts)?
    }
    .boxed())
}
