//! One flat parameter (`FlatParamHandle`, `torch/distributed/fsdp/_flat_param.py`): all parameters of a wrapped module, one
//! behind the other, cut evenly over the cards.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use plimsoll_ledger::Stream;
use plimsoll_scenario::ShardingStrategy;
use plimsoll_torch::nn::Sharded;
use plimsoll_torch::ops::{self, Fill, Rearrangement, Transfer};
use plimsoll_torch::optim;
use plimsoll_torch::tensor::{Context, DType, Geometry, Kind, ModuleId, Tensor};

use crate::hosted::{Hosted, Loaded};
use crate::span::{Progress, Span};

/// `_unshard_stream`: where parameters are gathered. Their views are made there, and so are the gradients that flow back
/// through the views.
const UNSHARD: Stream = Stream::new(1);
/// `_pre_unshard_stream`: where what is gathered is cast or fetched first.
const PRE_UNSHARD: Stream = Stream::new(2);
/// `_post_backward_stream`: where gradients are reduced.
const POST_BACKWARD: Stream = Stream::new(3);

/// Bytes that addresses of parameters are a multiple of, where the original ones are used (`_get_aligned_numel`).
const ALIGNMENT: u64 = 16;

/// What all units share.
#[derive(Debug)]
pub struct Shared {
    pub ranks: u64,
    pub strategy: ShardingStrategy,
    /// Whether the optimizer sees the parameters themselves, as parts of the flat one (`use_orig_params`).
    pub originals: bool,
    /// Whether shards, their gradients and their states lie in the machine's own memory.
    pub offloaded: bool,
    /// What lies there, by the shard of each unit; page-locked from the first forward on.
    pub hosted: Hosted,
    /// The dtype gradients are reduced in; `None`: that of the computation.
    pub reduced: Option<DType>,
    pub gathering: ModuleId,
    pub reducing: ModuleId,
}

impl Shared {
    /// Whether parameters are cut at all (`uses_sharded_strategy`).
    pub const fn shards(&self) -> bool {
        !matches!(self.strategy, ShardingStrategy::NoShard)
    }

    /// How many cards share a flat parameter.
    const fn sharing(&self) -> u64 {
        if self.shards() { self.ranks } else { 1 }
    }
}

/// The flat parameter of one wrapped module.
#[derive(Debug)]
pub struct Unit {
    parameters: Vec<Sharded>,
    /// Numbers between parameters, for the sake of alignment, each with the number of parameters before it.
    paddings: Vec<(usize, u64)>,
    /// Numbers of the flat parameter.
    numel: u64,
    /// Its own dtype, and the one it is computed with.
    own: DType,
    computed: DType,
    /// What the optimizer works on: the first rank's part, or its parts of the parameters.
    pub leaves: Vec<Tensor>,
    /// The first rank's part, which is there as well where nothing of it is trained.
    #[allow(dead_code, reason = "held alive, as the module holds it")]
    shard: Tensor,
    /// Offloaded: the parameters that the optimizer works on in the machine's memory, and the gradient that is theirs.
    host: RefCell<Option<(Vec<Tensor>, Tensor)>>,
    pub span: Cell<Span>,
    pub progress: Cell<Progress>,
    /// Whether it is the root's.
    pub root: bool,
    /// The gathered parameter, or where nothing is cut, its copy in the dtype of the computation.
    pub whole: RefCell<Option<Tensor>>,
    /// Offloaded: this rank's part on the card, of which the original parameters are views.
    moved: RefCell<Option<Tensor>>,
    /// Whether the flat parameter is this rank's part.
    resharded: Cell<bool>,
    /// `flat_param.grad` while it is whole: of micro-batches that do not reduce.
    gradient: RefCell<Option<Tensor>>,
    /// `_saved_grad_shard`, and the flat gradient that the original parameters' gradients are parts of.
    pub shard_gradient: RefCell<Option<Tensor>>,
}

impl Unit {
    /// `parameters`, whole on the card.
    pub fn place(cx: &Rc<Context>, parameters: &[Sharded], loaded: &RefCell<Loaded>) -> Vec<Tensor> {
        let move_it = |p: &Sharded| {
            let moved = ops::loaded(cx, p.whole.dims(), p.shard.dtype());
            loaded.borrow_mut().moved(&p.whole);
            moved
        };
        parameters.iter().map(move_it).collect()
    }

    /// Makes one flat parameter of `parameters`, of which this rank keeps its part: from the machine's memory, if they are not
    /// `placed` on the card.
    pub fn load(
        cx: &Rc<Context>,
        parameters: Vec<Sharded>,
        (placed, loaded): (Option<Vec<Tensor>>, &RefCell<Loaded>),
        shared: &Shared,
        root: bool,
    ) -> Self {
        let first = parameters.first();
        let own = first.map_or(DType::Float32, |p| p.shard.dtype());
        let computed = first.map_or(own, |p| p.whole.dtype());
        let aligned = if shared.originals { ALIGNMENT / computed.size().max(1) } else { 0 };
        let (mut numel, mut paddings, mut places) = (0u64, Vec::new(), Vec::new());
        for (index, parameter) in parameters.iter().enumerate() {
            if aligned > 0 && !numel.is_multiple_of(aligned) {
                let padding = aligned - numel % aligned;
                paddings.push((index, padding));
                numel = numel.saturating_add(padding);
            }
            places.push((numel, parameter.whole.numel()));
            numel = numel.saturating_add(parameter.whole.numel());
        }
        if aligned > 0 && !numel.is_multiple_of(shared.ranks.max(1)) {
            let padding = shared.ranks - numel % shared.ranks;
            paddings.push((parameters.len(), padding));
            numel = numel.saturating_add(padding);
        }
        let local = numel.div_ceil(shared.sharing().max(1));
        let placed = placed.unwrap_or_else(|| Self::place(cx, &parameters, loaded));
        let shard = Self::shard(cx, placed, (numel, local), own, shared);
        let leaf = |tensor: Tensor| tensor.into_leaf(false);
        let part = |((place, count), of): ((u64, u64), &Sharded)| {
            let count = local.saturating_sub(place).min(count);
            let trained = count > 0 && of.shard.requires_grad();
            trained.then(|| leaf(shard.view_as(Geometry::contiguous(&[count]))))
        };
        let leaves = if shared.originals {
            places.into_iter().zip(&parameters).filter_map(part).collect()
        } else {
            vec![leaf(shard.clone())]
        };
        for parameter in &parameters {
            parameter.whole.view_of_flat(UNSHARD);
        }
        Self {
            parameters,
            paddings,
            numel,
            own,
            computed,
            leaves,
            shard,
            host: RefCell::default(),
            span: Cell::default(),
            progress: Cell::default(),
            root,
            whole: RefCell::default(),
            moved: RefCell::default(),
            resharded: Cell::new(true),
            gradient: RefCell::default(),
            shard_gradient: RefCell::default(),
        }
    }

    /// `_move_states_to_device`, `flatten_tensors`, `shard`: on the card lie the parameters, the flat one and this rank's part
    /// together. Offloaded, all of it happens in the machine's memory.
    fn shard(cx: &Rc<Context>, moved: Vec<Tensor>, (numel, local): (u64, u64), own: DType, shared: &Shared) -> Tensor {
        let on_card = |sizes: &[u64]| ops::loaded(cx, sizes, own);
        cx.put_down_to(shared.gathering, || {
            let flat = on_card(&[numel]);
            if !shared.shards() {
                drop(moved);
                return flat;
            }
            let shard = on_card(&[local]);
            drop(flat);
            drop(moved);
            if !shared.offloaded {
                return shard;
            }
            let part = ops::elsewhere(cx, &[local], own);
            shared.hosted.come(cx, &part);
            part
        })
    }

    /// Numbers of a card's part.
    fn local(&self, shared: &Shared) -> u64 {
        self.numel.div_ceil(shared.sharing().max(1))
    }

    fn casts(&self) -> bool {
        self.own != self.computed
    }

    /// `init_flat_param_attributes`, before the first forward: what is gathered into is made once and let go of at once; what lies in
    /// the machine's memory is page-locked, and so is a gradient for it (`_cpu_grad`).
    pub fn begin(&self, cx: &Rc<Context>, shared: &Shared) {
        if shared.offloaded {
            self.host.replace(shared.hosted.begin(cx, &self.shard, &self.leaves));
        }
        let local = self.local(shared);
        let once = |numel: u64, dtype: DType| {
            drop(here(cx, shared.gathering, Kind::Parameter, Stream::DEFAULT, || ops::empty(cx, &[numel], dtype)));
        };
        let padded = local.saturating_mul(shared.ranks);
        if self.casts() {
            once(local, self.computed);
        }
        if shared.shards() {
            once(padded, self.computed);
            if self.casts() {
                once(padded, self.own);
            }
        }
    }

    /// `_unshard`, where it is not there. What lies in the machine's memory comes to the card even so (`pre_unshard` of
    /// `torch/distributed/fsdp/_flat_param.py` asks whether anything is needed only of what lies on the card); where nothing is cast, the
    /// original parameters are views of it until this rank's part is used again (`flat_param_to`).
    pub fn unshard(&self, cx: &Rc<Context>, shared: &Shared) {
        let used = self.resharded.replace(false);
        let there = self.whole.borrow().is_some();
        let moves = shared.offloaded && !self.casts();
        if (there && !(used && shared.offloaded)) || (!shared.shards() && !self.casts()) {
            return;
        }
        let local = self.local(shared);
        let on = |stream, numel, dtype| {
            here(cx, shared.gathering, Kind::Parameter, stream, || ops::empty(cx, &[numel], dtype))
        };
        let part = (self.casts() || shared.offloaded).then(|| on(PRE_UNSHARD, local, self.computed));
        if shared.offloaded {
            // `_local_shard.to(device)` as it lies there, which is copied into what is cast (`_use_low_precision_shard`).
            if self.casts() {
                drop(on(PRE_UNSHARD, local, self.own));
            }
            ops::transfer(cx, Transfer::ToCard, local, 1, self.own);
        }
        if shared.originals && moves {
            drop(self.moved.replace(part.clone()));
        }
        if there {
            return;
        }
        let whole = if shared.shards() {
            let numel = local.saturating_mul(shared.ranks);
            let whole = on(UNSHARD, numel, self.computed);
            ops::transfer(cx, Transfer::AllGather, numel, shared.ranks, self.computed);
            drop(part);
            Some(whole)
        } else {
            part
        };
        drop(self.whole.replace(whole));
    }

    /// `_reshard`: lets the whole parameter go, if `frees`; a cast copy of one that is not cut always goes.
    pub fn reshard(&self, shared: &Shared, frees: bool) {
        self.resharded.set(true);
        drop(self.moved.take());
        if frees || !shared.shards() {
            drop(self.whole.take());
        }
    }

    /// The gradients of all parameters have come: they are laid together (`SplitWithSizesBackward`) into the flat parameter's
    /// own, or added to what is there. Whether there are any, and what was added, which autograd holds until the hook returns.
    pub fn gather_gradients(&self, cx: &Rc<Context>, shared: &Shared) -> (bool, Option<Tensor>) {
        let gradients: Vec<Option<Tensor>> = self.parameters.iter().map(|p| optim::take_gradient(&p.whole)).collect();
        if gradients.iter().all(Option::is_none) {
            return (false, None);
        }
        let zeros = |numel: u64| ops::fill(cx, Fill::Zeros, &[numel], self.computed);
        let flat = here(cx, shared.gathering, Kind::Backward, UNSHARD, || {
            let unused = self.parameters.iter().zip(&gradients).filter(|(_, gradient)| gradient.is_none());
            let mut made: Vec<Tensor> = self.paddings.iter().map(|(_, numel)| zeros(*numel)).collect();
            made.extend(unused.map(|(parameter, _)| zeros(parameter.whole.numel())));
            let flat = ops::rearrangement(cx, Rearrangement::Cat, &[self.numel], self.computed);
            drop(made);
            flat
        });
        drop(gradients);
        let mut place = self.gradient.borrow_mut();
        if place.is_none() {
            *place = self.take_kept(shared);
        }
        match place.as_ref() {
            Some(known) => {
                ops::accumulate(known, &flat);
                (true, Some(flat))
            }
            None => {
                *place = Some(flat);
                (true, None)
            }
        }
    }

    /// `flat_param.grad` of one that is not cut: what was reduced, and what zeros were written over, is what the next gradient is
    /// added to (`prepare_gradient_for_backward` saves none of its size away).
    fn take_kept(&self, shared: &Shared) -> Option<Tensor> {
        if shared.shards() || shared.offloaded {
            return None;
        }
        let parts: Vec<Tensor> = self.leaves.iter().filter_map(optim::take_gradient).collect();
        let first = parts.into_iter().next()?;
        Some(self.shard_gradient.take().unwrap_or(first))
    }

    /// `_post_backward_hook`, after the parameter was resharded: reduces the flat gradient.
    pub fn reduce(&self, cx: &Rc<Context>, shared: &Shared) {
        let Some(computed) = self.gradient.take() else { return };
        let on = |kind, f: &dyn Fn() -> Tensor| here(cx, shared.reducing, kind, POST_BACKWARD, f);
        let dtype = shared.reduced.unwrap_or(self.computed);
        let whole = on(Kind::Backward, &|| cx.no_grad(|| ops::to(&computed, dtype)));
        if !shared.shards() {
            ops::transfer(cx, Transfer::AllReduce, self.numel, shared.ranks, dtype);
            let kept = on(Kind::Gradient, &|| cx.no_grad(|| ops::to(&whole, self.own)));
            self.keep(&kept);
            return;
        }
        let local = self.local(shared);
        let padded = local.saturating_mul(shared.ranks);
        let pad = (padded > self.numel)
            .then(|| on(Kind::Backward, &|| ops::rearrangement(cx, Rearrangement::ConstantPadNd, &[padded], dtype)));
        let reduced = on(Kind::Gradient, &|| ops::empty(cx, &[local], dtype));
        ops::transfer(cx, Transfer::ReduceScatter, padded, shared.ranks, dtype);
        let own = on(Kind::Gradient, &|| cx.no_grad(|| ops::to(&reduced, self.own)));
        drop(reduced);
        if shared.offloaded {
            ops::transfer(cx, Transfer::ToHost, local, 1, self.own);
            drop(self.shard_gradient.replace(Some(own)));
        } else {
            self.keep(&own);
        }
        drop(pad);
        drop(whole);
        drop(computed);
    }

    /// What the optimizer works on in the machine's memory.
    pub fn hosted(&self) -> Vec<Tensor> {
        self.host.borrow().iter().flat_map(|(leaves, _)| leaves.clone()).collect()
    }

    /// The reduced gradient, or the sum with one that is there.
    fn keep(&self, gradient: &Tensor) {
        if self.leaves.iter().any(optim::has_gradient) {
            return;
        }
        for leaf in &self.leaves {
            optim::set_gradient(leaf, Some(gradient.view_as(leaf.geometry().clone())));
        }
        drop(self.shard_gradient.replace(Some(gradient.clone())));
    }

    /// `prepare_gradient_for_optim`: of the original parameters the flat gradient is held on; else the parameter has it.
    pub fn finalize(&self, shared: &Shared) {
        if !shared.originals || shared.offloaded {
            drop(self.shard_gradient.take());
        }
        for (leaf, gradient) in
            self.host.borrow().iter().flat_map(|(leaves, gradient)| leaves.iter().map(move |leaf| (leaf, gradient)))
        {
            optim::set_gradient(leaf, Some(gradient.view_as(leaf.geometry().clone())));
        }
        self.progress.set(Progress::Waiting);
    }

    /// `_reset_flat_param_grad_info_if_needed`: the flat gradient goes once no parameter has a part of it.
    pub fn reset(&self) {
        if !self.leaves.iter().any(optim::has_gradient) {
            drop(self.shard_gradient.take());
        }
    }
}

fn here<T>(cx: &Rc<Context>, module: ModuleId, kind: Kind, stream: Stream, f: impl FnOnce() -> T) -> T {
    cx.on_stream(stream, || cx.counting_as(kind, || cx.put_down_to(module, f)))
}
