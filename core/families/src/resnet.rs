//! ResNet (transformers `models/resnet/modeling_resnet.py`).

use plimsoll_ground::Result;
use plimsoll_torch::Batch;
use plimsoll_torch::nn::{Activation, BatchNorm2d, Conv2d, Linear, Scope};
use plimsoll_torch::ops::{self, Window};
use plimsoll_torch::tensor::{ModuleId, Tensor};

use super::config::Config;
use super::image_batch::ImageBatch;
use super::{Model, Output, Plan, classification, stages, unknown_activation};

/// `ResNetConvLayer`, and without an activation `ResNetShortCut`.
#[derive(Debug)]
struct ConvLayer {
    convolution: Conv2d,
    normalization: BatchNorm2d,
    activation: Option<Activation>,
    module: ModuleId,
}

impl ConvLayer {
    /// From `inputs` to `outputs` channels; `None` for an activation nobody knows.
    fn new(scope: &Scope, [inputs, outputs]: [u64; 2], [kernel, stride]: [u64; 2], act: Option<&str>) -> Option<Self> {
        let window = Window { kernel, stride, padding: kernel / 2 };
        Some(Self {
            convolution: Conv2d::new(&scope.child("convolution"), inputs, outputs, 1, window, false),
            normalization: BatchNorm2d::new(&scope.child("normalization"), outputs),
            activation: match act {
                Some(name) => Some(Activation::new(&scope.child("activation"), name)?),
                None => None,
            },
            module: scope.module(),
        })
    }

    fn forward(&self, x: &Tensor) -> Tensor {
        x.cx().within(self.module, || {
            let mut hidden = self.convolution.forward(x);
            hidden = self.normalization.forward(&hidden);
            match &self.activation {
                Some(activation) => activation.forward(&hidden),
                None => hidden,
            }
        })
    }
}

/// `ResNetBasicLayer` (two 3 x 3 convolutions) or `ResNetBottleNeckLayer` (1 x 1, 3 x 3, 1 x 1).
#[derive(Debug)]
struct Layer {
    shortcut: Option<ConvLayer>,
    layer: Vec<ConvLayer>,
    activation: Activation,
    module: ModuleId,
}

/// What all layers share.
#[derive(Clone, Copy, Debug)]
struct Options<'c> {
    bottleneck: bool,
    downsample_in_bottleneck: bool,
    act: &'c str,
}

impl Layer {
    fn new(scope: &Scope, options: &Options<'_>, [inputs, outputs]: [u64; 2], stride: u64) -> Option<Self> {
        // The layers inside keep the default of their class, whatever `hidden_act` says.
        const INNER: Option<&str> = Some("relu");
        let shortcut = match inputs != outputs || stride != 1 {
            true => Some(ConvLayer::new(&scope.child("shortcut"), [inputs, outputs], [1, stride], None)?),
            false => None,
        };
        let convs = if options.bottleneck {
            let reduced = (outputs / 4).max(1);
            let (first, second) = if options.downsample_in_bottleneck { (stride, 1) } else { (1, stride) };
            vec![
                ([inputs, reduced], [1, first], INNER),
                ([reduced, reduced], [3, second], INNER),
                ([reduced, outputs], [1, 1], None),
            ]
        } else {
            vec![([inputs, outputs], [3, stride], INNER), ([outputs, outputs], [3, 1], None)]
        };
        let conv = |(i, (channels, window, act))| ConvLayer::new(&scope.item("layer", i), channels, window, act);
        Some(Self {
            shortcut,
            layer: (0..).zip(convs).map(conv).collect::<Option<Vec<_>>>()?,
            activation: Activation::new(&scope.child("activation"), options.act)?,
            module: scope.module(),
        })
    }

    fn forward(&self, x: &Tensor) -> Tensor {
        x.cx().within(self.module, || {
            let mut residual = x.clone();
            let mut hidden = x.clone();
            for conv in &self.layer {
                hidden = conv.forward(&hidden);
            }
            if let Some(shortcut) = &self.shortcut {
                residual = shortcut.forward(&residual);
            }
            hidden = ops::add_in_place(hidden, &residual);
            let out = self.activation.forward(&hidden);
            drop((residual, hidden));
            out
        })
    }
}

#[derive(Debug)]
struct ForImageClassification {
    embedder: ConvLayer,
    pooler: ModuleId,
    stages: Vec<Vec<Layer>>,
    classifier: Linear,
    modules: [ModuleId; 2],
    batch: ImageBatch,
}

/// `ResNetForImageClassification(config)`.
pub fn build(scope: &Scope, config: &Config<'_>, plan: &Plan) -> Result<Box<dyn Model>> {
    let channels = config.size("num_channels", 3)?;
    let embedding = config.size("embedding_size", 64)?;
    let depths = stages::depths(config, &[3, 4, 6, 3])?;
    let widths = stages::sizes(config, "hidden_sizes", &[256, 512, 1024, 2048], &depths)?;
    let act = config.text("hidden_act", "relu")?;
    let bottleneck = match config.text("layer_type", "bottleneck")? {
        "bottleneck" => true,
        "basic" => false,
        other => return Err(config.error("layer_type", format!("{other:?} is none"), "use basic or bottleneck")),
    };
    if let Some(narrow) = widths.iter().find(|w| bottleneck && **w < 4) {
        return Err(config.error(
            "hidden_sizes",
            format!("{narrow} leaves a bottleneck no channel"),
            "give at least 4",
        ));
    }
    let downsample_in_bottleneck = config.flag("downsample_in_bottleneck", false)?;
    let options = Options { bottleneck, downsample_in_bottleneck, act };
    let unknown = || unknown_activation(config, "hidden_act", act);

    let resnet = scope.child("resnet");
    let place = resnet.child("embedder");
    let embedder = ConvLayer::new(&place.child("embedder"), [channels, embedding], [7, 2], Some(act));
    let embedder = embedder.ok_or_else(unknown)?;
    let encoder = resnet.child("encoder");
    let mut made = Vec::new();
    let mut inputs = embedding;
    for (stage, (&width, &depth)) in (0..).zip(widths.iter().zip(&depths)) {
        let halves = stage > 0 || config.flag("downsample_in_first_stage", false)?;
        let mut layers = Vec::new();
        for i in 0..depth {
            let scope = encoder.item("stages", stage).item("layers", i);
            let stride = if i == 0 && halves { 2 } else { 1 };
            layers.push(Layer::new(&scope, &options, [inputs, width], stride).ok_or_else(unknown)?);
            inputs = width;
        }
        made.push(layers);
    }
    let labels = classification::num_labels(config, plan.task)?;
    Ok(Box::new(ForImageClassification {
        embedder,
        pooler: place.child("pooler").module(),
        stages: made,
        classifier: Linear::new(&scope.child("classifier").child("1"), inputs, labels, true),
        modules: [resnet.module(), resnet.child("pooler").module()],
        batch: ImageBatch::new(scope, plan, channels)?,
    }))
}

impl ForImageClassification {
    /// `ResNetModel.forward`: the last hidden state and its mean over the image.
    fn pooled(&self, images: &Tensor) -> (Tensor, Tensor) {
        let cx = images.cx();
        let [resnet, pooler] = self.modules;
        cx.within(resnet, || {
            let embedding = {
                let embedding = self.embedder.forward(images);
                let window = Window { kernel: 3, stride: 2, padding: 1 };
                cx.within(self.pooler, || ops::max_pool2d(&embedding, window))
            };
            let mut hidden = embedding.clone();
            for stage in &self.stages {
                // A stage keeps what it was given under a name of its own.
                let given = hidden.clone();
                for layer in stage {
                    hidden = layer.forward(&hidden);
                }
                drop(given);
            }
            let pooled = cx.within(pooler, || ops::global_avg_pool2d(&hidden));
            drop(embedding);
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
        let logits = self.classifier.forward(&ops::view(&pooled, &[pooled.size(0), pooled.size(1)]));
        let loss = classification::loss(&logits, batch.labels());
        drop((last_hidden, pooled));
        Output { held: vec![loss.clone(), logits], loss }
    }
}
