//! TRL's `OffloadActivations`: what is sent off, for how long it is held, and what it does to those who look at it.

use std::rc::Rc;

use super::testing::{activation, backward_of, forward, live, made, watch};
use super::{Context, HostMemory, Offloading, Tensor};
use crate::ops;

/// As large as is sent off: [`large`] float32 numbers.
const BYTES: u64 = 4 * 1024;

fn stashing() -> Rc<Context> {
    let cx = forward();
    cx.enter_stash(false);
    cx
}

fn large(cx: &Rc<Context>) -> Tensor {
    activation(cx, &[1024])
}

/// What was sent to the machine's memory so far.
fn sent(cx: &Rc<Context>) -> usize {
    cx.host().so_far(|ledger| {
        ledger
            .events
            .iter()
            .filter(|event| !event.is_free() && event.stream() == HostMemory::PageLocked.stream())
            .count()
    })
}

#[test]
fn what_is_small_or_known_already_stays() {
    let cx = stashing();
    let small = ops::tanh(&activation(&cx, &[255]));
    assert_eq!(sent(&cx), 0);
    let x = ops::tanh(&large(&cx));
    assert_eq!(sent(&cx), 1);
    // The result of the last is saved once more, as the operand of the next.
    let squared = ops::pow(&x);
    assert_eq!(sent(&cx), 1);
    drop((small, squared));
}

#[test]
fn the_last_five_are_held_until_they_are_gone_for_sure() {
    let cx = stashing();
    let mut x = large(&cx);
    for _ in 0..8 {
        x = ops::tanh(&x);
    }
    // Five results, of which the last has a name besides.
    assert_eq!((sent(&cx), live(&cx)), (8, 5 * BYTES));
}

#[test]
fn what_comes_back_is_held_until_the_next_node_that_asks_has_run() {
    let cx = stashing();
    let mut x = large(&cx);
    for _ in 0..8 {
        x = ops::tanh(&x);
    }
    let events = backward_of(x);
    cx.leave_stash();
    // The first finds what was held; its hook lets go of all the others, which come back.
    assert_eq!(made(&events).iter().filter(|op| **op == "_to_copy").count(), 7);
    let came = events.iter().position(|event| event.starts_with("+_to_copy")).unwrap();
    let went = events.iter().position(|event| event.starts_with("-_to_copy")).unwrap();
    let before = &events[came..went];
    assert_eq!(before.iter().filter(|event| event.starts_with("+_to_copy")).count(), 2, "{events:?}");
    cx.end();
    assert!(cx.take().handed.is_empty());
}

#[test]
fn what_is_recomputed_from_is_handed_to_record_stream() {
    let cx = stashing();
    let mut x = large(&cx);
    for _ in 0..8 {
        let layer = Rc::new(|inputs: &[Tensor]| ops::tanh(&ops::pow(&inputs[0])));
        x = super::checkpoint(&cx, vec![x], layer);
    }
    drop(backward_of(x));
    cx.leave_stash();
    cx.end();
    // The last ones were still there.
    let handed = cx.take().handed.len();
    assert!((1..8).contains(&handed), "{handed}");
}

#[test]
fn no_sum_is_written_over_what_python_has_looked_at() {
    let cx = stashing();
    let x = ops::tanh(&large(&cx));
    assert!(cx.is_seen(x.storage_id()) && !x.can_accumulate_in_place());
    cx.leave_stash();
    assert!(x.can_accumulate_in_place());
}

#[test]
fn nothing_is_sent_off_around_the_output_head() {
    let cx = forward();
    let head = cx.module(super::ModuleId::ROOT, "lm_head".into(), None);
    cx.spare_head();
    cx.enter_stash(false);
    let x = large(&cx);
    drop(cx.within(head, || ops::tanh(&x)));
    assert_eq!(sent(&cx), 0);
    let (_, out) = watch(&cx, || ops::tanh(&x));
    assert_eq!(sent(&cx), 1);
    assert_eq!(cx.offloads(), Offloading::Stashed);
    drop(out);
}
