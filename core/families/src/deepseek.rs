//! DeepSeek V3 and R1 (transformers `models/deepseek_v3/modeling_deepseek_v3.py`), V2 (`models/deepseek_v2/modeling_deepseek_v2.py`) and
//! GLM-4.7-Flash (`models/glm4_moe_lite/modeling_glm4_moe_lite.py`): latent attention, the first layers dense, the others with mixtures
//! of experts. V2 turns queries and keys as complex numbers and chooses experts by a softmax; GLM's config lists its layers.

use plimsoll_ground::Result;
use plimsoll_torch::nn::{Embedding, GatedMlp, Norm, RmsNorm, Scope};

use super::config::{Config, divide};
use super::decoder::{AngleTables, Decoder, Layer, Masks, Parts, layers};
use super::decoder_head::DecoderHead;
use super::latent_attention::{LatentAttention, LatentDefaults, LatentSizes};
use super::pre_norm::{FeedForward, PreNormLayer};
use super::shared_moe::{Mixture, MixtureDefaults, SharedMoe};
use super::{Model, Plan, causal_lm};

/// What the versions differ in beside how they turn and choose: what each config class takes where a configuration does not say.
struct Defaults {
    sizes: LatentDefaults,
    mixture: MixtureDefaults,
    intermediate: u64,
    layers: u64,
    vocabulary: u64,
}

/// `configuration_deepseek_v3.py`.
const V3: Defaults = Defaults {
    sizes: LatentDefaults { hidden: 7168, heads: 128, kv_heads: Some(128), q_rank: 1536, nope: 128, value: 128 },
    mixture: MixtureDefaults {
        intermediate: 2048,
        experts: 256,
        top_k: 8,
        shared: 1,
        groups: 8,
        top_groups: 4,
        dense: 3,
    },
    intermediate: 18_432,
    layers: 61,
    vocabulary: 129_280,
};

/// `configuration_deepseek_v2.py`. A number of experts to a token, and of groups, must be given.
const V2: Defaults = Defaults {
    sizes: LatentDefaults { hidden: 4096, heads: 32, kv_heads: None, q_rank: 1536, nope: 128, value: 128 },
    mixture: MixtureDefaults {
        intermediate: 1407,
        experts: 64,
        top_k: 1,
        shared: 2,
        groups: 1,
        top_groups: 1,
        dense: 0,
    },
    intermediate: 11_008,
    layers: 32,
    vocabulary: 102_400,
};

/// `configuration_glm4_moe_lite.py`.
const LITE: Defaults = Defaults {
    sizes: LatentDefaults { hidden: 2048, heads: 20, kv_heads: Some(20), q_rank: 768, nope: 192, value: 256 },
    mixture: MixtureDefaults {
        intermediate: 1536,
        experts: 64,
        top_k: 4,
        shared: 1,
        groups: 1,
        top_groups: 1,
        dense: 1,
    },
    intermediate: 10_240,
    layers: 47,
    vocabulary: 154_880,
};

/// `DeepseekV3ForCausalLM(config)`.
pub fn build_v3(scope: &Scope, config: &Config<'_>, plan: &Plan) -> Result<Box<dyn Model>> {
    let sizes = LatentSizes::read(config, V3.sizes)?;
    let mixture = Mixture::read(config, sizes.hidden, V3.mixture)?;
    let dense = |i| i < mixture.dense;
    Ok(build(scope, config, plan, (&V3, sizes, &mixture), dense)?.boxed())
}

/// `Glm4MoeLiteForCausalLM(config)`.
pub fn build_lite(scope: &Scope, config: &Config<'_>, plan: &Plan) -> Result<Box<dyn Model>> {
    const TYPES: &str = "mlp_layer_types";
    let sizes = LatentSizes::read(config, LITE.sizes)?;
    let mixture = Mixture::read(config, sizes.hidden, LITE.mixture)?;
    let count = config.layers("num_hidden_layers", LITE.layers)?;
    // More of them and other words pass: transformers looks at these where there are `layer_types` besides.
    let types = config.texts(TYPES);
    if types.as_ref().is_some_and(|types| (types.len() as u64) < count) {
        return Err(config.error(TYPES, "says nothing of the last layers", "give dense or sparse for every layer"));
    }
    let dense = |i| match &types {
        Some(types) => types.get(i as usize) != Some(&"sparse"),
        None => i < LITE.mixture.dense,
    };
    Ok(build(scope, config, plan, (&LITE, sizes, &mixture), dense)?.boxed())
}

/// `DeepseekV2ForCausalLM(config)`.
pub fn build_v2(scope: &Scope, config: &Config<'_>, plan: &Plan) -> Result<Box<dyn Model>> {
    let sizes = LatentSizes::read(config, V2.sizes)?;
    // `validate_architecture`, though no head is that wide.
    divide(config, ("hidden_size", sizes.hidden), ("num_attention_heads", sizes.heads))?;
    let mixture = Mixture::read_greedy(config, sizes.hidden, V2.mixture)?;
    let dense = |i| i < mixture.dense;
    let decoder = build(scope, config, plan, (&V2, sizes, &mixture), dense)?;
    Ok(Decoder { angles: AngleTables::Complex, ..decoder }.boxed())
}

fn build(
    scope: &Scope,
    config: &Config<'_>,
    plan: &Plan,
    (defaults, sizes, mixture): (&Defaults, LatentSizes, &Mixture<'_>),
    dense: impl Fn(u64) -> bool,
) -> Result<Decoder> {
    let hidden = sizes.hidden;
    let intermediate = config.size("intermediate_size", defaults.intermediate)?;
    let count = config.layers("num_hidden_layers", defaults.layers)?;
    let act = config.text("hidden_act", "silu")?;
    let core = causal_lm::attention(plan, config.probability("attention_dropout", 0.0)?);
    let model = scope.child("model");
    let embed_tokens =
        Embedding::new(&model.child("embed_tokens"), config.size("vocab_size", defaults.vocabulary)?, hidden);
    let layer = |scope: &Scope, i| -> Option<Box<dyn Layer>> {
        let norm = |name: &'static str| Norm::Rms(RmsNorm::new(&scope.child(name), hidden));
        let self_attn = LatentAttention::new(&scope.child("self_attn"), sizes, core.clone());
        let mlp = scope.child("mlp");
        Some(Box::new(PreNormLayer {
            self_attn,
            mlp: if dense(i) {
                FeedForward::Gated(Box::new(GatedMlp::new(&mlp, hidden, intermediate, act, mixture.bias)?))
            } else {
                FeedForward::Shared(Box::new(SharedMoe::new(&mlp, mixture)?))
            },
            input_layernorm: norm("input_layernorm"),
            post_attention_layernorm: norm("post_attention_layernorm"),
            windowed: false,
            module: scope.module(),
        }))
    };
    let layers = layers(config, ("hidden_act", act), (&model, count), layer)?;
    let norm = Norm::Rms(RmsNorm::new(&model.child("norm"), hidden));
    let rotary_emb = super::turns::rotary(&model, config, sizes.rope);
    let tied = config.flag("tie_word_embeddings", false)?;
    let head =
        DecoderHead::new(scope, config, plan, (&embed_tokens, false), || causal_lm::head(scope, &embed_tokens, tied))?;
    let parts = Parts { embed_tokens, layers, norm, rotary_emb, head, masks: Masks::Full };
    Decoder::new(scope, &model, plan, parts)
}
