//! torchvision's VGG (`torchvision/models/vgg.py`, version 0.26).

use plimsoll_ground::Result;
use plimsoll_torch::nn::{BatchNorm2d, Conv2d, Linear, Scope};
use plimsoll_torch::ops::Window;

use super::layers::{Act, Layer, Sequence};
use super::network::{Network, Pool};
use crate::config::Config;
use crate::{Model, Plan};

/// Convolutions in each of the five stages, which are 64, 128, 256, 512 and 512 wide (`cfgs`).
fn stages(variant: &str) -> Option<[u64; 5]> {
    Some(match variant.trim_end_matches("_bn") {
        "vgg11" => [1, 1, 2, 2, 2],
        "vgg13" => [2, 2, 2, 2, 2],
        "vgg16" => [2, 2, 3, 3, 3],
        "vgg19" => [2, 2, 4, 4, 4],
        _ => return None,
    })
}

/// `vgg16(num_classes=...)` and its sisters.
pub fn build(scope: &Scope, config: &Config<'_>, plan: &Plan) -> Result<Box<dyn Model>> {
    const SAME: Window = Window { kernel: 3, stride: 1, padding: 1 };
    const HALVE: Window = Window { kernel: 2, stride: 2, padding: 0 };
    const HIDDEN: u64 = 4096;
    const SIDE: u64 = 7;
    let variant = config.text("variant", "vgg16")?;
    let Some(counts) = stages(variant) else {
        let hint = "use vgg11, vgg13, vgg16 or vgg19, or one of these with _bn";
        return Err(config.error("variant", format!("{variant:?} is not estimated"), hint));
    };
    let norms = variant.ends_with("_bn");
    let classes = config.size("num_classes", 1000)?;
    let place = scope.child("features");
    let mut layers: Vec<Layer> = Vec::new();
    let mut inputs = 3;
    for (count, width) in counts.into_iter().zip([64, 128, 256, 512, 512]) {
        for _ in 0..count {
            let child = |i: usize| place.child(i.to_string());
            layers.push(Layer::Conv(Conv2d::new(&child(layers.len()), inputs, width, 1, SAME, true)));
            if norms {
                layers.push(Layer::Norm(BatchNorm2d::new(&child(layers.len()), width)));
            }
            layers.push(Layer::Act(Act::Relu, child(layers.len()).module()));
            inputs = width;
        }
        layers.push(Layer::MaxPool(HALVE, place.child(layers.len().to_string()).module()));
    }
    let features = Sequence::new(&place, layers);
    let avgpool = scope.child("avgpool").module();
    let place = scope.child("classifier");
    let child = |i: u64| place.child(i.to_string());
    let mut layers = Vec::new();
    for (i, inputs) in [(0, inputs * SIDE * SIDE), (3, HIDDEN)] {
        layers.push(Layer::Linear(Linear::new(&child(i), inputs, HIDDEN, true)));
        layers.push(Layer::Act(Act::Relu, child(i + 1).module()));
        layers.push(Layer::Dropout(0.5, child(i + 2).module()));
    }
    layers.push(Layer::Linear(Linear::new(&child(6), HIDDEN, classes, true)));
    let classifier = Sequence::new(&place, layers);
    Network::boxed(scope, plan, vec![features], Pool::To(SIDE, avgpool), classifier)
}
