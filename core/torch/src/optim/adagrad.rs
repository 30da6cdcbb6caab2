//! `torch.optim.Adagrad` (`torch/optim/adagrad.py`).

use std::rc::Rc;

use plimsoll_scenario::OptimizerImpl;

use super::groups::by_dtype_apart;
use super::lists::{Lists, Pass};
use super::python_list::PythonList;
use super::{Optimizer, like, state, with_gradients};
use crate::Op;
use crate::tensor::{Context, Tensor};

/// One sum of squares a parameter, there from the beginning.
#[derive(Debug)]
pub struct Adagrad {
    implementation: OptimizerImpl,
    /// `state["sum"]`
    #[allow(dead_code, reason = "held alive, as Python holds it")]
    sums: Vec<Tensor>,
}

impl Adagrad {
    /// Its constructor makes the state of everything it is handed; steps are numbers on the host.
    pub fn new(implementation: OptimizerImpl, parameters: &[Tensor]) -> Self {
        let trained = parameters.iter().filter(|p| p.requires_grad());
        Self { implementation, sums: trained.map(|p| state(p.cx(), Op::FullLike, p)).collect() }
    }
}

impl Optimizer for Adagrad {
    fn step(&mut self, cx: &Rc<Context>, parameters: &[Tensor]) {
        match self.implementation {
            // std = _foreach_sqrt(state_sums); numerator = _foreach_mul(grads, minus_clr): two copies of every parameter.
            // The names hold those of one dtype until the next one's are there.
            OptimizerImpl::Foreach | OptimizerImpl::Fused => {
                let lists = Lists::of(parameters);
                lists.run(cx, &[Pass::new(Op::ForeachAddcmulInPlace, 2, 1)]);
                let (mut std, mut numerator) = (PythonList::default(), PythonList::default());
                for group in by_dtype_apart(parameters) {
                    std = replaced(cx, Op::ForeachSqrt, &group, std);
                    numerator = replaced(cx, Op::ForeachMulScalar, &group, numerator);
                }
                lists.run(
                    cx,
                    &[
                        Pass::new(Op::ForeachSqrt, 1, 1),
                        Pass::new(Op::ForeachAddInPlace, 1, 1),
                        Pass::new(Op::ForeachMulScalar, 1, 1),
                        Pass::new(Op::ForeachAddcdivInPlace, 3, 1),
                    ],
                );
                drop((std, numerator));
            }
            // std = state_sum.sqrt().add_(eps); the name keeps the last one until the next is made.
            OptimizerImpl::ForLoop => {
                let mut std: Option<Tensor> = None;
                for (_, p) in with_gradients(parameters) {
                    Pass::over(&[Pass::new(Op::AddcmulInPlace, 2, 1)], p);
                    let root = cx.owned_by(p, || cx.launch(Op::Sqrt, &[p]).make_like(p));
                    Pass::over(&[Pass::new(Op::AddInPlace, 1, 1), Pass::new(Op::AddcdivInPlace, 3, 1)], p);
                    drop(std.replace(root));
                }
            }
        }
    }
}

/// A list like `group`, made while the name still holds the `old` one.
pub(super) fn replaced(cx: &Rc<Context>, op: Op, group: &[&Tensor], old: PythonList) -> PythonList {
    let new = group.iter().map(|p| like(cx, op, p)).collect();
    drop(old);
    new
}
