//! Lion (Chen et al. 2023), of which PyTorch has none: lion-pytorch 0.2 one parameter after the other
//! (`lion_pytorch.Lion`) and over lists (`lion_pytorch.foreach.Lion`), and bitsandbytes' `Lion`, one kernel a parameter.

use std::rc::Rc;

use plimsoll_scenario::OptimizerImpl;

use super::lists::{Lists, Pass};
use super::python_list::PythonList;
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
                    cx.launch(Op::ZerosLike, &[]).make(p.geometry().preserved(), DType::Float32)
                })
            }),
            OptimizerImpl::Foreach | OptimizerImpl::ForLoop => state(cx, Op::ZerosLike, p),
        });
    }
}

/// The sign of the update, the weights' decay and step, the moment.
const FOR_LOOP: [Pass; 5] = [
    Pass::new(Op::SgnInPlace, 1, 1),
    Pass::new(Op::MulInPlace, 1, 1),
    Pass::new(Op::AddInPlace, 2, 1),
    Pass::new(Op::MulInPlace, 1, 1),
    Pass::new(Op::AddInPlace, 2, 1),
];

/// The same over lists, after the copies of the moments.
const FOREACH: [Pass; 8] = [
    Pass::new(Op::Clone, 1, 1),
    Pass::new(Op::ForeachMulInPlace, 1, 1),
    Pass::new(Op::ForeachMulInPlace, 1, 1),
    Pass::new(Op::ForeachAddInPlace, 2, 1),
    Pass::new(Op::ForeachSignInPlace, 1, 1),
    Pass::new(Op::ForeachAddInPlace, 2, 1),
    Pass::new(Op::ForeachMulInPlace, 1, 1),
    Pass::new(Op::ForeachAddInPlace, 2, 1),
];

impl Optimizer for Lion {
    fn step(&mut self, cx: &Rc<Context>, parameters: &[Tensor]) {
        self.states.resize(parameters.len(), None);
        for (i, p) in with_gradients(parameters) {
            self.initialize(cx, i, p);
            // update = exp_avg.clone().mul_(beta1).add(grad, alpha=1 - beta1).sgn_()
            if self.implementation == OptimizerImpl::ForLoop {
                let make = |op, operands: &[&Tensor]| cx.owned_by(p, || cx.launch(op, operands).make_like(p));
                let scaled = make(Op::Clone, &[p]);
                Pass::over(&[Pass::new(Op::MulInPlace, 1, 1)], p);
                let update = make(Op::AddTensor, &[&scaled, p]);
                Pass::over(&FOR_LOOP, p);
                drop((scaled, update));
            }
        }
        // updates = [t.clone() for t in exp_avgs]: a copy of every moment, all at once.
        if self.implementation == OptimizerImpl::Foreach {
            let updates: PythonList = with_gradients(parameters).map(|(_, p)| like(cx, Op::Clone, p)).collect();
            Lists::of(parameters).run(cx, &FOREACH);
            drop(updates);
        }
        if self.implementation == OptimizerImpl::Fused {
            Lists::of(parameters).run(cx, &[Pass::new(Op::OptimizerUpdate32bit, 3, 2)]);
        }
    }
}
