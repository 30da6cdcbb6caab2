//! `torch.optim.NAdam` (`torch/optim/nadam.py`).

use std::rc::Rc;

use plimsoll_scenario::OptimizerImpl;

use super::adagrad::replaced;
use super::groups::by_dtype_apart;
use super::lists::{Lists, Pass};
use super::python_list::PythonList;
use super::{Optimizer, state, with_gradients};
use crate::Op;
use crate::tensor::{Context, Tensor};

/// Two moments a parameter; the step and the product of the momenta are numbers on the host.
#[derive(Debug)]
pub struct NAdam {
    implementation: OptimizerImpl,
    states: Vec<Option<[Tensor; 2]>>,
}

impl NAdam {
    /// No state until the first step.
    pub fn new(implementation: OptimizerImpl) -> Self {
        Self { implementation, states: Vec::new() }
    }
}

impl Optimizer for NAdam {
    fn step(&mut self, cx: &Rc<Context>, parameters: &[Tensor]) {
        self.states.resize(parameters.len(), None);
        for (i, p) in with_gradients(parameters) {
            self.states[i].get_or_insert_with(|| [state(cx, Op::ZerosLike, p), state(cx, Op::ZerosLike, p)]);
        }
        match self.implementation {
            // exp_avg_sq_sqrt = torch._foreach_sqrt(grouped_exp_avg_sqs): a copy of every parameter of one dtype, which the
            // name holds until the next dtype's is there.
            OptimizerImpl::Foreach | OptimizerImpl::Fused => {
                let lists = Lists::of(parameters);
                lists.run(
                    cx,
                    &[
                        Pass::new(Op::ForeachLerpInPlace, 2, 1),
                        Pass::new(Op::ForeachMulInPlace, 1, 1),
                        Pass::new(Op::ForeachAddcmulInPlace, 2, 1),
                    ],
                );
                let mut roots = PythonList::default();
                for group in by_dtype_apart(parameters) {
                    roots = replaced(cx, Op::ForeachSqrt, &group, roots);
                }
                lists.run(
                    cx,
                    &[
                        Pass::new(Op::ForeachSqrt, 1, 1),
                        Pass::new(Op::ForeachDivInPlace, 1, 1),
                        Pass::new(Op::ForeachAddInPlace, 1, 1),
                        Pass::new(Op::ForeachAddcdivInPlace, 3, 1),
                        Pass::new(Op::ForeachAddcdivInPlace, 3, 1),
                    ],
                );
                drop(roots);
            }
            // denom = exp_avg_sq.div(bias_correction2).sqrt(): the quotient goes when its root is there, the name keeps the
            // root until the next parameter's.
            OptimizerImpl::ForLoop => {
                let mut denominator: Option<Tensor> = None;
                for (_, p) in with_gradients(parameters) {
                    Pass::over(
                        &[
                            Pass::new(Op::LerpInPlace, 2, 1),
                            Pass::new(Op::MulInPlace, 1, 1),
                            Pass::new(Op::AddcmulInPlace, 2, 1),
                        ],
                        p,
                    );
                    let quotient = cx.owned_by(p, || cx.launch(Op::DivTensor, &[p]).make_like(p));
                    let root = cx.owned_by(p, || cx.launch(Op::Sqrt, &[&quotient]).make_like(p));
                    drop(quotient);
                    drop(denominator.replace(root));
                    Pass::over(
                        &[
                            Pass::new(Op::AddInPlace, 1, 1),
                            Pass::new(Op::AddcdivInPlace, 3, 1),
                            Pass::new(Op::AddcdivInPlace, 3, 1),
                        ],
                        p,
                    );
                }
            }
        }
    }
}
