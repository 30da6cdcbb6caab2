//! peft's low-rank adapter (`tuners/lora/layer.py`, on quantized layers `tuners/lora/bnb.py`) and its DoRA variant
//! (`tuners/lora/dora.py`, `tuners/lora/variants.py`).

use plimsoll_catalog::software::rules;
use std::rc::Rc;

use plimsoll_scenario::Lora;

use super::quantized::QuantizedLinear;
use super::scope::Scope;
use crate::ops::{self, Fill, Reduction};
use crate::tensor::{DType, ModuleId, Tensor};

/// The layer under an adapter.
#[derive(Clone, Copy, Debug)]
pub enum Under<'l> {
    /// `nn.Linear`, or with a transposed weight `Conv1D`.
    Full {
        /// Its weight.
        weight: &'l Tensor,
        /// Its bias.
        bias: Option<&'l Tensor>,
        /// Whether the weight is stored `[in, out]` (`fan_in_fan_out`).
        transposed: bool,
    },
    /// `Linear4bit` or `Linear8bitLt`.
    Quantized(&'l QuantizedLinear),
}

/// `lora_A`, `lora_B` and their dropout; with DoRA the magnitudes as well.
#[derive(Debug)]
pub struct Adapter {
    a: Tensor,
    b: Tensor,
    magnitude: Option<(Tensor, ModuleId)>,
    dropout: f64,
    modules: [ModuleId; 3],
}

impl Adapter {
    /// The adapter of a linear from `inputs` to `outputs` features that computes in `base`.
    pub fn new(scope: &Scope, lora: &Lora, [inputs, outputs]: [u64; 2], base: DType) -> Self {
        let place = |name: &'static str| scope.child(name).child("default");
        let (dropout, a, b) = (place("lora_dropout"), place("lora_A"), place("lora_B"));
        if lora.dora && scope.quantization(false).is_some() {
            // `update_layer` multiplies the adapter's matrices, where the layer is: a quantized one is on the card by now.
            scope.cx().blas();
        }
        Self {
            a: a.adapter_parameter(&[lora.rank, inputs], base),
            b: b.adapter_parameter(&[outputs, lora.rank], base),
            magnitude: lora.dora.then(|| {
                let magnitude = place("lora_magnitude_vector");
                (magnitude.adapter_parameter(&[outputs], base), magnitude.module())
            }),
            dropout: lora.dropout,
            modules: [dropout.module(), a.module(), b.module()],
        }
    }

    /// What the adapted layer makes of `x` when its base makes `result`.
    pub fn add_to(&self, result: Tensor, x: &Tensor, under: Under<'_>) -> Tensor {
        match under {
            Under::Full { .. } => self.add_to_full(result, x, under),
            Under::Quantized(base) => self.add_to_quantized(result, x, base),
        }
    }

    /// `result + lora_B(lora_A(dropout(x))) * scaling`, back in the result's dtype.
    fn add_to_full(&self, result: Tensor, x: &Tensor, under: Under<'_>) -> Tensor {
        let dtype = result.dtype();
        // `self._cast_input_dtype(x, lora_A.weight.dtype)`
        x.cx().read(&self.a);
        let x = ops::to(x, self.a.dtype());
        let named = self.names(&x);
        let mut held = None;
        let sum = match &self.magnitude {
            Some(magnitude) => {
                // The base's result had a second name where the adapter takes it.
                let variant = x.cx().machine().rules.has(&rules::DORA_IS_VARIANT);
                let second = self.takes_result(&x).then(|| result.clone());
                let (extra, dropped) = self.dora(&result, x, under, magnitude);
                let sum = ops::add(&result, &extra);
                drop((extra, result));
                held = (!variant).then_some((dropped, second));
                sum
            }
            None => {
                let scaled = self.scaled(&x);
                let sum = ops::add(&result, &scaled);
                drop((scaled, result));
                sum
            }
        };
        let cast = ops::to(&sum, dtype);
        drop((sum, named, held));
        cast
    }

    /// Whether DoRA takes the base's own result, since nothing is dropped; else the product is made once more, of what is left of x.
    fn takes_result(&self, x: &Tensor) -> bool {
        let takes = x.cx().machine().rules.has(&rules::DORA_TAKES_RESULT);
        takes && (self.dropout == 0.0 || x.cx().is_inference())
    }

    /// What the layer's forward calls `x` to its end: before [`rules::DORA_IS_VARIANT`] what was left of it took the name.
    fn names(&self, x: &Tensor) -> Option<Tensor> {
        let keeps = self.magnitude.is_none() || x.cx().machine().rules.has(&rules::DORA_IS_VARIANT);
        keeps.then(|| x.clone())
    }

    /// The same on a quantized layer: the casts are autocast's where it is on, and a four-bit layer's result is cloned
    /// first.
    fn add_to_quantized(&self, mut result: Tensor, x: &Tensor, base: &QuantizedLinear) -> Tensor {
        if base.is_four_bit() {
            result = ops::clone(&result);
        }
        let dtype = result.dtype();
        let converts = x.cx().autocast_dtype().is_none();
        let x = if converts { ops::to(x, self.a.dtype()) } else { x.clone() };
        let _named = self.names(&x);
        if let Some(magnitude) = &self.magnitude {
            let variant = x.cx().machine().rules.has(&rules::DORA_IS_VARIANT);
            let (mut extra, _dropped) = self.dora(&result, x, Under::Quantized(base), magnitude);
            if converts && !variant {
                extra = ops::to(&extra, dtype);
            }
            let sum = ops::add(&result, &extra);
            return if converts && variant { ops::to(&sum, dtype) } else { sum };
        }
        let mut output = self.scaled(&x);
        if converts {
            output = ops::to(&output, dtype);
        }
        ops::add(&result, &output)
    }

    /// `lora_B(lora_A(dropout(x))) * scaling`.
    fn scaled(&self, x: &Tensor) -> Tensor {
        ops::mul_scalar(&self.product(self.dropped(x)))
    }

    fn dropped(&self, x: &Tensor) -> Tensor {
        x.cx().within_given(self.modules[0], x, || ops::dropout(x, self.dropout))
    }

    /// `lora_B(lora_A(x))`.
    fn product(&self, x: Tensor) -> Tensor {
        let cx = Rc::clone(x.cx());
        let low = cx.within_given(self.modules[1], &x, || ops::linear(&x, &self.a, None));
        drop(x);
        cx.within_given(self.modules[2], &low, || ops::linear(&low, &self.b, None))
    }

    /// `DoraLinearVariant.forward`, but for the sum: what is added, and what dropout left, which has a name until it is.
    fn dora(&self, result: &Tensor, x: Tensor, under: Under<'_>, magnitude: &(Tensor, ModuleId)) -> (Tensor, Tensor) {
        let (magnitude, module) = magnitude;
        let base = self.takes_result(&x).then(|| result.clone());
        let dropped = self.dropped(&x);
        drop(x);
        let extra = dropped.cx().within(*module, || self.dora_result(base, &dropped, under, magnitude));
        (extra, dropped)
    }

    /// `DoraLinearLayer.forward`. Its locals live to its end.
    fn dora_result(&self, base: Option<Tensor>, x: &Tensor, under: Under<'_>, magnitude: &Tensor) -> Tensor {
        let cx = x.cx();
        let early = (!cx.machine().rules.has(&rules::DORA_TAKES_RESULT)).then(|| self.product(x.clone()));
        // get_lora_weight(): the adapter applied to the unit matrix, which once was in the dtype of what goes in, and named.
        let cast = cx.machine().rules.has(&rules::DORA_WEIGHTS_CAST);
        let eye = {
            let dtype = if cast { self.a.dtype() } else { x.dtype() };
            ops::fill(cx, Fill::Eye, &[self.a.size(1), self.a.size(1)], dtype)
        };
        let mut lora_weight = ops::transpose(&self.product(eye.clone()), 0, 1);
        let eye = Some(eye).filter(|_| !cast);
        if cast {
            lora_weight = ops::to(&lora_weight, x.dtype());
        }
        let (mut weight, bias, transposed) = match under {
            Under::Full { weight, bias, transposed } => (weight.clone(), bias.cloned(), transposed),
            Under::Quantized(linear) => (linear.dequantize(cx), linear.bias(), false),
        };
        let parameter = transposed && weight.dtype() == x.dtype();
        weight = ops::to(&weight, x.dtype());
        if transposed {
            weight = ops::transpose(&weight, 0, 1);
        }
        // get_weight_norm()
        let norm = {
            let sum = ops::add(&weight, &ops::mul_scalar(&lora_weight.detach()));
            // Autocast has it answer in float32.
            let dtype = if cx.autocast_dtype().is_some() { DType::Float32 } else { sum.dtype() };
            ops::to(&ops::reduction(Reduction::LinalgVectorNorm, &sum, &[weight.size(0)], dtype), sum.dtype())
        };
        let scale = ops::view(&ops::div(magnitude, &norm), &[1, weight.size(0)]);
        // `peft.utils.other.transpose` makes a parameter of a parameter: its gradient is computed, for nobody.
        let again = || match parameter {
            true => ops::linear(x, &weight.detach().into_leaf(true), None),
            false => ops::linear(x, &weight, None),
        };
        let (lora_result, base, based) = if let Some(lora_result) = early {
            let factor = ops::add_scalar(&scale);
            (lora_result, None, ops::mul(&factor, &again()))
        } else {
            let lora_result = self.product(x.clone());
            let base = match (base, bias) {
                (Some(base), Some(bias)) => ops::sub(&base, &bias),
                (Some(base), None) => base,
                (None, _) => again(),
            };
            let based = ops::mul(&ops::add_scalar(&scale), &base);
            (lora_result, Some(base), based)
        };
        let adapted = ops::mul_scalar(&ops::mul(&scale, &lora_result));
        let sum = ops::add(&based, &adapted);
        // What has no name goes first; names go in the order in which they came.
        drop((based, adapted));
        drop((base, eye, lora_weight, weight, norm, scale, lora_result));
        sum
    }
}
