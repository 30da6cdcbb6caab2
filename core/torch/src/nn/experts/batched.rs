//! `batched_mm_experts_forward` of transformers' `integrations/moe.py`, which `generate` changes to once the prompt is read: every
//! token has the weights of its experts copied out for itself.

use plimsoll_catalog::software::rules;

use super::{Experts, Form, Weights, biased};
use crate::ops::{self, Pointwise};
use crate::tensor::{DType, Tensor};

impl Experts {
    /// Since [`rules::EXPERTS_SORTED_ONCE`].
    pub(super) fn batched(&self, hidden: &Tensor, experts: &Tensor, weights: &Tensor, own: Weights<'_>) -> Tensor {
        let (tokens, top_k, width) = (hidden.size(0), experts.size(1), hidden.size(1));
        let selected = tokens * top_k;
        let rows = {
            let each = ops::expand(&ops::unsqueeze(hidden, 1), &[tokens, top_k, width]);
            ops::view(&ops::clone(&each), &[selected, width])
        };
        let sample_weights = ops::reshape(weights, &[selected]);
        let rules = hidden.cx().machine().rules;
        let clamped = rules.has(&rules::EXPERT_NUMBERS_APART) && !rules.has(&rules::MASKED_WHERE_SHARED_OUT);
        let expert_ids = if clamped {
            ops::pointwise(Pointwise::Clamp, experts, &[], &[selected], DType::Int64)
        } else {
            ops::view(experts, &[selected])
        };
        let mut chosen = ops::index(&(own.gate_up)(), &[&expert_ids]);
        let mut biases = self.biases(true, &expert_ids);
        let mut out = self.batched_linear(&rows, &chosen, biases.as_ref());
        out = self.gate(&out);
        chosen = ops::index(&(own.down)(), &[&expert_ids]);
        biases = self.biases(false, &expert_ids);
        out = self.batched_linear(&out, &chosen, biases.as_ref());
        let weighted = ops::mul(&out, &ops::unsqueeze(&sample_weights, -1));
        let sum = ops::sum_middle(&ops::view(&weighted, &[tokens, top_k, width]));
        let sum = ops::to(&sum, hidden.dtype());
        drop((rows, expert_ids, chosen, biases, out, weighted));
        sum
    }

    /// `_batched_linear`: a product for every row, of a copy of its expert's weight.
    pub(super) fn batched_linear(&self, x: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Tensor {
        let out = match self.form {
            Form::Gated(_) => ops::matmul(weight, &ops::unsqueeze(x, -1)),
            Form::Clamped { .. } => ops::matmul(&ops::unsqueeze(x, 1), weight),
        };
        let rows = x.size(0);
        biased(ops::view(&out, &[rows, out.numel().checked_div(rows).unwrap_or(0)]), bias)
    }
}
