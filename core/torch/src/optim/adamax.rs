//! `torch.optim.Adamax` (`torch/optim/adamax.py`).

use std::rc::Rc;

use plimsoll_scenario::OptimizerImpl;

use super::groups::by_dtype_apart;
use super::lists::{Lists, Pass};
use super::python_list::PythonList;
use super::{Optimizer, like, state, with_gradients};
use crate::Op;
use crate::tensor::{Context, Tensor};

/// A moment and an infinity norm a parameter; the step is a number on the host.
#[derive(Debug)]
pub struct Adamax {
    implementation: OptimizerImpl,
    states: Vec<Option<[Tensor; 2]>>,
}

impl Adamax {
    /// No state until the first step.
    pub fn new(implementation: OptimizerImpl) -> Self {
        Self { implementation, states: Vec::new() }
    }
}

impl Optimizer for Adamax {
    fn step(&mut self, cx: &Rc<Context>, parameters: &[Tensor]) {
        self.states.resize(parameters.len(), None);
        for (i, p) in with_gradients(parameters) {
            self.states[i].get_or_insert_with(|| [state(cx, Op::ZerosLike, p), state(cx, Op::ZerosLike, p)]);
        }
        match self.implementation {
            // grouped_grads = torch._foreach_abs(grouped_grads): a copy of the gradients of one dtype. The name is given the
            // next dtype's gradients before their copy is made.
            OptimizerImpl::Foreach | OptimizerImpl::Fused => {
                let lists = Lists::of(parameters);
                lists.run(cx, &[Pass::new(Op::ForeachLerpInPlace, 2, 1), Pass::new(Op::ForeachMulInPlace, 1, 1)]);
                for group in by_dtype_apart(parameters) {
                    let sizes: PythonList = group.iter().map(|p| like(cx, Op::ForeachAbs, p)).collect();
                    drop(sizes);
                }
                lists.run(
                    cx,
                    &[
                        Pass::new(Op::ForeachAbs, 1, 1),
                        Pass::new(Op::ForeachAddInPlace, 1, 1),
                        Pass::new(Op::ForeachMaximumInPlace, 2, 1),
                        Pass::new(Op::ForeachAddcdivInPlace, 3, 1),
                    ],
                );
            }
            // torch.maximum(exp_inf.mul_(beta2), grad.abs().add_(eps), out=exp_inf): nothing has a name.
            OptimizerImpl::ForLoop => {
                for (_, p) in with_gradients(parameters) {
                    Pass::over(&[Pass::new(Op::LerpInPlace, 2, 1), Pass::new(Op::MulInPlace, 1, 1)], p);
                    drop(cx.owned_by(p, || cx.launch(Op::Abs, &[p]).make_like(p)));
                    Pass::over(
                        &[
                            Pass::new(Op::AddInPlace, 1, 1),
                            Pass::new(Op::MaximumOut, 2, 1),
                            Pass::new(Op::AddcdivInPlace, 3, 1),
                        ],
                        p,
                    );
                }
            }
        }
    }
}
