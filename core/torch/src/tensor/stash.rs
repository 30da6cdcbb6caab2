//! TRL's `OffloadActivations` (`trl/models/activation_offloading.py` of TRL 1.16, after torchtune's): what nodes save goes to the machine's
//! memory on a stream of its own, and comes back on it.
//!
//! What is small, a parameter, or known already by where it lies stays on the card. Of what goes, the last few are held until the copy is
//! sure to be done, so that backward finds them there; what comes back is held until the node after the one that asked for it has run, and
//! handed to `record_stream` where somebody holds it longer.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use plimsoll_allocator::CachingAllocator;
use plimsoll_ground::Bytes;
use plimsoll_ledger::{Ledger, Module, ModuleId, Stream};

use super::DType;
use super::autograd::Node;
use super::context::Context;
use super::geometry::Geometry;
use super::host::HostMemory;
use super::offloaded::Offloading;
use super::storage::Tensor;
use crate::Op;
use crate::ops::{Transfer, transfer};

/// `min_offload_size`: what is smaller stays.
const SMALLEST: u64 = 1024;

/// `max_fwd_stash_size`: so many numbers back what was sent off is still held.
const HELD: u32 = 5;

/// The names by which the output head is looked for, one after the other; of a decoder only its own would be looked for.
const HEADS: [&str; 6] = ["output", "lm_head", DECODER, "final_layer_norm", "ln_f", "head"];
const DECODER: &str = "decoder";

/// `s1`, on which everything goes and comes.
const COMMUNICATION: Stream = Stream::new(1);

/// Where a tensor lies, by which it is known again: its storage's address and how many elements behind it it begins, added, and its type
/// (`_get_unique_tensor_key`). What is laid together before it is sent off leaves its place, and another that comes to lie there is taken
/// for it: that is why addresses are followed.
type Place = (u64, DType);

/// The card's allocator, as far as it is asked for addresses: a card without end, under its own settings.
#[derive(Debug)]
struct Addresses {
    allocator: CachingAllocator,
    events: usize,
    emptied: usize,
}

impl Addresses {
    fn new() -> Self {
        Self { allocator: CachingAllocator::new(None), events: 0, emptied: 0 }
    }

    /// Where a storage of this ledger lies now.
    fn of(&mut self, ledger: &Ledger, storage: u32) -> u64 {
        for (event, index) in ledger.events.iter().skip(self.events).zip(self.events..) {
            self.empty_up_to(ledger, index);
            let size =
                ledger.storages.get(event.id() as usize).map_or(Bytes::ZERO, |storage| Bytes::new(storage.bytes));
            // A card without end always has room.
            let _ = self.allocator.apply(*event, size);
        }
        self.events = ledger.events.len();
        self.empty_up_to(ledger, self.events);
        self.allocator.address(storage).unwrap_or_default()
    }

    fn empty_up_to(&mut self, ledger: &Ledger, event: usize) {
        while ledger.emptied.get(self.emptied).is_some_and(|at| *at as usize <= event) {
            self.emptied += 1;
            self.allocator.empty_cache();
        }
    }
}

/// What became of a saved tensor.
#[derive(Debug)]
enum Entry {
    /// It stayed.
    Here(Tensor),
    /// It lies in the machine's memory: how it comes back, and of how many elements.
    There {
        geometry: Geometry,
        dtype: DType,
        elements: u64,
        #[allow(dead_code, reason = "the machine's ledger counts it")]
        host: Tensor,
    },
}

/// What runs when the node that asked for a tensor has run.
#[derive(Debug)]
struct PostHook {
    id: u32,
    /// Whether it came back for this node.
    back: bool,
    /// Those that came back for nodes before.
    before: Vec<u32>,
}

/// The state of the context manager.
#[derive(Debug, Default)]
pub(super) struct Stash {
    last: Cell<u32>,
    /// `tracker`
    entries: RefCell<BTreeMap<u32, Entry>>,
    /// `fwd_stash`
    sent: RefCell<BTreeMap<u32, Tensor>>,
    addresses: RefCell<Option<Addresses>>,
    /// Storages that Python has looked at.
    seen: RefCell<BTreeSet<u32>>,
    /// `storage_to_tensor_id`
    known: RefCell<BTreeMap<Place, u32>>,
    /// `_storage_key_by_tensor_id`
    places: RefCell<BTreeMap<u32, Place>>,
    /// `bwd_tensor_stash`, in the order in which they came.
    returned: RefCell<Vec<(u32, Tensor)>>,
    /// The node that runs.
    running: RefCell<Option<Rc<Node>>>,
    /// `curr_autograd_node`, the last one that asked for anything that was sent off. What follows it in the graph lives as long as it is
    /// known by this name: a leaf that the forward made, and its gradient.
    node: RefCell<Option<Rc<Node>>>,
    hooks: RefCell<Vec<PostHook>>,
    /// Whether the nodes that run are those of a backward within another one.
    within: Cell<bool>,
    /// What was handed to `record_stream`.
    handed: RefCell<Vec<u32>>,
    /// The module around which nothing is sent off (`NoOpManager`).
    spared: Cell<Option<ModuleId>>,
}

impl Stash {
    fn knows(&self, place: Place, id: u32) {
        self.known.borrow_mut().insert(place, id);
        self.places.borrow_mut().insert(id, place);
    }

    /// `release_storage_key`
    fn forget(&self, id: u32) {
        let Some(place) = self.places.borrow_mut().remove(&id) else { return };
        let mut known = self.known.borrow_mut();
        if known.get(&place) == Some(&id) {
            known.remove(&place);
        }
    }

    /// Lets go of what was sent off up to this number.
    fn let_go(&self, up_to: u32) {
        while let Some(first) = self.sent.borrow_mut().first_entry().filter(|first| *first.key() <= up_to) {
            let (id, tensor) = first.remove_entry();
            drop(tensor);
            self.forget(id);
        }
    }

    /// What was handed to `record_stream`, in rising order.
    pub(super) fn take_handed(&self) -> Vec<u32> {
        let mut handed = self.handed.take();
        handed.sort_unstable();
        handed
    }

    fn lets_go_of_returned(&self, id: u32) {
        let mut returned = self.returned.borrow_mut();
        if let Some(at) = returned.iter().position(|(known, _)| *known == id) {
            drop(returned.remove(at));
        }
    }

    /// Forgets everything, in the order in which `__enter__` clears its names.
    fn clear(&self) {
        drop(self.entries.take());
        drop((self.known.take(), self.places.take()));
        self.last.set(0);
        self.leave();
    }

    /// Lets go of everything.
    pub(super) fn end(&self) {
        self.clear();
        drop((self.node.take(), self.running.take(), self.addresses.take()));
    }

    /// What `__exit__` clears.
    fn leave(&self) {
        drop(self.returned.take());
        drop(self.sent.take());
    }
}

/// A number that stands for a saved tensor.
#[derive(Debug)]
pub struct Tracked {
    cx: Rc<Context>,
    id: u32,
}

impl Tracked {
    /// `pack_tensor`
    pub(super) fn pack(cx: &Rc<Context>, tensor: &Tensor) -> Self {
        let stash = &cx.stash;
        let id = cx.next_saved();
        let place = cx.place_of(tensor);
        stash.seen.borrow_mut().insert(tensor.storage_id());
        let tracked = Self { cx: Rc::clone(cx), id };
        let stays = |known: bool| {
            tensor.mark_saved();
            stash.entries.borrow_mut().insert(id, Entry::Here(tensor.detach()));
            if known {
                stash.knows(place, id);
            }
        };
        if stash.known.borrow().contains_key(&place) {
            stays(true);
            return tracked;
        }
        let bytes = tensor.numel().saturating_mul(tensor.dtype().size());
        if bytes < SMALLEST || cx.is_parameter(tensor) {
            stays(false);
            return tracked;
        }
        let geometry = tensor.geometry();
        let repeated = geometry.strides().contains(&0);
        let laid = !repeated && (!geometry.is_contiguous() || tensor.offset() > 0);
        let sent = if laid {
            cx.launch(Op::Clone, &[tensor]).make(Geometry::contiguous(tensor.dims()), tensor.dtype())
        } else {
            tensor.detach()
        };
        stash.let_go(id.saturating_sub(HELD));
        // Of what is repeated all of the storage goes, and nothing else.
        let elements = if repeated { cx.bytes_of(tensor.storage_id()) / tensor.dtype().size() } else { tensor.numel() };
        let host = cx.on_host(&[elements], tensor.dtype(), HostMemory::PageLocked);
        transfer(cx, Transfer::ToHost, elements, 1, tensor.dtype());
        let entry = Entry::There { geometry: sent.geometry().clone(), dtype: sent.dtype(), elements, host };
        stash.entries.borrow_mut().insert(id, entry);
        stash.sent.borrow_mut().insert(id, sent);
        stash.knows(place, id);
        tracked
    }

    /// `unpack_tensor_with_streams`
    pub(super) fn unpack(&self) -> Tensor {
        let (cx, stash) = (&self.cx, &self.cx.stash);
        let entry = stash.entries.borrow_mut().remove(&self.id);
        let (geometry, dtype, elements, host) = match entry {
            Some(Entry::There { geometry, dtype, elements, host }) => (geometry, dtype, elements, host),
            Some(Entry::Here(tensor)) => {
                stash.forget(self.id);
                return tensor;
            }
            None => unreachable!("a formula unpacked a saved tensor twice"),
        };
        let mut before = Vec::new();
        let running = stash.running.borrow().clone();
        let asked = stash.node.borrow().clone();
        // `graph_id == self.curr_graph_id`: of a backward within another one nobody says which node asks.
        if !stash.within.get()
            && !matches!((&running, &asked), (Some(running), Some(asked)) if Rc::ptr_eq(running, asked))
        {
            drop(asked);
            drop(stash.node.replace(running));
            before.extend(stash.returned.borrow().iter().map(|(id, _)| *id));
        }
        let known = stash.sent.borrow().get(&self.id).cloned();
        let back = known.is_none();
        let tensor = known.unwrap_or_else(|| {
            let made = cx.on_stream(COMMUNICATION, || cx.launch(Op::ToCopy, &[]).make_sizes(&[elements], dtype));
            transfer(cx, Transfer::ToCard, elements, 1, dtype);
            stash.seen.borrow_mut().insert(made.storage_id());
            let tensor = made.unsafe_view_as(geometry);
            stash.returned.borrow_mut().push((self.id, tensor.clone()));
            tensor
        });
        stash.hooks.borrow_mut().push(PostHook { id: self.id, back, before });
        drop(host);
        stash.forget(self.id);
        tensor
    }
}

impl Context {
    /// `OffloadActivations.__enter__`. The machine has bitsandbytes in this process, or not: then the cache is emptied.
    pub fn enter_stash(&self, bitsandbytes: bool) {
        self.stash.clear();
        if bitsandbytes {
            self.empty_cache();
        }
        self.offloading.set(Offloading::Stashed);
    }

    /// `OffloadActivations.__exit__`.
    pub fn leave_stash(&self) {
        self.stash.leave();
        self.offloading.set(Offloading::None);
    }

    /// Around the output head nothing is sent off, where it is found (`get_act_offloading_ctx_manager`).
    pub fn spare_head(&self) {
        let head = self.so_far(|ledger| {
            let child = |parent: ModuleId, name: &str| {
                let is = |(_, module): &(u32, &Module)| module.parent == parent && module.name == name;
                (0..).zip(ledger.modules.iter()).skip(1).find(is).map(|(index, _)| ModuleId::new(index))
            };
            // peft's wrapper hands the question on.
            let wrapped = child(ModuleId::ROOT, "base_model").and_then(|base| child(base, "model"));
            let named = |name: &&'static str| Some((*name, child(wrapped.unwrap_or(ModuleId::ROOT), name)?));
            HEADS.iter().find_map(named).filter(|(name, _)| *name != DECODER).map(|(_, module)| module)
        });
        self.stash.spared.set(head);
    }

    /// Runs `f`, which is in this module.
    pub(super) fn sparing<T>(&self, module: ModuleId, f: impl FnOnce() -> T) -> T {
        if self.offloads() == Offloading::Stashed && self.stash.spared.get() == Some(module) {
            self.offloading(Offloading::None, f)
        } else {
            f()
        }
    }

    /// Something is saved that the card has nothing of: it has a number all the same.
    pub(super) fn saves_nothing(&self) {
        if self.offloads() == Offloading::Stashed && self.frames.borrow().is_empty() {
            self.next_saved();
        }
    }

    fn next_saved(&self) -> u32 {
        let id = self.stash.last.get() + 1;
        self.stash.last.set(id);
        id
    }

    /// This node runs.
    pub(super) fn node_runs(&self, node: &Rc<Node>) {
        if self.offloads() == Offloading::Stashed {
            self.stash.running.replace(Some(Rc::clone(node)));
        }
    }

    /// Runs nodes while another one runs, of which the post-hooks wait.
    pub(super) fn within_node<T>(&self, run: impl FnOnce() -> T) -> T {
        let stash = &self.stash;
        let (running, hooks, within) = (stash.running.take(), stash.hooks.take(), stash.within.replace(true));
        let out = run();
        stash.running.replace(running);
        stash.hooks.replace(hooks);
        stash.within.set(within);
        out
    }

    /// The post-hooks of the node that has run.
    pub(super) fn node_has_run(&self) {
        if self.offloads() != Offloading::Stashed {
            return;
        }
        let stash = &self.stash;
        drop(stash.running.take());
        for PostHook { id, back, before } in stash.hooks.take() {
            let is_held = |(known, tensor): &&(u32, Tensor)| *known == id && !tensor.is_sole_owner();
            let held = stash.returned.borrow().iter().find(is_held).map(|(_, tensor)| tensor.storage_id());
            if let Some(storage) = held.filter(|_| back) {
                stash.handed.borrow_mut().push(storage);
                stash.lets_go_of_returned(id);
            }
            stash.let_go(u32::MAX);
            for id in before {
                stash.lets_go_of_returned(id);
            }
        }
    }

    /// The graph was run through (`wait_and_del_remaining_references`).
    pub(super) fn graph_has_run(&self) {
        drop(self.stash.returned.take());
    }

    /// Whether Python has looked at this storage (`untyped_storage()`): it counts as one that refers to it, as long as it lives, and no sum
    /// is written over it (`can_accumulate_inplace` of `input_buffer.cpp`; seen with PyTorch 2.11).
    pub(super) fn is_seen(&self, storage: u32) -> bool {
        self.offloads() == Offloading::Stashed && self.stash.seen.borrow().contains(&storage)
    }

    fn place_of(&self, tensor: &Tensor) -> Place {
        let mut addresses = self.stash.addresses.borrow_mut();
        let addresses = addresses.get_or_insert_with(Addresses::new);
        let address = self.so_far(|ledger| addresses.of(ledger, tensor.storage_id()));
        (address.saturating_add(u64::from(tensor.offset())), tensor.dtype())
    }

    fn bytes_of(&self, storage: u32) -> u64 {
        self.so_far(|ledger| ledger.storages.get(storage as usize).map_or(0, |storage| storage.bytes))
    }
}
