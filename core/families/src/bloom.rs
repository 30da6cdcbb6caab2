//! BLOOM (transformers `models/bloom/modeling_bloom.py`). It has no sdpa: attention is eager whatever is asked for.

use std::rc::Rc;

use plimsoll_catalog::software::rules;
use plimsoll_ground::Result;
use plimsoll_scenario::Attention;
use plimsoll_torch::Batch;
use plimsoll_torch::generate::{Generate, Step};
use plimsoll_torch::nn::{
    Embedding, LayerNorm, Linear, ModuleList, Scope, alibi, alibi_of_all, kv_cache, late_causal_mask,
};
use plimsoll_torch::ops::{self, Fill};
use plimsoll_torch::tensor::{Context, DType, ModuleId, Tensor};

use super::checkpointed::checkpointed;
use super::config::{Config, divide};
use super::decoder_head::DecoderHead;
use super::gptj::returned;
use super::{Model, Output, Plan, causal_lm};

#[derive(Debug)]
struct Attend {
    query_key_value: Linear,
    dense: Linear,
    attention_dropout: (f64, ModuleId),
    hidden_dropout: f64,
    heads: u64,
    module: ModuleId,
}

impl Attend {
    fn forward(
        &self,
        hidden: &Tensor,
        residual: &Tensor,
        alibi: &Tensor,
        mask: Option<&Tensor>,
    ) -> (Tensor, Option<Tensor>) {
        let cx = hidden.cx();
        cx.within(self.module, || {
            let (batch, seq, width) = (hidden.size(0), hidden.size(1), hidden.size(2));
            let (heads, head_dim) = (self.heads, width / self.heads);
            let fused = self.query_key_value.forward(hidden);
            let split = ops::view(&fused, &[batch, seq, heads, 3, head_dim]);
            // `fused_qkv[..., i, :]`
            let part = |i| ops::transpose(&ops::whole(&ops::select_at(&split, 3, i)), 1, 2);
            let (mut query, mut key, mut value) = (part(0), part(1), part(2));
            (key, value) = kv_cache::update(key, value, None);
            let keys = key.size(2);
            let flat = [batch * heads, seq, head_dim];
            let flat_keys = [batch * heads, keys, head_dim];
            query = ops::reshape(&query, &flat);
            key = ops::transpose(&ops::reshape(&key, &flat_keys), -1, -2);
            value = ops::reshape(&value, &flat_keys);
            let scores = ops::baddbmm(alibi, &query, &key);
            let mut weights = ops::view(&scores, &[batch, heads, seq, keys]);
            if let Some(mask) = mask {
                weights = ops::add(&weights, mask);
            }
            let mut probabilities = ops::to(&ops::softmax_fp32(&weights), query.dtype());
            let (p, module) = self.attention_dropout;
            probabilities = cx.within(module, || ops::dropout(&probabilities, p));
            let reshaped = ops::view(&probabilities, &[batch * heads, seq, keys]);
            let mut context = ops::matmul(&reshaped, &value);
            context = merge_heads(&context, batch, heads);
            let mut out = self.dense.forward(&context);
            out = dropout_add(&out, residual, self.hidden_dropout);
            drop((scores, weights));
            (out, returned(probabilities))
        })
    }
}

/// `[batch * heads, seq, dim]` as `[batch, seq, heads * dim]`.
fn merge_heads(x: &Tensor, batch: u64, heads: u64) -> Tensor {
    let (seq, dim) = (x.size(1), x.size(2));
    let split = ops::transpose(&ops::view(x, &[batch, heads, seq, dim]), 1, 2);
    ops::reshape(&split, &[batch, seq, heads * dim])
}

/// `residual + dropout(x)`.
fn dropout_add(x: &Tensor, residual: &Tensor, p: f64) -> Tensor {
    let out = ops::dropout(x, p);
    ops::add(residual, &out)
}

#[derive(Debug)]
struct Block {
    input_layernorm: LayerNorm,
    self_attention: Attend,
    post_attention_layernorm: LayerNorm,
    dense_h_to_4h: Linear,
    dense_4h_to_h: Linear,
    gelu_impl: ModuleId,
    /// The residual is the norm's result, not its input.
    residual_after_norm: bool,
    mlp: ModuleId,
    module: ModuleId,
}

impl Block {
    fn forward(&self, hidden: &Tensor, alibi: &Tensor, mask: Option<&Tensor>) -> (Tensor, Option<Tensor>) {
        let cx = hidden.cx();
        let (hidden, mask) = (&cx.argument(self.module, hidden), &cx.argument_if(self.module, mask));
        let (mask, alibi) = (mask.as_ref(), &cx.argument(self.module, alibi));
        cx.within(self.module, || {
            let mut normed = self.input_layernorm.forward(hidden);
            let mut residual = if self.residual_after_norm { normed.clone() } else { hidden.clone() };
            let (attended, weights) = self.self_attention.forward(&normed, &residual, alibi, mask);
            normed = self.post_attention_layernorm.forward(&attended);
            residual = if self.residual_after_norm { normed.clone() } else { attended.clone() };
            let out = self.feed_forward(&normed, &residual);
            drop((residual, attended));
            (out, weights)
        })
    }

    fn feed_forward(&self, x: &Tensor, residual: &Tensor) -> Tensor {
        x.cx().within(self.mlp, || {
            let hidden = {
                let wide = self.dense_h_to_4h.forward(x);
                x.cx().within(self.gelu_impl, || ops::bloom_gelu(&wide))
            };
            let out = self.dense_4h_to_h.forward(&hidden);
            dropout_add(&out, residual, self.self_attention.hidden_dropout)
        })
    }
}

#[derive(Debug)]
struct BloomForCausalLm {
    cx: Rc<Context>,
    word_embeddings: Embedding,
    word_embeddings_layernorm: LayerNorm,
    h: ModuleList<Block>,
    ln_f: LayerNorm,
    head: DecoderHead,
    heads: u64,
    transformer: ModuleId,
    seq: u64,
    plan: Plan,
}

/// `BloomForCausalLM(config)`, with the defaults of `configuration_bloom.py`.
pub fn build(scope: &Scope, config: &Config<'_>, plan: &Plan) -> Result<Box<dyn Model>> {
    let embed = match config.optional_size("n_embed")? {
        Some(n) => n,
        None => config.size("hidden_size", 64)?,
    };
    let heads = config.size("n_head", 8)?;
    divide(config, ("hidden_size", embed), ("n_head", heads))?;
    let layers = config.layers("n_layer", 2)?;
    let vocab = config.size("vocab_size", 250_880)?;
    if config.flag("slow_but_exact", false)? && config.size("pretraining_tp", 1)? > 1 {
        return Err(config.error("slow_but_exact", "is not estimated yet", "set it to false"));
    }
    let hidden_dropout = config.probability("hidden_dropout", 0.0)?;
    let attention_dropout = config.probability("attention_dropout", 0.0)?;
    let residual_after_norm = config.flag("apply_residual_connection_post_layernorm", false)?;
    let transformer = scope.child("transformer");
    let norm = |scope: &Scope, name: &'static str| LayerNorm::new(&scope.child(name), embed, true);
    let word_embeddings = Embedding::new(&transformer.child("word_embeddings"), vocab, embed);
    let word_embeddings_layernorm = norm(&transformer, "word_embeddings_layernorm");
    let block = |scope: &Scope, _| {
        let (attn, mlp) = (scope.child("self_attention"), scope.child("mlp"));
        let linear = |scope: &Scope, name: &'static str, i, o| Linear::new(&scope.child(name), i, o, true);
        Block {
            input_layernorm: norm(scope, "input_layernorm"),
            self_attention: Attend {
                query_key_value: linear(&attn, "query_key_value", embed, 3 * embed),
                dense: linear(&attn, "dense", embed, embed),
                attention_dropout: (attention_dropout, attn.child("attention_dropout").module()),
                hidden_dropout,
                heads,
                module: attn.module(),
            },
            post_attention_layernorm: norm(scope, "post_attention_layernorm"),
            dense_h_to_4h: linear(&mlp, "dense_h_to_4h", embed, 4 * embed),
            dense_4h_to_h: linear(&mlp, "dense_4h_to_h", 4 * embed, embed),
            gelu_impl: mlp.child("gelu_impl").module(),
            residual_after_norm,
            mlp: mlp.module(),
            module: scope.module(),
        }
    };
    let h = ModuleList::of(&transformer, "h", layers, block);
    let ln_f = norm(&transformer, "ln_f");
    let tied = config.flag("tie_word_embeddings", true)?;
    let head = DecoderHead::new(scope, config, plan, (&word_embeddings, false), || {
        causal_lm::head(scope, &word_embeddings, tied)
    })?;
    Ok(Box::new(BloomForCausalLm {
        cx: Rc::clone(scope.cx()),
        word_embeddings,
        word_embeddings_layernorm,
        h,
        ln_f,
        head,
        heads,
        transformer: transformer.module(),
        seq: plan.seq()?,
        plan: plan.clone(),
    }))
}

impl BloomForCausalLm {
    /// `BloomModel.forward`.
    fn hidden(&self, ids: &Tensor, mask: Option<&Tensor>) -> Tensor {
        let cx = &self.cx;
        cx.within(self.transformer, || {
            let embeds = causal_lm::input_embeddings(&self.word_embeddings, ids, &self.plan);
            // Counted before all models shared their masks, unless a generation had.
            let handed =
                cx.machine().rules.has(&rules::LAST_DECODERS_SHARE_MASK) || cx.is_inference() && cx.remembers();
            let cache_position = (!handed).then(|| ops::arange(cx, ids.size(1)));
            let mut hidden = self.word_embeddings_layernorm.forward(&embeds);
            let mut given = causal_lm::given_mask(mask, &self.plan);
            let seen = [ids.size(0), cx.seen(ids.size(1), false).keys];
            let ones;
            if given.is_none() && !cx.machine().rules.has(&rules::ALIBI_WITHOUT_MASK) {
                // Without a mask BLOOM made one: of ones, in float32.
                ones = ops::fill(cx, Fill::Ones, &seen, DType::Float32);
                given = Some((&ones, false));
            }
            let (alibi, _slopes) = match given {
                Some((mask, _)) => (alibi(mask, self.heads, hidden.dtype()), None),
                None => {
                    let (alibi, slopes) = alibi_of_all(cx, seen, self.heads, hidden.dtype());
                    (alibi, Some(slopes))
                }
            };
            // Positions are not looked at where a mask is given, and not handed over.
            let positions = given.is_some().then_some(ids);
            let causal = late_causal_mask(&embeds, given, positions, Attention::Eager);
            // `outputs`: what the last block returned, the probabilities with it.
            let mut _outputs = None;
            hidden = self.h.run(
                cx,
                hidden,
                |_| (),
                |block, hidden| {
                    let (next, weights) = if cx.checkpoints(self.plan.checkpointing) {
                        let (block, alibi, causal) = (Rc::clone(block), alibi.clone(), causal.clone());
                        let captured = cache_position.clone();
                        checkpointed(cx, hidden, move |x| {
                            let _captured = &captured;
                            block.forward(x, &alibi, causal.as_ref())
                        })
                    } else {
                        let (next, weights) = block.forward(&hidden, &alibi, causal.as_ref());
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

impl Model for BloomForCausalLm {
    fn batch(&self) -> Batch {
        self.head.batch(&self.cx, &self.plan, self.seq)
    }

    fn forward(&self, batch: &Batch) -> Output {
        let (ids, mask, labels) = batch.parts();
        self.head.output(self.hidden(ids, mask), ids, labels)
    }

    fn generate(&self) -> Option<&dyn Generate> {
        self.head.generates().then_some(self)
    }
}

impl Generate for BloomForCausalLm {
    fn logits(&self, step: Step<'_>) -> Tensor {
        self.head.last_logits(self.hidden(step.ids, step.mask))
    }

    fn takes_positions(&self) -> bool {
        false
    }
}
