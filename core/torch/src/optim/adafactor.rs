//! transformers' `Adafactor` (`transformers/optimization.py`) with `scale_parameter=False, relative_step=False`,
//! `beta1=None`: one parameter after the other, in float32.

use std::rc::Rc;

use super::{Optimizer, with_gradients};
use crate::Op;
use crate::ops::inside;
use crate::tensor::{Context, DType, Geometry, Kind, Tensor};

/// Row and column statistics of matrices, a full second moment of vectors, and the parameter's RMS.
#[derive(Debug, Default)]
pub struct Adafactor {
    states: Vec<Option<State>>,
}

#[derive(Debug)]
struct State {
    moments: Vec<Tensor>,
    rms: Option<Tensor>,
}

/// `step()`'s names: each holds its tensor until the next parameter's takes it.
#[derive(Debug, Default)]
struct Locals {
    grad: Option<Tensor>,
    p_data_fp32: Option<Tensor>,
    update: Option<Tensor>,
}

/// A float32 result of `op`.
fn result(cx: &Rc<Context>, op: Op, operands: &[&Tensor], sizes: &[u64]) -> Tensor {
    cx.launch(op, operands).make_sizes(sizes, DType::Float32)
}

/// `tensor.norm(2) / numel ** 0.5`.
fn rms(x: &Tensor) -> Tensor {
    let cx = x.cx();
    let norm = result(cx, Op::LinalgVectorNorm, &[x], &[]);
    drop(inside::sum(cx, Op::LinalgVectorNorm, x.geometry(), |_| true, DType::Float32));
    let out = result(cx, Op::DivTensor, &[&norm], &[]);
    drop(norm);
    out
}

impl State {
    fn new(cx: &Rc<Context>, p: &Tensor) -> Self {
        let dims = p.dims();
        let moments = cx.counting_as(Kind::OptimizerState, || match dims {
            [lead @ .., rows, columns] => {
                // torch.zeros(shape).to(grad): made on the host, copied over.
                let shape = |last: u64| [lead, &[last]].concat();
                vec![result(cx, Op::ToCopy, &[], &shape(*rows)), result(cx, Op::ToCopy, &[], &shape(*columns))]
            }
            _ => vec![result(cx, Op::ZerosLike, &[], dims)],
        });
        Self { moments, rms: None }
    }
}

impl Optimizer for Adafactor {
    fn step(&mut self, cx: &Rc<Context>, parameters: &[Tensor]) {
        self.states.resize_with(parameters.len(), || None);
        let mut locals = Locals::default();
        for (i, p) in with_gradients(parameters) {
            // `grad = p.grad` lets go of the last parameter's float copy first.
            locals.grad = None;
            let known = &mut self.states[i];
            cx.owned_by(p, || update(cx, p, known, &mut locals));
        }
        drop(locals);
    }
}

/// What a step does with one parameter.
fn update(cx: &Rc<Context>, p: &Tensor, known: &mut Option<State>, locals: &mut Locals) {
    let dims = p.dims();
    let half = p.dtype().is_half();
    // `.float()` of the gradient, which is like the parameter.
    locals.grad = half.then(|| result(cx, Op::ToCopy, &[p], dims));
    let state = known.get_or_insert_with(|| State::new(cx, p));
    locals.p_data_fp32 = None;
    locals.p_data_fp32 = half.then(|| result(cx, Op::ToCopy, &[p], dims));
    let whole = locals.p_data_fp32.clone().unwrap_or_else(|| p.detach());
    state.rms = Some(cx.counting_as(Kind::OptimizerState, || rms(&whole)));

    let square = cx.launch(Op::PowTensorScalar, &[&whole]).make(Geometry::contiguous(dims), DType::Float32);
    let sum = result(cx, Op::AddTensor, &[&square], dims);
    drop(square);
    let square = locals.update.insert(sum);
    if let [lead @ .., rows, columns] = dims {
        // The means of the squares over rows and columns, each folded in and dropped.
        for (moment, axis) in state.moments.iter().zip([dims.len() - 1, dims.len() - 2]) {
            let mean = result(cx, Op::MeanDim, &[square], moment.dims());
            drop(inside::sum(cx, Op::MeanDim, square.geometry(), |i| i == axis, DType::Float32));
            cx.in_place(Op::MulInPlace, moment, &[]);
            cx.in_place(Op::AddInPlace, moment, &[&mean]);
            drop(mean);
        }
        // _approx_sq_grad()
        let [of_rows, of_columns] = [state.moments.first(), state.moments.last()].map(|m| m.unwrap_or(&whole));
        let mean = result(cx, Op::MeanDim, &[of_rows], &[lead, &[1]].concat());
        drop(inside::sum(cx, Op::MeanDim, of_rows.geometry(), |i| i == lead.len(), DType::Float32));
        let row_factor = result(cx, Op::DivTensor, &[of_rows, &mean], &[lead, &[*rows]].concat());
        drop(mean);
        cx.in_place(Op::RsqrtInPlace, &row_factor, &[]);
        let column_factor = result(cx, Op::Rsqrt, &[of_columns], &[lead, &[1, *columns]].concat());
        let update = result(cx, Op::MulTensor, &[&row_factor, &column_factor], dims);
        drop((row_factor, column_factor));
        locals.update = Some(update);
    } else {
        for moment in &state.moments {
            cx.in_place(Op::MulInPlace, moment, &[]);
            cx.in_place(Op::AddInPlace, moment, &[square]);
        }
        let root = result(cx, Op::Rsqrt, &[&whole], dims);
        locals.update = Some(root);
    }
    let update = locals.update.as_ref().unwrap_or(&whole);
    // update.mul_(grad)
    cx.in_place(Op::MulInPlace, update, &[&whole]);
    let root = rms(update);
    let clipped = result(cx, Op::DivTensor, &[&root], &[]);
    cx.in_place(Op::DivInPlace, update, &[&clipped]);
    cx.in_place(Op::MulInPlace, update, &[]);
    drop((root, clipped));
    let step = result(cx, Op::Neg, &[update], dims);
    cx.in_place(Op::AddInPlace, &whole, &[&step]);
    drop(step);
    if half {
        drop(cx.launch(Op::CopyInPlace, &[&whole]).over(p));
    }
}
