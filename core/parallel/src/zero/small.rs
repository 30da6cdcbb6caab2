//! The norm of all gradients, as DeepSpeed takes it (`get_grad_norm_direct`, `scaled_global_norm`).

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

use plimsoll_torch::ops::{self, Fill};
use plimsoll_torch::tensor::{Context, DType, Geometry, Position, Repeat, Tensor};

/// What an optimizer of DeepSpeed remembers of norms.
#[derive(Debug, Default)]
pub struct Norms {
    /// `_global_grad_norm`, from the first step on.
    last: RefCell<Option<Tensor>>,
    /// `norm_for_param_grads`: those of gradients that were sent to the machine's memory.
    sent: RefCell<Vec<Tensor>>,
}

/// One number.
pub fn number(cx: &Rc<Context>, dtype: DType) -> Tensor {
    ops::fill(cx, Fill::Full, &[], dtype)
}

impl Norms {
    /// The norm of gradients of these sizes: each is copied to float64 first. Answers what the step holds to its end: the norm,
    /// and the one before, which the engine lets go of for the new one when the step is over.
    pub fn of(&self, cx: &Rc<Context>, sizes: &[u64]) -> (Tensor, Option<Tensor>) {
        let norms = in_double(cx, sizes);
        let count = norms.len() as u64;
        let stacked = ops::fill(cx, Fill::Full, &[count], DType::Float64);
        let powers = ops::fill(cx, Fill::Full, &[count], DType::Float64);
        drop((stacked, powers, norms));
        self.keep(cx)
    }

    /// The norm of one gradient of `numel` numbers, which is then sent to the machine's memory.
    pub fn hold(&self, cx: &Rc<Context>, numel: u64) {
        self.sent.borrow_mut().push(single_in_double(cx, numel));
    }

    /// The norm of all that was sent.
    pub fn elsewhere(&self, cx: &Rc<Context>) {
        drop(number(cx, DType::Float64));
        self.forget();
    }

    /// Lets go of what was held of what was sent (`reset_cpu_buffers`).
    pub fn forget(&self) {
        drop(self.sent.take());
    }

    fn keep(&self, cx: &Rc<Context>) -> (Tensor, Option<Tensor>) {
        let norm = number(cx, DType::Float32);
        let scaled = number(cx, DType::Float32);
        (norm, self.last.replace(Some(scaled)))
    }
}

/// The norm of a gradient of `numel` numbers, copied to float64 first.
fn single_in_double(cx: &Rc<Context>, numel: u64) -> Tensor {
    let copy = ops::fill(cx, Fill::ToCopy, &[numel], DType::Float64);
    let norm = ops::norm(cx, numel, DType::Float64);
    drop(copy);
    norm
}

/// The norm of each gradient of these sizes. One of every size is executed, and the others are copies of it.
pub fn in_double(cx: &Rc<Context>, sizes: &[u64]) -> Vec<Tensor> {
    let mut known: BTreeMap<u64, Executed> = BTreeMap::new();
    let norm = |numel: &u64| match known.get_mut(numel) {
        Some(executed) => executed.again(cx, || single_in_double(cx, *numel)),
        None => {
            let (executed, norm) = Executed::of(cx, || single_in_double(cx, *numel));
            known.insert(*numel, executed);
            norm
        }
    };
    sizes.iter().map(norm).collect()
}

/// Something that made a tensor, and nothing else that stays: it is copied where it is to be done again.
#[derive(Debug)]
pub struct Executed {
    repeat: Repeat,
    range: Range<Position>,
    made: (u32, Geometry, DType),
}

impl Executed {
    /// Makes it.
    pub fn of(cx: &Rc<Context>, make: impl FnOnce() -> Tensor) -> (Self, Tensor) {
        let (repeat, from) = (Repeat::new(cx.next_storage()), cx.position());
        let tensor = make();
        let made = (tensor.storage_id(), tensor.geometry().clone(), tensor.dtype());
        (Self { repeat, range: from..cx.position(), made }, tensor)
    }

    /// Makes it once more: a copy, where a run that was given up has not left nothing to copy.
    pub fn again(&mut self, cx: &Rc<Context>, make: impl FnOnce() -> Tensor) -> Tensor {
        let (id, geometry, dtype) = &self.made;
        let copy = (!cx.exhausted()).then(|| {
            self.repeat.events(cx, self.range.clone());
            self.repeat.tensor(cx, *id, geometry.clone(), *dtype)
        });
        copy.flatten().unwrap_or_else(make)
    }
}

/// `unscale_and_clip_grads`: a few numbers, gone when it returns.
pub fn clip(cx: &Rc<Context>, norm: &Tensor) -> [Tensor; 3] {
    let next = || number(cx, norm.dtype());
    [next(), next(), next()]
}

/// `clip_grad_norm_` of DeepSpeed's own (`deepspeed/runtime/utils.py`), of as many gradients in float32: each is its own float32.
pub fn clip_whole(cx: &Rc<Context>, count: u64) {
    let single = || number(cx, DType::Float32);
    let norms: Vec<Tensor> = (0..count).map(|_| single()).collect();
    let stacked = ops::fill(cx, Fill::Full, &[count], DType::Float32);
    let powers = ops::fill(cx, Fill::Full, &[count], DType::Float32);
    drop(stacked);
    let total = single();
    drop(powers);
    let root = single();
    drop(total);
    let scaled = single();
    drop(root);
    let most = single();
    let sum = single();
    let quotient = single();
    drop(sum);
    let one = single();
    let coefficient = single();
    drop((quotient, coefficient, one, most, scaled, norms));
}
