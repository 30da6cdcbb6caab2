//! Hooks: what a wrapper around a model does while it runs, as DistributedDataParallel and FSDP do.
//!
//! A wrapper sees what PyTorch lets it see: the calls of modules, the nodes of backward, gradients as they arrive at
//! parameters. What it allocates is written down where it happens. A model knows nothing of it.

use std::ops::Range;
use std::rc::Rc;

use plimsoll_ledger::{ModuleId, Stream};

use super::autograd::Leaf;
use super::context::Context;
use super::storage::Tensor;

/// What a wrapper around a model does.
pub trait Hooks: std::fmt::Debug {
    /// A module's `__call__` begins (`register_forward_pre_hook`).
    fn enters(&self, _cx: &Rc<Context>, _module: ModuleId) {}

    /// A module's `__call__` is over (`register_forward_hook`).
    fn leaves(&self, _cx: &Rc<Context>, _module: ModuleId) {}

    /// A node of backward is about to run that was the `sequence`-th of its forward (`Tensor.register_hook` of its output).
    fn reaches(&self, _cx: &Rc<Context>, _sequence: u32) {}

    /// A gradient was accumulated into the parameter that [`Tensor::number`] gave this number
    /// (`AccumulateGrad.register_post_hook`).
    fn accumulated(&self, _cx: &Rc<Context>, _parameter: u32) {}

    /// `tensor`, of a parameter, is saved as a view, or handed over by a recomputation, which detaches it. The bytes that it has
    /// now, where it will not have them for good: they are held on to.
    fn holds(&self, _tensor: &Tensor) -> Option<Tensor> {
        None
    }

    /// `tensor`, a parameter, was given other data (`param.data = ...`), which are on the card besides.
    fn replaced(&self, _tensor: &Tensor) {}

    /// The module that runs reads `tensor`, a parameter of another one.
    fn reads(&self, _cx: &Rc<Context>, _tensor: &Tensor) {}

    /// A hook of the module that was left last made its output take a gradient.
    fn requires_output(&self, _cx: &Rc<Context>) {}

    /// The graph was run through (`Engine::queue_callback`).
    fn finishes(&self, _cx: &Rc<Context>) {}

    /// What it does with units of a model of which some are copied, where it holds anything of them.
    fn of_units(&self) -> Option<&dyn UnitHooks> {
        None
    }
}

/// What a wrapper holds of units of a model, each named by its modules, so that some of them may be copied. Between two units it
/// may hold what the next one lets go of; what it holds longer is a gradient of one of its parts, or [`UnitHooks::kept`].
pub trait UnitHooks {
    /// How many units backward has to leave before it does for each what it did for the one before: what the first of them left
    /// is let go of by the second.
    fn settles_after(&self) -> usize;

    /// Whether it does the same with both units.
    fn are_alike(&self, a: &Range<u32>, b: &Range<u32>) -> bool;

    /// What it holds between the forwards of two units.
    fn between(&self) -> Vec<Tensor>;

    /// Forwards of units were copied.
    fn forward_copied(&self, copied: &CopiedForward<'_>);

    /// The parameters that an optimizer works on, and what they are parts of, in the same order for every unit.
    fn parts(&self, unit: &Range<u32>) -> Vec<Tensor>;

    /// What it holds of a unit until backward is over, each in a place of its own.
    fn kept(&self, unit: &Range<u32>) -> Vec<Option<Tensor>>;

    /// Holds this in such a place of a unit whose backward was copied.
    fn keep(&self, unit: &Range<u32>, place: usize, kept: Tensor);

    /// Backwards of units were copied.
    fn backward_copied(&self, copied: &CopiedBackward<'_>);
}

/// Forwards of units that did what another one's did, and were copied from it.
pub struct CopiedForward<'a> {
    /// The unit that they are copies of.
    pub like: &'a Range<u32>,
    /// The units.
    pub units: &'a [Range<u32>],
    /// The node by which they stand in the graph.
    pub node: u32,
    /// What was held behind the unit, as it is held behind the last of them.
    pub moved: &'a dyn Fn(Tensor) -> Tensor,
    /// What is held of the unit, as it is held of one of them.
    pub copy: &'a dyn Fn(&Tensor, usize) -> Option<Tensor>,
}

impl std::fmt::Debug for CopiedForward<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CopiedForward").field("like", self.like).field("units", &self.units).finish_non_exhaustive()
    }
}

/// Backward has come to the end of a unit, and what it did in that one was copied for those before, down to the third: what is held of
/// the unit is held of the third one now, and of those between what is held of the unit behind.
pub struct CopiedBackward<'a> {
    /// All units.
    pub units: &'a [Range<u32>],
    /// Which of them was copied.
    pub model: usize,
    /// Takes what was made in a forward and is let go of in the copies.
    pub gone: &'a dyn Fn(Tensor),
    /// What is held of the unit or the one before it, as it is held of the third or the second.
    pub moved: &'a dyn Fn(Tensor) -> Tensor,
}

impl std::fmt::Debug for CopiedBackward<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CopiedBackward").field("units", &self.units).field("model", &self.model).finish_non_exhaustive()
    }
}

impl Context {
    /// Lets `hooks` see what runs from now on.
    pub fn set_hooks(&self, hooks: Rc<dyn Hooks>) {
        drop(self.hooks.replace(Some(hooks)));
    }

    /// Who sees what runs, if anybody.
    pub(crate) fn hooks(&self) -> Option<Rc<dyn Hooks>> {
        self.hooks.borrow().clone()
    }

    /// Says that the module that runs reads a parameter of another one.
    pub fn read(self: &Rc<Self>, tensor: &Tensor) {
        if let Some(hooks) = self.hooks().filter(|_| !self.is_muted()) {
            hooks.reads(self, tensor);
        }
    }

    /// Whether anything takes a gradient that was made since the node of this number: an op's result, or a leaf made on the
    /// way.
    pub fn has_graph_since(&self, node: u32) -> bool {
        self.takes_told.get().unwrap_or_else(|| self.next_seq.get() > node || self.leaf_made.get())
    }

    /// The number the next node of the graph gets.
    pub fn next_node(&self) -> u32 {
        self.next_seq.get()
    }
}

impl Tensor {
    /// Gives a parameter the number by which [`Hooks::accumulated`] names it. What takes no gradient has none.
    pub fn number(&self, number: u32) {
        if let Some(leaf) = self.edge().and_then(|edge| edge.node.leaf()) {
            leaf.number.set(Some(number));
        }
    }
}

impl Tensor {
    /// What `enable_input_require_grads` makes of the output of the module that was left last: a leaf.
    pub fn into_required_output(self) -> Self {
        let leaf = self.into_leaf(true);
        let cx = leaf.cx();
        if let Some(hooks) = cx.hooks().filter(|_| !cx.is_muted()) {
            hooks.requires_output(cx);
        }
        leaf
    }

    /// Says that a parameter is a view of a flat one, made on `stream`: no leaf to autocast, and its gradient goes on as it came; of
    /// several the sum is made on that stream, its consumer's (`InputBuffer::add`).
    pub fn view_of_flat(&self, stream: Stream) {
        if let Some(leaf) = self.edge().and_then(|edge| edge.node.leaf()) {
            leaf.view.set(Some(stream));
        }
    }
}

impl Leaf {
    /// Says that a gradient has arrived.
    pub(super) fn tell(&self, cx: &Rc<Context>) {
        if let (Some(number), Some(hooks)) = (self.number.get(), cx.hooks()) {
            cx.telling(number, || hooks.accumulated(cx, number));
        }
    }
}
