//! GPT-Neo (transformers `models/gpt_neo/modeling_gpt_neo.py`): layers that see everything and layers that look back a window,
//! in turn. Both hold a mask of all positions, and take the same. It has no sdpa: attention is eager whatever is asked for.

use std::rc::Rc;

use plimsoll_catalog::software::rules;
use plimsoll_ground::Result;
use plimsoll_scenario::Attention;
use plimsoll_torch::nn::{
    Activation, Embedding, LayerNorm, Linear, ModuleList, Scope, kv_cache, late_causal_mask, whole_two_part_mask,
};
use plimsoll_torch::ops::{self, Fill};
use plimsoll_torch::tensor::{Context, DType, ModuleId, Tensor};

use super::checkpointed::checkpointed;
use super::config::{Config, divide};
use super::decoder_head::DecoderHead;
use super::decoder_only::{DecoderOnly, Headed, Shell};
use super::gptj::returned;
use super::pre_norm::PlainMlp;
use super::{Model, Plan, causal_lm};

#[derive(Debug)]
struct Attend {
    k_proj: Linear,
    v_proj: Linear,
    q_proj: Linear,
    out_proj: Linear,
    /// What each position may see, bool `[1, 1, positions, positions]`.
    bias: Tensor,
    /// The number that stands where nothing may be seen, in versions that keep it.
    _masked_bias: Option<Tensor>,
    heads: u64,
    attn_dropout: (f64, ModuleId),
    resid_dropout: (f64, ModuleId),
    /// `attn`, and the `attention` within.
    modules: [ModuleId; 2],
}

impl Attend {
    /// The attended hidden states, and the probabilities where they are returned.
    fn forward(&self, hidden: &Tensor, mask: Option<&Tensor>) -> (Tensor, Option<Tensor>) {
        let cx = hidden.cx();
        let [outer, inner] = self.modules;
        cx.within(outer, || {
            cx.within(inner, || {
                let (batch, seq, width) = (hidden.size(0), hidden.size(1), hidden.size(2));
                let heads = |x: &Tensor| {
                    ops::permute(&ops::view(x, &[batch, seq, self.heads, width / self.heads]), &[0, 2, 1, 3])
                };
                let (query, mut key, mut value) = {
                    let query = self.q_proj.forward(hidden);
                    let key = self.k_proj.forward(hidden);
                    let value = self.v_proj.forward(hidden);
                    (heads(&query), heads(&key), heads(&value))
                };
                (key, value) = kv_cache::update(key, value, None);
                let (mut out, weights) = self.attend(&query, &key, &value, mask);
                out = ops::contiguous(&ops::permute(&out, &[0, 2, 1, 3]));
                out = ops::view(&out, &[batch, seq, width]);
                out = self.out_proj.forward(&out);
                out = dropout(&out, self.resid_dropout);
                (out, returned(weights))
            })
        })
    }

    /// `_attn`: queries and keys in float32, scores unscaled.
    fn attend(&self, query: &Tensor, key: &Tensor, value: &Tensor, mask: Option<&Tensor>) -> (Tensor, Tensor) {
        let query = ops::to(query, DType::Float32);
        let key = ops::to(key, DType::Float32);
        let mut weights = ops::matmul(&query, &ops::transpose(&key, -1, -2));
        let causal = ops::narrow(&ops::narrow(&self.bias, 2, query.size(2)), 3, key.size(2));
        let mask_value = ops::fill(query.cx(), Fill::ToCopy, &[], weights.dtype());
        weights = ops::where_tensor(&causal, &weights, &mask_value);
        if let Some(mask) = mask {
            weights = ops::add(&weights, mask);
        }
        weights = ops::softmax(&weights);
        weights = ops::to(&weights, value.dtype());
        weights = dropout(&weights, self.attn_dropout);
        (ops::matmul(&weights, value), weights)
    }
}

fn dropout(x: &Tensor, (p, module): (f64, ModuleId)) -> Tensor {
    x.cx().within(module, || ops::dropout(x, p))
}

#[derive(Debug)]
struct Block {
    ln_1: LayerNorm,
    attn: Attend,
    ln_2: LayerNorm,
    mlp: PlainMlp,
    module: ModuleId,
}

impl Block {
    fn forward(&self, hidden: &Tensor, mask: Option<&Tensor>) -> (Tensor, Option<Tensor>) {
        let hidden = &hidden.cx().argument(self.module, hidden);
        hidden.cx().within(self.module, || {
            let normed = self.ln_1.forward(hidden);
            let (attended, weights) = self.attn.forward(&normed, mask);
            let residual = ops::add(&attended, hidden);
            drop(normed);
            let normed = self.ln_2.forward(&residual);
            let fed = self.mlp.forward(&normed);
            let sum = ops::add(&residual, &fed);
            drop((normed, attended));
            (sum, weights)
        })
    }
}

#[derive(Debug)]
struct GptNeoForCausalLm {
    cx: Rc<Context>,
    wte: Embedding,
    wpe: Embedding,
    drop: (f64, ModuleId),
    h: ModuleList<Block>,
    ln_f: LayerNorm,
    head: DecoderHead,
    transformer: ModuleId,
    seq: u64,
    plan: Plan,
}

/// `GPTNeoForCausalLM(config)`, with the defaults of `configuration_gpt_neo.py`.
pub fn build(scope: &Scope, config: &Config<'_>, plan: &Plan) -> Result<Box<dyn Model>> {
    let embed = config.size("hidden_size", 2048)?;
    let heads = config.size("num_heads", 16)?;
    divide(config, ("hidden_size", embed), ("num_heads", heads))?;
    let layers = config.layers("num_layers", 24)?;
    let positions = config.size("max_position_embeddings", 2048)?;
    let vocab = config.size("vocab_size", 50_257)?;
    let inner = config.optional_size("intermediate_size")?.unwrap_or(4 * embed);
    let act = config.text("activation_function", "gelu_new")?;
    let seq = plan.seq()?;
    if seq > positions {
        return Err(plimsoll_ground::Error::new(
            "input.seq",
            format!("{seq} tokens, but the model has {positions} position embeddings"),
            format!("use at most {positions}"),
        ));
    }
    let resid = config.probability("resid_dropout", 0.0)?;
    let attn_dropout = config.probability("attention_dropout", 0.0)?;
    let transformer = scope.child("transformer");
    let wte = Embedding::new(&transformer.child("wte"), vocab, embed);
    let wpe = Embedding::new(&transformer.child("wpe"), positions, embed);
    let keeps_number = !scope.cx().machine().rules.has(&rules::NO_MASKED_BIAS);
    let block = |scope: &Scope, _| -> Option<Block> {
        let (outer, mlp) = (scope.child("attn"), scope.child("mlp"));
        let attn = outer.child("attention");
        let ln_1 = LayerNorm::new(&scope.child("ln_1"), embed, true);
        let linear = |name: &'static str, bias| Linear::new(&attn.child(name), embed, embed, bias);
        let attend = Attend {
            k_proj: linear("k_proj", false),
            v_proj: linear("v_proj", false),
            q_proj: linear("q_proj", false),
            out_proj: linear("out_proj", true),
            bias: attn.buffer_of(&[1, 1, positions, positions], DType::Bool),
            _masked_bias: keeps_number.then(|| attn.buffer(&[])),
            heads,
            attn_dropout: (attn_dropout, attn.child("attn_dropout").module()),
            resid_dropout: (resid, attn.child("resid_dropout").module()),
            modules: [outer.module(), attn.module()],
        };
        Some(Block {
            ln_1,
            attn: attend,
            ln_2: LayerNorm::new(&scope.child("ln_2"), embed, true),
            mlp: PlainMlp {
                fc1: Linear::new(&mlp.child("c_fc"), embed, inner, true),
                fc2: Linear::new(&mlp.child("c_proj"), inner, embed, true),
                act: Activation::new(&mlp.child("act"), act)?,
                dropout: resid,
                module: mlp.module(),
            },
            module: scope.module(),
        })
    };
    let h = ModuleList::new(&transformer, "h", layers, block)
        .ok_or_else(|| super::unknown_activation(config, "activation_function", act))?;
    let ln_f = LayerNorm::new(&transformer.child("ln_f"), embed, true);
    let tied = config.flag("tie_word_embeddings", true)?;
    let head = DecoderHead::new(scope, config, plan, (&wte, false), || causal_lm::head(scope, &wte, tied))?;
    Ok(Box::new(Headed(GptNeoForCausalLm {
        cx: Rc::clone(scope.cx()),
        wte,
        wpe,
        drop: (config.probability("embed_dropout", 0.0)?, transformer.child("drop").module()),
        h,
        ln_f,
        head,
        transformer: transformer.module(),
        seq,
        plan: plan.clone(),
    })))
}

impl DecoderOnly for GptNeoForCausalLm {
    fn shell(&self) -> Shell<'_> {
        Shell { cx: &self.cx, head: &self.head, seq: self.seq, plan: &self.plan }
    }

    fn returns_tuples(&self) -> bool {
        !self.cx.machine().rules.has(&rules::GPT_NEOX_HAS_CACHE_CLASS)
    }

    /// `GPTNeoModel.forward`.
    fn hidden(&self, ids: &Tensor, mask: Option<&Tensor>, positions: Option<&Tensor>) -> Tensor {
        let cx = &self.cx;
        cx.within(self.transformer, || {
            let embeds = causal_lm::input_embeddings(&self.wte, ids, &self.plan);
            let position_ids = positions.cloned().unwrap_or_else(|| causal_lm::position_ids(cx, self.seq));
            let given = causal_lm::given_mask(mask, &self.plan);
            let updates = cx.machine().rules.has(&rules::GPT_NEO_UPDATES_MASK);
            let early = updates.then(|| late_causal_mask(&embeds, given, &position_ids, Attention::Eager));
            // What was counted was handed to its blocks until it made masks as all models do.
            let older = updates && !cx.machine().rules.has(&rules::LAST_DECODERS_SHARE_MASK);
            let counted = older.then(|| position_ids.clone());
            // That of numbers outlives what positions were embedded to (seen on a hollow card under transformers 4.57).
            let _longer = early.clone().flatten().filter(|_| older);
            let _position_embeds = self.wpe.forward(&position_ids);
            let mut hidden = ops::add(&embeds, &_position_embeds);
            let mask = early.unwrap_or_else(|| whole_two_part_mask(&embeds, given));
            hidden = dropout(&hidden, self.drop);
            // `outputs`: what the last block returned, the probabilities with it.
            let mut _outputs = None;
            hidden = self.h.run(
                cx,
                hidden,
                |_| (),
                |block, hidden| {
                    let (next, weights) = if cx.checkpoints(self.plan.checkpointing) {
                        let (block, mask, captured) = (Rc::clone(block), mask.clone(), counted.clone());
                        checkpointed(cx, hidden, move |x| {
                            let _captured = &captured;
                            block.forward(x, mask.as_ref())
                        })
                    } else {
                        let (next, weights) = block.forward(&hidden, mask.as_ref());
                        drop(hidden);
                        (next, weights)
                    };
                    _outputs = weights;
                    next
                },
            );
            self.ln_f.forward(&hidden)
        })
    }
}
