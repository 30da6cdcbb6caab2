//! The order of the engine and the buffers gradients are summed in (`torch/csrc/autograd/engine.cpp`,
//! `input_buffer.cpp`, `functions/accumulate_grad.h`).

use super::testing::{activation, activation_of, backward_of, forward, gradient, live, made, watch, weight, weight_of};
use super::{DType, backward};
use crate::ops;

/// The ready queue is ordered by sequence number: what ran last in forward runs first in backward.
#[test]
fn nodes_run_in_reverse_of_their_creation() {
    let cx = forward();
    let (a, b) = (activation(&cx, &[8]), activation(&cx, &[8]));
    let early = ops::silu(&a);
    let late = ops::tanh(&b);
    // The sum names the late branch first: its edge comes first, and yet creation decides.
    let events = backward_of(ops::add(&early, &late));
    assert_eq!(made(&events), ["ones_like", "tanh_backward", "silu_backward", "clone", "clone"][..3]);
}

/// `release_variables()` follows `call_function()`: what a node saved goes right after it ran, not at the end.
#[test]
fn saved_tensors_go_as_soon_as_their_node_has_run() {
    let cx = forward();
    let x = activation(&cx, &[8]);
    let loss = ops::gelu(&ops::gelu(&ops::gelu(&x)));
    assert_eq!(
        backward_of(loss),
        [
            "+ones_like [8] float32",
            "+gelu_backward [8] float32",
            "-gelu [8] float32",
            "+gelu_backward [8] float32",
            "-gelu_backward [8] float32",
            "-gelu [8] float32",
            "+gelu_backward [8] float32",
            "-gelu_backward [8] float32",
            "-ones_like [8] float32",
            "-gelu [8] float32",
        ]
    );
}

/// `torch.autograd.backward` holds the root gradient in a Python list for the whole pass.
#[test]
fn the_root_gradient_lives_through_the_whole_pass() {
    let cx = forward();
    let x = activation(&cx, &[8]);
    let events = backward_of(ops::gelu(&ops::gelu(&x)));
    let position = |event: &str| events.iter().rposition(|e| e == event).unwrap();
    assert!(position("-ones_like [8] float32") > position("+gelu_backward [8] float32"), "{events:?}");
}

/// `InputBuffer::add`: a fresh, dense gradient nobody else refers to takes the sum itself.
#[test]
fn a_second_gradient_is_added_in_place() {
    let cx = forward();
    let x = activation(&cx, &[8]);
    let y = ops::silu(&x);
    let product = ops::mul(&ops::silu(&y), &ops::tanh(&y));
    let events = backward_of(product);
    assert!(!made(&events).contains(&"add.Tensor"), "{events:?}");
    assert_eq!(
        made(&events),
        ["ones_like", "mul.Tensor", "mul.Tensor", "tanh_backward", "silu_backward", "silu_backward"]
    );
}

/// The residual stream: an addition hands one gradient to both sides. Once the branch's node is done with it, the sum
/// may be written over it.
#[test]
fn a_gradient_shared_with_a_finished_node_is_added_to_in_place() {
    let cx = forward();
    let x = activation(&cx, &[8]);
    let y = ops::tanh(&x);
    let sum = ops::add(&y, &ops::silu(&y));
    let events = backward_of(ops::tanh(&sum));
    assert_eq!(made(&events), ["ones_like", "tanh_backward", "silu_backward", "tanh_backward"]);
}

/// The root gradient itself is held by the caller: adding to it takes a new buffer.
#[test]
fn a_gradient_somebody_else_holds_is_summed_into_a_new_buffer() {
    let cx = forward();
    let x = activation(&cx, &[8]);
    let y = ops::tanh(&x);
    let events = backward_of(ops::add(&y, &ops::silu(&y)));
    assert_eq!(made(&events), ["ones_like", "silu_backward", "add.Tensor", "tanh_backward"]);
}

/// A view's storage has its base as a second owner (`v.storage().use_count() == 1` fails).
#[test]
fn a_view_is_summed_into_a_new_buffer() {
    let cx = forward();
    let x = activation(&cx, &[2, 4]);
    let y = ops::tanh(&x);
    let branch = ops::silu(&y);
    // Made last, so its gradient, a view of silu_backward's result, arrives at y first.
    let flat = ops::silu(&ops::view(&y, &[8]));
    let events = backward_of(ops::mul(&ops::view(&branch, &[8]), &flat));
    assert_eq!(
        made(&events),
        ["ones_like", "mul.Tensor", "mul.Tensor", "silu_backward", "silu_backward", "add.Tensor", "tanh_backward"]
    );
}

/// `AccumulateGrad` takes a gradient nobody else refers to instead of copying it.
#[test]
fn the_first_gradient_is_stolen() {
    let cx = forward();
    let w = weight(&cx, &[8]);
    let events = backward_of(ops::tanh(&w));
    assert_eq!(made(&events), ["ones_like", "tanh_backward"]);
    assert_eq!(gradient(&w).map(|g| g.dims().to_vec()), Some(vec![8]));
    assert_eq!(live(&cx), 64);
}

/// A part of a gradient is stolen as it is, whoever else has its storage (`use_count()` counts the tensor, not the storage):
/// with one sample, a class token keeps the gradient of the whole sequence it was put before.
#[test]
fn a_part_of_a_gradient_is_stolen_with_the_whole() {
    let cx = forward();
    let (token, patches) = (weight(&cx, &[1, 1, 8]), weight(&cx, &[1, 3, 8]));
    let events = backward_of(ops::tanh(&ops::cat(&[&ops::expand(&token, &[1, 1, 8]), &patches], 1)));
    assert_eq!(made(&events), ["ones_like", "tanh_backward"]);
    let ids = [&token, &patches].map(|leaf| gradient(leaf).unwrap().storage_id());
    assert_eq!(ids[0], ids[1]);
    assert_eq!(gradient(&token).map(|g| g.dims().to_vec()), Some(vec![1, 1, 8]));
}

#[test]
fn a_gradient_that_two_leaves_share_is_copied_for_each() {
    let cx = forward();
    let (a, b) = (weight(&cx, &[8]), weight(&cx, &[8]));
    let events = backward_of(ops::add(&a, &b));
    assert_eq!(made(&events), ["ones_like", "clone", "clone"]);
    let ids = [&a, &b].map(|leaf| gradient(leaf).unwrap().storage_id());
    assert_ne!(ids[0], ids[1]);
}

/// `obeys_layout_contract`: `.grad` has its parameter's strides, so a gradient in another order is copied.
#[test]
fn a_gradient_in_another_layout_is_copied_into_the_parameters() {
    let cx = forward();
    let w = weight(&cx, &[4, 8]);
    let copy = ops::contiguous(&ops::transpose(&w, 0, 1));
    let events = backward_of(ops::tanh(&copy));
    assert_eq!(made(&events), ["ones_like", "tanh_backward", "clone"]);
    assert_eq!(gradient(&w).unwrap().geometry(), w.geometry());
}

/// The transpose inside `linear` costs no copy: the product is made in the weight's own order (`mm_mat2_grad`).
#[test]
fn a_linears_weight_gradient_is_stolen() {
    let cx = forward();
    let w = weight(&cx, &[4, 8]);
    let x = super::testing::input(&cx, &[3, 8]);
    let events = backward_of(ops::linear(&x, &w, None));
    assert_eq!(made(&events), ["ones_like", "mm"]);
}

/// Without a graph of gradients, `AccumulateGrad` does `variable_grad += new_grad`.
#[test]
fn later_gradients_are_added_in_place() {
    let cx = forward();
    let w = weight(&cx, &[8]);
    backward(&ops::tanh(&w));
    let first = gradient(&w).unwrap().storage_id();
    let before = live(&cx);
    let events = backward_of(ops::tanh(&w));
    assert_eq!(made(&events), ["ones_like", "tanh_backward"]);
    assert_eq!((gradient(&w).unwrap().storage_id(), live(&cx)), (first, before));
}

/// `validate_outputs`: a gradient is summed down to the sizes of what was broadcast ...
#[test]
fn the_gradient_of_a_broadcast_operand_is_summed() {
    let cx = forward();
    let (x, bias) = (activation(&cx, &[2, 3, 8]), weight(&cx, &[8]));
    let events = backward_of(ops::add(&x, &bias));
    assert!(events.contains(&"+sum.dim_IntList [1, 1, 8] float32".to_owned()), "{events:?}");
    assert_eq!(gradient(&bias).unwrap().dims(), [8]);
}

/// ... and cast to the dtype of what was promoted.
#[test]
fn the_gradient_of_a_promoted_operand_is_cast() {
    let cx = forward();
    let (x, y) = (activation(&cx, &[8]), weight_of(&cx, &[8], DType::BFloat16));
    let events = backward_of(ops::add(&x, &y));
    assert!(events.contains(&"+_to_copy [8] bfloat16".to_owned()), "{events:?}");
    assert_eq!(gradient(&y).unwrap().dtype(), DType::BFloat16);
}

/// A node without a gradient for any of its outputs runs no formula; what hangs on it still counts down.
#[test]
fn an_unused_output_does_not_stop_the_pass() {
    let cx = forward();
    let w = weight(&cx, &[4, 6]);
    let parts = ops::split(&w, 2, 1);
    let events = backward_of(ops::tanh(&parts[1]));
    // The missing parts stand in as zeros while the gradients are put together.
    assert_eq!(made(&events), ["ones_like", "tanh_backward", "zeros", "zeros", "cat"]);
    assert_eq!(gradient(&w).unwrap().dims(), [4, 6]);
}

#[test]
fn no_graph_is_made_under_no_grad_or_from_plain_inputs() {
    let cx = forward();
    let w = weight(&cx, &[8]);
    assert!(!cx.no_grad(|| ops::tanh(&w)).requires_grad());
    assert!(!ops::tanh(&super::testing::input(&cx, &[8])).requires_grad());
    assert!(ops::tanh(&w).requires_grad());
}

#[test]
fn backward_of_something_without_a_graph_does_nothing() {
    let cx = forward();
    let (events, ()) = watch(&cx, || backward(&super::testing::input(&cx, &[])));
    assert!(events.len() == 2, "only the input itself: {events:?}");
    let _unused = activation_of(&cx, &[1], DType::Float16);
}
