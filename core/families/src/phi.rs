//! Phi-1 and Phi-2 (transformers `models/phi/modeling_phi.py`).

use plimsoll_ground::Result;
use plimsoll_torch::nn::{Activation, AttentionCore, Embedding, LayerNorm, Linear, Norm, Scope};
use plimsoll_torch::ops;
use plimsoll_torch::tensor::{ModuleId, Tensor};

use super::attend::{Attend, AttendOptions, QueryKeyNorms, Rotation};
use super::config::Config;
use super::decoder::{Decoder, EmbedDropout, Keywords, Layer, Masks, Parts, layers};
use super::decoder_head::DecoderHead;
use super::heads::{HeadDefaults, Heads};
use super::pre_norm::PlainMlp;
use super::turns::Turns;
use super::{Model, Plan, causal_lm};

#[derive(Debug)]
struct PhiLayer {
    self_attn: Attend,
    mlp: PlainMlp,
    input_layernorm: LayerNorm,
    resid_dropout: (f64, ModuleId),
    module: ModuleId,
}

impl Layer for PhiLayer {
    fn forward(&self, hidden: &Tensor, keywords: &Keywords) -> Tensor {
        let (hidden, keywords) = &keywords.given(self.module, hidden);
        let (p, module) = self.resid_dropout;
        let dropout = |x: &Tensor| x.cx().within(module, || ops::dropout(x, p));
        hidden.cx().within(self.module, || {
            let residual = hidden;
            let hidden = self.input_layernorm.forward(residual);
            let (mut attended, _weights) = self.self_attn.forward(&hidden, keywords);
            attended = dropout(&attended);
            let fed = {
                let out = self.mlp.forward(&hidden);
                dropout(&out)
            };
            let sum = ops::add(&attended, &fed);
            ops::add(&sum, residual)
        })
    }
}

/// `PhiForCausalLM(config)`, with the defaults of `configuration_phi.py`.
pub fn build(scope: &Scope, config: &Config<'_>, plan: &Plan) -> Result<Box<dyn Model>> {
    let heads = Heads::read(config, HeadDefaults { hidden: 2048, heads: 32, kv_heads: None, head_dim: None })?;
    let rotary = heads.rotary(config, "partial_rotary_factor", 0.5)?;
    let turns = Turns::read(scope, config)?;
    let intermediate = config.size("intermediate_size", 8192)?;
    let count = config.layers("num_hidden_layers", 24)?;
    let vocab = config.size("vocab_size", 51_200)?;
    let act = config.text("hidden_act", "gelu_new")?;
    let resid_pdrop = config.probability("resid_pdrop", 0.0)?;
    let qk_layernorm = config.flag("qk_layernorm", false)?;
    let core = causal_lm::attention(plan, config.probability("attention_dropout", 0.0)?);
    // `attn_weights += attention_mask`
    let core = AttentionCore { adds_in_place: true, ..core };
    let options = AttendOptions {
        heads,
        rotary,
        turns,
        qkv_bias: true,
        out_bias: true,
        out_name: "dense",
        rotation: Rotation::InNamedParts,
        ..AttendOptions::PLAIN
    };
    let norms = |scope: &Scope| {
        let norm = |name: &'static str| Norm::Layer(LayerNorm::new(&scope.child(name), heads.head_dim, true));
        if qk_layernorm {
            QueryKeyNorms::Transposed(norm("q_layernorm"), norm("k_layernorm"))
        } else {
            QueryKeyNorms::None
        }
    };
    let model = scope.child("model");
    let embed_tokens = Embedding::new(&model.child("embed_tokens"), vocab, heads.hidden);
    let layer = |scope: &Scope, _| -> Option<Box<dyn Layer>> {
        let mlp = scope.child("mlp");
        Some(Box::new(PhiLayer {
            self_attn: Attend::new(&scope.child("self_attn"), &options, core.clone(), norms),
            mlp: PlainMlp {
                act: Activation::new(&mlp.child("activation_fn"), act)?,
                fc1: Linear::new(&mlp.child("fc1"), heads.hidden, intermediate, true),
                fc2: Linear::new(&mlp.child("fc2"), intermediate, heads.hidden, true),
                dropout: 0.0,
                module: mlp.module(),
            },
            input_layernorm: LayerNorm::new(&scope.child("input_layernorm"), heads.hidden, true),
            resid_dropout: (resid_pdrop, scope.child("resid_dropout").module()),
            module: scope.module(),
        }))
    };
    let layers = layers(config, ("hidden_act", act), (&model, count), layer)?;
    let rotary_emb = super::turns::rotary(&model, config, rotary);
    let module = model.child("embed_dropout").module();
    let embed_dropout = Some(EmbedDropout { p: config.probability("embd_pdrop", 0.0)?, module, rebinds: true });
    let norm = Norm::Layer(LayerNorm::new(&model.child("final_layernorm"), heads.hidden, true));
    let tied = config.flag("tie_word_embeddings", false)?;
    let shared = tied.then(|| embed_tokens.weight().clone());
    let head = DecoderHead::new(scope, config, plan, (&embed_tokens, false), || {
        Linear::biased_head(&scope.child("lm_head"), heads.hidden, vocab, shared.as_ref())
    })?;
    let parts = Parts { embed_tokens, layers, norm, rotary_emb, head, masks: Masks::Full };
    Ok(Decoder { embed_dropout, ..Decoder::new(scope, &model, plan, parts)? }.boxed())
}
