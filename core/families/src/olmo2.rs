//! OLMo 2 and 3 (transformers `models/olmo2/modeling_olmo2.py`, `models/olmo3/modeling_olmo3.py`): norms after attention and
//! feed-forward.

use plimsoll_catalog::software::rules;
use plimsoll_ground::Result;
use plimsoll_torch::nn::{Embedding, GatedMlp, Norm, RotaryEmbedding, Scope, WideRmsNorm};
use plimsoll_torch::ops;
use plimsoll_torch::tensor::{ModuleId, Tensor};

use super::attend::{Attend, AttendOptions, QueryKeyNorms, Rotation};
use super::config::Config;
use super::decoder::{AngleTables, Decoder, Keywords, Layer, Masks, Parts, layers};
use super::decoder_head::DecoderHead;
use super::heads::{HeadDefaults, Heads};
use super::{Model, Plan, causal_lm};

#[derive(Debug)]
struct Olmo2Layer {
    self_attn: Attend,
    mlp: GatedMlp,
    post_attention_layernorm: WideRmsNorm,
    post_feedforward_layernorm: WideRmsNorm,
    windowed: bool,
    module: ModuleId,
}

impl Layer for Olmo2Layer {
    fn forward(&self, hidden: &Tensor, keywords: &Keywords) -> Tensor {
        let (hidden, keywords) = &keywords.given(self.module, hidden);
        hidden.cx().within(self.module, || {
            let residual = hidden;
            let (mut hidden, _weights) = self.self_attn.forward(residual, keywords);
            hidden = self.post_attention_layernorm.forward(&hidden);
            hidden = ops::add(residual, &hidden);
            let residual = hidden;
            let mut hidden = self.mlp.forward(&residual);
            hidden = self.post_feedforward_layernorm.forward(&hidden);
            ops::add(&residual, &hidden)
        })
    }

    fn windowed(&self) -> bool {
        self.windowed
    }
}

/// What OLMo 3 has beyond OLMo 2: layers that look back through a window, with angles of their own. Which of the two tables comes
/// first the order of a `set` of names decides, another in every process of Python: ours is full first.
struct Windows<'a> {
    length: u64,
    types: Option<Vec<&'a str>>,
}

impl<'a> Windows<'a> {
    fn read(config: &'a Config<'_>, layers: u64) -> Result<Self> {
        let types = config.layer_types(layers, causal_lm::WINDOWED)?;
        Ok(Self { length: causal_lm::window(config, 4096)?, types })
    }

    /// Every fourth layer sees everything where the config lists none.
    fn has(&self, layer: u64) -> bool {
        match &self.types {
            Some(types) => types.get(layer as usize) == Some(&"sliding_attention"),
            None => !(layer + 1).is_multiple_of(4),
        }
    }
}

/// `Olmo2ForCausalLM(config)` or `Olmo3ForCausalLM(config)`, with the defaults of `configuration_olmo{2,3}.py`, which are the
/// same.
pub fn build(scope: &Scope, config: &Config<'_>, plan: &Plan) -> Result<Box<dyn Model>> {
    let heads = Heads::read(config, HeadDefaults { hidden: 4096, heads: 32, kv_heads: None, head_dim: None })?;
    let rotary = heads.rotary(config, "partial_rotary_factor", 1.0)?;
    let intermediate = config.size("intermediate_size", 11_008)?;
    let count = config.layers("num_hidden_layers", 32)?;
    let act = config.text("hidden_act", "silu")?;
    let bias = config.flag("attention_bias", false)?;
    let windows = if config.model_type() == "olmo3" { Some(Windows::read(config, count)?) } else { None };
    let windowed = |i| windows.as_ref().is_some_and(|windows| windows.has(i));
    let core = causal_lm::attention(plan, config.probability("attention_dropout", 0.0)?);
    let rules = scope.cx().machine().rules;
    let wide = rules.has(&rules::OLMO_IN_FLOAT32);
    let options = |i| AttendOptions {
        heads,
        rotary,
        qkv_bias: bias,
        out_bias: bias,
        rotation: if wide { Rotation::InFloat32 } else { Rotation::Halves },
        window: windows.as_ref().filter(|windows| windows.has(i)).map(|windows| windows.length),
        ..AttendOptions::PLAIN
    };
    let norms = |scope: &Scope| {
        let norm = |name: &'static str, count| Norm::Wide(WideRmsNorm::new(&scope.child(name), count * heads.head_dim));
        QueryKeyNorms::Projections(norm("q_norm", heads.heads), norm("k_norm", heads.kv_heads))
    };
    let model = scope.child("model");
    let embed_tokens = Embedding::new(&model.child("embed_tokens"), config.size("vocab_size", 50_304)?, heads.hidden);
    let layer = |scope: &Scope, i| -> Option<Box<dyn Layer>> {
        let norm = |name: &'static str| WideRmsNorm::new(&scope.child(name), heads.hidden);
        Some(Box::new(Olmo2Layer {
            self_attn: Attend::new(&scope.child("self_attn"), &options(i), core.clone(), norms),
            mlp: GatedMlp::new(&scope.child("mlp"), heads.hidden, intermediate, act, false)?,
            post_attention_layernorm: norm("post_attention_layernorm"),
            post_feedforward_layernorm: norm("post_feedforward_layernorm"),
            windowed: windowed(i),
            module: scope.module(),
        }))
    };
    let layers = layers(config, ("hidden_act", act), (&model, count), layer)?;
    let norm = Norm::Wide(WideRmsNorm::new(&model.child("norm"), heads.hidden));
    let rotary_emb = super::turns::rotary(&model, config, rotary);
    // Frequencies for each kind of layer that there is; once for each that there could be, and in between for all in one.
    let both = if rules.has(&rules::OLMO3_KINDS_HAVE_FREQUENCIES) {
        (0..count).any(windowed) && !(0..count).all(windowed)
    } else {
        windows.is_some() && !rules.has(&rules::KINDS_HAVE_FREQUENCIES)
    };
    let local_rotary = both.then(|| RotaryEmbedding::new(&model.child("rotary_emb"), rotary));
    let tied = config.flag("tie_word_embeddings", false)?;
    let head =
        DecoderHead::new(scope, config, plan, (&embed_tokens, true), || causal_lm::head(scope, &embed_tokens, tied))?;
    let is_olmo3 = windows.is_some();
    let masks = windows.map_or(Masks::Full, |windows| Masks::Both(windows.length));
    let parts = Parts { embed_tokens, layers, norm, rotary_emb, head, masks };
    // In between OLMo 3's tables were cast to the hidden states' dtype as well.
    let cast =
        is_olmo3 && rules.has(&rules::KINDS_HAVE_FREQUENCIES) && !rules.has(&rules::OLMO3_KINDS_HAVE_FREQUENCIES);
    let angles = if cast || !wide { AngleTables::Twice } else { AngleTables::InFloat32 };
    Ok(Decoder { angles, local_rotary, ..Decoder::new(scope, &model, plan, parts)? }.boxed())
}
