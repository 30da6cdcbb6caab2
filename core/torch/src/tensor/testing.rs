//! For unit tests: a run to try ops on, and readings of its ledger.

use std::rc::Rc;

use plimsoll_ledger::Kind;
use plimsoll_ledger::PhaseName;

use crate::Op;

use super::{Context, DType, Tensor, backward};

/// A run that has just begun its forward.
pub fn forward() -> Rc<Context> {
    let cx = Context::new();
    cx.begin(PhaseName::Forward, Some(1), Some(1));
    cx
}

/// A model's weight that is trained: a float32 leaf.
pub fn weight(cx: &Rc<Context>, sizes: &[u64]) -> Tensor {
    weight_of(cx, sizes, DType::Float32)
}

/// As [`weight`], of any dtype.
pub fn weight_of(cx: &Rc<Context>, sizes: &[u64], dtype: DType) -> Tensor {
    frozen_of(cx, sizes, dtype).into_leaf(false)
}

/// A model's weight that is not trained.
pub fn frozen_of(cx: &Rc<Context>, sizes: &[u64], dtype: DType) -> Tensor {
    cx.counting_as(Kind::Parameter, || cx.empty_sizes(Op::EmptyStrided, sizes, dtype))
}

/// What a model is fed: no gradient is wanted for it.
pub fn input(cx: &Rc<Context>, sizes: &[u64]) -> Tensor {
    input_of(cx, sizes, DType::Float32)
}

/// As [`input`], of any dtype.
pub fn input_of(cx: &Rc<Context>, sizes: &[u64], dtype: DType) -> Tensor {
    cx.counting_as(Kind::Input, || cx.empty_sizes(Op::EmptyMemoryFormat, sizes, dtype))
}

/// An activation a gradient is wanted for, with nothing before it but a leaf of its own.
pub fn activation(cx: &Rc<Context>, sizes: &[u64]) -> Tensor {
    activation_of(cx, sizes, DType::Float32)
}

/// As [`activation`], of any dtype.
pub fn activation_of(cx: &Rc<Context>, sizes: &[u64], dtype: DType) -> Tensor {
    cx.empty_sizes(Op::Rand, sizes, dtype).into_leaf(false)
}

/// `.grad` of a leaf.
pub fn gradient(leaf: &Tensor) -> Option<Tensor> {
    leaf.edge()?.node.leaf()?.grad.borrow().clone()
}

/// How many births and deaths there were so far.
pub fn events(cx: &Context) -> usize {
    cx.recorder.borrow().ledger().events.len()
}

/// The births (`+`) and deaths (`-`) from event `from` on, with op, sizes and dtype: `+mm [4, 8] float32`.
pub fn seen(cx: &Context, from: usize) -> Vec<String> {
    let recorder = cx.recorder.borrow();
    let ledger = recorder.ledger();
    ledger.events[from..]
        .iter()
        .map(|event| {
            let s = &ledger.storages[event.id() as usize];
            let sign = if event.is_free() { '-' } else { '+' };
            format!("{sign}{} {:?} {}", ledger.op(s), ledger.sizes(s), s.dtype.name())
        })
        .collect()
}

/// What `f` allocates and frees, as [`seen`], and what it returns.
pub fn watch<T>(cx: &Context, f: impl FnOnce() -> T) -> (Vec<String>, T) {
    let from = events(cx);
    let out = f();
    (seen(cx, from), out)
}

/// The ops that allocated, in order, without what they freed.
pub fn made(events: &[String]) -> Vec<&str> {
    events.iter().filter_map(|e| e.strip_prefix('+')?.split(' ').next()).collect()
}

/// What `backward()` from `loss` allocates and frees.
pub fn backward_of(loss: Tensor) -> Vec<String> {
    let cx = Rc::clone(loss.cx());
    cx.begin(PhaseName::Backward, Some(1), Some(1));
    watch(&cx, move || {
        backward(&loss);
        drop(loss);
    })
    .0
}

/// Bytes that are alive.
pub fn live(cx: &Context) -> u64 {
    let recorder = cx.recorder.borrow();
    let ledger = recorder.ledger();
    ledger.events.iter().fold(0, |sum, event| {
        let bytes = ledger.storages[event.id() as usize].bytes;
        if event.is_free() { sum - bytes } else { sum + bytes }
    })
}

/// The storages of a kind that are alive, in order of birth, as `op [sizes] dtype`.
pub fn alive(cx: &Context, kind: Kind) -> Vec<String> {
    let recorder = cx.recorder.borrow();
    let ledger = recorder.ledger();
    let mut alive = vec![false; ledger.storages.len()];
    for event in &ledger.events {
        alive[event.id() as usize] = !event.is_free();
    }
    ledger
        .storages
        .iter()
        .zip(alive)
        .filter(|(s, alive)| *alive && s.kind == kind)
        .map(|(s, _)| format!("{} {:?} {}", ledger.op(s), ledger.sizes(s), s.dtype.name()))
        .collect()
}
