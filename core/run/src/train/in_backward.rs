//! An optimizer that steps in backward: each parameter has one of its own, which steps when its gradient has come and lets go of it.
//!
//! ```python
//! optimizers = {p: torch.optim.AdamW([p]) for p in model.parameters() if p.requires_grad}
//!
//! def step(parameter):
//!     optimizers[parameter].step()
//!     optimizers[parameter].zero_grad()
//!
//! for p in optimizers:
//!     p.register_post_accumulate_grad_hook(step)
//! ```

use std::cell::RefCell;
use std::rc::Rc;

use plimsoll_ledger::Kind;
use plimsoll_scenario::Training;
use plimsoll_torch::optim::{self, Share};
use plimsoll_torch::tensor::{Context, Hooks, Tensor};

/// The optimizers, by the number that each one's parameter has.
#[derive(Debug)]
struct InBackward(RefCell<Vec<Vec<Share>>>);

impl Hooks for InBackward {
    fn accumulated(&self, cx: &Rc<Context>, parameter: u32) {
        let mut optimizers = self.0.borrow_mut();
        let Some(own) = optimizers.get_mut(parameter as usize) else { return };
        for share in own {
            cx.counting_as(Kind::Optimizer, || share.step(cx));
            for parameter in share.parameters() {
                optim::set_gradient(parameter, None);
            }
        }
    }
}

/// Has every trained one of `parameters` stepped in backward from now on.
pub(super) fn step(cx: &Rc<Context>, training: &Training, parameters: &[Tensor]) {
    let trained = parameters.iter().filter(|parameter| parameter.requires_grad());
    let own = (0..).zip(trained).map(|(number, parameter)| {
        parameter.number(number);
        optim::build(training, std::slice::from_ref(parameter))
    });
    let optimizers = InBackward(RefCell::new(own.collect()));
    cx.set_hooks(Rc::new(optimizers));
}
