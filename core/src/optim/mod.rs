//! What follows backward: unscaling, clipping, the optimizer's step.

mod adafactor;
mod adam;
mod clip;
mod groups;
mod scaler;
mod sgd;
#[cfg(test)]
mod tests;

use std::rc::Rc;

use crate::scenario::{Optimizer as Name, OptimizerImpl};
use crate::tensor::{Context, Kind, Tensor};

pub use clip::clip_grad_norm;
pub use scaler::GradScaler;

/// An optimizer and its state.
pub trait Optimizer: std::fmt::Debug {
    /// `optimizer.step()`: creates state lazily in the first step.
    fn step(&mut self, cx: &Rc<Context>, parameters: &[Tensor]);
}

/// The optimizer of a scenario.
pub fn build(name: Name, implementation: OptimizerImpl) -> Box<dyn Optimizer> {
    match name {
        Name::Sgd => Box::new(sgd::Sgd::new(false, implementation)),
        Name::SgdMomentum => Box::new(sgd::Sgd::new(true, implementation)),
        Name::Adam | Name::AdamW => Box::new(adam::Adam::new(implementation)),
        // Refused by the scenario until they have implementations of their own.
        Name::AdamW8bit | Name::Lion | Name::Muon => Box::new(adam::Adam::new(implementation)),
        Name::Adafactor => Box::new(adafactor::Adafactor::default()),
    }
}

/// `p.grad` of every parameter that has one, with the parameter's index.
fn with_gradients(parameters: &[Tensor]) -> impl Iterator<Item = (usize, &Tensor, Tensor)> {
    parameters.iter().enumerate().filter_map(|(i, p)| Some((i, p, gradient(p)?)))
}

/// `p.grad`.
pub fn gradient(parameter: &Tensor) -> Option<Tensor> {
    parameter.edge()?.node.leaf()?.grad.borrow().clone()
}

/// `p.grad = value`.
pub fn set_gradient(parameter: &Tensor, value: Option<Tensor>) {
    if let Some(leaf) = parameter.edge().and_then(|e| e.node.leaf()) {
        drop(leaf.grad.replace(value));
    }
}

/// A tensor like `p` that the optimizer keeps.
fn state(cx: &Rc<Context>, op: &'static str, p: &Tensor) -> Tensor {
    cx.counting_as(Kind::OptimizerState, || cx.empty(op, p.geometry().preserved(), p.dtype()))
}
