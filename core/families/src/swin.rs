//! Swin Transformer (transformers `models/swin/modeling_swin.py`).

use std::rc::Rc;

use plimsoll_catalog::software::rules;
use plimsoll_ground::Result;
use plimsoll_torch::Batch;
use plimsoll_torch::nn::{Conv2d, DropPath, EncoderAttention, LayerNorm, Linear, Scope};
use plimsoll_torch::ops::{self, Window};
use plimsoll_torch::tensor::{ModuleId, Tensor, checkpoint_all};

use super::config::{Config, MAX_SIZE, divide};
use super::image_batch::ImageBatch;
use super::swin_layer::{Block, Layer};
use super::{Model, Output, Plan, classification, stages, unknown_activation};

/// `SwinEmbeddings`: patches through a convolution, normalised; absolute positions where the config has them.
#[derive(Debug)]
struct Embeddings {
    projection: Conv2d,
    position_embeddings: Option<Tensor>,
    norm: LayerNorm,
    dropout: (f64, ModuleId),
    patch: u64,
    modules: [ModuleId; 2],
}

impl Embeddings {
    /// The patches, and how many stand along a side.
    fn forward(&self, images: &Tensor) -> (Tensor, u64) {
        let cx = images.cx();
        let [embeddings, patches] = self.modules;
        cx.within(embeddings, || {
            let (mut x, side) = cx.within(patches, || {
                let projected = self.projection.forward(&self.maybe_pad(images));
                let (batch, width, side) = (projected.size(0), projected.size(1), projected.size(2));
                (ops::transpose(&ops::view(&projected, &[batch, width, side * side]), 1, 2), side)
            });
            x = self.norm.forward(&x);
            if let Some(positions) = &self.position_embeddings {
                x = ops::add(&x, positions);
            }
            let (p, module) = self.dropout;
            (cx.within(module, || ops::dropout(&x, p)), side)
        })
    }

    /// To whole patches, the width first.
    fn maybe_pad(&self, images: &Tensor) -> Tensor {
        let [batch, channels, height, width] = [images.size(0), images.size(1), images.size(2), images.size(3)];
        let side = width.next_multiple_of(self.patch);
        if side == width {
            return images.clone();
        }
        let images = ops::pad(images, &[batch, channels, height, side]);
        ops::pad(&images, &[batch, channels, side, side])
    }
}

/// `SwinPatchMerging`: four neighbours become one of twice the width.
#[derive(Debug)]
struct PatchMerging {
    reduction: Linear,
    norm: LayerNorm,
    module: ModuleId,
}

impl PatchMerging {
    fn new(scope: &Scope, width: u64) -> Self {
        Self {
            reduction: Linear::new(&scope.child("reduction"), 4 * width, 2 * width, false),
            norm: LayerNorm::new(&scope.child("norm"), 4 * width, true),
            module: scope.module(),
        }
    }

    fn forward(&self, x: &Tensor, side: u64) -> Tensor {
        x.cx().within(self.module, || {
            let (batch, width) = (x.size(0), x.size(2));
            let mut x = ops::view(x, &[batch, side, side, width]);
            let even = side.next_multiple_of(2);
            if even != side {
                x = ops::pad(&x, &[batch, even, even, width]);
            }
            x = {
                // x[:, 0::2, 0::2, :]
                let quarter = || ops::whole(&ops::every_second_of(&ops::every_second_of(&ops::whole(&x), 1), 2));
                let quarters = [quarter(), quarter(), quarter(), quarter()];
                ops::cat(&quarters.each_ref(), -1)
            };
            x = ops::view(&x, &[batch, (even / 2) * (even / 2), 4 * width]);
            x = self.norm.forward(&x);
            x = self.reduction.forward(&x);
            x
        })
    }
}

/// `SwinStage`.
#[derive(Debug)]
struct Stage {
    blocks: Vec<Rc<Layer>>,
    downsample: Option<PatchMerging>,
    checkpointing: bool,
    module: ModuleId,
}

impl Stage {
    /// The next hidden states; them once more as an image, which nobody asked for, and before [`rules::SWIN_SHARES_ATTENTION`] those
    /// before they were merged; the last attention probabilities.
    fn forward(&self, x: &Tensor, side: u64) -> Vec<Tensor> {
        let cx = x.cx();
        let x = &cx.argument(self.module, x);
        cx.within(self.module, || {
            let mut hidden = x.clone();
            let mut last_weights = None;
            for (i, block) in self.blocks.iter().enumerate() {
                let mut outputs = cx.as_layer(i, || {
                    let layers = cx.machine().rules.has(&rules::SWIN_SHARES_ATTENTION);
                    if layers && cx.checkpoints(self.checkpointing) {
                        let block = Rc::clone(block);
                        checkpoint_all(cx, vec![hidden.clone()], Rc::new(move |inputs| block.forward(&inputs[0], side)))
                    } else {
                        block.forward(&hidden, side)
                    }
                });
                last_weights = outputs.drain(1..).next();
                hidden = outputs.pop().unwrap_or(hidden);
            }
            let before = hidden.clone();
            let mut next = side;
            if let Some(downsample) = &self.downsample {
                hidden = downsample.forward(&before, side);
                next = side.div_ceil(2);
            }
            if !cx.machine().rules.has(&rules::SWIN_SHARES_ATTENTION) {
                return vec![hidden, before];
            }
            let image = ops::view(&hidden, &[hidden.size(0), next, next, hidden.size(2)]);
            let reshaped = ops::contiguous(&ops::permute(&image, &ops::CHANNELS_FIRST));
            drop(before);
            [Some(hidden), Some(reshaped), last_weights].into_iter().flatten().collect()
        })
    }
}

#[derive(Debug)]
struct ForImageClassification {
    embeddings: Embeddings,
    stages: Vec<Rc<Stage>>,
    layernorm: LayerNorm,
    classifier: Linear,
    checkpointing: bool,
    modules: [ModuleId; 3],
    batch: ImageBatch,
}

/// `SwinForImageClassification(config)`.
pub fn build(scope: &Scope, config: &Config<'_>, plan: &Plan) -> Result<Box<dyn Model>> {
    let channels = config.size("num_channels", 3)?;
    let (image, patch) = (config.side("image_size", 224)?, config.side("patch_size", 4)?);
    let first = config.size("embed_dim", 96)?;
    let depths = stages::depths(config, &[2, 2, 6, 2])?;
    let heads = stages::sizes(config, "num_heads", &[3, 6, 12, 24], &depths)?;
    let window = config.size("window_size", 7)?;
    let ratio = config.number("mlp_ratio").unwrap_or(4.0);
    let act = config.text("hidden_act", "gelu")?;
    let dropout = config.probability("hidden_dropout_prob", 0.0)?;
    let drop = config.probability("drop_path_rate", 0.1)?;
    let bias = config.flag("qkv_bias", true)?;
    let absolute = config.flag("use_absolute_embeddings", false)?;
    let batch = ImageBatch::new(scope, plan, channels)?;
    if absolute {
        batch.must_have_side(image)?;
    }
    let widest = first.saturating_mul(1 << (depths.len() - 1));
    if !(0.0..=1024.0).contains(&ratio) || widest > MAX_SIZE {
        let (key, value) = if widest > MAX_SIZE { ("embed_dim", first as f64) } else { ("mlp_ratio", ratio) };
        return Err(config.error(key, format!("{value} is out of range"), "give the model's own"));
    }
    let smallest = (1..depths.len()).fold(batch.side().div_ceil(patch), |side, _| side.div_ceil(2));
    if smallest < window {
        let problem = format!("windows of {window} patches, but the last stage has only {smallest} along a side");
        return Err(config.error("window_size", problem, "give a larger image, or smaller windows"));
    }

    let swin = scope.child("swin");
    let place = swin.child("embeddings");
    let own = place.place();
    let patches = place.child("patch_embeddings");
    let stride = Window { kernel: patch, stride: patch, padding: 0 };
    let projection = Conv2d::new(&patches.child("projection"), channels, first, 1, stride, true);
    let norm = LayerNorm::new(&place.child("norm"), first, true);
    let along = image / patch;
    let embeddings = Embeddings {
        projection,
        position_embeddings: absolute.then(|| place.own_parameter(own, &[1, along * along, first])),
        norm,
        dropout: (dropout, place.child("dropout").module()),
        patch,
        modules: [place.module(), patches.module()],
    };
    let encoder = swin.child("encoder");
    let total: u64 = depths.iter().sum();
    let attention = EncoderAttention {
        implementation: plan.attention,
        rules: plan.rules.clone(),
        dropout: config.probability("attention_probs_dropout_prob", 0.0)?,
        softmax_fp32: true,
        shared_since: None,
    };
    let (mut before, mut width, mut built) = (0, first, Vec::new());
    for (stage, (&depth, &heads)) in (0..).zip(depths.iter().zip(&heads)) {
        divide(config, ("width", width), ("num_heads", heads))?;
        let scope = encoder.item("layers", stage);
        let block = |i| {
            let deeper = scope.cx().machine().rules.has(&rules::SWIN_DROPS_DEEPER_MORE);
            let drop_path = if deeper { DropPath::deeper(drop, before + i, total) } else { drop };
            let shifted = i % 2 == 1;
            let inner = (ratio * width as f64) as u64;
            let sizes = Block { width, heads, window, inner: inner.max(1), bias, shifted, dropout, drop_path, act };
            Layer::new(&scope.item("blocks", i), &sizes, &attention).map(Rc::new)
        };
        let blocks = (0..depth).map(block).collect::<Option<Vec<_>>>();
        let blocks = blocks.ok_or_else(|| unknown_activation(config, "hidden_act", act))?;
        let last = built.len() + 1 == depths.len();
        let downsample = (!last).then(|| PatchMerging::new(&scope.child("downsample"), width));
        built.push(Rc::new(Stage { blocks, downsample, checkpointing: plan.checkpointing, module: scope.module() }));
        before += depth;
        width *= if last { 1 } else { 2 };
    }
    let labels = classification::num_labels(config, plan.task)?;
    Ok(Box::new(ForImageClassification {
        embeddings,
        stages: built,
        layernorm: LayerNorm::new(&swin.child("layernorm"), width, true),
        classifier: Linear::new(&scope.child("classifier"), width, labels, true),
        checkpointing: plan.checkpointing,
        modules: [swin.module(), encoder.module(), swin.child("pooler").module()],
        batch,
    }))
}

impl ForImageClassification {
    /// `SwinEncoder.forward`.
    fn encode(&self, embedded: &Tensor, mut side: u64) -> Tensor {
        let cx = embedded.cx();
        let mut hidden = embedded.clone();
        // What the names beside the hidden states hold until the next stage has run.
        let mut unused = Vec::new();
        for (i, stage) in self.stages.iter().enumerate() {
            let mut outputs = cx.as_layer(i, || {
                if cx.checkpoints(self.checkpointing) {
                    let stage = Rc::clone(stage);
                    checkpoint_all(cx, vec![hidden.clone()], Rc::new(move |inputs| stage.forward(&inputs[0], side)))
                } else {
                    stage.forward(&hidden, side)
                }
            });
            unused = outputs.drain(1..).collect();
            hidden = outputs.pop().unwrap_or(hidden);
            side = side.div_ceil(2);
        }
        drop(unused);
        hidden
    }

    /// `SwinModel.forward`: the last hidden states and their mean.
    fn pooled(&self, images: &Tensor) -> (Tensor, Tensor) {
        let cx = images.cx();
        let [swin, encoder, pooler] = self.modules;
        cx.within(swin, || {
            let (embedded, side) = self.embeddings.forward(images);
            let encoded = cx.within(encoder, || self.encode(&embedded, side));
            let sequence = self.layernorm.forward(&encoded);
            // adaptive_avg_pool1d() pools an image of one line.
            let line = ops::unsqueeze(&ops::transpose(&sequence, 1, 2), -2);
            let pooled = cx.within(pooler, || ops::global_avg_pool2d(&line));
            drop((embedded, encoded));
            (sequence, ops::view(&pooled, &[pooled.size(0), pooled.size(1)]))
        })
    }
}

impl Model for ForImageClassification {
    fn batch(&self) -> Batch {
        self.batch.make()
    }

    fn forward(&self, batch: &Batch) -> Output {
        let (sequence, pooled) = self.pooled(batch.inputs());
        let logits = self.classifier.forward(&pooled);
        let loss = classification::loss(&logits, batch.labels());
        drop((sequence, pooled));
        Output { held: vec![loss.clone(), logits], loss }
    }
}
