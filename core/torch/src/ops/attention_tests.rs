//! `scaled_dot_product_attention`: which kernel is picked, and what each keeps and allocates.
//!
//! The table of kernels was read off PyTorch 2.11 itself: its own selection code run with a driver that reports each
//! compute capability.

use std::rc::Rc;

use plimsoll_catalog::software::{Rules, Software, Version};

use super::{Call, Kernel, SdpaRules, clone, scaled_dot_product_attention, ungrouped_dot_product_attention, unsqueeze};
use crate::ops::permute;
use crate::tensor::testing::{
    activation_of, alive, backward_of, events, forward, frozen_of, gradient, input_of, made, seen, watch,
};
use crate::tensor::{Context, DType, Kernels, Kind, Machine, Tensor};

const HALVES: [DType; 2] = [DType::Float16, DType::BFloat16];

fn call(q: &Tensor, k: &Tensor, mask: bool, grouped: bool, dropout: f64) -> Call {
    let (dtype, head, keys) = (q.dtype(), q.size(-1), k.size(-2));
    Call {
        dtype,
        head,
        value_head: head,
        keys,
        grouped,
        mask,
        mask_gradient: false,
        mask_strided: false,
        dropout: dropout > 0.0,
        gradient: true,
    }
}

/// The kernel for 8 query heads of `head`, 64 tokens.
fn kernel(cc: (u8, u8), dtype: DType, head: u64, mask: bool, grouped: bool) -> Kernel {
    let cx = forward();
    let q = input_of(&cx, &[2, 8, 64, head], dtype);
    let k = input_of(&cx, &[2, if grouped { 4 } else { 8 }, 64, head], dtype);
    SdpaRules::cuda(cc, Rules::default()).select(&call(&q, &k, mask, grouped, 0.0))
}

/// What `_fused_sdp_choice` answers on a hollow H100 and B200: the wheels of 2.6, 2.9.0 and 2.9.1 take flash attention, and the efficient one
/// beside a mask; those of 2.11 take cuDNN's.
#[test]
fn cudnn_is_first_since_the_wheels_bring_one_that_is_new_enough() {
    let cx = forward();
    let q = input_of(&cx, &[2, 4, 64, 64], DType::BFloat16);
    let chosen = |torch: &str, cc, mask| {
        let software = Software { torch: Version::parse(torch).unwrap(), ..Software::default() };
        SdpaRules::cuda(cc, Rules::of(&software)).select(&call(&q, &q, mask, false, 0.0))
    };
    for torch in ["2.6", "2.9"] {
        assert_eq!(chosen(torch, (9, 0), false), Kernel::Flash, "{torch}");
        assert_eq!(chosen(torch, (9, 0), true), Kernel::Efficient, "{torch}");
    }
    assert_eq!(chosen("2.9", (10, 0), false), Kernel::Flash);
    assert_eq!(chosen("2.11", (9, 0), true), Kernel::Cudnn);
    assert_eq!(chosen("2.11", (10, 0), false), Kernel::Cudnn);
}

/// What `_fused_sdp_choice` of PyTorch 2.11 answers on hollow cards, for heads of queries and of values.
#[test]
fn values_narrower_than_queries_are_not_flashs() {
    let chosen = |cc: (u8, u8), dtype: DType, head: u64, value_head: u64| {
        let q = input_of(&forward(), &[2, 8, 64, head], dtype);
        SdpaRules::cuda(cc, Rules::default()).select(&Call { value_head, ..call(&q, &q, false, false, 0.0) })
    };
    let (half, full) = (DType::BFloat16, DType::Float32);
    for (cc, head, value_head, kernel) in [
        ((8, 0), 192, 128, Kernel::Efficient),
        ((12, 0), 192, 128, Kernel::Efficient),
        ((9, 0), 192, 128, Kernel::Cudnn),
        ((9, 0), 256, 128, Kernel::Cudnn),
        ((10, 0), 192, 128, Kernel::Cudnn),
        ((10, 0), 192, 64, Kernel::Efficient),
        ((10, 0), 256, 128, Kernel::Efficient),
        ((8, 0), 36, 32, Kernel::Math),
        ((9, 0), 48, 36, Kernel::Math),
        ((7, 5), 192, 128, Kernel::Math),
    ] {
        assert_eq!(chosen(cc, half, head, value_head), kernel, "{cc:?} {head} {value_head}");
    }
    for cc in [(7, 5), (8, 0), (9, 0), (10, 0), (12, 0)] {
        assert_eq!(chosen(cc, full, 192, 128), Kernel::Efficient);
        assert_eq!(chosen(cc, full, 36, 32), Kernel::Efficient);
    }
}

#[test]
fn ampere_ada_and_consumer_blackwell_run_flash() {
    for cc in [(8, 0), (8, 6), (8, 9), (12, 0)] {
        for dtype in HALVES {
            for head in [32, 40, 64, 96, 128, 192] {
                assert_eq!(kernel(cc, dtype, head, false, false), Kernel::Flash, "{cc:?} {dtype:?} {head}");
                assert_eq!(kernel(cc, dtype, head, false, true), Kernel::Flash, "grouped heads too");
            }
        }
    }
    // Flash pads odd heads itself, and stops at 256.
    assert_eq!(kernel((8, 0), DType::BFloat16, 30, false, false), Kernel::Flash);
    assert_eq!(kernel((8, 0), DType::BFloat16, 256, false, false), Kernel::Flash);
    assert_eq!(kernel((8, 0), DType::BFloat16, 264, false, false), Kernel::Efficient);
    assert_eq!(kernel((8, 0), DType::BFloat16, 264, false, true), Kernel::Math);
}

/// `TORCH_CUDNN_SDPA_DEPRIORITIZED` is off and the wheel's cuDNN is 9.19: cuDNN first on 9.0 and 10.x only.
#[test]
fn datacentre_hopper_and_blackwell_run_cudnn() {
    for cc in [(9, 0), (10, 0), (10, 3)] {
        for dtype in HALVES {
            for (mask, grouped) in [(false, false), (false, true), (true, false), (true, true)] {
                for head in [8, 40, 64, 128] {
                    assert_eq!(kernel(cc, dtype, head, mask, grouped), Kernel::Cudnn, "{cc:?} {dtype:?} {head}");
                }
            }
            // Only multiples of 8.
            assert_eq!(kernel(cc, dtype, 36, false, false), Kernel::Flash);
            assert_eq!(kernel(cc, dtype, 36, true, false), Kernel::Math);
        }
    }
    for head in [136, 192, 256] {
        assert_eq!(kernel((9, 0), DType::BFloat16, head, false, true), Kernel::Cudnn, "9.0 goes up to 256");
    }
    assert_eq!(kernel((9, 0), DType::BFloat16, 264, false, false), Kernel::Efficient);
    assert_eq!(kernel((10, 0), DType::BFloat16, 136, false, false), Kernel::Flash, "10.x stops at 128");
    assert_eq!(kernel((10, 0), DType::BFloat16, 136, true, false), Kernel::Efficient);
}

/// In training, cards with little shared memory cannot run flash's backward on heads of 193 to 224, nor with dropout on
/// larger ones.
#[test]
fn small_cards_run_flash_on_large_heads_only_without_dropout() {
    let kernel = |cc, head, dropout| {
        let cx = forward();
        let q = input_of(&cx, &[2, 8, 64, head], DType::BFloat16);
        SdpaRules::cuda(cc, Rules::default()).select(&call(&q, &q, false, false, dropout))
    };
    for cc in [(8, 6), (8, 9), (12, 0)] {
        let of = |dropout| [192, 200, 224, 232, 256].map(|head| kernel(cc, head, dropout));
        let (flash, efficient) = (Kernel::Flash, Kernel::Efficient);
        assert_eq!(of(0.0), [flash, efficient, efficient, flash, flash], "{cc:?}");
        assert_eq!(of(0.1), [flash, efficient, efficient, efficient, efficient], "{cc:?}");
    }
    for cc in [(8, 0), (10, 0)] {
        assert!([200, 224, 256].iter().all(|&head| kernel(cc, head, 0.1) == Kernel::Flash), "{cc:?}");
    }
}

/// A single key is refused by cuDNN's frontend.
#[test]
fn a_single_token_does_not_run_cudnn() {
    let cx = forward();
    let one = input_of(&cx, &[2, 8, 1, 64], DType::BFloat16);
    assert_eq!(SdpaRules::cuda((9, 0), Rules::default()).select(&call(&one, &one, false, false, 0.0)), Kernel::Flash);
    assert_eq!(
        SdpaRules::cuda((9, 0), Rules::default()).select(&call(&one, &one, true, false, 0.0)),
        Kernel::Efficient
    );
}

#[test]
fn a_mask_leaves_efficient_attention_where_there_is_no_cudnn() {
    for cc in [(8, 0), (8, 6), (8, 9), (12, 0)] {
        for dtype in HALVES {
            assert_eq!(kernel(cc, dtype, 64, true, false), Kernel::Efficient);
            // 128 bits are 8 halves.
            assert_eq!(kernel(cc, dtype, 36, true, false), Kernel::Math);
            assert_eq!(kernel(cc, dtype, 64, true, true), Kernel::Math, "no grouped heads in 2.11");
        }
    }
}

/// float32 has efficient attention only, and that has no grouped heads: Llama 3 in float32 keeps every score.
#[test]
fn float32_runs_efficient_attention_or_math() {
    for cc in [(8, 0), (8, 9), (9, 0), (12, 0)] {
        for mask in [false, true] {
            assert_eq!(kernel(cc, DType::Float32, 64, mask, false), Kernel::Efficient);
            assert_eq!(kernel(cc, DType::Float32, 36, mask, false), Kernel::Efficient);
            assert_eq!(kernel(cc, DType::Float32, 512, mask, false), Kernel::Efficient);
            assert_eq!(kernel(cc, DType::Float32, 30, mask, false), Kernel::Math);
            assert_eq!(kernel(cc, DType::Float32, 64, mask, true), Kernel::Math);
        }
    }
}

/// Turing has no flash kernel (it needs 8.0) and no bfloat16 in the efficient one.
#[test]
fn turing_runs_efficient_attention_in_float16_and_math_in_bfloat16() {
    for cc in [(7, 0), (7, 5)] {
        assert_eq!(kernel(cc, DType::Float16, 64, false, false), Kernel::Efficient);
        assert_eq!(kernel(cc, DType::Float16, 64, true, false), Kernel::Efficient);
        assert_eq!(kernel(cc, DType::Float16, 64, false, true), Kernel::Math);
        assert_eq!(kernel(cc, DType::BFloat16, 64, false, false), Kernel::Math);
        assert_eq!(kernel(cc, DType::Float32, 64, false, false), Kernel::Efficient);
        assert_eq!(kernel(cc, DType::Float32, 30, false, false), Kernel::Efficient, "no tensor cores, no alignment");
    }
}

#[test]
fn without_kernels_there_is_always_math() {
    let cx = forward();
    let q = input_of(&cx, &[1, 2, 4, 8], DType::BFloat16);
    assert_eq!(SdpaRules::math_only().select(&call(&q, &q, false, false, 0.0)), Kernel::Math);
    assert_eq!(SdpaRules::rocm().select(&call(&q, &q, false, false, 0.0)), Kernel::Flash);
}

/// Queries, keys and values as projections leave them: `[batch, seq, heads, dim]` in memory.
fn projected(cx: &Rc<Context>, heads: u64, seq: u64, head: u64, dtype: DType) -> Tensor {
    crate::ops::transpose(&activation_of(cx, &[2, seq, heads, head], dtype), 1, 2)
}

fn attend(rules: &SdpaRules, cx: &Rc<Context>, heads: [u64; 2], seq: u64, head: u64, dtype: DType) -> Tensor {
    let q = projected(cx, heads[0], seq, head, dtype);
    let (k, v) = (projected(cx, heads[1], seq, head, dtype), projected(cx, heads[1], seq, head, dtype));
    scaled_dot_product_attention(rules, &q, &k, &v, None, 0.0, true)
}

fn kept(cx: &Context) -> Vec<String> {
    alive(cx, Kind::Saved).into_iter().filter(|s| !s.starts_with("rand")).collect()
}

/// `_scaled_dot_product_flash_attention`: q, k, v, the output, the log-sum-exp of every row, the random state.
#[test]
fn flash_keeps_a_log_sum_exp_a_row() {
    let cx = forward();
    let out = attend(&SdpaRules::cuda((8, 0), Rules::default()), &cx, [4, 4], 100, 16, DType::BFloat16);
    let op = "_scaled_dot_product_flash_attention";
    assert_eq!(
        kept(&cx),
        [
            format!("{op} [2, 4, 100, 16] bfloat16"),
            format!("{op} [2, 4, 100] float32"),
            format!("{op} [2] uint64"),
            format!("{op} [] uint64")
        ]
    );
    assert!(crate::ops::transpose(&out, 1, 2).geometry().is_contiguous(), "written by sequence");
    let events = backward_of(out);
    assert_eq!(
        made(&events),
        ["ones_like", &format!("{op}_backward"), &format!("{op}_backward"), &format!("{op}_backward")]
    );
}

/// Grouped heads go in as they are; their gradients are as small as they.
#[test]
fn flash_takes_grouped_heads() {
    let cx = forward();
    let q = projected(&cx, 8, 64, 16, DType::BFloat16);
    let leaf = activation_of(&cx, &[2, 64, 2, 16], DType::BFloat16);
    let k = crate::ops::transpose(&leaf, 1, 2);
    let out = scaled_dot_product_attention(&SdpaRules::cuda((8, 0), Rules::default()), &q, &k, &k, None, 0.0, true);
    assert_eq!(out.dims(), [2, 8, 64, 16]);
    drop(backward_of(out));
    assert_eq!(gradient(&leaf).unwrap().dims(), [2, 64, 2, 16]);
}

/// `pad_last_dim<8>`: heads of 30 are copied into heads of 32, kept like that, and the output is a slice.
#[test]
fn flash_pads_odd_heads() {
    let cx = forward();
    let before = events(&cx);
    let out = attend(&SdpaRules::cuda((8, 0), Rules::default()), &cx, [4, 4], 64, 30, DType::BFloat16);
    assert_eq!(out.dims(), [2, 4, 64, 30]);
    let pads = seen(&cx, before).iter().filter(|e| *e == "+constant_pad_nd [2, 4, 64, 32] bfloat16").count();
    assert_eq!(pads, 3);
    let events = backward_of(out);
    assert_eq!(events.iter().filter(|e| *e == "+constant_pad_nd [2, 4, 64, 30] bfloat16").count(), 3, "and cut back");
}

/// The efficient kernel's log-sum-exp is padded to 32 rows.
#[test]
fn efficient_attention_pads_its_log_sum_exp() {
    let cx = forward();
    let _out = attend(&SdpaRules::cuda((8, 0), Rules::default()), &cx, [4, 4], 100, 16, DType::Float32);
    let op = "_scaled_dot_product_efficient_attention";
    assert_eq!(
        kept(&cx),
        [
            format!("{op} [2, 4, 100, 16] float32"),
            format!("{op} [2, 4, 128] float32"),
            format!("{op} [] int64"),
            format!("{op} [] int64")
        ]
    );
}

/// cuDNN's has a dimension more, and its output follows the query's memory order.
#[test]
fn cudnn_follows_the_querys_memory_order() {
    let rules = SdpaRules::cuda((9, 0), Rules::default());
    let cx = forward();
    let by_sequence = attend(&rules, &cx, [4, 4], 100, 16, DType::BFloat16);
    assert!(crate::ops::transpose(&by_sequence, 1, 2).geometry().is_contiguous());
    assert!(kept(&cx).contains(&"_scaled_dot_product_cudnn_attention [2, 4, 100, 1] float32".to_owned()));
    let q = activation_of(&cx, &[2, 4, 100, 16], DType::BFloat16);
    let by_head = scaled_dot_product_attention(&rules, &q, &q, &q, None, 0.0, true);
    assert!(by_head.geometry().is_contiguous());
}

/// A boolean mask becomes zeros and minus infinities in the query's dtype, and is kept.
#[test]
fn a_boolean_mask_is_made_additive_and_kept() {
    let cx = forward();
    let q = projected(&cx, 4, 64, 16, DType::BFloat16);
    let mask = frozen_of(&cx, &[2, 1, 64, 64], DType::Bool);
    let (events, out) = watch(&cx, || {
        scaled_dot_product_attention(&SdpaRules::cuda((8, 0), Rules::default()), &q, &q, &q, Some(&mask), 0.0, false)
    });
    assert_eq!(
        events[..3],
        ["+zeros_like [2, 1, 64, 64] bfloat16", "+logical_not [2, 1, 64, 64] bool", "-logical_not [2, 1, 64, 64] bool"]
    );
    drop(mask);
    assert!(alive(&cx, Kind::Saved).contains(&"zeros_like [2, 1, 64, 64] bfloat16".to_owned()));
    drop(out);
}

/// An additive mask in the right dtype costs nothing more (16 columns need no padding).
#[test]
fn an_additive_mask_is_taken_as_it_is() {
    let cx = forward();
    let q = projected(&cx, 4, 64, 16, DType::Float32);
    let mask = input_of(&cx, &[2, 1, 64, 64], DType::Float32);
    let rules = SdpaRules::cuda((8, 0), Rules::default());
    let (events, _) = watch(&cx, || scaled_dot_product_attention(&rules, &q, &q, &q, Some(&mask), 0.0, false));
    assert!(made(&events).iter().all(|op| *op == "_scaled_dot_product_efficient_attention"), "{events:?}");
}

/// Rows of a mask that are no multiple of 8 are copied into longer ones (`pad_bias`); the copy is kept in place of the
/// additive mask, which goes before the kernel runs.
#[test]
fn efficient_attention_pads_the_masks_rows() {
    for (seq, columns) in [(50, 56), (100, 104)] {
        let cx = forward();
        let q = projected(&cx, 4, seq, 16, DType::Float32);
        let mask = frozen_of(&cx, &[2, 1, seq, seq], DType::Bool);
        let rules = SdpaRules::cuda((8, 0), Rules::default());
        let (events, out) = watch(&cx, || scaled_dot_product_attention(&rules, &q, &q, &q, Some(&mask), 0.0, false));
        assert_eq!(events[3], format!("+constant_pad_nd [2, 1, {seq}, {columns}] float32"));
        assert_eq!(events[4], format!("-zeros_like [2, 1, {seq}, {seq}] float32"));
        assert!(kept(&cx).contains(&events[3][1..].to_owned()));
        drop(out);
    }
    let cx = forward();
    let q = projected(&cx, 4, 104, 16, DType::Float32);
    let mask = input_of(&cx, &[2, 1, 104, 104], DType::Float32);
    let rules = SdpaRules::cuda((8, 0), Rules::default());
    let (events, _) = watch(&cx, || scaled_dot_product_attention(&rules, &q, &q, &q, Some(&mask), 0.0, false));
    assert!(!made(&events).contains(&"constant_pad_nd"), "104 is a multiple of 8");
}

/// `_scaled_dot_product_attention_math` keeps the scores (once: the mask's sum and the product go) and, in half, float32
/// copies of everything.
#[test]
fn math_keeps_every_score() {
    let cx = forward();
    let out = attend(&SdpaRules::math_only(), &cx, [4, 4], 64, 16, DType::Float32);
    let scores: Vec<String> = kept(&cx).into_iter().filter(|s| s.contains("[2, 4, 64, 64]")).collect();
    assert_eq!(scores, ["where.self [2, 4, 64, 64] float32"], "the corrected softmax");
    let events = backward_of(out);
    assert!(events.contains(&"+_softmax_backward_data [2, 4, 64, 64] float32".to_owned()), "{events:?}");

    let cx = forward();
    let half = attend(&SdpaRules::math_only(), &cx, [4, 4], 64, 16, DType::BFloat16);
    assert_eq!(half.dtype(), DType::BFloat16);
    assert!(kept(&cx).contains(&"where.self [2, 4, 64, 64] float32".to_owned()), "computed in float32");
}

/// Before PyTorch 2.5 halves stay what they are, and a causal mask is filled instead of chosen.
#[test]
fn math_once_computed_in_the_dtype_it_was_given() {
    let made_by = |torch: &str| {
        let cx = forward();
        let software = Software { torch: Version::parse(torch).unwrap(), ..Software::default() };
        cx.set_machine(Machine { rules: Rules::of(&software), ..Machine::default() });
        let (all, _) = watch(&cx, || attend(&SdpaRules::math_only(), &cx, [4, 4], 64, 16, DType::BFloat16));
        let floats = all.iter().filter(|event| event.starts_with('+') && event.contains("float32")).count();
        (floats, all.iter().any(|event| event.starts_with("+logical_not")))
    };
    assert_eq!(made_by("2.4"), (0, true));
    let (floats, fills) = made_by("2.6");
    assert!(floats > 0 && !fills);
}

/// Dropout inside math keeps a byte a score and the dropped scores themselves.
#[test]
fn math_with_dropout_keeps_its_mask() {
    let cx = forward();
    let q = projected(&cx, 4, 64, 16, DType::Float32);
    let _out = scaled_dot_product_attention(&SdpaRules::math_only(), &q, &q, &q, None, 0.1, true);
    let kept = kept(&cx);
    assert!(kept.contains(&"native_dropout [2, 4, 64, 64] bool".to_owned()), "{kept:?}");
    assert!(kept.contains(&"native_dropout [2, 4, 64, 64] float32".to_owned()), "{kept:?}");
}

/// Fused kernels drop inside: no mask of the scores is kept.
#[test]
fn fused_kernels_keep_no_dropout_mask() {
    let rules = SdpaRules::cuda((8, 0), Rules::default());
    let bytes = |dropout| {
        let cx = forward();
        let q = projected(&cx, 4, 64, 16, DType::BFloat16);
        let _out = scaled_dot_product_attention(&rules, &q, &q, &q, None, dropout, true);
        crate::tensor::testing::live(&cx)
    };
    assert_eq!(bytes(0.0), bytes(0.1));
}

/// Grouped heads in math are repeated first (`repeat_interleave`): whole copies, one for keys and one for values.
#[test]
fn math_repeats_grouped_heads() {
    let cx = forward();
    let before = events(&cx);
    let _out = attend(&SdpaRules::math_only(), &cx, [8, 2], 64, 16, DType::Float32);
    let copies = seen(&cx, before).iter().filter(|e| *e == "+clone [2, 2, 4, 64, 16] float32").count();
    assert_eq!(copies, 2);
}

/// On autocast's lower-precision list.
#[test]
fn autocast_casts_queries_keys_and_values() {
    let cx = forward();
    let rules = SdpaRules::cuda((8, 0), Rules::default());
    let q = projected(&cx, 4, 64, 16, DType::Float32);
    let (events, out) = watch(&cx, || {
        cx.with_autocast(Some(DType::BFloat16), || scaled_dot_product_attention(&rules, &q, &q, &q, None, 0.0, true))
    });
    assert_eq!(out.dtype(), DType::BFloat16);
    assert_eq!(events.iter().filter(|e| e.starts_with("+_to_copy")).count(), 3);
    assert_eq!(made(&events)[3], "_scaled_dot_product_flash_attention");
}

/// Falcon's one key for all queries: without `enable_gqa` every fused kernel refuses unequal heads, and the products
/// broadcast the key instead of repeating it.
#[test]
fn unequal_heads_without_grouping_are_computed_by_products() {
    let cx = forward();
    let q = activation_of(&cx, &[2, 8, 16, 32], DType::BFloat16);
    let (k, v) =
        (activation_of(&cx, &[2, 1, 16, 32], DType::BFloat16), activation_of(&cx, &[2, 1, 16, 32], DType::BFloat16));
    let mask = input_of(&cx, &[2, 1, 16, 16], DType::Bool);
    let (events, out) = watch(&cx, || ungrouped_dot_product_attention(&q, &k, &v, Some(&mask), 0.0, false));
    assert_eq!(out.dims(), [2, 8, 16, 32]);
    let births: Vec<&str> = events.iter().filter_map(|e| e.strip_prefix('+')).collect();
    assert_eq!(births[..2], ["zeros_like [2, 1, 16, 16] bfloat16", "logical_not [2, 1, 16, 16] bool"], "in q's dtype");
    assert!(births.contains(&"mul.Scalar [2, 1, 32, 16] float32"), "the key is scaled once: {births:?}");
    assert!(births.contains(&"where.self [2, 8, 16, 16] float32"), "every score is kept");
    assert!(!births.iter().any(|b| b.starts_with("_scaled")));
}

/// On a card as its host code has it, PyTorch 2.11: `workspaces = true`.
fn on_card(cc: (u8, u8)) -> Rc<Context> {
    let cx = forward();
    cx.set_machine(Machine { kernels: Kernels::Cuda(cc.0, cc.1), ..Machine::default() });
    cx
}

/// `check_last_dim_stride_equals_1_dense`: T5's bias, whose heads lie next to one another, is refused by every fused kernel.
#[test]
fn a_mask_whose_rows_lie_apart_is_left_to_products() {
    for cc in [(7, 5), (8, 0), (9, 0), (12, 0)] {
        for dtype in [DType::Float32, DType::Float16, DType::BFloat16] {
            let cx = on_card(cc);
            let q = projected(&cx, 8, 64, 64, dtype);
            let table = activation_of(&cx, &[64, 64, 8], dtype);
            let bias = unsqueeze(&permute(&table, &[2, 0, 1]), 0);
            let rules = SdpaRules::cuda(cc, Rules::default());
            let attend = |mask: &Tensor| {
                watch(&cx, || scaled_dot_product_attention(&rules, &q, &q, &q, Some(mask), 0.0, false)).0
            };
            assert!(made(&attend(&bias)).contains(&"bmm"), "{cc:?} {dtype:?}");
            let bf16_on_turing = dtype == DType::BFloat16 && cc == (7, 5);
            assert_eq!(made(&attend(&clone(&bias))).contains(&"bmm"), bf16_on_turing, "rows that lie together");
        }
    }
}

/// `_efficient_attention_forward`: seed and offset lie on the host.
#[test]
fn the_efficient_kernels_random_state_is_not_on_the_card() {
    let cx = on_card((8, 0));
    let rules = SdpaRules::cuda((8, 0), Rules::default());
    let (events, _out) = watch(&cx, || attend(&rules, &cx, [8, 8], 64, 64, DType::Float32));
    let made = events.iter().filter(|e| e.starts_with("+_scaled_dot_product_efficient_attention")).count();
    assert_eq!(made, 2, "output and log-sum-exp: {events:?}");
}

/// From PyTorch 2.14 on they lie on the card where nothing is dropped, and on the host where something is.
#[test]
fn since_2_14_they_are_on_the_card_without_dropout() {
    let software = |minor| Rules::of(&Software { torch: Version::new(2, minor), ..Software::default() });
    for (minor, dropout, expected) in [(13, 0.0, 2), (14, 0.0, 4), (14, 0.1, 2)] {
        let cx = forward();
        cx.set_machine(Machine { kernels: Kernels::Cuda(8, 0), rules: software(minor), ..Machine::default() });
        let rules = SdpaRules::cuda((8, 0), software(minor));
        let q = projected(&cx, 8, 64, 64, DType::Float32);
        let (events, _out) = watch(&cx, || scaled_dot_product_attention(&rules, &q, &q, &q, None, dropout, false));
        let made = events.iter().filter(|e| e.starts_with("+_scaled_dot_product_efficient_attention")).count();
        assert_eq!(made, expected, "2.{minor}, dropout {dropout}: {events:?}");
    }
}

/// The bias is added in place, the softmax corrected in place.
#[test]
fn products_on_a_card_hold_two_matrices_of_scores_at_most() {
    let cx = on_card((8, 0));
    let rules = SdpaRules::cuda((8, 0), Rules::default());
    let q = projected(&cx, 8, 64, 64, DType::Float32);
    let bias = unsqueeze(&permute(&activation_of(&cx, &[64, 64, 8], DType::Float32), &[2, 0, 1]), 0);
    let run = || scaled_dot_product_attention(&rules, &q, &q, &q, Some(&bias), 0.0, false);
    let (events, _out) = watch(&cx, run);
    let scores: Vec<&String> =
        events.iter().filter(|e| e.ends_with("8, 64, 64] float32") && e.contains("softmax")).collect();
    assert_eq!(scores, ["+_softmax [2, 8, 64, 64] float32"]);
    assert!(!made(&events).contains(&"where.self") && !made(&events).contains(&"add.Tensor"), "{events:?}");
}
