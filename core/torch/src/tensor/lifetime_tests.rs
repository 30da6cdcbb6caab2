//! Who keeps a storage alive (`c10/core/StorageImpl.h`: intrusive reference counts).

use std::rc::Rc;

use super::testing::{forward, input, live, seen, watch};
use super::{DType, Geometry, Tensor, backward, checkpoint};
use crate::Op;
use crate::ops;
use crate::tensor::testing::{activation, gradient};

#[test]
fn a_storage_lives_until_its_last_tensor_goes() {
    let cx = forward();
    let a = input(&cx, &[4, 8]);
    let b = a.clone();
    assert_eq!(live(&cx), 128);
    drop(a);
    assert_eq!(live(&cx), 128);
    drop(b);
    assert_eq!(seen(&cx, 0), ["+empty.memory_format [4, 8] float32", "-empty.memory_format [4, 8] float32"]);
}

#[test]
fn a_view_keeps_the_whole_storage() {
    let cx = forward();
    let whole = input(&cx, &[4, 8]);
    let row = ops::narrow(&whole, 0, 1);
    let (events, ()) = watch(&cx, || drop(whole));
    assert!(events.is_empty(), "{events:?}");
    assert_eq!(live(&cx), 128);
    drop(row);
    assert_eq!(live(&cx), 0);
}

#[test]
fn an_empty_tensor_is_no_event() {
    let cx = forward();
    drop(input(&cx, &[0, 8]));
    assert!(seen(&cx, 0).is_empty());
}

#[test]
fn every_element_has_the_size_of_its_dtype() {
    let cx = forward();
    let dtypes = [DType::Bool, DType::BFloat16, DType::Float16, DType::Int32, DType::Float32, DType::Int64];
    let sizes: Vec<u64> = dtypes
        .into_iter()
        .map(|dtype| {
            let before = live(&cx);
            let _tensor = cx.empty_sizes(Op::EmptyStrided, &[3, 5], dtype);
            live(&cx) - before
        })
        .collect();
    assert_eq!(sizes, [15, 30, 30, 60, 60, 120]);
}

#[test]
fn a_size_beyond_all_memory_saturates_instead_of_wrapping() {
    let cx = forward();
    let huge = cx.empty(Op::EmptyStrided, Geometry::contiguous(&[u64::MAX, u64::MAX]), DType::Float32);
    assert_eq!(huge.numel(), u64::MAX);
    assert_eq!(live(&cx), u64::MAX);
}

#[test]
fn what_happens_after_the_end_is_no_event() {
    let cx = forward();
    let kept = input(&cx, &[8]);
    cx.end();
    drop(kept);
    assert_eq!(seen(&cx, 0), ["+empty.memory_format [8] float32"]);
}

/// The graph owns what it saved, not the activations it merely passed.
#[test]
fn a_graph_that_is_let_go_lets_go_of_what_it_saved() {
    let cx = forward();
    let x = activation(&cx, &[8]);
    let y = ops::tanh(&ops::neg(&x));
    // neg keeps nothing, tanh its result.
    assert_eq!(live(&cx), 2 * 32);
    drop(y);
    assert_eq!(live(&cx), 32);
}

/// 200,000 ops in a row on a 256 KiB stack (a browser gives 1 MiB): neither backward nor dropping may recurse.
#[test]
fn deep_graphs_need_no_stack() {
    const DEPTH: usize = 200_000;
    let run = |differentiate: bool| {
        let cx = forward();
        let leaf = activation(&cx, &[8]);
        let mut x = leaf.clone();
        for _ in 0..DEPTH {
            x = ops::tanh(&x);
        }
        assert_eq!(live(&cx), 32 * (1 + DEPTH as u64));
        if differentiate {
            backward(&x);
            assert!(gradient(&leaf).is_some());
        }
        drop(x);
        assert_eq!(live(&cx), if differentiate { 64 } else { 32 });
    };
    for differentiate in [false, true] {
        on_a_small_stack(move || run(differentiate));
    }
}

/// Neither does letting go of a forward that nobody goes back through: not where both edges of a node lead to the one before
/// it, nor where a checkpoint holds that one for its inputs.
#[test]
fn a_deep_graph_that_is_given_up_needs_no_stack() {
    let twice: fn(&Tensor) -> Tensor = |x| ops::add(x, x);
    let checkpointed: fn(&Tensor) -> Tensor =
        |x| checkpoint(x.cx(), vec![x.clone()], Rc::new(|inputs: &[Tensor]| ops::tanh(&inputs[0])));
    for block in [twice, checkpointed] {
        on_a_small_stack(move || {
            let cx = forward();
            let leaf = activation(&cx, &[8]);
            let mut x = leaf.clone();
            for _ in 0..20_000 {
                x = block(&x);
            }
            drop(x);
            assert_eq!(live(&cx), 32);
        });
    }
}

fn on_a_small_stack(run: impl FnOnce() + Send + 'static) {
    std::thread::Builder::new().stack_size(256 << 10).spawn(run).unwrap().join().unwrap();
}
