//! Normalisation modules.

use plimsoll_catalog::software::rules;

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
        let weight = scope.original(&[features]);
        let bias = bias.then(|| scope.original(&[features]));
        let copy = |tensor: Tensor| scope.copy_of(&tensor).unwrap_or(tensor);
        Self { weight: copy(weight), bias: bias.map(copy), module: scope.module() }
    }

    /// `forward`.
    pub fn forward(&self, x: &Tensor) -> Tensor {
        x.cx().within_given(self.module, x, || ops::layer_norm(x, &self.weight, self.bias.as_ref()))
    }
}

/// `LayerNorm2d` of torchvision, `ConvNextLayerNorm(data_format="channels_first")` of transformers: over the channels of
/// `[N, C, H, W]`. What comes out lies channels last.
#[derive(Debug)]
pub struct LayerNorm2d(LayerNorm);

impl LayerNorm2d {
    /// Over `channels`.
    pub fn new(scope: &Scope, channels: u64) -> Self {
        Self(LayerNorm::new(scope, channels, true))
    }

    /// `forward`.
    pub fn forward(&self, x: &Tensor) -> Tensor {
        let normed = self.0.forward(&ops::permute(x, &ops::CHANNELS_LAST));
        ops::permute(&normed, &ops::CHANNELS_FIRST)
    }
}

/// `LlamaRMSNorm` and its copies: written in Python ops, so every step of it is on the ledger.
#[derive(Debug)]
pub struct RmsNorm {
    weight: Tensor,
    liger: Option<bool>,
    module: ModuleId,
}

impl RmsNorm {
    /// Over the last dimension of `features`.
    pub fn new(scope: &Scope, features: u64) -> Self {
        Self { weight: scope.parameter(&[features]), liger: scope.liger_norm(), module: scope.module() }
    }

    /// `weight * (x * rsqrt(mean(x ** 2) + eps)).to(input_dtype)`, computed in float32.
    pub fn forward(&self, x: &Tensor) -> Tensor {
        x.cx().within_given(self.module, x, || {
            if let Some(in_place) = self.liger {
                return ops::liger_rms_norm(x, &self.weight, in_place);
            }
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
        x.cx().within_given(self.module, x, || {
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
            drop((hidden, variance));
            out
        })
    }
}

/// `Gemma{,2,3}RMSNorm`: centred on one, and multiplied in float32.
#[derive(Debug)]
pub struct GemmaRmsNorm {
    weight: Tensor,
    liger: Option<bool>,
    module: ModuleId,
}

impl GemmaRmsNorm {
    /// Over the last dimension of `features`.
    pub fn new(scope: &Scope, features: u64) -> Self {
        Self { weight: scope.parameter(&[features]), liger: scope.liger_norm(), module: scope.module() }
    }

    /// `(_norm(x.float()) * (1.0 + weight.float())).type_as(x)`.
    pub fn forward(&self, x: &Tensor) -> Tensor {
        x.cx().within_given(self.module, x, || {
            if let Some(in_place) = self.liger {
                return ops::liger_rms_norm(x, &self.weight, in_place);
            }
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

/// `Gemma4RMSNorm`: a power instead of a root, multiplied in float32; some have no weight.
#[derive(Debug)]
pub struct PowerRmsNorm {
    weight: Option<Tensor>,
    module: ModuleId,
}

impl PowerRmsNorm {
    /// Over the last dimension of `features`.
    pub fn new(scope: &Scope, features: u64) -> Self {
        Self { weight: Some(scope.parameter(&[features])), module: scope.module() }
    }

    /// `with_scale=False`.
    pub fn without_weight(scope: &Scope) -> Self {
        Self { weight: None, module: scope.module() }
    }

    /// `(_norm(x.float()) * weight.float()).type_as(x)`.
    pub fn forward(&self, x: &Tensor) -> Tensor {
        x.cx().within_given(self.module, x, || {
            let mut normed = Self::norm(ops::to(x, DType::Float32));
            if let Some(weight) = &self.weight {
                normed = {
                    let wide = ops::to(weight, DType::Float32);
                    ops::mul(&normed, &wide)
                };
            }
            ops::to(&normed, x.dtype())
        })
    }

    /// `mean_squared = x.pow(2).mean(-1, keepdim=True) + self.eps`, `x * torch.pow(mean_squared, -0.5)`.
    fn norm(x: Tensor) -> Tensor {
        let mean_squared = {
            let mean = ops::mean_last(&ops::pow(&x));
            ops::add_scalar(&mean)
        };
        let normed = {
            let power = ops::pow(&mean_squared);
            ops::mul(&x, &power)
        };
        // Arguments go before other names.
        drop(x);
        drop(mean_squared);
        normed
    }
}

/// `Llama4TextRMSNorm`: as [`RmsNorm`], the weight multiplied from the right.
#[derive(Debug)]
pub struct LastRmsNorm {
    weight: Tensor,
    module: ModuleId,
}

impl LastRmsNorm {
    /// Over the last dimension of `features`.
    pub fn new(scope: &Scope, features: u64) -> Self {
        Self { weight: scope.parameter(&[features]), module: scope.module() }
    }

    /// `_norm(x.float()).type_as(x) * weight`.
    pub fn forward(&self, x: &Tensor) -> Tensor {
        x.cx().within_given(self.module, x, || {
            let output = ops::to(&GemmaRmsNorm::norm(ops::to(x, DType::Float32)), x.dtype());
            ops::mul(&output, &self.weight)
        })
    }
}

/// `Llama4TextL2Norm`, which has no weight.
#[derive(Debug)]
pub struct L2Norm {
    module: ModuleId,
}

impl L2Norm {
    /// It has no parameters.
    pub fn new(scope: &Scope) -> Self {
        Self { module: scope.module() }
    }

    /// `_norm(x.float()).type_as(x)`.
    pub fn forward(&self, x: &Tensor) -> Tensor {
        x.cx().within_given(self.module, x, || ops::to(&GemmaRmsNorm::norm(ops::to(x, DType::Float32)), x.dtype()))
    }
}

/// `Olmo2RMSNorm`: [`RmsNorm`] with the weight multiplied in before the cast back.
#[derive(Debug)]
pub struct WideRmsNorm {
    weight: Tensor,
    liger: Option<bool>,
    module: ModuleId,
}

impl WideRmsNorm {
    /// Over the last dimension of `features`.
    pub fn new(scope: &Scope, features: u64) -> Self {
        Self { weight: scope.parameter(&[features]), liger: scope.liger_norm(), module: scope.module() }
    }

    /// `(weight * (x * rsqrt(mean(x ** 2) + eps))).to(input_dtype)`, computed in float32; as [`RmsNorm`] before
    /// [`rules::OLMO_IN_FLOAT32`].
    pub fn forward(&self, x: &Tensor) -> Tensor {
        x.cx().within_given(self.module, x, || {
            if let Some(in_place) = self.liger {
                return ops::liger_rms_norm(x, &self.weight, in_place);
            }
            let mut hidden = ops::to(x, DType::Float32);
            let variance = ops::mean_last(&ops::pow(&hidden));
            let rsqrt = ops::rsqrt(&ops::add_scalar(&variance));
            hidden = ops::mul(&hidden, &rsqrt);
            drop(rsqrt);
            if !x.cx().machine().rules.has(&rules::OLMO_IN_FLOAT32) {
                return ops::mul(&self.weight, &ops::to(&hidden, x.dtype()));
            }
            ops::to(&ops::mul(&self.weight, &hidden), x.dtype())
        })
    }
}

/// `OlmoLayerNorm`: `layer_norm(x.to(float32), shape, None, None).to(x.dtype)`.
#[derive(Debug)]
pub struct PlainLayerNorm {
    module: ModuleId,
}

impl PlainLayerNorm {
    /// It has no parameters.
    pub fn new(scope: &Scope) -> Self {
        Self { module: scope.module() }
    }

    /// `forward`.
    pub fn forward(&self, x: &Tensor) -> Tensor {
        x.cx().within_given(self.module, x, || {
            let normed = {
                let wide = ops::to(x, DType::Float32);
                ops::layer_norm_plain(&wide)
            };
            ops::to(&normed, x.dtype())
        })
    }
}

/// `StableLmLayerNormPerHead`: a norm of its own for every head of `[batch, heads, seq, dim]`.
#[derive(Debug)]
pub struct LayerNormPerHead {
    norms: Vec<LayerNorm>,
    module: ModuleId,
}

impl LayerNormPerHead {
    /// For `heads` heads of `dim`.
    pub fn new(scope: &Scope, dim: u64, heads: u64) -> Self {
        let norms = (0..heads).map(|i| LayerNorm::new(&scope.item("norms", i), dim, false)).collect();
        Self { norms, module: scope.module() }
    }

    /// `forward`.
    pub fn forward(&self, x: &Tensor) -> Tensor {
        x.cx().within_given(self.module, x, || {
            let heads = ops::split(x, 1, 1);
            let normed: Vec<Tensor> = self.norms.iter().zip(&heads).map(|(norm, head)| norm.forward(head)).collect();
            ops::cat(&normed.iter().collect::<Vec<_>>(), 1)
        })
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
    /// `Gemma4RMSNorm`.
    Power(PowerRmsNorm),
    /// `Llama4TextRMSNorm`.
    Last(LastRmsNorm),
    /// `Olmo2RMSNorm`.
    Wide(WideRmsNorm),
    /// `OlmoLayerNorm`.
    Plain(PlainLayerNorm),
    /// `StableLmLayerNormPerHead`.
    PerHead(LayerNormPerHead),
}

impl Norm {
    /// `forward`.
    pub fn forward(&self, x: &Tensor) -> Tensor {
        match self {
            Self::Layer(norm) => norm.forward(x),
            Self::Rms(norm) => norm.forward(x),
            Self::Gemma(norm) => norm.forward(x),
            Self::Power(norm) => norm.forward(x),
            Self::Last(norm) => norm.forward(x),
            Self::Wide(norm) => norm.forward(x),
            Self::Plain(norm) => norm.forward(x),
            Self::PerHead(norm) => norm.forward(x),
        }
    }
}
