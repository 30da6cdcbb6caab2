//! The gated delta rule of linear attention as transformers has it in PyTorch alone (`torch_chunk_gated_delta_rule` in
//! `models/qwen3_next/modeling_qwen3_next.py` of 5.17): what runs where flash-linear-attention is not installed.

use plimsoll_catalog::software::rules;

use super::delta_rule_by_rows::chunk_by_rows;
use crate::ops::{self, Fill, Pointwise};
use crate::tensor::{DType, Tensor};

/// `chunk_size`.
pub(super) const CHUNK: u64 = 64;

/// What a layer's tokens are made of: `[batch, seq, heads, dim]`, and of `decay` and `beta` `[batch, seq, heads]`.
#[derive(Debug)]
pub struct DeltaStates<'t> {
    /// `query`.
    pub query: &'t Tensor,
    /// `key`.
    pub key: &'t Tensor,
    /// `value`.
    pub value: &'t Tensor,
    /// `g`.
    pub decay: &'t Tensor,
    /// `beta`.
    pub beta: &'t Tensor,
}

impl DeltaStates<'_> {
    /// Queries and keys, one for each head of values: repeated where there are fewer, since [`rules::HEADS_REPEATED_IN_RULE`].
    fn grouped(&self) -> [Tensor; 2] {
        let times = self.value.size(2) / self.key.size(2).max(1);
        [self.query, self.key].map(|x| if times > 1 { repeated_heads(x, times) } else { x.clone() })
    }
}

/// `x.repeat_interleave(times, dim=2)` of `[batch, seq, heads, dim]`.
pub fn repeated_heads(x: &Tensor, times: u64) -> Tensor {
    let [batch, seq, heads, dim] = [0, 1, 2, 3].map(|axis| x.size(axis));
    let wide = ops::clone(&ops::expand(&ops::unsqueeze(x, 3), &[batch, seq, heads, times, dim]));
    ops::view(&wide, &[batch, seq, heads * times, dim])
}

/// `torch_chunk_gated_delta_rule(..., use_qk_l2norm_in_kernel=True)` without a state before it: float32 inside, but for what
/// autocast makes of its products; `[batch, seq, heads, value_dim]` in the queries' dtype, and the state behind it where that
/// `is_wanted`.
pub fn chunk_gated_delta_rule(states: &DeltaStates<'_>, is_wanted: bool) -> (Tensor, Option<Tensor>) {
    if !states.query.cx().machine().rules.has(&rules::DELTA_RULE_SOLVED) {
        return chunk_by_rows(states, is_wanted);
    }
    let initial = states.query.dtype();
    let (batch, seq, heads) = (states.value.size(0), states.value.size(1), states.value.size(2));
    let (key_dim, value_dim) = (states.key.size(3), states.value.size(3));
    let heads_first = |x: &Tensor| ops::to_row_major(&ops::transpose(x, 1, 2), DType::Float32);
    let grouped = states.grouped();
    let (mut query, mut key, mut value) =
        (heads_first(&grouped[0]), heads_first(&grouped[1]), heads_first(states.value));
    let (mut beta, mut decay) = (heads_first(states.beta), heads_first(states.decay));
    drop(grouped);
    query = l2norm(&query);
    key = l2norm(&key);
    query = ops::mul_scalar(&query);

    let chunks = seq.div_ceil(CHUNK);
    let padded = chunks * CHUNK;
    let pad = |x: &Tensor| ops::pad(x, &[batch, heads, padded, x.size(3)]);
    (query, key, value) = (pad(&query), pad(&key), pad(&value));
    let pad = |x: &Tensor| ops::pad(x, &[batch, heads, padded]);
    (beta, decay) = (pad(&beta), pad(&decay));

    let mut v_beta = ops::mul(&value, &ops::unsqueeze(&beta, -1));
    let mut k_beta = ops::mul(&key, &ops::unsqueeze(&beta, -1));
    let chunked = |x: &Tensor| ops::reshape(x, &[batch, heads, chunks, CHUNK, x.size(3)]);
    (query, key, k_beta, v_beta) = (chunked(&query), chunked(&key), chunked(&k_beta), chunked(&v_beta));
    decay = ops::reshape(&decay, &[batch, heads, chunks, CHUNK]);
    let mask = {
        let ones = ops::fill(value.cx(), Fill::Ones, &[CHUNK, CHUNK], DType::Bool);
        ops::each(Pointwise::Triu, &ones, DType::Bool)
    };
    let cum_decay = ops::cumsum_last(&decay);

    let mut pairwise = ops::sub(&ops::unsqueeze(&cum_decay, 4), &ops::unsqueeze(&cum_decay, 3));
    pairwise = ops::masked_fill(&pairwise, &mask);
    pairwise = ops::exp(&pairwise);
    let turned = |x: &Tensor| ops::transpose(x, -1, -2);
    let decayed = |left: &Tensor| {
        let product = ops::matmul(left, &turned(&key));
        ops::mul(&product, &pairwise)
    };
    let system = decayed(&k_beta);
    let intra = decayed(&query);
    let decayed_k_beta = {
        let factor = ops::unsqueeze(&ops::exp(&cum_decay), -1);
        ops::mul(&k_beta, &factor)
    };
    let new_values = ops::solve_triangular(&system, &v_beta);
    let k_cumdecay = ops::solve_triangular(&system, &decayed_k_beta);

    let mut state = ops::fill(value.cx(), Fill::Zeros, &[batch, heads, key_dim, value_dim], DType::Float32);
    let mut out = ops::zeros_like(&new_values);
    query = {
        let factor = ops::unsqueeze(&ops::exp(&cum_decay), -1);
        ops::mul(&query, &factor)
    };
    key = {
        let rest = {
            let last = ops::narrow(&cum_decay, -1, 1);
            ops::sub(&last, &cum_decay)
        };
        let factor = ops::exp(&rest);
        drop(rest);
        ops::mul(&key, &ops::unsqueeze(&factor, -1))
    };
    let chunk_decay = {
        let last = ops::exp(&ops::select(&cum_decay, -1));
        ops::unsqueeze(&ops::unsqueeze(&last, -1), -1)
    };
    let chunk = |x: &Tensor| ops::select(&ops::whole(&ops::whole(x)), 2);
    // Names of the loop, which stand until they are taken again.
    let (mut v_new, mut inter) = (None, None);
    for _ in 0..chunks {
        let corrected = {
            let values = chunk(&new_values);
            let read = ops::matmul(&chunk(&k_cumdecay), &state);
            ops::sub(&values, &read)
        };
        let v_new = v_new.insert(corrected);
        let inter = inter.insert(ops::matmul(&chunk(&query), &state));
        let part = {
            let within = ops::matmul(&chunk(&intra), v_new);
            ops::add(inter, &within)
        };
        out = ops::copied_into(out, 2, &part);
        drop(part);
        state = {
            let kept = ops::mul(&state, &chunk(&chunk_decay));
            let update = ops::matmul(&turned(&chunk(&key)), v_new);
            let sum = ops::add(&kept, &update);
            drop((kept, update));
            sum
        };
        if out.cx().exhausted() {
            break;
        }
    }
    let state = is_wanted.then_some(state);
    out = ops::reshape(&out, &[batch, heads, padded, value_dim]);
    out = ops::narrow(&ops::whole(&ops::whole(&out)), 2, seq);
    out = ops::to_row_major(&ops::transpose(&out, 1, 2), initial);
    // The function's names, in the order in which it lets go of them.
    drop((query, key, value, beta, decay));
    drop((v_beta, k_beta, mask, cum_decay, pairwise, system, intra, decayed_k_beta, new_values, k_cumdecay));
    drop((chunk_decay, v_new, inter));
    (out, state)
}

/// `torch_recurrent_gated_delta_rule(..., use_qk_l2norm_in_kernel=True)` of one more token: what comes out, and the state behind it.
pub fn recurrent_gated_delta_rule(states: &DeltaStates<'_>, state: &Tensor) -> (Tensor, Tensor) {
    let initial = states.query.dtype();
    let normed_wide = states.query.cx().machine().rules.has(&rules::DELTA_RULE_SOLVED);
    let heads_first = |x: &Tensor| {
        let turned = ops::transpose(x, 1, 2);
        if normed_wide {
            ops::to_row_major(&turned, DType::Float32)
        } else {
            ops::to(&ops::contiguous(&turned), DType::Float32)
        }
    };
    let [mut query, mut key] = states.grouped();
    if !normed_wide {
        (query, key) = (l2norm(&query), l2norm(&key));
    }
    // All of them are there before any takes its name.
    let wide = [&query, &key, states.value, states.beta, states.decay].map(heads_first);
    let [wide_query, wide_key, value, beta, decay] = wide;
    (query, key) = (wide_query, wide_key);
    if normed_wide {
        query = l2norm(&query);
        key = l2norm(&key);
    }
    query = ops::div_scalar(&query);
    let mut state = ops::to(state, DType::Float32);
    let mut out = ops::zeros_like(&value);
    let token = |x: &Tensor| ops::select(x, 2);
    let down = |x: &Tensor| ops::unsqueeze(x, -1);
    let read = |state: &Tensor, by: &Tensor| {
        let product = ops::mul(state, &down(by));
        ops::sum_rows(&product)
    };
    let (q_t, k_t, v_t) = (token(&query), token(&key), token(&value));
    let decay_t = down(&down(&ops::exp(&token(&decay))));
    state = ops::mul(&state, &decay_t);
    let beta_t = down(&token(&beta));
    let memory = read(&state, &k_t);
    let delta = {
        let missing = ops::sub(&v_t, &memory);
        ops::mul(&missing, &beta_t)
    };
    state = {
        let update = ops::mul(&down(&k_t), &ops::unsqueeze(&delta, -2));
        ops::add(&state, &update)
    };
    let row = read(&state, &q_t);
    out = ops::copied_into(out, 2, &row);
    drop(row);
    out = ops::to(&ops::contiguous(&ops::transpose(&out, 1, 2)), initial);
    drop((query, key, value, beta, decay, q_t, k_t, v_t, decay_t));
    drop((beta_t, memory, delta));
    (out, state)
}

/// `l2norm(x)` over the last dimension.
pub(super) fn l2norm(x: &Tensor) -> Tensor {
    let shifted = {
        let square = ops::mul(x, x);
        let sum = ops::sum_last(&square);
        drop(square);
        ops::add_scalar(&sum)
    };
    let inverse = ops::rsqrt(&shifted);
    drop(shifted);
    ops::mul(x, &inverse)
}
