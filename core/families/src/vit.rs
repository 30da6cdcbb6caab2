//! ViT (transformers `models/vit/modeling_vit.py`).

use std::rc::Rc;

use plimsoll_catalog::software::rules;
use plimsoll_ground::Result;
use plimsoll_scenario::Attention;
use plimsoll_torch::Batch;
use plimsoll_torch::nn::{Activation, Conv2d, EncoderAttention, LayerNorm, Linear, ModuleList, Scope};
use plimsoll_torch::ops::{self, Window};
use plimsoll_torch::tensor::{DType, ModuleId, Tensor, checkpoint};

use super::config::{Config, divide};
use super::image_batch::ImageBatch;
use super::{Model, Output, Plan, classification};

/// `ViTEmbeddings`: patches through a convolution, the class token before them, positions added.
#[derive(Debug)]
pub struct Embeddings {
    cls_token: Tensor,
    position_embeddings: Tensor,
    projection: Conv2d,
    dropout: (f64, ModuleId),
    /// Patches along a side that the position embeddings are for.
    side: u64,
    patch: u64,
    /// Under adapters and checkpoints the patches are a leaf that requires grad (`enable_input_require_grads`).
    leaf: bool,
    modules: [ModuleId; 2],
}

/// The sizes of the patches.
#[derive(Clone, Copy, Debug)]
pub struct Patches {
    /// Channels of an image.
    pub channels: u64,
    /// Side of the image the position embeddings are for.
    pub image: u64,
    /// Side of a patch.
    pub patch: u64,
}

impl Patches {
    /// `num_channels`, `image_size` and `patch_size`.
    ///
    /// # Errors
    /// Sizes that are no sizes; patches larger than the image.
    pub fn read(config: &Config<'_>, patch: u64) -> Result<Self> {
        let channels = config.size("num_channels", 3)?;
        let (image, patch) = (config.side("image_size", 224)?, config.side("patch_size", patch)?);
        if patch > image {
            let problem = format!("patches of {patch} pixels, but the image has {image}");
            return Err(config.error("patch_size", problem, "give smaller patches"));
        }
        Ok(Self { channels, image, patch })
    }
}

impl Embeddings {
    /// Patches of `hidden` features; `mask_token` says that there is a parameter nothing uses in classification.
    pub fn new(scope: &Scope, sizes: Patches, hidden: u64, dropout: f64, mask_token: bool, plan: &Plan) -> Self {
        let mut place = scope.place();
        let patches = scope.child("patch_embeddings");
        let window = Window { kernel: sizes.patch, stride: sizes.patch, padding: 0 };
        let projection = Conv2d::new(&patches.child("projection"), sizes.channels, hidden, 1, window, true);
        let side = sizes.image / sizes.patch;
        let mut own = |sizes: &[u64]| {
            let parameter = scope.own_parameter(place, sizes);
            place += 1;
            parameter
        };
        let cls_token = own(&[1, 1, hidden]);
        if mask_token {
            own(&[1, hidden]);
        }
        Self {
            cls_token,
            position_embeddings: own(&[1, side * side + 1, hidden]),
            projection,
            dropout: (dropout, scope.child("dropout").module()),
            side,
            patch: sizes.patch,
            leaf: plan.adapters && plan.checkpointing,
            modules: [scope.module(), patches.module()],
        }
    }

    /// The position embeddings for `side` patches along a side: DINOv2's way, whose models take images of any size. ViT
    /// refuses all but its own.
    fn interpolate_pos_encoding(&self, side: u64) -> Tensor {
        let whole = &self.position_embeddings;
        if side == self.side {
            return whole.clone();
        }
        let (class, width, dtype) = (ops::narrow(whole, 1, 1), whole.size(2), whole.dtype());
        let mut patches = ops::narrow(whole, 1, self.side * self.side);
        patches = ops::permute(&ops::reshape(&patches, &[1, self.side, self.side, width]), &ops::CHANNELS_FIRST);
        patches = {
            let whole = ops::to(&patches, DType::Float32);
            let resized = ops::upsample_bicubic2d(&whole, side);
            drop(whole);
            ops::to(&resized, dtype)
        };
        patches = ops::view(&ops::permute(&patches, &ops::CHANNELS_LAST), &[1, side * side, width]);
        ops::cat(&[&class, &patches], 1)
    }

    /// The module that runs asks the patches' projection for its dtype.
    fn read_projection(&self) {
        let weight = self.projection.weight();
        weight.cx().read(weight);
    }

    /// `forward`; whether it `asks` the patches' projection for its dtype (DINOv2's), which else the model has done.
    pub fn forward(&self, images: &Tensor, asks: bool) -> Tensor {
        let cx = images.cx();
        let [embeddings, patches] = self.modules;
        cx.within(embeddings, || {
            if asks {
                self.read_projection();
            }
            let mut x = cx.within(patches, || {
                let projected = self.projection.forward(images);
                let (batch, width) = (projected.size(0), projected.size(1));
                let flat = ops::view(&projected, &[batch, width, projected.size(2) * projected.size(3)]);
                ops::transpose(&flat, 1, 2)
            });
            if self.leaf {
                x = x.into_required_output();
            }
            let token = ops::expand(&self.cls_token, &[x.size(0), 1, x.size(2)]);
            x = ops::cat(&[&token, &x], 1);
            x = {
                let positions = self.interpolate_pos_encoding(images.size(2) / self.patch);
                ops::add(&x, &positions)
            };
            let (p, module) = self.dropout;
            cx.within(module, || ops::dropout(&x, p))
        })
    }
}

/// `ViTAttention`, and `Dinov2Attention` since [`rules::DINOV2_LIKE_VIT`].
#[derive(Debug)]
pub(super) struct Attend {
    q_proj: Linear,
    k_proj: Linear,
    v_proj: Linear,
    o_proj: Linear,
    core: EncoderAttention,
    heads: u64,
    module: ModuleId,
}

impl Attend {
    /// Of so many heads; `bias` is that of queries, keys and values.
    pub(super) fn new(scope: &Scope, hidden: u64, heads: u64, bias: bool, core: EncoderAttention) -> Self {
        let project = |name, bias| Linear::new(&scope.child(name), hidden, hidden, bias);
        Self {
            q_proj: project("q_proj", bias),
            k_proj: project("k_proj", bias),
            v_proj: project("v_proj", bias),
            o_proj: project("o_proj", true),
            core,
            heads,
            module: scope.module(),
        }
    }

    /// What attention makes of `[batch, seq, hidden]`, and the probabilities it returns.
    pub(super) fn forward(&self, hidden: &Tensor) -> (Tensor, Option<Tensor>) {
        hidden.cx().within(self.module, || {
            let (batch, seq, width) = (hidden.size(0), hidden.size(1), hidden.size(2));
            let shape = [batch, seq, self.heads, width / self.heads];
            let rules = hidden.cx().machine().rules;
            let split = |projected: &Tensor| ops::transpose(&ops::view(projected, &shape), 1, 2);
            let heads = |linear: &Linear| split(&linear.forward(hidden));
            // Two modules have been one since.
            let one = rules.has(&rules::VIT_NAMES_MLP);
            // Its own classes split the queries last; then they were projected last, too.
            let late = !rules.has(&rules::VISION_SHARES_SDPA);
            let projected = late.then(|| self.q_proj.forward(hidden));
            let first = one.then(|| heads(&self.q_proj));
            let key = heads(&self.k_proj);
            let value = heads(&self.v_proj);
            let last = || projected.as_ref().map_or_else(|| heads(&self.q_proj), split);
            let query = first.unwrap_or_else(last);
            if late && self.core.implementation == Attention::Eager {
                let (out, named) = self.core.forward_named([&query, &key, &value], None);
                drop((named, query, key, value, projected));
                return (self.o_proj.forward(&ops::view(&out, &[batch, seq, width])), None);
            }
            let (mut out, mut weights) = self.core.forward([&query, &key, &value], None, None, false);
            // Before, no probabilities were returned that nobody asked for.
            if !rules.has(&rules::VIT_NAMES_NORM) {
                drop(weights.take());
            }
            if !one {
                drop((query, key, value, projected));
            }
            out = ops::contiguous(&ops::reshape(&out, &[batch, seq, width]));
            out = self.o_proj.forward(&out);
            (out, weights)
        })
    }
}

/// `ViTLayer`.
#[derive(Debug)]
struct Layer {
    attention: Attend,
    layernorm_before: LayerNorm,
    layernorm_after: LayerNorm,
    act: Activation,
    fc1: Linear,
    fc2: Linear,
    dropout: (f64, ModuleId),
    mlp: ModuleId,
    module: ModuleId,
}

impl Layer {
    fn feed_forward(&self, x: &Tensor) -> Tensor {
        x.cx().within(self.mlp, || {
            let mut hidden = self.fc1.forward(x);
            hidden = self.act.forward(&hidden);
            hidden = self.fc2.forward(&hidden);
            hidden
        })
    }

    fn forward(&self, hidden: &Tensor) -> Tensor {
        let cx = hidden.cx();
        let hidden = &cx.argument(self.module, hidden);
        let dropout = |x: &Tensor| cx.within(self.dropout.1, || ops::dropout(x, self.dropout.0));
        if !cx.machine().rules.has(&rules::VIT_NAMES_MLP) {
            return cx.within(self.module, || self.older(hidden, &dropout));
        }
        cx.within(self.module, || {
            let mut residual = hidden.clone();
            let mut x = self.layernorm_before.forward(hidden);
            // The probabilities stay bound to `_` until the layer returns.
            let (attended, _weights) = self.attention.forward(&x);
            x = attended;
            x = dropout(&x);
            x = ops::add(&x, &residual);

            residual = x.clone();
            x = self.layernorm_after.forward(&x);
            x = self.feed_forward(&x);
            x = dropout(&x);
            x = ops::add(&x, &residual);
            x
        })
    }

    /// As it was with modules `intermediate` and `output`: `attention_output`, and later what attention was given, had names
    /// until the layer returned; what the first linear was given had none any more in the second.
    fn older(&self, hidden: &Tensor, dropout: &impl Fn(&Tensor) -> Tensor) -> Tensor {
        let cx = hidden.cx();
        let given = self.layernorm_before.forward(hidden);
        let norm = cx.machine().rules.has(&rules::VIT_NAMES_NORM).then(|| given.clone());
        let (attended, _weights) = self.attention.forward(&given);
        drop(given);
        let attention_output = dropout(&attended);
        drop(attended);
        let sum = ops::add(&attention_output, hidden);
        let made = {
            let given = self.layernorm_after.forward(&sum);
            cx.within(self.mlp, || self.act.forward(&self.fc1.forward(&given)))
        };
        let mut out = cx.within(self.mlp, || self.fc2.forward(&made));
        out = dropout(&out);
        out = ops::add(&out, &sum);
        drop((made, sum, norm, attention_output));
        out
    }
}

#[derive(Debug)]
struct ForImageClassification {
    embeddings: Embeddings,
    layers: ModuleList<Layer>,
    layernorm: LayerNorm,
    classifier: Linear,
    vit: ModuleId,
    checkpointing: bool,
    batch: ImageBatch,
}

/// `ViTForImageClassification(config)`.
pub fn build(scope: &Scope, config: &Config<'_>, plan: &Plan) -> Result<Box<dyn Model>> {
    let hidden = config.size("hidden_size", 768)?;
    let heads = config.size("num_attention_heads", 12)?;
    divide(config, ("hidden_size", hidden), ("num_attention_heads", heads))?;
    let inner = config.size("intermediate_size", 3072)?;
    let act = config.text("hidden_act", "gelu")?;
    let probability = config.probability("hidden_dropout_prob", 0.0)?;
    let bias = config.flag("qkv_bias", true)?;
    let count = config.layers("num_hidden_layers", 12)?;
    let patches = Patches::read(config, 16)?;
    let batch = ImageBatch::new(scope, plan, patches.channels)?;
    batch.must_have_side(patches.image)?;
    let core = EncoderAttention {
        implementation: plan.attention,
        rules: plan.rules.clone(),
        dropout: config.probability("attention_probs_dropout_prob", 0.0)?,
        // Its own classes computed in the dtype the scores have.
        softmax_fp32: scope.cx().machine().rules.has(&rules::VISION_SHARES_SDPA),
        shared_since: Some(&rules::VISION_SHARES_SDPA),
    };

    let vit = scope.child("vit");
    let embeddings = Embeddings::new(&vit.child("embeddings"), patches, hidden, probability, false, plan);
    let layer = |scope: &Scope, _| -> Option<Layer> {
        let attention = Attend::new(&scope.child("attention"), hidden, heads, bias, core.clone());
        let norms =
            || ["layernorm_before", "layernorm_after"].map(|name| LayerNorm::new(&scope.child(name), hidden, true));
        let mlp = scope.child("mlp");
        let linears = || {
            let linear = |name, from, to| Linear::new(&mlp.child(name), from, to, true);
            [linear("fc1", hidden, inner), linear("fc2", inner, hidden)]
        };
        // A model comes to the card in the order its modules were made.
        let ([layernorm_before, layernorm_after], [fc1, fc2]) = if scope.cx().machine().rules.has(&rules::VIT_NAMES_MLP)
        {
            (norms(), linears())
        } else {
            let linears = linears();
            (norms(), linears)
        };
        Some(Layer {
            attention,
            layernorm_before,
            layernorm_after,
            act: Activation::new(&mlp.child("activation_fn"), act)?,
            fc1,
            fc2,
            dropout: (probability, scope.child("dropout").module()),
            mlp: mlp.module(),
            module: scope.module(),
        })
    };
    let layers = ModuleList::new(&vit, "layers", count, layer)
        .ok_or_else(|| super::unknown_activation(config, "hidden_act", act))?;
    Ok(Box::new(ForImageClassification {
        embeddings,
        layers,
        layernorm: LayerNorm::new(&vit.child("layernorm"), hidden, true),
        classifier: Linear::new(
            &scope.child("classifier"),
            hidden,
            classification::num_labels(config, plan.task)?,
            true,
        ),
        vit: vit.module(),
        checkpointing: plan.checkpointing,
        batch,
    }))
}

impl ForImageClassification {
    /// `ViTModel.forward`.
    fn hidden(&self, images: &Tensor) -> Tensor {
        let cx = images.cx();
        cx.within(self.vit, || {
            // `self.embeddings.patch_embeddings.projection.weight.dtype`
            self.embeddings.read_projection();
            let embeddings = self.embeddings.forward(images, false);
            let hidden = self.layers.run(
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
            );
            let normed = self.layernorm.forward(&hidden);
            drop((embeddings, hidden));
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
        let logits = self.classifier.forward(&ops::whole(&ops::first(&hidden)));
        let loss = classification::loss(&logits, batch.labels());
        drop(hidden);
        Output { held: vec![loss.clone(), logits], loss }
    }
}
