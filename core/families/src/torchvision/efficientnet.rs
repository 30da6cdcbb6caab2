//! torchvision's EfficientNets (`torchvision/models/efficientnet.py`, version 0.26).

use plimsoll_ground::Result;
use plimsoll_torch::nn::{Linear, Scope};

use super::layers::{Act, ConvNormAct, Excite, Join, Layer, Sequence};
use super::network::{Network, Pool};
use super::stochastic_depth::StochasticDepth;
use crate::config::Config;
use crate::{Model, Plan};

/// A stage: whether its blocks are fused, how much wider they are inside, kernel, stride, channels in and out, blocks.
type Stage = (bool, u64, u64, u64, u64, u64, u64);

const ACT: Option<Act> = Some(Act::Silu);
/// The probability of the last block's depth.
const DEPTH: f64 = 0.2;

/// The stages of B0, which the others widen and deepen.
const B0: [Stage; 7] = [
    (false, 1, 3, 1, 32, 16, 1),
    (false, 6, 3, 2, 16, 24, 2),
    (false, 6, 5, 2, 24, 40, 2),
    (false, 6, 3, 2, 40, 80, 3),
    (false, 6, 5, 1, 80, 112, 3),
    (false, 6, 5, 2, 112, 192, 4),
    (false, 6, 3, 1, 192, 320, 1),
];
const V2_S: [Stage; 6] = [
    (true, 1, 3, 1, 24, 24, 2),
    (true, 4, 3, 2, 24, 48, 4),
    (true, 4, 3, 2, 48, 64, 4),
    (false, 4, 3, 2, 64, 128, 6),
    (false, 6, 3, 1, 128, 160, 9),
    (false, 6, 3, 2, 160, 256, 15),
];
const V2_M: [Stage; 7] = [
    (true, 1, 3, 1, 24, 24, 3),
    (true, 4, 3, 2, 24, 48, 5),
    (true, 4, 3, 2, 48, 80, 5),
    (false, 4, 3, 2, 80, 160, 7),
    (false, 6, 3, 1, 160, 176, 14),
    (false, 6, 3, 2, 176, 304, 18),
    (false, 6, 3, 1, 304, 512, 5),
];
const V2_L: [Stage; 7] = [
    (true, 1, 3, 1, 32, 32, 4),
    (true, 4, 3, 2, 32, 64, 7),
    (true, 4, 3, 2, 64, 96, 7),
    (false, 4, 3, 2, 96, 192, 10),
    (false, 6, 3, 1, 192, 224, 19),
    (false, 6, 3, 2, 224, 384, 25),
    (false, 6, 3, 1, 384, 640, 7),
];

/// What a variant is made of.
struct Sizes {
    stages: Vec<Stage>,
    dropout: f64,
    /// Channels before the classifier; else four times the last stage's.
    last: Option<u64>,
}

/// `_make_divisible(channels * tenths / 10, 8)`: the nearest multiple of 8, but never a tenth less.
const fn widened(channels: u64, tenths: u64) -> u64 {
    let wanted = channels * tenths;
    let near = (wanted + 40) / 80 * 8;
    let near = if near < 8 { 8 } else { near };
    if near * 100 < wanted * 9 { near + 8 } else { near }
}

fn sizes(variant: &str) -> Option<Sizes> {
    let scaled = |width: u64, depth: u64, dropout: f64| {
        let stages = B0
            .map(|(fused, wider, kernel, stride, inputs, outputs, blocks)| {
                let blocks = (blocks * depth).div_ceil(10);
                (fused, wider, kernel, stride, widened(inputs, width), widened(outputs, width), blocks)
            })
            .to_vec();
        Some(Sizes { stages, dropout, last: None })
    };
    let second = |stages: &[Stage], dropout| Some(Sizes { stages: stages.to_vec(), dropout, last: Some(1280) });
    match variant {
        "efficientnet_b0" => scaled(10, 10, 0.2),
        "efficientnet_b1" => scaled(10, 11, 0.2),
        "efficientnet_b2" => scaled(11, 12, 0.3),
        "efficientnet_b3" => scaled(12, 14, 0.3),
        "efficientnet_b4" => scaled(14, 18, 0.4),
        "efficientnet_b5" => scaled(16, 22, 0.4),
        "efficientnet_b6" => scaled(18, 26, 0.5),
        "efficientnet_b7" => scaled(20, 31, 0.5),
        "efficientnet_v2_s" => second(&V2_S, 0.2),
        "efficientnet_v2_m" => second(&V2_M, 0.3),
        "efficientnet_v2_l" => second(&V2_L, 0.4),
        _ => None,
    }
}

/// `MBConv` or `FusedMBConv`.
fn block(scope: &Scope, (fused, wider, kernel, stride, inputs, outputs, _): Stage, depth: f64) -> Layer {
    let place = scope.child("block");
    let child = |i: usize| place.child(i.to_string());
    let hidden = widened(inputs * wider, 10);
    let mut layers = Vec::new();
    if fused {
        let first = if hidden == inputs { outputs } else { hidden };
        let whole = ConvNormAct { kernel, ..ConvNormAct::spatial(inputs, first, stride, ACT) };
        layers.push(Layer::Sequence(whole.sequence(&child(0))));
        if hidden != inputs {
            layers.push(Layer::Sequence(ConvNormAct::point(hidden, outputs, None).sequence(&child(1))));
        }
    } else {
        if hidden != inputs {
            layers.push(Layer::Sequence(ConvNormAct::point(inputs, hidden, ACT).sequence(&child(0))));
        }
        let depthwise = ConvNormAct::depthwise(hidden, kernel, stride, ACT).sequence(&child(layers.len()));
        layers.push(Layer::Sequence(depthwise));
        let squeezed = (inputs / 4).max(1);
        layers.push(Excite::layer_with(&child(layers.len()), [hidden, squeezed], [Act::Silu, Act::Sigmoid]));
        let project = ConvNormAct::point(hidden, outputs, None).sequence(&child(layers.len()));
        layers.push(Layer::Sequence(project));
    }
    let joins = stride == 1 && inputs == outputs;
    let mut branch = vec![Layer::Sequence(Sequence::new(&place, layers))];
    if joins {
        branch.push(Layer::Depth(StochasticDepth::new(&scope.child("stochastic_depth"), depth)));
    }
    let join = if joins { Join::Into } else { Join::Not };
    Layer::Residual(join, Sequence::new(scope, branch), scope.module())
}

/// `efficientnet_b0(num_classes=...)` and its sisters.
pub fn build(scope: &Scope, config: &Config<'_>, plan: &Plan) -> Result<Box<dyn Model>> {
    let variant = config.text("variant", "efficientnet_b0")?;
    let Some(Sizes { stages, dropout, last }) = sizes(variant) else {
        let hint = "use efficientnet_b0 to efficientnet_b7, or efficientnet_v2_s, _m or _l";
        return Err(config.error("variant", format!("{variant:?} is not estimated"), hint));
    };
    let classes = config.size("num_classes", 1000)?;
    let place = scope.child("features");
    let child = |i: usize| place.child(i.to_string());
    let mut outputs = stages.first().map_or(0, |stage| stage.4);
    let mut layers = vec![Layer::Sequence(ConvNormAct::spatial(3, outputs, 2, ACT).sequence(&child(0)))];
    let all: u64 = stages.iter().map(|stage| stage.6).sum();
    let mut number = 0_u64;
    for stage in stages {
        let place = child(layers.len());
        let mut blocks = Vec::new();
        for i in 0..stage.6 {
            let of = if i == 0 { stage } else { (stage.0, stage.1, stage.2, 1, stage.5, stage.5, stage.6) };
            let depth = DEPTH * number as f64 / all as f64;
            blocks.push(block(&place.child(i.to_string()), of, depth));
            number += 1;
        }
        outputs = stage.5;
        layers.push(Layer::Sequence(Sequence::new(&place, blocks)));
    }
    let last = last.unwrap_or(4 * outputs);
    let top = ConvNormAct::point(outputs, last, ACT).sequence(&child(layers.len()));
    layers.push(Layer::Sequence(top));
    let features = Sequence::new(&place, layers);
    let avgpool = scope.child("avgpool").module();
    let place = scope.child("classifier");
    let child = |i: u64| place.child(i.to_string());
    let classifier = Sequence::new(
        &place,
        vec![
            Layer::DropoutInPlace(dropout, child(0).module()),
            Layer::Linear(Linear::new(&child(1), last, classes, true)),
        ],
    );
    Network::boxed(scope, plan, vec![features], Pool::Global(avgpool), classifier)
}
