//! torchvision's MobileNetV2 (`torchvision/models/mobilenetv2.py`, version 0.26).

use plimsoll_ground::Result;
use plimsoll_torch::nn::{Linear, Scope};

use super::layers::{Act, ConvNormAct, Join, Layer, Sequence};
use super::network::{Network, Pool};
use crate::config::Config;
use crate::{Model, Plan};

/// `inverted_residual_setting`: how much wider inside, channels out, blocks, stride of the first.
const BLOCKS: [[u64; 4]; 7] =
    [[1, 16, 1, 1], [6, 24, 2, 2], [6, 32, 3, 2], [6, 64, 4, 2], [6, 96, 3, 1], [6, 160, 3, 2], [6, 320, 1, 1]];
const FIRST: u64 = 32;
const LAST: u64 = 1280;
const ACT: Option<Act> = Some(Act::Relu6);

/// `InvertedResidual`.
fn block(scope: &Scope, [inputs, outputs]: [u64; 2], stride: u64, ratio: u64) -> Layer {
    let conv = scope.child("conv");
    let hidden = inputs * ratio;
    let mut layers = Vec::new();
    if ratio != 1 {
        layers.push(Layer::Sequence(ConvNormAct::point(inputs, hidden, ACT).sequence(&conv.child("0"))));
    }
    let place = conv.child(layers.len().to_string());
    layers.push(Layer::Sequence(ConvNormAct::depthwise(hidden, 3, stride, ACT).sequence(&place)));
    let next = layers.len();
    layers.extend(ConvNormAct::point(hidden, outputs, None).layers(&conv, next));
    let join = if stride == 1 && inputs == outputs { Join::Add } else { Join::Not };
    Layer::Residual(join, Sequence::new(&conv, layers), scope.module())
}

/// `mobilenet_v2(num_classes=...)`.
pub fn build(scope: &Scope, config: &Config<'_>, plan: &Plan) -> Result<Box<dyn Model>> {
    let variant = config.text("variant", "mobilenet_v2")?;
    if variant != "mobilenet_v2" {
        return Err(config.error("variant", format!("{variant:?} is not estimated"), "use mobilenet_v2"));
    }
    let classes = config.size("num_classes", 1000)?;
    let place = scope.child("features");
    let child = |i: usize| place.child(i.to_string());
    let mut layers = vec![Layer::Sequence(ConvNormAct::spatial(3, FIRST, 2, ACT).sequence(&child(0)))];
    let mut inputs = FIRST;
    for [ratio, outputs, count, stride] in BLOCKS {
        for i in 0..count {
            let stride = if i == 0 { stride } else { 1 };
            layers.push(block(&child(layers.len()), [inputs, outputs], stride, ratio));
            inputs = outputs;
        }
    }
    let last = ConvNormAct::point(inputs, LAST, ACT).sequence(&child(layers.len()));
    layers.push(Layer::Sequence(last));
    let features = Sequence::new(&place, layers);
    let place = scope.child("classifier");
    let classifier = Sequence::new(
        &place,
        vec![
            Layer::Dropout(0.2, place.child("0").module()),
            Layer::Linear(Linear::new(&place.child("1"), LAST, classes, true)),
        ],
    );
    Network::boxed(scope, plan, vec![features], Pool::Global(scope.module()), classifier)
}
