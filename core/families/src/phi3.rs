//! Phi-3 and Phi-4 (transformers `models/phi3/modeling_phi3.py`).

use plimsoll_catalog::software::rules;
use plimsoll_ground::{Result, quoted};
use plimsoll_torch::nn::{
    AttentionCore, Embedding, LayerRotary, Linear, Norm, RmsNorm, Scope, apply_rotary_pos_emb,
    apply_rotary_pos_emb_phi3, kv_cache,
};
use plimsoll_torch::ops;
use plimsoll_torch::tensor::{ModuleId, Tensor};

use super::config::Config;
use super::decoder::{Decoder, Keywords, Layer, Masks, Parts, layers};
use super::decoder_head::DecoderHead;
use super::fused_mlp::FusedMlp;
use super::heads::{HeadDefaults, Heads};
use super::turns::Turns;
use super::{Model, Plan, causal_lm};

#[derive(Debug)]
struct Attend {
    o_proj: Linear,
    qkv_proj: Linear,
    core: AttentionCore,
    rotary_emb: LayerRotary,
    heads: Heads,
    window: Option<u64>,
    module: ModuleId,
}

impl Attend {
    fn forward(&self, hidden: &Tensor, keywords: &Keywords) -> (Tensor, Option<Tensor>) {
        hidden.cx().within(self.module, || {
            let (batch, seq) = (hidden.size(0), hidden.size(1));
            let Heads { heads, kv_heads, head_dim, .. } = self.heads;
            let qkv = self.qkv_proj.forward(hidden);
            let part = |from: u64, count: u64| ops::narrow_from(&qkv, -1, from * head_dim, count * head_dim);
            let split = |x: &Tensor, count| ops::transpose(&ops::view(x, &[batch, seq, count, head_dim]), 1, 2);
            let (mut query, mut key, mut value) =
                (part(0, heads), part(heads, kv_heads), part(heads + kv_heads, kv_heads));
            query = split(&query, heads);
            key = split(&key, kv_heads);
            value = split(&value, kv_heads);
            let angles = self.rotary_emb.angles(&value, keywords.position_ids.as_ref(), keywords.rotary.as_ref());
            let turn = if hidden.cx().machine().rules.has(&rules::PHI3_TURNS_PARTS) {
                apply_rotary_pos_emb_phi3
            } else {
                apply_rotary_pos_emb
            };
            (query, key) = turn(&query, &key, &angles.cos, &angles.sin);
            let _named = angles.turned();
            (key, value) = kv_cache::update(key, value, self.window);
            let mask = keywords.mask.as_ref();
            let own = self.core.is_own(hidden.cx().machine().rules);
            if own {
                [query, key, value] = self.core.of_own([query, key, value], mask);
            }
            let (mut out, weights) = self.core.forward(&query, &key, &value, mask);
            out = ops::contiguous(&ops::reshape(&out, &[batch, seq, heads * head_dim]));
            out = self.o_proj.forward(&out);
            // `if not output_attentions: attn_weights = None`
            (out, weights.filter(|_| !own))
        })
    }
}

#[derive(Debug)]
struct Phi3Layer {
    self_attn: Attend,
    mlp: FusedMlp,
    input_layernorm: RmsNorm,
    post_attention_layernorm: RmsNorm,
    dropouts: [ModuleId; 2],
    resid_pdrop: f64,
    windowed: bool,
    module: ModuleId,
}

impl Layer for Phi3Layer {
    fn forward(&self, hidden: &Tensor, keywords: &Keywords) -> Tensor {
        let (hidden, keywords) = &keywords.given(self.module, hidden);
        let cx = hidden.cx();
        let dropout = |x: &Tensor, module| cx.within(module, || ops::dropout(x, self.resid_pdrop));
        cx.within(self.module, || {
            let residual = hidden;
            let mut hidden = self.input_layernorm.forward(residual);
            let (attended, _weights) = self.self_attn.forward(&hidden, keywords);
            // `attn_outputs` was a name of its own: that of what attention was given stood until the sum took it.
            let named = (!cx.machine().rules.has(&rules::SHARED_SDPA)).then(|| (attended.clone(), hidden.clone()));
            hidden = attended;
            hidden = ops::add(residual, &dropout(&hidden, self.dropouts[0]));
            let named = named.map(|(outputs, _)| outputs);
            let residual = hidden;
            let mut hidden = self.post_attention_layernorm.forward(&residual);
            hidden = self.mlp.forward(&hidden);
            let out = ops::add(&residual, &dropout(&hidden, self.dropouts[1]));
            drop(named);
            out
        })
    }

    fn windowed(&self) -> bool {
        self.windowed
    }
}

/// Refuses scaled positions that its configuration refuses: by factors of their own alone (`validate_rope`), which "su" and "yarn" are
/// older names for.
fn scaled_as_known(config: &Config<'_>) -> Result<()> {
    let tables = ["rope_scaling", "rope_parameters"];
    let Some((key, rope)) = tables.iter().find_map(|key| Some((*key, config.table(key)?))) else { return Ok(()) };
    let kind = rope.text("rope_type", rope.text("type", "default")?)?;
    if ["default", "longrope", "su", "yarn"].contains(&kind) {
        return Ok(());
    }
    let problem = format!("transformers' phi3 knows no positions scaled as {}", quoted(kind));
    Err(config.error(key, problem, "use \"longrope\", or leave it out"))
}

/// `Phi3ForCausalLM(config)`, with the defaults of `configuration_phi3.py`.
pub fn build(scope: &Scope, config: &Config<'_>, plan: &Plan) -> Result<Box<dyn Model>> {
    let heads = Heads::read(config, HeadDefaults { hidden: 3072, heads: 32, kv_heads: None, head_dim: None })?;
    let rotary = heads.rotary(config, "partial_rotary_factor", 1.0)?;
    let turns = Turns::read(scope, config)?;
    scaled_as_known(config)?;
    let intermediate = config.size("intermediate_size", 8192)?;
    let count = config.layers("num_hidden_layers", 32)?;
    let act = config.text("hidden_act", "silu")?;
    let resid_pdrop = config.probability("resid_pdrop", 0.0)?;
    let window = config.optional_size("sliding_window")?;
    let core = causal_lm::attention(plan, config.probability("attention_dropout", 0.0)?);
    // `attn_weights += attention_mask`
    let core = AttentionCore { adds_in_place: true, ..core };
    let model = scope.child("model");
    let embed_tokens = Embedding::new(&model.child("embed_tokens"), config.size("vocab_size", 32_064)?, heads.hidden);
    let layer = |scope: &Scope, _| -> Option<Box<dyn Layer>> {
        let attn = scope.child("self_attn");
        let (q, kv) = (heads.heads * heads.head_dim, heads.kv_heads * heads.head_dim);
        let norm = |name: &'static str| RmsNorm::new(&scope.child(name), heads.hidden);
        Some(Box::new(Phi3Layer {
            self_attn: Attend {
                o_proj: Linear::new(&attn.child("o_proj"), q, heads.hidden, false),
                qkv_proj: Linear::new(&attn.child("qkv_proj"), heads.hidden, q + 2 * kv, false),
                core: core.clone(),
                rotary_emb: turns.layer(&attn, rotary),
                heads,
                window,
                module: attn.module(),
            },
            mlp: FusedMlp::new(&scope.child("mlp"), heads.hidden, intermediate, act)?,
            input_layernorm: norm("input_layernorm"),
            post_attention_layernorm: norm("post_attention_layernorm"),
            dropouts: [scope.child("resid_attn_dropout").module(), scope.child("resid_mlp_dropout").module()],
            resid_pdrop,
            windowed: window.is_some(),
            module: scope.module(),
        }))
    };
    let layers = layers(config, ("hidden_act", act), (&model, count), layer)?;
    let norm = Norm::Rms(RmsNorm::new(&model.child("norm"), heads.hidden));
    let rotary_emb = super::turns::rotary(&model, config, rotary);
    let tied = config.flag("tie_word_embeddings", false)?;
    let head =
        DecoderHead::new(scope, config, plan, (&embed_tokens, true), || causal_lm::head(scope, &embed_tokens, tied))?;
    let masks = window.map_or(Masks::Windowless, Masks::Windowed);
    let parts = Parts { embed_tokens, layers, norm, rotary_emb, head, masks };
    let counts_anew = !scope.cx().machine().rules.has(&rules::SHARED_SDPA);
    Ok(Decoder { counts_anew, ..Decoder::new(scope, &model, plan, parts)? }.boxed())
}
