//! `torch.optim.Muon` (`torch/optim/_muon.py`, since PyTorch 2.9): momentum, and every update made orthogonal by
//! Newton and Schulz's iteration in bfloat16, one matrix after the other.

use std::rc::Rc;

use super::lists::Pass;
use super::{Optimizer, state, with_gradients};
use crate::Op;
use crate::ops;
use crate::ops::inside;
use crate::tensor::{Context, DType, Geometry, Tensor};

/// `DEFAULT_NS_STEPS`.
const STEPS: u32 = 5;

/// One momentum buffer a matrix.
#[derive(Debug, Default)]
pub struct Muon {
    buffers: Vec<Option<Tensor>>,
}

/// Whether Muon is given this parameter: a matrix that is neither a table of embeddings nor the output head. The rest
/// is AdamW's.
pub fn takes(parameter: &Tensor) -> bool {
    parameter.geometry().rank() == 2 && !parameter.cx().is_outer(parameter)
}

impl Optimizer for Muon {
    fn step(&mut self, cx: &Rc<Context>, parameters: &[Tensor]) {
        self.buffers.resize(parameters.len(), None);
        for (i, p) in with_gradients(parameters) {
            if self.buffers[i].is_none() {
                self.buffers[i] = Some(state(cx, Op::ZerosLike, p));
            }
        }
        // The name `update` holds the last matrix's until this one's takes it.
        let mut update: Option<Tensor> = None;
        for (_, p) in with_gradients(parameters) {
            cx.owned_by(p, || {
                Pass::over(&[Pass::new(Op::LerpInPlace, 2, 1)], p);
                update = Some(cx.launch(Op::LerpScalar, &[p, p]).make_like(p));
                let orthogonal = update.as_ref().map(orthogonalized);
                update = orthogonal;
                Pass::over(&[Pass::new(Op::MulInPlace, 1, 1), Pass::new(Op::AddInPlace, 2, 1)], p);
            });
        }
        drop(update);
    }
}

/// `_zeropower_via_newtonschulz`.
fn orthogonalized(grad: &Tensor) -> Tensor {
    let cx = grad.cx();
    let mut orthogonal = ops::to(grad, DType::BFloat16);
    let tall = orthogonal.size(0) > orthogonal.size(1);
    let turned = |x: &Tensor| if tall { x.view_as(x.geometry().transposed(0, 1)) } else { x.clone() };
    orthogonal = turned(&orthogonal);
    let norm = cx.launch(Op::LinalgVectorNorm, &[&orthogonal]).make_sizes(&[], DType::BFloat16);
    drop(inside::sum(cx, Op::LinalgVectorNorm, orthogonal.geometry(), |_| true, DType::BFloat16));
    let clamped = cx.launch(Op::Clamp, &[&norm]).make_sizes(&[], DType::BFloat16);
    cx.in_place(Op::DivInPlace, &orthogonal, &[&clamped]);
    drop((norm, clamped));
    let (rows, columns) = (orthogonal.size(0), orthogonal.size(1));
    let product = |op: Op, operands: &[&Tensor], sizes: [u64; 2]| {
        let inner = operands.first().map_or(0, |a| a.size(1));
        let flops = sizes[0].saturating_mul(sizes[1]).saturating_mul(inner).saturating_mul(2);
        let out = cx.launch(op, operands).flops(flops).make(Geometry::contiguous(&sizes), DType::BFloat16);
        cx.blas();
        out
    };
    // Both names hold their matrix until the next step's takes it.
    let (mut gram_matrix, mut gram_update): (Option<Tensor>, Option<Tensor>) = (None, None);
    for _ in 0..STEPS {
        let gram = product(Op::Mm, &[&orthogonal, &orthogonal], [rows, rows]);
        drop(gram_matrix.replace(gram.clone()));
        let update = product(Op::Addmm, &[&gram, &gram, &gram], [rows, rows]);
        drop(gram);
        drop(gram_update.replace(update.clone()));
        orthogonal = product(Op::Addmm, &[&update, &orthogonal, &orthogonal], [rows, columns]);
    }
    turned(&orthogonal)
}
