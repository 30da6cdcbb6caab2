//! Fused attention.

use std::rc::Rc;

use plimsoll_catalog::software::{Rules, rules};
use plimsoll_ledger::{Law, Parts, Rule, Split};

use super::Scratch;
use crate::Op;
use crate::ops::sdpa_rules::Kernel;
use crate::tensor::{Context, DType, Kernels};

/// The sizes of one call: `[batch, heads, seq, dim]` of the queries, heads and length of the keys.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Samples.
    pub batch: u64,
    /// Heads of the queries.
    pub heads: u64,
    /// Heads of keys and values.
    pub kv_heads: u64,
    /// Queries.
    pub queries: u64,
    /// Keys.
    pub keys: u64,
    /// Elements of a head.
    pub head: u64,
    /// Elements of a head of the values.
    pub value: u64,
}

/// What the efficient kernel's forward holds while it runs: its output in float32 where that is half and too wide for the
/// registers (`kNeedsOutputAccumulatorBuffer` in `mem_eff_attention/kernel_forward.h`).
pub fn attention_forward<'c>(cx: &'c Rc<Context>, op: Op, sizes: [u64; 4], dtype: DType) -> Option<Scratch<'c>> {
    const IN_REGISTERS: u64 = 128;
    let Kernels::Cuda(..) = cx.machine().kernels else { return None };
    let wide = dtype.is_half() && sizes[3] > IN_REGISTERS;
    if wide { Scratch::converted(cx, op, &sizes, DType::Float32) } else { None }
}

/// What flash attention's forward holds while it runs, where it shares keys: the log-sum-exp and the output of every share in
/// float32 (`set_params_splitkv` in `aten/src/ATen/native/transformers/cuda/flash_attn/flash_api.cpp`). Not with dropout.
pub fn shared_keys<'c>(cx: &'c Rc<Context>, op: Op, sizes: Sizes) -> Option<Scratch<'c>> {
    const QUERIES: u64 = 64;
    let Kernels::Cuda(..) = cx.machine().kernels else { return None };
    let rules = cx.machine().rules;
    if !rules.has(&rules::FLASH_2) {
        return None;
    }
    let Sizes { batch, mut heads, kv_heads, mut queries, keys, head, .. } = sizes;
    // `seqlenq_ngroups_swapped`: one query of several heads on the same keys is as several queries of one.
    if queries == 1 && heads > kv_heads {
        (heads, queries) = (kv_heads, heads / kv_heads);
    }
    let of_keys = match head {
        0..=64 => 256,
        65..=128 => 128,
        _ => 64,
    };
    let wide = flash_columns(rules, head);
    let count = batch * heads;
    let of = |numbers: u64| Parts {
        unit: DType::Float32.size() * numbers,
        blocks: queries.div_ceil(QUERIES),
        keys: keys.div_ceil(of_keys),
        slots: cx.machine().multiprocessors * if rules.has(&rules::FLASH_TWICE) { 2 } else { 1 },
    };
    let shares = of(1).shares(count);
    if shares < 2 {
        return None;
    }
    let mut scratch = Scratch::of(cx, op)?;
    let parts = [
        (of(queries), vec![shares, batch, heads, queries]),
        (of(queries * wide), vec![shares, batch, heads, queries, wide]),
    ];
    for (parts, dims) in parts {
        let storage = scratch.hold(&dims, DType::Float32);
        cx.law(Law { storage, count, rule: Rule::Parts(parts) });
    }
    Some(scratch)
}

/// What a kernel's backward holds while it runs, after the gradients were made. What AMD's kernels take is not known.
pub fn attention_backward<'c>(
    cx: &'c Rc<Context>,
    op: Op,
    kernel: Kernel,
    sizes: Sizes,
    dtype: DType,
) -> Option<Scratch<'c>> {
    let Kernels::Cuda(major, minor) = cx.machine().kernels else { return None };
    let mut scratch = Scratch::of(cx, op)?;
    match kernel {
        Kernel::Cudnn => cudnn(&mut scratch, sizes, dtype),
        Kernel::Flash => flash(&mut scratch, sizes, dtype, cx.machine().rules),
        Kernel::Efficient => efficient(&mut scratch, sizes, dtype, (major, minor)),
        Kernel::Math => {}
    }
    Some(scratch)
}

/// `head_size_rounded` of flash attention.
fn flash_columns(rules: Rules, head: u64) -> u64 {
    match head {
        0..=128 => head.next_multiple_of(32),
        _ if rules.has(&rules::FLASH_HEADS_IN_STEPS) => head.next_multiple_of(64),
        129..=192 => head.next_multiple_of(32),
        _ => 256,
    }
}

/// `mha_bwd` in `aten/src/ATen/native/transformers/cuda/flash_attn/flash_api.cpp`: row sums, the queries' gradient in
/// float32, and with grouped heads the gradients of keys and values for every head of the queries.
fn flash(scratch: &mut Scratch<'_>, sizes: Sizes, dtype: DType, rules: Rules) {
    let Sizes { batch, heads, kv_heads, queries, keys, head, .. } = sizes;
    let rows = queries.next_multiple_of(128);
    let columns = flash_columns(rules, head);
    scratch.hold(&[batch, heads, rows], DType::Float32);
    scratch.hold(&[batch, rows, heads, columns], DType::Float32);
    if kv_heads != heads {
        scratch.hold(&[batch, keys, heads, head], dtype);
        scratch.hold(&[batch, keys, heads, head], dtype);
    }
}

/// What a plan of cuDNN's attention asks for, forward and backward, on Hopper: an H100 80GB HBM3 with the cuDNN 9.19 of PyTorch 2.11
/// did so in each of 147 calls (2026-11-26: heads of 64 and 128, with and without mask and dropout).
const PLAN: u64 = 256;

/// Whether what a plan asks for was measured on such a card, with such a cuDNN.
fn is_measured(cx: &Context) -> bool {
    let machine = cx.machine();
    machine.kernels == Kernels::Cuda(9, 0) && machine.rules.has(&rules::CUDNN_BUNDLED)
}

/// What cuDNN's forward holds while it runs, where that is known.
pub fn cudnn_forward<'c>(cx: &'c Rc<Context>, op: Op, sizes: Sizes) -> Option<Scratch<'c>> {
    if !is_measured(cx) {
        return None;
    }
    let bytes = if sizes.queries > 1 { PLAN } else { single_query(sizes, cx.machine().multiprocessors) };
    if bytes == 0 { None } else { Scratch::converted(cx, op, &[bytes], DType::UInt8) }
}

/// What the kernel for a single query holds: keys are shared out, and the output and two numbers of every share kept in float32 until
/// they are put together. There are as many shares as leave each 128 keys and fill the card twice over with what has keys of its own,
/// a power of two between 4 and 64. So it was in each of 361 calls on an H200 (cuDNN 9.19, PyTorch 2.11, 2026-11-27: heads of 64 to
/// 256, 1 to 1,024 of them, 400 to 32,768 keys, with and without mask); whether 264 at a time is what 132 multiprocessors come to or
/// 256 what any card has, they do not tell apart.
fn single_query(sizes: Sizes, multiprocessors: u64) -> u64 {
    const KEYS: u64 = 128;
    let Sizes { batch, heads, kv_heads, keys, value, .. } = sizes;
    let filled = (2 * multiprocessors) / batch.saturating_mul(kv_heads).max(1);
    let most = (keys / KEYS).min(filled).min(64);
    if keys <= 4 * KEYS || most < 4 {
        return 0;
    }
    let rows = (1_u64 << most.ilog2()).saturating_mul(batch).saturating_mul(heads);
    let part = |rows: u64, each: u64| {
        rows.saturating_mul(each).saturating_mul(DType::Float32.size()).min(1 << 62).next_multiple_of(128)
    };
    [part(rows, value), part(rows, 1), part(rows, 1), 128].into_iter().fold(0, u64::saturating_add)
}

/// One allocation (`MHA.cpp`). In it what cuDNN's front end asks for: row sums and the queries' gradient in float32
/// (`get_fe_workspace_size_node` of the backward in `cudnn_frontend/node/scaled_dot_product_flash_attention.h`). And what the
/// plan itself does, where that was measured: with grouped heads the gradients of keys and values for every head of the queries.
fn cudnn(scratch: &mut Scratch<'_>, sizes: Sizes, dtype: DType) {
    let Sizes { batch, heads, kv_heads, queries, keys, head, .. } = sizes;
    // A size that no card has stays one.
    let bytes = |counts: [u64; 5], dtype: DType| counts.into_iter().fold(dtype.size(), u64::saturating_mul);
    let front_end = bytes([batch, heads, queries, head + 1, 1], DType::Float32);
    let plan = match is_measured(scratch.cx) {
        true if kv_heads != heads => PLAN.saturating_add(bytes([2, batch, heads, keys, head], dtype)),
        true => PLAN,
        false => 0,
    };
    scratch.hold(&[front_end.saturating_add(plan)], DType::UInt8);
}

/// `_efficient_attention_backward` in `attention_backward.cu`: row sums, and the kernel's workspace
/// (`Params::workspace_size` in `mem_eff_attention/kernel_backward.h`): tiles of the queries' gradient in float32, since keys
/// are split; for half inputs whose head is wider than a block, tiles of the other two as well: one for every head and split of
/// the keys, 200 in all where there are fewer heads (`num_splits_key` in `attention_backward.cu`).
fn efficient(scratch: &mut Scratch<'_>, sizes: Sizes, dtype: DType, capability: (u8, u8)) {
    let Sizes { batch, heads, kv_heads, queries, keys, head, value } = sizes;
    if !dtype.is_half() {
        // (grad_out.to(kFloat) * out.to(kFloat)).sum(-1).transpose(-2, -1).contiguous()
        scratch.hold(&[batch, queries, heads, value], DType::Float32);
        scratch.hold(&[batch, queries, heads], DType::Float32);
        scratch.hold(&[batch, heads, queries], DType::Float32);
        // The expression's temporaries go in the reverse order of their making.
        scratch.held.drain(..2).rev().for_each(drop);
    } else {
        scratch.hold(&[batch, heads, queries], DType::Float32);
    }
    let (block_i, block_j, in_registers) = block(dtype, head, capability);
    // GradQTempStorage: a lock, a counter and padding to 16 bytes before every tile.
    let tile = block_i * block_j + 4;
    let own = queries.div_ceil(block_i) * head.div_ceil(block_j) * tile;
    if dtype.is_half() && !in_registers {
        const MOST: u64 = 200;
        let float = DType::Float32.size();
        let tile = 2 * block_j * head.next_multiple_of(block_i);
        let split = Split { own: float * own, tile: float * tile, splits: keys.div_ceil(block_j), most: MOST };
        let count = batch * heads;
        let storage = scratch.hold(&[split.bytes(count) / float], DType::Float32);
        scratch.cx.law(Law { storage, count, rule: Rule::Split(split) });
    } else {
        scratch.hold(&[batch * heads, own], DType::Float32);
    }
    if kv_heads != heads {
        // Grouped heads: every head of the queries makes its own gradient of keys and values, summed by a kernel that
        // follows (pytorch pull request 191085).
        scratch.hold(&[batch, keys, heads, head], dtype);
        scratch.hold(&[batch, keys, heads, head], dtype);
    }
}

/// The blocks of the kernel that is taken and whether its outputs stay in registers: the first of
/// `mem_eff_attention/kernels/generate_kernels.py` that fits; large ones need the shared memory of 8.0, 9.0 and 10.x, but where
/// they load nothing ahead (before 8.0, of heads beyond 128 and in float32).
fn block(dtype: DType, head: u64, capability: (u8, u8)) -> (u64, u64, bool) {
    let roomy = matches!(capability, (8, 0) | (9 | 10, _));
    match head {
        0..=64 => (64, 64, dtype.is_half()),
        65..=96 if dtype.is_half() && matches!(capability, (8, 6 | 9)) => (128, 64, true),
        65..=128 if dtype.is_half() && roomy => (128, 128, true),
        65..=128 if dtype.is_half() && capability.0 < 8 => (128, 64, true),
        129.. if dtype.is_half() => (128, 64, false),
        _ if roomy => (128, 64, false),
        _ => (64, 64, false),
    }
}

#[cfg(test)]
mod tests {
    use super::{Sizes, single_query};

    /// As an H200 with 132 multiprocessors answered: batch, heads, of keys, how many keys, and the head's width.
    #[test]
    fn a_single_query_shares_out_its_keys() {
        for ([batch, heads, kv_heads, keys, head], bytes) in [
            ([1, 1, 1, 512, 64], 0),
            ([1, 1, 1, 700, 64], 1_408),
            ([1, 1, 1, 32_768, 64], 17_024),
            ([3, 5, 5, 1_000, 64], 16_000),
            ([1, 9, 9, 5_000, 64], 38_272),
            ([4, 16, 16, 4_097, 64], 67_712),
            ([8, 16, 16, 4_097, 64], 0),
            // A Qwen3-VL 4B, a Gemma 2B.
            ([4, 32, 8, 1_537, 128], 532_608),
            ([3, 8, 1, 513, 256], 99_200),
        ] {
            let sizes = Sizes { batch, heads, kv_heads, queries: 1, keys, head, value: head };
            assert_eq!(single_query(sizes, 132), bytes, "{sizes:?}");
        }
    }
}
