//! `torch.optim.SGD` (`torch/optim/sgd.py`).

use std::rc::Rc;

use plimsoll_scenario::OptimizerImpl;

use super::lists::{Lists, Pass};
use super::{Optimizer, state, with_gradients};
use crate::Op;
use crate::tensor::{Context, Tensor};

/// SGD, with or without momentum.
#[derive(Debug)]
pub struct Sgd {
    momentum: bool,
    implementation: OptimizerImpl,
    buffers: Vec<Option<Tensor>>,
}

impl Sgd {
    /// No state until the first step.
    pub fn new(momentum: bool, implementation: OptimizerImpl) -> Self {
        Self { momentum, implementation, buffers: Vec::new() }
    }
}

impl Sgd {
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
        if !self.momentum {
            return self.run(cx, parameters, &[]);
        }
        self.buffers.resize(parameters.len(), None);
        let op = match self.implementation {
            OptimizerImpl::Fused => Op::EmptyLike,
            OptimizerImpl::Foreach | OptimizerImpl::ForLoop => Op::Clone,
        };
        for (i, p) in with_gradients(parameters) {
            if self.buffers[i].is_none() {
                self.buffers[i] = Some(state(cx, op, p));
            }
        }
        self.run(cx, parameters, &[Pass::new(Op::ForeachMulInPlace, 1, 1), Pass::new(Op::ForeachAddInPlace, 2, 1)]);
    }
}
