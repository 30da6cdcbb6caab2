//! torchvision's RegNets (`torchvision/models/regnet.py`, version 0.26).

use plimsoll_ground::Result;
use plimsoll_torch::nn::{Linear, Scope};

use super::layers::{Act, ConvNormAct, Excite, Layer, Sequence};
use super::network::{Network, Pool};
use crate::config::Config;
use crate::{Model, Plan};

/// Blocks, width and width of a group in each of the four stages, as `BlockParams.from_init_params` works them out. Those
/// with a `y` squeeze and excite.
type Stages = [(u64, u64, u64); 4];

fn stages(variant: &str) -> Option<Stages> {
    let even = |counts: [u64; 4], widths: [u64; 4], group: u64| [0, 1, 2, 3].map(|i| (counts[i], widths[i], group));
    Some(match variant {
        "regnet_y_400mf" => even([1, 3, 6, 6], [48, 104, 208, 440], 8),
        "regnet_y_800mf" => even([1, 3, 8, 2], [64, 144, 320, 784], 16),
        "regnet_y_1_6gf" => even([2, 6, 17, 2], [48, 120, 336, 888], 24),
        "regnet_y_3_2gf" => even([2, 5, 13, 1], [72, 216, 576, 1512], 24),
        "regnet_y_8gf" => even([2, 4, 10, 1], [224, 448, 896, 2016], 56),
        "regnet_y_16gf" => even([2, 4, 11, 1], [224, 448, 1232, 3024], 112),
        "regnet_y_32gf" => even([2, 5, 12, 1], [232, 696, 1392, 3712], 232),
        "regnet_x_400mf" => even([1, 2, 7, 12], [32, 64, 160, 400], 16),
        "regnet_x_800mf" => even([1, 3, 7, 5], [64, 128, 288, 672], 16),
        "regnet_x_1_6gf" => even([2, 4, 10, 2], [72, 168, 408, 912], 24),
        "regnet_x_3_2gf" => even([2, 6, 15, 2], [96, 192, 432, 1008], 48),
        // The first stage is narrower than a group.
        "regnet_x_8gf" => [(2, 80, 80), (5, 240, 120), (15, 720, 120), (1, 1920, 120)],
        "regnet_x_16gf" => even([2, 6, 13, 1], [256, 512, 896, 2048], 128),
        "regnet_x_32gf" => even([2, 7, 13, 1], [336, 672, 1344, 2520], 168),
        _ => return None,
    })
}

const STEM: u64 = 32;
const ACT: Option<Act> = Some(Act::Relu);

/// `ResBottleneckBlock`.
fn block(scope: &Scope, [inputs, outputs]: [u64; 2], stride: u64, group: u64, excites: bool) -> Layer {
    let proj = (inputs != outputs || stride != 1)
        .then(|| ConvNormAct { stride, ..ConvNormAct::point(inputs, outputs, None) }.sequence(&scope.child("proj")));
    let place = scope.child("f");
    let grouped = ConvNormAct { groups: outputs / group, ..ConvNormAct::spatial(outputs, outputs, stride, ACT) };
    let mut layers = vec![
        Layer::Sequence(ConvNormAct::point(inputs, outputs, ACT).sequence(&place.child("a"))),
        Layer::Sequence(grouped.sequence(&place.child("b"))),
    ];
    if excites {
        // A quarter of what the block is given.
        layers.push(Excite::layer(&place.child("se"), outputs, inputs / 4, Act::Sigmoid));
    }
    layers.push(Layer::Sequence(ConvNormAct::point(outputs, outputs, None).sequence(&place.child("c"))));
    Layer::Projected {
        proj,
        branch: Sequence::new(&place, layers),
        act: (Act::Relu, scope.child("activation").module()),
        module: scope.module(),
    }
}

/// `regnet_y_400mf(num_classes=...)` and its sisters.
pub fn build(scope: &Scope, config: &Config<'_>, plan: &Plan) -> Result<Box<dyn Model>> {
    let variant = config.text("variant", "regnet_y_400mf")?;
    let Some(stages) = stages(variant) else {
        let hint = "use regnet_x_400mf to regnet_x_32gf, or regnet_y_400mf to regnet_y_32gf";
        return Err(config.error("variant", format!("{variant:?} is not estimated"), hint));
    };
    let excites = variant.starts_with("regnet_y");
    let classes = config.size("num_classes", 1000)?;
    let stem = ConvNormAct::spatial(3, STEM, 2, ACT).sequence(&scope.child("stem"));
    let trunk = scope.child("trunk_output");
    let mut inputs = STEM;
    let mut layers = Vec::new();
    for (stage, (count, outputs, group)) in (1..).zip(stages) {
        let place = trunk.child(format!("block{stage}"));
        let mut blocks = Vec::new();
        for i in 0..count {
            let stride = if i == 0 { 2 } else { 1 };
            let scope = place.child(format!("block{stage}-{i}"));
            blocks.push(block(&scope, [inputs, outputs], stride, group, excites));
            inputs = outputs;
        }
        layers.push(Layer::Sequence(Sequence::new(&place, blocks)));
    }
    let trunk = Sequence::new(&trunk, layers);
    let avgpool = scope.child("avgpool").module();
    let place = scope.child("fc");
    let fc = Sequence::new(&place, vec![Layer::Linear(Linear::new(&place, inputs, classes, true))]);
    Network::boxed(scope, plan, vec![stem, trunk], Pool::Global(avgpool), fc)
}
