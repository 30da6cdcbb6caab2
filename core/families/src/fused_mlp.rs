//! The feed-forward of Phi-3, GLM and their relatives: gate and up projections in one linear.

use plimsoll_torch::nn::{Activation, Linear, Scope};
use plimsoll_torch::ops;
use plimsoll_torch::tensor::{ModuleId, Tensor};

/// `Phi3MLP`: `down(up * act(gate))`, where gate and up are the halves of one product.
#[derive(Debug)]
pub struct FusedMlp {
    gate_up_proj: Linear,
    down_proj: Linear,
    activation_fn: Activation,
    module: ModuleId,
}

impl FusedMlp {
    /// From `hidden` features to `intermediate` and back; `None` for an unknown activation.
    pub fn new(scope: &Scope, hidden: u64, intermediate: u64, act: &str) -> Option<Self> {
        Some(Self {
            gate_up_proj: Linear::new(&scope.child("gate_up_proj"), hidden, 2 * intermediate, false),
            down_proj: Linear::new(&scope.child("down_proj"), intermediate, hidden, false),
            activation_fn: Activation::new(&scope.child("activation_fn"), act)?,
            module: scope.module(),
        })
    }

    /// `forward`.
    pub fn forward(&self, x: &Tensor) -> Tensor {
        x.cx().within(self.module, || {
            let both = self.gate_up_proj.forward(x);
            let parts = ops::split(&both, both.size(-1) / 2, -1);
            drop(both);
            if let Some(gated) = x.cx().liger().and_then(|liger| liger.gate) {
                let product = ops::liger_gated(&parts[0], &parts[1], gated);
                // Both halves are names of the forward.
                let out = self.down_proj.forward(&product);
                drop((product, parts));
                return out;
            }
            let product = {
                let gate = self.activation_fn.forward(&parts[0]);
                ops::mul(&parts[1], &gate)
            };
            self.down_proj.forward(&product)
        })
    }
}
