//! Qwen3.5 (transformers `models/{qwen3_5,qwen3_5_moe}/modeling_*.py`): Qwen3-Next's layers, dense or with experts, alone
//! (`qwen3_5_text`, `qwen3_5_moe_text`) or beside a tower for images, which text does without (`qwen3_5`, `qwen3_5_moe`).
//!
//! As with Qwen3-Next, linear layers are estimated as they run in PyTorch alone; as with Qwen3-VL, on text alone.

use plimsoll_ground::Result;
use plimsoll_torch::nn::{Axes, Embedding, GatedMlp, GemmaRmsNorm, Norm, Scope, Scores};

use super::config::Config;
use super::decoder::{AngleTables, Decoder, Layer, Masks, Parts, layers};
use super::decoder_head::DecoderHead;
use super::gated_attend::GatedAttend;
use super::gated_delta_net::{DeltaSizes, GatedDeltaNet, InProjections};
use super::heads::{HeadDefaults, Heads};
use super::pre_norm::{FeedForward, PreNormLayer};
use super::qwen3_next::{Mixer, Pattern};
use super::sparse::{self, BlockSizes, SparseMoeBlock};
use super::vision_tower::{Tower, VisionTower};
use super::{Model, Plan, causal_lm};

/// What the text's config class takes where a configuration does not say.
struct Defaults {
    heads: HeadDefaults,
    layers: u64,
}

const DENSE: Defaults =
    Defaults { heads: HeadDefaults { hidden: 4096, heads: 16, kv_heads: Some(4), head_dim: Some(256) }, layers: 32 };

const SPARSE: Defaults =
    Defaults { heads: HeadDefaults { hidden: 2048, heads: 16, kv_heads: Some(2), head_dim: Some(256) }, layers: 40 };

/// What stands behind the attention of every layer.
enum Behind<'a> {
    Dense(u64, &'a str),
    Experts(BlockSizes<'a>),
}

impl<'a> Behind<'a> {
    fn read(text: &Config<'a>, sparse: bool, hidden: u64, act: &'a str) -> Result<Self> {
        if !sparse {
            return Ok(Self::Dense(text.size("intermediate_size", 12_288)?, act));
        }
        sparse::refuse(text)?;
        let count = sparse::experts(text, "num_experts", 256)?;
        Ok(Self::Experts(BlockSizes {
            hidden,
            intermediate: text.size("moe_intermediate_size", 512)?,
            shared: Some(text.size("shared_expert_intermediate_size", 512)?),
            count,
            top_k: sparse::chosen(text, 8, count)?,
            scores: Scores::Cast { normalised: true },
            experts_first: false,
            act,
            listing: sparse::Listing::Qwen,
            leaf: false,
        }))
    }

    /// `None` for an unknown activation.
    fn build(&self, mlp: &Scope, hidden: u64) -> Option<FeedForward> {
        Some(match self {
            Self::Dense(intermediate, act) => {
                FeedForward::Gated(Box::new(GatedMlp::new(mlp, hidden, *intermediate, act, false)?))
            }
            Self::Experts(block) => FeedForward::Sparse(Box::new(SparseMoeBlock::new(mlp, block)?)),
        })
    }
}

/// `Qwen3_5ForCausalLM(config)`, `Qwen3_5ForConditionalGeneration(config)` or their mixtures'.
pub fn build(scope: &Scope, config: &Config<'_>, plan: &Plan) -> Result<Box<dyn Model>> {
    let kind = config.model_type();
    let (sees, sparse) = (!kind.ends_with("_text"), kind.starts_with("qwen3_5_moe"));
    let defaults = if sparse { SPARSE } else { DENSE };
    let text = if sees { config.section("text_config", "model.hf.text_config")? } else { *config };

    let model = scope.child("model");
    let visual = if sees {
        let vision = config.section("vision_config", "model.hf.vision_config")?;
        Some(VisionTower::new(&model.child("visual"), &vision, Tower::Qwen35)?)
    } else {
        None
    };

    let heads = Heads::read(&text, defaults.heads)?;
    let rotary = heads.rotary(&text, "partial_rotary_factor", 0.25)?;
    let count = text.layers("num_hidden_layers", defaults.layers)?;
    let pattern = Pattern::read(&text, count)?;
    let delta = DeltaSizes::read(&text, heads.hidden)?;
    let act = delta.act;
    let behind = Behind::read(&text, sparse, heads.hidden, act)?;
    let bias = text.flag("attention_bias", false)?;
    let core = causal_lm::attention(plan, text.probability("attention_dropout", 0.0)?);

    let language = if sees { model.child("language_model") } else { model.clone() };
    let vocab = text.size("vocab_size", 248_320)?;
    let embed_tokens = Embedding::new(&language.child("embed_tokens"), vocab, heads.hidden);
    let layer = |scope: &Scope, i| -> Option<Box<dyn Layer>> {
        let norm = |name: &'static str| Norm::Gemma(GemmaRmsNorm::new(&scope.child(name), heads.hidden));
        let linear = pattern.is_linear(i);
        let self_attn = if linear {
            let net = GatedDeltaNet::new(&scope.child("linear_attn"), &delta, InProjections::Apart)?;
            Mixer::Linear(Box::new(net))
        } else {
            Mixer::Full(Box::new(GatedAttend::new(&scope.child("self_attn"), heads, bias, core.clone())))
        };
        Some(Box::new(PreNormLayer {
            self_attn,
            mlp: behind.build(&scope.child("mlp"), heads.hidden)?,
            input_layernorm: norm("input_layernorm"),
            post_attention_layernorm: norm("post_attention_layernorm"),
            windowed: linear,
            module: scope.module(),
        }))
    };
    let layers = layers(&text, ("hidden_act", act), (&language, count), layer)?;
    let norm = Norm::Gemma(GemmaRmsNorm::new(&language.child("norm"), heads.hidden));
    let rotary_emb = super::turns::rotary(&language, config, rotary);
    let tied = config.flag("tie_word_embeddings", false)?;
    let head =
        DecoderHead::new(scope, config, plan, (&embed_tokens, false), || causal_lm::head(scope, &embed_tokens, tied))?;
    let parts = Parts { embed_tokens, layers, norm, rotary_emb, head, masks: Masks::Recurrent };
    let decoder = Decoder::new(scope, &language, plan, parts)?;
    let decoder = Decoder {
        angles: AngleTables::Axes(axes(&text)?),
        outer: visual.map(|visual| (model.module(), visual)),
        ..decoder
    };
    Ok(decoder.boxed())
}

/// How many frequencies go by height and by width (`mrope_section`).
fn axes(text: &Config<'_>) -> Result<Axes> {
    let key = ["rope_scaling", "rope_parameters"].into_iter().find(|key| text.has(key));
    let sections = key.and_then(|key| text.table(key)).and_then(|rope| rope.counts("mrope_section"));
    let [_, height, width] = match sections {
        None => [11, 11, 10],
        Some(given) => <[u64; 3]>::try_from(given).map_err(|given| {
            let problem = format!("mrope_section has {} parts, and positions have three axes", given.len());
            text.error(key.unwrap_or_default(), problem, "give the model's own: three numbers")
        })?,
    };
    Ok(Axes::Interleaved([height, width]))
}
