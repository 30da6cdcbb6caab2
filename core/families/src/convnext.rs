//! ConvNeXt (transformers `models/convnext/modeling_convnext.py`).

use plimsoll_catalog::software::rules;
use plimsoll_ground::Result;
use plimsoll_torch::Batch;
use plimsoll_torch::nn::{Activation, Conv2d, ConvNextLayerNorm, DropPath, LayerNorm, Linear, Scope};
use plimsoll_torch::ops::{self, Window};
use plimsoll_torch::tensor::{ModuleId, Tensor};

use super::config::Config;
use super::image_batch::ImageBatch;
use super::{Model, Output, Plan, classification, stages, unknown_activation};

/// `ConvNextLayer`.
#[derive(Debug)]
struct Layer {
    dwconv: Conv2d,
    layernorm: LayerNorm,
    pwconv1: Linear,
    act: Activation,
    pwconv2: Linear,
    layer_scale: Option<Tensor>,
    drop_path: DropPath,
    module: ModuleId,
}

impl Layer {
    fn new(scope: &Scope, width: u64, act: &str, scaled: bool, drop: f64) -> Option<Self> {
        let place = scope.place();
        let window = Window { kernel: 7, stride: 1, padding: 3 };
        Some(Self {
            dwconv: Conv2d::new(&scope.child("dwconv"), width, width, width, window, true),
            layernorm: LayerNorm::new(&scope.child("layernorm"), width, true),
            pwconv1: Linear::new(&scope.child("pwconv1"), width, 4 * width, true),
            act: Activation::new(&scope.child("act"), act)?,
            pwconv2: Linear::new(&scope.child("pwconv2"), 4 * width, width, true),
            layer_scale: scaled.then(|| scope.own_parameter(place, &[width])),
            drop_path: DropPath::new(&scope.child("drop_path"), drop),
            module: scope.module(),
        })
    }

    fn forward(&self, residual: &Tensor) -> Tensor {
        residual.cx().within(self.module, || {
            let mut features = self.dwconv.forward(residual);
            features = ops::permute(&features, &ops::CHANNELS_LAST);
            features = self.layernorm.forward(&features);
            features = self.pwconv1.forward(&features);
            features = self.act.forward(&features);
            features = self.pwconv2.forward(&features);
            if let Some(scale) = &self.layer_scale {
                features = ops::mul(scale, &features);
            }
            features = ops::permute(&features, &ops::CHANNELS_FIRST);
            features = {
                let branch = self.drop_path.forward(&features);
                ops::add(residual, &branch)
            };
            features
        })
    }
}

/// `ConvNextStage`.
#[derive(Debug)]
struct Stage {
    downsampling: Option<(ConvNextLayerNorm, Conv2d)>,
    layers: Vec<Layer>,
    module: ModuleId,
}

impl Stage {
    fn forward(&self, x: &Tensor) -> Tensor {
        x.cx().within(self.module, || {
            let mut features = x.clone();
            if let Some((norm, conv)) = &self.downsampling {
                features = norm.forward(&features);
                features = conv.forward(&features);
            }
            // What a sequence of layers was called with had a name until it was through.
            let called = !x.cx().machine().rules.has(&rules::CONVNEXT_NORMS_AT_ONCE);
            let given = called.then(|| features.clone());
            for layer in &self.layers {
                features = layer.forward(&features);
            }
            drop(given);
            features
        })
    }
}

#[derive(Debug)]
struct ForImageClassification {
    patch_embeddings: Conv2d,
    embedding_norm: ConvNextLayerNorm,
    stages: Vec<Stage>,
    layernorm: LayerNorm,
    classifier: Linear,
    module: ModuleId,
    batch: ImageBatch,
}

/// `ConvNextForImageClassification(config)`.
pub fn build(scope: &Scope, config: &Config<'_>, plan: &Plan) -> Result<Box<dyn Model>> {
    let channels = config.size("num_channels", 3)?;
    let patch = config.side("patch_size", 4)?;
    let depths = stages::depths(config, &[3, 3, 9, 3])?;
    let widths = stages::sizes(config, "hidden_sizes", &[96, 192, 384, 768], &depths)?;
    let act = config.text("hidden_act", "gelu")?;
    let scaled = config.number("layer_scale_init_value").unwrap_or(1e-6) > 0.0;
    let drop = config.probability("drop_path_rate", 0.0)?;
    let batch = ImageBatch::new(scope, plan, channels)?;
    // Every stage behind the first halves the patches.
    batch.must_have_pixels(patch.saturating_mul(1 << (depths.len() - 1)))?;

    let convnext = scope.child("convnext");
    let embeddings = convnext.child("embeddings");
    let window = Window { kernel: patch, stride: patch, padding: 0 };
    let first = widths.first().copied().unwrap_or(1);
    let patch_embeddings = Conv2d::new(&embeddings.child("patch_embeddings"), channels, first, 1, window, true);
    let embedding_norm = ConvNextLayerNorm::new(&embeddings.child("layernorm"), first);
    let total: u64 = depths.iter().sum();
    let (mut before, mut inputs, mut stages) = (0, first, Vec::new());
    for (stage, (&width, &depth)) in (0..).zip(widths.iter().zip(&depths)) {
        let scope = convnext.child("encoder").item("stages", stage);
        let downsampling = (stage > 0).then(|| {
            let halve = Window { kernel: 2, stride: 2, padding: 0 };
            let norm = ConvNextLayerNorm::new(&scope.item("downsampling_layer", 0), inputs);
            (norm, Conv2d::new(&scope.item("downsampling_layer", 1), inputs, width, 1, halve, true))
        });
        let layer =
            |i| Layer::new(&scope.item("layers", i), width, act, scaled, DropPath::deeper(drop, before + i, total));
        let layers = (0..depth).map(layer).collect::<Option<Vec<_>>>();
        let layers = layers.ok_or_else(|| unknown_activation(config, "hidden_act", act))?;
        stages.push(Stage { downsampling, layers, module: scope.module() });
        before += depth;
        inputs = width;
    }
    let labels = classification::num_labels(config, plan.task)?;
    Ok(Box::new(ForImageClassification {
        patch_embeddings,
        embedding_norm,
        stages,
        layernorm: LayerNorm::new(&convnext.child("layernorm"), inputs, true),
        classifier: Linear::new(&scope.child("classifier"), inputs, labels, true),
        module: convnext.module(),
        batch,
    }))
}

impl ForImageClassification {
    /// `ConvNextModel.forward`: the last hidden state and its normalised mean over the image.
    fn pooled(&self, images: &Tensor) -> (Tensor, Tensor) {
        images.cx().within(self.module, || {
            let mut embeddings = self.patch_embeddings.forward(images);
            embeddings = self.embedding_norm.forward(&embeddings);
            let mut hidden = embeddings.clone();
            for stage in &self.stages {
                hidden = stage.forward(&hidden);
            }
            let pooled = {
                let mean = ops::mean_image(&hidden);
                self.layernorm.forward(&mean)
            };
            drop(embeddings);
            (hidden, pooled)
        })
    }
}

impl Model for ForImageClassification {
    fn batch(&self) -> Batch {
        self.batch.make()
    }

    fn forward(&self, batch: &Batch) -> Output {
        let (last_hidden, pooled) = self.pooled(batch.inputs());
        let logits = self.classifier.forward(&pooled);
        let loss = classification::loss(&logits, batch.labels());
        drop((last_hidden, pooled));
        Output { held: vec![loss.clone(), logits], loss }
    }
}
