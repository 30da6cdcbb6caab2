//! What follows backward: unscaling, clipping, the optimizer's step.

mod adafactor;
mod adagrad;
mod adam;
mod adamax;
mod adamw8bit;
mod clip;
mod ema;
mod groups;
#[cfg(test)]
mod later_tests;
mod lion;
mod lists;
mod muon;
mod nadam;
mod python_list;
mod rmsprop;
mod scaler;
mod sgd;
#[cfg(test)]
mod tests;
mod torch_adafactor;

use std::rc::Rc;

use plimsoll_scenario::{Optimizer as Name, OptimizerImpl, Training};

use crate::Op;
use crate::tensor::{Context, DType, Kind, Tensor};

pub use adamw8bit::SMALLEST_PAGED;
pub use clip::{Clipped, Norm, clip_grad_norm};
pub use ema::Ema;
pub use scaler::GradScaler;

/// An optimizer and its state.
pub trait Optimizer: std::fmt::Debug {
    /// `optimizer.step()`: creates state lazily in the first step.
    fn step(&mut self, cx: &Rc<Context>, parameters: &[Tensor]);
}

/// An optimizer and the parameters that were handed to it.
#[derive(Debug)]
pub struct Share {
    optimizer: Box<dyn Optimizer>,
    parameters: Vec<Tensor>,
    /// Whether the GradScaler leaves the scaling to its kernel (`_step_supports_amp_scaling`).
    pub scales_itself: bool,
}

impl Share {
    /// What it optimizes.
    pub fn parameters(&self) -> &[Tensor] {
        &self.parameters
    }

    /// `optimizer.step()`.
    pub fn step(&mut self, cx: &Rc<Context>) {
        self.optimizer.step(cx, &self.parameters);
    }
}

/// The optimizers of a scenario, in the order they step: one, but for Muon, which leaves a part of the parameters to
/// AdamW.
pub fn build(training: &Training, parameters: &[Tensor]) -> Vec<Share> {
    let (name, implementation) = (training.optimizer, training.optimizer_impl);
    let share = |optimizer: Box<dyn Optimizer>, parameters: Vec<Tensor>, scales_itself| Share {
        optimizer,
        parameters,
        scales_itself,
    };
    let fused = implementation == OptimizerImpl::Fused;
    let decays = training.weight_decay > 0.0;
    let all = |optimizer, scales_itself| vec![share(optimizer, parameters.to_vec(), scales_itself)];
    match name {
        Name::Sgd => all(Box::new(sgd::Sgd::new(false, decays, implementation)), fused),
        Name::SgdMomentum => all(Box::new(sgd::Sgd::new(true, decays, implementation)), fused),
        Name::Adam | Name::AdamW => {
            let adam = adam::Adam::new(implementation, name == Name::AdamW);
            all(Box::new(adam.with_maxima(training.amsgrad)), fused)
        }
        Name::Adafactor => all(Box::<adafactor::Adafactor>::default(), false),
        Name::AdafactorTorch => all(Box::new(torch_adafactor::TorchAdafactor::new(implementation)), false),
        Name::Adagrad => all(Box::new(adagrad::Adagrad::new(implementation, parameters)), false),
        Name::RmsProp | Name::RmsPropMomentum | Name::RmsPropCentered | Name::RmsPropCenteredMomentum => {
            let momentum = matches!(name, Name::RmsPropMomentum | Name::RmsPropCenteredMomentum);
            let centered = matches!(name, Name::RmsPropCentered | Name::RmsPropCenteredMomentum);
            all(Box::new(rmsprop::RmsProp::new(momentum, centered, implementation)), false)
        }
        Name::NAdam => all(Box::new(nadam::NAdam::new(implementation)), false),
        Name::Adamax => all(Box::new(adamax::Adamax::new(implementation)), false),
        Name::AdamW8bit => all(Box::new(adamw8bit::BnbAdamW::eight_bit(false)), false),
        Name::PagedAdamW8bit => all(Box::new(adamw8bit::BnbAdamW::eight_bit(true)), false),
        Name::PagedAdamW => all(Box::new(adamw8bit::BnbAdamW::paged()), false),
        Name::Lion => all(Box::new(lion::Lion::new(implementation)), false),
        Name::Muon => {
            let trained = parameters.iter().filter(|p| p.requires_grad()).cloned();
            let (matrices, rest): (Vec<Tensor>, Vec<Tensor>) = trained.partition(muon::takes);
            // An optimizer without parameters is an error in PyTorch: it is left out.
            let muon = share(Box::<muon::Muon>::default(), matrices, false);
            let adamw = share(Box::new(adam::Adam::new(implementation, true)), rest, fused);
            [muon, adamw].into_iter().filter(|share| !share.parameters.is_empty()).collect()
        }
    }
}

/// Every parameter whose `.grad` is there, with its index. A gradient has its parameter's sizes and dtype.
fn with_gradients(parameters: &[Tensor]) -> impl Iterator<Item = (usize, &Tensor)> {
    parameters.iter().enumerate().filter(|(_, p)| has_gradient(p))
}

/// Whether `p.grad` is there.
pub fn has_gradient(parameter: &Tensor) -> bool {
    parameter.edge().and_then(|edge| edge.node.leaf()).is_some_and(|leaf| leaf.grad.borrow().is_some())
}

/// The storage of `p.grad`.
pub fn gradient_storage(parameter: &Tensor) -> Option<u32> {
    Some(parameter.edge()?.node.leaf()?.grad.borrow().as_ref()?.storage_id())
}

/// `p.grad = value`.
pub fn set_gradient(parameter: &Tensor, value: Option<Tensor>) {
    if let Some(leaf) = parameter.edge().and_then(|e| e.node.leaf()) {
        drop(leaf.grad.replace(value));
    }
}

/// Takes `p.grad` away.
pub fn take_gradient(parameter: &Tensor) -> Option<Tensor> {
    parameter.edge()?.node.leaf()?.grad.take()
}

/// The dtype of `p.grad`.
pub fn gradient_dtype(parameter: &Tensor) -> Option<DType> {
    Some(parameter.edge()?.node.leaf()?.grad.borrow().as_ref()?.dtype())
}

/// `p.grad += value`, where there is one; else `p.grad = value`.
pub fn add_gradient(parameter: &Tensor, value: Tensor) {
    let Some(leaf) = parameter.edge().and_then(|edge| edge.node.leaf()) else { return };
    let mut place = leaf.grad.borrow_mut();
    match place.as_ref() {
        Some(known) => known.cx().in_place(Op::AddInPlace, known, &[&value]),
        None => *place = Some(value),
    }
}

/// `p.grad.zero_()` of every parameter.
pub fn zero_gradients(cx: &Rc<Context>, parameters: &[Tensor]) {
    lists::Lists::of(parameters).run(cx, &[lists::Pass::new(Op::ForeachZeroInPlace, 0, 1)]);
}

/// A tensor like `p` that the optimizer keeps, filled as it is made.
fn state(cx: &Rc<Context>, op: Op, p: &Tensor) -> Tensor {
    let make = || cx.launch(op, &[]).make_like(p);
    cx.counting_as(Kind::OptimizerState, || cx.owned_by(p, make))
}

/// A tensor like `p` that belongs to it, for kernels over lists to write.
fn like(cx: &Rc<Context>, op: Op, p: &Tensor) -> Tensor {
    cx.owned_by(p, || cx.empty(op, p.geometry().preserved(), p.dtype()))
}
