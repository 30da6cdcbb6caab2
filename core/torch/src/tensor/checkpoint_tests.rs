//! `torch.utils.checkpoint(use_reentrant=False, preserve_rng_state=False)` (`torch/utils/checkpoint.py`).

use std::cell::Cell;
use std::rc::Rc;

use super::testing::{activation, alive, backward_of, forward, gradient, input_of, live, made, seen, watch, weight};
use super::{Context, DType, Kind, Tensor, checkpoint};
use crate::ops;

fn checkpointed(x: &Tensor, f: impl Fn(&Tensor) -> Tensor + 'static) -> Tensor {
    checkpoint(x.cx(), vec![x.clone()], Rc::new(move |inputs| f(&inputs[0])))
}

/// `saved_tensors_hooks` replace every saved tensor by a placeholder: of the whole block only its input stays.
#[test]
fn only_the_inputs_are_kept() {
    let block = |x: &Tensor| ops::gelu(&ops::gelu(&ops::gelu(x)));
    let kept = |run: &dyn Fn(&Tensor) -> Tensor| {
        let cx = forward();
        let x = activation(&cx, &[8]);
        let out = run(&x);
        drop(x);
        let kept = live(&cx);
        drop(out);
        kept
    };
    assert_eq!(kept(&block), 4 * 32, "the leaf's own storage, what two gelus save, and the result");
    assert_eq!(kept(&|x| checkpointed(x, block)), 2 * 32, "the input and the result");
}

/// The input is held by the placeholder (`_NoopSaveInputs`) although no op of the block saves it.
#[test]
fn the_input_is_kept_even_if_no_op_would() {
    let cx = forward();
    let x = ops::neg(&activation(&cx, &[8]));
    let out = checkpointed(&x, |x| ops::tanh(&ops::neg(x)));
    drop(x);
    assert_eq!(alive(&cx, Kind::Saved), ["neg [8] float32"]);
    drop(out);
    assert!(alive(&cx, Kind::Saved).is_empty());
}

/// The first saved tensor that backward asks for runs the forward again, once.
#[test]
fn backward_recomputes_the_block_once() {
    let cx = forward();
    let x = activation(&cx, &[8]);
    let calls = Rc::new(Cell::new(0));
    let counted = Rc::clone(&calls);
    let out = checkpointed(&x, move |x| {
        counted.set(counted.get() + 1);
        ops::tanh(&ops::tanh(&ops::tanh(x)))
    });
    assert_eq!(calls.get(), 1);
    let events = backward_of(out);
    assert_eq!(calls.get(), 2);
    assert_eq!(made(&events), ["ones_like", "tanh", "tanh", "tanh", "tanh_backward", "tanh_backward", "tanh_backward"]);
    assert!(gradient(&x).is_some());
    assert_eq!(live(&cx), 64, "the leaf and its gradient");
}

/// `early_stop`: the recomputation is unwound as soon as the last tensor has been saved; gelu saves its input before
/// its kernel runs, and nothing after it saves anything.
#[test]
fn what_follows_the_last_saved_tensor_is_not_recomputed() {
    let cx = forward();
    let x = activation(&cx, &[8]);
    let out = checkpointed(&x, |x| {
        let hidden = ops::gelu(&ops::neg(x));
        ops::add(&ops::neg(&hidden), &hidden)
    });
    let events = backward_of(out);
    let recomputed: Vec<&str> = made(&events).into_iter().filter(|op| !op.contains("backward")).collect();
    // The neg of backward's own is NegBackward's: one before the gelu, one after it.
    assert_eq!(recomputed, ["ones_like", "neg", "add.Tensor", "neg", "neg"], "{events:?}");
    assert!(!events.iter().any(|e| e.starts_with("+gelu [")), "{events:?}");
}

/// A result that is saved must be computed first.
#[test]
fn a_saved_result_is_recomputed_before_it_stops() {
    let cx = forward();
    let x = activation(&cx, &[8]);
    let out = checkpointed(&x, |x| ops::neg(&ops::tanh(x)));
    let events = backward_of(out);
    assert_eq!(made(&events), ["ones_like", "neg", "tanh", "tanh_backward"]);
}

/// Once unpacked, the checkpoint keeps no reference: each recomputed tensor goes with the node that needed it.
#[test]
fn recomputed_tensors_go_one_by_one() {
    let cx = forward();
    let x = activation(&cx, &[8]);
    let out = checkpointed(&x, |x| ops::tanh(&ops::tanh(x)));
    let events = backward_of(out);
    let deaths: Vec<&String> = events.iter().filter(|e| e.starts_with('-') && e.contains("tanh ")).collect();
    let first_death = events.iter().position(|e| e == "-tanh [8] float32").unwrap();
    let last_birth = events.iter().rposition(|e| e == "+tanh_backward [8] float32").unwrap();
    assert!(first_death < last_birth, "{events:?}");
    assert!(!deaths.is_empty());
}

/// The recomputation runs under the autocast state of the forward, in a region of its own: weights are cast again.
#[test]
fn recomputation_casts_the_weights_again() {
    let cx = forward();
    let w = weight(&cx, &[8, 8]);
    let x = ops::tanh(&activation(&cx, &[2, 8]));
    let weight_for_block = w.clone();
    let out = cx.with_autocast(Some(DType::BFloat16), || {
        checkpointed(&x, move |x| ops::tanh(&ops::linear(x, &weight_for_block, None)))
    });
    assert!(alive(&cx, Kind::AutocastCopy).is_empty(), "the block saved nothing, and the region is over");
    let events = backward_of(out);
    let casts = events.iter().filter(|e| *e == "+_to_copy [8, 8] bfloat16").count();
    assert_eq!(casts, 1, "{events:?}");
    assert_eq!(gradient(&w).unwrap().dtype(), DType::Float32);
    assert_eq!(cx.autocast_dtype(), None);
}

/// Blocks are recomputed one at a time, last one first; the next one only when the gradient reaches it.
#[test]
fn blocks_are_recomputed_last_first() {
    let cx = forward();
    let x = activation(&cx, &[8]);
    let first = checkpointed(&x, |x| ops::tanh(&ops::tanh(x)));
    let second = checkpointed(&first, |x| ops::silu(&ops::silu(x)));
    drop(first);
    let events = backward_of(second);
    assert_eq!(
        made(&events),
        ["ones_like", "silu", "silu_backward", "silu_backward", "tanh", "tanh", "tanh_backward", "tanh_backward"]
    );
}

/// Without gradients there is nothing to checkpoint.
#[test]
fn under_no_grad_the_block_just_runs() {
    let cx = forward();
    let x = input_of(&cx, &[8], DType::Float32);
    let (events, out) = watch(&cx, || cx.no_grad(|| checkpointed(&x, ops::tanh)));
    assert_eq!(made(&events), ["tanh"]);
    assert!(!out.requires_grad());
}

/// What the function captured beside its inputs (masks, rotary tables) lives as long as the checkpoint may run again.
#[test]
fn captured_tensors_live_until_the_block_is_recomputed() {
    let cx: Rc<Context> = forward();
    let x = activation(&cx, &[8]);
    let captured = input_of(&cx, &[8], DType::Float32);
    let table = captured.clone();
    let out = checkpoint(&cx, vec![x], Rc::new(move |inputs| ops::tanh(&ops::mul(&inputs[0], &table))));
    drop(captured);
    assert!(!seen(&cx, 0).contains(&"-empty.memory_format [8] float32".to_owned()));
    let events = backward_of(out);
    assert!(events.contains(&"-empty.memory_format [8] float32".to_owned()), "{events:?}");
}

/// A checkpoint inside another one: its input is a place of the outer one. The outer block is run again first, up to the
/// last of these inputs, without keeping what the inner ones save; then each inner block when the gradient reaches it.
#[test]
fn nested_blocks_are_recomputed_from_the_outside_in() {
    let cx = forward();
    let x = activation(&cx, &[8]);
    let out = checkpointed(&x, |x| {
        let inner = checkpointed(x, |x| ops::tanh(&ops::tanh(x)));
        checkpointed(&inner, |x| ops::silu(&ops::silu(x)))
    });
    assert_eq!(live(&cx), 2 * 32, "the leaf and the result");
    let events = backward_of(out);
    assert_eq!(
        made(&events),
        [
            "ones_like",
            "tanh",
            "tanh",
            "silu",
            "silu_backward",
            "silu_backward",
            "tanh",
            "tanh",
            "tanh_backward",
            "tanh_backward"
        ]
    );
    assert!(gradient(&x).is_some());
    assert_eq!(live(&cx), 64, "the leaf and its gradient");
}

/// Where only the input wants a gradient, the recomputation knows it: what it saves is what the forward counted.
#[test]
fn the_recomputed_input_still_wants_its_gradient() {
    let cx = forward();
    let frozen = input_of(&cx, &[8, 8], DType::Float32);
    let x = activation(&cx, &[2, 8]);
    let out = checkpointed(&x, move |x| ops::linear(&ops::tanh(x), &frozen, None));
    drop(backward_of(out));
    assert!(gradient(&x).is_some());
}

/// What a part of the block saves that nothing will differentiate is not kept when it is recomputed (the weak holders of
/// `torch/utils/checkpoint.py`).
#[test]
fn a_recomputation_keeps_nothing_for_a_graph_that_is_gone() {
    let cx = forward();
    let x = ops::tanh(&activation(&cx, &[8]));
    let out = checkpointed(&x, |x| {
        let measured = ops::exp(&ops::exp(x)).detach();
        let kept = ops::tanh(x);
        drop(measured);
        kept
    });
    let events = backward_of(out);
    let at = |event: &str| events.iter().position(|e| e == event).unwrap();
    let last = events.iter().rposition(|e| e == "-exp [8] float32").unwrap();
    assert!(last < at("+tanh_backward [8] float32"), "{events:?}");
}

/// The results of a selective checkpoint's products stay, of every two the first; the recomputation runs the second alone
/// (`_CachingTorchDispatchMode`, `_CachedTorchDispatchMode`).
#[test]
fn a_selective_block_keeps_every_other_product() {
    let cx = forward();
    cx.set_checkpoints(1, true);
    let weights: Vec<Tensor> = (0..3).map(|_| weight(&cx, &[8, 8])).collect();
    let x = ops::neg(&activation(&cx, &[2, 8]));
    let out = checkpointed(&x, move |x| {
        let product = |x: &Tensor, at: usize| ops::tanh(&ops::linear(x, &weights[at], None));
        product(&product(&product(x, 0), 1), 2)
    });
    drop(x);
    assert_eq!(alive(&cx, Kind::Saved), ["neg [2, 8] float32", "mm [2, 8] float32", "mm [2, 8] float32"]);
    let events = backward_of(out);
    let recomputed: Vec<&str> = made(&events).into_iter().take_while(|op| *op != "tanh_backward").collect();
    assert_eq!(recomputed, ["ones_like", "tanh", "mm", "tanh", "tanh"]);
    assert!(alive(&cx, Kind::Saved).is_empty(), "what was kept went with the checkpoint");
}

/// A mode around a mode sees what that one lets run: both keep it, and the outer recomputation hands it to the inner forward.
#[test]
fn selective_blocks_within_one_another_each_keep_the_products() {
    let cx = forward();
    cx.set_checkpoints(1, true);
    let w = weight(&cx, &[8, 8]);
    let x = ops::neg(&activation(&cx, &[2, 8]));
    let out = checkpointed(&x, move |x| {
        let w = w.clone();
        checkpointed(&ops::neg(x), move |x| ops::tanh(&ops::linear(x, &w, None)))
    });
    drop(x);
    assert_eq!(alive(&cx, Kind::Saved), ["neg [2, 8] float32", "mm [2, 8] float32"]);
    let events = backward_of(out);
    let recomputed: Vec<&str> = made(&events).into_iter().take_while(|op| *op != "tanh_backward").collect();
    assert_eq!(recomputed, ["ones_like", "neg", "tanh"], "no product runs again");
}

/// A library's operator is one operator: no mode sees what it calls.
#[test]
fn a_selective_block_keeps_nothing_of_what_a_librarys_operator_calls() {
    let cx = forward();
    cx.set_checkpoints(1, true);
    let w = weight(&cx, &[8, 8]);
    let x = ops::neg(&activation(&cx, &[2, 8]));
    let out = checkpointed(&x, move |x| ops::tanh(&x.cx().inside_operator(|| ops::linear(x, &w, None))));
    drop(x);
    assert_eq!(alive(&cx, Kind::Saved), ["neg [2, 8] float32"]);
    drop(out);
}

/// Of a stack's layers the second, the fourth, ... are checkpointed.
#[test]
fn every_other_layer_keeps_all() {
    let cx = forward();
    cx.set_checkpoints(2, false);
    let chosen = |layer| cx.as_layer(layer, || cx.checkpoints(true));
    assert_eq!([0, 1, 2, 3].map(chosen), [false, true, false, true]);
    assert!(cx.checkpoints(true) && !cx.checkpoints(false), "outside a stack what is asked for counts");
}
