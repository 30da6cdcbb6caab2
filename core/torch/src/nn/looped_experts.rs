//! GPT-OSS's experts as transformers 4 ran them (`GptOssExperts` in `models/gpt_oss/modeling_gpt_oss.py` of 4.57.1): training
//! goes from one expert to the next, each a slice of the stacked weights on the tokens that chose it; anything else has every
//! expert multiply every token.

use super::Scope;
use super::expert_list::{hit, one_hot, places, share};
use crate::ops::{self, Fill, Pointwise};
use crate::tensor::{DType, ModuleId, Tensor};

/// The stacked weights, `[experts, in, out]`, and their biases.
#[derive(Debug)]
pub struct LoopedExperts {
    gate_up_proj: Tensor,
    gate_up_proj_bias: Tensor,
    down_proj: Tensor,
    down_proj_bias: Tensor,
    module: ModuleId,
}

/// What the forward's names hold, those of the loop from one expert to the next: each until it is given anew.
#[derive(Default)]
struct Named {
    found: Option<Tensor>,
    state: Option<Tensor>,
    gate_up: Option<Tensor>,
    gate: Option<Tensor>,
    up: Option<Tensor>,
    glu: Option<Tensor>,
    output: Option<Tensor>,
    out: Option<Tensor>,
    weighted: Option<Tensor>,
}

impl Named {
    /// `gated_output`, of what the first product and its bias made.
    fn gated(&mut self, gate_up: Tensor) -> Tensor {
        self.gate_up = Some(gate_up.clone());
        let (gate, up) = ops::halves_by_turns(&gate_up);
        (self.gate, self.up) = (Some(gate.clone()), Some(up.clone()));
        drop(gate_up);
        let gate = self.gate.insert(ops::clamp_max(&gate)).clone();
        let up = self.up.insert(ops::clamp_numbers(&up)).clone();
        let glu = {
            let sigmoid = {
                let scaled = ops::mul_scalar(&gate);
                ops::sigmoid(&scaled)
            };
            self.glu.insert(ops::mul(&gate, &sigmoid)).clone()
        };
        let shifted = ops::add_scalar(&up);
        ops::mul(&shifted, &glu)
    }
}

impl LoopedExperts {
    /// `count` experts from `hidden` to `intermediate` features and back.
    pub fn new(scope: &Scope, count: u64, hidden: u64, intermediate: u64) -> Self {
        Self {
            gate_up_proj: scope.parameter(&[count, hidden, 2 * intermediate]),
            gate_up_proj_bias: scope.parameter(&[count, 2 * intermediate]),
            down_proj: scope.parameter(&[count, intermediate, hidden]),
            down_proj_bias: scope.parameter(&[count, hidden]),
            module: scope.module(),
        }
    }

    /// From `[batch, seq, hidden]`, each token's experts `[tokens, k]` and its weight for each of all experts.
    pub fn forward(&self, hidden: &Tensor, chosen: &Tensor, weights: &Tensor) -> Tensor {
        hidden.cx().within(self.module, || {
            let sizes = hidden.dims().to_vec();
            let flat = ops::reshape(hidden, &[chosen.size(0), hidden.size(-1)]);
            let out = if hidden.cx().is_inference() {
                self.every_one(flat, weights)
            } else {
                self.one_by_one(&flat, chosen, weights)
            };
            ops::view(&out, &sizes)
        })
    }

    fn one_by_one(&self, hidden: &Tensor, chosen: &Tensor, weights: &Tensor) -> Tensor {
        let cx = hidden.cx();
        let (pairs, count) = (chosen.numel(), weights.size(1));
        let mut sum = ops::fill(cx, Fill::ZerosLike, hidden.dims(), hidden.dtype());
        // With a class for tokens that are masked, which none is.
        let mask = one_hot(chosen, count + 1);
        let hit = hit(&mask, count.min(pairs));
        let mut named = Named::default();
        for i in 0..count.min(pairs) {
            // `expert_idx == num_experts`
            drop(ops::pointwise(Pointwise::EqScalar, &hit, &[], &[], DType::Bool));
            let found = places(&mask, share(pairs, count, i));
            let rows = ops::select(&found, 1);
            named.found = Some(found);
            let state = ops::index_rows(hidden, &rows);
            named.state = Some(state.clone());
            let output = named.gated(with_bias(&state, &self.gate_up_proj, &self.gate_up_proj_bias));
            named.output = Some(output.clone());
            let out = with_bias(&output, &self.down_proj, &self.down_proj_bias);
            named.out = Some(out.clone());
            let weighted = {
                let share = ops::index_rows(&ops::unsqueeze(&ops::select(weights, 1), -1), &rows);
                ops::mul(&out, &share)
            };
            named.weighted = Some(weighted.clone());
            sum = ops::index_add_in_place(sum, &rows, &ops::to(&weighted, hidden.dtype()));
        }
        drop((mask, hit, named));
        sum
    }

    /// Every expert on every token, of which it weighs most with nothing.
    fn every_one(&self, hidden: Tensor, weights: &Tensor) -> Tensor {
        let (tokens, width, count) = (hidden.size(0), hidden.size(1), weights.size(1));
        let repeated = ops::view(&ops::repeat_batch(&hidden, count), &[count, tokens, width]);
        drop(hidden);
        let biased = |x: &Tensor, bias: &Tensor| ops::add(x, &ops::unsqueeze(bias, 1));
        let mut named = Named::default();
        let gate_up = biased(&ops::matmul(&repeated, &self.gate_up_proj), &self.gate_up_proj_bias);
        let output = named.gated(gate_up);
        let mut next = ops::matmul(&output, &self.down_proj);
        drop(output);
        next = biased(&next, &self.down_proj_bias);
        next = ops::mul(&next, &ops::unsqueeze(&ops::transpose(weights, 0, 1), -1));
        next = ops::sum_first(&next);
        drop((repeated, named));
        next
    }
}

/// `x @ weight[expert_idx] + bias[expert_idx]`, of a number that is asked of the card: both are slices.
fn with_bias(x: &Tensor, weight: &Tensor, bias: &Tensor) -> Tensor {
    let product = ops::matmul(x, &ops::select(weight, 0));
    ops::add(&product, &ops::select(bias, 0))
}

#[cfg(test)]
mod tests {
    use super::LoopedExperts;
    use crate::nn::Scope;
    use crate::tensor::DType;
    use crate::tensor::testing::{activation, forward, input_of, made, watch};

    /// Each expert is a slice of the whole; the number of the next is compared on the card.
    #[test]
    fn training_goes_from_expert_to_expert() {
        let cx = forward();
        let scope = Scope::root(&cx, DType::Float32, None, None, None);
        let experts = LoopedExperts::new(&scope, 4, 8, 24);
        let hidden = activation(&cx, &[1, 3, 8]);
        let (weights, chosen) = (activation(&cx, &[3, 4]), input_of(&cx, &[3, 2], DType::Int64));
        let (events, out) = watch(&cx, || experts.forward(&hidden, &chosen, &weights));
        assert_eq!(out.dims(), [1, 3, 8]);
        let products = |event: &&String| event.starts_with("+mm [") && event.ends_with(", 48] float32");
        let rows: Vec<_> = events.iter().filter(products).cloned().collect();
        let [two, one] = ["+mm [2, 48] float32", "+mm [1, 48] float32"];
        assert_eq!(rows, [two, two, one, one], "six choices of four experts");
        let begun: Vec<_> = made(&events).into_iter().take(9).collect();
        let found = [
            "zeros_like",
            "zeros",
            "sum.dim_IntList",
            "gt.Scalar",
            "nonzero",
            "eq.Scalar",
            "nonzero",
            "index.Tensor",
            "mm",
        ];
        assert_eq!(begun, found);
    }
}
