//! GPT-OSS (transformers `models/gpt_oss/modeling_gpt_oss.py`): attention with a sink beside every row of scores, which no
//! fused kernel takes; experts with biases, gate and up alternating in one product.

use plimsoll_catalog::software::rules;
use plimsoll_ground::Result;
use plimsoll_scenario::Attention;
use plimsoll_torch::nn::{
    Embedding, Experts, Linear, LoopedExperts, Norm, Scope, WideRmsNorm, apply_rotary_pos_emb_in_halves, kv_cache,
    repeat_kv,
};
use plimsoll_torch::ops;
use plimsoll_torch::tensor::{ModuleId, Tensor};

use super::config::Config;
use super::decoder::{AngleTables, Decoder, Keywords, Layer, Masks, Parts, layers};
use super::decoder_head::DecoderHead;
use super::heads::{HeadDefaults, Heads};
use super::{Model, Plan, causal_lm, sparse};

#[derive(Debug)]
struct Attend {
    q_proj: Linear,
    k_proj: Linear,
    v_proj: Linear,
    o_proj: Linear,
    /// A score for every head that no key has.
    sinks: Tensor,
    heads: Heads,
    dropout: f64,
    window: Option<u64>,
    module: ModuleId,
}

impl Attend {
    fn new(scope: &Scope, heads: Heads, bias: bool, dropout: f64, window: Option<u64>) -> Self {
        let linear = |name: &'static str, i, o| Linear::new(&scope.child(name), i, o, bias);
        let (q, kv) = (heads.heads * heads.head_dim, heads.kv_heads * heads.head_dim);
        let place = scope.place();
        Self {
            q_proj: linear("q_proj", heads.hidden, q),
            k_proj: linear("k_proj", heads.hidden, kv),
            v_proj: linear("v_proj", heads.hidden, kv),
            o_proj: linear("o_proj", q, heads.hidden),
            sinks: scope.own_parameter(place, &[heads.heads]),
            heads,
            dropout,
            window,
            module: scope.module(),
        }
    }

    fn forward(&self, hidden: &Tensor, keywords: &Keywords) -> (Tensor, Tensor) {
        hidden.cx().within(self.module, || {
            let (batch, seq, head_dim) = (hidden.size(0), hidden.size(1), self.heads.head_dim);
            let split =
                |x: &Tensor| ops::transpose(&ops::view(x, &[batch, seq, x.size(-1) / head_dim, head_dim]), 1, 2);
            let mut query = split(&self.q_proj.forward(hidden));
            let mut key = split(&self.k_proj.forward(hidden));
            let mut value = split(&self.v_proj.forward(hidden));
            if let Some((cos, sin)) = &keywords.rotary {
                (query, key) = apply_rotary_pos_emb_in_halves(&query, &key, cos, sin);
            }
            (key, value) = kv_cache::update(key, value, self.window);
            let (mut out, weights) = self.eager(&query, &key, &value, keywords.mask.as_ref());
            out = ops::contiguous(&ops::reshape(&out, &[batch, seq, self.heads.heads * head_dim]));
            out = self.o_proj.forward(&out);
            (out, weights)
        })
    }

    /// `eager_attention_forward`: the sink is one more column, shifted and normalised with the others and left out again.
    fn eager(&self, q: &Tensor, k: &Tensor, v: &Tensor, mask: Option<&Tensor>) -> (Tensor, Tensor) {
        let groups = self.heads.heads / self.heads.kv_heads.max(1);
        let (keys, values) = (repeat_kv(k, groups), repeat_kv(v, groups));
        let mut weights = {
            let product = ops::matmul(q, &ops::transpose(&keys, 2, 3));
            ops::mul_scalar(&product)
        };
        if let Some(mask) = mask {
            weights = ops::add(&weights, mask);
        }
        let column = ops::reshape(&self.sinks, &[1, self.heads.heads, 1, 1]);
        let sinks = ops::expand(&column, &[q.size(0), self.heads.heads, q.size(2), 1]);
        let mut combined = ops::cat(&[&weights, &sinks], -1);
        combined = {
            let most = ops::max_last(&combined);
            ops::sub(&combined, &most)
        };
        let probs = ops::softmax_to(&combined, combined.dtype());
        let scores = ops::narrow(&probs, -1, keys.size(2));
        weights = ops::to(&ops::dropout(&scores, self.dropout), v.dtype());
        let mut out = ops::matmul(&weights, &values);
        out = ops::contiguous(&ops::transpose(&out, 1, 2));
        (out, weights)
    }
}

/// `GptOssTopKRouter`: the best experts first, then a softmax over them alone.
#[derive(Debug)]
struct Router {
    weight: Tensor,
    bias: Tensor,
    top_k: u64,
    module: ModuleId,
}

impl Router {
    /// Every expert's logits, the chosen ones' weights and numbers.
    fn forward(&self, hidden: &Tensor) -> [Tensor; 3] {
        hidden.cx().within(self.module, || {
            let logits = ops::linear(hidden, &self.weight, Some(&self.bias));
            let (top, indices) = ops::topk(&logits, self.top_k);
            let scores = ops::softmax_to(&top, top.dtype());
            [logits, scores, indices]
        })
    }

    /// As transformers 4 had it: of every expert its weight, nothing where it was not chosen, and the chosen ones' numbers.
    fn scattered(&self, hidden: &Tensor) -> [Tensor; 2] {
        hidden.cx().within(self.module, || {
            let flat = ops::reshape(hidden, &[hidden.size(0) * hidden.size(1), hidden.size(2)]);
            let logits = ops::linear(&flat, &self.weight, Some(&self.bias));
            let (mut top, indices) = ops::topk(&logits, self.top_k);
            top = ops::softmax_to(&top, top.dtype());
            let scores = ops::scatter_in_place(ops::zeros_like(&logits), &indices, &top);
            [scores, indices]
        })
    }
}

/// What a router chooses from.
#[derive(Debug)]
enum Routed {
    /// All experts at once.
    Together(Box<Experts>),
    /// As before [`rules::STACKED_EXPERTS`].
    Looped(LoopedExperts),
}

#[derive(Debug)]
struct GptOssLayer {
    self_attn: Attend,
    router: Router,
    experts: Routed,
    mlp: ModuleId,
    input_layernorm: WideRmsNorm,
    post_attention_layernorm: WideRmsNorm,
    windowed: bool,
    module: ModuleId,
}

impl GptOssLayer {
    /// What the experts make of it, and their weights beside it.
    fn feed_forward(&self, hidden: &Tensor) -> (Tensor, Tensor) {
        hidden.cx().within(self.mlp, || {
            let (batch, seq, width) = (hidden.size(0), hidden.size(1), hidden.size(2));
            match &self.experts {
                Routed::Together(experts) => {
                    let mut flat = ops::reshape(hidden, &[batch * seq, width]);
                    let [_logits, scores, indices] = self.router.forward(&flat);
                    flat = experts.forward(&flat, &indices, &scores);
                    (ops::reshape(&flat, &[batch, seq, width]), scores)
                }
                Routed::Looped(experts) => {
                    let [scores, indices] = self.router.scattered(hidden);
                    (experts.forward(hidden, &indices, &scores), scores)
                }
            }
        })
    }
}

impl Layer for GptOssLayer {
    fn forward(&self, hidden: &Tensor, keywords: &Keywords) -> Tensor {
        let (hidden, keywords) = &keywords.given(self.module, hidden);
        hidden.cx().within(self.module, || {
            let residual = hidden;
            let mut hidden = self.input_layernorm.forward(residual);
            // `_` is the attention's probabilities until the experts' weights take the name.
            let (attended, weights) = self.self_attn.forward(&hidden, keywords);
            hidden = attended;
            hidden = ops::add(residual, &hidden);
            let residual = hidden;
            let mut hidden = self.post_attention_layernorm.forward(&residual);
            let (fed, _scores) = self.feed_forward(&hidden);
            drop(weights);
            hidden = fed;
            ops::add(&residual, &hidden)
        })
    }

    fn windowed(&self) -> bool {
        self.windowed
    }
}

/// `GptOssForCausalLM(config)`, with the defaults of `configuration_gpt_oss.py`.
pub fn build(scope: &Scope, config: &Config<'_>, plan: &Plan) -> Result<Box<dyn Model>> {
    // Whatever the scenario says: the class has no other (`_supports_sdpa` is false).
    let plan = &Plan { attention: Attention::Eager, ..plan.clone() };
    let heads = Heads::read(config, HeadDefaults { hidden: 2880, heads: 64, kv_heads: Some(8), head_dim: Some(64) })?;
    let rotary = heads.rotary(config, "partial_rotary_factor", 1.0)?;
    let intermediate = config.size("intermediate_size", 2880)?;
    let count = config.layers("num_hidden_layers", 36)?;
    let experts = sparse::experts(config, "num_local_experts", 128)?;
    let top_k = sparse::chosen(config, 4, experts)?;
    sparse::refuse(config)?;
    let bias = config.flag("attention_bias", true)?;
    let dropout = config.probability("attention_dropout", 0.0)?;
    let window = causal_lm::window(config, 128)?;
    let types = config.layer_types(count, causal_lm::WINDOWED)?;
    let windowed = |i: u64| match &types {
        Some(types) => types.get(i as usize) == Some(&"sliding_attention"),
        None => i.is_multiple_of(2),
    };
    let model = scope.child("model");
    let embed_tokens = Embedding::new(&model.child("embed_tokens"), config.size("vocab_size", 201_088)?, heads.hidden);
    let layer = |scope: &Scope, i| -> Option<Box<dyn Layer>> {
        let norm = |name: &'static str| WideRmsNorm::new(&scope.child(name), heads.hidden);
        let window = windowed(i).then_some(window);
        let self_attn = Attend::new(&scope.child("self_attn"), heads, bias, dropout, window);
        let mlp = scope.child("mlp");
        let router = mlp.child("router");
        Some(Box::new(GptOssLayer {
            self_attn,
            router: Router {
                weight: router.parameter(&[experts, heads.hidden]),
                bias: router.parameter(&[experts]),
                top_k,
                module: router.module(),
            },
            experts: if scope.cx().machine().rules.has(&rules::STACKED_EXPERTS) {
                Routed::Together(Box::new(Experts::clamped(&mlp.child("experts"), experts, heads.hidden, intermediate)))
            } else {
                Routed::Looped(LoopedExperts::new(&mlp.child("experts"), experts, heads.hidden, intermediate))
            },
            mlp: mlp.module(),
            input_layernorm: norm("input_layernorm"),
            post_attention_layernorm: norm("post_attention_layernorm"),
            windowed: windowed(i),
            module: scope.module(),
        }))
    };
    let layers = layers(config, ("hidden_act", "silu"), (&model, count), layer)?;
    let norm = Norm::Wide(WideRmsNorm::new(&model.child("norm"), heads.hidden));
    let rotary_emb = super::turns::rotary(&model, config, rotary);
    let tied = config.flag("tie_word_embeddings", false)?;
    let head =
        DecoderHead::new(scope, config, plan, (&embed_tokens, false), || causal_lm::head(scope, &embed_tokens, tied))?;
    let masks = Masks::BothUnpacked(window);
    let parts = Parts { embed_tokens, layers, norm, rotary_emb, head, masks };
    Ok(Decoder { angles: AngleTables::Once, ..Decoder::new(scope, &model, plan, parts)? }.boxed())
}
