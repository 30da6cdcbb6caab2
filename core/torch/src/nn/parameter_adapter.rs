//! peft's adapters on parameters that no linear holds: experts' stacked weights and their router's (`ParamWrapper` in
//! `tuners/lora/layer.py`). The parameter is parametrized while its module runs: whoever asks for it gets the sum of it and
//! of the adapter's product, made once and kept until the module is done.

use std::cell::OnceCell;

use super::scope::Scope;
use crate::ops;
use crate::tensor::{DType, Tensor};

/// `lora_A` and `lora_B` of a parameter.
#[derive(Debug)]
pub struct ParameterAdapter {
    a: Tensor,
    b: Tensor,
    /// How many matrices are stacked in the parameter.
    count: u64,
}

impl ParameterAdapter {
    /// Of rank `rank` on `count` matrices from `inputs` to `outputs` features each, the wrapper standing at `scope`.
    pub fn new(scope: &Scope, rank: u64, count: u64, [outputs, inputs]: [u64; 2]) -> Self {
        let place = |name: &'static str| scope.child(name).child("default");
        let rows = rank.saturating_mul(count);
        Self {
            a: place("lora_A").adapter_parameter(&[rows, inputs], scope.dtype()),
            b: place("lora_B").adapter_parameter(&[outputs, rows], scope.dtype()),
            count,
        }
    }

    /// `_activate_lora`: the parameter as its module sees it. `register_parametrization` tries the sum once and lets go of it.
    pub fn activate<'p>(&self, parameter: &'p Tensor) -> Parametrized<'p> {
        let dtype = parameter.dtype();
        let proxy = if self.count > 1 { self.factors(dtype) } else { self.delta(dtype) };
        drop(proxy.applied_to(parameter));
        Parametrized { sum: OnceCell::new(), proxy, parameter }
    }

    /// `get_delta_factors`, of experts whose weights lie as `[experts, out, in]`.
    fn factors(&self, dtype: DType) -> Proxy {
        let (outputs, inputs) = (self.b.size(0), self.a.size(1));
        let rank = self.a.size(0) / self.count.max(1);
        let a = ops::reshape(&self.a, &[self.count, rank, inputs]);
        let b = ops::permute(&ops::reshape(&self.b, &[outputs, rank, self.count]), &[2, 0, 1]);
        Proxy::Factors(ops::to(&b, dtype), ops::to(&a, dtype))
    }

    /// `get_delta_weight` of a single matrix.
    fn delta(&self, dtype: DType) -> Proxy {
        let scaled = {
            let product = ops::matmul(&self.b, &self.a);
            ops::mul_scalar(&product)
        };
        Proxy::Delta(ops::to(&scaled, dtype))
    }
}

/// What is added to the parameter.
#[derive(Debug)]
enum Proxy {
    /// `_LoraFactorsProxy`: a product of two.
    Factors(Tensor, Tensor),
    /// `_LoraParameterProxy`.
    Delta(Tensor),
}

impl Proxy {
    fn applied_to(&self, parameter: &Tensor) -> Tensor {
        match self {
            // In the parameter's dtype, whatever autocast says.
            Self::Factors(left, right) => parameter.cx().without_autocast(|| ops::baddbmm(parameter, left, right)),
            Self::Delta(delta) => ops::add(parameter, delta),
        }
    }
}

/// A parameter while the module that has it runs. The sum goes before what it is made of.
#[derive(Debug)]
pub struct Parametrized<'p> {
    sum: OnceCell<Tensor>,
    proxy: Proxy,
    parameter: &'p Tensor,
}

impl Parametrized<'_> {
    /// The sum, made where it is first asked for (`parametrize.cached()`).
    pub fn get(&self) -> Tensor {
        self.sum.get_or_init(|| self.proxy.applied_to(self.parameter)).clone()
    }

    /// The module is done, but one around it still caches: what the sum is made of goes first. Returns the sum.
    pub fn leave(self) -> Option<Tensor> {
        drop(self.proxy);
        self.sum.into_inner()
    }
}
