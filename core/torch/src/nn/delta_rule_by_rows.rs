//! The gated delta rule as transformers had it in PyTorch alone up to 5.16: a chunk's triangular system is solved row by row, each of which is
//! written into what the next one reads (`torch_chunk_gated_delta_rule` in `models/qwen3_next/modeling_qwen3_next.py` of 4.57.1).

use plimsoll_catalog::software::rules;

use super::gated_delta_rule::{CHUNK, DeltaStates, l2norm};
use crate::ops::{self, Fill, Pointwise};
use crate::tensor::{DType, Tensor};

/// [`super::chunk_gated_delta_rule`] before [`rules::DELTA_RULE_SOLVED`].
pub fn chunk_by_rows(states: &DeltaStates<'_>, is_wanted: bool) -> (Tensor, Option<Tensor>) {
    let initial = states.query.dtype();
    let (batch, seq, heads) = (states.value.size(0), states.value.size(1), states.value.size(2));
    let (key_dim, value_dim) = (states.key.size(3), states.value.size(3));
    let (mut query, mut key) = (l2norm(states.query), l2norm(states.key));
    let heads_first = |x: &Tensor| ops::to(&ops::contiguous(&ops::transpose(x, 1, 2)), DType::Float32);
    // All of them are there before any takes its name.
    let wide = [&query, &key, states.value, states.beta, states.decay].map(heads_first);
    let [wide_query, wide_key, mut value, mut beta, mut decay] = wide;
    (query, key) = (wide_query, wide_key);

    let chunks = seq.div_ceil(CHUNK);
    let padded = chunks * CHUNK;
    let pad = |x: &Tensor| ops::pad(x, &[batch, heads, padded, x.size(3)]);
    query = pad(&query);
    key = pad(&key);
    value = pad(&value);
    let pad = |x: &Tensor| ops::pad(x, &[batch, heads, padded]);
    beta = pad(&beta);
    decay = pad(&decay);
    query = ops::mul_scalar(&query);

    let mut v_beta = ops::mul(&value, &ops::unsqueeze(&beta, -1));
    let mut k_beta = ops::mul(&key, &ops::unsqueeze(&beta, -1));
    let chunked = |x: &Tensor| ops::reshape(x, &[batch, heads, chunks, CHUNK, x.size(3)]);
    (query, key, value) = (chunked(&query), chunked(&key), chunked(&value));
    (k_beta, v_beta) = (chunked(&k_beta), chunked(&v_beta));
    decay = ops::reshape(&decay, &[batch, heads, chunks, CHUNK]);
    let mut mask = upper(&value);

    decay = ops::cumsum_last(&decay);
    let decay_mask = {
        let mut pairwise = ops::sub(&ops::unsqueeze(&decay, 4), &ops::unsqueeze(&decay, 3));
        pairwise = ops::tril(&pairwise);
        pairwise = ops::exp(&pairwise);
        ops::tril(&pairwise)
    };
    let turned = |x: &Tensor| ops::transpose(x, -1, -2);
    let mut attn = {
        let mut scores = ops::matmul(&k_beta, &turned(&key));
        scores = ops::mul(&scores, &decay_mask);
        scores = ops::masked_fill(&scores, &mask);
        ops::neg(&scores)
    };
    // Names of the loop, which stand until they are taken again.
    let (mut row, mut sub) = (None, None);
    for i in 1..CHUNK {
        let row = row.insert(ops::clone(&ops::narrow(&ops::select(&attn, -2), -1, i)));
        let sub = sub.insert(ops::clone(&ops::narrow(&ops::narrow(&attn, -2, i), -1, i)));
        let solved = {
            let sum = {
                let product = ops::mul(&ops::unsqueeze(row, -1), sub);
                ops::sum_rows(&product)
            };
            ops::add(row, &sum)
        };
        attn = ops::copied_into_row(attn, &solved);
        if attn.cx().exhausted() {
            break;
        }
    }
    attn = {
        let eye = ops::fill(attn.cx(), Fill::Eye, &[CHUNK, CHUNK], attn.dtype());
        ops::add(&attn, &eye)
    };
    value = ops::matmul(&attn, &v_beta);
    let k_cumdecay = {
        let decayed = {
            let factor = ops::exp(&decay);
            ops::mul(&k_beta, &ops::unsqueeze(&factor, -1))
        };
        ops::matmul(&attn, &decayed)
    };
    let mut state = ops::fill(value.cx(), Fill::Zeros, &[batch, heads, key_dim, value_dim], value.dtype());
    let mut out = ops::zeros_like(&value);
    mask = upper(&value);
    let masked = !value.cx().machine().rules.has(&rules::DELTA_RULE_MASKED_ONCE);

    let chunk = |x: &Tensor| ops::select(&ops::whole(&ops::whole(x)), 2);
    let (mut v_prime, mut v_new, mut inter) = (None, None, None);
    for _ in 0..chunks {
        let (q_i, k_i, v_i) = (chunk(&query), chunk(&key), chunk(&value));
        attn = {
            let scores = ops::matmul(&q_i, &turned(&k_i));
            let decayed = ops::mul(&scores, &chunk(&decay_mask));
            if masked { ops::masked_fill_in_place(decayed, &mask) } else { decayed }
        };
        let v_prime = v_prime.insert(ops::matmul(&chunk(&k_cumdecay), &state));
        let v_new = v_new.insert(ops::sub(&v_i, v_prime));
        let inter = inter.insert({
            let decayed = {
                let factor = ops::exp(&ops::unsqueeze(&ops::whole(&chunk(&decay)), -1));
                ops::mul(&q_i, &factor)
            };
            ops::matmul(&decayed, &state)
        });
        let part = {
            let within = ops::matmul(&attn, v_new);
            ops::add(inter, &within)
        };
        out = ops::copied_into(out, 2, &part);
        drop(part);
        state = {
            let last = || ops::unsqueeze(&ops::select(&chunk(&decay), -1), -1);
            let kept = {
                let factor = ops::exp(&ops::unsqueeze(&last(), -1));
                ops::mul(&state, &factor)
            };
            let update = {
                let decayed = {
                    let rest = ops::sub(&last(), &chunk(&decay));
                    let factor = ops::exp(&rest);
                    drop(rest);
                    ops::mul(&k_i, &ops::unsqueeze(&factor, -1))
                };
                ops::matmul(&turned(&decayed), v_new)
            };
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
    out = ops::to(&ops::contiguous(&ops::transpose(&out, 1, 2)), initial);
    // The function's names, in the order in which it lets go of them.
    drop((query, key, value, decay, beta));
    drop((v_beta, k_beta, mask, decay_mask, attn, row, sub, k_cumdecay));
    drop((v_prime, v_new, inter));
    (out, state)
}

/// `torch.triu(torch.ones(chunk_size, chunk_size, dtype=torch.bool))`
fn upper(beside: &Tensor) -> Tensor {
    let ones = ops::fill(beside.cx(), Fill::Ones, &[CHUNK, CHUNK], DType::Bool);
    ops::each(Pointwise::Triu, &ones, DType::Bool)
}
