//! transformers' `Adafactor` (`transformers/optimization.py`) with `scale_parameter=False, relative_step=False`,
//! `beta1=None`: one parameter after the other, in float32.

use std::rc::Rc;

use super::{Optimizer, with_gradients};
use crate::Op;
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
fn result(cx: &Rc<Context>, op: Op, sizes: &[u64]) -> Tensor {
    cx.empty_sizes(op, sizes, DType::Float32)
}

/// `tensor.norm(2) / numel ** 0.5`.
fn rms(cx: &Rc<Context>) -> Tensor {
    let norm = result(cx, Op::LinalgVectorNorm, &[]);
    let out = result(cx, Op::DivTensor, &[]);
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
                vec![result(cx, Op::ToCopy, &shape(*rows)), result(cx, Op::ToCopy, &shape(*columns))]
            }
            _ => vec![result(cx, Op::ZerosLike, dims)],
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
    // `.float()`
    locals.grad = half.then(|| result(cx, Op::ToCopy, dims));
    let state = known.get_or_insert_with(|| State::new(cx, p));
    locals.p_data_fp32 = None;
    locals.p_data_fp32 = half.then(|| result(cx, Op::ToCopy, dims));
    state.rms = Some(cx.counting_as(Kind::OptimizerState, || rms(cx)));

    let square = cx.empty(Op::PowTensorScalar, Geometry::contiguous(dims), DType::Float32);
    let sum = result(cx, Op::AddTensor, dims);
    drop(square);
    locals.update = Some(sum);
    if let [lead @ .., rows, columns] = dims {
        // The means of the squares over rows and columns, each folded in and dropped.
        for moment in &state.moments {
            drop(result(cx, Op::MeanDim, moment.dims()));
        }
        // _approx_sq_grad()
        let mean = result(cx, Op::MeanDim, &[lead, &[1]].concat());
        let row_factor = result(cx, Op::DivTensor, &[lead, &[*rows]].concat());
        drop(mean);
        let column_factor = result(cx, Op::Rsqrt, &[lead, &[1, *columns]].concat());
        let update = result(cx, Op::MulTensor, dims);
        drop((row_factor, column_factor));
        locals.update = Some(update);
    } else {
        locals.update = Some(result(cx, Op::Rsqrt, dims));
    }
    let root = rms(cx);
    let clipped = result(cx, Op::DivTensor, &[]);
    drop((root, clipped));
    drop(result(cx, Op::Neg, dims));
}
