//! Stages 1 and 2 (`deepspeed/runtime/zero/stage_1_and_2.py`, 0.19.8): parameters whole and in one flat buffer, the optimizer's
//! master weights and states cut over the cards, of stage 2 the gradients too.
//!
//! Gradients are copied into one bucket as they arrive, whose size does not depend on the model's; one that is larger than the
//! bucket is reduced where it lies.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use plimsoll_ledger::Stream;
use plimsoll_scenario::{Offload, Parallel, ParallelStrategy};
use plimsoll_torch::Batch;
use plimsoll_torch::nn::Sharded;
use plimsoll_torch::ops::{self, Fill, Rearrangement, Transfer};
use plimsoll_torch::optim::{self, Share};
use plimsoll_torch::tensor::{Context, DType, Hooks, HostMemory, Kind, ModuleId, Tensor};

use super::away::Away;
use super::partition::Layout;
use super::small::{self, Norms};
use crate::hosted::Loaded;
use crate::wrapper::{Engine, Wrapper};

/// `reduction_stream`, where communication overlaps.
const REDUCTION: Stream = Stream::new(1);

/// Numbers that NCCL's buffers are a multiple of, for every rank (`nccl_start_alignment_factor`).
const ALIGNMENT: u64 = 2;

/// A model under ZeRO 1 or 2, on the first rank.
#[derive(Debug)]
pub struct Early {
    model: Vec<Tensor>,
    layout: Layout,
    /// Whether gradients are cut as well (stage 2).
    cuts_gradients: bool,
    overlaps: bool,
    offloaded: bool,
    /// `reduce_bucket_size`, in numbers.
    limit: u64,
    dtype: DType,
    ranks: u64,
    /// Where it is said to be made.
    module: ModuleId,
    /// The flat buffer that all parameters are views of.
    #[allow(dead_code, reason = "held alive, as the optimizer holds it")]
    flat: Tensor,
    /// Parameters that are not trained, as they came to the card.
    #[allow(dead_code, reason = "held alive, as the model holds them")]
    frozen: Vec<Tensor>,
    /// Offloaded: `temp_grad_buffer_for_gpu_offload`, as large as the largest parameter.
    #[allow(dead_code, reason = "held alive, as the optimizer holds it")]
    passing: Option<Tensor>,
    /// Offloaded: what lies in the machine's memory.
    away: Option<Away>,
    /// The first rank's master weights, which the optimizer works on.
    master: Vec<Tensor>,
    /// The bucket, of which there are two where communication overlaps.
    buckets: RefCell<Vec<Tensor>>,
    /// Numbers in the bucket, and which parameters they are of.
    filled: Cell<u64>,
    members: RefCell<Vec<usize>>,
    /// `grads_in_partition`: the gradients of the first rank's parameters.
    own: RefCell<Option<Tensor>>,
    /// `averaged_gradients`, of all micro-batches: what is kept of those that came, then zeros for those of the first rank that did not.
    averaged: RefCell<Vec<Tensor>>,
    norms: Norms,
    last: Cell<bool>,
    /// `micro_step_id`: how many micro-batches of the step came before this one.
    micro_step: Cell<u64>,
}

impl Early {
    /// `deepspeed.initialize(model)`, of a model in the machine's memory.
    pub fn wrap(cx: &Rc<Context>, sharded: &[Sharded], order: &[Tensor], parallel: &Parallel) -> Rc<Self> {
        let module = cx.module(ModuleId::ROOT, "zero".into(), None);
        // Of what is not trained some may be packed in integers.
        let trained = sharded.iter().find(|p| p.shard.requires_grad());
        let dtype = trained.map_or(DType::Float32, |p| p.whole.dtype());
        let parameters: Vec<Tensor> = order.iter().filter(|p| p.requires_grad()).cloned().collect();
        let layout = Layout::new(
            parameters.iter().map(Tensor::numel).collect(),
            parallel.gpus,
            ALIGNMENT.saturating_mul(parallel.gpus),
        );
        let offloaded = parallel.zero.offload_optimizer != Offload::None;
        let make = |numel: u64, dtype| cx.put_down_to(module, || ops::loaded(cx, &[numel], dtype));
        let mut loaded = Loaded::of(cx, order.iter().map(|p| (p, p.dtype())));
        let to_card = |p: &Tensor| {
            let moved = make(p.numel(), p.dtype());
            loaded.moved(p);
            (p.requires_grad(), moved)
        };
        let (moved, frozen): (Vec<_>, Vec<_>) = order.iter().map(to_card).partition(|(trained, _)| *trained);
        let padding = (layout.padding() > 0).then(|| make(layout.padding(), dtype));
        let flat = make(layout.total, dtype);
        drop(padding);
        drop(moved);
        let part = make(layout.part, dtype);
        let master = if offloaded {
            ops::elsewhere(cx, &[], DType::Float32)
        } else if dtype == DType::Float32 {
            part.clone()
        } else {
            make(layout.part, DType::Float32)
        };
        drop(part);
        let largest = parameters.iter().map(Tensor::numel).max().unwrap_or(0);
        let passing = offloaded.then(|| cx.counting_as(Kind::Gradient, || make(largest, dtype)));
        let how = HostMemory::pinned(parallel.zero.offload_pin_memory);
        let away = offloaded.then(|| Away::load(cx, &layout, (largest, dtype), how));
        if !offloaded {
            // `initialize_optimizer_states` makes a gradient, and lets it go.
            drop(make(layout.part, DType::Float32));
        }
        for (number, parameter) in (0u32..).zip(&parameters) {
            parameter.number(number);
        }
        let zero = Rc::new(Self {
            cuts_gradients: parallel.strategy == ParallelStrategy::Zero2,
            overlaps: parallel.zero.overlap_comm,
            offloaded,
            limit: parallel.zero.reduce_bucket_size,
            dtype,
            ranks: parallel.gpus,
            module,
            flat,
            frozen: frozen.into_iter().map(|(_, tensor)| tensor).collect(),
            passing,
            away,
            master: if offloaded { Vec::new() } else { vec![master.into_leaf(false)] },
            buckets: RefCell::default(),
            filled: Cell::new(0),
            members: RefCell::default(),
            own: RefCell::default(),
            averaged: RefCell::default(),
            norms: Norms::default(),
            last: Cell::new(true),
            micro_step: Cell::new(0),
            model: parameters,
            layout,
        });
        cx.set_hooks(Rc::<Self>::clone(&zero));
        zero
    }

    fn here<T>(&self, cx: &Rc<Context>, kind: Kind, f: impl FnOnce() -> T) -> T {
        cx.counting_as(kind, || cx.put_down_to(self.module, f))
    }

    /// `setup_buckets`, at the first gradient.
    fn set_up(&self, cx: &Rc<Context>) {
        let count = if self.overlaps { 2 } else { 1 };
        while self.buckets.borrow().len() < count {
            let bucket = self.here(cx, Kind::Gradient, || ops::empty(cx, &[self.limit], self.dtype));
            self.buckets.borrow_mut().push(bucket);
        }
    }

    /// `reduce_independent_p_g_buckets_and_remove_grads`.
    fn fill(&self, cx: &Rc<Context>, index: usize) {
        let Some(parameter) = self.model.get(index) else { return };
        let numel = parameter.numel();
        if self.filled.get().saturating_add(numel) > self.limit {
            self.flush(cx);
        }
        if numel <= self.limit {
            let bucket = self.buckets.borrow().first().cloned();
            let view = bucket.map(|bucket| bucket.view_as(parameter.geometry().clone()));
            optim::set_gradient(parameter, view);
        } else if self.offloaded {
            let clone = || ops::rearrangement(cx, Rearrangement::Clone, &[numel], self.dtype);
            let cloned = self.here(cx, Kind::Gradient, clone);
            optim::set_gradient(parameter, Some(cloned.view_as(parameter.geometry().clone())));
        }
        self.filled.set(self.filled.get().saturating_add(numel));
        self.members.borrow_mut().push(index);
    }

    /// `reduce_ipg_grads`: what is in the bucket is reduced; the first rank keeps the gradients of its own parameters.
    fn flush(&self, cx: &Rc<Context>) {
        let members = self.members.take();
        self.filled.set(0);
        self.average(cx, &members);
        for index in members {
            let Some(parameter) = self.model.get(index) else { continue };
            if self.layout.is_first_ranks(index) {
                self.keep(cx, parameter, index);
            } else if self.cuts_gradients {
                optim::set_gradient(parameter, None);
            }
        }
    }

    /// `allreduce_and_scatter`: the parts of several ranks are laid together in one more buffer, up to a bucket's size at a
    /// time.
    fn average(&self, cx: &Rc<Context>, members: &[usize]) {
        let (mut count, mut numel) = (0, 0u64);
        let stream = if self.overlaps { REDUCTION } else { Stream::DEFAULT };
        let together = |count: usize, numel: u64| {
            ops::transfer(cx, Transfer::AllReduce, numel, self.ranks, self.dtype);
            if count > 1 {
                let cat = || ops::rearrangement(cx, Rearrangement::Cat, &[numel], self.dtype);
                drop(cx.on_stream(stream, || self.here(cx, Kind::Gradient, cat)));
            }
        };
        for slice in self.layout.slices(members) {
            (count, numel) = (count + 1, numel.saturating_add(slice));
            if numel > self.limit {
                together(count, numel);
                (count, numel) = (0, 0);
            }
        }
        together(count, numel);
    }

    /// `all_gather_dp_groups`: every rank's part of the new parameters into the flat buffer, where they lie.
    fn update(&self, cx: &Rc<Context>) {
        ops::transfer(cx, Transfer::AllGather, self.layout.total, self.ranks, self.dtype);
    }

    /// `set_norm_for_param_grad_in_gpu` and `async_inplace_copy_grad_to_fp32_buffer_from_gpu`: the norm of the first rank's part
    /// of a gradient, then the part in float32 on its way to the machine's memory.
    fn send(&self, cx: &Rc<Context>, index: usize) {
        let Some(numel) = self.layout.first_ranks().nth(index) else { return };
        self.norms.hold(cx, numel);
        ops::transfer(cx, Transfer::ToHost, numel, 1, DType::Float32);
        if self.dtype != DType::Float32 {
            let copy = || ops::fill(cx, Fill::ToCopy, &[numel], DType::Float32);
            drop(self.here(cx, Kind::Gradient, copy));
        }
    }

    /// `async_accumulate_grad_in_cpu_via_gpu`, of several micro-batches: what was sent comes back to be added to, and goes again.
    fn accumulate(&self, cx: &Rc<Context>, parameter: &Tensor, index: usize) {
        if let Some(away) = self.away.as_ref().filter(|_| self.micro_step.get() > 0 || !self.last.get()) {
            away.collect(cx, index, parameter.numel(), self.dtype);
        }
        if self.micro_step.get() > 0 {
            ops::transfer(cx, Transfer::ToCard, parameter.numel(), 1, self.dtype);
        }
        if self.micro_step.get() > 0 || !self.last.get() {
            ops::transfer(cx, Transfer::ToHost, parameter.numel(), 1, self.dtype);
        }
    }

    /// `get_all_grad_tensors`: zeros where a parameter of the first rank has no gradient.
    fn missing(&self, cx: &Rc<Context>) -> Vec<Tensor> {
        if self.offloaded {
            return Vec::new();
        }
        let own = self.model.iter().enumerate().filter(|(index, _)| self.layout.is_first_ranks(*index));
        let without = own.filter(|(_, parameter)| !optim::has_gradient(parameter));
        let zeros = |parameter: &Tensor| ops::fill(cx, Fill::ZerosLike, parameter.dims(), self.dtype);
        without.map(|(_, parameter)| self.here(cx, Kind::Gradient, || zeros(parameter))).collect()
    }

    /// `copy_grads_in_partition`.
    fn keep(&self, cx: &Rc<Context>, parameter: &Tensor, index: usize) {
        if self.offloaded {
            self.accumulate(cx, parameter, index);
            if self.last.get() {
                self.send(cx, index);
            }
            return optim::set_gradient(parameter, None);
        }
        if self.own.borrow().is_none() {
            let whole = self.layout.first_ranks_whole();
            let own = self.here(cx, Kind::Gradient, || ops::empty(cx, &[whole], self.dtype));
            drop(self.own.replace(Some(own)));
        }
        let own = self.own.borrow().clone();
        optim::set_gradient(parameter, own.map(|own| own.view_as(parameter.geometry().clone())));
    }
}

impl Hooks for Early {
    fn accumulated(&self, cx: &Rc<Context>, parameter: u32) {
        self.set_up(cx);
        if self.cuts_gradients || (self.overlaps && self.last.get()) {
            self.fill(cx, parameter as usize);
        }
    }
}

impl Wrapper for Early {
    fn parameters(&self) -> &[Tensor] {
        &self.master
    }

    fn before_forward(&self, _: &Rc<Context>, _: Option<&Batch>, reduces: bool) -> Option<Batch> {
        self.micro_step.set(if self.last.replace(reduces) { 0 } else { self.micro_step.get() + 1 });
        None
    }

    /// Of several micro-batches the later ones add to what the first has left.
    fn repeats(&self, every: bool) -> bool {
        every && !self.offloaded
    }

    fn held(&self) -> Vec<Tensor> {
        self.averaged.borrow().clone()
    }

    fn hold(&self, held: Vec<Tensor>) {
        drop(self.averaged.replace(held));
    }

    fn hosted(&self) -> Vec<Tensor> {
        self.away.iter().map(|away| away.master.clone()).collect()
    }

    fn engine(&self) -> Option<&dyn Engine> {
        Some(self)
    }
}

impl Engine for Early {
    /// `independent_gradient_partition_epilogue`, of stage 1 behind a step's last micro-batch only.
    fn after_backward(&self, cx: &Rc<Context>) {
        if !self.cuts_gradients && !self.last.get() {
            return;
        }
        if !self.cuts_gradients && !self.overlaps {
            for index in 0..self.model.len() {
                if self.model.get(index).is_some_and(optim::has_gradient) {
                    self.fill(cx, index);
                }
            }
        }
        self.flush(cx);
        let zeros = self.missing(cx);
        // Of later micro-batches the gradients are added to those of the first.
        let own = self.own.take();
        let later = if self.averaged.borrow().is_empty() {
            self.averaged.borrow_mut().extend(own.into_iter().chain(zeros));
            None
        } else {
            drop(own);
            Some(zeros)
        };
        drop(self.buckets.take());
        drop(later);
        for parameter in &self.model {
            optim::set_gradient(parameter, None);
        }
    }

    fn step(&self, cx: &Rc<Context>, optimizers: &mut [Share]) {
        let slices: Vec<u64> = self.layout.first_ranks().collect();
        if self.offloaded {
            self.norms.elsewhere(cx);
            ops::transfer(cx, Transfer::ToCard, self.layout.part, 1, self.dtype);
            return self.update(cx);
        }
        let (norm, before) = self.norms.of(cx, &slices);
        let to = |dtype| {
            let copy = || ops::fill(cx, Fill::ToCopy, &[self.layout.part], dtype);
            self.here(cx, Kind::Gradient, copy)
        };
        let cat = || ops::rearrangement(cx, Rearrangement::Cat, &[self.layout.part], self.dtype);
        let flat = (slices.len() > 1).then(|| self.here(cx, Kind::Gradient, cat));
        let averaged = self.averaged.take();
        let gradient = match flat.or_else(|| averaged.first().cloned()) {
            Some(same) if self.dtype == DType::Float32 => Some(same),
            Some(half) => {
                let single = to(DType::Float32);
                drop(half);
                Some(single)
            }
            None => None,
        };
        drop(averaged);
        let clip = small::clip(cx, &norm);
        drop(clip);
        for (master, gradient) in self.master.iter().zip(gradient) {
            optim::set_gradient(master, Some(gradient.view_as(master.geometry().clone())));
        }
        for optimizer in optimizers {
            optimizer.step(cx);
        }
        for master in &self.master {
            optim::set_gradient(master, None);
        }
        self.update(cx);
        drop((norm, before));
    }
}
