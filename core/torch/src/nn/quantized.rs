//! bitsandbytes' `Linear4bit` and `Linear8bitLt`, in the place of a frozen `nn.Linear` or `Conv1D`.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use plimsoll_catalog::software::rules;
use plimsoll_scenario::Quantization;

use super::quantization_plan::QuantizationPlan;
use super::scope::Scope;
use crate::ops::{self, EightBit, FourBit};
use crate::tensor::{Context, DType, Kind, Tensor};

/// The quantized weight.
#[derive(Debug)]
enum Weight {
    Four(Box<FourBit>),
    Eight(EightBit),
}

/// A linear with a quantized weight and, where it has one, a bias that is not.
#[derive(Debug)]
pub struct QuantizedLinear {
    weight: Weight,
    /// Cast to the input's dtype at the first forward.
    bias: RefCell<Option<Tensor>>,
    /// `compute_dtype`, which before 0.47 a first input in float32 or bfloat16 changed.
    compute: Cell<DType>,
    /// `compute_type_is_set`
    is_set: Cell<bool>,
    adapted: DType,
}

impl QuantizedLinear {
    /// A linear `[out, in]`.
    pub fn new(scope: &Scope, plan: &QuantizationPlan, sizes: [u64; 2], bias: bool) -> Self {
        let cx = scope.cx();
        scope.count_packed(sizes[0].saturating_mul(sizes[1]));
        let weight = cx.within(scope.module(), || match plan.quantization {
            Quantization::Int8 => {
                let scales = EightBit::scales(cx, sizes);
                let data = scope.packed_parameter(&sizes, DType::Int8, || EightBit::numbers(cx, sizes));
                Weight::Eight(EightBit::of(data, scales, sizes))
            }
            other => {
                let double = (other == Quantization::Nf4Double).then_some(&plan.map);
                let packed = FourBit::packed(sizes, plan.storage);
                let make = || FourBit::numbers(cx, sizes, plan.storage);
                let data = scope.packed_parameter(&packed, plan.storage, make);
                Weight::Four(Box::new(FourBit::of(cx, data, sizes, plan.compute, double)))
            }
        });
        let bias = bias.then(|| {
            scope.count_packed(sizes[0]);
            scope.unlisted_parameter(&sizes[..1])
        });
        let is_set = cx.machine().rules.has(&rules::COMPUTE_AS_SAID);
        let adapted = match &weight {
            Weight::Four(_) => FourBit::adapted_in(cx, plan.compute, plan.storage),
            Weight::Eight(_) => DType::Float32,
        };
        Self { weight, bias: RefCell::new(bias), compute: Cell::new(plan.compute), is_set: Cell::new(is_set), adapted }
    }

    /// Which of the two it is.
    pub const fn is_four_bit(&self) -> bool {
        matches!(self.weight, Weight::Four(_))
    }

    /// What peft makes adapters of it in, before it widens them; of an eight-bit one they stay as they were made.
    pub const fn adapted_in(&self) -> DType {
        self.adapted
    }

    /// `forward`.
    pub fn forward(&self, x: &Tensor) -> Tensor {
        match &self.weight {
            Weight::Four(weight) => {
                let dtype = x.dtype();
                if !self.is_set.replace(true) && dtype != DType::Float16 {
                    self.compute.set(dtype);
                }
                let compute = self.compute.get();
                let fused = x.cx().machine().rules.has(&rules::FUSED_FOUR_BIT);
                let of_layer = (!fused).then(|| self.cast_bias(x)).flatten();
                let x = ops::to(x, compute);
                let bias = if fused { self.cast_bias(&x) } else { of_layer.map(|bias| ops::to(&bias, compute)) };
                let out = ops::matmul_4bit(&x, weight, bias.as_ref());
                ops::to(&out, dtype)
            }
            Weight::Eight(weight) => {
                self.cast_bias(x);
                let out = ops::matmul_8bit(x, weight);
                weight.replaced(x.cx());
                out
            }
        }
    }

    /// `self.bias.data = self.bias.data.to(x.dtype)`: for good.
    fn cast_bias(&self, x: &Tensor) -> Option<Tensor> {
        let bias = self.bias.borrow().clone()?;
        if bias.dtype() == x.dtype() {
            return Some(bias);
        }
        x.cx().recast_for_good();
        let cast = x.cx().counting_as(Kind::Parameter, || ops::to(&bias, x.dtype()));
        self.bias.replace(Some(cast.clone()));
        Some(cast)
    }

    /// `dequantize_module_weight`: the whole weight, as DoRA wants it.
    pub fn dequantize(&self, cx: &Rc<Context>) -> Tensor {
        match &self.weight {
            Weight::Four(weight) => weight.dequantize(cx),
            Weight::Eight(weight) => weight.dequantize(cx),
        }
    }

    /// Its bias.
    pub fn bias(&self) -> Option<Tensor> {
        self.bias.borrow().clone()
    }
}
