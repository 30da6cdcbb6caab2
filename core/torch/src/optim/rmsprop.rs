//! `torch.optim.RMSprop` (`torch/optim/rmsprop.py`).

use std::rc::Rc;

use plimsoll_scenario::OptimizerImpl;

use super::adagrad::replaced;
use super::groups::by_dtype_apart;
use super::lists::{Lists, Pass};
use super::python_list::PythonList;
use super::{Optimizer, state, with_gradients};
use crate::Op;
use crate::tensor::{Context, Tensor};

/// One to three states a parameter: the mean square; with momentum its buffer; centred, the mean.
#[derive(Debug)]
pub struct RmsProp {
    momentum: bool,
    centered: bool,
    implementation: OptimizerImpl,
    states: Vec<Option<Vec<Tensor>>>,
}

impl RmsProp {
    /// No state until the first step.
    pub fn new(momentum: bool, centered: bool, implementation: OptimizerImpl) -> Self {
        Self { momentum, centered, implementation, states: Vec::new() }
    }

    /// The root's operator over lists, or of one tensor.
    const fn root(&self, over_lists: bool) -> Op {
        match (self.centered, over_lists) {
            (true, true) => Op::ForeachAddcmulScalar,
            (false, true) => Op::ForeachSqrt,
            (true, false) => Op::Addcmul,
            (false, false) => Op::Sqrt,
        }
    }

    /// What moves before the root is there, and after it.
    fn passes(&self, lists: &Lists, cx: &Rc<Context>) {
        lists.run(cx, &[Pass::new(Op::ForeachMulInPlace, 1, 1), Pass::new(Op::ForeachAddcmulInPlace, 2, 1)]);
        if self.centered {
            lists.run(cx, &[Pass::new(Op::ForeachLerpInPlace, 2, 1)]);
        }
    }

    fn finish(&self, lists: &Lists, cx: &Rc<Context>) {
        lists.run(cx, &[Pass::new(self.root(true), 1, 1), Pass::new(Op::ForeachAddInPlace, 1, 1)]);
        if self.momentum {
            lists.run(cx, &[Pass::new(Op::ForeachMulInPlace, 1, 1)]);
            lists.run(cx, &[Pass::new(Op::ForeachAddcdivInPlace, 3, 1), Pass::new(Op::ForeachAddInPlace, 2, 1)]);
        } else {
            lists.run(cx, &[Pass::new(Op::ForeachAddcdivInPlace, 3, 1)]);
        }
    }
}

impl Optimizer for RmsProp {
    fn step(&mut self, cx: &Rc<Context>, parameters: &[Tensor]) {
        self.states.resize(parameters.len(), None);
        let kept = 1 + usize::from(self.momentum) + usize::from(self.centered);
        for (i, p) in with_gradients(parameters) {
            self.states[i].get_or_insert_with(|| (0..kept).map(|_| state(cx, Op::ZerosLike, p)).collect());
        }
        let lists = Lists::of(parameters);
        self.passes(&lists, cx);
        // avg = sqrt(square_avg), centred sqrt_(addcmul(square_avg, grad_avg, grad_avg)): whatever makes it, one copy, which
        // its name keeps until the next is made.
        match self.implementation {
            OptimizerImpl::Foreach | OptimizerImpl::Fused => {
                let mut avg = PythonList::default();
                for group in by_dtype_apart(parameters) {
                    avg = replaced(cx, self.root(true), &group, avg);
                }
                self.finish(&lists, cx);
                drop(avg);
            }
            OptimizerImpl::ForLoop => {
                let mut avg: Option<Tensor> = None;
                for (_, p) in with_gradients(parameters) {
                    let root = cx.owned_by(p, || cx.launch(self.root(false), &[p]).make_like(p));
                    drop(avg.replace(root));
                }
                self.finish(&lists, cx);
            }
        }
    }
}
