//! torchvision's Swin Transformers (`torchvision/models/swin_transformer.py`, version 0.26).

use plimsoll_ground::Result;
use plimsoll_torch::Batch;
use plimsoll_torch::nn::{Activation, Conv2d, DropPath, LayerNorm, Linear, Scope};
use plimsoll_torch::ops::{self, Window};
use plimsoll_torch::tensor::{ModuleId, Tensor};

use super::shifted_window::ShiftedWindowAttention;
use super::stochastic_depth::StochasticDepth;
use crate::config::Config;
use crate::image_batch::ImageBatch;
use crate::{Model, Output, Plan, unknown_activation};

/// Pixels along a patch, patches along a window.
const PATCH: u64 = 4;
const WINDOW: u64 = 7;

/// Blocks in each of the four stages, the width of the first (each next one is twice as wide), its heads (likewise), and
/// the probability of dropping the last block's branches.
fn stages(variant: &str) -> Option<([u64; 4], u64, u64, f64)> {
    Some(match variant {
        "swin_t" => ([2, 2, 6, 2], 96, 3, 0.2),
        "swin_s" => ([2, 2, 18, 2], 96, 3, 0.3),
        "swin_b" => ([2, 2, 18, 2], 128, 4, 0.5),
        _ => return None,
    })
}

/// `SwinTransformerBlock`.
#[derive(Debug)]
struct Block {
    norm1: LayerNorm,
    attn: ShiftedWindowAttention,
    stochastic_depth: StochasticDepth,
    norm2: LayerNorm,
    widen: Linear,
    act: Activation,
    narrow: Linear,
    modules: [ModuleId; 2],
}

impl Block {
    fn new(scope: &Scope, width: u64, heads: u64, shifted: bool, drop: f64) -> Option<Self> {
        let norm1 = LayerNorm::new(&scope.child("norm1"), width, true);
        let attn = ShiftedWindowAttention::new(&scope.child("attn"), width, heads, WINDOW, shifted);
        let norm2 = LayerNorm::new(&scope.child("norm2"), width, true);
        let mlp = scope.child("mlp");
        Some(Self {
            norm1,
            attn,
            stochastic_depth: StochasticDepth::new(&scope.child("stochastic_depth"), drop),
            norm2,
            widen: Linear::new(&mlp.child("0"), width, 4 * width, true),
            act: Activation::new(&mlp.child("1"), "gelu")?,
            narrow: Linear::new(&mlp.child("3"), 4 * width, width, true),
            modules: [scope.module(), mlp.module()],
        })
    }

    fn mlp(&self, x: &Tensor) -> Tensor {
        x.cx().within(self.modules[1], || {
            let mut x = self.widen.forward(x);
            x = self.act.forward(&x);
            self.narrow.forward(&x)
        })
    }

    fn forward(&self, x: &Tensor) -> Tensor {
        x.cx().within(self.modules[0], || {
            let mut branch = self.attn.forward(&self.norm1.forward(x));
            branch = self.stochastic_depth.forward(&branch);
            let x = ops::add(x, &branch);
            drop(branch);
            let mut branch = self.mlp(&self.norm2.forward(&x));
            branch = self.stochastic_depth.forward(&branch);
            ops::add(&x, &branch)
        })
    }
}

/// `PatchMerging`.
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

    fn forward(&self, x: &Tensor) -> Tensor {
        x.cx().within(self.module, || {
            let (side, width) = (x.size(1).next_multiple_of(2), x.size(3));
            let mut x = {
                let x = ops::pad(x, &[x.size(0), side, side, width]);
                let quarter = || ops::every_second_of(&ops::every_second_of(&x, 1), 2);
                let quarters = [quarter(), quarter(), quarter(), quarter()];
                ops::cat(&quarters.each_ref(), -1)
            };
            x = self.norm.forward(&x);
            self.reduction.forward(&x)
        })
    }
}

/// What `features` is a sequence of.
#[derive(Debug)]
enum Stage {
    Patches(Box<(Conv2d, LayerNorm)>),
    Blocks(Vec<Block>),
    Merging(Box<PatchMerging>),
}

impl Stage {
    fn forward(&self, x: &Tensor) -> Tensor {
        match self {
            Self::Patches(patches) => {
                let (conv, norm) = patches.as_ref();
                let mut x = conv.forward(x);
                x = ops::permute(&x, &ops::CHANNELS_LAST);
                norm.forward(&x)
            }
            Self::Blocks(blocks) => {
                let mut x = x.clone();
                for block in blocks {
                    x = block.forward(&x);
                }
                x
            }
            Self::Merging(merging) => merging.forward(x),
        }
    }
}

#[derive(Debug)]
struct Swin {
    features: Vec<Stage>,
    norm: LayerNorm,
    avgpool: ModuleId,
    head: Linear,
    batch: ImageBatch,
}

/// `swin_t(num_classes=...)` and its sisters.
pub fn build(scope: &Scope, config: &Config<'_>, plan: &Plan) -> Result<Box<dyn Model>> {
    let variant = config.text("variant", "swin_t")?;
    let Some((counts, first, heads, drop)) = stages(variant) else {
        let problem = format!("{variant:?} is not estimated");
        return Err(config.error("variant", problem, "use swin_t, swin_s, swin_b"));
    };
    let classes = config.size("num_classes", 1000)?;
    let batch = ImageBatch::new(scope, plan, 3)?;
    batch.must_have_pixels(PATCH)?;
    let place = scope.child("features");
    let patches = place.child("0");
    let window = Window { kernel: PATCH, stride: PATCH, padding: 0 };
    let conv = Conv2d::new(&patches.child("0"), 3, first, 1, window, true);
    let norm = LayerNorm::new(&patches.child("2"), first, true);
    let mut features = vec![Stage::Patches(Box::new((conv, norm)))];
    let total: u64 = counts.iter().sum();
    let (mut before, mut width) = (0, first);
    for (stage, count) in (0u32..).zip(counts) {
        let scope = place.child(features.len().to_string());
        let block = |i: u64| {
            let drop = DropPath::deeper(drop, before + i, total);
            Block::new(&scope.child(i.to_string()), width, heads << stage, i % 2 == 1, drop)
        };
        let blocks = (0..count).map(block).collect::<Option<Vec<_>>>();
        features.push(Stage::Blocks(blocks.ok_or_else(|| unknown_activation(config, "variant", "gelu"))?));
        before += count;
        if before < total {
            let scope = place.child(features.len().to_string());
            features.push(Stage::Merging(Box::new(PatchMerging::new(&scope, width))));
            width *= 2;
        }
    }
    Ok(Box::new(Swin {
        features,
        norm: LayerNorm::new(&scope.child("norm"), width, true),
        avgpool: scope.child("avgpool").module(),
        head: Linear::new(&scope.child("head"), width, classes, true),
        batch,
    }))
}

impl Swin {
    fn logits(&self, images: &Tensor) -> Tensor {
        let mut x = images.clone();
        for stage in &self.features {
            x = stage.forward(&x);
        }
        x = self.norm.forward(&x);
        x = ops::permute(&x, &ops::CHANNELS_FIRST);
        x = images.cx().within(self.avgpool, || ops::global_avg_pool2d(&x));
        x = ops::view(&x, &[x.size(0), x.size(1)]);
        self.head.forward(&x)
    }
}

impl Model for Swin {
    fn batch(&self) -> Batch {
        self.batch.make()
    }

    fn forward(&self, batch: &Batch) -> Output {
        let logits = self.logits(batch.inputs());
        Output { loss: ops::cross_entropy(&logits, batch.labels()), held: vec![logits] }
    }
}
