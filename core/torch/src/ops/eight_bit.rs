//! bitsandbytes' eight-bit weights and the product with one (`MatMul8bitLt` in `autograd/_functions.py`,
//! `backends/{cuda,default}/ops.py` of bitsandbytes 0.50).
//!
//! Which columns of the activations are outliers depends on the data; none are assumed.

use std::rc::Rc;

use plimsoll_ground::{Error, Reason};

use super::cast::to;
use super::matmul::linear_flops;
use super::plain::{Fill, Reduction, fill, reduction};
use super::view::reshape;
use crate::tensor::{Context, DType, Tape, Tensor, grads};
use crate::{GradFn, Op};

/// `Int8Params` on the device: a matrix in int8 and a scale a row.
#[derive(Clone, Debug)]
pub struct EightBit {
    data: Tensor,
    scales: Tensor,
    sizes: [u64; 2],
}

impl EightBit {
    /// A matrix `[out, in]`.
    #[cfg(test)]
    pub fn new(cx: &Rc<Context>, sizes: [u64; 2]) -> Self {
        let scales = Self::scales(cx, sizes);
        Self::of(Self::numbers(cx, sizes), scales, sizes)
    }

    /// A matrix of these numbers and scales.
    pub const fn of(data: Tensor, scales: Tensor, sizes: [u64; 2]) -> Self {
        Self { data, scales, sizes }
    }

    /// The scales of a matrix `[out, in]`.
    pub fn scales(cx: &Rc<Context>, sizes: [u64; 2]) -> Tensor {
        cx.empty_sizes(Op::Int8VectorwiseQuant, &sizes[..1], DType::Float32)
    }

    /// Its numbers.
    pub fn numbers(cx: &Rc<Context>, sizes: [u64; 2]) -> Tensor {
        cx.empty_sizes(Op::Int8VectorwiseQuant, &sizes, DType::Int8)
    }

    /// `self.weight.data = self.state.CB`, behind every forward: what was gathered for it goes.
    pub fn replaced(&self, cx: &Rc<Context>) {
        cx.replaced(&self.data);
    }

    /// `int8_vectorwise_dequant`: the whole weight in float32.
    pub fn dequantize(&self, cx: &Rc<Context>) -> Tensor {
        let scaled = cx.launch(Op::MulTensor, &[&self.data, &self.scales]).make_sizes(&self.sizes, DType::Float32);
        // times 1/127
        let weight = cx.launch(Op::MulTensor, &[&scaled]).make_sizes(&self.sizes, DType::Float32);
        drop(scaled);
        weight
    }

    /// `CB.to(dtype, copy=True).mul_(SCB.unsqueeze(1).mul(1 / 127))`.
    fn in_dtype(&self, cx: &Rc<Context>, dtype: DType) -> Tensor {
        let weight = cx.launch(Op::ToCopy, &[&self.data]).make_sizes(&self.sizes, dtype);
        let scales = cx.launch(Op::MulTensor, &[&self.scales]).make_sizes(&[self.scales.size(0), 1], DType::Float32);
        cx.in_place(Op::MulInPlace, &weight, &[&scales]);
        drop(scales);
        weight
    }
}

/// `matmul(x, weight, threshold=6.0)`; the weight is frozen, and so is a bias, which is added in place or in the kernel.
/// The node holds the input as a plain attribute: no checkpoint sees it, and it lives until the graph goes.
pub fn matmul_8bit(x: &Tensor, weight: &EightBit) -> Tensor {
    let cx = x.cx();
    if x.geometry().rank() > 3 {
        cx.refuse(|| {
            let module = cx.path(cx.current_module());
            let problem = format!(
                "{module} is given {} dimensions, and bitsandbytes multiplies eight-bit weights with two or three",
                x.geometry().rank()
            );
            Error::new("training.quantization", problem, "use nf4 or nf4-double").because(Reason::ManyDimensions)
        });
    }
    let mut tape = Tape::new(cx, GradFn::MatMul8bitLtBackward, &[x]);
    let mut out = cx.no_grad(|| {
        let rows = reshape(x, &[x.numel() / x.size(-1).max(1), x.size(-1)]);
        let (quantized, scales) = quantize(&rows);
        let mut product = int8_scaled_mm(x.dtype(), &quantized, &scales, weight);
        drop((quantized, scales));
        tape.keep(&rows);
        if x.geometry().rank() != 2 {
            let mut sizes = x.dims().to_vec();
            if let Some(last) = sizes.last_mut() {
                *last = weight.sizes[0];
            }
            product = reshape(&product, &sizes);
        }
        product
    });
    let (weight, dtype) = (weight.clone(), x.dtype());
    let sizes = x.dims().to_vec();
    tape.record([&mut out], move |g| {
        let grad = g.grad();
        let flat = reshape(grad, &[grad.numel() / grad.size(-1).max(1), grad.size(-1)]);
        let whole = weight.in_dtype(g.cx(), dtype);
        let product = super::matmul::matmul_cast(&to(&flat, dtype), &whole);
        grads([Some(super::view::view(&product, &sizes))])
    });
    out
}

/// `int8_vectorwise_quant(x.to(float16), threshold)`: the rows in int8 and a scale each.
fn quantize(rows: &Tensor) -> (Tensor, Tensor) {
    let cx = rows.cx();
    let half = to(rows, DType::Float16);
    let mut launch = cx.launch(Op::Int8VectorwiseQuant, &[&half]);
    let scales = launch.make_sizes(&[rows.size(0)], DType::Float32);
    let quantized = launch.make_sizes(rows.dims(), DType::Int8);
    drop(launch);
    let outliers = {
        let absolute = cx.launch(Op::Abs, &[&half]).make_sizes(rows.dims(), DType::Float16);
        cx.launch(Op::GeScalar, &[&absolute]).make_sizes(rows.dims(), DType::Bool)
    };
    drop(reduction(Reduction::Any, &outliers, &[], DType::Bool));
    if rows.size(0) > 1 && cx.machine().kernels.is_counted() {
        // out_row[:, outlier_cols] = 0: no columns, and a number on the card, which fake tensors leave on the host.
        drop(fill(cx, Fill::ScalarTensor, &[], DType::Int8));
    }
    drop((outliers, half));
    (quantized, scales)
}

/// The product in int32, then in float16, then in the input's dtype.
fn int8_scaled_mm(dtype: DType, rows: &Tensor, scales: &Tensor, weight: &EightBit) -> Tensor {
    let cx = rows.cx();
    let sizes = [rows.size(0), weight.sizes[0]];
    let flops = linear_flops(rows, sizes[1]);
    let mut launch = cx.launch(Op::Int8LinearMatmul, &[rows, &weight.data]).flops(flops);
    let product = launch.make_sizes(&sizes, DType::Int32);
    drop(launch);
    if !rows.size(-1).is_multiple_of(4) && cx.machine().kernels.is_counted() {
        // cuBLASLt multiplies no such rows in int8: `_int8_linear_matmul_impl` has float32, or what autocast makes of that, where no
        // selective checkpoint has come between.
        let wide = to(rows, DType::Float32);
        let all = to(&weight.data, DType::Float32);
        let product = || super::matmul::matmul(&wide, &super::view::transpose(&all, 0, 1));
        let dispatched = cx.is_dispatched();
        let whole = cx.inside_operator(|| if dispatched { cx.without_autocast(product) } else { product() });
        drop((wide, all));
        drop(to(&whole, DType::Int32));
    }
    let half = cx.launch(Op::Int8MmDequant, &[&product, scales, &weight.scales]).make_sizes(&sizes, DType::Float16);
    let out = to(&half, dtype);
    drop((half, product));
    out
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::{EightBit, matmul_8bit};
    use crate::ops::neg;
    use crate::tensor::testing::{activation, alive, backward_of, forward, live, made, watch};
    use crate::tensor::{Kind, Tensor, checkpoint};

    #[test]
    fn a_weight_takes_a_byte_a_number_and_a_scale_a_row() {
        let cx = forward();
        let _weight = EightBit::new(&cx, [32, 64]);
        assert_eq!(live(&cx), 32 * 64 + 32 * 4);
    }

    /// The input is brought to float16 and quantized, the product comes out in int32, then float16, then the input's dtype.
    #[test]
    fn a_product_goes_through_int32() {
        let cx = forward();
        let weight = EightBit::new(&cx, [32, 64]);
        let (events, out) = watch(&cx, || matmul_8bit(&neg(&activation(&cx, &[2, 8, 64])), &weight));
        let ops =
            ["rand", "neg", "_to_copy", "int8_vectorwise_quant", "int8_vectorwise_quant", "abs", "ge.Scalar", "any"];
        assert_eq!(made(&events)[..8], ops);
        assert_eq!(made(&events)[8..], ["int8_linear_matmul", "int8_mm_dequant", "_to_copy"]);
        assert!(events.contains(&"+int8_linear_matmul [16, 32] int32".to_owned()));
        assert_eq!(alive(&cx, Kind::Saved), ["neg [2, 8, 64] float32"]);
        // The weight is unpacked to the input's dtype, with the scales over 127 beside it.
        assert_eq!(made(&backward_of(out)), ["ones_like", "_to_copy", "mul.Tensor", "mm", "neg"]);
    }

    /// `ctx.tensors = (CAt, subA, A)` is no saved tensor: a checkpoint does not defer it, and backward does not free it.
    #[test]
    fn the_input_lives_until_the_graph_goes() {
        let cx = forward();
        let weight = EightBit::new(&cx, [64, 64]);
        let x = activation(&cx, &[8, 64]);
        let out = checkpoint(&cx, vec![x], Rc::new(move |inputs: &[Tensor]| matmul_8bit(&neg(&inputs[0]), &weight)));
        assert_eq!(alive(&cx, Kind::Saved), ["neg [8, 64] float32"]);
        let graph = out.clone();
        backward_of(out);
        assert_eq!(alive(&cx, Kind::Saved), ["neg [8, 64] float32"], "and the recomputed one went with its graph");
        drop(graph);
        assert!(alive(&cx, Kind::Saved).is_empty());
    }
}
