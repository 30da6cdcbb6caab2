//! torchvision's classifiers (version 0.26), the families `resnet`, `convnext` and `swin`.

mod convnext;
mod resnet;
mod shifted_window;
mod stochastic_depth;
mod swin;

use plimsoll_ground::Result;
use plimsoll_torch::nn::Scope;

use super::config::Config;
use super::{Model, Plan};

/// The family of this name; `None` where torchvision has none that is estimated.
pub fn build(name: &str, scope: &Scope, config: &Config<'_>, plan: &Plan) -> Option<Result<Box<dyn Model>>> {
    match name {
        "convnext" => Some(convnext::build(scope, config, plan)),
        "resnet" => Some(resnet::build(scope, config, plan)),
        "swin" => Some(swin::build(scope, config, plan)),
        _ => None,
    }
}
