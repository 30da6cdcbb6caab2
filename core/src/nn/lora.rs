//! peft's low-rank adapter (`tuners/lora/layer.py`).

use super::quantized::QuantizedLinear;
use super::scope::Scope;
use crate::ops;
use crate::scenario::Lora;
use crate::tensor::{DType, ModuleId, Tensor};

/// `lora_A`, `lora_B` and their dropout.
#[derive(Debug)]
pub struct Adapter {
    a: Tensor,
    b: Tensor,
    dropout: f64,
    modules: [ModuleId; 3],
    dtype: DType,
}

impl Adapter {
    /// The adapter of a linear from `inputs` to `outputs` features.
    pub fn new(scope: &Scope, lora: &Lora, inputs: u64, outputs: u64) -> Self {
        let place = |name: &str| scope.child(name).child("default");
        let (dropout, a, b) = (place("lora_dropout"), place("lora_A"), place("lora_B"));
        Self {
            a: a.adapter_parameter(&[lora.rank, inputs]),
            b: b.adapter_parameter(&[outputs, lora.rank]),
            dropout: lora.dropout,
            modules: [dropout.module(), a.module(), b.module()],
            dtype: if scope.dtype().is_half() { DType::Float32 } else { scope.dtype() },
        }
    }

    /// `result + lora_B(lora_A(dropout(x))) * scaling`, back in the result's dtype.
    pub fn add_to(&self, result: Tensor, x: &Tensor) -> Tensor {
        let dtype = result.dtype();
        let x = ops::to(x, self.dtype);
        let scaled = self.scaled(&x);
        let sum = ops::add(&result, &scaled);
        drop((scaled, result));
        ops::to(&sum, dtype)
    }

    /// `add_to` on a quantized layer (`tuners/lora/bnb.py`): the casts are autocast's where it is on, and a four-bit
    /// layer's result is cloned first.
    pub fn add_to_quantized(&self, mut result: Tensor, x: &Tensor, base: &QuantizedLinear) -> Tensor {
        if base.is_four_bit() {
            result = ops::clone(&result);
        }
        let converts = x.cx().autocast_dtype().is_none();
        let x = if converts { ops::to(x, self.dtype) } else { x.clone() };
        let mut output = self.scaled(&x);
        if converts {
            output = ops::to(&output, result.dtype());
        }
        ops::add(&result, &output)
    }

    /// `lora_B(lora_A(dropout(x))) * scaling`.
    fn scaled(&self, x: &Tensor) -> Tensor {
        let cx = x.cx();
        let dropped = cx.within(self.modules[0], || ops::dropout(x, self.dropout));
        let low = cx.within(self.modules[1], || ops::linear(&dropped, &self.a, None));
        drop(dropped);
        let high = cx.within(self.modules[2], || ops::linear(&low, &self.b, None));
        drop(low);
        ops::mul_scalar(&high)
    }
}
