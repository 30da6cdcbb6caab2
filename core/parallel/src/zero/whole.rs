//! Stage 0 (`deepspeed/runtime/fp16/unfused_optimizer.py`, 0.19.8): nothing is cut. In 16 bits every card has float32 copies of
//! all parameters, which the optimizer works on, and its states from the beginning; in float32 the optimizer is PyTorch's own.

use std::cell::Cell;
use std::rc::Rc;

use plimsoll_torch::Batch;
use plimsoll_torch::nn::Sharded;
use plimsoll_torch::ops::{self, Fill, Rearrangement, Transfer};
use plimsoll_torch::optim::{self, Share};
use plimsoll_torch::tensor::{Context, DType, Hooks, Kind, ModuleId, Tensor};

use super::small;
use crate::hosted::Loaded;
use crate::wrapper::{Engine, Wrapper};

/// Numbers that gradients are averaged at a time (`MEMORY_OPT_ALLREDUCE_SIZE`); a bucket closes once it has more.
const AT_A_TIME: u64 = 500_000_000;

/// A model under stage 0: every card has all of it.
#[derive(Debug)]
pub struct Whole {
    /// Those that are trained.
    model: Vec<Tensor>,
    dtype: DType,
    module: ModuleId,
    /// What lies on the card of the model: its parameters' bytes.
    #[allow(dead_code, reason = "held alive, as the model holds them")]
    moved: Vec<Tensor>,
    /// What the optimizer works on.
    masters: Vec<Tensor>,
    clips: bool,
    ranks: u64,
    last: Cell<bool>,
}

impl Whole {
    /// `deepspeed.initialize(model)`, of a model in the machine's memory.
    pub fn wrap(cx: &Rc<Context>, sharded: &[Sharded], order: &[Tensor], clips: bool, ranks: u64) -> Rc<Self> {
        let module = cx.module(ModuleId::ROOT, "zero".into(), None);
        let trained = sharded.iter().find(|p| p.shard.requires_grad());
        let dtype = trained.map_or(DType::Float32, |p| p.whole.dtype());
        let make = |sizes: &[u64], dtype| cx.put_down_to(module, || ops::loaded(cx, sizes, dtype));
        let mut loaded = Loaded::of(cx, order.iter().map(|p| (p, p.dtype())));
        let to_card = |p: &Tensor| {
            let moved = make(p.dims(), p.dtype());
            loaded.moved(p);
            moved
        };
        let moved: Vec<Tensor> = order.iter().map(to_card).collect();
        let trained = || order.iter().zip(&moved).filter(|(p, _)| p.requires_grad());
        let master = |(parameter, moved): (&Tensor, &Tensor)| {
            let leaf = |tensor: Tensor| tensor.into_leaf(false);
            if dtype == DType::Float32 {
                return leaf(moved.view_as(parameter.geometry().clone()));
            }
            let cloned = make(parameter.dims(), dtype);
            let master = make(parameter.dims(), DType::Float32);
            drop(cloned);
            leaf(master)
        };
        let masters = trained().map(master).collect();
        let model = trained().map(|(parameter, _)| parameter.clone()).collect();
        let whole = Rc::new(Self { model, dtype, module, masters, moved, clips, ranks, last: Cell::new(true) });
        cx.set_hooks(Rc::<Self>::clone(&whole));
        whole
    }

    fn here<T>(&self, cx: &Rc<Context>, f: impl FnOnce() -> T) -> T {
        cx.counting_as(Kind::Gradient, || cx.put_down_to(self.module, f))
    }

    /// `get_weight_norm` of every gradient: each is copied to float32.
    fn norm(&self, cx: &Rc<Context>) {
        let total = small::number(cx, DType::Float32);
        for parameter in self.model.iter().filter(|p| optim::has_gradient(p)) {
            let copy = ops::fill(cx, Fill::ToCopy, &[parameter.numel()], DType::Float32);
            let norm = ops::norm(cx, parameter.numel(), DType::Float32);
            drop(copy);
            drop(small::number(cx, DType::Float32));
            drop(norm);
        }
        drop(total);
    }

    fn clear(of: &[Tensor]) {
        for tensor in of {
            optim::set_gradient(tensor, None);
        }
    }
}

impl Hooks for Whole {}

impl Wrapper for Whole {
    fn parameters(&self) -> &[Tensor] {
        &self.masters
    }

    fn before_forward(&self, _: &Rc<Context>, _: Option<&Batch>, reduces: bool) -> Option<Batch> {
        self.last.set(reduces);
        None
    }

    fn engine(&self) -> Option<&dyn Engine> {
        Some(self)
    }
}

impl Engine for Whole {
    /// `initialize_optimizer_states`: a step on zeros.
    fn begin(&self, cx: &Rc<Context>, optimizers: &mut [Share]) {
        if self.dtype == DType::Float32 {
            return;
        }
        let zeros = |like: &Tensor| self.here(cx, || ops::fill(cx, Fill::Zeros, like.dims(), like.dtype()));
        let halves: Vec<Tensor> = self.model.iter().map(zeros).collect();
        for master in &self.masters {
            optim::set_gradient(master, Some(zeros(master)));
        }
        for optimizer in optimizers {
            optimizer.step(cx);
        }
        drop(halves);
        Self::clear(&self.masters);
    }

    fn scales(&self) -> bool {
        false
    }

    /// `allreduce_no_retain`, behind a step's last micro-batch: gradients are averaged in flat copies.
    fn after_backward(&self, cx: &Rc<Context>) {
        if !self.last.get() {
            return;
        }
        // `_get_gradients_for_reduction`: one that did not come is one of zeros, so that all ranks reduce the same.
        for parameter in self.model.iter().filter(|parameter| !optim::has_gradient(parameter)) {
            let zeros = self.here(cx, || ops::fill(cx, Fill::Zeros, parameter.dims(), parameter.dtype()));
            optim::set_gradient(parameter, Some(zeros));
        }
        let average = |count: usize, numel: u64| {
            ops::transfer(cx, Transfer::AllReduce, numel, self.ranks, self.dtype);
            if count > 1 {
                let cat = || ops::rearrangement(cx, Rearrangement::Cat, &[numel], self.dtype);
                drop(self.here(cx, cat));
            }
        };
        let (mut count, mut numel) = (0, 0u64);
        for parameter in &self.model {
            (count, numel) = (count + 1, numel.saturating_add(parameter.numel()));
            if numel > AT_A_TIME {
                average(count, numel);
                (count, numel) = (0, 0);
            }
        }
        average(count, numel);
    }

    fn step(&self, cx: &Rc<Context>, optimizers: &mut [Share]) {
        if self.dtype == DType::Float32 {
            for (parameter, master) in self.model.iter().zip(&self.masters) {
                optim::set_gradient(master, optim::take_gradient(parameter));
            }
            if self.clips {
                self.here(cx, || small::clip_whole(cx, self.masters.len() as u64));
            }
        } else {
            self.here(cx, || self.norm(cx));
            for (parameter, master) in self.model.iter().zip(&self.masters) {
                let single = || ops::fill(cx, Fill::ToCopy, parameter.dims(), DType::Float32);
                optim::set_gradient(master, Some(self.here(cx, single)));
            }
        }
        for optimizer in optimizers {
            optimizer.step(cx);
        }
        Self::clear(&self.masters);
        Self::clear(&self.model);
    }
}
