//! Attention within windows as torchvision writes it: one projection, scores made by hand.

use plimsoll_torch::nn::{Linear, Scope};
use plimsoll_torch::ops::{self, Fill, Pointwise};
use plimsoll_torch::tensor::{DType, ModuleId, Tensor};

/// `ShiftedWindowAttention` and `shifted_window_attention()`.
#[derive(Debug)]
pub struct ShiftedWindowAttention {
    qkv: Linear,
    proj: Linear,
    table: Tensor,
    index: Tensor,
    heads: u64,
    window: u64,
    shifted: bool,
    module: ModuleId,
}

impl ShiftedWindowAttention {
    /// Windows of `window` patches a side, `shifted` by half of that.
    pub fn new(scope: &Scope, width: u64, heads: u64, window: u64, shifted: bool) -> Self {
        let (place, distances, area) = (scope.place(), 2 * window - 1, window * window);
        Self {
            qkv: Linear::new(&scope.child("qkv"), width, 3 * width, true),
            proj: Linear::new(&scope.child("proj"), width, width, true),
            table: scope.own_parameter(place, &[distances * distances, heads]),
            index: scope.buffer_of(&[area * area], DType::Int64),
            heads,
            window,
            shifted,
            module: scope.module(),
        }
    }

    /// `_get_relative_position_bias`: `[1, heads, area, area]`.
    fn relative_position_bias(&self) -> Tensor {
        let area = self.window * self.window;
        let bias = ops::index(&self.table, &[&self.index]);
        let bias = ops::view(&bias, &[area, area, self.heads]);
        ops::unsqueeze(&ops::contiguous(&ops::permute(&bias, &[2, 0, 1])), 0)
    }

    /// The mask of windows shifted over an image of `side` patches: `[windows, area, area]`.
    fn shift_mask(&self, x: &Tensor, side: u64) -> Tensor {
        let (cx, window, along) = (x.cx(), self.window, side / self.window);
        let mut mask = ops::fill(cx, Fill::NewZeros, &[side, side], x.dtype());
        mask = ops::permute(&ops::view(&mask, &[along, window, along, window]), &[0, 2, 1, 3]);
        mask = ops::reshape(&mask, &[along * along, window * window]);
        mask = ops::sub(&ops::unsqueeze(&mask, 1), &ops::unsqueeze(&mask, 2));
        let fill = |x: &Tensor, op| {
            let bits = ops::each(op, x, DType::Bool);
            let filled = ops::each(Pointwise::MaskedFillScalar, x, x.dtype());
            drop(bits);
            filled
        };
        let filled = fill(&mask, Pointwise::NeScalar);
        fill(&filled, Pointwise::EqScalar)
    }

    /// Over an image `[batch, side, side, width]`.
    pub fn forward(&self, input: &Tensor) -> Tensor {
        input.cx().within(self.module, || {
            let bias = self.relative_position_bias();
            let (batch, side, width, window) = (input.size(0), input.size(1), input.size(3), self.window);
            let (padded, area) = (side.next_multiple_of(window), window * window);
            let (along, head) = (padded / window, width / self.heads);
            let windows = along * along;
            // A window that covers the image has nowhere to go.
            let shifted = self.shifted && window < padded;

            let mut x = ops::pad(input, &[batch, padded, padded, width]);
            if shifted {
                x = ops::roll(&x, 2);
            }
            x = ops::view(&x, &[batch, along, window, along, window, width]);
            x = ops::reshape(&ops::permute(&x, &[0, 1, 3, 2, 4, 5]), &[batch * windows, area, width]);

            let mut qkv = self.qkv.forward(&x);
            qkv = ops::reshape(&qkv, &[batch * windows, area, 3, self.heads, head]);
            qkv = ops::permute(&qkv, &[2, 0, 3, 1, 4]);
            let (mut q, k, v) = (ops::select(&qkv, 0), ops::select_at(&qkv, 0, 1), ops::select_at(&qkv, 0, 2));
            q = ops::mul_scalar(&q);
            let mut attn = ops::matmul(&q, &ops::transpose(&k, -2, -1));
            attn = ops::add(&attn, &bias);
            let mut mask = None;
            if shifted {
                let made = self.shift_mask(&x, padded);
                attn = ops::view(&attn, &[batch, windows, self.heads, area, area]);
                attn = ops::add(&attn, &ops::unsqueeze(&ops::unsqueeze(&made, 1), 0));
                attn = ops::view(&attn, &[batch * windows, self.heads, area, area]);
                mask = Some(made);
            }
            attn = ops::softmax(&attn);
            x = {
                let product = ops::matmul(&attn, &v);
                ops::reshape(&ops::transpose(&product, 1, 2), &[batch * windows, area, width])
            };
            x = self.proj.forward(&x);

            x = ops::view(&x, &[batch, along, along, window, window, width]);
            x = ops::reshape(&ops::permute(&x, &[0, 1, 3, 2, 4, 5]), &[batch, padded, padded, width]);
            if shifted {
                x = ops::roll(&x, 2);
            }
            x = ops::contiguous(&ops::narrow(&ops::narrow(&x, 1, side), 2, side));
            drop((bias, qkv, q, k, v, attn, mask));
            x
        })
    }
}
