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
use smallvec::SmallVec;

use super::store::{Members, Store};

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

/// Which parameters of a module are released in a step.
type Answers = SmallVec<[(ModuleId, Rc<[usize]>); 1]>;

/// `PartitionedParameterCoordinator`.
#[derive(Debug)]
pub struct Coordinator {
    /// The parameters of every module's own, and those of others that it was seen to read (`register_external_parameter`).
    /// By module; of those behind the last there are none.
    owned: RefCell<Vec<Option<Rc<[usize]>>>>,
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
    /// By parameter.
    fetched_for: RefCell<Vec<i64>>,
    step: Cell<i64>,
    available: Cell<i64>,
    /// `__active_backward_submodules`, in the order in which they came.
    backward: RefCell<Vec<ModuleId>>,
    /// `ds_recompute_parameters`: frozen parameters that a recomputation asked for, by the module whose backward began last; they go with
    /// that one.
    recomputed: RefCell<BTreeMap<ModuleId, BTreeSet<usize>>>,
    /// `__params_to_release` is an `lru_cache`: what was answered once is answered for ever. Of every step, by module.
    answered: RefCell<Vec<Answers>>,
    /// Where parameters are used in the recorded order, once that was asked for.
    later: RefCell<Option<Uses>>,
}

/// Where parameters are used in the recorded order of modules.
#[derive(Debug)]
struct Uses {
    /// The steps in which each parameter is used.
    steps: Vec<SmallVec<[usize; 2]>>,
    /// How many numbers the modules before each step have.
    before: Vec<u64>,
}

impl Uses {
    fn of(store: &Store, order: &[ModuleId], owned: &[Option<Rc<[usize]>>]) -> Self {
        let mut steps = vec![SmallVec::new(); store.all.len()];
        let (mut before, mut sum) = (Vec::with_capacity(order.len()), 0u64);
        for (step, module) in order.iter().enumerate() {
            before.push(sum);
            for index in owned.get(module.index()).and_then(Option::as_deref).unwrap_or_default() {
                if let Some(steps) = steps.get_mut(*index) {
                    steps.push(step);
                }
                sum = sum.saturating_add(store.get(*index).map_or(0, |parameter| parameter.numel));
            }
        }
        Self { steps, before }
    }

    /// How many numbers the modules from `step` on have before one that uses this parameter; `None` where none does.
    fn next(&self, parameter: usize, step: usize) -> Option<u64> {
        let steps = self.steps.get(parameter)?;
        let next = *steps.get(steps.partition_point(|used| *used < step))?;
        let before = |step: usize| self.before.get(step).copied();
        Some(before(next)?.saturating_sub(before(step)?))
    }
}

impl Coordinator {
    /// `owned` are the parameters of every module, by module.
    pub fn new(owned: Vec<Members>, keys: &Zero) -> Self {
        let own = |own: Members| (!own.is_empty()).then(|| Rc::from(own.as_slice()));
        Self {
            owned: RefCell::new(owned.into_iter().map(own).collect()),
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
            later: RefCell::default(),
        }
    }

    /// `None`: it has none.
    fn own(&self, module: ModuleId) -> Option<Rc<[usize]>> {
        self.owned.borrow().get(module.index()).cloned().flatten()
    }

    /// `ZeROOrderedDict.__getitem__`: `module` reads a parameter that is not there and is not its own. It is gathered at once,
    /// and from now on with the module's own.
    pub fn read(&self, cx: &Rc<Context>, store: &Store, module: ModuleId, index: usize) {
        if store.get(index).is_some_and(super::store::Parameter::is_away) {
            let own = self.own(module).unwrap_or_default().iter().copied().chain([index]).collect();
            let mut owned = self.owned.borrow_mut();
            if owned.len() <= module.index() {
                owned.resize(module.index() + 1, None);
            }
            if let Some(place) = owned.get_mut(module.index()) {
                *place = Some(own);
            }
            drop(owned);
            drop(self.later.take());
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
                    let Some(own) = self.own(*module) else { continue };
                    let mut own = Members::from_slice(&own);
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
        let mut queue = self.queue.borrow_mut();
        queue.clear();
        queue.extend(self.uses.borrow().iter().copied());
        let mut fetched_for = self.fetched_for.borrow_mut();
        fetched_for.clear();
        fetched_for.resize(store.all.len(), NEVER);
        self.step.set(0);
        self.available.set(0);
    }

    fn fetched_for(&self, parameter: usize) -> i64 {
        self.fetched_for.borrow().get(parameter).copied().unwrap_or(NEVER)
    }

    fn gather(&self, cx: &Rc<Context>, store: &Store, wanted: &[usize]) {
        if let Some(numel) = store.gather(cx, wanted) {
            self.available.set(self.available.get().saturating_add(numel.cast_signed()));
        }
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
        let own = own.as_deref().unwrap_or_default();
        if !own.is_empty() {
            self.gather(cx, store, own);
        }
        for index in own {
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
            self.gather_ahead(cx, store, own);
        }
        self.step.set(self.step.get().saturating_add(1));
    }

    /// `_invalidate_trace`: modules ran in another order than the recorded one.
    fn invalidate(&self, cx: &Rc<Context>, store: &Store) {
        self.trace.set(Trace::Invalid);
        self.order.borrow_mut().clear();
        self.uses.borrow_mut().clear();
        self.queue.borrow_mut().clear();
        self.fetched_for.borrow_mut().fill(NEVER);
        drop(self.later.take());
        store.settle(cx, &mut |numel| self.gone(numel));
    }

    /// What is used next is gathered, as long as there is room for it.
    fn gather_ahead(&self, cx: &Rc<Context>, store: &Store, own: &[usize]) {
        let step = self.step.get();
        let (mut queue, mut fetched_for) = (self.queue.borrow_mut(), self.fetched_for.borrow_mut());
        let is_unseen = |index: &usize| fetched_for.get(*index).is_some_and(|fetched| *fetched < step);
        let mut unseen: Members = own.iter().copied().filter(is_unseen).collect();
        if unseen.len() > 1 {
            unseen.sort_unstable();
            unseen.dedup();
        }
        let mut discarded = Members::new();
        while discarded.len() < unseen.len() {
            let Some((parameter, used_at)) = queue.pop_front() else { break };
            if let Some(fetched) = fetched_for.get_mut(parameter) {
                *fetched = used_at;
            }
            if !discarded.contains(&parameter) {
                discarded.push(parameter);
            }
        }
        if self.prefetch == 0 {
            return;
        }
        let room = self.live.saturating_sub(self.available.get()).min(self.prefetch.cast_signed());
        let (mut ahead, mut numel) = (Members::new(), 0i64);
        while numel < room {
            let Some((index, used_at)) = queue.pop_front() else { break };
            if let Some(fetched) = fetched_for.get_mut(index) {
                *fetched = used_at.max(*fetched);
            }
            let Some(parameter) = store.get(index) else { continue };
            if parameter.is_away() && !ahead.contains(&index) {
                ahead.push(index);
                numel = numel.saturating_add(parameter.numel.cast_signed());
            }
        }
        drop((queue, fetched_for));
        if !ahead.is_empty() {
            self.gather(cx, store, &ahead);
        }
    }

    /// `release_sub_module`: a module has run.
    pub fn release(&self, store: &Store, module: ModuleId, forward: bool) {
        let own = self.own(module);
        let mut recomputed = None;
        if !forward {
            let mut backward = self.backward.borrow_mut();
            if let Some(active) = backward.iter().rposition(|active| *active == module) {
                backward.remove(active);
            }
            let mut all = self.recomputed.borrow_mut();
            recomputed = if all.is_empty() { None } else { all.remove(&module) };
        }
        if own.is_none() && recomputed.is_none() {
            return;
        }
        let own = own.unwrap_or_default();
        let mut released = match self.trace.get() {
            Trace::Complete => self.to_release(store, module, &own),
            Trace::Invalid | Trace::Record => Rc::clone(&own),
        };
        let mut all = own;
        if let Some(recomputed) = recomputed {
            let leaves = |index: &usize| store.get(*index).is_some_and(|parameter| !parameter.persists);
            released = released.iter().copied().chain(recomputed.iter().copied().filter(leaves)).collect();
            all = all.iter().copied().chain(recomputed).collect();
        }
        if !all.is_sorted_by(|a, b| a < b) {
            all = all.iter().copied().collect::<BTreeSet<usize>>().into_iter().collect();
        }
        // Mostly they are the same.
        let whole = Rc::ptr_eq(&all, &released);
        for index in all.iter().copied() {
            if let Some(parameter) = store.get(index) {
                parameter.leave(module);
            }
            if whole || released.contains(&index) {
                store.release(index, &mut |numel| self.gone(numel));
            }
        }
    }

    /// `__params_to_release`: not what stays, not what was gathered ahead for later, and not what is used again within
    /// `max_reuse_distance`.
    fn to_release(&self, store: &Store, module: ModuleId, own: &Rc<[usize]>) -> Rc<[usize]> {
        let step = self.step.get();
        let place = usize::try_from(step).unwrap_or_default();
        if let Some((_, known)) = self.answered.borrow().get(place).and_then(|of| of.iter().find(|a| a.0 == module)) {
            return Rc::clone(known);
        }
        let leaves = |index: &usize| store.get(*index).is_some_and(|p| !p.persists) && self.fetched_for(*index) <= step;
        let mut uses = self.later.borrow_mut();
        let uses = uses.get_or_insert_with(|| Uses::of(store, &self.order.borrow(), &self.owned.borrow()));
        let far = |index: &usize| leaves(index) && uses.next(*index, place).is_none_or(|numel| numel >= self.reuse);
        let released: Members = own.iter().copied().filter(far).collect();
        let released =
            if released[..] == own[..] { Rc::clone(own) } else { released.into_iter().collect::<Rc<[usize]>>() };
        let mut answered = self.answered.borrow_mut();
        if answered.len() <= place {
            answered.resize(self.order.borrow().len().max(place.saturating_add(1)), Answers::new());
        }
        if let Some(of) = answered.get_mut(place) {
            of.push((module, Rc::clone(&released)));
        }
        released
    }

    /// `release_backward_leftovers`: modules whose inputs take no gradient do not learn that backward has left them.
    pub fn end_backward(&self, store: &Store) {
        while let Some(module) = self.backward.borrow_mut().pop() {
            let recomputed = self.recomputed.borrow_mut().remove(&module).unwrap_or_default();
            for index in self.own(module).unwrap_or_default().iter().copied().chain(recomputed) {
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
