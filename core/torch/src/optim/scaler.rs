//! `torch.amp.GradScaler` (`torch/amp/grad_scaler.py`).

use std::rc::Rc;

use crate::Op;
use crate::ops;
use crate::tensor::{Context, DType, Kind, Tensor};

/// Loss scaling for float16 autocast: a scale and a growth counter on the device.
#[derive(Debug, Default)]
pub struct GradScaler {
    scale: Option<(Tensor, Tensor)>,
    /// One for every optimizer that was unscaled.
    found_inf: Vec<Tensor>,
}

impl GradScaler {
    /// `scaler.scale(loss)`; the first call creates the scale.
    pub fn scale(&mut self, loss: &Tensor) -> Tensor {
        let cx = loss.cx();
        let (scale, _) = self.scale.get_or_insert_with(|| {
            cx.counting_as(Kind::OptimizerState, || {
                (cx.empty_sizes(Op::Full, &[], DType::Float32), cx.empty_sizes(Op::Full, &[], DType::Int32))
            })
        });
        ops::mul(loss, scale)
    }

    /// `scaler.unscale_(optimizer)`: the reciprocal of the scale by way of float64; gradients are divided in place.
    pub fn unscale(&mut self, cx: &Rc<Context>) {
        let wide = cx.empty_sizes(Op::ToCopy, &[], DType::Float64);
        let inverse = cx.empty_sizes(Op::Reciprocal, &[], DType::Float64);
        drop(wide);
        let narrow = cx.empty_sizes(Op::ToCopy, &[], DType::Float32);
        drop(inverse);
        let found = cx.empty_sizes(Op::Full, &[], DType::Float32);
        self.found_inf.push(cx.empty_sizes(Op::ToCopy, &[], DType::Float32));
        let copy = cx.empty_sizes(Op::ToCopy, &[], DType::Float32);
        drop((copy, narrow, found));
    }

    /// `scaler.step(optimizer)` of a fused optimizer: the infinities found, summed up, stand on the optimizer while it
    /// steps (`sum([...])` begins with `0 + tensor`).
    pub fn found_inf(&self, cx: &Rc<Context>) -> Tensor {
        cx.empty_sizes(Op::AddTensor, &[], DType::Float32)
    }

    /// `scaler.update()`: forgets what it found.
    pub fn update(&mut self) {
        self.found_inf.clear();
    }
}
