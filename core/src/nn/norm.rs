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

/// `Gemma{,2,3}RMSNorm`: centred on one, and multiplied in float32.
#[derive(Debug)]
pub struct GemmaRmsNorm {
    weight: Tensor,
    module: ModuleId,
}

impl GemmaRmsNorm {
    /// Over the last dimension of `features`.
    pub fn new(scope: &Scope, features: u64) -> Self {
        Self { weight: scope.parameter(&[features]), module: scope.module() }
    }

    /// `(_norm(x.float()) * (1.0 + weight.float())).type_as(x)`.
    pub fn forward(&self, x: &Tensor) -> Tensor {
        x.cx().within(self.module, || {
            let mut output = Self::norm(ops::to(x, DType::Float32));
            output = {
                let scale = ops::add_scalar(&ops::to(&self.weight, DType::Float32));
                ops::mul(&output, &scale)
            };
            ops::to(&output, x.dtype())
        })
    }

    /// `x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)`.
    fn norm(x: Tensor) -> Tensor {
        let mut variance = ops::pow(&x);
        variance = ops::mean_last(&variance);
        variance = ops::add_scalar(&variance);
        variance = ops::rsqrt(&variance);
        ops::mul(&x, &variance)
    }
}

/// Any of them.
#[derive(Debug)]
pub enum Norm {
    /// `nn.LayerNorm`.
    Layer(LayerNorm),
    /// `LlamaRMSNorm` and its copies.
    Rms(RmsNorm),
    /// `GemmaRMSNorm` and its copies.
    Gemma(GemmaRmsNorm),
}

impl Norm {
    /// `forward`.
    pub fn forward(&self, x: &Tensor) -> Tensor {
        match self {
            Self::Layer(norm) => norm.forward(x),
            Self::Rms(norm) => norm.forward(x),
            Self::Gemma(norm) => norm.forward(x),
        }
    }
}
