//! Gradients on their way into the rank's part of them (`deepspeed/runtime/zero/stage3.py`: `__add_grad_to_ipg_bucket`,
//! `__reduce_and_partition_ipg_grads`, `partition_grads`).

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use plimsoll_ledger::Stream;
use plimsoll_scenario::Zero;
use plimsoll_torch::ops::{self, Fill, Pointwise, Rearrangement, Transfer};
use plimsoll_torch::optim;
use plimsoll_torch::tensor::{Context, DType, Kind, ModuleId, Mould, Tensor};

use smallvec::SmallVec;

use super::store::{Members, Parameter, Store};
use crate::zero::small::Norms;
use crate::zero::swap::Swap;

/// The bucket that gradients are collected in.
#[derive(Debug)]
pub struct Reduction {
    /// `reduce_bucket_size`, in numbers.
    limit: u64,
    ranks: u64,
    dtype: DType,
    stream: Stream,
    module: ModuleId,
    /// `contiguous_gradients`, `reduce_scatter`.
    contiguous: bool,
    scatters: bool,
    /// Whether parts of gradients go on to the machine's memory.
    offloaded: bool,
    /// The bucket's bytes, for as long as the optimizer lives.
    buffer: Option<Tensor>,
    members: RefCell<Members>,
    /// What parts of so many numbers are reduced in.
    averaged: RefCell<Vec<(u64, Mould)>>,
    filled: Cell<u64>,
    /// What goes on to NVMe.
    pub swap: Swap,
}

impl Reduction {
    pub fn new(keys: &Zero, ranks: u64, dtype: DType, (stream, module): (Stream, ModuleId), offloaded: bool) -> Self {
        Self {
            limit: keys.reduce_bucket_size,
            ranks,
            dtype,
            stream,
            module,
            contiguous: keys.contiguous_gradients,
            scatters: keys.reduce_scatter,
            offloaded,
            buffer: None,
            members: RefCell::default(),
            averaged: RefCell::default(),
            filled: Cell::new(0),
            swap: Swap::new(keys),
        }
    }

    /// Makes the bucket, where there is one.
    pub fn set_up(&mut self, cx: &Rc<Context>) {
        if self.contiguous {
            self.buffer = Some(self.on(cx, || ops::empty(cx, &[self.limit], self.dtype)));
        }
    }

    fn on<T>(&self, cx: &Rc<Context>, f: impl FnOnce() -> T) -> T {
        cx.counting_as(Kind::Gradient, || cx.put_down_to(self.module, f))
    }

    /// A parameter's gradient has come; `last`: of the step's last micro-batch.
    pub fn add(&self, cx: &Rc<Context>, store: &Store, norms: &Norms, index: usize, last: bool) {
        let Some(parameter) = store.get(index) else { return };
        let numel = parameter.numel;
        if self.filled.get().saturating_add(numel) > self.limit && self.filled.get() > 0 {
            self.reduce(cx, store, norms, last);
        }
        if self.filled.get().saturating_add(numel) <= self.limit
            && let Some(buffer) = &self.buffer
        {
            let view = buffer.view_as(parameter.whole.geometry().clone());
            optim::set_gradient(&parameter.whole, Some(view));
        }
        self.members.borrow_mut().push(index);
        self.filled.set(self.filled.get().saturating_add(numel));
    }

    /// Averages what is in the bucket; every rank keeps its parts.
    pub fn reduce(&self, cx: &Rc<Context>, store: &Store, norms: &Norms, last: bool) {
        let mut members = self.members.take();
        let filled = self.filled.replace(0);
        if members.is_empty() {
            return;
        }
        cx.on_stream(self.stream, || {
            self.on(cx, || {
                let whole = self.buffer.as_ref().filter(|_| filled <= self.limit && !self.scatters);
                let averaged = if let Some(buffer) = whole {
                    ops::transfer(cx, Transfer::AllReduce, filled, self.ranks, self.dtype);
                    // `buffer_to_reduce.mul(self.gradient_predivide_factor)`
                    Some(ops::pointwise(Pointwise::MulTensor, buffer, &[], &[filled], self.dtype))
                } else {
                    members.sort_unstable();
                    let gradients: SmallVec<[&Parameter; 4]> =
                        members.iter().filter_map(|index| store.get(*index)).collect();
                    self.scatter(cx, &gradients)
                };
                let mut passing = None;
                for parameter in members.iter().filter_map(|index| store.get(*index)) {
                    drop(passing.take());
                    if self.offloaded {
                        passing = Some(self.send(cx, norms, parameter, last));
                    }
                    optim::set_gradient(&parameter.whole, None);
                }
                drop(passing);
                self.swap.bucket_left();
                drop(averaged);
            });
        });
    }

    /// `reduce_scatter_coalesced`: the parts of all gradients, rank by rank, with padding behind those that are too short.
    fn scatter(&self, cx: &Rc<Context>, gradients: &[&Parameter]) -> Option<Tensor> {
        let part = gradients.iter().fold(0u64, |sum, gradient| sum.saturating_add(gradient.part));
        ops::transfer(cx, Transfer::ReduceScatter, part.saturating_mul(self.ranks), self.ranks, self.dtype);
        if let [single] = gradients
            && single.numel.is_multiple_of(self.ranks.max(1))
        {
            // Its parts are reduced where they lie.
            let gradient = optim::take_gradient(&single.whole);
            optim::set_gradient(&single.whole, gradient.clone());
            return gradient;
        }
        let mut paddings = Vec::new();
        let padded: SmallVec<[&Parameter; 4]> =
            gradients.iter().copied().filter(|of| of.part.saturating_mul(self.ranks) > of.numel).collect();
        for rank in 0..if padded.is_empty() { 0 } else { self.ranks } {
            for gradient in &padded {
                let held = gradient.numel.saturating_sub(rank.saturating_mul(gradient.part)).min(gradient.part);
                if held < gradient.part {
                    paddings.push(ops::empty(cx, &[gradient.part - held], self.dtype));
                }
            }
        }
        let cat = || ops::rearrangement(cx, Rearrangement::Cat, &[part.saturating_mul(self.ranks)], self.dtype);
        let mut moulds = self.averaged.borrow_mut();
        let place = moulds.iter().position(|(known, _)| *known == part).unwrap_or_else(|| {
            moulds.push((part, Mould::default()));
            moulds.len() - 1
        });
        let cat = moulds.get(place).map_or_else(cat, |(_, mould)| mould.make(cx, cat));
        drop(paddings);
        Some(cat)
    }

    /// A part on its way to the machine's memory: back on the card, where it is added to what was sent before, and behind a
    /// step's last micro-batch its norm is taken and it is cast.
    fn send(&self, cx: &Rc<Context>, norms: &Norms, parameter: &Parameter, last: bool) -> Tensor {
        let back = ops::fill(cx, Fill::ToCopy, &[parameter.part], self.dtype);
        ops::transfer(cx, Transfer::ToCard, parameter.part, 1, self.dtype);
        ops::transfer(cx, Transfer::ToHost, parameter.part, 1, self.dtype);
        if last {
            norms.hold(cx, parameter.part);
            ops::transfer(cx, Transfer::ToHost, parameter.part, 1, DType::Float32);
            if !self.swap.gradient(cx, &back) && self.dtype != DType::Float32 {
                drop(ops::fill(cx, Fill::ToCopy, &[parameter.part], DType::Float32));
            }
        }
        back
    }
}
