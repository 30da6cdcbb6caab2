//! DeepSeek's multi-head latent attention (transformers `models/deepseek_v3/modeling_deepseek_v3.py`,
//! `DeepseekV3Attention`): keys and values come out of a narrow latent, and only a part of every head is turned.

use plimsoll_catalog::software::rules;
use plimsoll_ground::Result;
use plimsoll_torch::nn::{
    AttentionCore, Linear, Norm, RmsNorm, Scope, apply_rotary_emb, apply_rotary_pos_emb,
    apply_rotary_pos_emb_interleave, kv_cache,
};
use plimsoll_torch::ops;
use plimsoll_torch::tensor::{ModuleId, Tensor};

use super::config::{Config, MAX_SIZE};
use super::decoder::Keywords;

/// The sizes of a latent attention, as configurations name them.
#[derive(Clone, Copy, Debug)]
pub struct LatentSizes {
    /// `hidden_size`.
    pub hidden: u64,
    /// `num_attention_heads`.
    pub heads: u64,
    /// `q_lora_rank`; `None`: queries are projected at once.
    pub q_rank: Option<u64>,
    /// `kv_lora_rank`.
    pub kv_rank: u64,
    /// `qk_nope_head_dim`.
    pub nope: u64,
    /// `qk_rope_head_dim`.
    pub rope: u64,
    /// `v_head_dim`.
    pub value: u64,
    /// `attention_bias`, which the narrow projections and the output have.
    pub bias: bool,
    /// `rope_interleave`: every turned dimension has its neighbour, else the other half. Where turning is a product of
    /// complex numbers (DeepSeek V2) it always is the neighbour.
    pub interleave: bool,
}

/// What a config class takes where a configuration does not say.
#[derive(Clone, Copy, Debug)]
pub struct LatentDefaults {
    /// `hidden_size`.
    pub hidden: u64,
    /// `num_attention_heads`.
    pub heads: u64,
    /// `num_key_value_heads`; `None`: as many as there are heads.
    pub kv_heads: Option<u64>,
    /// `q_lora_rank`.
    pub q_rank: u64,
    /// `qk_nope_head_dim`.
    pub nope: u64,
    /// `v_head_dim`.
    pub value: u64,
}

impl LatentSizes {
    /// With the defaults of `configuration_deepseek_v3.py`, `configuration_deepseek_v2.py` and `configuration_glm4_moe_lite.py`, which
    /// differ in `defaults`.
    ///
    /// # Errors
    /// Sizes that are too large together, an odd number of turned dimensions, or fewer heads of keys than of queries.
    pub fn read(config: &Config<'_>, defaults: LatentDefaults) -> Result<Self> {
        let heads = config.size("num_attention_heads", defaults.heads)?;
        let given = config.optional_size("num_key_value_heads")?;
        let default = defaults.kv_heads.filter(|_| !config.mentions("num_key_value_heads"));
        let kv_heads = given.or(default).unwrap_or(heads);
        if kv_heads != heads {
            return Err(config.error(
                "num_key_value_heads",
                format!("{kv_heads}, with {heads} heads: every head's keys come out of the latent"),
                "give as many as num_attention_heads",
            ));
        }
        let sizes = Self {
            hidden: config.size("hidden_size", defaults.hidden)?,
            heads,
            q_rank: config
                .optional_size("q_lora_rank")?
                .or((!config.mentions("q_lora_rank")).then_some(defaults.q_rank)),
            kv_rank: config.size("kv_lora_rank", 512)?,
            nope: config.size("qk_nope_head_dim", defaults.nope)?,
            rope: config.size("qk_rope_head_dim", 64)?,
            value: config.size("v_head_dim", defaults.value)?,
            bias: config.flag("attention_bias", false)?,
            interleave: config.flag("rope_interleave", true)?,
        };
        let widest = (sizes.nope + sizes.rope).max(sizes.nope + sizes.value);
        if heads.saturating_mul(widest) > MAX_SIZE {
            return Err(config.error(
                "num_attention_heads",
                format!("{heads} heads of {widest} are too wide together"),
                format!("choose sizes so that all heads together have at most {MAX_SIZE}"),
            ));
        }
        if !sizes.rope.is_multiple_of(2) {
            return Err(config.error(
                "qk_rope_head_dim",
                format!("rotary embeddings turn pairs, not {} dimensions", sizes.rope),
                "give an even number",
            ));
        }
        Ok(sizes)
    }
}

#[derive(Debug)]
enum Queries {
    Whole(Linear),
    /// `q_a_proj`, `q_a_layernorm`, `q_b_proj`.
    Narrowed(Box<(Linear, Norm, Linear)>),
}

/// `DeepseekV3Attention`.
#[derive(Debug)]
pub struct LatentAttention {
    queries: Queries,
    kv_a_proj_with_mqa: Linear,
    kv_a_layernorm: Norm,
    kv_b_proj: Linear,
    o_proj: Linear,
    core: AttentionCore,
    sizes: LatentSizes,
    module: ModuleId,
}

impl LatentAttention {
    /// Its modules in the order they are registered.
    pub fn new(scope: &Scope, sizes: LatentSizes, core: AttentionCore) -> Self {
        let LatentSizes { hidden, heads, kv_rank, nope, rope, value, bias, .. } = sizes;
        let linear = |name: &'static str, i, o, bias| Linear::new(&scope.child(name), i, o, bias);
        let norm = |name: &'static str, width| Norm::Rms(RmsNorm::new(&scope.child(name), width));
        let width = heads * (nope + rope);
        let queries = match sizes.q_rank {
            None => Queries::Whole(linear("q_proj", hidden, width, false)),
            Some(rank) => {
                let narrow = linear("q_a_proj", hidden, rank, bias);
                let norm = norm("q_a_layernorm", rank);
                Queries::Narrowed(Box::new((narrow, norm, linear("q_b_proj", rank, width, false))))
            }
        };
        Self {
            queries,
            kv_a_proj_with_mqa: linear("kv_a_proj_with_mqa", hidden, kv_rank + rope, bias),
            kv_a_layernorm: norm("kv_a_layernorm", kv_rank),
            kv_b_proj: linear("kv_b_proj", kv_rank, heads * (nope + value), false),
            o_proj: linear("o_proj", heads * value, hidden, bias),
            core,
            sizes,
            module: scope.module(),
        }
    }

    /// The attended hidden states, and the probabilities that eager attention returns beside them.
    pub fn forward(&self, hidden: &Tensor, keywords: &Keywords) -> (Tensor, Option<Tensor>) {
        hidden.cx().within(self.module, || {
            let LatentSizes { heads, kv_rank, nope, rope, value, .. } = self.sizes;
            let (batch, seq) = (hidden.size(0), hidden.size(1));
            let mut q_states = match &self.queries {
                Queries::Whole(q_proj) => q_proj.forward(hidden),
                Queries::Narrowed(parts) => {
                    let (narrow, norm, wide) = &**parts;
                    // An argument is let go of where its call returns.
                    let normed = {
                        let narrowed = narrow.forward(hidden);
                        norm.forward(&narrowed)
                    };
                    wide.forward(&normed)
                }
            };
            q_states = ops::transpose(&ops::view(&q_states, &[batch, seq, heads, nope + rope]), 1, 2);
            let (q_pass, mut q_rot) = ops::split_in_two(&q_states, nope);
            let compressed_kv = self.kv_a_proj_with_mqa.forward(hidden);
            let (mut kv_nope, mut k_rot) = ops::split_in_two(&compressed_kv, kv_rank);
            kv_nope = self.kv_a_layernorm.forward(&kv_nope);
            let latent = hidden.cx().machine().rules.has(&rules::LATENTS_CACHED);
            // The values of every head, where it is keys and values that a cache remembers.
            let mut values = None;
            if latent {
                kv_nope = ops::view(&kv_nope, &[batch, 1, seq, kv_rank]);
            } else {
                let (keys, of_heads) = self.wide(&kv_nope, seq);
                (kv_nope, values) = (keys, Some(of_heads));
            }
            k_rot = ops::view(&k_rot, &[batch, 1, seq, rope]);
            if let Some(freqs_cis) = &keywords.freqs_cis {
                (q_rot, k_rot) = apply_rotary_emb(&q_rot, &k_rot, freqs_cis);
            } else if let Some((cos, sin)) = &keywords.rotary {
                let turn = if self.sizes.interleave { apply_rotary_pos_emb_interleave } else { apply_rotary_pos_emb };
                (q_rot, k_rot) = turn(&q_rot, &k_rot, cos, sin);
            }
            if latent {
                (kv_nope, k_rot) = kv_cache::update(kv_nope, k_rot, None);
            } else {
                k_rot = ops::expand(&k_rot, &[batch, heads, seq, rope]);
            }
            let query_states = ops::cat(&[&q_pass, &q_rot], -1);
            let (key_states, value_states) = match values {
                None => self.expand_kv(&kv_nope, &k_rot),
                Some(values) => kv_cache::update(ops::cat(&[&kv_nope, &k_rot], -1), values, None),
            };
            let mask = keywords.mask.as_ref();
            let (mut out, weights) = self.core.forward(&query_states, &key_states, &value_states, mask);
            out = ops::contiguous(&ops::reshape(&out, &[batch, seq, heads * value]));
            out = self.o_proj.forward(&out);
            drop((q_states, q_pass, q_rot, compressed_kv, kv_nope, k_rot));
            (out, weights)
        })
    }

    /// `expand_kv`: the latents as keys and values of every head, `[batch, heads, seq, dim]`.
    fn expand_kv(&self, kv_nope: &Tensor, k_rot: &Tensor) -> (Tensor, Tensor) {
        let LatentSizes { heads, rope, .. } = self.sizes;
        let (batch, seq) = (kv_nope.size(0), kv_nope.size(2));
        let (k_nope, value_states) = self.wide(kv_nope, seq);
        let k_rot = ops::expand(k_rot, &[batch, heads, seq, rope]);
        (ops::filled(k_nope.dtype(), &[&k_nope, &k_rot]), value_states)
    }

    /// `kv_b_proj` of the latents: what of every head's keys is not turned, and its values.
    fn wide(&self, latents: &Tensor, seq: u64) -> (Tensor, Tensor) {
        let LatentSizes { heads, nope, value, .. } = self.sizes;
        let wide = self.kv_b_proj.forward(latents);
        let wide = ops::transpose(&ops::view(&wide, &[latents.size(0), seq, heads, nope + value]), 1, 2);
        ops::split_in_two(&wide, nope)
    }
}
