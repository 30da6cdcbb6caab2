//! transformers' `ACT2FN`.

use crate::ops;
use crate::tensor::{ModuleId, Tensor};

use super::scope::Scope;

/// The activations the supported families use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Function {
    Silu,
    Relu,
    Tanh,
    /// One kernel, exact or tanh.
    Gelu,
    /// GPT-2's: spelled out in Python.
    GeluNew,
    /// CLIP's.
    QuickGelu,
}

/// An activation module.
#[derive(Debug)]
pub struct Activation {
    function: Function,
    module: ModuleId,
}

impl Activation {
    /// Names that [`Activation::new`] knows.
    pub const KNOWN: &'static [&'static str] =
        &["silu", "swish", "relu", "tanh", "gelu", "gelu_pytorch_tanh", "gelu_new", "quick_gelu"];

    /// `ACT2FN[name]`; `None` for a name outside [`Activation::KNOWN`].
    pub fn new(scope: &Scope, name: &str) -> Option<Self> {
        let function = match name {
            "silu" | "swish" => Function::Silu,
            "relu" => Function::Relu,
            "tanh" => Function::Tanh,
            "gelu" | "gelu_pytorch_tanh" => Function::Gelu,
            "gelu_new" => Function::GeluNew,
            "quick_gelu" => Function::QuickGelu,
            _ => return None,
        };
        Some(Self { function, module: scope.module() })
    }

    /// `forward`.
    pub fn forward(&self, x: &Tensor) -> Tensor {
        x.cx().within(self.module, || match self.function {
            Function::Silu => ops::silu(x),
            Function::Relu => ops::relu(x),
            Function::Tanh => ops::tanh(x),
            Function::Gelu => ops::gelu(x),
            Function::GeluNew => gelu_new(x),
            Function::QuickGelu => quick_gelu(x),
        })
    }
}

/// `0.5 * x * (1.0 + tanh(sqrt(2 / pi) * (x + 0.044715 * pow(x, 3.0))))`, evaluated from the left as Python does.
fn gelu_new(x: &Tensor) -> Tensor {
    let half = ops::mul_scalar(x);
    let mut inner = ops::mul_scalar(&ops::pow(x));
    inner = ops::add(x, &inner);
    inner = ops::mul_scalar(&inner);
    let tanh = ops::tanh(&inner);
    drop(inner);
    let one_plus = ops::add_scalar(&tanh);
    drop(tanh);
    ops::mul(&half, &one_plus)
}

/// `x * torch.sigmoid(1.702 * x)`.
fn quick_gelu(x: &Tensor) -> Tensor {
    let sigmoid = {
        let scaled = ops::mul_scalar(x);
        ops::sigmoid(&scaled)
    };
    ops::mul(x, &sigmoid)
}
