//! Falcon (transformers `models/falcon/modeling_falcon.py`), the old architecture and the new one.

use std::rc::Rc;

use plimsoll_catalog::software::rules;
use plimsoll_ground::Result;
use plimsoll_scenario::Attention;
use plimsoll_torch::nn::{
    Activation, Embedding, LayerNorm, LayerRotary, Linear, ModuleList, RotaryEmbedding, Scope, additive,
    apply_rotary_pos_emb, kv_cache, rounded_alibi, whole_causal_mask,
};
use plimsoll_torch::ops::SdpaRules;
use plimsoll_torch::ops::{self, Fill, Pointwise};
use plimsoll_torch::tensor::{Context, DType, ModuleId, Tensor};

use super::checkpointed::checkpointed;
use super::config::{Config, divide};
use super::decoder_head::DecoderHead;
use super::decoder_only::{DecoderOnly, Headed, Shell};
use super::turns::{Turns, rotary};
use super::{Model, Plan, causal_lm};

/// How the fused projection is cut into queries, keys and values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Split {
    /// The new architecture: groups of queries, each with a key and a value.
    Groups(u64),
    /// One key and one value for all queries (`multi_query`).
    MultiQuery,
    /// A key and a value for every query.
    Threes,
}

/// What every block is handed by keyword, and so what a checkpoint captures.
#[derive(Clone, Debug)]
struct Keywords {
    mask: Option<Tensor>,
    alibi: Option<Tensor>,
    rotary: Option<(Tensor, Tensor)>,
    position_ids: Tensor,
}

#[derive(Debug)]
struct Attend {
    query_key_value: Linear,
    dense: Linear,
    rotary_emb: LayerRotary,
    split: Split,
    heads: u64,
    dropout: (f64, ModuleId),
    attention: Attention,
    rules: SdpaRules,
    module: ModuleId,
}

impl Attend {
    fn forward(&self, hidden: &Tensor, keywords: &Keywords) -> (Tensor, Option<Tensor>) {
        hidden.cx().within(self.module, || {
            let (batch, seq, width) = (hidden.size(0), hidden.size(1), hidden.size(2));
            let fused = self.query_key_value.forward(hidden);
            let (mut query, mut key, mut value) = self.split_heads(&fused, width / self.heads);
            let heads = |x: &Tensor| {
                let turned = ops::transpose(x, 1, 2);
                ops::reshape(&turned, &[batch, turned.size(1), seq, turned.size(3)])
            };
            query = heads(&query);
            key = heads(&key);
            value = heads(&value);
            let mut named = None;
            if keywords.alibi.is_none() {
                let angles = self.rotary_emb.angles(&value, Some(&keywords.position_ids), keywords.rotary.as_ref());
                (query, key) = apply_rotary_pos_emb(&query, &key, &angles.cos, &angles.sin);
                named = Some(angles.turned());
            }
            (key, value) = kv_cache::update(key, value, None);
            if self.attention == Attention::Sdpa
                && keywords.mask.is_some()
                && !hidden.cx().machine().rules.has(&rules::FALCON_ATTENDS_AS_GIVEN)
            {
                // "SDPA with memory-efficient backend is bugged with non-contiguous inputs"
                query = ops::contiguous(&query);
                key = ops::contiguous(&key);
                value = ops::contiguous(&value);
            }
            let (out, weights) = match (&keywords.alibi, self.attention) {
                (None, _) => self.rotary(&query, &key, &value, hidden, keywords.mask.as_ref()),
                (Some(_), Attention::Sdpa) => {
                    let mut out = self.sdpa(&query, &key, &value, keywords.mask.as_ref(), self.dropout.0);
                    out = ops::reshape(&ops::transpose(&out, 1, 2), &[batch, seq, width]);
                    (self.dense.forward(&out), None)
                }
                (Some(alibi), Attention::Eager) => {
                    self.biased([&query, &key, &value], hidden.dtype(), keywords.mask.as_ref(), alibi)
                }
            };
            drop((fused, named));
            (out, weights.filter(|_| hidden.cx().machine().rules.has(&rules::PROBABILITIES_RETURNED)))
        })
    }

    /// `_split_heads`: `[batch, seq, heads, dim]` each.
    fn split_heads(&self, fused: &Tensor, dim: u64) -> (Tensor, Tensor, Tensor) {
        let (batch, seq) = (fused.size(0), fused.size(1));
        let cx = fused.cx();
        // `x[..., [-1], :]`: a list of one is an index of its own.
        let one = |x: &Tensor| ops::index_one(x, -2, &ops::fill(cx, Fill::ToCopy, &[1], DType::Int64));
        match self.split {
            Split::Groups(kv_heads) => {
                let group = self.heads / kv_heads;
                let qkv = ops::view(fused, &[batch, seq, kv_heads, group + 2, dim]);
                // `qkv[:, :, :, :-2], qkv[:, :, :, [-2]]`
                let before = || ops::whole(&ops::whole(&ops::whole(&qkv)));
                let query = ops::narrow(&before(), 3, group);
                let (mut key, mut value) = (one(&before()), one(&before()));
                key = ops::expand(&key, query.dims());
                value = ops::expand(&value, query.dims());
                let flat = |x: &Tensor| ops::reshape(x, &[batch, seq, self.heads, dim]);
                (flat(&query), flat(&key), flat(&value))
            }
            Split::MultiQuery => {
                let qkv = ops::view(fused, &[batch, seq, self.heads + 2, dim]);
                // `fused_qkv[..., :-2, :], fused_qkv[..., [-2], :]`
                let last = || one(&ops::whole(&qkv));
                (ops::whole(&ops::narrow(&qkv, -2, self.heads)), last(), last())
            }
            Split::Threes => {
                let qkv = ops::view(fused, &[batch, seq, self.heads, 3, dim]);
                // `fused_qkv[..., i, :]`
                let part = |i| ops::whole(&ops::select_at(&qkv, -2, i));
                (part(0), part(1), part(2))
            }
        }
    }

    fn sdpa(&self, query: &Tensor, key: &Tensor, value: &Tensor, mask: Option<&Tensor>, dropout: f64) -> Tensor {
        // There is always a mask since [`rules::LAST_DECODERS_SHARE_MASK`].
        let causal = mask.is_none() && query.size(2) > 1;
        if query.size(1) == key.size(1) {
            ops::scaled_dot_product_attention(&self.rules, query, key, value, mask, dropout, causal)
        } else {
            ops::ungrouped_dot_product_attention(query, key, value, mask, dropout, causal)
        }
    }

    /// With rotary positions. The probabilities are not dropped.
    fn rotary(
        &self,
        query: &Tensor,
        key: &Tensor,
        value: &Tensor,
        hidden: &Tensor,
        mask: Option<&Tensor>,
    ) -> (Tensor, Option<Tensor>) {
        let (mut out, scores) = if self.attention == Attention::Sdpa {
            (self.sdpa(query, key, value, mask, 0.0), None)
        } else {
            let mut scores = ops::matmul(query, &ops::transpose(key, -1, -2));
            scores = ops::scale_in_place(scores);
            scores = {
                let masked = mask.map_or_else(|| scores.clone(), |mask| ops::add(&scores, mask));
                ops::softmax_to(&masked, hidden.dtype())
            };
            (ops::matmul(&scores, value), Some(scores))
        };
        out = ops::permute(&out, &[0, 2, 1, 3]);
        out = ops::reshape(&out, hidden.dims());
        (self.dense.forward(&out), scores)
    }

    /// Eager attention with linear biases: scores in float32.
    fn biased(
        &self,
        [query, key, value]: [&Tensor; 3],
        dtype: DType,
        mask: Option<&Tensor>,
        alibi: &Tensor,
    ) -> (Tensor, Option<Tensor>) {
        let (batch, seq) = (query.size(0), query.size(2));
        let product = ops::matmul(query, &ops::transpose(key, -1, -2));
        let scores = ops::to(&product, DType::Float32);
        let mut logits = ops::add(&scores, alibi);
        logits = ops::scale_in_place(logits);
        let mut probabilities = {
            let masked = mask.map_or_else(|| logits.clone(), |mask| ops::add(&logits, mask));
            ops::softmax_to(&masked, dtype)
        };
        let (p, module) = self.dropout;
        probabilities = query.cx().within(module, || ops::dropout(&probabilities, p));
        let mut out = ops::matmul(&probabilities, value);
        out = ops::permute(&out, &[0, 2, 1, 3]);
        out = ops::reshape(&out, &[batch, seq, out.size(2) * out.size(3)]);
        out = self.dense.forward(&out);
        drop((product, scores, logits));
        (out, Some(probabilities))
    }
}

/// Where a block normalises.
#[derive(Debug)]
enum Norms {
    /// Before attention, and again before the feed-forward that follows it.
    Sequential(LayerNorm, LayerNorm),
    /// Once, for attention and feed-forward side by side.
    Shared(LayerNorm),
    /// Once for each of the two.
    Parallel(LayerNorm, LayerNorm),
}

#[derive(Debug)]
struct Block {
    self_attention: Attend,
    dense_h_to_4h: Linear,
    act: Activation,
    dense_4h_to_h: Linear,
    norms: Norms,
    attention_dropout: f64,
    hidden_dropout: f64,
    mlp: ModuleId,
    module: ModuleId,
}

impl Block {
    fn forward(&self, hidden: &Tensor, keywords: &Keywords) -> (Tensor, Option<Tensor>) {
        let hidden = &hidden.cx().argument(self.module, hidden);
        hidden.cx().within(self.module, || {
            let mut residual = hidden.clone();
            let (normed, mut for_mlp) = match &self.norms {
                Norms::Parallel(attn, mlp) => (attn.forward(hidden), Some(mlp.forward(hidden))),
                Norms::Shared(norm) | Norms::Sequential(norm, _) => (norm.forward(hidden), None),
            };
            let (attended, weights) = self.self_attention.forward(&normed, keywords);
            if let Norms::Sequential(_, post) = &self.norms {
                residual = dropout_add(&attended, &residual, self.attention_dropout);
                for_mlp = Some(post.forward(&residual));
            }
            let mut out = self.feed_forward(for_mlp.as_ref().unwrap_or(&normed));
            if !matches!(self.norms, Norms::Sequential(..)) {
                out = ops::add_in_place(out, &attended);
            }
            let sum = dropout_add(&out, &residual, self.hidden_dropout);
            (sum, weights)
        })
    }

    fn feed_forward(&self, x: &Tensor) -> Tensor {
        x.cx().within(self.mlp, || {
            let mut hidden = {
                let wide = self.dense_h_to_4h.forward(x);
                self.act.forward(&wide)
            };
            hidden = self.dense_4h_to_h.forward(&hidden);
            hidden
        })
    }
}

/// `residual + dropout(x)`.
fn dropout_add(x: &Tensor, residual: &Tensor, p: f64) -> Tensor {
    let out = ops::dropout(x, p);
    ops::add(residual, &out)
}

#[derive(Debug)]
struct Falcon {
    cx: Rc<Context>,
    word_embeddings: Embedding,
    h: ModuleList<Block>,
    ln_f: LayerNorm,
    rotary_emb: Option<RotaryEmbedding>,
    head: DecoderHead,
    heads: u64,
    alibi: bool,
    transformer: ModuleId,
    seq: u64,
    plan: Plan,
}

/// The sizes and switches of a `FalconConfig`.
struct Sizes {
    hidden: u64,
    heads: u64,
    head_dim: u64,
    inner: u64,
    split: Split,
    parallel: bool,
    /// `num_ln_in_parallel_attn` is 2.
    two_norms: bool,
    bias: bool,
    alibi: bool,
}

impl Sizes {
    /// With the defaults of `configuration_falcon.py`.
    fn read(config: &Config<'_>) -> Result<Self> {
        let hidden = match config.optional_size("n_embed")? {
            Some(n) => n,
            None => config.size("hidden_size", 4544)?,
        };
        let heads = config.size("num_attention_heads", 71)?;
        let head_dim = divide(config, ("hidden_size", hidden), ("num_attention_heads", heads))?;
        let kv_heads = config.size("num_kv_heads", heads)?;
        let new = config.flag("new_decoder_architecture", false)?;
        let parallel = config.flag("parallel_attn", true)?;
        let alibi = config.flag("alibi", false)?;
        let norms = config.count("num_ln_in_parallel_attn", if new { 2 } else { 1 })?;
        let split = match (new, config.flag("multi_query", true)?) {
            (true, _) => {
                divide(config, ("num_attention_heads", heads), ("num_kv_heads", kv_heads))?;
                Split::Groups(kv_heads)
            }
            (false, true) => Split::MultiQuery,
            (false, false) if kv_heads == heads => Split::Threes,
            (false, false) => {
                return Err(config.error(
                    "num_kv_heads",
                    format!("{kv_heads} heads of keys, but without multi_query there are {heads}"),
                    "leave it out, or set new_decoder_architecture",
                ));
            }
        };
        if new && !parallel {
            return Err(config.error("parallel_attn", "the new architecture has no other", "leave it out"));
        }
        if norms != 1 && !(norms == 2 && new) {
            let hint = "give 1, or 2 with new_decoder_architecture";
            return Err(config.error("num_ln_in_parallel_attn", format!("there is no model with {norms}"), hint));
        }
        if !alibi && !head_dim.is_multiple_of(2) {
            return Err(config.error(
                "num_attention_heads",
                format!("rotary embeddings turn pairs, but a head has {head_dim} dimensions"),
                "choose sizes that give an even head size",
            ));
        }
        let inner = config.optional_size("ffn_hidden_size")?.unwrap_or(4 * hidden);
        let bias = config.flag("bias", false)?;
        Ok(Self { hidden, heads, head_dim, inner, split, parallel, two_norms: norms == 2, bias, alibi })
    }

    /// Width of queries, keys and values together.
    fn fused(&self) -> u64 {
        match self.split {
            Split::Groups(kv_heads) => (2 * kv_heads + self.heads) * self.head_dim,
            Split::MultiQuery => self.hidden + 2 * self.head_dim,
            Split::Threes => 3 * self.hidden,
        }
    }
}

/// `FalconForCausalLM(config)` or `FalconForSequenceClassification(config)`.
pub fn build(scope: &Scope, config: &Config<'_>, plan: &Plan) -> Result<Box<dyn Model>> {
    let sizes = Sizes::read(config)?;
    let count = config.layers("num_hidden_layers", 32)?;
    let act = config.text("activation", "gelu")?;
    let hidden_dropout = config.probability("hidden_dropout", 0.0)?;
    let attention_dropout = config.probability("attention_dropout", 0.0)?;
    // Layers with biases for positions have nothing to turn by.
    let turns = if sizes.alibi { Turns::PLAIN } else { Turns::read(scope, config)? };
    let transformer = scope.child("transformer");
    let vocab = config.size("vocab_size", 65_024)?;
    let word_embeddings = Embedding::new(&transformer.child("word_embeddings"), vocab, sizes.hidden);
    let block = |scope: &Scope, _| -> Option<Block> {
        let (attn, mlp) = (scope.child("self_attention"), scope.child("mlp"));
        let linear =
            |scope: &Scope, name: &'static str, i, o| Linear::spelled_out(&scope.child(name), i, o, sizes.bias);
        let norm = |name: &'static str| LayerNorm::new(&scope.child(name), sizes.hidden, true);
        let self_attention = Attend {
            query_key_value: linear(&attn, "query_key_value", sizes.hidden, sizes.fused()),
            dense: linear(&attn, "dense", sizes.hidden, sizes.hidden),
            rotary_emb: turns.layer(&attn, sizes.head_dim),
            split: sizes.split,
            heads: sizes.heads,
            dropout: (attention_dropout, attn.child("attention_dropout").module()),
            attention: plan.attention,
            rules: plan.rules.clone(),
            module: attn.module(),
        };
        Some(Block {
            self_attention,
            dense_h_to_4h: linear(&mlp, "dense_h_to_4h", sizes.hidden, sizes.inner),
            act: Activation::new(&mlp.child("act"), act)?,
            dense_4h_to_h: linear(&mlp, "dense_4h_to_h", sizes.inner, sizes.hidden),
            norms: if !sizes.parallel {
                let post = norm("post_attention_layernorm");
                Norms::Sequential(norm("input_layernorm"), post)
            } else if sizes.two_norms {
                Norms::Parallel(norm("ln_attn"), norm("ln_mlp"))
            } else {
                Norms::Shared(norm("input_layernorm"))
            },
            attention_dropout,
            hidden_dropout,
            mlp: mlp.module(),
            module: scope.module(),
        })
    };
    let h = ModuleList::new(&transformer, "h", count, block);
    let h = h.ok_or_else(|| super::unknown_activation(config, "activation", act))?;
    let ln_f = LayerNorm::new(&transformer.child("ln_f"), sizes.hidden, true);
    // Made even where biases stand for positions; `arange(0, dim, 2)` rounds up.
    let rotary_emb = rotary(&transformer, config, sizes.head_dim.next_multiple_of(2));
    let tied = config.flag("tie_word_embeddings", true)?;
    let head = DecoderHead::new(scope, config, plan, (&word_embeddings, false), || {
        causal_lm::head(scope, &word_embeddings, tied)
    })?;
    Ok(Box::new(Headed(Falcon {
        cx: Rc::clone(scope.cx()),
        word_embeddings,
        h,
        ln_f,
        rotary_emb,
        head,
        heads: sizes.heads,
        alibi: sizes.alibi,
        transformer: transformer.module(),
        seq: plan.seq()?,
        plan: plan.clone(),
    })))
}

impl DecoderOnly for Falcon {
    fn shell(&self) -> Shell<'_> {
        Shell { cx: &self.cx, head: &self.head, seq: self.seq, plan: &self.plan }
    }

    fn returns_tuples(&self) -> bool {
        !self.cx.machine().rules.has(&rules::GPT_NEOX_HAS_CACHE_CLASS)
    }

    /// `FalconModel.forward`.
    fn hidden(&self, ids: &Tensor, given: Option<&Tensor>, positions: Option<&Tensor>) -> Tensor {
        let cx = &self.cx;
        cx.within(self.transformer, || {
            let embeds = causal_lm::input_embeddings(&self.word_embeddings, ids, &self.plan);
            // `mask` and the first `alibi` stay bound.
            let mut named = None;
            let mut alibi = self.alibi.then(|| {
                let mask = given.cloned().unwrap_or_else(|| ops::fill(cx, Fill::Ones, ids.dims(), DType::Int64));
                let alibi = rounded_alibi(&mask, self.heads, embeds.dtype());
                named = Some(mask);
                alibi
            });
            let position_ids = positions.cloned().unwrap_or_else(|| causal_lm::position_ids(cx, self.seq));
            let shared = cx.machine().rules.has(&rules::LAST_DECODERS_SHARE_MASK);
            // Biases need a mask to be put into.
            let kind = if shared || alibi.is_none() { self.plan.attention } else { Attention::Eager };
            let mut mask = whole_causal_mask(&embeds, causal_lm::given_mask(given, &self.plan), kind);
            if let Some(biases) = &alibi
                && let Some(causal) = mask.take()
            {
                let (biases, causal) = self.biased_mask(biases, causal);
                (alibi, mask) = (Some(biases), Some(causal));
            }
            let rotary = self.rotary_emb.as_ref().map(|rotary| rotary.forward(&embeds, &position_ids));
            let keywords = Keywords { mask, alibi, rotary, position_ids };
            let mut hidden = embeds.clone();
            // `outputs`: what the last block returned, the probabilities with it.
            let mut _outputs = None;
            hidden = self.h.run(
                cx,
                hidden,
                |_| (),
                |block, hidden| {
                    let (next, weights) = if cx.checkpoints(self.plan.checkpointing) {
                        let (block, keywords) = (Rc::clone(block), keywords.clone());
                        checkpointed(cx, hidden, move |x| block.forward(x, &keywords))
                    } else {
                        let outputs = block.forward(&hidden, &keywords);
                        drop(hidden);
                        outputs
                    };
                    _outputs = weights;
                    next
                },
            );
            hidden = self.ln_f.forward(&hidden);
            drop((embeds, named));
            hidden
        })
    }
}

impl Falcon {
    /// The biases `[batch, heads, 1, keys]`, and the mask with them in it: `[batch, heads, queries, keys]`.
    fn biased_mask(&self, alibi: &Tensor, mut causal: Tensor) -> (Tensor, Tensor) {
        let dtype = alibi.dtype();
        if causal.dtype() == DType::Bool {
            causal = additive(&causal, dtype);
        }
        let (batch, queries, keys) = (causal.size(0), causal.size(-2), causal.size(-1));
        let alibi = ops::reshape(alibi, &[batch, self.heads, 1, keys]);
        let scaled = ops::div_scalar(&alibi);
        let hidden = ops::pointwise(Pointwise::LtScalar, &causal, &[], &[batch, 1, queries, keys], DType::Bool);
        let mask = ops::masked_fill(&scaled, &hidden);
        drop((scaled, hidden, causal));
        (alibi, mask)
    }
}
