//! The gated feed-forward of most decoders.

use super::{Activation, Linear, Scope};
use crate::ops;
use crate::tensor::{ModuleId, Tensor};

/// `LlamaMLP`: `down_proj(act_fn(gate_proj(x)) * up_proj(x))`.
#[derive(Debug)]
pub struct GatedMlp {
    gate_proj: Linear,
    up_proj: Linear,
    down_proj: Linear,
    act_fn: Activation,
    module: ModuleId,
}

impl GatedMlp {
    /// From `hidden` to `intermediate` features and back; `None` for an activation outside [`Activation::KNOWN`].
    pub fn new(scope: &Scope, hidden: u64, intermediate: u64, act: &str, bias: bool) -> Option<Self> {
        let linear = |name: &'static str, i, o| Linear::new(&scope.child(name), i, o, bias);
        Some(Self {
            gate_proj: linear("gate_proj", hidden, intermediate),
            up_proj: linear("up_proj", hidden, intermediate),
            down_proj: linear("down_proj", intermediate, hidden),
            act_fn: Activation::new(&scope.child("act_fn"), act)?,
            module: scope.module(),
        })
    }

    /// `MixtralBlockSparseTop2MLP`, the expert that transformers 4 had: the same, by other names and in another order.
    pub fn block_sparse(scope: &Scope, hidden: u64, intermediate: u64, act: &str) -> Option<Self> {
        let linear = |name: &'static str, i, o| Linear::new(&scope.child(name), i, o, false);
        let gate_proj = linear("w1", hidden, intermediate);
        let down_proj = linear("w2", intermediate, hidden);
        let up_proj = linear("w3", hidden, intermediate);
        let act_fn = Activation::new(&scope.child("act_fn"), act)?;
        Some(Self { gate_proj, up_proj, down_proj, act_fn, module: scope.module() })
    }

    /// `forward`.
    pub fn forward(&self, x: &Tensor) -> Tensor {
        x.cx().within(self.module, || {
            if let Some(gated) = x.cx().liger().and_then(|liger| liger.gate) {
                let product = {
                    let gate = self.gate_proj.forward(x);
                    let up = self.up_proj.forward(x);
                    ops::liger_gated(&gate, &up, gated)
                };
                return self.down_proj.forward(&product);
            }
            let gate = self.act_fn.forward(&self.gate_proj.forward(x));
            let product = {
                let up = self.up_proj.forward(x);
                ops::mul(&gate, &up)
            };
            drop(gate);
            self.down_proj.forward(&product)
        })
    }
}
