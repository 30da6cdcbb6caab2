//! `grouped_mm_experts_forward` of transformers' `integrations/moe.py`: the tokens are sorted by expert, and the experts' products
//! are two of groups.

use plimsoll_catalog::software::rules;

use super::{Experts, Weights};
use crate::ops::{self, Fill, Pointwise, Reduction};
use crate::tensor::{DType, Tensor};

impl Experts {
    /// Since [`rules::EXPERTS_SORTED_ONCE`].
    pub(super) fn grouped(&self, hidden: &Tensor, experts: &Tensor, weights: &Tensor, own: Weights<'_>) -> Tensor {
        let cx = hidden.cx();
        let rules = cx.machine().rules;
        let masked = !rules.has(&rules::MASKED_WHERE_SHARED_OUT);
        let products_masked = masked && rules.has(&rules::EXPERT_PRODUCTS_MASKED);
        let (tokens, top_k, width) = (hidden.size(0), experts.size(1), hidden.size(1));
        let (count, selected) = (self.gate_up_proj.size(0), tokens * top_k);
        let sample_weights = ops::reshape(weights, &[selected]);
        // The sorted expert numbers, and the permutation that sorts them.
        let (expert_ids, perm) = ops::sort_flat(experts);
        let mut rows = {
            let owners = ops::pointwise(Pointwise::FloorDivide, &perm, &[], &[selected], DType::Int64);
            ops::index_rows(hidden, &owners)
        };
        let sample_weights = ops::index_rows(&sample_weights, &perm);
        let histc_input = ops::pointwise(Pointwise::ToCopy, &expert_ids, &[], &[selected], DType::Int32);
        let tokens_per_expert = ops::reduction(Reduction::Histc, &histc_input, &[count], DType::Int32);
        let offsets = ops::reduction(Reduction::Cumsum, &tokens_per_expert, &[count], DType::Int32);
        let sentinel = masked.then(|| {
            ops::unsqueeze(&ops::pointwise(Pointwise::GeScalar, &expert_ids, &[], &[selected], DType::Bool), -1)
        });
        let mut biases = self.biases(true, &expert_ids);
        if let Some(sentinel) = &sentinel {
            rows = ops::masked_fill_in_place(rows, sentinel);
        }

        let mut out = self.grouped_linear(&rows, &(own.gate_up)(), &offsets, biases.as_ref());
        if let (true, Some(sentinel)) = (products_masked, &sentinel) {
            out = ops::masked_fill(&out, sentinel);
        }
        out = self.gate(&out);
        biases = self.biases(false, &expert_ids);
        out = self.grouped_linear(&out, &(own.down)(), &offsets, biases.as_ref());
        if let (true, Some(sentinel)) = (products_masked, &sentinel) {
            out = ops::masked_fill(&out, sentinel);
        }
        let mut weighted = ops::mul(&out, &ops::unsqueeze(&sample_weights, -1));
        if let (false, Some(sentinel)) = (products_masked, &sentinel) {
            weighted = ops::masked_fill_in_place(weighted, sentinel);
        }
        let inverse = ops::fill(cx, Fill::EmptyLike, &[selected], DType::Int64);
        drop(ops::fill(cx, Fill::Arange, &[selected], DType::Int64));
        weighted = ops::index_rows(&weighted, &inverse);
        let sum = ops::sum_middle(&ops::view(&weighted, &[tokens, top_k, width]));
        let sum = ops::to(&sum, hidden.dtype());
        drop((expert_ids, perm, histc_input, tokens_per_expert, rows, biases, out));
        sum
    }
}
