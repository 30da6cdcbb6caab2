//! Qwen3-VL's experts as transformers 4 ran them (`Qwen3VLMoeTextSparseMoeBlock` in
//! `models/qwen3_vl_moe/modeling_qwen3_vl_moe.py` of 4.57.6): training goes from one expert to the next, whose weights are
//! copied out of the stack for it; anything else has every expert multiply every token.

use super::expert_list::{hit, one_hot, places, share};
use super::{Activation, Linear, Scope};
use crate::ops::{self, Fill};
use crate::tensor::{ModuleId, Tensor};

/// A router and what it chooses from: weights stored transposed, `[experts, in, out]`.
#[derive(Debug)]
pub struct PickedExperts {
    gate: Linear,
    top_k: u64,
    gate_up_proj: Tensor,
    down_proj: Tensor,
    act_fn: Activation,
    experts: ModuleId,
}

/// What the loop's names hold from one expert to the next: each until it is given anew.
#[derive(Default)]
struct Named {
    found: Option<Tensor>,
    state: Option<Tensor>,
    gate_up: Option<Tensor>,
    gated: Option<Tensor>,
    out: Option<Tensor>,
    weighted: Option<Tensor>,
}

impl PickedExperts {
    /// `count` experts from `hidden` to `intermediate` features and back, `top_k` for each token; `None` for an unknown activation.
    pub fn new(scope: &Scope, [count, top_k]: [u64; 2], [hidden, intermediate]: [u64; 2], act: &str) -> Option<Self> {
        let gate = Linear::new(&scope.child("gate"), hidden, count, false);
        let scope = scope.child("experts");
        Some(Self {
            gate,
            top_k,
            gate_up_proj: scope.parameter(&[count, hidden, 2 * intermediate]),
            down_proj: scope.parameter(&[count, intermediate, hidden]),
            act_fn: Activation::new(&scope.child("act_fn"), act)?,
            experts: scope.module(),
        })
    }

    /// Of `[tokens, hidden]`, with the router's logits.
    pub fn forward(&self, flat: &Tensor) -> [Tensor; 2] {
        let logits = self.gate.forward(flat);
        let (mut weights, indices) = {
            let probabilities = ops::softmax_fp32(&logits);
            ops::topk(&probabilities, self.top_k)
        };
        weights = ops::div(&weights, &ops::sum_last(&weights));
        weights = ops::to(&weights, flat.dtype());
        let scattered = ops::scatter_in_place(ops::zeros_like(&logits), &indices, &weights);
        let out = flat.cx().within(self.experts, || {
            if flat.cx().is_inference() {
                self.every_one(flat, &scattered)
            } else {
                self.one_by_one(flat, &indices, &scattered)
            }
        });
        [out, logits]
    }

    fn one_by_one(&self, hidden: &Tensor, chosen: &Tensor, weights: &Tensor) -> Tensor {
        let cx = hidden.cx();
        let (pairs, count) = (chosen.numel(), weights.size(1));
        let mut sum = ops::fill(cx, Fill::ZerosLike, hidden.dims(), hidden.dtype());
        let mask = one_hot(chosen, count);
        let hit = hit(&mask, count.min(pairs));
        let mut named = Named::default();
        for i in 0..count.min(pairs) {
            // `[expert_idx]`, of a number on the card, copies out of the stack.
            let number = ops::select(&hit, 0);
            let found = places(&mask, share(pairs, count, i));
            let rows = ops::select(&found, 1);
            named.found = Some(found);
            let state = ops::index_rows(hidden, &rows);
            named.state = Some(state.clone());
            let gate_up = ops::matmul(&state, &ops::index(&self.gate_up_proj, &[&number]));
            named.gate_up = Some(gate_up.clone());
            let gated = self.gated(&gate_up);
            drop((state, gate_up));
            named.gated = Some(gated.clone());
            let out = ops::matmul(&gated, &ops::index(&self.down_proj, &[&number]));
            drop(gated);
            named.out = Some(out.clone());
            let weighted = {
                let share = ops::index(&ops::unsqueeze(weights, -1), &[&rows, &number]);
                ops::mul(&ops::select(&out, 0), &share)
            };
            drop(out);
            named.weighted = Some(weighted.clone());
            sum = ops::index_add_in_place(sum, &rows, &ops::to(&weighted, hidden.dtype()));
        }
        drop((mask, hit, named));
        sum
    }

    /// `up * self.act_fn(gate)`, of two halves.
    fn gated(&self, gate_up: &Tensor) -> Tensor {
        let parts = ops::split(gate_up, gate_up.size(-1) / 2, -1);
        let gate = self.act_fn.forward(&parts[0]);
        ops::mul(&parts[1], &gate)
    }

    /// Every expert on every token, of which it weighs most with nothing.
    fn every_one(&self, hidden: &Tensor, weights: &Tensor) -> Tensor {
        let (tokens, width, count) = (hidden.size(0), hidden.size(1), weights.size(1));
        let repeated = ops::view(&ops::repeat_batch(hidden, count), &[count, tokens, width]);
        let gate_up = ops::bmm(&repeated, &self.gate_up_proj);
        let mut next = {
            let gated = self.gated(&gate_up);
            ops::bmm(&gated, &self.down_proj)
        };
        next = ops::mul(&next, &ops::unsqueeze(&ops::transpose(weights, 0, 1), -1));
        next = ops::sum_first(&next);
        drop((repeated, gate_up));
        next
    }
}

#[cfg(test)]
mod tests {
    use super::PickedExperts;
    use crate::nn::Scope;
    use crate::tensor::DType;
    use crate::tensor::testing::{activation, forward, made, watch};

    /// The weights of each expert are copied before its product.
    #[test]
    fn training_copies_each_experts_weights() {
        let cx = forward();
        let scope = Scope::root(&cx, DType::Float32, None, None, None);
        let experts = PickedExperts::new(&scope, [4, 2], [8, 24], "silu").unwrap();
        let hidden = activation(&cx, &[3, 8]);
        let (events, [out, logits]) = watch(&cx, || experts.forward(&hidden));
        assert_eq!((out.dims(), logits.dims()), ([3, 8].as_slice(), [3, 4].as_slice()));
        let weights = |event: &&String| event.starts_with("+index.Tensor [1, 8, 48] ");
        assert_eq!(events.iter().filter(weights).count(), 4, "six choices of four experts");
        let begun: Vec<_> = made(&events).into_iter().skip_while(|name| *name != "nonzero").take(6).collect();
        assert_eq!(begun, ["nonzero", "nonzero", "index.Tensor", "index.Tensor", "mm", "clone"]);
    }
}
