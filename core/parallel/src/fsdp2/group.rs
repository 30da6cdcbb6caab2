//! The parameters of one `fully_shard` (`FSDPParamGroup`, `torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py`).

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use plimsoll_ledger::Stream;
use plimsoll_torch::nn::Sharded;
use plimsoll_torch::ops::{self, Fill, Transfer};
use plimsoll_torch::optim;
use plimsoll_torch::tensor::{Context, DType, Kind, ModuleId, Tensor};

use crate::hosted::Hosted;
use crate::span::{Progress, Span};

/// `all_gather_copy_in_stream`: where gathered parameters arrive.
const ALL_GATHER: Stream = Stream::new(1);
/// `reduce_scatter_stream`: where gradients' shards are made.
const REDUCE_SCATTER: Stream = Stream::new(2);

/// `all_reduce_stream`: where copies of shards are summed (HSDP).
const ALL_REDUCE: Stream = Stream::new(3);

/// What all groups share: the cards, the dtypes, and where what they allocate is said to be made.
#[derive(Debug)]
pub struct Shared {
    pub ranks: u64,
    /// Whether shards, their gradients and their states lie in the machine's own memory.
    pub offloaded: bool,
    /// What lies there.
    pub hosted: Hosted,
    pub reduce_dtype: Option<DType>,
    pub gathering: ModuleId,
    pub unsharded: ModuleId,
    pub reducing: ModuleId,
    /// How many groups of cards hold copies of one another's shards (HSDP), which are summed after reducing.
    pub copies: u64,
    /// Whether gathered parameters are let go of after backward.
    pub reshards_backward: bool,
    /// `comm_ctx.all_gather_state`: the last gathered buffer of the forward.
    pub gathered: RefCell<Option<Tensor>>,
    /// `comm_ctx.reduce_scatter_state`: the last buffer that was reduced.
    pub reduced: RefCell<Option<Tensor>>,
}

/// The parameters of one `fully_shard`.
#[derive(Debug)]
pub struct Group {
    pub parameters: Vec<Sharded>,
    /// Whether they go after the forward.
    pub reshards: bool,
    pub span: Cell<Span>,
    pub progress: Cell<Progress>,
    /// `_all_gather_result`: gathered, and not yet copied out.
    pub arrived: RefCell<Option<Tensor>>,
    /// Whole parameters, where they are there.
    pub whole: RefCell<Vec<Tensor>>,
    /// Gradients in the dtype they are reduced in, of micro-batches that did not reduce.
    accumulated: RefCell<Vec<Option<Tensor>>>,
    /// `_all_reduce_state`: what was summed over copies, until backward is over.
    pub summed: RefCell<Option<Tensor>>,
}

impl Group {
    /// Of these parameters.
    pub fn new(parameters: Vec<Sharded>, reshards: bool) -> Self {
        let accumulated = RefCell::new(parameters.iter().map(|_| None).collect());
        Self {
            parameters,
            reshards,
            span: Cell::default(),
            progress: Cell::default(),
            arrived: RefCell::default(),
            whole: RefCell::default(),
            accumulated,
            summed: RefCell::default(),
        }
    }

    /// The dtype that all parameters are gathered in, if it is one.
    fn gathered_dtype(&self) -> Option<DType> {
        let mut dtypes = self.parameters.iter().map(|p| p.whole.dtype());
        let first = dtypes.next()?;
        dtypes.all(|dtype| dtype == first).then_some(first)
    }

    /// Whether whole parameters are there.
    pub fn is_whole(&self) -> bool {
        !self.whole.borrow().is_empty()
    }

    /// `unshard`: `foreach_all_gather` of what is not there yet. What is gathered in another dtype is cast into one flat
    /// tensor first; the shards lie in the output, where they are gathered in place.
    pub fn unshard(&self, cx: &Rc<Context>, shared: &Shared) {
        if self.is_whole() || self.arrived.borrow().is_some() {
            return;
        }
        if self.parameters.is_empty() {
            return;
        }
        let cast = |p: &&Sharded| p.shard.dtype() != p.whole.dtype();
        let sum = |parts: &mut dyn Iterator<Item = u64>| parts.fold(0, u64::saturating_add);
        let first_cast = self.parameters.iter().find(cast).map(|p| p.whole.dtype());
        let casts = sum(&mut self.parameters.iter().filter(cast).map(|p| p.shard.numel()));
        let arrived = here(cx, shared.gathering, Kind::Parameter, ALL_GATHER, || {
            let parts = if shared.offloaded { self.fetch(cx) } else { Vec::new() };
            let flat = first_cast.filter(|_| !shared.offloaded).map(|dtype| ops::empty(cx, &[casts], dtype));
            // Where dtypes differ, bytes are gathered.
            let (dtype, numel) = match self.gathered_dtype() {
                Some(dtype) => (dtype, sum(&mut self.parameters.iter().map(|p| p.shard.numel()))),
                None => (DType::UInt8, sum(&mut self.parameters.iter().map(gathered_bytes))),
            };
            let output = ops::empty(cx, &[numel.saturating_mul(shared.ranks)], dtype);
            ops::transfer(cx, Transfer::AllGather, numel.saturating_mul(shared.ranks), shared.ranks, dtype);
            drop(flat);
            drop(parts);
            output
        });
        drop(self.arrived.replace(Some(arrived)));
    }

    /// `all_gather_inputs` of shards in the machine's memory: each comes by itself, and is cast by itself.
    fn fetch(&self, cx: &Rc<Context>) -> Vec<Tensor> {
        let fetch = |p: &Sharded| {
            let came = ops::fill(cx, Fill::ToCopy, &[p.shard.numel()], p.shard.dtype());
            ops::transfer(cx, Transfer::ToCard, p.shard.numel(), 1, p.shard.dtype());
            cx.no_grad(|| ops::to(&came, p.whole.dtype()))
        };
        self.parameters.iter().map(fetch).collect()
    }

    /// `wait_for_unshard`: copies the parameters out. In the forward the gathered buffer stays until the next group's
    /// parameters are copied out; in the backward it goes at once.
    pub fn wait(&self, cx: &Rc<Context>, shared: &Shared, forward: bool) {
        let Some(arrived) = self.arrived.take() else { return };
        let before = if forward { shared.gathered.take() } else { None };
        let whole = here(cx, shared.unsharded, Kind::Parameter, Stream::DEFAULT, || {
            let padded = |p: &Sharded| {
                let numel = p.shard.numel().saturating_mul(shared.ranks);
                cx.owned_by(&p.shard, || ops::empty(cx, &[numel], p.whole.dtype()))
            };
            let whole = self.parameters.iter().map(padded).collect::<Vec<Tensor>>();
            ops::split_with_sizes_copy(cx, self.parameters.iter().map(gathered_bytes), shared.ranks);
            whole
        });
        drop(self.whole.replace(whole));
        drop(before);
        if forward {
            drop(shared.gathered.replace(Some(arrived)));
        } else {
            drop(arrived);
        }
    }

    /// `_to_sharded`: lets the whole parameters go, one after the other.
    pub fn reshard(&self) {
        for parameter in self.whole.take() {
            drop(parameter);
        }
    }

    /// `post_backward`: the gradients that have come are reduced, or kept whole until a micro-batch that reduces.
    pub fn post_backward(&self, cx: &Rc<Context>, shared: &Shared, reduces: bool) {
        self.progress.set(Progress::Done);
        self.accumulate();
        if !reduces {
            self.let_go(shared);
            self.keep(cx, shared);
            return;
        }
        let mut gradients: Vec<(usize, Tensor)> = Vec::new();
        for (index, parameter) in self.parameters.iter().enumerate() {
            let kept = self.accumulated.borrow_mut().get_mut(index).and_then(Option::take);
            let gradient = kept.or_else(|| optim::take_gradient(&parameter.whole));
            gradients.extend(gradient.map(|gradient| (index, gradient)));
        }
        self.let_go(shared);
        if !gradients.is_empty() {
            drop(shared.reduced.take());
            self.reduce(cx, shared, gradients);
        }
    }

    /// `reshard` after backward, unless that was switched off.
    fn let_go(&self, shared: &Shared) {
        if shared.reshards_backward {
            self.reshard();
        }
    }

    /// `accumulate_unsharded_grad_if_needed`.
    fn accumulate(&self) {
        for (parameter, kept) in self.parameters.iter().zip(self.accumulated.borrow().iter()) {
            let Some(kept) = kept else { continue };
            if let Some(fresh) = optim::take_gradient(&parameter.whole) {
                ops::accumulate(kept, &fresh);
                drop(fresh);
            }
        }
    }

    /// `to_accumulated_grad_if_needed`.
    fn keep(&self, cx: &Rc<Context>, shared: &Shared) {
        let Some(dtype) = shared.reduce_dtype else { return };
        for (parameter, kept) in self.parameters.iter().zip(self.accumulated.borrow_mut().iter_mut()) {
            if optim::gradient_dtype(&parameter.whole).is_none_or(|known| known == dtype) {
                continue;
            }
            if let Some(fresh) = optim::take_gradient(&parameter.whole) {
                let cast = || cx.no_grad(|| ops::to(&fresh, dtype));
                *kept = Some(cx.counting_as(Kind::Gradient, cast));
                drop(fresh);
            }
        }
    }

    /// `foreach_reduce`: the last gradient lives until it returns, by a loop's variable.
    fn reduce(&self, cx: &Rc<Context>, shared: &Shared, gradients: Vec<(usize, Tensor)>) {
        let Some((_, first)) = gradients.first() else { return };
        let dtype = shared.reduce_dtype.unwrap_or_else(|| first.dtype());
        let numbers: Vec<usize> = gradients.iter().map(|(index, _)| *index).collect();
        let members = || numbers.iter().filter_map(|index| self.parameters.get(*index));
        let local = members().fold(0u64, |sum, p| sum.saturating_add(p.shard.numel()));
        let whole = local.saturating_mul(shared.ranks);
        let input = here(cx, shared.reducing, Kind::Gradient, Stream::DEFAULT, || {
            let input = ops::empty(cx, &[whole], dtype);
            let chunks = gradients.iter().zip(members()).map(|((_, gradient), p)| (gradient, p.shard.numel()));
            ops::chunk_cat(cx, &chunks.collect::<Vec<(&Tensor, u64)>>(), shared.ranks, dtype);
            input
        });
        let mut last = None;
        for (_, gradient) in gradients {
            drop(last.replace(gradient));
        }
        let own = members().next().map_or(dtype, |p| p.shard.dtype());
        let reduced = here(cx, shared.reducing, Kind::Gradient, REDUCE_SCATTER, || ops::empty(cx, &[local], dtype));
        ops::transfer(cx, Transfer::ReduceScatter, whole, shared.ranks, dtype);
        if shared.copies > 1 {
            ops::transfer(cx, Transfer::AllReduce, local, shared.copies, dtype);
        }
        let after = if shared.copies > 1 { ALL_REDUCE } else { REDUCE_SCATTER };
        let output = here(cx, shared.reducing, Kind::Gradient, after, || cx.no_grad(|| ops::to(&reduced, own)));
        if shared.offloaded {
            ops::transfer(cx, Transfer::ToHost, local, 1, own);
        }
        if shared.copies > 1 {
            drop(self.summed.replace(Some(reduced)));
        } else {
            drop(reduced);
        }
        // Offloaded, shards of gradients go to the machine's memory, where clipping and the optimizer run.
        for parameter in members().filter(|_| shared.offloaded) {
            shared.hosted.gradient(cx, &parameter.shard);
        }
        for parameter in members().filter(|_| !shared.offloaded) {
            let part = output.view_as(parameter.shard.geometry().clone());
            optim::add_gradient(&parameter.shard, part);
        }
        drop(output);
        drop(shared.reduced.replace(Some(input)));
        drop(last);
    }

    /// `finalize_backward`: what was gathered ahead and never used goes.
    pub fn finalize(&self) {
        drop(self.arrived.take());
        drop(self.summed.take());
        self.progress.set(Progress::Waiting);
    }
}

/// What a card's part of a parameter takes as it is gathered.
fn gathered_bytes(parameter: &Sharded) -> u64 {
    parameter.shard.numel().saturating_mul(parameter.whole.dtype().size())
}

fn here<T>(cx: &Rc<Context>, module: ModuleId, kind: Kind, stream: Stream, f: impl FnOnce() -> T) -> T {
    cx.on_stream(stream, || cx.counting_as(kind, || cx.put_down_to(module, f)))
}
