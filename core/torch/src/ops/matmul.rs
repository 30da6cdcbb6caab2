//! Matrix products: `mm`, `addmm`, `bmm`, and how `linear` and `matmul` come down to them.

use plimsoll_catalog::software::rules;

use super::cast::lower_precision;
use super::view::{contiguous, expand, reshape, transpose, unsafe_view, view};
use crate::tensor::{Geometry, Gradients, Tape, Tensor, grads};
use crate::{GradFn, Op};

/// `self.t()` of a matrix.
pub fn t(x: &Tensor) -> Tensor {
    let tape = Tape::new(x.cx(), GradFn::TBackward0, &[x]);
    let mut out = x.view_as(x.geometry().transposed(0, 1));
    tape.record([&mut out], |g| grads([Some(g.grad().view_as(g.grad().geometry().transposed(0, 1)))]));
    out
}

/// Operations of the product of `x [..., inner]` by `[..., inner, columns]`: a multiplication and an addition each.
pub(super) fn linear_flops(x: &Tensor, columns: u64) -> u64 {
    x.numel().saturating_mul(columns).saturating_mul(2)
}

/// The gradient of a matmul operand, in the operand's own memory order: a column-major operand gets its gradient as
/// the transpose of a row-major product (`mm_mat1_grad`, `mm_mat2_grad` in `FunctionsManual.cpp`). `other` is the other
/// operand; the product takes as many operations as the forward's.
fn operand_gradient(g: &Gradients<'_>, operand: &Geometry, other: &Tensor, flops: u64) -> Tensor {
    let (rows, columns) = (operand.size(0), operand.size(1));
    let column_major = operand.strides()[0] == 1 && operand.strides()[1] == rows;
    let sizes = if column_major { [columns, rows] } else { [rows, columns] };
    let product = g.cx().launch(Op::Mm, &[g.grad(), other]).flops(flops).make_sizes(&sizes, other.dtype());
    g.cx().blas();
    if column_major { product.view_as(product.geometry().transposed(0, 1)) } else { product }
}

/// `mm(a, b)`.
fn mm(a: &Tensor, b: &Tensor) -> Tensor {
    let tape = Tape::new(a.cx(), GradFn::MmBackward0, &[a, b]);
    let saved_b = tape.save_if(tape.needs(0), b);
    let saved_a = tape.save_if(tape.needs(1), a);
    let flops = linear_flops(a, b.size(1));
    let mut out = a.cx().kept(Op::Mm, || {
        let out = a.cx().launch(Op::Mm, &[a, b]).flops(flops).make_sizes(&[a.size(0), b.size(1)], a.dtype());
        a.cx().blas();
        out
    });
    let (left, right) = (a.geometry().clone(), b.geometry().clone());
    tape.record([&mut out], move |g| {
        let (b, a) = (saved_b.get(), saved_a.get());
        let mat2 = a.as_ref().map(|a| operand_gradient(g, &right, a, flops));
        let this = b.as_ref().map(|b| operand_gradient(g, &left, b, flops));
        grads([this, mat2])
    });
    out
}

/// `addmm(bias, a, b)`: on autocast's lower-precision list.
pub fn addmm(bias: &Tensor, a: &Tensor, b: &Tensor) -> Tensor {
    // The compiler evaluates the casts of a call's arguments from the last to the first.
    let b = lower_precision(b);
    let a = lower_precision(a);
    let bias = lower_precision(bias);
    addmm_cast(&bias, &a, &b)
}

/// cuBLASLt adds the bias where the weight has more than one row and column (`isInputCompliesAddmmCudaLt` in
/// `aten/src/ATen/native/cuda/Blas.cpp`), in PyTorch 2.10 where it multiplies more than one row.
pub(super) fn addmm_cast(bias: &Tensor, a: &Tensor, b: &Tensor) -> Tensor {
    let tape = Tape::new(a.cx(), GradFn::AddmmBackward0, &[bias, a, b]);
    let saved_a = tape.save_if(tape.needs(2), a);
    let saved_b = tape.save_if(tape.needs(1), b);
    let flops = linear_flops(a, b.size(1));
    let mut out = a.cx().kept(Op::Addmm, || {
        let out = a.cx().launch(Op::Addmm, &[a, b, bias]).flops(flops).make_sizes(&[a.size(0), b.size(1)], a.dtype());
        let rules = a.cx().machine().rules;
        let rows = rules.has(&rules::LT_WANTS_ROWS) && !rules.has(&rules::LT_TAKES_A_ROW);
        if b.size(0).min(b.size(1)) > 1 && (!rows || a.size(0) > 1) {
            a.cx().blas_with_bias();
        } else {
            a.cx().blas();
        }
        out
    });
    let (left, right) = (a.geometry().clone(), b.geometry().clone());
    tape.record([&mut out], move |g| {
        let (a, b) = (saved_a.get(), saved_b.get());
        let mat1 = b.as_ref().map(|b| operand_gradient(g, &left, b, flops));
        let mat2 = a.as_ref().map(|a| operand_gradient(g, &right, a, flops));
        grads([g.needs(0).then(|| g.grad().clone()), mat1, mat2])
    });
    out
}

/// `bmm(a, b)`: on autocast's lower-precision list.
pub fn bmm(a: &Tensor, b: &Tensor) -> Tensor {
    let b = lower_precision(b);
    let a = lower_precision(a);
    bmm_cast(&a, &b)
}

fn bmm_cast(a: &Tensor, b: &Tensor) -> Tensor {
    let tape = Tape::new(a.cx(), GradFn::BmmBackward0, &[a, b]);
    let saved_b = tape.save_if(tape.needs(0), b);
    let saved_a = tape.save_if(tape.needs(1), a);
    let flops = linear_flops(a, b.size(2));
    let mut out = a.cx().kept(Op::Bmm, || {
        let sizes = [a.size(0), a.size(1), b.size(2)];
        let out = a.cx().launch(Op::Bmm, &[a, b]).flops(flops).make_sizes(&sizes, a.dtype());
        a.cx().blas();
        out
    });
    let (left, right) = (a.geometry().clone(), b.geometry().clone());
    tape.record([&mut out], move |g| {
        let (b, a) = (saved_b.get(), saved_a.get());
        let product = |sizes: &Geometry, other: &Tensor| {
            let out = g.cx().launch(Op::Bmm, &[g.grad(), other]).flops(flops).make_sizes(sizes.dims(), other.dtype());
            g.cx().blas();
            out
        };
        let mat2 = a.as_ref().map(|a| product(&right, a));
        let this = b.as_ref().map(|b| product(&left, b));
        grads([this, mat2])
    });
    out
}

/// `base.baddbmm(a, b, beta, alpha)` of a base without a gradient: on autocast's lower-precision list.
pub fn baddbmm(base: &Tensor, a: &Tensor, b: &Tensor) -> Tensor {
    let b = lower_precision(b);
    let a = lower_precision(a);
    let base = lower_precision(base);
    let tape = Tape::new(a.cx(), GradFn::BaddbmmBackward0, &[&a, &b]);
    let saved_a = tape.save_if(tape.needs(1), &a);
    let saved_b = tape.save_if(tape.needs(0), &b);
    let flops = linear_flops(&a, b.size(2));
    let mut launch = a.cx().launch(Op::Baddbmm, &[&a, &b, &base]).flops(flops);
    let mut out = launch.make_sizes(&[a.size(0), a.size(1), b.size(2)], base.dtype());
    drop(launch);
    a.cx().blas();
    let (left, right) = (a.geometry().clone(), b.geometry().clone());
    tape.record([&mut out], move |g| {
        let (b, a) = (saved_b.get(), saved_a.get());
        // maybe_multiply(product, alpha)
        let scaled = |sizes: &Geometry, other: &Tensor| {
            let product =
                g.cx().launch(Op::Bmm, &[g.grad(), other]).flops(flops).make_sizes(sizes.dims(), other.dtype());
            g.cx().blas();
            g.like(Op::MulTensor, &product, &[])
        };
        let batch1 = b.as_ref().map(|b| scaled(&left, b));
        let batch2 = a.as_ref().map(|a| scaled(&right, a));
        grads([batch1, batch2])
    });
    out
}

/// `linear(x, weight [out, in], bias)` as `aten/src/ATen/native/Linear.cpp` dispatches it.
pub fn linear(x: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Tensor {
    if x.cx().has_linear_function() {
        return super::linear_function::apply(x, weight, bias);
    }
    let bias = bias.map(lower_precision);
    let weight = lower_precision(weight);
    let x = lower_precision(x);
    let rank = x.geometry().rank();
    match bias {
        Some(bias) if rank == 2 => addmm_cast(&bias, &x, &t(&weight)),
        Some(bias) if x.geometry().is_contiguous() => {
            let flat = flatten_rows(&x);
            let out = addmm_cast(&bias, &flat, &t(&weight));
            view(&out, &with_last(&x, weight.size(0)))
        }
        Some(bias) => {
            // `output.add_(*bias)`: as in attention's fallback, in a sum of its own where a dispatch mode looks on.
            let out = matmul_cast(&x, &t(&weight));
            let in_place = x.cx().machine().kernels.is_counted() && !x.cx().is_dispatched();
            if in_place { super::add_in_place(out, &bias) } else { super::elementwise::add(&out, &bias) }
        }
        None => matmul_cast(&x, &t(&weight)),
    }
}

fn with_last(x: &Tensor, last: u64) -> Vec<u64> {
    let mut sizes = x.dims().to_vec();
    if let Some(n) = sizes.last_mut() {
        *n = last;
    }
    sizes
}

/// `[..., k]` as `[rows, k]`.
fn flatten_rows(x: &Tensor) -> Tensor {
    let columns = x.size(-1);
    reshape(x, &[x.numel() / columns.max(1), columns])
}

/// `torch.matmul(a, b)`: on autocast's lower-precision list.
pub fn matmul(a: &Tensor, b: &Tensor) -> Tensor {
    let b = lower_precision(b);
    let a = lower_precision(a);
    matmul_cast(&a, &b)
}

/// `_matmul_impl` in `LinearAlgebra.cpp`: a matrix on the right folds the left operand's rows; else a batched product.
pub(super) fn matmul_cast(a: &Tensor, b: &Tensor) -> Tensor {
    match (a.geometry().rank(), b.geometry().rank()) {
        (2, 2) => mm(a, b),
        (_, 2) if should_fold(a, b) => {
            let out = mm(&flatten_rows(a), b);
            unsafe_view(&out, &with_last(a, b.size(1)))
        }
        // should_fold(): a matrix that wants a gradient is not expanded to the batch on its right; the folded product
        // comes out transposed and is put right by a copy.
        (2, 3..) if a.requires_grad() => {
            let rows = transpose(b, -2, -1);
            let out = mm(&flatten_rows(&rows), &t(a));
            contiguous(&transpose(&unsafe_view(&out, &with_last(&rows, a.size(0))), -2, -1))
        }
        (ra, rb) => {
            let batch: Vec<u64> = if ra >= rb { a.dims()[..ra - 2].to_vec() } else { b.dims()[..rb - 2].to_vec() };
            let count: u64 = batch.iter().product();
            let left = batched(a, &batch, count);
            let right = batched(b, &batch, count);
            let out = bmm_cast(&left, &right);
            let mut sizes = batch;
            sizes.extend([a.size(-2), b.size(-1)]);
            unsafe_view(&out, &sizes)
        }
    }
}

/// `should_fold` for a matrix on the right: rows are folded where that is a view, and where the matrix wants a gradient,
/// whose expanded form would be as large as the batch.
fn should_fold(a: &Tensor, b: &Tensor) -> bool {
    let (sizes, strides) = (a.dims(), a.geometry().strides());
    let leading = a.geometry().rank().saturating_sub(2);
    b.requires_grad() || (0..leading).all(|i| strides[i] == strides[i + 1].saturating_mul(sizes[i + 1]))
}

/// `x.expand(batch + matrix).reshape([count, rows, columns])`.
fn batched(x: &Tensor, batch: &[u64], count: u64) -> Tensor {
    let mut sizes = batch.to_vec();
    sizes.extend([x.size(-2), x.size(-1)]);
    reshape(&expand(x, &sizes), &[count, x.size(-2), x.size(-1)])
}
