//! bitsandbytes' four-bit weights and the product with one (`functional.py`, `autograd/_functions.py`,
//! `backends/cuda/ops.py` of bitsandbytes 0.50).

use std::rc::Rc;

use super::cast::to;
use super::matmul::linear;
use crate::tensor::{Context, DType, Geometry, Tape, Tensor, grads};

/// Numbers a scale stands for (`Params4bit`'s `blocksize`).
pub const BLOCK: u64 = 64;

/// Scales that share a scale of their own, where they are quantized once more (`quantize_4bit`).
pub const NESTED_BLOCK: u64 = 256;

/// The most rows the fused kernel takes whatever the card (`_GEMM_4BIT_CUSTOM_FLOOR_M`). From there to 1536 it depends
/// on the card and the sizes; the estimate takes the weight as dequantized, which is the larger.
const FUSED_ROWS: u64 = 4;

/// The scales of the scales (`QuantState.state2`), their code and the mean of the scales.
type Nested = [Tensor; 3];

/// `Params4bit` on the device with its `QuantState`: a matrix in two numbers a byte and a scale a block.
#[derive(Clone, Debug)]
pub struct FourBit {
    #[allow(dead_code, reason = "held alive, as Python holds it")]
    data: Tensor,
    absmax: Tensor,
    #[allow(dead_code, reason = "held alive, as Python holds it")]
    code: Tensor,
    nested: Option<Nested>,
    sizes: [u64; 2],
    dtype: DType,
}

impl FourBit {
    /// A matrix `[out, in]` quantized from `dtype`; `double` quantizes the scales too.
    pub fn new(cx: &Rc<Context>, sizes: [u64; 2], dtype: DType, double: bool) -> Self {
        let numbers = sizes[0].saturating_mul(sizes[1]);
        let blocks = numbers.div_ceil(BLOCK);
        let make = |op, sizes: &[u64], dtype| cx.empty_sizes(op, sizes, dtype);
        let data = make("quantize_4bit", &[numbers.div_ceil(2), 1], DType::UInt8);
        // The sixteen numbers of NF4.
        let code = || make("_to_copy", &[16], DType::Float32);
        if !double {
            let absmax = make("quantize_4bit", &[blocks], DType::Float32);
            return Self { data, absmax, code: code(), nested: None, sizes, dtype };
        }
        let code = code();
        let offset = make("mean", &[], DType::Float32);
        let absmax = make("quantize_blockwise", &[blocks], DType::UInt8);
        let scales = make("quantize_blockwise", &[blocks.div_ceil(NESTED_BLOCK)], DType::Float32);
        // Every weight has a copy of its own of the map of eight-bit numbers.
        let map = make("_to_copy", &[256], DType::Float32);
        Self { data, absmax, code, nested: Some([scales, map, offset]), sizes, dtype }
    }

    /// `dequantize_4bit`: the whole weight in the dtype it was quantized from.
    pub fn dequantize(&self, cx: &Rc<Context>) -> Tensor {
        // The scales in float32; their mean is added in place.
        let scales = self
            .nested
            .as_ref()
            .map(|_| cx.empty("dequantize_blockwise", Geometry::contiguous(self.absmax.dims()), DType::Float32));
        let weight = cx.empty_sizes("dequantize_4bit", &self.sizes, self.dtype);
        drop(scales);
        weight
    }
}

/// `matmul_4bit(x, weight, bias)`; the weight and the bias are frozen. Nothing of the input is kept: its gradient needs
/// the weight alone, which is dequantized again.
pub fn matmul_4bit(x: &Tensor, weight: &FourBit, bias: Option<&Tensor>) -> Tensor {
    let tape = Tape::new(x.cx(), "MatMul4BitBackward", &[x]);
    let mut out = x.cx().no_grad(|| gemm_4bit(x, weight, bias));
    let weight = weight.clone();
    tape.record([&mut out], move |g| {
        let whole = to(&weight.dequantize(g.cx()), g.grad().dtype());
        grads([Some(super::matmul::matmul_cast(g.grad(), &whole))])
    });
    out
}

/// `_dequant_linear_fallback`, or for a few rows the fused kernel, which needs nothing but its output.
fn gemm_4bit(x: &Tensor, weight: &FourBit, bias: Option<&Tensor>) -> Tensor {
    let (cx, [outputs, inputs]) = (x.cx(), weight.sizes);
    if x.numel() / inputs.max(1) <= FUSED_ROWS && inputs.is_multiple_of(BLOCK) {
        let mut sizes = x.dims().to_vec();
        if let Some(last) = sizes.last_mut() {
            *last = outputs;
        }
        return cx.empty_sizes("gemm_4bit", &sizes, x.dtype());
    }
    let scales = weight.nested.as_ref().map(|_| {
        let scales = |op| cx.empty(op, Geometry::contiguous(weight.absmax.dims()), DType::Float32);
        (scales("dequantize_blockwise"), scales("add.Tensor"))
    });
    let whole = cx.empty_sizes("dequantize_4bit", &weight.sizes, x.dtype());
    let out = linear(x, &whole, bias);
    drop((scales, whole));
    out
}
