//! `DistributedDataParallel` (`torch/nn/parallel/distributed.py`) and its reducer (`torch/csrc/distributed/c10d/reducer.cpp`).
//!
//! Every rank holds the whole model; gradients are copied into flat buckets, which are averaged over all ranks. Ranks do the
//! same: one stands for all.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use plimsoll_ground::{Error, Reason, Result};
use plimsoll_scenario::{Parallel, at};
use plimsoll_torch::ops::{self, Transfer};
use plimsoll_torch::optim;
use plimsoll_torch::tensor::{Context, DType, Hooks, Kind, ModuleId, Tensor};

use crate::broadcast::{self, Sent};
use crate::buckets;

/// `dist._DEFAULT_FIRST_BUCKET_BYTES`.
const FIRST_BUCKET: u64 = 1 << 20;
/// `bucket_cap_mb` where none is given.
const BUCKET: u64 = 25 << 20;

/// How many parameters a refusal names.
const NAMED: usize = 3;

/// A model under DistributedDataParallel, on one rank.
#[derive(Debug)]
pub struct Ddp {
    /// Those that are trained, in the order of `parameters()`.
    parameters: Vec<Tensor>,
    buffers: Vec<Sent>,
    /// Where buckets are said to be made.
    module: ModuleId,
    keys: plimsoll_scenario::Ddp,
    /// The flat gradients, and of each parameter the bucket it lies in.
    buckets: RefCell<Vec<Tensor>>,
    bucket_of: RefCell<Vec<usize>>,
    /// How many gradients each bucket waits for, in this backward.
    pending: RefCell<Vec<usize>>,
    ranks: u64,
    /// Parameters in the order in which their gradients came, while buckets are to be made anew.
    ready: RefCell<Vec<usize>>,
    rebuilt: Cell<bool>,
    /// Whether this backward synchronises (`require_backward_grad_sync`).
    syncs: Cell<bool>,
    /// Whether the forward before this one did (`require_forward_param_sync`).
    synced: Cell<bool>,
    forwards: Cell<u64>,
    /// Which parameters were used, on the card (`local_used_map_dev_`): where some may not be.
    #[allow(dead_code, reason = "held alive, as the reducer holds it")]
    used: Option<Tensor>,
}

impl Ddp {
    /// `DistributedDataParallel(model)`: what its constructor does, and what stays. `loaded` are all parameters, frozen ones
    /// too; `buffers` what the model has beside them.
    pub fn wrap(cx: &Rc<Context>, loaded: &[Tensor], parallel: &Parallel) -> Rc<Self> {
        let parameters: Vec<Tensor> = loaded.iter().filter(|p| p.requires_grad()).cloned().collect();
        let buffers: Vec<Sent> = cx.buffers().into_iter().map(|(_, numel, dtype)| Sent { numel, dtype }).collect();
        let mut ddp = Self {
            buffers,
            module: cx.module(ModuleId::ROOT, "reducer".into(), None),
            keys: parallel.ddp.clone(),
            buckets: RefCell::default(),
            bucket_of: RefCell::new(vec![0; parameters.len()]),
            pending: RefCell::default(),
            ranks: parallel.gpus,
            ready: RefCell::default(),
            rebuilt: Cell::new(false),
            syncs: Cell::new(true),
            synced: Cell::new(true),
            forwards: Cell::new(0),
            used: None,
            parameters,
        };
        ddp.verify(cx, loaded, parallel.gpus);
        let states: Vec<Sent> = loaded.iter().map(sent).chain(ddp.buffers.iter().copied()).collect();
        broadcast::coalesced(cx, &states, parallel.gpus);
        for (number, parameter) in (0u32..).zip(&ddp.parameters) {
            parameter.number(number);
        }
        ddp.begin_buckets(cx);
        // `initialize_local_used_map`: of the reducer's constructor, and of `_set_static_graph`.
        for _ in [parallel.ddp.find_unused_parameters, parallel.ddp.static_graph].into_iter().filter(|said| *said) {
            let count = ddp.parameters.len() as u64;
            let map = ddp.here(cx, Kind::Gradient, || ops::empty(cx, &[count], DType::Int32));
            drop(ddp.used.replace(map));
        }
        let ddp = Rc::new(ddp);
        cx.set_hooks(Rc::<Self>::clone(&ddp));
        ddp
    }

    /// `_verify_params_across_processes`: how many parameters there are, which every rank hears of every other, and their
    /// sizes and strides.
    fn verify(&self, cx: &Rc<Context>, loaded: &[Tensor], ranks: u64) {
        let trained = loaded.iter().filter(|p| p.requires_grad());
        let numbers = trained.fold(0u64, |sum, p| sum.saturating_add(2 * p.dims().len() as u64));
        let int64 = |count: u64| ops::empty(cx, &[count], DType::Int64);
        self.here(cx, Kind::Forward, || {
            let count = int64(1);
            let heard: Vec<Tensor> = (0..ranks).map(|_| int64(1)).collect();
            let sizes = int64(numbers);
            drop(sizes);
            drop(heard);
            drop(count);
        });
    }

    /// `_ddp_init_helper`: with all parameters in one bucket, until it is known in which order gradients come; where
    /// parameters may go unused that never is, and buckets are small from the start.
    fn begin_buckets(&self, cx: &Rc<Context>) {
        let limits = if self.rebuilds() { vec![u64::MAX] } else { self.limits() };
        let tensors: Vec<Sent> = self.parameters.iter().map(sent).collect();
        let mut assigned = buckets::assign(&tensors, &limits, None);
        assigned.reverse();
        self.make(cx, assigned);
    }

    /// Whether buckets are made anew once the order of gradients is known (`should_rebuild_buckets`).
    fn rebuilds(&self) -> bool {
        self.keys.static_graph || !self.keys.find_unused_parameters
    }

    /// Where the first bucket closes, and where the others do.
    fn limits(&self) -> Vec<u64> {
        self.keys.bucket_cap_mb.map_or_else(|| vec![FIRST_BUCKET, BUCKET], |cap| vec![cap << 20])
    }

    /// `initialize_buckets`: the old ones go first.
    fn make(&self, cx: &Rc<Context>, assigned: Vec<Vec<usize>>) {
        drop(self.buckets.take());
        for (index, members) in assigned.into_iter().enumerate() {
            let Some(first) = members.first().and_then(|member| self.parameters.get(*member)) else { continue };
            let numel = members
                .iter()
                .filter_map(|member| self.parameters.get(*member))
                .fold(0u64, |sum, parameter| sum.saturating_add(parameter.numel()));
            let bucket = self.here(cx, Kind::Gradient, || ops::empty(cx, &[numel], first.dtype()));
            if self.keys.gradient_as_bucket_view {
                // `initialize_bucket_views`: gradients that are there are copied over, and are views of it from now on.
                for parameter in members.iter().filter_map(|member| self.parameters.get(*member)) {
                    if optim::has_gradient(parameter) {
                        optim::set_gradient(parameter, Some(bucket.view_as(parameter.geometry().clone())));
                    }
                }
            }
            self.buckets.borrow_mut().push(bucket);
            let mut bucket_of = self.bucket_of.borrow_mut();
            for member in members {
                if let Some(place) = bucket_of.get_mut(member) {
                    *place = index;
                }
            }
        }
    }

    /// `_pre_forward`, before the model's own forward; `syncs` says whether the micro-batch is outside of `no_sync()`.
    pub fn before_forward(&self, cx: &Rc<Context>, syncs: bool) {
        self.syncs.set(syncs);
        self.rebuild(cx);
        let mut pending = vec![0; self.buckets.borrow().len()];
        for bucket in self.bucket_of.borrow().iter() {
            pending.get_mut(*bucket).into_iter().for_each(|count| *count += 1);
        }
        drop(self.pending.replace(pending));
        if self.keys.broadcast_buffers && self.synced.replace(syncs) {
            broadcast::coalesced(cx, &self.buffers, self.ranks);
        }
        self.forwards.set(self.forwards.get() + 1);
    }

    /// `_rebuild_buckets`: once, in the order in which gradients came. Every rank hears of the first one's order.
    fn rebuild(&self, cx: &Rc<Context>) {
        if !self.rebuilds() || self.rebuilt.get() || self.ready.borrow().is_empty() {
            return;
        }
        self.rebuilt.set(true);
        let order = self.ready.take();
        let tensors: Vec<Sent> = order.iter().filter_map(|number| self.parameters.get(*number)).map(sent).collect();
        let assigned = buckets::assign(&tensors, &self.limits(), Some(&order));
        self.here(cx, Kind::Forward, || {
            let int32 = |count: usize| ops::empty(cx, &[count as u64], DType::Int32);
            let indices = int32(order.len() + 1);
            let sizes = int32(assigned.len());
            drop(sizes);
            drop(indices);
        });
        self.make(cx, assigned);
    }

    /// Whether a micro-batch that is like another may be copied: gradients are no views into buckets, which change, the first
    /// forward is as the others, and the order of gradients is heard of in the first backward.
    pub fn repeats(&self, every: bool) -> bool {
        every && !self.keys.gradient_as_bucket_view && !self.keys.static_graph
    }

    /// `ensure_prior_reduction_finished`: the next forward fails where a gradient that this backward was to reduce never came,
    /// unless gradients may stay away.
    ///
    /// # Errors
    /// The parameters without a gradient, and the key that lets them be.
    pub fn finished(&self, cx: &Context) -> Result<()> {
        let keys = &self.keys;
        let missing: Vec<&Tensor> = match keys.find_unused_parameters || keys.static_graph || !self.syncs.get() {
            true => Vec::new(),
            false => self.parameters.iter().filter(|parameter| !optim::has_gradient(parameter)).collect(),
        };
        if missing.is_empty() {
            return Ok(());
        }
        let named = |parameter: &&Tensor| format!("{} {:?}", cx.made_in(parameter), parameter.dims());
        let mut names: Vec<String> = missing.iter().take(NAMED).map(named).collect();
        if missing.len() > NAMED {
            names.push(format!("{} more", missing.len() - NAMED));
        }
        let problem = format!(
            "parameters that no loss reaches ({}) make DistributedDataParallel fail in its second forward (\"Expected to have \
             finished reduction in the prior iteration\")",
            names.join(", ")
        );
        let refusal = Error::new(at::ddp::find_unused_parameters, problem, "set it to true, or use fsdp2");
        Err(refusal.because(Reason::UnreachedParameter))
    }

    /// `_post_forward`: where parameters may go unused, and in the first forward of a static graph, `_DDPSink` clones every
    /// output. The loss, and what else the outputs hold.
    pub fn outputs(&self, loss: Tensor, held: Vec<Tensor>) -> (Tensor, Vec<Tensor>) {
        let first = self.forwards.get() == 1;
        let sinks = if self.keys.static_graph { first } else { self.keys.find_unused_parameters };
        if !sinks {
            return (loss, held);
        }
        let sunk = ops::clone(&loss);
        let clone = |output: &Tensor| {
            if output.storage_id() == loss.storage_id() { sunk.clone() } else { ops::clone(output) }
        };
        let clones: Vec<Tensor> = held.iter().map(clone).collect();
        drop((loss, held));
        (sunk, clones)
    }

    /// Whether this backward, the first of a static graph, counts how often each hook is called, and no more.
    fn counts(&self) -> bool {
        self.keys.static_graph && self.forwards.get() == 1
    }

    /// The gradient of a parameter becomes a view of its bucket, where that was asked for.
    fn view(&self, number: usize, parameter: &Tensor) {
        if self.keys.gradient_as_bucket_view {
            let bucket = self.bucket_of.borrow().get(number).copied();
            let view = bucket.and_then(|bucket| {
                let buckets = self.buckets.borrow();
                buckets.get(bucket).map(|flat| flat.view_as(parameter.geometry().clone()))
            });
            optim::set_gradient(parameter, view);
        }
    }

    /// `mark_variable_ready`: the bucket of a gradient that has come is averaged once it waits for no other.
    fn reduce(&self, cx: &Rc<Context>, parameter: usize) {
        let Some(bucket) = self.bucket_of.borrow().get(parameter).copied() else { return };
        let full = self.pending.borrow_mut().get_mut(bucket).is_some_and(|count| {
            *count = count.saturating_sub(1);
            *count == 0
        });
        if let Some(flat) = self.buckets.borrow().get(bucket).filter(|_| full) {
            ops::transfer(cx, Transfer::AllReduce, flat.numel(), self.ranks, flat.dtype());
        }
    }

    fn here<T>(&self, cx: &Rc<Context>, kind: Kind, f: impl FnOnce() -> T) -> T {
        cx.counting_as(kind, || cx.put_down_to(self.module, f))
    }
}

impl Hooks for Ddp {
    /// `autograd_hook`: the gradient is copied into its bucket, which is averaged in place once it is full.
    fn accumulated(&self, cx: &Rc<Context>, parameter: u32) {
        let number = parameter as usize;
        let (Some(parameter), true) = (self.parameters.get(number), self.syncs.get()) else { return };
        if !self.counts() {
            if self.rebuilds() && !self.rebuilt.get() {
                self.ready.borrow_mut().push(number);
            }
            self.view(number, parameter);
        }
        self.reduce(cx, number);
    }

    /// `delay_all_reduce` behind a static graph's first backward; behind its second, those that are not used are the last in order.
    fn finishes(&self, _cx: &Rc<Context>) {
        if !self.keys.static_graph || !self.syncs.get() {
            return;
        }
        let without = |parameter: &Tensor| !optim::has_gradient(parameter);
        for (number, parameter) in self.parameters.iter().enumerate() {
            match (self.counts(), without(parameter)) {
                (true, false) => self.view(number, parameter),
                (false, true) if !self.rebuilt.get() => self.ready.borrow_mut().push(number),
                _ => {}
            }
        }
    }
}

fn sent(tensor: &Tensor) -> Sent {
    Sent { numel: tensor.numel(), dtype: tensor.dtype() }
}
