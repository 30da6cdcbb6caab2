//! GPT-2 (transformers `models/gpt2/modeling_gpt2.py`).

use std::rc::Rc;

use plimsoll_catalog::software::rules;
use plimsoll_ground::Result;
use plimsoll_scenario::Attention;
use plimsoll_torch::nn::{
    Activation, AttentionCore, Conv1D, Embedding, LayerNorm, ModuleList, Probabilities, Scope, gpt2_causal_mask,
    kv_cache, two_part_causal_mask,
};
use plimsoll_torch::ops::{self, Fill};
use plimsoll_torch::tensor::{Context, DType, ModuleId, Tensor, checkpoint};

use super::config::{Config, divide};
use super::decoder_head::DecoderHead;
use super::decoder_only::{DecoderOnly, Headed, Shell};
use super::{Model, Plan, causal_lm};

#[derive(Debug)]
struct Attend {
    c_attn: Conv1D,
    c_proj: Conv1D,
    core: AttentionCore,
    /// What each position may see, bool `[1, 1, positions, positions]`, and the number that stands elsewhere, in versions
    /// that keep them.
    bias: Option<(Tensor, Option<Tensor>)>,
    resid_dropout: (f64, ModuleId),
    embed: u64,
    heads: u64,
    module: ModuleId,
}

impl Attend {
    fn forward(&self, hidden: &Tensor, mask: Option<&Tensor>) -> (Tensor, Option<Tensor>) {
        hidden.cx().within(self.module, || {
            let (batch, seq) = (hidden.size(0), hidden.size(1));
            let parts = ops::split(&self.c_attn.forward(hidden), self.embed, 2);
            let heads = |part: &Tensor| {
                ops::transpose(&ops::view(part, &[batch, seq, self.heads, self.embed / self.heads]), 1, 2)
            };
            let mut key = heads(&parts[1]);
            let mut value = heads(&parts[2]);
            let query = heads(&parts[0]);
            drop(parts);
            (key, value) = kv_cache::update(key, value, None);
            let (mut out, weights) = match &self.bias {
                bias if self.core.implementation == Attention::Eager && self.divides(hidden, bias.is_some()) => {
                    self.eager_divided([&query, &key, &value], mask, bias.as_ref().map(|(bias, _)| bias))
                }
                // Its own class of attention copied nothing.
                _ if hidden.cx().machine().rules.has(&rules::SHARED_SDPA) => {
                    self.core.forward(&query, &key, &value, mask)
                }
                _ => self.core.forward_as_given(&query, &key, &value, mask),
            };
            out = ops::contiguous(&ops::reshape(&out, &[batch, seq, self.embed]));
            out = self.c_proj.forward(&out);
            let (p, module) = self.resid_dropout;
            out = hidden.cx().within(module, || ops::dropout(&out, p));
            (out, weights.filter(|_| hidden.cx().machine().rules.has(&rules::GPT2_RETURNS_PROBABILITIES)))
        })
    }

    /// Whether eager attention divides the scores: where layers hold masks, and until [`rules::GPT2_SCALES_BY_NUMBER`].
    fn divides(&self, hidden: &Tensor, has_bias: bool) -> bool {
        has_bias || !hidden.cx().machine().rules.has(&rules::GPT2_SCALES_BY_NUMBER)
    }

    /// `eager_attention_forward` of the versions that divide by a number on the card, and whose layers may hold the causal part of
    /// the mask.
    fn eager_divided(
        &self,
        [query, key, value]: [&Tensor; 3],
        mask: Option<&Tensor>,
        bias: Option<&Tensor>,
    ) -> (Tensor, Option<Tensor>) {
        let mut weights = ops::matmul(query, &ops::transpose(key, -1, -2));
        let scale = ops::fill(query.cx(), Fill::Full, &[], weights.dtype());
        weights = ops::div(&weights, &scale);
        drop(scale);
        // Python has a name for the number to the end.
        let mut named = None;
        if let Some(bias) = bias {
            let causal = ops::narrow(&ops::narrow(bias, 2, query.size(2)), 3, key.size(2));
            let mask_value = named.insert(ops::fill(query.cx(), Fill::Full, &[], weights.dtype()));
            weights = ops::where_tensor(&causal, &weights, mask_value);
        }
        if let Some(mask) = mask {
            weights = ops::add(&weights, mask);
        }
        weights = ops::softmax(&weights);
        weights = ops::to(&weights, value.dtype());
        weights = ops::dropout(&weights, self.core.dropout);
        let out = ops::transpose(&ops::matmul(&weights, value), 1, 2);
        drop(named);
        (out, Some(weights))
    }
}

#[derive(Debug)]
struct Block {
    ln_1: LayerNorm,
    attn: Attend,
    ln_2: LayerNorm,
    c_fc: Conv1D,
    c_proj: Conv1D,
    act: Activation,
    dropout: (f64, ModuleId),
    mlp: ModuleId,
    module: ModuleId,
}

impl Block {
    fn feed_forward(&self, x: &Tensor) -> Tensor {
        x.cx().within(self.mlp, || {
            let mut hidden = self.c_fc.forward(x);
            hidden = self.act.forward(&hidden);
            hidden = self.c_proj.forward(&hidden);
            let (p, module) = self.dropout;
            x.cx().within(module, || ops::dropout(&hidden, p))
        })
    }

    fn forward(&self, hidden: &Tensor, mask: Option<&Tensor>) -> Tensor {
        let hidden = &hidden.cx().argument(self.module, hidden);
        hidden.cx().within(self.module, || {
            let normed = self.ln_1.forward(hidden);
            let (attended, _weights) = self.attn.forward(&normed, mask);
            let residual = ops::add(&attended, hidden);
            drop(normed);
            let normed = self.ln_2.forward(&residual);
            let out = self.feed_forward(&normed);
            let sum = ops::add(&residual, &out);
            drop((normed, attended));
            sum
        })
    }
}

#[derive(Debug)]
struct LmHeadModel {
    cx: Rc<Context>,
    wte: Embedding,
    wpe: Embedding,
    drop: (f64, ModuleId),
    h: ModuleList<Block>,
    ln_f: LayerNorm,
    head: DecoderHead,
    /// A padding token is known, and looked for where no mask is given.
    pads: bool,
    transformer: ModuleId,
    seq: u64,
    plan: Plan,
}

/// `GPT2LMHeadModel(config)`.
pub fn build(scope: &Scope, config: &Config<'_>, plan: &Plan) -> Result<Box<dyn Model>> {
    let embed = config.size("n_embd", 768)?;
    let heads = config.size("n_head", 12)?;
    divide(config, ("n_embd", embed), ("n_head", heads))?;
    let layers = config.layers("n_layer", 12)?;
    let positions = config.size("n_positions", 1024)?;
    let vocab = config.size("vocab_size", 50_257)?;
    let inner = config.optional_size("n_inner")?.unwrap_or(4 * embed);
    let act = config.text("activation_function", "gelu_new")?;
    for unsupported in ["add_cross_attention", "reorder_and_upcast_attn"] {
        if config.flag(unsupported, false)? {
            return Err(config.error(unsupported, "is not estimated yet", "set it to false"));
        }
    }
    let seq = plan.seq()?;
    if seq > positions {
        return Err(plimsoll_ground::Error::new(
            "input.seq",
            format!("{seq} tokens, but the model has {positions} position embeddings"),
            format!("use at most {positions}"),
        ));
    }
    let resid = config.probability("resid_pdrop", 0.1)?;
    let core = AttentionCore {
        implementation: plan.attention,
        rules: plan.rules.clone(),
        dropout: config.probability("attn_pdrop", 0.1)?,
        probabilities: Probabilities::Cast,
        eager_contiguous: false,
        shared_since: None,
        adds_in_place: false,
    };
    let transformer = scope.child("transformer");
    let wte = Embedding::new(&transformer.child("wte"), vocab, embed);
    let wpe = Embedding::new(&transformer.child("wpe"), positions, embed);
    let rules = scope.cx().machine().rules;
    let (has_bias, keeps_number) = (!rules.has(&rules::NO_BIAS_BUFFERS), !rules.has(&rules::NO_MASKED_BIAS));
    let block = |scope: &Scope, _| -> Option<Block> {
        let attn = scope.child("attn");
        let ln_1 = LayerNorm::new(&scope.child("ln_1"), embed, true);
        let attend = Attend {
            c_attn: Conv1D::new(&attn.child("c_attn"), 3 * embed, embed),
            c_proj: Conv1D::new(&attn.child("c_proj"), embed, embed),
            core: core.clone(),
            bias: has_bias.then(|| {
                let bias = attn.buffer_of(&[1, 1, positions, positions], DType::Bool);
                (bias, keeps_number.then(|| attn.buffer(&[])))
            }),
            resid_dropout: (resid, attn.child("resid_dropout").module()),
            embed,
            heads,
            module: attn.module(),
        };
        let mlp = scope.child("mlp");
        Some(Block {
            ln_1,
            attn: attend,
            ln_2: LayerNorm::new(&scope.child("ln_2"), embed, true),
            c_fc: Conv1D::new(&mlp.child("c_fc"), inner, embed),
            c_proj: Conv1D::new(&mlp.child("c_proj"), embed, inner),
            act: Activation::new(&mlp.child("act"), act)?,
            dropout: (resid, mlp.child("dropout").module()),
            mlp: mlp.module(),
            module: scope.module(),
        })
    };
    let h = ModuleList::new(&transformer, "h", layers, block)
        .ok_or_else(|| super::unknown_activation(config, "activation_function", act))?;
    let ln_f = LayerNorm::new(&transformer.child("ln_f"), embed, true);
    let tied = config.flag("tie_word_embeddings", true)?;
    let head = DecoderHead::new(scope, config, plan, (&wte, false), || causal_lm::head(scope, &wte, tied))?;
    Ok(Box::new(Headed(LmHeadModel {
        cx: Rc::clone(scope.cx()),
        wte,
        wpe,
        drop: (config.probability("embd_pdrop", 0.1)?, transformer.child("drop").module()),
        h,
        ln_f,
        head,
        pads: config.has("pad_token_id"),
        transformer: transformer.module(),
        seq,
        plan: plan.clone(),
    })))
}

impl DecoderOnly for LmHeadModel {
    fn shell(&self) -> Shell<'_> {
        Shell { cx: &self.cx, head: &self.head, seq: self.seq, plan: &self.plan }
    }

    fn returns_tuples(&self) -> bool {
        !self.cx.machine().rules.has(&rules::GPT2_HAS_CACHE_CLASS)
    }

    /// `GPT2Model.forward`.
    fn hidden(&self, ids: &Tensor, mask: Option<&Tensor>, positions: Option<&Tensor>) -> Tensor {
        let cx = &self.cx;
        cx.within(self.transformer, || {
            if mask.is_none() && self.pads {
                causal_lm::warn_if_padding_and_no_attention_mask(ids);
            }
            let shares_mask = cx.machine().rules.has(&rules::GPT2_SHARES_MASK);
            let early = (!shares_mask).then(|| positions.cloned().unwrap_or_else(|| ops::arange(cx, self.seq)));
            let embeds = causal_lm::input_embeddings(&self.wte, ids, &self.plan);
            let position_ids =
                early.or_else(|| positions.cloned()).unwrap_or_else(|| causal_lm::position_ids(cx, self.seq));
            let positions = self.wpe.forward(&position_ids);
            let mut hidden = ops::add(&embeds, &positions);
            let given = causal_lm::given_mask(mask, &self.plan);
            let mask = if shares_mask {
                gpt2_causal_mask(&embeds, given, &position_ids, self.plan.attention)
            } else {
                two_part_causal_mask(&embeds, given, self.plan.attention)
            };
            let (p, module) = self.drop;
            hidden = cx.within(module, || ops::dropout(&hidden, p));
            hidden = self.h.run(
                cx,
                hidden,
                |_| (),
                |block, hidden| {
                    if cx.checkpoints(self.plan.checkpointing) {
                        // Keyword arguments are captured with the function.
                        let (block, _position_ids) = (Rc::clone(block), position_ids.clone());
                        // The mask is a positional argument here, and so one of the checkpoint's inputs.
                        let inputs = std::iter::once(hidden).chain(mask.clone()).collect();
                        checkpoint(
                            cx,
                            inputs,
                            Rc::new(move |inputs| {
                                let _captured = &_position_ids;
                                block.forward(&inputs[0], inputs.get(1))
                            }),
                        )
                    } else {
                        block.forward(&hidden, mask.as_ref())
                    }
                },
            );
            let normed = self.ln_f.forward(&hidden);
            // As `forward`'s names go: its arguments first, of which the older mask takes the place of the given one.
            if shares_mask {
                drop((position_ids, embeds, positions, mask));
            } else {
                drop((mask, position_ids, embeds, positions));
            }
            normed
        })
    }
}
