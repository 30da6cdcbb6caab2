//! `torch.optim.SGD` (`torch/optim/sgd.py`).

use std::rc::Rc;

use plimsoll_scenario::OptimizerImpl;

use super::groups::by_dtype_apart;
use super::lists::{Lists, Pass};
use super::python_list::PythonList;
use super::{Optimizer, like, state, with_gradients};
use crate::Op;
use crate::tensor::{Context, Tensor};

/// SGD, with or without momentum.
#[derive(Debug)]
pub struct Sgd {
    momentum: bool,
    /// Whether weights decay.
    decays: bool,
    implementation: OptimizerImpl,
    buffers: Vec<Option<Tensor>>,
}

impl Sgd {
    /// No state until the first step.
    pub fn new(momentum: bool, decays: bool, implementation: OptimizerImpl) -> Self {
        Self { momentum, decays, implementation, buffers: Vec::new() }
    }

    /// The buffer of a parameter, made where there is none.
    fn buffer(&mut self, cx: &Rc<Context>, op: Op, (i, p): (usize, &Tensor)) {
        if self.momentum && self.buffers[i].is_none() {
            self.buffers[i] = Some(state(cx, op, p));
        }
    }

    /// `grads = _foreach_add(grads, params, alpha=weight_decay)`, one dtype after the other; in the loop `grad.add(param, ...)`. What
    /// is made goes by that name until momentum takes it.
    fn decay(&mut self, cx: &Rc<Context>, parameters: &[Tensor]) {
        if self.implementation == OptimizerImpl::ForLoop {
            for (i, p) in with_gradients(parameters) {
                let sum = like(cx, Op::AddTensor, p);
                self.buffer(cx, Op::Clone, (i, p));
                drop(sum);
            }
        } else {
            for group in by_dtype_apart(parameters) {
                let sums: PythonList = group.iter().map(|p| like(cx, Op::ForeachAddList, p)).collect();
                let of = group.first().map(|p| p.dtype());
                for (i, p) in with_gradients(parameters).filter(|(_, p)| Some(p.dtype()) == of) {
                    self.buffer(cx, Op::Clone, (i, p));
                }
                drop(sums);
            }
        }
        Lists::of(parameters).run(cx, &[Pass::new(Op::ForeachAddList, 2, 1)]);
    }

    /// The kernels of a step over all parameters; what a loop runs one by one moves as much.
    fn run(&self, cx: &Rc<Context>, parameters: &[Tensor], momentum: &[Pass]) {
        let lists = Lists::of(parameters);
        match self.implementation {
            OptimizerImpl::Fused => {
                let buffers = u64::from(self.momentum);
                lists.run(cx, &[Pass::new(Op::FusedSgdInPlace, 2 + buffers, 1 + buffers)]);
            }
            OptimizerImpl::Foreach | OptimizerImpl::ForLoop => {
                lists.run(cx, momentum);
                lists.run(cx, &[Pass::new(Op::ForeachAddInPlace, 2, 1)]);
            }
        }
    }
}

impl Optimizer for Sgd {
    /// The first step with momentum clones every gradient into its buffer (fused: an empty buffer it fills); all else
    /// is in place.
    fn step(&mut self, cx: &Rc<Context>, parameters: &[Tensor]) {
        self.buffers.resize(parameters.len(), None);
        if self.decays && self.implementation != OptimizerImpl::Fused {
            self.decay(cx, parameters);
        }
        if !self.momentum {
            return self.run(cx, parameters, &[]);
        }
        let op = match self.implementation {
            OptimizerImpl::Fused => Op::EmptyLike,
            OptimizerImpl::Foreach | OptimizerImpl::ForLoop => Op::Clone,
        };
        for (i, p) in with_gradients(parameters) {
            self.buffer(cx, op, (i, p));
        }
        self.run(cx, parameters, &[Pass::new(Op::ForeachMulInPlace, 1, 1), Pass::new(Op::ForeachAddInPlace, 2, 1)]);
    }
}
