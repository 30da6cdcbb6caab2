//! What a loop asks of a model that is wrapped and whose parameters are not the optimizer's own.

use std::collections::BTreeMap;
use std::rc::Rc;

use plimsoll_ground::Result;
use plimsoll_torch::Batch;
use plimsoll_torch::optim::Share;
use plimsoll_torch::tensor::{Context, Hooks, Tensor};

/// A model whose parameters are cut over several cards, on the first of them.
pub trait Wrapper: Hooks {
    /// What the optimizer works on.
    fn parameters(&self) -> &[Tensor];

    /// A forward is about to begin, of a micro-batch after which gradients are reduced, or not. The inputs, where they are
    /// cast; a recording has none that could be.
    fn before_forward(&self, cx: &Rc<Context>, batch: Option<&Batch>, reduces: bool) -> Option<Batch>;

    /// What has to happen before a forward and is not the same in every one.
    fn prepare(&self, _cx: &Rc<Context>) {}

    /// Whether a micro-batch that is like another leaves nothing behind but the gradients of [`Wrapper::parameters`] and what
    /// [`Wrapper::held`] says, so that it may be copied. `every`: gradients are reduced after every micro-batch.
    fn repeats(&self, _every: bool) -> bool {
        false
    }

    /// What it holds after a micro-batch beside gradients of parameters.
    fn held(&self) -> Vec<Tensor> {
        Vec::new()
    }

    /// Holds what another micro-batch, copied, has left behind.
    fn hold(&self, _held: Vec<Tensor>) {}

    /// Parameters in the machine's memory, where an optimizer of its own works on them.
    fn hosted(&self) -> Vec<Tensor> {
        Vec::new()
    }

    /// What the strategy's own code fails with when it wraps the model.
    ///
    /// # Errors
    /// That.
    fn checked(&self) -> Result<()> {
        Ok(())
    }

    /// Who runs backward and the step in the loop's place, if anybody does.
    fn engine(&self) -> Option<&dyn Engine> {
        None
    }
}

/// DeepSpeed's engine: `engine.backward(loss)` and `engine.step()`.
pub trait Engine: std::fmt::Debug {
    /// What its optimizer does when it is made.
    fn begin(&self, _cx: &Rc<Context>, _optimizers: &mut [Share]) {}

    /// Whether the loss is scaled besides (`loss.float() * loss_scale`).
    fn scales(&self) -> bool {
        true
    }

    /// What follows the graph's own backward.
    fn after_backward(&self, cx: &Rc<Context>);

    /// `engine.step()` behind a step's last micro-batch: clips, steps, and lets gradients go.
    fn step(&self, cx: &Rc<Context>, optimizers: &mut [Share]);

    /// What is left to do when the optimizer in the machine's memory has stepped as well.
    fn stepped(&self, _cx: &Rc<Context>) {}
}

/// Where each of `tensors` stands among them, by its storage.
pub fn places(tensors: &[Tensor]) -> BTreeMap<u32, usize> {
    (0..).zip(tensors).map(|(place, tensor)| (tensor.storage_id(), place)).collect()
}
