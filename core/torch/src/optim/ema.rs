//! An exponential moving average of the weights: `torch.optim.swa_utils.AveragedModel` with `get_ema_multi_avg_fn`, on
//! the model's own device.

use std::rc::Rc;

use crate::Op;
use crate::tensor::{Context, DType, Kind, Tensor};

/// The averaged model: a deep copy of every parameter, trained or frozen, and of every buffer.
#[derive(Debug)]
pub struct Ema {
    copies: Vec<Tensor>,
    /// Into how many lists the parameters fall by their dtype.
    lists: usize,
    updates: u32,
}

impl Ema {
    /// `AveragedModel(model)`, right after the model is on the device: of what was loaded before the storage `until`.
    pub fn new(cx: &Rc<Context>, parameters: &[Tensor], until: u32) -> Self {
        let mut dtypes: Vec<DType> = Vec::new();
        for parameter in parameters {
            if !dtypes.contains(&parameter.dtype()) {
                dtypes.push(parameter.dtype());
            }
        }
        cx.set_averaged();
        Self { copies: cx.copy_loaded(Op::Clone, "module", until), lists: dtypes.len(), updates: 0 }
    }

    /// `update_parameters(model)`, after the optimizer's step: the first one copies, later ones average in place, each
    /// list with the count of averages moved to the device.
    pub fn update(&mut self, cx: &Rc<Context>) {
        if self.updates > 0 {
            for _ in 0..self.lists {
                drop(cx.counting_as(Kind::Optimizer, || cx.launch(Op::ToCopy, &[]).make_sizes(&[], DType::Int64)));
            }
        }
        let op = if self.updates > 0 { Op::ForeachLerpInPlace } else { Op::CopyInPlace };
        let bytes = self.copies.iter().fold(0u64, |sum, copy| sum.saturating_add(copy.touched()));
        if let Some(first) = self.copies.first() {
            let lists = 1 + u64::from(self.updates > 0);
            drop(cx.launch(op, &[]).of(first.dtype()).reads(lists.saturating_mul(bytes)).writes(bytes));
        }
        self.updates += 1;
    }
}
