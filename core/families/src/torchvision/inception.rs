//! torchvision's Inception v3 (`torchvision/models/inception.py`, version 0.26): branches side by side, and in training a second
//! classifier halfway, whose loss counts four tenths.

use plimsoll_ground::Result;
use plimsoll_torch::Batch;
use plimsoll_torch::nn::{BatchNorm2d, Conv2d, Linear, Scope};
use plimsoll_torch::ops::{self, Window};
use plimsoll_torch::tensor::{ModuleId, Tensor};

use super::layers::{Act, Layer, Sequence, beside};
use crate::config::Config;
use crate::image_batch::ImageBatch;
use crate::{Model, Output, Plan};

/// Below it nothing is left for the last stage; published with the weights as `min_size`.
const LEAST: u64 = 75;
/// Below it the second classifier's kernel of 5 x 5 finds fewer than 5 places.
const LEAST_IN_TRAINING: u64 = 299;

const SAME: Window = Window { kernel: 3, stride: 1, padding: 1 };
const HALF: Window = Window { kernel: 3, stride: 2, padding: 0 };

/// `BasicConv2d`: a convolution without bias, its norm, an activation in place.
fn basic(scope: &Scope, conv: impl Fn(&Scope) -> Conv2d, outputs: u64) -> Layer {
    let members = vec![
        Layer::Conv(conv(&scope.child("conv"))),
        Layer::Norm(BatchNorm2d::new(&scope.child("bn"), outputs)),
        Layer::Act(Act::Relu, scope.module()),
    ];
    Layer::Sequence(Sequence::new(scope, members))
}

/// `conv_block(inputs, outputs, kernel_size, stride, padding)`.
fn square(scope: &Scope, inputs: u64, outputs: u64, [kernel, stride, padding]: [u64; 3]) -> Layer {
    basic(scope, |scope| Conv2d::new(scope, inputs, outputs, 1, Window { kernel, stride, padding }, false), outputs)
}

/// `conv_block(inputs, outputs, kernel_size=(height, width))`, padded so that every side stays.
fn oblong(scope: &Scope, inputs: u64, outputs: u64, kernel: [u64; 2]) -> Layer {
    basic(scope, |scope| Conv2d::oblong(scope, inputs, outputs, kernel), outputs)
}

const TALL: [u64; 2] = [7, 1];
const WIDE: [u64; 2] = [1, 7];
const POINT: [u64; 3] = [1, 1, 0];
const THREE: [u64; 3] = [3, 1, 1];

/// What one branch does to what all of them are given.
#[derive(Debug)]
enum Branch {
    /// Layers in a row.
    Row(Sequence),
    /// Layers in a row, then two more beside one another.
    Forked(Sequence, [Sequence; 2]),
    /// A mean of 3 x 3, then these.
    Mean(Sequence),
    /// The largest of 3 x 3, at every second place.
    Largest,
}

/// `InceptionA` to `InceptionE`: branches, side by side.
#[derive(Debug)]
struct Mixed {
    branches: Vec<Branch>,
    module: ModuleId,
}

impl Mixed {
    fn forward(&self, x: &Tensor) -> Tensor {
        x.cx().within(self.module, || {
            let outputs: Vec<Tensor> = self
                .branches
                .iter()
                .map(|branch| match branch {
                    Branch::Row(row) => row.forward(x),
                    Branch::Forked(row, forks) => {
                        let made = row.forward(x);
                        let forked = forks.each_ref().map(|fork| fork.forward(&made));
                        drop(made);
                        beside(&forked)
                    }
                    Branch::Mean(row) => row.forward(&ops::avg_pool2d(x, SAME)),
                    Branch::Largest => ops::max_pool2d(x, HALF),
                })
                .collect();
            beside(&outputs)
        })
    }
}

/// The layers of a branch by what their names have in common.
struct Names<'s> {
    scope: &'s Scope,
}

impl Names<'_> {
    fn at(&self, name: &str) -> Scope {
        self.scope.child(name.to_owned())
    }

    fn row(&self, layers: Vec<Layer>) -> Sequence {
        Sequence::new(self.scope, layers)
    }

    fn pooled(&self, inputs: u64, outputs: u64) -> Branch {
        Branch::Mean(self.row(vec![square(&self.at("branch_pool"), inputs, outputs, POINT)]))
    }
}

fn mixed(scope: &Scope, branches: impl FnOnce(&Names<'_>) -> Vec<Branch>) -> Mixed {
    Mixed { branches: branches(&Names { scope }), module: scope.module() }
}

/// `InceptionA`.
fn a(scope: &Scope, inputs: u64, pooled: u64) -> Mixed {
    mixed(scope, |n| {
        let one = Branch::Row(n.row(vec![square(&n.at("branch1x1"), inputs, 64, POINT)]));
        let five = Branch::Row(n.row(vec![
            square(&n.at("branch5x5_1"), inputs, 48, POINT),
            square(&n.at("branch5x5_2"), 48, 64, [5, 1, 2]),
        ]));
        let three = Branch::Row(n.row(vec![
            square(&n.at("branch3x3dbl_1"), inputs, 64, POINT),
            square(&n.at("branch3x3dbl_2"), 64, 96, THREE),
            square(&n.at("branch3x3dbl_3"), 96, 96, THREE),
        ]));
        vec![one, five, three, n.pooled(inputs, pooled)]
    })
}

/// `InceptionB`.
fn b(scope: &Scope, inputs: u64) -> Mixed {
    mixed(scope, |n| {
        let three = Branch::Row(n.row(vec![square(&n.at("branch3x3"), inputs, 384, [3, 2, 0])]));
        let double = Branch::Row(n.row(vec![
            square(&n.at("branch3x3dbl_1"), inputs, 64, POINT),
            square(&n.at("branch3x3dbl_2"), 64, 96, THREE),
            square(&n.at("branch3x3dbl_3"), 96, 96, [3, 2, 0]),
        ]));
        vec![three, double, Branch::Largest]
    })
}

/// `InceptionC`, `width` channels inside.
fn c(scope: &Scope, inputs: u64, width: u64) -> Mixed {
    mixed(scope, |n| {
        let one = Branch::Row(n.row(vec![square(&n.at("branch1x1"), inputs, 192, POINT)]));
        let seven = Branch::Row(n.row(vec![
            square(&n.at("branch7x7_1"), inputs, width, POINT),
            oblong(&n.at("branch7x7_2"), width, width, WIDE),
            oblong(&n.at("branch7x7_3"), width, 192, TALL),
        ]));
        let double = Branch::Row(n.row(vec![
            square(&n.at("branch7x7dbl_1"), inputs, width, POINT),
            oblong(&n.at("branch7x7dbl_2"), width, width, TALL),
            oblong(&n.at("branch7x7dbl_3"), width, width, WIDE),
            oblong(&n.at("branch7x7dbl_4"), width, width, TALL),
            oblong(&n.at("branch7x7dbl_5"), width, 192, WIDE),
        ]));
        vec![one, seven, double, n.pooled(inputs, 192)]
    })
}

/// `InceptionD`.
fn d(scope: &Scope, inputs: u64) -> Mixed {
    mixed(scope, |n| {
        let three = Branch::Row(n.row(vec![
            square(&n.at("branch3x3_1"), inputs, 192, POINT),
            square(&n.at("branch3x3_2"), 192, 320, [3, 2, 0]),
        ]));
        let seven = Branch::Row(n.row(vec![
            square(&n.at("branch7x7x3_1"), inputs, 192, POINT),
            oblong(&n.at("branch7x7x3_2"), 192, 192, WIDE),
            oblong(&n.at("branch7x7x3_3"), 192, 192, TALL),
            square(&n.at("branch7x7x3_4"), 192, 192, [3, 2, 0]),
        ]));
        vec![three, seven, Branch::Largest]
    })
}

/// `InceptionE`.
fn e(scope: &Scope, inputs: u64) -> Mixed {
    mixed(scope, |n| {
        let one = Branch::Row(n.row(vec![square(&n.at("branch1x1"), inputs, 320, POINT)]));
        let fork = |name: &str| {
            [("a", [1, 3]), ("b", [3, 1])]
                .map(|(side, kernel)| n.row(vec![oblong(&n.at(&format!("{name}{side}")), 384, 384, kernel)]))
        };
        let narrowed = n.row(vec![square(&n.at("branch3x3_1"), inputs, 384, POINT)]);
        let three = Branch::Forked(narrowed, fork("branch3x3_2"));
        let seen = n.row(vec![
            square(&n.at("branch3x3dbl_1"), inputs, 448, POINT),
            square(&n.at("branch3x3dbl_2"), 448, 384, THREE),
        ]);
        let double = Branch::Forked(seen, fork("branch3x3dbl_3"));
        vec![one, three, double, n.pooled(inputs, 192)]
    })
}

/// `InceptionAux`: the second classifier.
#[derive(Debug)]
struct Aux {
    convolutions: Sequence,
    fc: Linear,
    module: ModuleId,
}

impl Aux {
    fn forward(&self, x: &Tensor) -> Tensor {
        x.cx().within(self.module, || {
            let seen = self.convolutions.forward(&ops::avg_pool2d(x, Window { kernel: 5, stride: 3, padding: 0 }));
            self.fc.forward(&flat(&ops::global_avg_pool2d(&seen)))
        })
    }
}

fn flat(x: &Tensor) -> Tensor {
    ops::reshape(x, &[x.size(0), x.size(1)])
}

/// `Inception3` with its loss.
#[derive(Debug)]
struct Inception {
    stem: Sequence,
    first: Vec<Mixed>,
    aux: Aux,
    last: Vec<Mixed>,
    avgpool: ModuleId,
    dropout: ModuleId,
    fc: Linear,
    batch: ImageBatch,
}

/// Of the last dropout, and how much the second classifier's loss counts.
const DROPOUT: f64 = 0.5;

impl Model for Inception {
    fn batch(&self) -> Batch {
        self.batch.make()
    }

    fn forward(&self, batch: &Batch) -> Output {
        let images = batch.inputs();
        let cx = images.cx();
        let blocks = |x: Tensor, blocks: &[Mixed]| blocks.iter().fold(x, |x, block| block.forward(&x));
        let mut x = blocks(self.stem.forward(images), &self.first);
        let aux = (!cx.is_inference()).then(|| self.aux.forward(&x));
        x = blocks(x, &self.last);
        x = cx.within(self.avgpool, || ops::global_avg_pool2d(&x));
        x = cx.within(self.dropout, || ops::dropout(&x, DROPOUT));
        let logits = self.fc.forward(&flat(&x));
        drop(x);
        let mut loss = ops::cross_entropy(&logits, batch.labels());
        if let Some(aux) = &aux {
            // loss + 0.4 * cross_entropy(aux, targets)
            let second = ops::mul_scalar(&ops::cross_entropy(aux, batch.labels()));
            loss = ops::add(&loss, &second);
        }
        drop(aux);
        Output { loss, held: vec![logits] }
    }
}

/// `inception_v3(num_classes=...)`.
pub fn build(scope: &Scope, config: &Config<'_>, plan: &Plan) -> Result<Box<dyn Model>> {
    let variant = config.text("variant", "inception_v3")?;
    if variant != "inception_v3" {
        return Err(config.error("variant", format!("{variant:?} is not estimated"), "use inception_v3"));
    }
    let classes = config.size("num_classes", 1000)?;
    let at = |name: &str| scope.child(name.to_owned());
    let stem = Sequence::new(
        scope,
        vec![
            square(&at("Conv2d_1a_3x3"), 3, 32, [3, 2, 0]),
            square(&at("Conv2d_2a_3x3"), 32, 32, [3, 1, 0]),
            square(&at("Conv2d_2b_3x3"), 32, 64, THREE),
            Layer::MaxPool(HALF, at("maxpool1").module()),
            square(&at("Conv2d_3b_1x1"), 64, 80, POINT),
            square(&at("Conv2d_4a_3x3"), 80, 192, [3, 1, 0]),
            Layer::MaxPool(HALF, at("maxpool2").module()),
        ],
    );
    let first = vec![
        a(&at("Mixed_5b"), 192, 32),
        a(&at("Mixed_5c"), 256, 64),
        a(&at("Mixed_5d"), 288, 64),
        b(&at("Mixed_6a"), 288),
        c(&at("Mixed_6b"), 768, 128),
        c(&at("Mixed_6c"), 768, 160),
        c(&at("Mixed_6d"), 768, 160),
        c(&at("Mixed_6e"), 768, 192),
    ];
    let place = at("AuxLogits");
    let aux = Aux {
        convolutions: Sequence::new(
            &place,
            vec![square(&place.child("conv0"), 768, 128, POINT), square(&place.child("conv1"), 128, 768, [5, 1, 0])],
        ),
        fc: Linear::new(&place.child("fc"), 768, classes, true),
        module: place.module(),
    };
    let last = vec![d(&at("Mixed_7a"), 768), e(&at("Mixed_7b"), 1280), e(&at("Mixed_7c"), 2048)];
    let (avgpool, dropout) = (at("avgpool").module(), at("dropout").module());
    let fc = Linear::new(&at("fc"), 2048, classes, true);
    let batch = ImageBatch::new(scope, plan, 3)?;
    batch.must_have_pixels(if scope.cx().is_inference() { LEAST } else { LEAST_IN_TRAINING })?;
    Ok(Box::new(Inception { stem, first, aux, last, avgpool, dropout, fc, batch }))
}
