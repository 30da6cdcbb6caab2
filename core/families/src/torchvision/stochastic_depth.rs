//! torchvision's stochastic depth (`torchvision/ops/stochastic_depth.py`).

use plimsoll_torch::nn::Scope;
use plimsoll_torch::ops;
use plimsoll_torch::tensor::{ModuleId, Tensor};

/// `StochasticDepth(p, "row")`: a factor for every sample.
#[derive(Clone, Copy, Debug)]
pub struct StochasticDepth {
    probability: f64,
    module: ModuleId,
}

impl StochasticDepth {
    /// With this probability.
    pub fn new(scope: &Scope, probability: f64) -> Self {
        Self { probability, module: scope.module() }
    }

    /// `input * noise`; in evaluation the input.
    pub fn forward(&self, x: &Tensor) -> Tensor {
        if self.probability == 0.0 || x.cx().is_inference() {
            return x.clone();
        }
        let cx = x.cx();
        cx.within(self.module, || {
            let noise = ops::empty(cx, &[x.size(0), 1, 1, 1], x.dtype());
            ops::mul(x, &noise)
        })
    }
}
