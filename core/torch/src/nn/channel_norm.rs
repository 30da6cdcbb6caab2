//! `ConvNextLayerNorm(data_format="channels_first")` (transformers `models/convnext/modeling_convnext.py`).

use plimsoll_catalog::software::rules;

use super::norm::LayerNorm2d;
use super::scope::Scope;
use crate::ops;
use crate::tensor::{DType, ModuleId, Tensor};

/// Over the channels of `[N, C, H, W]`.
#[derive(Debug)]
pub enum ConvNextLayerNorm {
    /// One call, as torchvision has it.
    AtOnce(LayerNorm2d),
    /// As before [`rules::CONVNEXT_NORMS_AT_ONCE`]: by mean, variance and division, each a tensor.
    ByHand {
        /// `weight`
        weight: Tensor,
        /// `bias`
        bias: Tensor,
        /// Its module.
        module: ModuleId,
    },
}

impl ConvNextLayerNorm {
    /// Over `channels`.
    pub fn new(scope: &Scope, channels: u64) -> Self {
        if scope.cx().machine().rules.has(&rules::CONVNEXT_NORMS_AT_ONCE) {
            return Self::AtOnce(LayerNorm2d::new(scope, channels));
        }
        Self::ByHand {
            weight: scope.parameter(&[channels]),
            bias: scope.parameter(&[channels]),
            module: scope.module(),
        }
    }

    /// `forward`.
    pub fn forward(&self, x: &Tensor) -> Tensor {
        match self {
            Self::AtOnce(norm) => norm.forward(x),
            Self::ByHand { weight, bias, module } => x.cx().within_given(*module, x, || by_hand(x, weight, bias)),
        }
    }
}

fn by_hand(x: &Tensor, weight: &Tensor, bias: &Tensor) -> Tensor {
    let dtype = x.dtype();
    let mut x = ops::to(x, DType::Float32);
    let mean = |x: &Tensor| ops::unsqueeze(&ops::mean(x, 1), 1);
    // Both are names until it is done.
    let u = mean(&x);
    let s = {
        let squared = {
            let difference = ops::sub(&x, &u);
            ops::pow(&difference)
        };
        mean(&squared)
    };
    x = {
        let difference = ops::sub(&x, &u);
        let deviation = {
            let sum = ops::add_scalar(&s);
            ops::sqrt(&sum)
        };
        ops::div(&difference, &deviation)
    };
    x = ops::to(&x, dtype);
    // `weight[:, None, None]`
    let of_channels = |x: &Tensor| ops::unsqueeze(&ops::unsqueeze(&ops::whole(x), -1), -1);
    let scaled = ops::mul(&of_channels(weight), &x);
    let out = ops::add(&scaled, &of_channels(bias));
    drop((u, s));
    out
}
