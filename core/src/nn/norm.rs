//! Normalisation modules.

use super::scope::Scope;
use crate::ops;
use crate::tensor::{DType, ModuleId, Tensor};

/// `nn.LayerNorm` over the last dimension.
#[derive(Debug)]
pub struct LayerNorm {
    weight: Tensor,
    bias: Option<Tensor>,
    module: ModuleId,
}

impl LayerNorm {
    /// `nn.LayerNorm(features, bias=bias)`.
    pub fn new(scope: &Scope, features: u64, bias: bool) -> Self {
        Self {
            weight: scope.parameter(&[features]),
            bias: bias.then(|| scope.parameter(&[features])),
            module: scope.module(),
        }
    }

    /// `forward`.
    pub fn forward(&self, x: &Tensor) -> Tensor {
        x.cx().within(self.module, || ops::layer_norm(x, &self.weight, self.bias.as_ref()))
    }
}

/// `LlamaRMSNorm` and its copies: written in Python ops, so every step of it is on the ledger.
#[derive(Debug)]
pub struct RmsNorm {
    weight: Tensor,
    module: ModuleId,
}

impl RmsNorm {
    /// Over the last dimension of `features`.
    pub fn new(scope: &Scope, features: u64) -> Self {
        Self { weight: scope.parameter(&[features]), module: scope.module() }
    }

    /// `weight * (x * rsqrt(mean(x ** 2) + eps)).to(input_dtype)`, computed in float32.
    pub fn forward(&self, x: &Tensor) -> Tensor {
        x.cx().within(self.module, || {
            let dtype = x.dtype();
            let mut hidden = ops::to(x, DType::Float32);
            let variance = ops::mean_last(&ops::pow(&hidden));
            let rsqrt = ops::rsqrt(&ops::add_scalar(&variance));
            hidden = ops::mul(&hidden, &rsqrt);
            drop(rsqrt);
            ops::mul(&self.weight, &ops::to(&hidden, dtype))
        })
    }
}

/// `T5LayerNorm`: as [`RmsNorm`], but only the variance is computed in float32.
#[derive(Debug)]
pub struct T5LayerNorm {
    weight: Tensor,
    module: ModuleId,
}

impl T5LayerNorm {
    /// Over the last dimension of `features`.
    pub fn new(scope: &Scope, features: u64) -> Self {
        Self { weight: scope.parameter(&[features]), module: scope.module() }
    }

    /// `weight * (x * rsqrt(mean(x.to(float32) ** 2) + eps))`, brought to the weight's dtype where that is a half one.
    pub fn forward(&self, x: &Tensor) -> Tensor {
        x.cx().within(self.module, || {
            let variance = {
                let square = {
                    let whole = ops::to(x, DType::Float32);
                    ops::pow(&whole)
                };
                ops::mean_last(&square)
            };
            let mut hidden = {
                let rsqrt = ops::rsqrt(&ops::add_scalar(&variance));
                ops::mul(x, &rsqrt)
            };
            if self.weight.dtype().is_half() {
                hidden = ops::to(&hidden, self.weight.dtype());
            }
            let out = ops::mul(&self.weight, &hidden);
            drop(variance);
            out
        })
    }
}
