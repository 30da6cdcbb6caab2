//! What hooks were told while a unit ran, so that they can be told the same of its copies.
//!
//! A copied unit has the model's own events of the executed one. What hooks make, and when they let go of it, depends on what
//! they hold just then: they run for each copy, in the places where they ran for the executed unit.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;

use plimsoll_ledger::{DType, ModuleId};

use super::autograd::{Leaf, Node};
use super::context::Context;
use super::geometry::Geometry;
use super::hooks::Hooks;
use super::repeat::Position;
use super::storage::Tensor;
use crate::GradFn;

/// What hooks are told.
#[derive(Clone, Copy, Debug)]
pub(super) enum Call<'a> {
    /// A module is called.
    Enters(ModuleId),
    /// A module returns.
    Leaves(ModuleId),
    /// Backward comes to a node.
    Reaches(u32),
    /// The parameter of this number has its gradient.
    Accumulated(u32),
    /// A parameter of another module is read.
    Reads(&'a Tensor),
    /// A parameter has other data.
    Replaced(&'a Tensor),
    /// An output takes a gradient now.
    RequiresOutput,
    /// The backward within this node, a reentrant checkpoint's, is over, and what it was made of is there still.
    WentBackward(u32),
}

impl Call<'_> {
    /// Tells these hooks; whether they heeded it.
    #[inline]
    pub fn reach(self, hooks: &dyn Hooks, cx: &Rc<Context>) -> bool {
        match self {
            Call::Enters(module) => return hooks.enters(cx, module),
            Call::Leaves(module) => return hooks.leaves(cx, module),
            Call::Reaches(sequence) => return hooks.reaches(cx, sequence),
            Call::Accumulated(number) => hooks.accumulated(cx, number),
            Call::Reads(tensor) => hooks.reads(cx, tensor),
            Call::Replaced(tensor) => hooks.replaced(tensor),
            Call::RequiresOutput => hooks.requires_output(cx),
            Call::WentBackward(sequence) => return hooks.went_backward(cx, sequence),
        }
        true
    }
}

/// A tensor that is on no storage yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    geometry: Geometry,
    dtype: DType,
    is_view: bool,
}

/// What was heard, in the run's own numbers.
#[derive(Clone, Debug)]
pub(super) enum What {
    /// As [`Call::Enters`], with what was said of whether the module is given something that takes a gradient.
    Enters(ModuleId, Option<bool>),
    Leaves(ModuleId),
    Reaches(u32),
    Accumulated(u32),
    /// Of the parameter on this storage.
    Reads(u32),
    Replaced(u32),
    RequiresOutput,
    WentBackward(u32),
    /// The bytes of a parameter, of this storage, were asked for, and given on that one.
    Holds(u32, Shape, u32),
    /// Who was given them holds them once more.
    Retains(u32),
    /// Who was given them lets go of them once.
    LetsGo(u32),
    /// A gradient on this storage came to the leaf that this node stands for.
    Arrived(usize, u32, Shape),
}

/// Something that was heard: from where to where, what was written meanwhile, and what ran.
#[derive(Clone, Debug)]
pub(super) struct Heard {
    pub what: What,
    pub positions: Range<Position>,
    pub storages: Range<u32>,
    pub grad_fn: GradFn,
    pub module: ModuleId,
}

/// What a run listens to.
#[derive(Debug, Default)]
pub(super) struct Listening {
    pub heard: RefCell<Vec<Heard>>,
    /// Whether hooks run: what they tell each other is their own.
    within: Cell<bool>,
    /// Storages whose bytes hooks gave away.
    given: RefCell<Vec<u32>>,
    /// Whether there are any of those.
    any_given: Cell<bool>,
}

impl Listening {
    /// Forgets what was heard.
    pub fn clear(&self) {
        self.heard.borrow_mut().clear();
        self.given.borrow_mut().clear();
        self.any_given.set(false);
    }
}

impl Context {
    /// Tells hooks, if there are any.
    pub(super) fn tell(self: &Rc<Self>, call: Call<'_>) {
        let Some(hooks) = self.hooks() else { return };
        if !self.listens() {
            call.reach(&*hooks, self);
            return;
        }
        let takes = self.takes_told.get();
        let what = match call {
            Call::Enters(module) => What::Enters(module, takes),
            Call::Leaves(module) => What::Leaves(module),
            Call::Reaches(sequence) => What::Reaches(sequence),
            Call::Accumulated(number) => What::Accumulated(number),
            Call::Reads(tensor) => What::Reads(tensor.storage_id()),
            Call::Replaced(tensor) => What::Replaced(tensor.storage_id()),
            Call::RequiresOutput => What::RequiresOutput,
            Call::WentBackward(sequence) => What::WentBackward(sequence),
        };
        self.hear(|| {
            let heeded = call.reach(&*hooks, self);
            (heeded.then_some(what), ())
        });
    }

    /// The bytes that a parameter, or a view of one, has now, where it will not have them for good.
    pub(crate) fn held(self: &Rc<Self>, tensor: &Tensor) -> Option<Tensor> {
        let hooks = self.hooks()?;
        if !self.listens() {
            return hooks.holds(tensor);
        }
        self.hear(|| {
            let held = hooks.holds(tensor);
            let what = held.as_ref().map(|held| {
                let listening = &self.repetitions.listening;
                listening.given.borrow_mut().push(held.storage_id());
                listening.any_given.set(true);
                What::Holds(tensor.storage_id(), Shape::of(tensor), held.storage_id())
            });
            (what, held)
        })
    }

    /// A gradient has come to a leaf.
    pub(super) fn arrived(&self, node: &Node, leaf: &Leaf) {
        if !self.listens() {
            return;
        }
        if let Some(gradient) = leaf.grad.borrow().as_ref() {
            let here = self.position();
            let what = What::Arrived(std::ptr::from_ref(node).addr(), gradient.storage_id(), Shape::of(gradient));
            self.note(what, here, self.next_storage());
        }
    }

    /// Whether what hooks are told may have to be told again.
    fn listens(&self) -> bool {
        self.repetitions.listens() && !self.repetitions.listening.within.get()
    }

    fn hear<T>(&self, tell: impl FnOnce() -> (Option<What>, T)) -> T {
        let (from, first) = (self.position(), self.next_storage());
        self.repetitions.listening.within.set(true);
        let (what, out) = tell();
        self.repetitions.listening.within.set(false);
        match what {
            Some(what) => self.note(what, from, first),
            // What is not heeded does nothing.
            None if self.position() == from => {}
            None => self.fail_repeats(),
        }
        out
    }

    fn note(&self, what: What, from: Position, first: u32) {
        let heard = Heard {
            what,
            positions: from..self.position(),
            storages: first..self.next_storage(),
            grad_fn: self.grad_fn.get(),
            module: self.current_module(),
        };
        self.repetitions.listening.heard.borrow_mut().push(heard);
    }

    /// Storage `id` has one reference more.
    pub(super) fn hear_retained(&self, id: u32) {
        if self.is_given(id) {
            self.note(What::Retains(id), self.position(), self.next_storage());
        }
    }

    /// Storage `id` has one reference less since `from`.
    pub(super) fn hear_released(&self, id: u32, from: Position) {
        self.note(What::LetsGo(id), from, self.next_storage());
    }

    /// Whether hooks gave the bytes of this storage away, to somebody who may hold or let go of them now.
    pub(super) fn is_given(&self, id: u32) -> bool {
        let listening = &self.repetitions.listening;
        listening.any_given.get() && self.listens() && listening.given.borrow().contains(&id)
    }
}

impl Shape {
    fn of(tensor: &Tensor) -> Self {
        Self { geometry: tensor.geometry().clone(), dtype: tensor.dtype(), is_view: tensor.is_view() }
    }

    /// Of it a tensor on storage `id`, of whose references this becomes one that was counted already.
    pub fn on_storage(&self, cx: &Rc<Context>, id: u32) -> Tensor {
        Tensor::standing(cx, id, self.geometry.clone(), self.dtype, self.is_view)
    }

    /// Of it a view of `base`.
    pub fn view_of(&self, base: &Tensor) -> Tensor {
        if self.is_view { base.view_as(self.geometry.clone()) } else { base.unsafe_view_as(self.geometry.clone()) }
    }
}
