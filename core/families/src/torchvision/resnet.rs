//! torchvision's ResNets (`torchvision/models/resnet.py`, version 0.26).

use std::rc::Rc;

use plimsoll_ground::Result;
use plimsoll_torch::Batch;
use plimsoll_torch::nn::{BatchNorm2d, Conv2d, Linear, Scope};
use plimsoll_torch::ops::{self, Window};
use plimsoll_torch::tensor::{Context, ModuleId, Tensor};

use crate::config::Config;
use crate::image_batch::ImageBatch;
use crate::{Model, Output, Plan};

/// What a variant is made of.
#[derive(Clone, Copy, Debug)]
struct Variant {
    bottleneck: bool,
    /// Blocks in each of the four stages.
    counts: [u64; 4],
    /// Groups of a bottleneck's 3 x 3 convolution.
    groups: u64,
    /// Channels of a group where the stage has 64 of its own.
    width_per_group: u64,
}

impl Variant {
    fn named(name: &str) -> Option<Self> {
        let of = |bottleneck, counts, groups, width_per_group| Self { bottleneck, counts, groups, width_per_group };
        Some(match name {
            "resnet18" => of(false, [2, 2, 2, 2], 1, 64),
            "resnet34" => of(false, [3, 4, 6, 3], 1, 64),
            "resnet50" => of(true, [3, 4, 6, 3], 1, 64),
            "resnet101" => of(true, [3, 4, 23, 3], 1, 64),
            "resnet152" => of(true, [3, 8, 36, 3], 1, 64),
            "resnext50_32x4d" => of(true, [3, 4, 6, 3], 32, 4),
            "resnext101_32x8d" => of(true, [3, 4, 23, 3], 32, 8),
            "resnext101_64x4d" => of(true, [3, 4, 23, 3], 64, 4),
            "wide_resnet50_2" => of(true, [3, 4, 6, 3], 1, 128),
            "wide_resnet101_2" => of(true, [3, 4, 23, 3], 1, 128),
            _ => return None,
        })
    }
}

/// A convolution without bias and its norm.
#[derive(Debug)]
struct ConvNorm {
    conv: Conv2d,
    norm: BatchNorm2d,
}

impl ConvNorm {
    fn new(conv: &Scope, norm: &Scope, [inputs, outputs, groups]: [u64; 3], window: Window) -> Self {
        Self { conv: Conv2d::new(conv, inputs, outputs, groups, window, false), norm: BatchNorm2d::new(norm, outputs) }
    }

    fn forward(&self, x: &Tensor) -> Tensor {
        let mut out = self.conv.forward(x);
        out = self.norm.forward(&out);
        out
    }
}

/// `BasicBlock` (two 3 x 3 convolutions) or `Bottleneck` (1 x 1, 3 x 3, 1 x 1 to four times the width).
#[derive(Debug)]
struct Block {
    convs: Vec<ConvNorm>,
    relu: ModuleId,
    downsample: Option<(ConvNorm, ModuleId)>,
    module: ModuleId,
}

impl Block {
    fn new(scope: &Scope, variant: Variant, inputs: u64, planes: u64, stride: u64) -> Self {
        let pointwise = |stride| Window { kernel: 1, stride, padding: 0 };
        let spatial = |stride| Window { kernel: 3, stride, padding: 1 };
        let Variant { bottleneck, groups, width_per_group, .. } = variant;
        let outputs = if bottleneck { 4 * planes } else { planes };
        let shapes = if bottleneck {
            let width = planes * width_per_group / 64 * groups;
            vec![
                ([inputs, width, 1], pointwise(1)),
                ([width, width, groups], spatial(stride)),
                ([width, outputs, 1], pointwise(1)),
            ]
        } else {
            vec![([inputs, planes, 1], spatial(stride)), ([planes, planes, 1], spatial(1))]
        };
        let convs = (1..)
            .zip(shapes)
            .map(|(i, (channels, window))| {
                let (conv, norm) = (scope.child(format!("conv{i}")), scope.child(format!("bn{i}")));
                ConvNorm::new(&conv, &norm, channels, window)
            })
            .collect();
        let downsample = (stride != 1 || inputs != outputs).then(|| {
            let place = scope.child("downsample");
            let channels = [inputs, outputs, 1];
            (ConvNorm::new(&place.child("0"), &place.child("1"), channels, pointwise(stride)), place.module())
        });
        Self { convs, relu: scope.child("relu").module(), downsample, module: scope.module() }
    }

    fn forward(&self, x: &Tensor) -> Tensor {
        let cx = x.cx();
        cx.within(self.module, || {
            let mut identity = x.clone();
            let mut out = x.clone();
            let last = self.convs.len() - 1;
            for (i, conv) in self.convs.iter().enumerate() {
                // The block's own variable: what a convolution read is let go of before the normalization.
                out = conv.conv.forward(&out);
                out = conv.norm.forward(&out);
                if i < last {
                    out = cx.within(self.relu, || ops::relu_in_place(out));
                }
            }
            if let Some((downsample, module)) = &self.downsample {
                identity = cx.within(*module, || downsample.forward(x));
            }
            out = ops::add_in_place(out, &identity);
            cx.within(self.relu, || ops::relu_in_place(out))
        })
    }
}

#[derive(Debug)]
struct ResNet {
    stem: ConvNorm,
    relu: ModuleId,
    maxpool: ModuleId,
    stages: Vec<Vec<Block>>,
    avgpool: ModuleId,
    fc: Linear,
    batch: ImageBatch,
}

/// `resnet50(num_classes=...)` and its sisters.
pub fn build(scope: &Scope, config: &Config<'_>, plan: &Plan) -> Result<Box<dyn Model>> {
    let name = config.text("variant", "resnet50")?;
    let Some(variant) = Variant::named(name) else {
        let hint = "use resnet18 to resnet152, or one of the resnext and wide_resnet";
        return Err(config.error("variant", format!("{name:?} is not estimated"), hint));
    };
    let classes = config.size("num_classes", 1000)?;
    let stem = Window { kernel: 7, stride: 2, padding: 3 };
    let stem = ConvNorm::new(&scope.child("conv1"), &scope.child("bn1"), [3, 64, 1], stem);
    let (relu, maxpool) = (scope.child("relu").module(), scope.child("maxpool").module());
    let mut stages = Vec::new();
    let mut inputs = 64;
    for (stage, count) in (0u32..).zip(variant.counts) {
        let layer = scope.child(format!("layer{}", stage + 1));
        let planes = 64 << stage;
        let mut blocks = Vec::new();
        for i in 0..count {
            let stride = if i == 0 && stage > 0 { 2 } else { 1 };
            blocks.push(Block::new(&layer.child(i.to_string()), variant, inputs, planes, stride));
            inputs = if variant.bottleneck { 4 * planes } else { planes };
        }
        stages.push(blocks);
    }
    Ok(Box::new(ResNet {
        stem,
        relu,
        maxpool,
        stages,
        avgpool: scope.child("avgpool").module(),
        fc: Linear::new(&scope.child("fc"), inputs, classes, true),
        batch: ImageBatch::new(scope, plan, 3)?,
    }))
}

impl ResNet {
    fn logits(&self, cx: &Rc<Context>, images: &Tensor) -> Tensor {
        let mut x = self.stem.forward(images);
        x = cx.within(self.relu, || ops::relu_in_place(x));
        x = cx.within(self.maxpool, || ops::max_pool2d(&x, Window { kernel: 3, stride: 2, padding: 1 }));
        // The caller's variable holds what goes into a stage until the stage returns.
        for blocks in &self.stages {
            x = blocks.iter().fold(x.clone(), |x, block| block.forward(&x));
        }
        x = cx.within(self.avgpool, || ops::global_avg_pool2d(&x));
        x = ops::view(&x, &[x.size(0), x.size(1)]);
        x = self.fc.forward(&x);
        x
    }
}

impl Model for ResNet {
    fn batch(&self) -> Batch {
        self.batch.make()
    }

    fn forward(&self, batch: &Batch) -> Output {
        let logits = self.logits(batch.inputs().cx(), batch.inputs());
        Output { loss: ops::cross_entropy(&logits, batch.labels()), held: vec![logits] }
    }
}
