//! Lion (Chen et al. 2023), of which PyTorch has none: lion-pytorch 0.2 one parameter after the other
//! (`lion_pytorch.Lion`) and over lists (`lion_pytorch.foreach.Lion`), and bitsandbytes' `Lion`, one kernel a parameter.

use std::rc::Rc;

use plimsoll_scenario::OptimizerImpl;

use super::{Optimizer, like, state, with_gradients};
use crate::Op;
use crate::tensor::{Context, DType, Kind, Tensor};

/// One moment a parameter.
#[derive(Debug)]
pub struct Lion {
    implementation: OptimizerImpl,
    states: Vec<Option<Tensor>>,
}

impl Lion {
    /// No state until the first step.
    pub fn new(implementation: OptimizerImpl) -> Self {
        Self { implementation, states: Vec::new() }
    }

    fn initialize(&mut self, cx: &Rc<Context>, i: usize, p: &Tensor) {
        if self.states[i].is_some() {
            return;
        }
        self.states[i] = Some(match self.implementation {
            // bitsandbytes keeps its 32-bit states in float32 whatever the weights are in.
            OptimizerImpl::Fused => cx.owned_by(p, || {
                cx.counting_as(Kind::OptimizerState, || {
                    cx.empty(Op::ZerosLike, p.geometry().preserved(), DType::Float32)
                })
            }),
            OptimizerImpl::Foreach | OptimizerImpl::ForLoop => state(cx, Op::ZerosLike, p),
        });
    }
}

impl Optimizer for Lion {
    fn step(&mut self, cx: &Rc<Context>, parameters: &[Tensor]) {
        self.states.resize(parameters.len(), None);
        for (i, p) in with_gradients(parameters) {
            self.initialize(cx, i, p);
            // update = exp_avg.clone().mul_(beta1).add(grad, alpha=1 - beta1).sgn_()
            if self.implementation == OptimizerImpl::ForLoop {
                let scaled = like(cx, Op::Clone, p);
                let update = like(cx, Op::AddTensor, p);
                drop((scaled, update));
            }
        }
        // updates = [t.clone() for t in exp_avgs]: a copy of every moment, all at once.
        if self.implementation == OptimizerImpl::Foreach {
            let updates: Vec<Tensor> = with_gradients(parameters).map(|(_, p)| like(cx, Op::Clone, p)).collect();
            drop(updates);
        }
    }
}
