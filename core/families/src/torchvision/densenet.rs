//! torchvision's DenseNets (`torchvision/models/densenet.py`, version 0.26), which keep what they concatenate.

use plimsoll_ground::Result;
use plimsoll_torch::nn::{BatchNorm2d, Conv2d, Linear, Scope};
use plimsoll_torch::ops::Window;

use super::layers::{Act, Layer, Sequence};
use super::network::{Network, Pool};
use crate::config::Config;
use crate::{Model, Plan};

/// How much wider than its growth a layer is inside.
const INSIDE: u64 = 4;

/// Growth, layers of each block, channels of the first convolution.
fn sizes(variant: &str) -> Option<(u64, [u64; 4], u64)> {
    Some(match variant {
        "densenet121" => (32, [6, 12, 24, 16], 64),
        "densenet161" => (48, [6, 12, 36, 24], 96),
        "densenet169" => (32, [6, 12, 32, 32], 64),
        "densenet201" => (32, [6, 12, 48, 32], 64),
        _ => return None,
    })
}

fn conv(scope: &Scope, inputs: u64, outputs: u64, [kernel, stride, padding]: [u64; 3]) -> Layer {
    Layer::Conv(Conv2d::new(scope, inputs, outputs, 1, Window { kernel, stride, padding }, false))
}

fn relu(scope: &Scope) -> Layer {
    Layer::Act(Act::Relu, scope.module())
}

/// `_DenseLayer`: what all layers before it made, side by side, narrowed and seen by a kernel of 3 x 3.
fn layer(scope: &Scope, inputs: u64, growth: u64) -> [Sequence; 2] {
    let part = |n: u64, inputs, outputs, window| {
        [
            Layer::Norm(BatchNorm2d::new(&scope.child(format!("norm{n}")), inputs)),
            relu(&scope.child(format!("relu{n}"))),
            conv(&scope.child(format!("conv{n}")), inputs, outputs, window),
        ]
    };
    let narrowed = part(1, inputs, INSIDE * growth, [1, 1, 0]);
    let seen = part(2, INSIDE * growth, growth, [3, 1, 1]);
    [narrowed, seen].map(|layers| Sequence::new(scope, layers.into()))
}

/// `densenet121(num_classes=...)` and its sisters.
pub fn build(scope: &Scope, config: &Config<'_>, plan: &Plan) -> Result<Box<dyn Model>> {
    let variant = config.text("variant", "densenet121")?;
    let Some((growth, blocks, mut channels)) = sizes(variant) else {
        let hint = "use densenet121, densenet161, densenet169 or densenet201";
        return Err(config.error("variant", format!("{variant:?} is not estimated"), hint));
    };
    let classes = config.size("num_classes", 1000)?;
    let place = scope.child("features");
    let mut layers = vec![
        conv(&place.child("conv0"), 3, channels, [7, 2, 3]),
        Layer::Norm(BatchNorm2d::new(&place.child("norm0"), channels)),
        relu(&place.child("relu0")),
        Layer::MaxPool(Window { kernel: 3, stride: 2, padding: 1 }, place.child("pool0").module()),
    ];
    for (number, count) in (1_usize..).zip(blocks) {
        let block = place.child(format!("denseblock{number}"));
        let mut dense = Vec::new();
        for i in 1..=count {
            dense.push(layer(&block.child(format!("denselayer{i}")), channels, growth));
            channels += growth;
        }
        layers.push(Layer::Dense(dense, block.module()));
        if number < blocks.len() {
            let place = place.child(format!("transition{number}"));
            let pool = Window { kernel: 2, stride: 2, padding: 0 };
            let between = vec![
                Layer::Norm(BatchNorm2d::new(&place.child("norm"), channels)),
                relu(&place.child("relu")),
                conv(&place.child("conv"), channels, channels / 2, [1, 1, 0]),
                Layer::AvgPool(pool, place.child("pool").module()),
            ];
            layers.push(Layer::Sequence(Sequence::new(&place, between)));
            channels /= 2;
        }
    }
    layers.push(Layer::Norm(BatchNorm2d::new(&place.child("norm5"), channels)));
    let features = Sequence::new(&place, layers);
    // Functions of the network's own forward: an activation in place, a mean.
    let activated = Sequence::new(scope, vec![relu(scope)]);
    let place = scope.child("classifier");
    let classifier = Sequence::new(&place, vec![Layer::Linear(Linear::new(&place, channels, classes, true))]);
    Network::boxed(scope, plan, vec![features, activated], Pool::Global(scope.module()), classifier)
}
