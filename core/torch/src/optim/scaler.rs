//! `torch.amp.GradScaler` (`torch/amp/grad_scaler.py`).

use std::rc::Rc;

use super::lists::{Lists, Pass};
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
    pub fn unscale(&mut self, cx: &Rc<Context>, parameters: &[Tensor]) {
        let number = |op, operands: &[&Tensor], dtype| cx.launch(op, operands).make_sizes(&[], dtype);
        let scale: Vec<&Tensor> = self.scale.iter().map(|(scale, _)| scale).collect();
        let wide = number(Op::ToCopy, &scale, DType::Float64);
        let inverse = number(Op::Reciprocal, &[&wide], DType::Float64);
        drop(wide);
        let narrow = number(Op::ToCopy, &[&inverse], DType::Float32);
        drop(inverse);
        let found = number(Op::Full, &[], DType::Float32);
        self.found_inf.push(number(Op::ToCopy, &[&found], DType::Float32));
        let copy = number(Op::ToCopy, &[&narrow], DType::Float32);
        Lists::of(parameters).run(cx, &[Pass::new(Op::AmpForeachUnscaleInPlace, 1, 1)]);
        drop((copy, narrow, found));
    }

    /// `scaler.step(optimizer)` of a fused optimizer: the infinities found, summed up, stand on the optimizer while it
    /// steps (`sum([...])` begins with `0 + tensor`).
    pub fn found_inf(&self, cx: &Rc<Context>) -> Tensor {
        cx.launch(Op::AddTensor, &[]).reads(DType::Float32.size()).make_sizes(&[], DType::Float32)
    }

    /// `scaler.update()`: forgets what it found.
    pub fn update(&mut self) {
        self.found_inf.clear();
    }
}
