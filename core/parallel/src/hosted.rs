//! What a rank's process has in the machine's own memory: a model on its way to the card, and what is offloaded.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use plimsoll_torch::optim;
use plimsoll_torch::tensor::{Context, DType, HostMemory, Kind, Tensor};

/// A model's parameters as they were loaded into the machine's memory, until each has gone to the card.
///
/// By their storages, ascending.
#[derive(Debug, Default)]
pub struct Loaded(Vec<(u32, Option<Tensor>)>);

impl Loaded {
    /// All of a model: the whole parameters, each in the dtype it was loaded in.
    pub fn of<'a>(cx: &Rc<Context>, wholes: impl Iterator<Item = (&'a Tensor, DType)>) -> Self {
        let load = |(whole, dtype): (&Tensor, DType)| (whole.storage_id(), Some(cx.on_host_like(whole, dtype)));
        let mut all: Vec<(u32, Option<Tensor>)> = wholes.map(load).collect();
        // What is loaded under two names stays where it came last.
        all.sort_by_key(|(id, _)| *id);
        all.dedup_by(|later, kept| {
            let same = later.0 == kept.0;
            if same {
                std::mem::swap(later, kept);
            }
            same
        });
        Self(all)
    }

    /// A parameter lies on the card now (`param.data = param.to(device)`).
    pub fn moved(&mut self, whole: &Tensor) {
        let place = self.0.binary_search_by_key(&whole.storage_id(), |(id, _)| *id);
        drop(place.ok().and_then(|place| self.0.get_mut(place)).and_then(|(_, there)| there.take()));
    }
}

/// Parameters in the machine's memory that an optimizer works on there.
#[derive(Debug)]
pub struct Hosted {
    how: HostMemory,
    /// By the storage of what stands for each among the card's.
    parameters: RefCell<BTreeMap<u32, Tensor>>,
}

impl Hosted {
    /// None so far; page-locked, if `pin`.
    pub fn new(pin: bool) -> Self {
        Self { how: HostMemory::pinned(pin), parameters: RefCell::default() }
    }

    /// One comes to lie there, pageable (`tensor.cpu()`), in the place of `part`, which holds no bytes itself.
    pub fn come(&self, cx: &Rc<Context>, part: &Tensor) {
        self.put(part, cx.on_host(part.dims(), part.dtype(), HostMemory::Pageable));
    }

    fn put(&self, part: &Tensor, tensor: Tensor) {
        let tensor = if part.requires_grad() { tensor.into_leaf(false) } else { tensor };
        if part.cx().is_outer(part) {
            tensor.cx().mark_outer(&tensor);
        }
        drop(self.parameters.borrow_mut().insert(part.storage_id(), tensor));
    }

    /// `tensor.pin_memory()` of one that lies there, where that was asked for.
    pub fn pin(&self, cx: &Rc<Context>, part: &Tensor) {
        if self.how == HostMemory::PageLocked {
            let make = || cx.on_host(part.dims(), part.dtype(), self.how);
            self.put(part, cx.counting_as(Kind::Parameter, make));
        }
    }

    /// A flat parameter before the first forward: page-locked, with a gradient that is as well. What the optimizer works on, views of
    /// it that correspond to `leaves` or the flat one itself, and that gradient.
    pub fn begin(&self, cx: &Rc<Context>, flat: &Tensor, leaves: &[Tensor]) -> Option<(Vec<Tensor>, Tensor)> {
        let how = HostMemory::PageLocked;
        let locked = cx.counting_as(Kind::Parameter, || cx.on_host(flat.dims(), flat.dtype(), how));
        let gradient = cx.counting_as(Kind::Gradient, || cx.pinned_copy(flat.dims(), flat.dtype(), how));
        let view = |leaf: &Tensor| locked.view_as(leaf.geometry().clone()).into_leaf(false);
        let leaves = leaves.iter().map(view).collect();
        self.put(flat, locked);
        Some((leaves, gradient))
    }

    fn get(&self, part: &Tensor) -> Option<Tensor> {
        self.parameters.borrow().get(&part.storage_id()).cloned()
    }

    /// A gradient arrives: a copy that does not wait for the card lies in page-locked memory (`to("cpu", non_blocking=True)`); one that
    /// is added to another does wait, and goes.
    pub fn gradient(&self, cx: &Rc<Context>, part: &Tensor) {
        let Some(parameter) = self.get(part) else { return };
        let how = if optim::has_gradient(&parameter) { HostMemory::Pageable } else { self.how };
        let came = cx.counting_as(Kind::Gradient, || cx.on_host(part.dims(), part.dtype(), how));
        if optim::has_gradient(&parameter) {
            drop(came);
        } else {
            optim::set_gradient(&parameter, Some(came));
        }
    }

    /// What the optimizer works on.
    pub fn parameters(&self) -> Vec<Tensor> {
        self.parameters.borrow().values().cloned().collect()
    }
}
