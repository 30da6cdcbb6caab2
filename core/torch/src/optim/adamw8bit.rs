//! bitsandbytes' `AdamW8bit`, `PagedAdamW8bit` and `PagedAdamW` (0.50, `bitsandbytes/optim/optimizer.py`,
//! `Optimizer2State`): both moments in bytes, or in float32; paged, those of large parameters in managed memory.

use std::rc::Rc;

use plimsoll_catalog::software::rules;

use super::{Optimizer, with_gradients};
use crate::Op;
use crate::tensor::{Context, DType, Kind, Tensor};

/// `min_8bit_size`: the moments of smaller parameters stay in float32.
const SMALLEST: u64 = 4096;
/// How many numbers share a scale (`blocksize` in `init_state`).
const BLOCK: u64 = 256;
/// The same before 0.44.
const LARGE_BLOCK: u64 = 2048;
/// Entries of a quantization map (`create_dynamic_map`).
const MAP: u64 = 256;

/// The fewest numbers of a parameter whose paged moments are in managed memory (`get_state_buffer`: `p.numel() < 1e5`), which
/// the driver moves between host and card: no allocator of PyTorch's hands it out.
pub const SMALLEST_PAGED: u64 = 100_000;

/// Two moments a parameter: one byte a number, with a float32 scale for every 256 of them, or in float32.
#[derive(Debug, Default)]
pub struct BnbAdamW {
    /// Whether moments are in bytes.
    bytes: bool,
    paged: bool,
    /// What a byte of the first (signed) and of the second moment stands for: one pair for all parameters.
    maps: Option<[Tensor; 2]>,
    states: Vec<Option<Vec<Tensor>>>,
}

impl BnbAdamW {
    /// `AdamW8bit`, or `PagedAdamW8bit`.
    pub fn eight_bit(paged: bool) -> Self {
        Self { bytes: true, paged, ..Self::default() }
    }

    /// `PagedAdamW`: its moments are in float32.
    pub fn paged() -> Self {
        Self { paged: true, ..Self::default() }
    }

    /// `get_state_buffer`, twice.
    fn moments(&self, cx: &Rc<Context>, p: &Tensor, dtype: DType) -> Vec<Tensor> {
        let managed = self.paged && p.numel() >= SMALLEST_PAGED;
        (0..if managed { 0 } else { 2 }).map(|_| moment(cx, p, dtype)).collect()
    }

    /// `init_state`.
    fn initialize(&mut self, cx: &Rc<Context>, p: &Tensor) -> Vec<Tensor> {
        if !self.bytes || p.numel() < SMALLEST {
            return self.moments(cx, p, DType::Float32);
        }
        self.maps.get_or_insert_with(|| [map(cx), map(cx)]);
        let mut state = self.moments(cx, p, DType::UInt8);
        let block = if cx.machine().rules.has(&rules::SMALL_BLOCKS) { BLOCK } else { LARGE_BLOCK };
        state
            .extend((0..2).map(|_| cx.launch(Op::Zeros, &[]).make_sizes(&[p.numel().div_ceil(block)], DType::Float32)));
        state
    }
}

/// `torch.zeros_like(p, dtype=dtype)`.
fn moment(cx: &Rc<Context>, p: &Tensor, dtype: DType) -> Tensor {
    cx.launch(Op::ZerosLike, &[]).make(p.geometry().preserved(), dtype)
}

/// A quantization map, moved to the device.
fn map(cx: &Rc<Context>) -> Tensor {
    cx.launch(Op::ToCopy, &[]).make_sizes(&[MAP], DType::Float32)
}

impl Optimizer for BnbAdamW {
    /// One parameter after the other: state where there is none yet, then a kernel that works in place.
    fn step(&mut self, cx: &Rc<Context>, parameters: &[Tensor]) {
        self.states.resize(parameters.len(), None);
        for (i, p) in with_gradients(parameters) {
            if self.states[i].is_none() {
                let make = || cx.counting_as(Kind::OptimizerState, || self.initialize(cx, p));
                self.states[i] = Some(cx.owned_by(p, make));
            }
            // The weight, its gradient and its state, in one kernel.
            let state: Vec<&Tensor> = self.states[i].iter().flatten().collect();
            let op = if !self.bytes || p.numel() < SMALLEST {
                Op::OptimizerUpdate32bit
            } else {
                Op::OptimizerUpdate8bitBlockwise
            };
            let kept = state.iter().fold(0u64, |sum, x| sum.saturating_add(x.touched()));
            drop(cx.launch(op, &state).of(p.dtype()).reads(2 * p.touched()).writes(kept).over(p));
        }
    }
}
