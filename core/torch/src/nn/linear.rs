//! `nn.Linear` and GPT-2's `Conv1D`.

use plimsoll_catalog::software::rules;

use super::lora::{Adapter, Under};
use super::quantized::QuantizedLinear;
use super::scope::Scope;
use crate::ops;
use crate::tensor::{ModuleId, Tensor};

/// What multiplies: the weight as it is, or quantized.
#[derive(Debug)]
enum Base {
    Full { weight: Tensor, bias: Option<Tensor> },
    Quantized(Box<QuantizedLinear>),
}

impl Base {
    fn under(&self) -> Under<'_> {
        match self {
            Self::Full { weight, bias } => Under::Full { weight, bias: bias.as_ref(), transposed: false },
            Self::Quantized(linear) => Under::Quantized(linear),
        }
    }
}

/// What a linear is to those who replace it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    /// `nn.Linear`.
    Plain,
    /// A class made of it.
    Derived,
    /// The output head, which is never quantized, nor adapted by `all-linear`.
    Head,
}

/// `nn.Linear`, quantized by bitsandbytes and with peft's adapter around it where the plan says so.
#[derive(Debug)]
pub struct Linear {
    weights: Base,
    module: ModuleId,
    base: ModuleId,
    adapter: Option<Box<Adapter>>,
    /// `x @ weight.T`, then the bias: Falcon's way.
    spelled_out: bool,
}

impl Linear {
    /// `nn.Linear(inputs, outputs, bias)`.
    pub fn new(scope: &Scope, inputs: u64, outputs: u64, bias: bool) -> Self {
        Self::build(scope, [outputs, inputs], None, bias, Class::Plain)
    }

    /// `FalconLinear(inputs, outputs, bias)`: a linear that spells out its product and its sum.
    pub fn spelled_out(scope: &Scope, inputs: u64, outputs: u64, bias: bool) -> Self {
        Self { spelled_out: true, ..Self::build(scope, [outputs, inputs], None, bias, Class::Derived) }
    }

    /// The output head: never adapted by `all-linear`.
    pub fn head(scope: &Scope, inputs: u64, outputs: u64) -> Self {
        Self::build(scope, [outputs, inputs], None, false, Class::Head)
    }

    /// The output head with a bias of its own (Phi, GPT-J); `shared` is the token embedding's weight where it is tied.
    pub fn biased_head(scope: &Scope, inputs: u64, outputs: u64, shared: Option<&Tensor>) -> Self {
        Self::build(scope, [outputs, inputs], shared, true, Class::Head)
    }

    /// A head that shares the token embedding's weight.
    pub fn tied(scope: &Scope, weight: &Tensor) -> Self {
        Self::build(scope, [weight.size(0), weight.size(1)], Some(weight), false, Class::Head)
    }

    /// A head that shares the token embedding's weight and a bias that belongs to another module.
    pub fn tied_with_bias(scope: &Scope, weight: &Tensor, bias: Tensor) -> Self {
        let mut tied = Self::tied(scope, weight);
        if let Base::Full { bias: own, .. } = &mut tied.weights {
            *own = Some(scope.copy_of(&bias).unwrap_or(bias));
        }
        tied
    }

    fn build(scope: &Scope, sizes: [u64; 2], shared: Option<&Tensor>, bias: bool, class: Class) -> Self {
        let [outputs, inputs] = sizes;
        let head = class == Class::Head;
        let replaced = class != Class::Derived || !scope.cx().machine().rules.has(&rules::PLAIN_LINEARS);
        let module = scope.module();
        let lora = scope.adapter(head).cloned();
        let inner = if lora.is_some() { scope.child("base_layer") } else { scope.clone() };
        let weights = match scope.quantization(head).filter(|_| replaced) {
            Some(plan) if shared.is_none() => {
                Base::Quantized(Box::new(QuantizedLinear::new(&inner, plan, sizes, bias)))
            }
            _ => {
                let weight = match shared {
                    Some(weight) => {
                        inner.shares(weight);
                        weight.clone()
                    }
                    None => inner.original(&sizes),
                };
                let bias = bias.then(|| inner.original(&[outputs]));
                let copy = |tensor: Tensor| inner.copy_of(&tensor).unwrap_or(tensor);
                let (weight, bias) = (copy(weight), bias.map(copy));
                if head {
                    scope.cx().mark_outer(&weight);
                }
                Base::Full { weight, bias }
            }
        };
        let base = inner.module();
        let computes = match &weights {
            Base::Full { .. } => scope.dtype(),
            Base::Quantized(linear) => linear.adapted_in(),
        };
        let adapter = lora.map(|lora| Box::new(Adapter::new(scope, &lora, [inputs, outputs], computes)));
        Self { weights, module, base, adapter, spelled_out: false }
    }

    /// The weight and the bias of the layer itself, without what an adapter adds; `None` where they are quantized.
    pub fn plain(&self) -> Option<(&Tensor, Option<&Tensor>)> {
        match &self.weights {
            Base::Full { weight, bias } => Some((weight, bias.as_ref())),
            Base::Quantized(_) => None,
        }
    }

    /// `forward`.
    pub fn forward(&self, x: &Tensor) -> Tensor {
        let cx = x.cx();
        cx.within_given(self.module, x, || {
            let result = cx.within_given(self.base, x, || match &self.weights {
                Base::Full { weight, bias } if self.spelled_out => {
                    let product = ops::matmul(x, &ops::t(weight));
                    bias.as_ref().map_or_else(|| product.clone(), |bias| ops::add(&product, bias))
                }
                Base::Full { weight, bias } => ops::linear(x, weight, bias.as_ref()),
                Base::Quantized(linear) => linear.forward(x),
            });
            match &self.adapter {
                Some(adapter) => adapter.add_to(result, x, self.weights.under()),
                None => result,
            }
        })
    }
}

/// transformers' `Conv1D`: a linear whose weight is stored `[in, out]`, always with a bias. Quantized, it is a linear as
/// any other.
#[derive(Debug)]
pub struct Conv1D(Kind);

#[derive(Debug)]
enum Kind {
    Own { weight: Tensor, bias: Tensor, module: ModuleId, base: ModuleId, adapter: Option<Box<Adapter>> },
    Linear(Linear),
}

impl Conv1D {
    /// `Conv1D(outputs, inputs)`.
    pub fn new(scope: &Scope, outputs: u64, inputs: u64) -> Self {
        if scope.quantization(false).is_some() {
            scope.cx().mark_turned(scope.module());
            return Self(Kind::Linear(Linear::new(scope, inputs, outputs, true)));
        }
        let module = scope.module();
        let lora = scope.adapter(false).cloned();
        let inner = if lora.is_some() { scope.child("base_layer") } else { scope.clone() };
        let originals = [inner.original(&[inputs, outputs]), inner.original(&[outputs])];
        let [weight, bias] = originals.map(|tensor| inner.copy_of(&tensor).unwrap_or(tensor));
        let base = inner.module();
        let adapter = lora.map(|lora| Box::new(Adapter::new(scope, &lora, [inputs, outputs], scope.dtype())));
        Self(Kind::Own { weight, bias, module, base, adapter })
    }

    /// `forward`: `addmm` on the flattened rows.
    pub fn forward(&self, x: &Tensor) -> Tensor {
        let (weight, bias, module, base, adapter) = match &self.0 {
            Kind::Own { weight, bias, module, base, adapter } => (weight, bias, *module, *base, adapter),
            Kind::Linear(linear) => return linear.forward(x),
        };
        let cx = x.cx();
        cx.within_given(module, x, || {
            let result = cx.within_given(base, x, || {
                let columns = x.size(-1);
                let flat = ops::view(x, &[x.numel() / columns.max(1), columns]);
                let out = ops::addmm(bias, &flat, weight);
                let mut sizes = x.dims().to_vec();
                if let Some(last) = sizes.last_mut() {
                    *last = weight.size(1);
                }
                ops::view(&out, &sizes)
            });
            match adapter {
                Some(adapter) => adapter.add_to(result, x, Under::Full { weight, bias: Some(bias), transposed: true }),
                None => result,
            }
        })
    }
}
