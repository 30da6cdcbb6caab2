//! OPT (transformers `models/opt/modeling_opt.py`).

use std::rc::Rc;

use plimsoll_catalog::software::rules;
use plimsoll_ground::Result;
use plimsoll_scenario::Attention;
use plimsoll_torch::nn::{
    Activation, AttentionCore, Embedding, LayerNorm, Linear, ModuleList, Scope, kv_cache, late_causal_mask,
    older_causal_mask, two_part_causal_mask, whole_two_part_mask,
};
use plimsoll_torch::ops::{self, Fill, Pointwise, Reduction};
use plimsoll_torch::tensor::{Context, DType, ModuleId, Tensor};

use super::checkpointed::checkpoint_layer;
use super::config::{Config, divide};
use super::decoder_head::DecoderHead;
use super::decoder_only::{DecoderOnly, Headed, Shell};
use super::{Model, Plan, causal_lm};

#[derive(Debug)]
struct Attend {
    k_proj: Linear,
    v_proj: Linear,
    q_proj: Linear,
    out_proj: Linear,
    core: AttentionCore,
    heads: u64,
    module: ModuleId,
}

impl Attend {
    /// And what it returns beside, which the layer has names for.
    fn forward(&self, hidden: &Tensor, mask: Option<&Tensor>) -> (Tensor, Vec<Tensor>) {
        hidden.cx().within(self.module, || {
            let (batch, seq, width) = (hidden.size(0), hidden.size(1), hidden.size(2));
            let rules = hidden.cx().machine().rules;
            let eager = self.core.implementation == Attention::Eager;
            match rules.has(&rules::OPT_HAS_CACHE_CLASS) {
                false if eager || !rules.has(&rules::OPT_CALLS_SDPA) => return self.older(hidden, mask),
                false => return self.first_sdpa(hidden, mask),
                true => {}
            }
            let heads = |x: &Tensor| ops::transpose(&ops::view(x, &[batch, seq, self.heads, width / self.heads]), 1, 2);
            let shares = rules.has(&rules::OPT_SHARES_SDPA);
            // Its own class left scaling to the kernel.
            let scales = shares || eager;
            let query = {
                let projected = self.q_proj.forward(hidden);
                heads(&if scales { ops::mul_scalar(&projected) } else { projected })
            };
            let (mut key, mut value) = {
                let (key, value) = (self.k_proj.forward(hidden), self.v_proj.forward(hidden));
                (heads(&key), heads(&value))
            };
            (key, value) = kv_cache::update(key, value, None);
            let (mut out, weights) = if shares {
                self.core.forward(&query, &key, &value, mask)
            } else {
                self.core.forward_as_given(&query, &key, &value, mask)
            };
            out = ops::contiguous(&ops::reshape(&out, &[batch, seq, width]));
            out = self.out_proj.forward(&out);
            let returned = weights.filter(|_| !shares || rules.has(&rules::OPT_RETURNS_PROBABILITIES));
            (out, returned.into_iter().collect())
        })
    }
}

impl Attend {
    /// `_shape`: heads are copied.
    fn shape(&self, x: &Tensor) -> Tensor {
        let (batch, seq, width) = (x.size(0), x.size(1), x.size(2));
        let split = ops::view(x, &[batch, seq, self.heads, width / self.heads]);
        ops::contiguous(&ops::transpose(&split, 1, 2))
    }

    /// `OPTSdpaAttention` of 4.46 to 4.48.
    fn first_sdpa(&self, hidden: &Tensor, mask: Option<&Tensor>) -> (Tensor, Vec<Tensor>) {
        let mut query = ops::mul_scalar(&self.q_proj.forward(hidden));
        query = self.shape(&query);
        let key = self.shape(&self.k_proj.forward(hidden));
        let value = self.shape(&self.v_proj.forward(hidden));
        let (key, value) = kv_cache::update(key, value, None);
        let mut out = self.core.forward_as_given(&query, &key, &value, mask).0;
        out = ops::view(&out, hidden.dims());
        out = self.out_proj.forward(&out);
        drop(query);
        // `past_key_value = (key_states, value_states)`
        (out, vec![key, value])
    }

    /// The only attention before 4.46, and the eager one of OPT until 4.48: scores are cut off at the smallest number.
    fn older(&self, hidden: &Tensor, mask: Option<&Tensor>) -> (Tensor, Vec<Tensor>) {
        let (batch, seq, width) = (hidden.size(0), hidden.size(1), hidden.size(2));
        let heads = |x: &Tensor| self.shape(x);
        let projected = ops::mul_scalar(&self.q_proj.forward(hidden));
        let key = heads(&self.k_proj.forward(hidden));
        let value = heads(&self.v_proj.forward(hidden));
        let (key, value) = kv_cache::update(key, value, None);
        let query = heads(&projected);
        drop(projected);
        let mut scores = ops::matmul(&query, &ops::transpose(&key, 2, 3));
        if let Some(mask) = mask {
            scores = ops::add(&scores, mask);
            let least = ops::fill(hidden.cx(), Fill::ToCopy, &[], DType::Float32);
            scores = ops::maximum(&scores, &least);
        }
        let weights = if scores.dtype() == DType::Float16 {
            ops::to(&ops::softmax_fp32(&scores), DType::Float16)
        } else {
            ops::softmax(&scores)
        };
        drop(scores);
        let probabilities = ops::dropout(&weights, self.core.dropout);
        let mut out = ops::matmul(&probabilities, &value);
        out = ops::contiguous(&ops::reshape(&ops::transpose(&out, 1, 2), &[batch, seq, width]));
        out = self.out_proj.forward(&out);
        drop((weights, probabilities, query));
        (out, vec![key, value])
    }
}

#[derive(Debug)]
struct DecoderLayer {
    self_attn: Attend,
    activation_fn: Activation,
    self_attn_layer_norm: LayerNorm,
    fc1: Linear,
    fc2: Linear,
    final_layer_norm: LayerNorm,
    dropout: f64,
    /// 350M alone normalises after attention and feed-forward.
    norm_before: bool,
    module: ModuleId,
}

impl DecoderLayer {
    fn forward(&self, hidden: &Tensor, mask: Option<&Tensor>) -> Tensor {
        let hidden = &hidden.cx().argument(self.module, hidden);
        hidden.cx().within(self.module, || {
            let residual = hidden;
            let mut hidden = hidden.clone();
            if self.norm_before {
                hidden = self.self_attn_layer_norm.forward(&hidden);
            }
            let (attended, _returned) = self.self_attn.forward(&hidden, mask);
            hidden = attended;
            hidden = ops::dropout(&hidden, self.dropout);
            hidden = ops::add(residual, &hidden);
            if !self.norm_before {
                hidden = self.self_attn_layer_norm.forward(&hidden);
            }
            let sizes = hidden.dims().to_vec();
            hidden = ops::reshape(&hidden, &[sizes[0] * sizes[1], sizes[2]]);
            let residual = hidden.clone();
            if self.norm_before {
                hidden = self.final_layer_norm.forward(&hidden);
            }
            hidden = self.fc1.forward(&hidden);
            hidden = self.activation_fn.forward(&hidden);
            hidden = self.fc2.forward(&hidden);
            hidden = ops::dropout(&hidden, self.dropout);
            hidden = ops::view(&ops::add(&residual, &hidden), &sizes);
            if self.norm_before { hidden } else { self.final_layer_norm.forward(&hidden) }
        })
    }
}

#[derive(Debug)]
struct OptForCausalLm {
    cx: Rc<Context>,
    embed_tokens: Embedding,
    embed_positions: Embedding,
    positions: ModuleId,
    project_out: Option<Linear>,
    project_in: Option<Linear>,
    final_layer_norm: Option<LayerNorm>,
    layers: ModuleList<DecoderLayer>,
    head: DecoderHead,
    decoder: ModuleId,
    seq: u64,
    plan: Plan,
}

/// `OPTForCausalLM(config)`, with the defaults of `configuration_opt.py`.
pub fn build(scope: &Scope, config: &Config<'_>, plan: &Plan) -> Result<Box<dyn Model>> {
    let hidden = config.size("hidden_size", 768)?;
    let heads = config.size("num_attention_heads", 12)?;
    divide(config, ("hidden_size", hidden), ("num_attention_heads", heads))?;
    let layers = config.layers("num_hidden_layers", 12)?;
    let ffn = config.size("ffn_dim", 3072)?;
    let positions = config.size("max_position_embeddings", 2048)?;
    let vocab = config.size("vocab_size", 50_272)?;
    let embed = config.optional_size("word_embed_proj_dim")?.unwrap_or(hidden);
    let bias = config.flag("enable_bias", true)?;
    let norm_before = config.flag("do_layer_norm_before", true)?;
    let dropout = config.probability("dropout", 0.1)?;
    let act = config.text("activation_function", "relu")?;
    if config.probability("layerdrop", 0.0)? > 0.0 {
        return Err(config.error("layerdrop", "layers left out by chance cannot be estimated", "set it to 0"));
    }
    if !config.flag("layer_norm_elementwise_affine", true)? {
        return Err(config.error("layer_norm_elementwise_affine", "is not estimated yet without", "set it to true"));
    }
    let seq = plan.seq()?;
    if seq > positions {
        return Err(plimsoll_ground::Error::new(
            "input.seq",
            format!("{seq} tokens, but the model has {positions} position embeddings"),
            format!("use at most {positions}"),
        ));
    }
    let core = causal_lm::attention(plan, config.probability("attention_dropout", 0.0)?);
    let decoder = scope.child("model").child("decoder");
    let embed_tokens = Embedding::new(&decoder.child("embed_tokens"), vocab, embed);
    // The table begins two places later than positions do.
    let place = decoder.child("embed_positions");
    let embed_positions = Embedding::new(&place, positions + 2, hidden);
    let project = |name: &'static str, i, o| (embed != hidden).then(|| Linear::new(&decoder.child(name), i, o, false));
    let project_out = project("project_out", hidden, embed);
    let project_in = project("project_in", embed, hidden);
    let last = norm_before && !config.flag("_remove_final_layer_norm", false)?;
    let final_layer_norm = last.then(|| LayerNorm::new(&decoder.child("final_layer_norm"), hidden, true));
    let layer = |scope: &Scope, _| -> Option<DecoderLayer> {
        let attn = scope.child("self_attn");
        let linear = |scope: &Scope, name: &'static str, i, o| Linear::new(&scope.child(name), i, o, bias);
        let self_attn = Attend {
            k_proj: linear(&attn, "k_proj", hidden, hidden),
            v_proj: linear(&attn, "v_proj", hidden, hidden),
            q_proj: linear(&attn, "q_proj", hidden, hidden),
            out_proj: linear(&attn, "out_proj", hidden, hidden),
            core: core.clone(),
            heads,
            module: attn.module(),
        };
        Some(DecoderLayer {
            self_attn,
            activation_fn: Activation::new(&scope.child("activation_fn"), act)?,
            self_attn_layer_norm: LayerNorm::new(&scope.child("self_attn_layer_norm"), hidden, true),
            fc1: linear(scope, "fc1", hidden, ffn),
            fc2: linear(scope, "fc2", ffn, hidden),
            final_layer_norm: LayerNorm::new(&scope.child("final_layer_norm"), hidden, true),
            dropout,
            norm_before,
            module: scope.module(),
        })
    };
    let layers = ModuleList::new(&decoder, "layers", layers, layer)
        .ok_or_else(|| super::unknown_activation(config, "activation_function", act))?;
    let tied = config.flag("tie_word_embeddings", true)?;
    let head =
        DecoderHead::new(scope, config, plan, (&embed_tokens, true), || causal_lm::head(scope, &embed_tokens, tied))?;
    Ok(Box::new(Headed(OptForCausalLm {
        cx: Rc::clone(scope.cx()),
        embed_tokens,
        embed_positions,
        positions: place.module(),
        project_out,
        project_in,
        final_layer_norm,
        layers,
        head,
        decoder: decoder.module(),
        seq,
        plan: plan.clone(),
    })))
}

impl DecoderOnly for OptForCausalLm {
    fn shell(&self) -> Shell<'_> {
        Shell { cx: &self.cx, head: &self.head, seq: self.seq, plan: &self.plan }
    }

    fn returns_tuples(&self) -> bool {
        !self.cx.machine().rules.has(&rules::OPT_HAS_CACHE_CLASS)
    }

    /// `OPTDecoder.forward`: the last hidden state.
    fn hidden(&self, ids: &Tensor, mask: Option<&Tensor>, given_positions: Option<&Tensor>) -> Tensor {
        let cx = &self.cx;
        cx.within(self.decoder, || {
            let mut embeds = causal_lm::input_embeddings(&self.embed_tokens, ids, &self.plan);
            let masks = cx.machine().rules.has(&rules::LAST_DECODERS_SHARE_MASK);
            let counts = !masks && !cx.machine().rules.has(&rules::OPT_CALLS_SDPA);
            let in_two = !masks && !counts && !cx.machine().rules.has(&rules::OPT_HAS_CACHE_CLASS);
            let generates = cx.is_inference() && cx.remembers();
            let cache_position = (!masks && !counts && !in_two && !generates).then(|| ops::arange(cx, embeds.size(1)));
            let given = causal_lm::given_mask(mask, &self.plan);
            let ones;
            let (mask, padded) = match given {
                Some(given) => given,
                None => {
                    // Without a mask OPT makes one: of ones, in float32.
                    ones = ops::fill(cx, Fill::Ones, ids.dims(), DType::Float32);
                    (&ones, false)
                }
            };
            let (position_ids, causal);
            if masks {
                position_ids = given_positions.cloned().unwrap_or_else(|| positions(mask));
                causal = late_causal_mask(&embeds, Some((mask, padded)), &position_ids, self.plan.attention);
            } else if counts {
                causal = whole_two_part_mask(&embeds, Some((mask, padded)));
                position_ids = given_positions.cloned().unwrap_or_else(|| counted_positions(mask));
            } else if in_two {
                causal = match self.plan.attention {
                    Attention::Sdpa => two_part_causal_mask(&embeds, Some((mask, padded)), Attention::Sdpa),
                    Attention::Eager => whole_two_part_mask(&embeds, Some((mask, padded))),
                };
                position_ids = given_positions.cloned().unwrap_or_else(|| positions(mask));
            } else {
                causal = older_causal_mask(&embeds, Some((mask, padded)), self.plan.attention);
                position_ids = given_positions.cloned().unwrap_or_else(|| positions(mask));
            }
            let pos_embeds = cx.within(self.positions, || {
                let shifted = ops::pointwise(Pointwise::AddTensor, &position_ids, &[], ids.dims(), DType::Int64);
                self.embed_positions.forward(&shifted)
            });
            if let Some(project_in) = &self.project_in {
                embeds = project_in.forward(&embeds);
            }
            let mut hidden = ops::add(&embeds, &pos_embeds);
            hidden = self.layers.run(
                cx,
                hidden,
                |_| (),
                |layer, hidden| {
                    if cx.checkpoints(self.plan.checkpointing) {
                        let (layer, captured) = (Rc::clone(layer), cache_position.clone());
                        let given = (causal.clone(), Some(position_ids.clone()));
                        checkpoint_layer(cx, vec![hidden], given, move |inputs, mask, _| {
                            let _captured = &captured;
                            layer.forward(&inputs[0], mask.as_ref())
                        })
                    } else {
                        layer.forward(&hidden, causal.as_ref())
                    }
                },
            );
            if let Some(norm) = &self.final_layer_norm {
                hidden = norm.forward(&hidden);
            }
            if let Some(project_out) = &self.project_out {
                hidden = project_out.forward(&hidden);
            }
            hidden
        })
    }
}

/// `(cumsum(attention_mask.long(), dim=1) * attention_mask).long() - 1`, as the table of positions had it before 4.46.
fn counted_positions(mask: &Tensor) -> Tensor {
    let mask = ops::to(mask, DType::Int64);
    let product = {
        let cumsum = ops::reduction(Reduction::Cumsum, &mask, mask.dims(), DType::Int64);
        ops::pointwise(Pointwise::MulTensor, &cumsum, &[&mask], mask.dims(), DType::Int64)
    };
    ops::pointwise(Pointwise::SubTensor, &product, &[], mask.dims(), DType::Int64)
}

/// `(cumsum(attention_mask, dim=1) * attention_mask - 1).long()`.
fn positions(mask: &Tensor) -> Tensor {
    let dtype = mask.dtype();
    let cumsum = ops::reduction(Reduction::Cumsum, mask, mask.dims(), dtype);
    let product = ops::pointwise(Pointwise::MulTensor, &cumsum, &[mask], mask.dims(), dtype);
    let less = ops::pointwise(Pointwise::SubTensor, &product, &[], mask.dims(), dtype);
    drop(product);
    ops::to(&less, DType::Int64)
}
