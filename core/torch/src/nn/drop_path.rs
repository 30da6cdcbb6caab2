//! transformers' stochastic depth.

use plimsoll_catalog::software::rules;

use super::scope::Scope;
use crate::ops::{self, Fill, Pointwise};
use crate::tensor::{ModuleId, Tensor};

/// `SwinDropPath` and its copies: in training alone a sample's branch is dropped with a probability; `nn.Identity` where that
/// is zero.
#[derive(Clone, Copy, Debug)]
pub struct DropPath {
    probability: f64,
    module: ModuleId,
}

impl DropPath {
    /// With this probability.
    pub fn new(scope: &Scope, probability: f64) -> Self {
        Self { probability, module: scope.module() }
    }

    /// The probability of every layer's, the `i`-th of `layers`: from none at the first to `last`.
    pub fn deeper(last: f64, i: u64, layers: u64) -> f64 {
        last * i as f64 / layers.saturating_sub(1).max(1) as f64
    }

    /// `x.div(keep_prob) * floor(rand([batch, 1, ...]) + keep_prob)`.
    pub fn forward(&self, x: &Tensor) -> Tensor {
        if self.probability == 0.0 || x.cx().is_inference() {
            return x.clone();
        }
        let cx = x.cx();
        cx.within(self.module, || {
            let mut shape = vec![1; x.dims().len()];
            shape[..1].copy_from_slice(&x.dims()[..1]);
            let random = {
                let uniform = ops::fill(cx, Fill::Rand, &shape, x.dtype());
                let shifted = ops::add_scalar(&uniform);
                if cx.machine().rules.has(&rules::DROP_PATH_FLOORS_APART) {
                    let random = ops::pointwise(Pointwise::Floor, &uniform, &[], &shape, x.dtype());
                    drop((shifted, uniform));
                    random
                } else {
                    shifted
                }
            };
            let scaled = ops::div_scalar(x);
            ops::mul(&scaled, &random)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::DropPath;

    #[test]
    fn deeper_layers_are_dropped_more_often() {
        let of = |i| DropPath::deeper(0.1, i, 5);
        assert!(of(0) == 0.0 && of(1) > 0.0 && of(1) < of(2));
        assert!((of(4) - 0.1).abs() < 1e-12);
        // A single layer is the first one.
        assert!(DropPath::deeper(0.1, 0, 1) == 0.0);
    }
}
