//! `torch.utils.checkpoint(use_reentrant=True)` (`CheckpointFunction` of `torch/utils/checkpoint.py`).

use std::cell::Cell;
use std::rc::Rc;

use super::testing::{activation, alive, backward_of, forward, gradient, live, made, weight};
use super::{DType, Kind, Offloading, Tensor, checkpoint, checkpoint_all};
use crate::ops;

fn checkpointed(x: &Tensor, f: impl Fn(&Tensor) -> Tensor + 'static) -> Tensor {
    x.cx().set_reentrant(true);
    checkpoint(x.cx(), vec![x.clone()], Rc::new(move |inputs| f(&inputs[0])))
}

/// The function runs under `no_grad`: of it all the input stays, and what it made.
#[test]
fn only_the_inputs_are_kept() {
    let cx = forward();
    let x = ops::neg(&activation(&cx, &[8]));
    let out = checkpointed(&x, |x| ops::gelu(&ops::gelu(x)));
    drop(x);
    assert_eq!(alive(&cx, Kind::Saved), ["neg [8] float32"]);
    drop(out);
    assert!(alive(&cx, Kind::Saved).is_empty());
}

/// There is no `early_stop`: what follows the last saved tensor is computed again, too.
#[test]
fn all_of_it_is_recomputed() {
    let cx = forward();
    let x = activation(&cx, &[8]);
    let calls = Rc::new(Cell::new(0));
    let counted = Rc::clone(&calls);
    let out = checkpointed(&x, move |x| {
        counted.set(counted.get() + 1);
        ops::neg(&ops::tanh(x))
    });
    let events = backward_of(out);
    assert_eq!(calls.get(), 2);
    assert_eq!(made(&events), ["ones_like", "tanh", "neg", "neg", "tanh_backward"]);
    assert!(gradient(&x).is_some());
    assert_eq!(live(&cx), 64, "the leaf and its gradient");
}

/// `outputs` and the gradients of them are variables of `backward`: they stay to its end.
#[test]
fn what_it_made_stays_while_it_goes_backward() {
    let cx = forward();
    let x = activation(&cx, &[8]);
    let out = checkpointed(&x, |x| ops::neg(&ops::tanh(x)));
    let events = backward_of(out);
    let last_birth = events.iter().position(|e| e == "+tanh_backward [8] float32").unwrap();
    let deaths = |name: &str| events.iter().skip(last_birth).filter(|e| *e == &format!("-{name} [8] float32")).count();
    // What the first run made and the second, and the gradient that their neg made.
    assert_eq!(deaths("neg"), 3, "{events:?}");
}

/// Weights that take a gradient are none of its inputs: nothing flows into a function of which no input takes one.
#[test]
fn parameters_alone_give_it_no_gradient() {
    let cx = forward();
    let w = weight(&cx, &[8, 8]);
    let x = ops::tanh(&activation(&cx, &[2, 8]).detach());
    let out = checkpointed(&x, move |x| ops::linear(x, &w, None));
    assert!(!out.requires_grad());
}

/// Its recomputation casts weights again, in a region of its own, and their gradients come in their own dtype.
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
    assert_eq!(events.iter().filter(|e| *e == "+_to_copy [8, 8] bfloat16").count(), 1, "{events:?}");
    assert_eq!(gradient(&w).unwrap().dtype(), DType::Float32);
}

/// An output that nobody took a gradient of has one of zeros (`materialize_grads`).
#[test]
fn an_output_without_a_gradient_gets_zeros() {
    let cx = forward();
    cx.set_reentrant(true);
    let x = activation(&cx, &[8]);
    let function = |inputs: &[Tensor]| vec![ops::tanh(&inputs[0]), ops::gelu(&inputs[0])];
    let mut outputs = checkpoint_all(&cx, vec![x.clone()], Rc::new(function)).into_iter();
    let out = outputs.next().unwrap();
    drop(outputs);
    let events = backward_of(out);
    assert!(events.iter().any(|e| e == "+zeros [8] float32"), "{events:?}");
    assert!(events.iter().any(|e| e == "+gelu_backward [8] float32"), "{events:?}");
    assert!(gradient(&x).is_some());
}

fn offloaded(x: &Tensor, f: impl Fn(&Tensor) -> Tensor + 'static) -> Tensor {
    x.cx().offloading(Offloading::Checkpoints, || checkpointed(x, f))
}

/// `hidden_states.to("cpu", non_blocking=True)`: nothing of the input stays on the card, and it comes back for the recomputation.
#[test]
fn an_input_that_is_offloaded_comes_back() {
    let cx = forward();
    let x = ops::neg(&activation(&cx, &[8]));
    let out = offloaded(&x, ops::tanh);
    drop(x);
    assert!(alive(&cx, Kind::Saved).is_empty());
    assert_eq!(live(&cx.host()), 32, "page-locked in the machine's memory");
    let events = backward_of(out);
    assert_eq!(made(&events), ["ones_like", "_to_copy", "tanh", "tanh_backward", "neg"]);
    assert_eq!(live(&cx.host()), 0);
}

/// `custom_bwd` keeps its region open around the backward within: a bias' gradient is summed in float32 there.
#[test]
fn backward_of_what_was_offloaded_runs_under_autocast() {
    let sums = |offloads: bool| {
        let cx = forward();
        let (w, b) = (weight(&cx, &[8, 8]), weight(&cx, &[8]));
        let x = ops::tanh(&activation(&cx, &[2, 8]));
        let block = move |x: &Tensor| ops::tanh(&ops::linear(x, &w, Some(&b)));
        let run = || if offloads { offloaded(&x, block) } else { checkpointed(&x, block) };
        let events = backward_of(cx.with_autocast(Some(DType::BFloat16), run));
        let summed =
            |dtype: &str| events.iter().filter(|e| e.starts_with("+sum.dim_IntList") && e.ends_with(dtype)).count();
        (summed("float32"), summed("bfloat16"))
    };
    assert_eq!((sums(true), sums(false)), ((1, 0), (0, 1)));
}

/// The function of the libraries that do so has one gradient to give and takes one: what has more fails there.
#[test]
fn more_than_one_is_refused() {
    let cx = forward();
    cx.set_reentrant(true);
    let x = ops::tanh(&activation(&cx, &[8]));
    let two = |inputs: &[Tensor]| vec![ops::tanh(&inputs[0]), ops::gelu(&inputs[0])];
    cx.offloading(Offloading::Checkpoints, || drop(checkpoint_all(&cx, vec![x.clone()], Rc::new(two))));
    assert!(cx.is_refused());
    let cx = forward();
    cx.set_reentrant(true);
    let (x, other) = (ops::tanh(&activation(&cx, &[8])), ops::tanh(&activation(&cx, &[8])));
    let sum = |inputs: &[Tensor]| vec![ops::add(&inputs[0], &inputs[1])];
    cx.offloading(Offloading::Checkpoints, || drop(checkpoint_all(&cx, vec![x, other], Rc::new(sum))));
    assert!(cx.is_refused());
}
