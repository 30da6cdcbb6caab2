//! What an optimizer's kernels read and write: lists of tensors that are each like a parameter.

use std::rc::Rc;

use smallvec::SmallVec;

use super::with_gradients;
use crate::Op;
use crate::tensor::{Context, DType, Tensor};

/// A kernel that reads so many tensors like a parameter, and writes so many.
#[derive(Clone, Copy, Debug)]
pub struct Pass {
    pub op: Op,
    pub reads: u64,
    pub writes: u64,
}

impl Pass {
    /// A kernel of `op`.
    pub const fn new(op: Op, reads: u64, writes: u64) -> Self {
        Self { op, reads, writes }
    }

    /// Runs it over `bytes` of each tensor.
    fn run(self, cx: &Rc<Context>, dtype: DType, bytes: u64) {
        let moved = |tensors: u64| bytes.saturating_mul(tensors);
        drop(cx.launch(self.op, &[]).of(dtype).reads(moved(self.reads)).writes(moved(self.writes)));
    }

    /// Runs kernels over a parameter and what is like it.
    pub fn over(passes: &[Self], parameter: &Tensor) {
        for pass in passes {
            pass.run(parameter.cx(), parameter.dtype(), parameter.touched());
        }
    }
}

/// The parameters that have a gradient: how many bytes of each dtype.
#[derive(Debug, Default)]
pub struct Lists(SmallVec<[(DType, u64); 2]>);

impl Lists {
    /// Those of these parameters.
    pub fn of(parameters: &[Tensor]) -> Self {
        let mut lists = Self::default();
        for (_, p) in with_gradients(parameters) {
            let known = lists.0.iter_mut().find(|(dtype, _)| *dtype == p.dtype());
            match known {
                Some((_, bytes)) => *bytes = bytes.saturating_add(p.touched()),
                None => lists.0.push((p.dtype(), p.touched())),
            }
        }
        lists
    }

    /// Runs kernels over them, one dtype after the other.
    pub fn run(&self, cx: &Rc<Context>, passes: &[Pass]) {
        for (dtype, bytes) in &self.0 {
            for pass in passes {
                pass.run(cx, *dtype, *bytes);
            }
        }
    }
}
