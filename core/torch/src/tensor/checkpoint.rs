//! `torch.utils.checkpoint(use_reentrant=False, preserve_rng_state=False)`: the forward keeps its inputs only; the
//! first saved tensor that backward asks for runs the forward again, up to the last tensor it has to save.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

use plimsoll_ledger::DType;
use plimsoll_ledger::ModuleId;

use super::autograd::Edge;
use super::context::Context;
use super::saved::Saved;
use super::storage::Tensor;

/// What is going on inside a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// The original forward: saved tensors become places.
    Forward,
    /// The recomputation in backward: saved tensors fill the places.
    Recompute,
}

/// A checkpointed function: recomputes its outputs from its inputs.
type Function = Rc<dyn Fn(&[Tensor]) -> Vec<Tensor>>;
/// One with a single output.
type SingleFunction = Rc<dyn Fn(&[Tensor]) -> Tensor>;

struct State {
    role: Cell<Role>,
    function: Function,
    cx: Rc<Context>,
    /// `_NoopSaveInputs`: the tensors passed as positional arguments, each with where its gradient goes. Inside another
    /// checkpoint they are places of that one, and its recomputation hands them over.
    inputs: Vec<(Saved, Option<Edge>)>,
    autocast: Option<DType>,
    module: ModuleId,
    /// The places its forward reserved; a place is gone once nothing can unpack it any more.
    places: RefCell<Vec<Weak<()>>>,
    recomputed: RefCell<Vec<Option<Tensor>>>,
    done: Cell<bool>,
    /// What its function reads and hooks would let go of, each with the storage by which it is known.
    read: RefCell<Vec<(u32, Tensor)>>,
}

/// One call of `checkpoint`. Lives as long as a saved place refers to it; with it, the inputs.
#[derive(Clone)]
pub struct Frame(Rc<State>);

impl Frame {
    pub(super) fn role(&self) -> Role {
        self.0.role.get()
    }

    /// Whether its function is being run again.
    pub(super) fn recomputes(&self) -> bool {
        matches!(self.role(), Role::Recompute)
    }

    /// Reserves the next place for `holder`.
    pub(super) fn defer(&self, holder: &Rc<()>) -> usize {
        let mut places = self.0.places.borrow_mut();
        places.push(Rc::downgrade(holder));
        places.len() - 1
    }

    /// Fills the next place; true when it was the last, and the recomputation stops there (`early_stop`).
    /// What takes a gradient is detached, and holds the bytes that it has now; what does not is saved itself.
    pub(super) fn recomputed(&self, saved: &Tensor) -> bool {
        let holds = saved.requires_grad() || saved.is_view();
        let (places, mut recomputed) = (self.0.places.borrow(), self.0.recomputed.borrow_mut());
        let held = if holds { self.0.cx.held(saved) } else { None };
        let tensor = held.unwrap_or_else(|| saved.detach());
        let wanted = places.get(recomputed.len()).is_some_and(|place| place.strong_count() > 0);
        recomputed.push(wanted.then_some(tensor));
        recomputed.len() == places.len()
    }

    /// Takes the tensor of a place; the checkpoint keeps no reference to it afterwards.
    pub(super) fn take(&self, slot: usize) -> Tensor {
        if !self.0.done.replace(true) {
            self.recompute();
        }
        match self.0.recomputed.borrow_mut().get_mut(slot).and_then(Option::take) {
            Some(tensor) => tensor,
            None => unreachable!("a recomputation saved fewer tensors than its forward, or one was unpacked twice"),
        }
    }

    fn recompute(&self) {
        let state = &self.0;
        let cx = &state.cx;
        // This is where a checkpoint around this one is recomputed.
        let inputs: Vec<Tensor> =
            state.inputs.iter().map(|(saved, edge)| saved.unpack().with_edge(edge.clone())).collect();
        state.role.set(Role::Recompute);
        cx.frames.borrow_mut().push(self.clone());
        let grad = cx.grad_enabled.replace(true);
        let outer = cx.current_module();
        cx.set_module(state.module);
        cx.with_autocast(state.autocast, || drop((state.function)(&inputs)));
        cx.set_module(outer);
        cx.grad_enabled.set(grad);
        cx.muted.set(false);
        cx.frames.borrow_mut().pop();
    }
}

impl std::fmt::Debug for Frame {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Frame").field("places", &self.0.places.borrow().len()).finish_non_exhaustive()
    }
}

impl Context {
    /// The checkpoint whose function runs for the first time, if any, holds `bytes`, what `parameter` has now, as long as it may run
    /// again.
    pub fn hold_for_recomputation(&self, parameter: &Tensor, bytes: &Tensor) {
        for frame in self.frames.borrow().iter().filter(|frame| !frame.recomputes()) {
            frame.0.read.borrow_mut().push((parameter.storage_id(), bytes.clone()));
        }
    }

    /// What a checkpoint that runs again holds of `parameter`.
    pub fn held_for_recomputation(&self, parameter: &Tensor) -> Option<Tensor> {
        let frames = self.frames.borrow();
        let held = |frame: &Frame| {
            let read = frame.0.read.borrow();
            read.iter().find(|(id, _)| *id == parameter.storage_id()).map(|(_, bytes)| bytes.clone())
        };
        frames.iter().rev().find_map(held)
    }
}

/// Runs `function` on `inputs` without keeping what it saves; `function` must do the same again when called again.
pub fn checkpoint(cx: &Rc<Context>, inputs: Vec<Tensor>, function: SingleFunction) -> Tensor {
    match checkpoint_all(cx, inputs, Rc::new(move |inputs| vec![function(inputs)])).pop() {
        Some(output) => output,
        None => unreachable!("the function above has one output"),
    }
}

/// [`checkpoint`] of a function with several outputs.
pub fn checkpoint_all(cx: &Rc<Context>, inputs: Vec<Tensor>, function: Function) -> Vec<Tensor> {
    if !cx.grad_enabled.get() || cx.muted.get() || cx.exhausted() {
        return function(&inputs);
    }
    let saved = inputs.iter().map(|input| (Saved::pack(cx, input), input.edge().cloned())).collect();
    let frame = Frame(Rc::new(State {
        role: Cell::new(Role::Forward),
        function: Rc::clone(&function),
        cx: Rc::clone(cx),
        inputs: saved,
        autocast: cx.autocast_dtype(),
        module: cx.current_module(),
        places: RefCell::default(),
        recomputed: RefCell::default(),
        done: Cell::new(false),
        read: RefCell::default(),
    }));
    cx.frames.borrow_mut().push(frame.clone());
    let outputs = function(&inputs);
    cx.frames.borrow_mut().pop();
    outputs
}
