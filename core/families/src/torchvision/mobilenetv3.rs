//! torchvision's MobileNetV3 (`torchvision/models/mobilenetv3.py`, version 0.26).

use plimsoll_ground::Result;
use plimsoll_torch::nn::{Linear, Scope};

use super::layers::{Act, ConvNormAct, Excite, Join, Layer, Sequence};
use super::network::{Network, Pool};
use crate::config::Config;
use crate::{Model, Plan};

/// A block: channels in, kernel, channels inside, channels out, whether they are squeezed and excited, the activation, stride.
type Block = (u64, u64, u64, u64, bool, Act, u64);

const RE: Act = Act::Relu;
const HS: Act = Act::Hardswish;

const LARGE: [Block; 15] = [
    (16, 3, 16, 16, false, RE, 1),
    (16, 3, 64, 24, false, RE, 2),
    (24, 3, 72, 24, false, RE, 1),
    (24, 5, 72, 40, true, RE, 2),
    (40, 5, 120, 40, true, RE, 1),
    (40, 5, 120, 40, true, RE, 1),
    (40, 3, 240, 80, false, HS, 2),
    (80, 3, 200, 80, false, HS, 1),
    (80, 3, 184, 80, false, HS, 1),
    (80, 3, 184, 80, false, HS, 1),
    (80, 3, 480, 112, true, HS, 1),
    (112, 3, 672, 112, true, HS, 1),
    (112, 5, 672, 160, true, HS, 2),
    (160, 5, 960, 160, true, HS, 1),
    (160, 5, 960, 160, true, HS, 1),
];

const SMALL: [Block; 11] = [
    (16, 3, 16, 16, true, RE, 2),
    (16, 3, 72, 24, false, RE, 2),
    (24, 3, 88, 24, false, RE, 1),
    (24, 5, 96, 40, true, HS, 2),
    (40, 5, 240, 40, true, HS, 1),
    (40, 5, 240, 40, true, HS, 1),
    (40, 5, 120, 48, true, HS, 1),
    (48, 5, 144, 48, true, HS, 1),
    (48, 5, 288, 96, true, HS, 2),
    (96, 5, 576, 96, true, HS, 1),
    (96, 5, 576, 96, true, HS, 1),
];

/// `_make_divisible(channels / 4, 8)`: the nearest multiple of 8, but never a tenth less.
const fn squeezed(channels: u64) -> u64 {
    let wanted = channels / 4;
    let near = (wanted + 4) / 8 * 8;
    let near = if near < 8 { 8 } else { near };
    if near * 10 < wanted * 9 { near + 8 } else { near }
}

/// `InvertedResidual`.
fn block(scope: &Scope, (inputs, kernel, hidden, outputs, excites, act, stride): Block) -> Layer {
    let place = scope.child("block");
    let child = |i: usize| place.child(i.to_string());
    let mut layers = Vec::new();
    if hidden != inputs {
        layers.push(Layer::Sequence(ConvNormAct::point(inputs, hidden, Some(act)).sequence(&child(0))));
    }
    let depthwise = ConvNormAct::depthwise(hidden, kernel, stride, Some(act)).sequence(&child(layers.len()));
    layers.push(Layer::Sequence(depthwise));
    if excites {
        layers.push(Excite::layer(&child(layers.len()), hidden, squeezed(hidden), Act::Hardsigmoid));
    }
    let project = ConvNormAct::point(hidden, outputs, None).sequence(&child(layers.len()));
    layers.push(Layer::Sequence(project));
    let join = if stride == 1 && inputs == outputs { Join::Into } else { Join::Not };
    Layer::Residual(join, Sequence::new(&place, layers), scope.module())
}

/// `mobilenet_v3_large(num_classes=...)` and `mobilenet_v3_small`.
pub fn build(scope: &Scope, config: &Config<'_>, plan: &Plan) -> Result<Box<dyn Model>> {
    let variant = config.text("variant", "mobilenet_v3_large")?;
    let (blocks, last): (&[Block], u64) = match variant {
        "mobilenet_v3_large" => (&LARGE, 1280),
        "mobilenet_v3_small" => (&SMALL, 1024),
        _ => {
            let hint = "use mobilenet_v3_large or mobilenet_v3_small";
            return Err(config.error("variant", format!("{variant:?} is not estimated"), hint));
        }
    };
    let classes = config.size("num_classes", 1000)?;
    let place = scope.child("features");
    let child = |i: usize| place.child(i.to_string());
    let mut layers = vec![Layer::Sequence(ConvNormAct::spatial(3, 16, 2, Some(HS)).sequence(&child(0)))];
    let mut outputs = 16;
    for each in blocks {
        layers.push(block(&child(layers.len()), *each));
        outputs = each.3;
    }
    let wide = 6 * outputs;
    let top = ConvNormAct::point(outputs, wide, Some(HS)).sequence(&child(layers.len()));
    layers.push(Layer::Sequence(top));
    let features = Sequence::new(&place, layers);
    let avgpool = scope.child("avgpool").module();
    let place = scope.child("classifier");
    let child = |i: u64| place.child(i.to_string());
    let classifier = Sequence::new(
        &place,
        vec![
            Layer::Linear(Linear::new(&child(0), wide, last, true)),
            Layer::Act(HS, child(1).module()),
            Layer::DropoutInPlace(0.2, child(2).module()),
            Layer::Linear(Linear::new(&child(3), last, classes, true)),
        ],
    );
    Network::boxed(scope, plan, vec![features], Pool::Global(avgpool), classifier)
}

#[cfg(test)]
mod tests {
    use super::squeezed;

    #[test]
    fn squeezed_as_make_divisible_has_it() {
        assert_eq!(
            [16, 72, 96, 120, 144, 240, 288, 480, 576, 672, 960].map(squeezed),
            [8, 24, 24, 32, 40, 64, 72, 120, 144, 168, 240]
        );
    }
}
