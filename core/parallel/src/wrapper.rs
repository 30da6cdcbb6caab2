//! What a loop asks of a model that is wrapped and whose parameters are not the optimizer's own.

use std::rc::Rc;

use plimsoll_torch::Batch;
use plimsoll_torch::optim::Share;
use plimsoll_torch::tensor::{Context, Hooks, Tensor};

/// A model whose parameters are cut over several cards, on the first of them.
pub trait Wrapper: Hooks {
    /// What the optimizer works on.
    fn parameters(&self) -> &[Tensor];

    /// A forward is about to begin, of a micro-batch after which gradients are reduced, or not. The inputs, where they are
    /// cast.
    fn before_forward(&self, cx: &Rc<Context>, batch: &Batch, reduces: bool) -> Option<Batch>;

    /// Who runs backward and the step in the loop's place, if anybody does.
    fn engine(&self) -> Option<&dyn Engine> {
        None
    }
}

/// DeepSpeed's engine: `engine.backward(loss)` and `engine.step()`.
pub trait Engine: std::fmt::Debug {
    /// What follows the graph's own backward.
    fn after_backward(&self, cx: &Rc<Context>);

    /// `engine.step()` behind a step's last micro-batch: clips, steps, and lets gradients go.
    fn step(&self, cx: &Rc<Context>, optimizers: &mut [Share]);
}
