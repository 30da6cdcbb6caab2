//! `torch.autocast` (`cached_cast` and the op lists of `aten/src/ATen/autocast_mode.{h,cpp}`).

use std::rc::Rc;

use super::testing::{
    activation, alive, backward_of, forward, frozen_of, gradient, input, input_of, live, made, watch, weight, weight_of,
};
use super::{Context, DType, Kind};
use crate::ops;

const BF16: Option<DType> = Some(DType::BFloat16);

fn copies(cx: &Context) -> Vec<String> {
    alive(cx, Kind::AutocastCopy)
}

/// A cast is cached when the source is a float32 leaf that requires grad.
#[test]
fn a_weight_is_cast_once_a_region() {
    let cx = forward();
    let (w, x) = (weight(&cx, &[4, 8]), input_of(&cx, &[2, 8], DType::BFloat16));
    let (events, _) = watch(&cx, || {
        cx.with_autocast(BF16, || (ops::linear(&x, &w, None), ops::linear(&x, &w, None), ops::linear(&x, &w, None)))
    });
    assert_eq!(made(&events), ["_to_copy", "mm", "mm", "mm"]);
    let (events, _) = watch(&cx, || cx.with_autocast(BF16, || ops::linear(&x, &w, None)));
    assert_eq!(made(&events), ["_to_copy", "mm"], "the next region casts again");
}

/// The cache holds the copy until the region ends; after that only a graph that saved it does.
#[test]
fn a_copy_dies_with_its_region_unless_it_was_saved() {
    let cx = forward();
    let w = weight(&cx, &[4, 8]);
    let x = input_of(&cx, &[2, 8], DType::BFloat16);
    let out = cx.with_autocast(BF16, || {
        let out = ops::linear(&x, &w, None);
        assert_eq!(copies(&cx), ["_to_copy [4, 8] bfloat16"]);
        out
    });
    // No gradient is wanted for x, so the product did not save the weight.
    assert!(copies(&cx).is_empty());
    drop(out);

    let x = activation(&cx, &[2, 8]);
    let out = cx.with_autocast(BF16, || ops::linear(&x, &w, None));
    assert_eq!(copies(&cx), ["_to_copy [4, 8] bfloat16"]);
    drop(out);
    assert!(copies(&cx).is_empty());
}

/// Activations are not leaves: every op casts its own copy.
#[test]
fn an_activation_is_cast_for_every_op() {
    let cx = forward();
    let weights = [weight(&cx, &[4, 8]), weight(&cx, &[4, 8]), weight(&cx, &[4, 8])];
    let x = ops::tanh(&activation(&cx, &[2, 8]));
    let (events, _) =
        watch(&cx, || cx.with_autocast(BF16, || weights.iter().map(|w| ops::linear(&x, w, None)).collect::<Vec<_>>()));
    let casts = events.iter().filter(|e| *e == "+_to_copy [2, 8] bfloat16").count();
    assert_eq!(casts, 3, "{events:?}");
}

/// A frozen weight does not require grad and so is never cached: cast at every use (PyTorch issue 48049).
#[test]
fn a_frozen_weight_is_cast_for_every_use() {
    let cx = forward();
    let w = frozen_of(&cx, &[4, 8], DType::Float32);
    let x = input_of(&cx, &[2, 8], DType::BFloat16);
    let (events, _) =
        watch(&cx, || cx.with_autocast(BF16, || drop((ops::linear(&x, &w, None), ops::linear(&x, &w, None)))));
    assert_eq!(made(&events), ["_to_copy", "mm", "_to_copy", "mm"]);
    assert!(copies(&cx).is_empty());
}

#[test]
fn what_is_in_the_regions_dtype_already_is_not_cast() {
    let cx = forward();
    let w = weight_of(&cx, &[4, 8], DType::BFloat16);
    let x = input_of(&cx, &[2, 8], DType::BFloat16);
    let (events, _) = watch(&cx, || cx.with_autocast(BF16, || ops::linear(&x, &w, None)));
    assert_eq!(made(&events), ["mm"]);
}

#[test]
fn outside_a_region_nothing_is_cast() {
    let cx = forward();
    let (w, x) = (weight(&cx, &[4, 8]), input(&cx, &[2, 8]));
    let (events, out) = watch(&cx, || ops::linear(&x, &w, None));
    assert_eq!(made(&events), ["mm"]);
    assert_eq!((out.dtype(), cx.autocast_dtype()), (DType::Float32, None));
}

/// Rotary embeddings switch autocast off for their product: the outer region and its cache wait.
#[test]
fn a_region_switched_off_leaves_the_outer_cache_alone() {
    let cx = forward();
    let (w, x) = (weight(&cx, &[4, 8]), input(&cx, &[2, 8]));
    cx.with_autocast(BF16, || {
        let first = ops::linear(&x, &w, None);
        assert_eq!(first.dtype(), DType::BFloat16);
        let inner = cx.with_autocast(None, || ops::linear(&x, &w, None));
        assert_eq!(inner.dtype(), DType::Float32);
        let (events, _) = watch(&cx, || ops::linear(&x, &w, None));
        assert_eq!(events[..2], ["+_to_copy [2, 8] bfloat16", "+mm [2, 4] bfloat16"], "only x: w is still cached");
    });
    assert_eq!(cx.autocast_dtype(), None);
}

/// Both uses lead to one `ToCopyBackward`: the gradients meet in bfloat16 and are cast to float32 once.
#[test]
fn gradients_of_a_cached_copy_are_summed_before_they_are_cast_back() {
    let cx = forward();
    let w = weight(&cx, &[4, 8]);
    let x = input_of(&cx, &[2, 8], DType::BFloat16);
    let out = cx.with_autocast(BF16, || ops::mul(&ops::linear(&x, &w, None), &ops::linear(&x, &w, None)));
    let events = backward_of(out);
    assert_eq!(made(&events), ["ones_like", "mul.Tensor", "mul.Tensor", "mm", "mm", "add.Tensor", "_to_copy"]);
    assert_eq!(gradient(&w).unwrap().dtype(), DType::Float32);
    assert!(events.contains(&"+_to_copy [4, 8] float32".to_owned()), "{events:?}");
}

/// `addmm` on the list casts `mat2`, `mat1`, `self` in this order: the compiler evaluates a call's arguments from the
/// last to the first.
#[test]
fn addmm_casts_its_arguments_from_the_last() {
    let cx = forward();
    let (bias, w, x) = (weight(&cx, &[4]), weight(&cx, &[8, 4]), input(&cx, &[2, 8]));
    let (events, _) = watch(&cx, || cx.with_autocast(BF16, || drop(ops::addmm(&bias, &x, &w))));
    let births: Vec<&String> = events.iter().filter(|e| e.starts_with('+')).collect();
    assert_eq!(
        births,
        ["+_to_copy [8, 4] bfloat16", "+_to_copy [2, 8] bfloat16", "+_to_copy [4] bfloat16", "+addmm [2, 4] bfloat16",]
    );
}

fn casts_to_float32(op: impl Fn(&Rc<Context>) -> super::Tensor) -> bool {
    let cx = forward();
    let (events, out) = watch(&cx, || cx.with_autocast(BF16, || op(&cx)));
    events.iter().any(|e| e.starts_with("+_to_copy") && e.ends_with("float32")) && out.dtype() == DType::Float32
}

/// The float32 list: `softmax`, `layer_norm`, `pow`, `rsqrt`, `mse_loss`, `nll_loss`; not `mul`, `silu`, `gelu`.
#[test]
fn the_float32_list() {
    let half = |cx: &Rc<Context>| input_of(cx, &[2, 8], DType::BFloat16);
    assert!(casts_to_float32(|cx| ops::softmax(&half(cx))));
    assert!(casts_to_float32(|cx| ops::pow(&half(cx))));
    assert!(casts_to_float32(|cx| ops::rsqrt(&half(cx))));
    assert!(casts_to_float32(|cx| ops::layer_norm(&half(cx), &weight(cx, &[8]), None)));
    assert!(casts_to_float32(|cx| ops::mse_loss(&half(cx), &half(cx))));
    assert!(!casts_to_float32(|cx| ops::silu(&half(cx))));
    assert!(!casts_to_float32(|cx| ops::gelu(&half(cx))));
    assert!(!casts_to_float32(|cx| ops::mul(&half(cx), &half(cx))));
    assert!(!casts_to_float32(|cx| ops::tanh(&half(cx))));
}

/// `native_dropout` and additions are on no list: they follow what they are given.
#[test]
fn ops_on_no_list_keep_their_dtype() {
    let cx = forward();
    let x = input_of(&cx, &[2, 8], DType::BFloat16);
    cx.with_autocast(BF16, || {
        assert_eq!(ops::dropout(&x, 0.1).dtype(), DType::BFloat16);
        assert_eq!(ops::add(&x, &x).dtype(), DType::BFloat16);
        assert_eq!(ops::add(&x, &input(&cx, &[2, 8])).dtype(), DType::Float32, "promoted");
    });
    drop(x);
    assert_eq!(live(&cx), 0);
}
