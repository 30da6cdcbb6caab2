//! Both forwards of transformers' `integrations/moe.py` before [`rules::EXPERTS_SORTED_ONCE`] (5.0 to 5.7): each pair of a token and one
//! of its experts has the token's number written out.

use plimsoll_catalog::software::rules;

use super::{Experts, Weights};
use crate::ops::{self, Fill, Pointwise, Rearrangement, Reduction};
use crate::tensor::{DType, Tensor};

/// What Python has names for until a forward returns, where an older one had a name for everything.
#[derive(Default)]
struct Named {
    tensors: Vec<Tensor>,
}

impl Named {
    fn hold_if(&mut self, named: bool, tensor: &Tensor) {
        self.tensors.extend(named.then(|| tensor.clone()));
    }
}

/// `torch.arange(num_tokens).unsqueeze(1).expand(-1, num_top_k).reshape(-1)`, a copy where a token has several experts.
fn token_idx(hidden: &Tensor, top_k: u64) -> Tensor {
    let cx = hidden.cx();
    let tokens = ops::fill(cx, Fill::Arange, &[hidden.size(0)], DType::Int64);
    if top_k == 1 {
        return tokens;
    }
    ops::rearrangement(cx, Rearrangement::Clone, &[hidden.size(0).saturating_mul(top_k)], DType::Int64)
}

/// `expert_ids` clamped, and which of them were not of this card's experts.
fn clamped(expert_ids: &Tensor) -> (Tensor, Tensor) {
    let invalid = ops::each(Pointwise::GeScalar, expert_ids, DType::Bool);
    (ops::each(Pointwise::Clamp, expert_ids, DType::Int64), invalid)
}

impl Experts {
    /// `grouped_mm_experts_forward`.
    pub(super) fn grouped_once(&self, hidden: &Tensor, experts: &Tensor, weights: &Tensor, own: Weights<'_>) -> Tensor {
        let cx = hidden.cx();
        let rules = cx.machine().rules;
        let (tokens, top_k, width) = (hidden.size(0), experts.size(1), hidden.size(1));
        let (count, selected) = (self.gate_up_proj.size(0), tokens * top_k);
        let mut named = Named::default();
        let token_idx = token_idx(hidden, top_k);
        let sample_weights = ops::reshape(weights, &[selected]);
        let mut expert_ids = ops::reshape(experts, &[selected]);
        let mut invalid = None;
        if rules.has(&rules::GROUPED_EXPERTS_MASKED) {
            let both = clamped(&expert_ids);
            (expert_ids, invalid) = (both.0, Some(both.1));
        }
        let selected_rows = (!rules.has(&rules::EXPERT_ROWS_ONCE)).then(|| ops::index_rows(hidden, &token_idx));
        // `argsort`, which lets go of the sorted numbers.
        let perm = ops::sort_flat(&expert_ids).1;
        let inverse = if rules.has(&rules::EXPERTS_UNSORTED_BY_COUNT) {
            let inverse = ops::fill(cx, Fill::EmptyLike, &[selected], DType::Int64);
            drop(ops::fill(cx, Fill::Arange, &[selected], DType::Int64));
            inverse
        } else {
            ops::sort_flat(&perm).1
        };
        let sorted_ids = ops::index_rows(&expert_ids, &perm);
        let sample_weights = ops::index_rows(&sample_weights, &perm);
        let rows = match &selected_rows {
            Some(rows) => ops::index_rows(rows, &perm),
            None => ops::index_rows(hidden, &ops::index_rows(&token_idx, &perm)),
        };
        let in_turn = rules.has(&rules::EXPERTS_PICKED_IN_TURN);
        let mut biases = self.biases(true, &sorted_ids);
        let early = if in_turn { None } else { self.biases(false, &sorted_ids) };
        let counted = if rules.has(&rules::EXPERT_NUMBERS_CLAMPED) { DType::Int32 } else { DType::Float32 };
        let histc_input = ops::each(Pointwise::ToCopy, &sorted_ids, counted);
        let per_expert = ops::reduction(Reduction::Histc, &histc_input, &[count], counted);
        let offsets = ops::reduction(Reduction::Cumsum, &per_expert, &[count], DType::Int32);
        // As float32 it was given to `histc` without a name.
        named.hold_if(counted == DType::Int32, &histc_input);
        drop(histc_input);
        let mut out = self.grouped_linear(&rows, &(own.gate_up)(), &offsets, biases.as_ref());
        named.hold_if(!in_turn, &out);
        out = self.gate(&out);
        if in_turn {
            biases = self.biases(false, &sorted_ids);
        }
        let given = if rules.has(&rules::EXPERTS_UNSORTED_BY_COUNT) { None } else { Some(out.clone()) };
        out = self.grouped_linear(&out, &(own.down)(), &offsets, early.as_ref().or(biases.as_ref()));
        let mut weighted = ops::mul(&out, &ops::unsqueeze(&sample_weights, -1));
        if !in_turn {
            // The weighted have the name that the products had, and what is put back in order one of its own.
            out = weighted.clone();
        }
        let mask = invalid.as_ref().map(|invalid| ops::index_rows(invalid, &perm));
        if let Some(mask) = &mask {
            weighted = ops::masked_fill_in_place(weighted, &ops::unsqueeze(mask, -1));
        }
        weighted = ops::index_rows(&weighted, &inverse);
        let sum = ops::sum_middle(&ops::view(&weighted, &[tokens, top_k, width]));
        let sum = ops::to(&sum, hidden.dtype());
        drop((token_idx, expert_ids, invalid, mask, selected_rows, perm, inverse, sorted_ids, rows));
        drop((biases, early, per_expert, given, out, named));
        sum
    }

    /// `batched_mm_experts_forward`.
    pub(super) fn batched_once(&self, hidden: &Tensor, experts: &Tensor, weights: &Tensor, own: Weights<'_>) -> Tensor {
        let cx = hidden.cx();
        let rules = cx.machine().rules;
        let (tokens, top_k, width) = (hidden.size(0), experts.size(1), hidden.size(1));
        let selected = tokens * top_k;
        let mut named = Named::default();
        let token_idx = token_idx(hidden, top_k);
        let sample_weights = ops::reshape(weights, &[selected]);
        let all = ops::reshape(experts, &[selected]);
        let (expert_ids, invalid) = if rules.has(&rules::EXPERT_NUMBERS_CLAMPED) {
            let (clamped, invalid) = clamped(&all);
            (clamped, Some(invalid))
        } else {
            (all.clone(), None)
        };
        let in_turn = rules.has(&rules::EXPERTS_PICKED_IN_TURN);
        let rows = ops::index_rows(hidden, &token_idx);
        let mut chosen = ops::index(&(own.gate_up)(), &[&expert_ids]);
        let early = (!in_turn).then(|| ops::index(&(own.down)(), &[&expert_ids]));
        let mut biases = self.biases(true, &expert_ids);
        let early_biases = if in_turn { None } else { self.biases(false, &expert_ids) };
        let mut out = self.batched_linear(&rows, &chosen, biases.as_ref());
        named.hold_if(!in_turn, &out);
        out = self.gate(&out);
        if in_turn {
            chosen = ops::index(&(own.down)(), &[&expert_ids]);
            biases = self.biases(false, &expert_ids);
        }
        let given = if rules.has(&rules::EXPERTS_UNSORTED_BY_COUNT) { None } else { Some(out.clone()) };
        out = self.batched_linear(&out, early.as_ref().unwrap_or(&chosen), early_biases.as_ref().or(biases.as_ref()));
        let mut weighted = ops::mul(&out, &ops::unsqueeze(&sample_weights, -1));
        match &invalid {
            Some(invalid) if in_turn => {
                weighted = ops::masked_fill_in_place(weighted, &ops::unsqueeze(invalid, -1));
            }
            Some(invalid) => {
                out = weighted.clone();
                let mask = ops::to(&ops::unsqueeze(invalid, -1), weighted.dtype());
                weighted = ops::mul(&weighted, &mask);
                drop(mask);
                out.clone_from(&weighted);
            }
            None => out = weighted.clone(),
        }
        let sum = ops::sum_middle(&ops::view(&weighted, &[tokens, top_k, width]));
        let sum = ops::to(&sum, hidden.dtype());
        drop((token_idx, all, expert_ids, invalid, rows, chosen, early, biases, early_biases, given, out, named));
        sum
    }
}
