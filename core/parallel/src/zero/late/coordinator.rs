//! Which parameters are gathered and released when (`deepspeed/runtime/zero/partitioned_param_coordinator.py`).
//!
//! The first forward and backward are recorded. From then on parameters are gathered ahead of their use, and those that are
//! used again soon are kept.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

use plimsoll_scenario::Zero;
use plimsoll_torch::ops::{self, Fill};
use plimsoll_torch::tensor::{Context, DType, ModuleId};

use super::store::Store;

/// `ZeRoTraceMode`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Trace {
    #[default]
    Invalid,
    Record,
    Complete,
}

/// `__most_recent_step_id_param_fetched_for` of one that was not fetched yet (`-1e10`).
const NEVER: i64 = -10_000_000_000;

/// `PartitionedParameterCoordinator`.
#[derive(Debug)]
pub struct Coordinator {
    /// The parameters of every module's own, and those of others that it was seen to read (`register_external_parameter`).
    owned: RefCell<BTreeMap<ModuleId, Vec<usize>>>,
    /// `prefetch_bucket_size`, `max_live_parameters`, `max_reuse_distance`, in numbers.
    prefetch: u64,
    live: i64,
    reuse: u64,
    trace: Cell<Trace>,
    /// `__submodule_order`.
    order: RefCell<Vec<ModuleId>>,
    /// `__param_order`: each parameter with the step in which it is used.
    uses: RefCell<Vec<(usize, i64)>>,
    queue: RefCell<VecDeque<(usize, i64)>>,
    fetched_for: RefCell<BTreeMap<usize, i64>>,
    step: Cell<i64>,
    available: Cell<i64>,
    /// `__active_backward_submodules`, in the order in which they came.
    backward: RefCell<Vec<ModuleId>>,
    /// `ds_recompute_parameters`: frozen parameters that a recomputation asked for, by the module whose backward began last; they go with
    /// that one.
    recomputed: RefCell<BTreeMap<ModuleId, BTreeSet<usize>>>,
    /// `__params_to_release` is an `lru_cache`: what was answered once is answered for ever.
    answered: RefCell<BTreeMap<(ModuleId, i64), BTreeSet<usize>>>,
}

impl Coordinator {
    pub fn new(owned: BTreeMap<ModuleId, Vec<usize>>, keys: &Zero) -> Self {
        Self {
            owned: RefCell::new(owned),
            prefetch: keys.prefetch_bucket_size,
            live: i64::try_from(keys.max_live_parameters).unwrap_or(i64::MAX),
            reuse: keys.max_reuse_distance,
            trace: Cell::default(),
            order: RefCell::default(),
            uses: RefCell::default(),
            queue: RefCell::default(),
            fetched_for: RefCell::default(),
            step: Cell::new(0),
            available: Cell::new(0),
            backward: RefCell::default(),
            recomputed: RefCell::default(),
            answered: RefCell::default(),
        }
    }

    fn own(&self, module: ModuleId) -> Vec<usize> {
        self.owned.borrow().get(&module).cloned().unwrap_or_default()
    }

    /// `ZeROOrderedDict.__getitem__`: `module` reads a parameter that is not there and is not its own. It is gathered at once,
    /// and from now on with the module's own.
    pub fn read(&self, cx: &Rc<Context>, store: &Store, module: ModuleId, index: usize) {
        if store.get(index).is_some_and(super::store::Parameter::is_away) {
            self.owned.borrow_mut().entry(module).or_default().push(index);
            store.gather_now(cx, &[index]);
        }
    }

    fn gone(&self, numel: u64) {
        self.available.set(self.available.get().saturating_sub(numel.cast_signed()));
    }

    /// `reset_step`, at the beginning of every forward.
    pub fn begin(&self, cx: &Rc<Context>, store: &Store) {
        store.settle(cx, &mut |numel| self.gone(numel));
        match self.trace.get() {
            Trace::Invalid => {
                agree(cx, 0);
                self.trace.set(Trace::Record);
            }
            Trace::Record => {
                let order = self.order.borrow();
                agree(cx, order.len());
                let mut uses = self.uses.borrow_mut();
                for (step, module) in (0i64..).zip(order.iter()) {
                    let mut own = self.own(*module);
                    own.sort_unstable();
                    own.dedup();
                    uses.extend(own.into_iter().map(|parameter| (parameter, step)));
                }
                agree(cx, uses.len());
                agree(cx, uses.len());
                self.trace.set(Trace::Complete);
            }
            Trace::Complete => {}
        }
        *self.queue.borrow_mut() = self.uses.borrow().iter().copied().collect();
        self.fetched_for.borrow_mut().clear();
        self.step.set(0);
        self.available.set(0);
    }

    fn fetched_for(&self, parameter: usize) -> i64 {
        self.fetched_for.borrow().get(&parameter).copied().unwrap_or(NEVER)
    }

    fn gather(&self, cx: &Rc<Context>, store: &Store, wanted: &[usize]) {
        let away = wanted.iter().filter_map(|index| store.get(*index)).filter(|parameter| parameter.is_away());
        let numel = away.fold(0u64, |sum, parameter| sum.saturating_add(parameter.numel()));
        self.available.set(self.available.get().saturating_add(numel.cast_signed()));
        store.gather(cx, wanted.iter().copied());
    }

    /// `fetch_sub_module`: a module is about to run, forward or backward.
    pub fn fetch(&self, cx: &Rc<Context>, store: &Store, module: ModuleId, forward: bool) {
        match self.trace.get() {
            Trace::Record => self.order.borrow_mut().push(module),
            Trace::Complete => {
                let step = usize::try_from(self.step.get()).unwrap_or(usize::MAX);
                if self.order.borrow().get(step) != Some(&module) {
                    self.invalidate(cx, store);
                }
            }
            Trace::Invalid => {}
        }
        if !forward {
            let mut backward = self.backward.borrow_mut();
            if !backward.contains(&module) {
                backward.push(module);
            }
        }
        // A forward while the graph runs (`_current_graph_task_id`).
        let recomputes = if forward { self.backward.borrow().last().copied() } else { None };
        let own = self.own(module);
        self.gather(cx, store, &own);
        for index in &own {
            if let Some(parameter) = store.get(*index) {
                parameter.take(module);
                if let Some(user) = recomputes.filter(|_| !parameter.whole.requires_grad()) {
                    self.recomputed.borrow_mut().entry(user).or_default().insert(*index);
                    parameter.take(user);
                }
            }
            store.wait(cx, *index);
        }
        if self.trace.get() == Trace::Complete {
            self.gather_ahead(cx, store, &own);
        }
        self.step.set(self.step.get().saturating_add(1));
    }

    /// `_invalidate_trace`: modules ran in another order than the recorded one.
    fn invalidate(&self, cx: &Rc<Context>, store: &Store) {
        self.trace.set(Trace::Invalid);
        self.order.borrow_mut().clear();
        self.uses.borrow_mut().clear();
        self.queue.borrow_mut().clear();
        self.fetched_for.borrow_mut().clear();
        store.settle(cx, &mut |numel| self.gone(numel));
    }

    /// What is used next is gathered, as long as there is room for it.
    fn gather_ahead(&self, cx: &Rc<Context>, store: &Store, own: &[usize]) {
        let step = self.step.get();
        let unseen: BTreeSet<usize> = own.iter().copied().filter(|index| self.fetched_for(*index) < step).collect();
        let mut queue = self.queue.borrow_mut();
        let mut discarded = BTreeSet::new();
        while discarded.len() < unseen.len() {
            let Some((parameter, used_at)) = queue.pop_front() else { break };
            self.fetched_for.borrow_mut().insert(parameter, used_at);
            discarded.insert(parameter);
        }
        if self.prefetch == 0 {
            return;
        }
        let room = self.live.saturating_sub(self.available.get()).min(self.prefetch.cast_signed());
        let (mut ahead, mut numel) = (Vec::new(), 0i64);
        while numel < room {
            let Some((index, used_at)) = queue.pop_front() else { break };
            let before = self.fetched_for(index);
            self.fetched_for.borrow_mut().insert(index, before.max(used_at));
            let Some(parameter) = store.get(index) else { continue };
            if parameter.is_away() && !ahead.contains(&index) {
                ahead.push(index);
                numel = numel.saturating_add(parameter.numel().cast_signed());
            }
        }
        drop(queue);
        self.gather(cx, store, &ahead);
    }

    /// `release_sub_module`: a module has run.
    pub fn release(&self, store: &Store, module: ModuleId, forward: bool) {
        let own = self.own(module);
        let mut released: BTreeSet<usize> = if self.trace.get() == Trace::Complete {
            self.to_release(store, module)
        } else {
            own.iter().copied().collect()
        };
        let mut own: BTreeSet<usize> = own.into_iter().collect();
        if !forward {
            self.backward.borrow_mut().retain(|active| *active != module);
            let recomputed = self.recomputed.borrow_mut().remove(&module).unwrap_or_default();
            let leaves = |index: &&usize| store.get(**index).is_some_and(|parameter| !parameter.persists);
            released.extend(recomputed.iter().filter(leaves));
            own.extend(recomputed);
        }
        for index in own {
            if let Some(parameter) = store.get(index) {
                parameter.leave(module);
            }
            if released.contains(&index) {
                store.release(index, &mut |numel| self.gone(numel));
            }
        }
    }

    /// `__params_to_release`: not what stays, not what was gathered ahead for later, and not what is used again within
    /// `max_reuse_distance`.
    fn to_release(&self, store: &Store, module: ModuleId) -> BTreeSet<usize> {
        let step = self.step.get();
        if let Some(known) = self.answered.borrow().get(&(module, step)) {
            return known.clone();
        }
        let leaves = |index: &usize| store.get(*index).is_some_and(|p| !p.persists) && self.fetched_for(*index) <= step;
        let mut released: BTreeSet<usize> = self.own(module).into_iter().filter(leaves).collect();
        let mut traversed = 0u64;
        let order = self.order.borrow();
        for later in order.iter().skip(usize::try_from(step).unwrap_or(usize::MAX)) {
            if traversed >= self.reuse || released.is_empty() {
                break;
            }
            for index in self.own(*later) {
                released.remove(&index);
                traversed = traversed.saturating_add(store.get(index).map_or(0, super::store::Parameter::numel));
            }
        }
        self.answered.borrow_mut().insert((module, step), released.clone());
        released
    }

    /// `release_backward_leftovers`: modules whose inputs take no gradient do not learn that backward has left them.
    pub fn end_backward(&self, store: &Store) {
        while let Some(module) = self.backward.borrow_mut().pop() {
            let recomputed = self.recomputed.borrow_mut().remove(&module).unwrap_or_default();
            for index in self.own(module).into_iter().chain(recomputed) {
                let Some(parameter) = store.get(index) else { continue };
                parameter.leave(module);
                if !parameter.persists {
                    store.release(index, &mut |numel| self.gone(numel));
                }
            }
        }
    }

    /// `release_and_reset_all`, before a step.
    pub fn reset(&self, cx: &Rc<Context>, store: &Store) {
        store.release_all(cx, &mut |numel| self.gone(numel));
    }
}

/// `assert_ints_same_as_other_ranks`: their count, then the numbers.
fn agree(cx: &Rc<Context>, count: usize) {
    drop(ops::fill(cx, Fill::Full, &[], DType::Int64));
    if count > 0 {
        drop(ops::fill(cx, Fill::Full, &[count as u64], DType::Int64));
    }
}
