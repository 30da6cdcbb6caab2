//! DINOv2 (transformers `models/dinov2/modeling_dinov2.py`).

use std::rc::Rc;

use plimsoll_catalog::software::rules;
use plimsoll_ground::Result;
use plimsoll_scenario::Attention as Implementation;
use plimsoll_torch::Batch;
use plimsoll_torch::nn::{Activation, DropPath, EncoderAttention, GatedMlp, LayerNorm, Linear, ModuleList, Scope};
use plimsoll_torch::ops;
use plimsoll_torch::tensor::{ModuleId, Tensor, checkpoint};

use super::config::{Config, divide};
use super::image_batch::ImageBatch;
use super::vit::{Attend, Embeddings, Patches};
use super::{Model, Output, Plan, classification};

/// `Dinov2Attention`.
#[derive(Debug)]
enum Attention {
    /// Of two modules.
    Apart(Box<Apart>),
    /// Of one, since [`rules::DINOV2_LIKE_VIT`].
    One(Box<Attend>),
}

/// `Dinov2SelfAttention` and `Dinov2SelfOutput`.
#[derive(Debug)]
struct Apart {
    query: Linear,
    key: Linear,
    value: Linear,
    dense: Linear,
    core: EncoderAttention,
    heads: u64,
    dropout: (f64, ModuleId),
    modules: [ModuleId; 3],
}

impl Apart {
    fn attention(&self, hidden: &Tensor) -> (Tensor, Option<Tensor>) {
        let (batch, seq, width) = (hidden.size(0), hidden.size(1), hidden.size(2));
        let shape = [batch, seq, self.heads, width / self.heads];
        let heads = |linear: &Linear| ops::transpose(&ops::view(&linear.forward(hidden), &shape), 1, 2);
        let first = !hidden.cx().machine().rules.has(&rules::VISION_SHARES_SDPA);
        // Its own classes projected the queries first and split them last.
        let mixed = first.then(|| self.query.forward(hidden));
        let key = heads(&self.key);
        let value = heads(&self.value);
        let projected = mixed.unwrap_or_else(|| self.query.forward(hidden));
        let query = ops::transpose(&ops::view(&projected, &shape), 1, 2);
        if first && self.core.implementation == Implementation::Eager {
            let (out, named) = self.core.forward_named([&query, &key, &value], None);
            drop((projected, named));
            return (ops::view(&out, &[batch, seq, width]), None);
        }
        drop(projected);
        let (out, probabilities) = self.core.forward([&query, &key, &value], None, None, false);
        let returned = hidden.cx().machine().rules.has(&rules::VIT_NAMES_NORM);
        (ops::reshape(&out, &[batch, seq, width]), probabilities.filter(|_| returned))
    }

    fn forward(&self, hidden: &Tensor) -> Tensor {
        let cx = hidden.cx();
        let [module, attention, output] = self.modules;
        cx.within(module, || {
            let (attended, _probabilities) = cx.within(attention, || self.attention(hidden));
            cx.within(output, || {
                let mut out = self.dense.forward(&attended);
                let (p, module) = self.dropout;
                out = cx.within(module, || ops::dropout(&out, p));
                out
            })
        })
    }
}

/// `Dinov2MLP` or `Dinov2SwiGLUFFN`.
#[derive(Debug)]
enum FeedForward {
    Mlp {
        fc1: Linear,
        act: Activation,
        fc2: Linear,
    },
    SwiGlu {
        weights_in: Linear,
        weights_out: Linear,
        inner: u64,
    },
    /// Since [`rules::DINOV2_LIKE_VIT`].
    Gated(GatedMlp),
}

impl FeedForward {
    fn forward(&self, x: &Tensor) -> Tensor {
        match self {
            Self::Mlp { fc1, act, fc2 } => {
                let mut hidden = fc1.forward(x);
                hidden = act.forward(&hidden);
                hidden = fc2.forward(&hidden);
                hidden
            }
            Self::SwiGlu { weights_in, weights_out, inner } => {
                let parts = ops::split(&weights_in.forward(x), *inner, -1);
                let hidden = {
                    let gate = ops::silu(&parts[0]);
                    ops::mul(&gate, &parts[1])
                };
                weights_out.forward(&hidden)
            }
            Self::Gated(mlp) => mlp.forward(x),
        }
    }
}

/// `Dinov2LayerScale`.
#[derive(Debug)]
struct LayerScale {
    lambda1: Tensor,
    module: ModuleId,
}

impl LayerScale {
    fn new(scope: &Scope, hidden: u64) -> Self {
        Self { lambda1: scope.parameter(&[hidden]), module: scope.module() }
    }

    fn forward(&self, x: &Tensor) -> Tensor {
        x.cx().within(self.module, || ops::mul(x, &self.lambda1))
    }
}

/// `Dinov2Layer`.
#[derive(Debug)]
struct Layer {
    norm1: LayerNorm,
    attention: Attention,
    layer_scale1: LayerScale,
    drop_path: DropPath,
    norm2: LayerNorm,
    mlp: (FeedForward, ModuleId),
    layer_scale2: LayerScale,
    module: ModuleId,
}

impl Layer {
    fn forward(&self, hidden: &Tensor) -> Tensor {
        let cx = hidden.cx();
        let hidden = &cx.argument(self.module, hidden);
        cx.within(self.module, || {
            let apart = match &self.attention {
                Attention::Apart(attention) => attention,
                Attention::One(attention) => return self.residual(hidden, attention),
            };
            // What attention is given has a name; before 4.56, as ViT's, what it returned in a tuple.
            let mut named = self.norm1.forward(hidden);
            let mut attended = apart.forward(&named);
            if !cx.machine().rules.has(&rules::VIT_NAMES_NORM) {
                named = attended.clone();
            }
            attended = self.layer_scale1.forward(&attended);
            let hidden = self.add(&attended, hidden);

            let mut out = self.norm2.forward(&hidden);
            out = cx.within(self.mlp.1, || self.mlp.0.forward(&out));
            out = self.layer_scale2.forward(&out);
            out = self.add(&out, &hidden);
            drop((hidden, named, attended));
            out
        })
    }
}

impl Layer {
    /// Since [`rules::DINOV2_LIKE_VIT`]: one name for what goes through, one for what is added to it.
    fn residual(&self, hidden: &Tensor, attention: &Attend) -> Tensor {
        let mut x = self.norm1.forward(hidden);
        // The probabilities stay bound to `_` until the layer returns.
        let (attended, _weights) = attention.forward(&x);
        x = attended;
        x = self.layer_scale1.forward(&x);
        x = self.add(&x, hidden);

        let residual = x.clone();
        x = self.norm2.forward(&x);
        x = x.cx().within(self.mlp.1, || self.mlp.0.forward(&x));
        x = self.layer_scale2.forward(&x);
        self.add(&x, &residual)
    }

    /// `self.drop_path(x) + residual`.
    fn add(&self, x: &Tensor, residual: &Tensor) -> Tensor {
        let branch = self.drop_path.forward(x);
        ops::add(&branch, residual)
    }
}

#[derive(Debug)]
struct ForImageClassification {
    embeddings: Embeddings,
    layers: ModuleList<Layer>,
    layernorm: LayerNorm,
    classifier: Linear,
    modules: [ModuleId; 2],
    checkpointing: bool,
    batch: ImageBatch,
}

/// `Dinov2ForImageClassification(config)`.
pub fn build(scope: &Scope, config: &Config<'_>, plan: &Plan) -> Result<Box<dyn Model>> {
    let hidden = config.size("hidden_size", 768)?;
    let heads = config.size("num_attention_heads", 12)?;
    divide(config, ("hidden_size", hidden), ("num_attention_heads", heads))?;
    let wide = hidden * config.size("mlp_ratio", 4)?;
    let act = config.text("hidden_act", "gelu")?;
    let dropout = config.probability("hidden_dropout_prob", 0.0)?;
    let drop = config.probability("drop_path_rate", 0.0)?;
    let swiglu = config.flag("use_swiglu_ffn", false)?;
    let bias = config.flag("qkv_bias", true)?;
    let count = config.layers("num_hidden_layers", 12)?;
    let patch = if scope.cx().machine().rules.has(&rules::DINOV2_PATCHES_OF_14) { 14 } else { 16 };
    let patches = Patches::read(config, patch)?;
    let batch = ImageBatch::new(scope, plan, patches.channels)?;
    batch.must_have_pixels(patches.patch)?;
    let like_vit = scope.cx().machine().rules.has(&rules::DINOV2_LIKE_VIT);
    let shared = scope.cx().machine().rules.has(&rules::VISION_SHARES_SDPA);
    let core = EncoderAttention {
        implementation: plan.attention,
        rules: plan.rules.clone(),
        dropout: config.probability("attention_probs_dropout_prob", 0.0)?,
        softmax_fp32: shared && !scope.cx().machine().rules.has(&rules::DINOV2_SOFTMAX_AS_GIVEN),
        shared_since: Some(&rules::VISION_SHARES_SDPA),
    };

    let base = scope.child("dinov2");
    let mask_token = config.flag("use_mask_token", true)?;
    let embeddings = Embeddings::new(&base.child("embeddings"), patches, hidden, dropout, mask_token, plan);
    let encoder = base.child("encoder");
    let layer = |scope: &Scope, _| -> Option<Layer> {
        let norm = |name| LayerNorm::new(&scope.child(name), hidden, true);
        let norm1 = norm("norm1");
        let place = scope.child("attention");
        let attention = if like_vit {
            Attention::One(Box::new(Attend::new(&place, hidden, heads, bias, core.clone())))
        } else {
            let (attention, output) = (place.child("attention"), place.child("output"));
            let project = |name| Linear::new(&attention.child(name), hidden, hidden, bias);
            Attention::Apart(Box::new(Apart {
                query: project("query"),
                key: project("key"),
                value: project("value"),
                dense: Linear::new(&output.child("dense"), hidden, hidden, true),
                core: core.clone(),
                heads,
                dropout: (dropout, output.child("dropout").module()),
                modules: [place.module(), attention.module(), output.module()],
            }))
        };
        let layer_scale1 = LayerScale::new(&scope.child("layer_scale1"), hidden);
        let norm2 = norm("norm2");
        let mlp = scope.child("mlp");
        let feed_forward = if swiglu {
            let inner = (wide * 2 / 3).next_multiple_of(8);
            if like_vit {
                FeedForward::Gated(GatedMlp::new(&mlp, hidden, inner, "silu", true)?)
            } else {
                FeedForward::SwiGlu {
                    weights_in: Linear::new(&mlp.child("weights_in"), hidden, 2 * inner, true),
                    weights_out: Linear::new(&mlp.child("weights_out"), inner, hidden, true),
                    inner,
                }
            }
        } else {
            FeedForward::Mlp {
                fc1: Linear::new(&mlp.child("fc1"), hidden, wide, true),
                act: Activation::new(&mlp.child("activation"), act)?,
                fc2: Linear::new(&mlp.child("fc2"), wide, hidden, true),
            }
        };
        Some(Layer {
            norm1,
            attention,
            layer_scale1,
            drop_path: DropPath::new(&scope.child("drop_path"), drop),
            norm2,
            mlp: (feed_forward, mlp.module()),
            layer_scale2: LayerScale::new(&scope.child("layer_scale2"), hidden),
            module: scope.module(),
        })
    };
    let layers = ModuleList::new(&encoder, "layer", count, layer)
        .ok_or_else(|| super::unknown_activation(config, "hidden_act", act))?;
    let labels = classification::num_labels(config, plan.task)?;
    Ok(Box::new(ForImageClassification {
        embeddings,
        layers,
        layernorm: LayerNorm::new(&base.child("layernorm"), hidden, true),
        classifier: Linear::new(&scope.child("classifier"), 2 * hidden, labels, true),
        modules: [base.module(), encoder.module()],
        checkpointing: plan.checkpointing,
        batch,
    }))
}

impl ForImageClassification {
    /// `Dinov2Model.forward`.
    fn hidden(&self, images: &Tensor) -> Tensor {
        let cx = images.cx();
        let [base, encoder] = self.modules;
        cx.within(base, || {
            let embeddings = self.embeddings.forward(images, true);
            let encoded = cx.within(encoder, || {
                self.layers.run(
                    cx,
                    embeddings.clone(),
                    |_| (),
                    |layer, hidden| {
                        if cx.checkpoints(self.checkpointing) {
                            let layer = Rc::clone(layer);
                            checkpoint(cx, vec![hidden], Rc::new(move |inputs| layer.forward(&inputs[0])))
                        } else {
                            layer.forward(&hidden)
                        }
                    },
                )
            });
            let normed = self.layernorm.forward(&encoded);
            drop((embeddings, encoded));
            normed
        })
    }
}

impl Model for ForImageClassification {
    fn batch(&self) -> Batch {
        self.batch.make()
    }

    fn forward(&self, batch: &Batch) -> Output {
        let hidden = self.hidden(batch.inputs());
        let class = ops::first(&hidden);
        let patches = ops::narrow(&ops::whole(&hidden), 1, hidden.size(1) - 1);
        let input = {
            let mean = ops::mean(&patches, 1);
            ops::cat(&[&class, &mean], 1)
        };
        let logits = self.classifier.forward(&input);
        let loss = classification::loss(&logits, batch.labels());
        drop((hidden, class, patches, input));
        Output { held: vec![loss.clone(), logits], loss }
    }
}
