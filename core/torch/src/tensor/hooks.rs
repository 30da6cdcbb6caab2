//! Hooks: what a wrapper around a model does while it runs, as DistributedDataParallel and FSDP do.
//!
//! A wrapper sees what PyTorch lets it see: the calls of modules, the nodes of backward, gradients as they arrive at
//! parameters. What it allocates is written down where it happens. A model knows nothing of it.

use std::rc::Rc;

use plimsoll_ledger::{ModuleId, Stream};

use super::DType;
use super::autograd::Leaf;
use super::context::Context;
use super::heard::Call;
use super::storage::Tensor;
use crate::ops;

/// What a wrapper around a model does.
///
/// Layers of which some are copied instead of executed are copied without what hooks do: of each copy they are told anew what they
/// heeded in the layer that was executed. So what is told of a module or a node answers whether it was heeded, and that must follow
/// from where in the layer it is.
pub trait Hooks: std::fmt::Debug {
    /// A module's `__call__` begins (`register_forward_pre_hook`).
    fn enters(&self, _cx: &Rc<Context>, _module: ModuleId) -> bool {
        false
    }

    /// What a module's floating-point arguments are cast to before it is called (`register_forward_pre_hook`, which may return others).
    fn casts(&self, _module: ModuleId) -> Option<DType> {
        None
    }

    /// A module's `__call__` is over (`register_forward_hook`).
    fn leaves(&self, _cx: &Rc<Context>, _module: ModuleId) -> bool {
        false
    }

    /// A node of backward is about to run that was the `sequence`-th of its forward (`Tensor.register_hook` of its output).
    fn reaches(&self, _cx: &Rc<Context>, _sequence: u32) -> bool {
        false
    }

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

    /// The backward within a reentrant checkpoint's node, the `sequence`-th of its forward, is over; it holds what it computed again and
    /// the gradients of its inputs still.
    fn went_backward(&self, _cx: &Rc<Context>, _sequence: u32) -> bool {
        false
    }

    /// The graph was run through (`Engine::queue_callback`).
    fn finishes(&self, _cx: &Rc<Context>) {}
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

    /// What `module` is given where its caller has `given`: the caller's name holds on to that.
    pub fn argument(&self, module: ModuleId, given: &Tensor) -> Tensor {
        let cast = self.hooks().and_then(|hooks| hooks.casts(module));
        let cast = cast.filter(|dtype| given.dtype().is_float() && given.dtype() != *dtype);
        cast.map_or_else(|| given.clone(), |dtype| ops::to(given, dtype))
    }

    /// As [`Context::argument`], of one that may be left out.
    pub fn argument_if(&self, module: ModuleId, given: Option<&Tensor>) -> Option<Tensor> {
        given.map(|given| self.argument(module, given))
    }

    /// Says that the module that runs reads a parameter of another one.
    pub fn read(self: &Rc<Self>, tensor: &Tensor) {
        if !self.is_muted() {
            self.tell(Call::Reads(tensor));
        }
    }

    /// Says that a parameter was given other data.
    pub(crate) fn replaced(self: &Rc<Self>, tensor: &Tensor) {
        self.tell(Call::Replaced(tensor));
    }

    /// Whether anything takes a gradient that was made since the node of this number, an op's result or a leaf made on the way, and what
    /// is made of it now takes one too.
    pub fn has_graph_since(&self, node: u32) -> bool {
        self.grad_enabled.get()
            && self.takes_told.get().unwrap_or_else(|| self.next_seq.get() > node || self.leaf_made.get())
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
        if !cx.is_muted() {
            cx.tell(Call::RequiresOutput);
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
        if let Some(number) = self.number.get() {
            cx.tell(Call::Accumulated(number));
        }
    }
}
