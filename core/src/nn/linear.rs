//! `nn.Linear` and GPT-2's `Conv1D`.

use super::lora::Adapter;
use super::scope::Scope;
use crate::ops;
use crate::tensor::{ModuleId, Tensor};

/// `nn.Linear`, with peft's adapter around it where the plan says so.
#[derive(Debug)]
pub struct Linear {
    weight: Tensor,
    bias: Option<Tensor>,
    module: ModuleId,
    base: ModuleId,
    adapter: Option<Adapter>,
}

impl Linear {
    /// `nn.Linear(inputs, outputs, bias)`.
    pub fn new(scope: &Scope, inputs: u64, outputs: u64, bias: bool) -> Self {
        Self::build(scope, [outputs, inputs], None, bias, false)
    }

    /// The output head: never adapted by `all-linear`.
    pub fn head(scope: &Scope, inputs: u64, outputs: u64) -> Self {
        Self::build(scope, [outputs, inputs], None, false, true)
    }

    /// The output head with a bias of its own (Phi, GPT-J); `shared` is the token embedding's weight where it is tied.
    pub fn biased_head(scope: &Scope, inputs: u64, outputs: u64, shared: Option<&Tensor>) -> Self {
        Self::build(scope, [outputs, inputs], shared, true, true)
    }

    /// A head that shares the token embedding's weight.
    pub fn tied(scope: &Scope, weight: &Tensor) -> Self {
        Self::build(scope, [weight.size(0), weight.size(1)], Some(weight), false, true)
    }

    /// A head that shares the token embedding's weight and a bias that belongs to another module.
    pub fn tied_with_bias(scope: &Scope, weight: &Tensor, bias: Tensor) -> Self {
        Self { bias: Some(bias), ..Self::tied(scope, weight) }
    }

    fn build(scope: &Scope, sizes: [u64; 2], shared: Option<&Tensor>, bias: bool, head: bool) -> Self {
        let [outputs, inputs] = sizes;
        let module = scope.module();
        let lora = scope.adapter(head).cloned();
        let inner = if lora.is_some() { scope.child("base_layer") } else { scope.clone() };
        let weight = shared.cloned().unwrap_or_else(|| inner.parameter(&sizes));
        if head {
            scope.cx().mark_outer(&weight);
        }
        let bias = bias.then(|| inner.parameter(&[outputs]));
        let base = inner.module();
        let adapter = lora.map(|lora| Adapter::new(scope, &lora, inputs, outputs));
        Self { weight, bias, module, base, adapter }
    }

    /// The weight of the layer itself, without what an adapter adds.
    pub fn weight(&self) -> &Tensor {
        &self.weight
    }

    /// The bias, where there is one.
    pub fn bias(&self) -> Option<&Tensor> {
        self.bias.as_ref()
    }

    /// `forward`.
    pub fn forward(&self, x: &Tensor) -> Tensor {
        let cx = x.cx();
        cx.within(self.module, || {
            let result = cx.within(self.base, || ops::linear(x, &self.weight, self.bias.as_ref()));
            match &self.adapter {
                Some(adapter) => adapter.add_to(result, x),
                None => result,
            }
        })
    }
}

/// transformers' `Conv1D`: a linear whose weight is stored `[in, out]`, always with a bias.
#[derive(Debug)]
pub struct Conv1D {
    weight: Tensor,
    bias: Tensor,
    module: ModuleId,
    base: ModuleId,
    adapter: Option<Adapter>,
}

impl Conv1D {
    /// `Conv1D(outputs, inputs)`.
    pub fn new(scope: &Scope, outputs: u64, inputs: u64) -> Self {
        let module = scope.module();
        let lora = scope.adapter(false).cloned();
        let inner = if lora.is_some() { scope.child("base_layer") } else { scope.clone() };
        let weight = inner.parameter(&[inputs, outputs]);
        let bias = inner.parameter(&[outputs]);
        let base = inner.module();
        let adapter = lora.map(|lora| Adapter::new(scope, &lora, inputs, outputs));
        Self { weight, bias, module, base, adapter }
    }

    /// `forward`: `addmm` on the flattened rows.
    pub fn forward(&self, x: &Tensor) -> Tensor {
        let cx = x.cx();
        cx.within(self.module, || {
            let result = cx.within(self.base, || {
                let columns = x.size(-1);
                let flat = ops::view(x, &[x.numel() / columns.max(1), columns]);
                let out = ops::addmm(&self.bias, &flat, &self.weight);
                let mut sizes = x.dims().to_vec();
                if let Some(last) = sizes.last_mut() {
                    *last = self.weight.size(1);
                }
                ops::view(&out, &sizes)
            });
            match &self.adapter {
                Some(adapter) => adapter.add_to(result, x),
                None => result,
            }
        })
    }
}
