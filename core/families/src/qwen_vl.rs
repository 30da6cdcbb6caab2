//! Qwen2.5-VL and Qwen3-VL on text alone: `qwen2_5_vl`, `qwen3_vl`, `qwen3_vl_moe`
//! (transformers `models/{qwen2_5_vl,qwen3_vl,qwen3_vl_moe}/modeling_*.py`).
//!
//! Without images neither the tower nor what joins it to the text runs: positions along all three axes are those of the
//! tokens (`compute_3d_position_ids` answers `None`), and no layer is handed visual features.

use plimsoll_catalog::software::rules;
use plimsoll_ground::Result;
use plimsoll_torch::nn::{Angles, Axes, Embedding, GatedMlp, Norm, RmsNorm, Scope, Scores};

use super::attend::{Attend, AttendOptions, QueryKeyNorms};
use super::config::Config;
use super::decoder::{AngleTables, Decoder, Layer, Masks, Parts, layers};
use super::decoder_head::DecoderHead;
use super::heads::{HeadDefaults, Heads};
use super::mixture::Mixture;
use super::pre_norm::{FeedForward, PreNormLayer};
use super::sparse::{self, BlockSizes};
use super::turns::Turns;
use super::vision_tower::{Tower, VisionTower};
use super::{Model, Plan, causal_lm};

/// What the text's config class takes where a configuration does not say.
struct Defaults {
    tower: Tower,
    heads: HeadDefaults,
    vocab: u64,
    intermediate: u64,
    layers: u64,
    sections: [u64; 3],
}

const QWEN2_5: Defaults = Defaults {
    tower: Tower::Qwen25,
    heads: HeadDefaults { hidden: 8192, heads: 64, kv_heads: Some(8), head_dim: None },
    vocab: 152_064,
    intermediate: 29_568,
    layers: 80,
    sections: [16, 24, 24],
};

const QWEN3: Defaults = Defaults {
    tower: Tower::Qwen3,
    heads: HeadDefaults { hidden: 4096, heads: 32, kv_heads: Some(32), head_dim: Some(128) },
    vocab: 151_936,
    intermediate: 22_016,
    layers: 32,
    sections: [24, 20, 20],
};

const QWEN3_MOE: Defaults = Defaults {
    heads: HeadDefaults { hidden: 2048, heads: 16, kv_heads: Some(16), head_dim: None },
    intermediate: 5632,
    layers: 24,
    ..QWEN3
};

/// `Qwen2_5_VLForConditionalGeneration(config)`, `Qwen3VLForConditionalGeneration(config)` or its mixture's.
pub fn build(scope: &Scope, config: &Config<'_>, plan: &Plan) -> Result<Box<dyn Model>> {
    let kind = config.model_type();
    let (defaults, mixture) = match kind {
        "qwen2_5_vl" => (QWEN2_5, false),
        "qwen3_vl" => (QWEN3, false),
        _ => (QWEN3_MOE, true),
    };
    let second = defaults.tower == Tower::Qwen25;
    // Published files of Qwen2.5-VL have the text's keys beside `vision_config`.
    let flat = second && !config.has("text_config");
    let text = if flat { *config } else { config.section("text_config", "model.hf.text_config")? };
    // `BC: pre-v5 saves placed tie_word_embeddings inside text_config`
    let rules = scope.cx().machine().rules;
    let tied = rules.has(&rules::VL_TIES_AS_WHOLE) && config.flag("tie_word_embeddings", false)?
        || (second || !rules.has(&rules::VL_TIES_AS_WHOLE)) && text.flag("tie_word_embeddings", false)?;

    let model = scope.child("model");
    let vision = config.section("vision_config", "model.hf.vision_config")?;
    let visual = VisionTower::new(&model.child("visual"), &vision, defaults.tower)?;

    let heads = Heads::read(&text, defaults.heads)?;
    let rotary = heads.rotary(&text, "", 1.0)?;
    let axes = axes(&text, &defaults, rotary)?;
    let bias = !second && text.flag("attention_bias", false)?;
    let act = text.text("hidden_act", "silu")?;
    let intermediate = text.size("intermediate_size", defaults.intermediate)?;
    let count = text.layers("num_hidden_layers", defaults.layers)?;
    let sparse = if mixture { Some(mixture_of(&text, heads.hidden, act)?) } else { None };
    let window = if second && text.flag("use_sliding_window", false)? {
        let default = (!text.mentions("sliding_window")).then_some(4096);
        text.optional_size("sliding_window")?.or(default)
    } else {
        None
    };
    let first = text.count("max_window_layers", 80)?;
    let types = if second { text.layer_types(count, causal_lm::WINDOWED)? } else { None };
    let windowed = |i: u64| match &types {
        Some(types) => window.is_some() && types.get(i as usize) == Some(&"sliding_attention"),
        None => window.is_some() && i >= first,
    };
    let core = causal_lm::attention(plan, text.probability("attention_dropout", 0.0)?);
    // Frequencies that nobody reads.
    let held = second && !rules.has(&rules::QWEN_VL_LAYERS_HOLD_NOTHING);
    let turns = if held { Turns { angles: Angles::OnceAndHeld, positions: 0 } } else { Turns::PLAIN };
    let plain = AttendOptions {
        heads,
        rotary,
        turns,
        qkv_bias: second || bias,
        out_bias: bias,
        whole_projections: second,
        ..AttendOptions::PLAIN
    };
    let norms = |scope: &Scope| {
        let norm = |name: &'static str| Norm::Rms(RmsNorm::new(&scope.child(name), heads.head_dim));
        if second { QueryKeyNorms::None } else { QueryKeyNorms::Heads(norm("q_norm"), norm("k_norm")) }
    };

    let language = model.child("language_model");
    let vocab = text.size("vocab_size", defaults.vocab)?;
    let embed_tokens = Embedding::new(&language.child("embed_tokens"), vocab, heads.hidden);
    let layer = |scope: &Scope, i| -> Option<Box<dyn Layer>> {
        let norm = |name: &'static str| Norm::Rms(RmsNorm::new(&scope.child(name), heads.hidden));
        let options = AttendOptions { window: window.filter(|_| windowed(i)), ..plain };
        let self_attn = Attend::new(&scope.child("self_attn"), &options, core.clone(), norms);
        let mlp = scope.child("mlp");
        Some(Box::new(PreNormLayer {
            self_attn,
            mlp: match &sparse {
                Some(mixture) => mixture.feed_forward(&mlp, i, intermediate)?,
                None => FeedForward::Gated(Box::new(GatedMlp::new(&mlp, heads.hidden, intermediate, act, false)?)),
            },
            input_layernorm: norm("input_layernorm"),
            post_attention_layernorm: norm("post_attention_layernorm"),
            windowed: windowed(i),
            module: scope.module(),
        }))
    };
    let layers = layers(&text, ("hidden_act", act), (&language, count), layer)?;
    let norm = Norm::Rms(RmsNorm::new(&language.child("norm"), heads.hidden));
    let rotary_emb = super::turns::rotary(&language, config, rotary);
    let head =
        DecoderHead::new(scope, config, plan, (&embed_tokens, false), || causal_lm::head(scope, &embed_tokens, tied))?;
    let masks = window.map_or(Masks::Full, Masks::FullThenUsed);
    let parts = Parts { embed_tokens, layers, norm, rotary_emb, head, masks };
    let decoder = Decoder::new(scope, &language, plan, parts)?;
    let decoder = Decoder {
        angles: AngleTables::Axes(axes),
        outer: Some((model.module(), visual)),
        // `If inputs are not packed (usual 3D positions), do not prepare mask from position_ids`
        hands_positions: !second,
        ..decoder
    };
    Ok(decoder.boxed())
}

/// How the tables of the three axes are put together (`mrope_section`).
fn axes(text: &Config<'_>, defaults: &Defaults, rotary: u64) -> Result<Axes> {
    let key = ["rope_scaling", "rope_parameters"].into_iter().find(|key| text.has(key));
    let table = key.and_then(|key| text.table(key));
    let sections = match table.and_then(|rope| rope.counts("mrope_section")) {
        None => defaults.sections,
        Some(given) => <[u64; 3]>::try_from(given).map_err(|given| {
            let problem = format!("mrope_section has {} parts, and positions have three axes", given.len());
            text.error(key.unwrap_or_default(), problem, "give the model's own: three numbers")
        })?,
    };
    if defaults.tower == Tower::Qwen3 {
        return Ok(Axes::Interleaved([sections[1], sections[2]]));
    }
    let all = sections.iter().fold(0, |all: u64, length| all.saturating_add(*length));
    if all != rotary / 2 {
        return Err(text.error(
            key.unwrap_or("rope_scaling"),
            format!("mrope_section adds up to {all}, and half a head is {}: transformers fails there", rotary / 2),
            "give an mrope_section of three numbers that add up to half of head_dim",
        ));
    }
    Ok(Axes::Sections(sections))
}

/// What `Qwen3VLMoeTextConfig` says of its experts.
fn mixture_of<'c>(text: &Config<'c>, hidden: u64, act: &'c str) -> Result<Mixture<'c>> {
    sparse::refuse(text)?;
    // `attribute_map`: what is saved has the second name.
    let key = if text.has("num_local_experts") { "num_local_experts" } else { "num_experts" };
    let count = sparse::experts(text, key, 60)?;
    let block = BlockSizes {
        hidden,
        intermediate: text.size("moe_intermediate_size", 1408)?,
        shared: None,
        count,
        top_k: sparse::chosen(text, 4, count)?,
        scores: Scores::Cast { normalised: true },
        experts_first: true,
        act,
        listing: sparse::Listing::Picked,
        leaf: false,
    };
    Mixture::read(text, block)
}
