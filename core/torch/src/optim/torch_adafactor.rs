//! `torch.optim.Adafactor` (`torch/optim/_adafactor.py`, PyTorch 2.5): rows and columns of matrices, in the weights' own dtype.

use std::rc::Rc;

use plimsoll_scenario::OptimizerImpl;

use super::groups::by_dtype_apart;
use super::python_list::PythonList;
use super::{Optimizer, like, with_gradients};
use crate::Op;
use crate::ops::inside;
use crate::tensor::{Context, Kind, Tensor};

/// A row and a column of variances a matrix, a whole variance of everything else.
#[derive(Debug)]
pub struct TorchAdafactor {
    implementation: OptimizerImpl,
    states: Vec<Option<Vec<Tensor>>>,
}

impl TorchAdafactor {
    /// No state until the first step.
    pub fn new(implementation: OptimizerImpl) -> Self {
        Self { implementation, states: Vec::new() }
    }
}

/// `grad.dim() > 1`: its sizes with the last dimension summed, with the one before it, and with that alone of the rows.
fn factors(p: &Tensor) -> Option<[Vec<u64>; 3]> {
    let [lead @ .., rows, columns] = p.dims() else { return None };
    let with = |tail: [u64; 2]| [lead, &tail].concat();
    Some([with([*rows, 1]), with([1, *columns]), with([1, 1])])
}

/// A result of `op` on `p` in its dtype.
fn result(p: &Tensor, op: Op, sizes: &[u64]) -> Tensor {
    p.cx().owned_by(p, || p.cx().launch(op, &[p]).make_sizes(sizes, p.dtype()))
}

/// `torch.norm(p, dim=..., keepdim=True)`.
fn norm(p: &Tensor, sizes: &[u64]) -> Tensor {
    let out = result(p, Op::LinalgVectorNorm, sizes);
    drop(inside::sum_to(p.cx(), Op::LinalgVectorNorm, p.geometry(), sizes, p.dtype()));
    out
}

/// `p.norm(2).item()`.
fn whole_norm(p: &Tensor) {
    let out = result(p, Op::LinalgVectorNorm, &[]);
    drop(inside::sum(p.cx(), Op::LinalgVectorNorm, p.geometry(), |_| true, p.dtype()));
    drop(out);
}

/// `row_var @ col_var`.
fn outer(p: &Tensor) -> Tensor {
    result(p, if p.dims().len() == 2 { Op::Mm } else { Op::Bmm }, p.dims())
}

impl Optimizer for TorchAdafactor {
    fn step(&mut self, cx: &Rc<Context>, parameters: &[Tensor]) {
        self.states.resize(parameters.len(), None);
        for (i, p) in with_gradients(parameters) {
            self.states[i].get_or_insert_with(|| {
                cx.counting_as(Kind::OptimizerState, || match factors(p) {
                    Some([row, column, _]) => [row, column].map(|s| result(p, Op::NewZeros, &s)).into(),
                    None => vec![cx.owned_by(p, || cx.launch(Op::ZerosLike, &[]).make_like(p))],
                })
            });
        }
        match self.implementation {
            OptimizerImpl::ForLoop => single(parameters),
            OptimizerImpl::Foreach | OptimizerImpl::Fused => multi(cx, parameters),
        }
    }
}

/// `_single_tensor_adafactor`: each of its names holds its tensor until another parameter's takes it.
fn single(parameters: &[Tensor]) {
    let (mut row_mean, mut col_mean, mut grad_squared) = (None, None, None);
    let mut update: Option<Tensor> = None;
    for (_, p) in with_gradients(parameters) {
        whole_norm(p);
        let var_estimate = match factors(p) {
            Some([row, column, one]) => {
                let made = norm(p, &row);
                drop(row_mean.replace(made));
                let made = norm(p, &column);
                drop(col_mean.replace(made));
                let estimate = outer(p);
                drop(result(p, Op::MeanDim, &one));
                estimate
            }
            None => {
                let made = p.cx().owned_by(p, || p.cx().launch(Op::MulTensor, &[p]).make_like(p));
                drop(grad_squared.replace(made));
                p.cx().owned_by(p, || p.cx().launch(Op::Clone, &[p]).make_like(p))
            }
        };
        // `update` is the same tensor by another name, which held the last one until now.
        drop(update.replace(var_estimate.clone()));
        whole_norm(&var_estimate);
    }
    drop((row_mean, col_mean, grad_squared, update));
}

/// `_multi_tensor_adafactor`: matrices and the rest of each dtype apart, in the order in which they come.
fn multi(cx: &Rc<Context>, parameters: &[Tensor]) {
    let mut updates = PythonList::default();
    for group in by_dtype_apart(parameters) {
        let (matrices, rest): (Vec<&Tensor>, Vec<&Tensor>) = group.iter().partition(|p| p.dims().len() > 1);
        let first_is_matrix = group.first().is_some_and(|p| p.dims().len() > 1);
        let both = if first_is_matrix { [matrices, rest] } else { [rest, matrices] };
        for list in both.iter().filter(|list| !list.is_empty()) {
            list.iter().for_each(|p| whole_norm(p));
            let estimates = estimates(cx, list);
            drop(std::mem::replace(&mut updates, estimates));
            updates.iter().for_each(whole_norm);
        }
    }
    drop(updates);
}

/// `var_estimates` of one list.
fn estimates(cx: &Rc<Context>, list: &[&Tensor]) -> PythonList {
    let factored: Option<Vec<_>> = list.iter().map(|p| factors(p).map(|sizes| (*p, sizes))).collect();
    let Some(factored) = factored else {
        let squared: PythonList = list.iter().map(|p| like(cx, Op::ForeachMulList, p)).collect();
        drop(squared);
        return list.iter().map(|p| like(cx, Op::Clone, p)).collect();
    };
    for which in 0..2 {
        let means: PythonList = factored.iter().map(|(p, sizes)| norm(p, &sizes[which])).collect();
        drop(means);
    }
    let estimates: PythonList = list.iter().map(|p| outer(p)).collect();
    let means: PythonList = factored.iter().map(|(p, sizes)| result(p, Op::MeanDim, &sizes[2])).collect();
    drop(means);
    estimates
}
