//! `torch.utils.checkpoint(use_reentrant=False, preserve_rng_state=False)`: the forward keeps its inputs only; the
//! first saved tensor that backward asks for runs the forward again, up to the last tensor it has to save. A selective one
//! keeps the results of some operators as well, and its recomputation takes them instead of running these
//! (`torch.utils.checkpoint.create_selective_checkpoint_contexts`).

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::{Rc, Weak};

use plimsoll_ground::{Error, Reason};
use plimsoll_ledger::DType;
use plimsoll_ledger::ModuleId;

use super::autograd::Edge;
use super::context::Context;
use super::geometry::Geometry;
use super::offloaded::Offloading;
use super::reentrant::reentrant;
use super::saved::Saved;
use super::storage::Tensor;
use crate::Op;

/// What is going on inside a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// The original forward: saved tensors become places.
    Forward,
    /// The recomputation in backward: saved tensors fill the places.
    Recompute,
}

/// A checkpointed function: recomputes its outputs from its inputs.
pub(super) type Function = Rc<dyn Fn(&[Tensor]) -> Vec<Tensor>>;
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
    /// What its forward saved, where inputs lie in the machine's memory: they come back contiguous, which may lead the recomputation
    /// elsewhere.
    expected: Option<RefCell<Vec<(Geometry, DType)>>>,
    /// The places its forward reserved; a place is gone once nothing can unpack it any more.
    places: RefCell<Vec<Weak<()>>>,
    recomputed: RefCell<Vec<Option<Tensor>>>,
    done: Cell<bool>,
    /// What its function reads and hooks would let go of, each with the storage by which it is known.
    read: RefCell<Vec<(u32, Tensor)>>,
    /// Where it is selective: what its forward keeps, which lives as long as the checkpoint where the recomputation does not
    /// take it.
    kept: Option<Kept>,
}

/// What a selective checkpoint keeps.
#[derive(Debug, Default)]
struct Kept {
    /// The results of each operator that keeps them, in the order in which they ran.
    results: RefCell<VecDeque<Vec<Tensor>>>,
    /// How many products of two matrices the forward, and the recomputation, have come to.
    products: [Cell<u64>; 2],
}

impl Kept {
    /// Whether the next `op` of `role` keeps its results: all that take time do, but for every second product of two matrices
    /// (`SelectiveAC` of torchtitan, `torchtitan/distributed/activation_checkpoint.py` at b5bcd76). In the forward and in the
    /// recomputation alike: they run the same operators.
    fn keeps(&self, op: Op, role: Role) -> bool {
        if op != Op::Mm {
            return true;
        }
        let products = &self.products[usize::from(role == Role::Recompute)];
        products.set(products.get() + 1);
        !products.get().is_multiple_of(2)
    }
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

    /// Reserves the next place for `holder`, which saves `tensor`.
    pub(super) fn defer(&self, holder: &Rc<()>, tensor: &Tensor) -> usize {
        if let Some(expected) = &self.0.expected {
            expected.borrow_mut().push((tensor.geometry().clone(), tensor.dtype()));
        }
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
        self.check(recomputed.len(), saved);
        let wanted = places.get(recomputed.len()).is_some_and(|place| place.strong_count() > 0);
        recomputed.push(wanted.then_some(tensor));
        recomputed.len() == places.len()
    }

    /// Refuses what the recomputation saves where its forward saved another (`determinism_check` of `torch.utils.checkpoint`).
    fn check(&self, slot: usize, saved: &Tensor) {
        let Some(expected) = &self.0.expected else { return };
        let expected = expected.borrow();
        let same = |(geometry, dtype): &(Geometry, DType)| geometry.dims() == saved.dims() && *dtype == saved.dtype();
        if expected.get(slot).is_some_and(same) {
            return;
        }
        let cx = &self.0.cx;
        cx.refuse(|| {
            let problem = format!(
                "{} is recomputed otherwise than it ran, for a mask comes back from the machine's memory with its rows laid together and \
                 another attention kernel takes it: PyTorch fails there (CheckpointError: \"Recomputed values for the following tensors \
                 have different metadata\")",
                cx.path(self.0.module)
            );
            let hint = "use attention = \"eager\", or leave out checkpointing or activation_offloading";
            Error::new("training.activation_offloading", problem, hint).because(Reason::RecomputedOtherwise)
        });
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

impl Context {
    /// Of every stack's layers the `every`-th is checkpointed; checkpoints keep the results of the operators that take time, or do
    /// not.
    pub fn set_checkpoints(&self, every: u64, selective: bool) {
        self.checkpoint_every.set(every.max(1));
        self.selective.set(selective);
    }

    /// Whether a stack's layer of this index is checkpointed where layers are: with two, the second, the fourth, ...
    pub fn is_checkpointed(&self, layer: usize) -> bool {
        (layer as u64 + 1).is_multiple_of(self.checkpoint_every.get())
    }

    /// Whether the layer that runs is checkpointed, where `asked` says that layers are.
    pub fn checkpoints(&self, asked: bool) -> bool {
        asked && !self.spared.get()
    }

    /// Runs `f`, which is a stack's layer of this index.
    pub fn as_layer<T>(&self, layer: usize, f: impl FnOnce() -> T) -> T {
        let outer = self.spared.replace(!self.is_checkpointed(layer));
        let out = f();
        self.spared.set(outer);
        out
    }

    /// Whether a selective checkpoint looks at every operator that runs here (`TorchDispatchMode`).
    pub(crate) fn is_dispatched(&self) -> bool {
        !self.inside_operator.get() && self.frames.borrow().iter().any(|frame| frame.0.kept.is_some())
    }

    /// Runs `f`, which is an operator of a library's own: what it calls in turn no checkpoint sees.
    pub(crate) fn inside_operator<T>(&self, f: impl FnOnce() -> T) -> T {
        let outer = self.inside_operator.replace(true);
        let out = f();
        self.inside_operator.set(outer);
        out
    }

    /// Runs `op`, which is one of those that a selective checkpoint keeps the results of (the `compute_intensive_ops` of
    /// `torch/_functorch/partitioners.py` and what torchtitan adds to them): in a recomputation what its forward kept stands
    /// for it, and nothing runs. What is around it is recomputed in either case.
    pub(crate) fn kept<T: Results>(&self, op: Op, run: impl FnOnce() -> T) -> T {
        // The exception that ends a recomputation has left it by then.
        if self.muted.get() || !self.is_dispatched() {
            return run();
        }
        let frames = self.frames.borrow().clone();
        // The innermost sees it first, and what it runs the next one sees.
        let mut keeping = Vec::new();
        let mut known = None;
        for frame in frames.iter().rev() {
            let Some(kept) = frame.0.kept.as_ref().filter(|kept| kept.keeps(op, frame.role())) else { continue };
            if frame.recomputes() {
                known = kept.results.borrow_mut().pop_front().and_then(T::of);
                break;
            }
            keeping.push(kept);
        }
        let results = known.unwrap_or_else(run);
        for kept in keeping.into_iter().rev() {
            kept.results.borrow_mut().push_back(results.detached());
        }
        results
    }

    /// Notes that `op` writes over `x`, where a selective checkpoint keeps it. A product of more than two dimensions is kept as
    /// one of two or three, of which the result is an `_unsafe_view`: that one counts its own versions, and a bias may be added to it.
    pub(super) fn is_written_over(&self, op: Op, x: &Tensor) {
        if !self.selective.get() || self.is_refused() {
            return;
        }
        let is_kept = |frame: &Frame| {
            let results = frame.0.kept.as_ref().map(|kept| kept.results.borrow());
            let is_it = |kept: &Tensor| kept.storage_id() == x.storage_id() && kept.geometry() == x.geometry();
            results.is_some_and(|results| results.iter().flatten().any(is_it))
        };
        if self.frames.borrow().iter().any(is_kept) {
            self.refuse(|| {
                let module = self.path(self.current_module());
                let problem = format!(
                    "{module} writes over what its selective checkpoint keeps ({}), and PyTorch fails there: \"Tensor cached \
                     during selective activation checkpoint has been mutated\"",
                    op.name()
                );
                Error::new("training.checkpointing", problem, "use full").because(Reason::WrittenOver)
            });
        }
    }
}

/// What an operator makes.
pub(crate) trait Results: Sized {
    /// It once more, without its gradient.
    fn detached(&self) -> Vec<Tensor>;
    /// It from what [`Results::detached`] made.
    fn of(kept: Vec<Tensor>) -> Option<Self>;
}

impl Results for Vec<Tensor> {
    fn detached(&self) -> Vec<Tensor> {
        let detached = |result: &Tensor| {
            result.mark_saved();
            result.detach()
        };
        self.iter().map(detached).collect()
    }

    fn of(kept: Vec<Tensor>) -> Option<Self> {
        Some(kept)
    }
}

impl Results for Tensor {
    fn detached(&self) -> Vec<Tensor> {
        self.mark_saved();
        vec![self.detach()]
    }

    fn of(mut kept: Vec<Tensor>) -> Option<Self> {
        kept.pop()
    }
}

impl Results for [Tensor; 2] {
    fn detached(&self) -> Vec<Tensor> {
        self.iter().flat_map(Results::detached).collect()
    }

    fn of(kept: Vec<Tensor>) -> Option<Self> {
        kept.try_into().ok()
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
    if cx.reentrant.get() {
        return reentrant(cx, &inputs, &function);
    }
    // `dummy`, an empty leaf that is saved before them.
    cx.saves_nothing();
    let saved = inputs.iter().map(|input| (Saved::pack(cx, input), input.edge().cloned())).collect();
    let frame = Frame(Rc::new(State {
        role: Cell::new(Role::Forward),
        function: Rc::clone(&function),
        cx: Rc::clone(cx),
        inputs: saved,
        expected: (cx.offloads() != Offloading::None).then(RefCell::default),
        autocast: cx.autocast_dtype(),
        module: cx.current_module(),
        places: RefCell::default(),
        recomputed: RefCell::default(),
        done: Cell::new(false),
        read: RefCell::default(),
        kept: cx.selective.get().then(Kept::default),
    }));
    cx.frames.borrow_mut().push(frame.clone());
    let outputs = function(&inputs);
    cx.frames.borrow_mut().pop();
    outputs
}
