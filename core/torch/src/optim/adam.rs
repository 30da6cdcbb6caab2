//! `torch.optim.Adam` and `AdamW` (`torch/optim/adam.py`); weight decay does not change what they allocate.

use std::rc::Rc;

use plimsoll_catalog::software::rules;
use plimsoll_scenario::OptimizerImpl;
use smallvec::SmallVec;

use super::groups::by_dtype;
use super::lists::{Lists, Pass};
use super::python_list::PythonList;
use super::{Optimizer, like, state, with_gradients};
use crate::Op;
use crate::tensor::{Context, DType, Kind, Moulds, Tensor};

/// Two moments a parameter, and with `amsgrad` the largest second moment there was.
#[derive(Debug)]
pub struct Adam {
    implementation: OptimizerImpl,
    decays: bool,
    maxima: bool,
    states: Vec<Option<SmallVec<[Tensor; 2]>>>,
}

impl Adam {
    /// No state until the first step. AdamW decays the weights by default, Adam does not.
    pub fn new(implementation: OptimizerImpl, decays: bool) -> Self {
        Self { implementation, decays, maxima: false, states: Vec::new() }
    }

    /// `amsgrad`: the root is that of the largest second moments.
    pub fn with_maxima(self, maxima: bool) -> Self {
        Self { maxima, ..self }
    }

    /// `torch.maximum(max_exp_avg_sqs, exp_avg_sqs, out=max_exp_avg_sqs)`, if it is asked for.
    fn maxima(&self, op: Op) -> Option<Pass> {
        self.maxima.then(|| Pass::new(op, 2, 1))
    }

    /// `_init_group`: the step (on the device for fused only), then the moments, parameter by parameter.
    fn initialize(&mut self, cx: &Rc<Context>, parameters: &[Tensor]) {
        self.states.resize(parameters.len(), None);
        let mut moments = Moulds::default();
        for (i, p) in with_gradients(parameters) {
            if self.states[i].is_some() {
                continue;
            }
            let mut moment = || cx.owned_by(p, || moments.make(cx, p, || state(cx, Op::ZerosLike, p)));
            let mut tensors = SmallVec::new();
            if self.implementation == OptimizerImpl::Fused {
                let step = || cx.owned_by(p, || cx.launch(Op::Zeros, &[]).make_sizes(&[], DType::Float32));
                tensors.push(cx.counting_as(Kind::OptimizerState, step));
            }
            tensors.push(moment());
            tensors.push(moment());
            if self.maxima {
                tensors.push(moment());
            }
            self.states[i] = Some(tensors);
        }
    }
}

/// `_multi_tensor_adam` before it takes roots: the decay of the weights, both moments.
const FOREACH: [Pass; 4] = [
    Pass::new(Op::ForeachMulInPlace, 1, 1),
    Pass::new(Op::ForeachLerpInPlace, 2, 1),
    Pass::new(Op::ForeachMulInPlace, 1, 1),
    Pass::new(Op::ForeachAddcmulInPlace, 2, 1),
];

/// The roots of the second moments, divided and added to.
const ROOTS: [Pass; 3] =
    [Pass::new(Op::ForeachSqrt, 1, 1), Pass::new(Op::ForeachDivInPlace, 1, 1), Pass::new(Op::ForeachAddInPlace, 1, 1)];

/// `_single_tensor_adam` before it takes the root.
const FOR_LOOP: [Pass; 4] = [
    Pass::new(Op::MulInPlace, 1, 1),
    Pass::new(Op::LerpInPlace, 2, 1),
    Pass::new(Op::MulInPlace, 1, 1),
    Pass::new(Op::AddcmulInPlace, 2, 1),
];

/// A tensor for every parameter, for a kernel over lists to write.
fn list(cx: &Rc<Context>, op: Op, parameters: &[Tensor]) -> PythonList {
    let mut moulds = Moulds::default();
    let one = |p: &Tensor| cx.owned_by(p, || moulds.make(cx, p, || like(cx, op, p)));
    by_dtype(parameters).into_iter().map(one).collect()
}

impl Optimizer for Adam {
    fn step(&mut self, cx: &Rc<Context>, parameters: &[Tensor]) {
        self.initialize(cx, parameters);
        match self.implementation {
            OptimizerImpl::Fused => {
                let more = u64::from(self.maxima);
                Lists::of(parameters).run(cx, &[Pass::new(Op::FusedAdamInPlace, 4 + more, 3 + more)]);
            }
            // exp_avg_sq_sqrt = torch._foreach_sqrt(exp_avg_sqs): a copy of every parameter, all at once.
            OptimizerImpl::Foreach => {
                let lists = Lists::of(parameters);
                lists.run(cx, &FOREACH[usize::from(!self.decays)..]);
                lists.run(cx, self.maxima(Op::ForeachMaximumInPlace).as_slice());
                let roots = list(cx, Op::ForeachSqrt, parameters);
                lists.run(cx, &ROOTS);
                // Once `denom = _foreach_add(exp_avg_sq_sqrt, eps)` was a list of its own.
                if !cx.machine().rules.has(&rules::ONE_ADAM_LIST) {
                    drop(list(cx, Op::ForeachAddScalar, parameters));
                }
                lists.run(cx, &[Pass::new(Op::ForeachAddcdivInPlace, 3, 1)]);
                drop(roots);
            }
            // denom = (exp_avg_sq.sqrt() / bias_correction2_sqrt).add_(eps), one parameter after the other; the name
            // `denom` keeps the last one until the next is made.
            OptimizerImpl::ForLoop => {
                let mut denominator: Option<Tensor> = None;
                for (_, p) in with_gradients(parameters) {
                    Pass::over(&FOR_LOOP[usize::from(!self.decays)..], p);
                    Pass::over(self.maxima(Op::MaximumOut).as_slice(), p);
                    let root = cx.owned_by(p, || cx.launch(Op::Sqrt, &[p]).make_like(p));
                    let quotient = cx.owned_by(p, || cx.launch(Op::DivTensor, &[&root]).make_like(p));
                    drop(root);
                    Pass::over(&[Pass::new(Op::AddInPlace, 1, 1), Pass::new(Op::AddcdivInPlace, 3, 1)], p);
                    drop(denominator.replace(quotient));
                }
            }
        }
    }
}
