//! torchvision's ConvNeXts (`torchvision/models/convnext.py`, version 0.26).

use plimsoll_ground::Result;
use plimsoll_torch::Batch;
use plimsoll_torch::nn::{Activation, Conv2d, DropPath, LayerNorm, LayerNorm2d, Linear, Scope};
use plimsoll_torch::ops::{self, Window};
use plimsoll_torch::tensor::{ModuleId, Tensor};

use super::stochastic_depth::StochasticDepth;
use crate::config::Config;
use crate::image_batch::ImageBatch;
use crate::{Model, Output, Plan, unknown_activation};

/// Blocks in each of the four stages, the width of the first (each next one is twice as wide), and the probability of
/// dropping the last block's branch.
fn stages(variant: &str) -> Option<([u64; 4], u64, f64)> {
    Some(match variant {
        "convnext_tiny" => ([3, 3, 9, 3], 96, 0.1),
        "convnext_small" => ([3, 3, 27, 3], 96, 0.4),
        "convnext_base" => ([3, 3, 27, 3], 128, 0.5),
        "convnext_large" => ([3, 3, 27, 3], 192, 0.5),
        _ => return None,
    })
}

/// `CNBlock`.
#[derive(Debug)]
struct Block {
    depthwise: Conv2d,
    norm: LayerNorm,
    widen: Linear,
    act: Activation,
    narrow: Linear,
    layer_scale: Tensor,
    stochastic_depth: StochasticDepth,
    modules: [ModuleId; 2],
}

impl Block {
    fn new(scope: &Scope, width: u64, drop: f64) -> Option<Self> {
        let place = scope.place();
        let block = scope.child("block");
        let child = |i: u32| block.child(i.to_string());
        let depthwise = Conv2d::new(&child(0), width, width, width, Window { kernel: 7, stride: 1, padding: 3 }, true);
        let norm = LayerNorm::new(&child(2), width, true);
        let widen = Linear::new(&child(3), width, 4 * width, true);
        let act = Activation::new(&child(4), "gelu")?;
        let narrow = Linear::new(&child(5), 4 * width, width, true);
        Some(Self {
            depthwise,
            norm,
            widen,
            act,
            narrow,
            layer_scale: scope.own_parameter(place, &[width, 1, 1]),
            stochastic_depth: StochasticDepth::new(&scope.child("stochastic_depth"), drop),
            modules: [scope.module(), block.module()],
        })
    }

    fn forward(&self, input: &Tensor) -> Tensor {
        let cx = input.cx();
        let [module, block] = self.modules;
        cx.within(module, || {
            let mut result = {
                let branch = cx.within(block, || {
                    let mut x = self.depthwise.forward(input);
                    x = ops::permute(&x, &ops::CHANNELS_LAST);
                    x = self.norm.forward(&x);
                    x = self.widen.forward(&x);
                    x = self.act.forward(&x);
                    x = self.narrow.forward(&x);
                    ops::permute(&x, &ops::CHANNELS_FIRST)
                });
                ops::mul(&self.layer_scale, &branch)
            };
            result = self.stochastic_depth.forward(&result);
            ops::add_in_place(result, input)
        })
    }
}

/// What `features` is a sequence of.
#[derive(Debug)]
enum Stage {
    Stem(Conv2d, LayerNorm2d),
    Blocks(Vec<Block>),
    Downsample(LayerNorm2d, Conv2d),
}

impl Stage {
    fn forward(&self, x: &Tensor) -> Tensor {
        match self {
            Self::Stem(conv, norm) => norm.forward(&conv.forward(x)),
            Self::Downsample(norm, conv) => conv.forward(&norm.forward(x)),
            Self::Blocks(blocks) => {
                let mut x = x.clone();
                for block in blocks {
                    x = block.forward(&x);
                }
                x
            }
        }
    }
}

#[derive(Debug)]
struct ConvNext {
    features: Vec<Stage>,
    avgpool: ModuleId,
    norm: LayerNorm2d,
    classifier: Linear,
    batch: ImageBatch,
}

/// `convnext_tiny(num_classes=...)` and its sisters.
pub fn build(scope: &Scope, config: &Config<'_>, plan: &Plan) -> Result<Box<dyn Model>> {
    let variant = config.text("variant", "convnext_tiny")?;
    let Some((counts, first, drop)) = stages(variant) else {
        let problem = format!("{variant:?} is not estimated");
        return Err(config.error(
            "variant",
            problem,
            "use convnext_tiny, convnext_small, convnext_base, convnext_large",
        ));
    };
    let classes = config.size("num_classes", 1000)?;
    let total: u64 = counts.iter().sum();
    let place = scope.child("features");
    let stem = place.child("0");
    let patches = Window { kernel: 4, stride: 4, padding: 0 };
    let mut features = vec![Stage::Stem(
        Conv2d::new(&stem.child("0"), 3, first, 1, patches, true),
        LayerNorm2d::new(&stem.child("1"), first),
    )];
    let mut id = 0;
    let mut width = first;
    for (stage, count) in counts.into_iter().enumerate() {
        let scope = place.child(features.len().to_string());
        let block = |i: u64| Block::new(&scope.child(i.to_string()), width, DropPath::deeper(drop, id + i, total));
        let blocks = (0..count).map(block).collect::<Option<Vec<_>>>();
        features.push(Stage::Blocks(blocks.ok_or_else(|| unknown_activation(config, "variant", "gelu"))?));
        id += count;
        if stage + 1 < counts.len() {
            let scope = place.child(features.len().to_string());
            let halve = Window { kernel: 2, stride: 2, padding: 0 };
            features.push(Stage::Downsample(
                LayerNorm2d::new(&scope.child("0"), width),
                Conv2d::new(&scope.child("1"), width, 2 * width, 1, halve, true),
            ));
            width *= 2;
        }
    }
    let classifier = scope.child("classifier");
    Ok(Box::new(ConvNext {
        features,
        avgpool: scope.child("avgpool").module(),
        norm: LayerNorm2d::new(&classifier.child("0"), width),
        classifier: Linear::new(&classifier.child("2"), width, classes, true),
        batch: ImageBatch::new(scope, plan, 3)?,
    }))
}

impl ConvNext {
    fn logits(&self, images: &Tensor) -> Tensor {
        let mut x = images.clone();
        for stage in &self.features {
            x = stage.forward(&x);
        }
        x = images.cx().within(self.avgpool, || ops::global_avg_pool2d(&x));
        x = self.norm.forward(&x);
        x = ops::reshape(&x, &[x.size(0), x.size(1)]);
        x = self.classifier.forward(&x);
        x
    }
}

impl Model for ConvNext {
    fn batch(&self) -> Batch {
        self.batch.make()
    }

    fn forward(&self, batch: &Batch) -> Output {
        let logits = self.logits(batch.inputs());
        Output { loss: ops::cross_entropy(&logits, batch.labels()), held: vec![logits] }
    }
}
