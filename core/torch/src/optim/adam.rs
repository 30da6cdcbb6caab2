//! `torch.optim.Adam` and `AdamW` (`torch/optim/adam.py`); weight decay does not change what they allocate.

use std::rc::Rc;

use plimsoll_catalog::software::rules;
use plimsoll_scenario::OptimizerImpl;

use super::groups::by_dtype;
use super::{Optimizer, like, state, with_gradients};
use crate::Op;
use crate::tensor::{Context, DType, Kind, Tensor};

/// Two moments a parameter.
#[derive(Debug)]
pub struct Adam {
    implementation: OptimizerImpl,
    states: Vec<Option<Vec<Tensor>>>,
}

impl Adam {
    /// No state until the first step.
    pub fn new(implementation: OptimizerImpl) -> Self {
        Self { implementation, states: Vec::new() }
    }

    /// `_init_group`: the step (on the device for fused only), then both moments, parameter by parameter.
    fn initialize(&mut self, cx: &Rc<Context>, parameters: &[Tensor]) {
        self.states.resize(parameters.len(), None);
        for (i, p) in with_gradients(parameters) {
            if self.states[i].is_some() {
                continue;
            }
            let mut tensors = Vec::with_capacity(3);
            if self.implementation == OptimizerImpl::Fused {
                let step = || cx.owned_by(p, || cx.empty_sizes(Op::Zeros, &[], DType::Float32));
                tensors.push(cx.counting_as(Kind::OptimizerState, step));
            }
            tensors.push(state(cx, Op::ZerosLike, p));
            tensors.push(state(cx, Op::ZerosLike, p));
            self.states[i] = Some(tensors);
        }
    }
}

impl Optimizer for Adam {
    fn step(&mut self, cx: &Rc<Context>, parameters: &[Tensor]) {
        self.initialize(cx, parameters);
        match self.implementation {
            OptimizerImpl::Fused => {}
            // exp_avg_sq_sqrt = torch._foreach_sqrt(exp_avg_sqs): a copy of every parameter, all at once.
            OptimizerImpl::Foreach => {
                let roots: Vec<Tensor> =
                    by_dtype(parameters).into_iter().map(|p| like(cx, Op::ForeachSqrt, p)).collect();
                // Once `denom = _foreach_add(exp_avg_sq_sqrt, eps)` was a list of its own.
                if !cx.machine().rules.has(&rules::ONE_ADAM_LIST) {
                    let sums: Vec<Tensor> =
                        by_dtype(parameters).into_iter().map(|p| like(cx, Op::ForeachAddScalar, p)).collect();
                    drop(sums);
                }
                drop(roots);
            }
            // denom = (exp_avg_sq.sqrt() / bias_correction2_sqrt).add_(eps), one parameter after the other; the name
            // `denom` keeps the last one until the next is made.
            OptimizerImpl::ForLoop => {
                let mut denominator: Option<Tensor> = None;
                for (_, p) in with_gradients(parameters) {
                    let root = like(cx, Op::Sqrt, p);
                    let quotient = like(cx, Op::DivTensor, p);
                    drop(root);
                    drop(denominator.replace(quotient));
                }
            }
        }
    }
}
