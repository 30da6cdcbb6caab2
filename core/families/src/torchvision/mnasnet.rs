//! torchvision's MNASNet (`torchvision/models/mnasnet.py`, version 0.26).

use plimsoll_ground::Result;
use plimsoll_torch::nn::{Linear, Scope};

use super::layers::{Act, ConvNormAct, Join, Layer, Sequence};
use super::network::{Network, Pool};
use crate::config::Config;
use crate::{Model, Plan};

/// `_get_depths(alpha)`.
fn depths(variant: &str) -> Option<[u64; 8]> {
    Some(match variant {
        "mnasnet0_5" => [16, 8, 16, 24, 40, 48, 96, 160],
        "mnasnet0_75" => [24, 16, 24, 32, 64, 72, 144, 240],
        "mnasnet1_0" => [32, 16, 24, 40, 80, 96, 192, 320],
        "mnasnet1_3" => [40, 24, 32, 56, 104, 128, 248, 416],
        _ => return None,
    })
}

/// `_stack`: kernel, stride of the first, how much wider inside, blocks.
const STACKS: [[u64; 4]; 6] = [[3, 2, 3, 3], [5, 2, 3, 3], [5, 2, 6, 3], [3, 1, 6, 2], [5, 2, 6, 4], [3, 1, 6, 1]];
const LAST: u64 = 1280;
const ACT: Option<Act> = Some(Act::Relu);

/// `_InvertedResidual`.
fn block(scope: &Scope, [inputs, outputs]: [u64; 2], kernel: u64, stride: u64, ratio: u64) -> Layer {
    let place = scope.child("layers");
    let hidden = inputs * ratio;
    let mut layers = ConvNormAct::point(inputs, hidden, ACT).layers(&place, 0);
    layers.extend(ConvNormAct::depthwise(hidden, kernel, stride, ACT).layers(&place, 3));
    layers.extend(ConvNormAct::point(hidden, outputs, None).layers(&place, 6));
    let join = if stride == 1 && inputs == outputs { Join::Add } else { Join::Not };
    Layer::Residual(join, Sequence::new(&place, layers), scope.module())
}

/// `mnasnet1_0(num_classes=...)` and its sisters.
pub fn build(scope: &Scope, config: &Config<'_>, plan: &Plan) -> Result<Box<dyn Model>> {
    let variant = config.text("variant", "mnasnet1_0")?;
    let Some(depths) = depths(variant) else {
        let hint = "use mnasnet0_5, mnasnet0_75, mnasnet1_0 or mnasnet1_3";
        return Err(config.error("variant", format!("{variant:?} is not estimated"), hint));
    };
    let classes = config.size("num_classes", 1000)?;
    let place = scope.child("layers");
    let mut layers = ConvNormAct::spatial(3, depths[0], 2, ACT).layers(&place, 0);
    layers.extend(ConvNormAct::depthwise(depths[0], 3, 1, ACT).layers(&place, 3));
    layers.extend(ConvNormAct::point(depths[0], depths[1], None).layers(&place, 6));
    for ([kernel, stride, ratio, count], pair) in STACKS.into_iter().zip(depths[1..].windows(2)) {
        let [inputs, outputs] = [pair[0], pair[1]];
        let stack = place.child(layers.len().to_string());
        let blocks = (0..count).map(|i| {
            let (inputs, stride) = if i == 0 { (inputs, stride) } else { (outputs, 1) };
            block(&stack.child(i.to_string()), [inputs, outputs], kernel, stride, ratio)
        });
        let blocks = blocks.collect();
        layers.push(Layer::Sequence(Sequence::new(&stack, blocks)));
    }
    let next = layers.len();
    layers.extend(ConvNormAct::point(depths[7], LAST, ACT).layers(&place, next));
    let features = Sequence::new(&place, layers);
    let place = scope.child("classifier");
    let classifier = Sequence::new(
        &place,
        vec![
            Layer::DropoutInPlace(0.2, place.child("0").module()),
            Layer::Linear(Linear::new(&place.child("1"), LAST, classes, true)),
        ],
    );
    Network::boxed(scope, plan, vec![features], Pool::Mean, classifier)
}
