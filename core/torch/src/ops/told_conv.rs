//! Convolutions that a recording tells of: the copies that PyTorch makes around them, and what cuDNN takes while they run.
//!
//! A recording of before cuDNN's were counted says nothing of how filters move, and of a backward one thing for all gradients.

use std::rc::Rc;

use super::conv::{in_order, is_channels_last, is_ready};
use super::inside::{self, Convolved, Product, Scratch};
use super::told::Given;
use crate::Op;
use crate::tensor::{Context, Geometry};

/// What is asked for.
fn convolved([x, weight]: [&Given; 2], made: &[u64], moves: &[u32], last: bool) -> Convolved {
    let sizes = [x.geometry.dims(), weight.geometry.dims()];
    let window = [moves.first(), moves.get(1)].map(|number| number.copied().map_or(0, u64::from));
    let convolved = Convolved::of(sizes, made, window, last, x.dtype);
    Convolved { measured: convolved.measured && moves.get(2) == Some(&0), ..convolved }
}

/// The forward, whose output is there.
pub(super) fn forward(cx: &Rc<Context>, given: [&Given; 2], made: &Geometry, moves: &[u32]) {
    let last = given.iter().any(|given| is_channels_last(&given.geometry));
    let copies = given.map(|given| in_order(cx, Op::Convolution, &given.geometry, given.dtype, last));
    drop(inside::convolution(cx, Op::Convolution, convolved(given, made.dims(), moves, last), Product::Forward));
    drop(copies);
}

/// The backward, behind a gradient that it has made: by `numbers` that of the input (1), the weight (2) or the bias (3) and how filters
/// move, or of them all, with a 1 where the bias has one.
pub(super) fn backward(cx: &Rc<Context>, [grad, x, weight]: [&Given; 3], numbers: &[u32]) {
    let op = Op::ConvolutionBackward;
    let last = [x, weight].iter().any(|given| is_channels_last(&given.geometry));
    let bias = || drop(inside::sum(cx, op, &grad.geometry, |i| i != 1, grad.dtype));
    let ordered = |given: &Given| in_order(cx, op, &given.geometry, given.dtype, last);
    let incoming = || {
        let ready = is_ready(&grad.geometry, last);
        if ready { None } else { Scratch::converted(cx, op, grad.geometry.dims(), grad.dtype) }
    };
    let works = |moves: &[u32], product: Product| {
        inside::convolution(cx, op, convolved([x, weight], grad.geometry.dims(), moves, last), product)
    };
    match numbers {
        [1, moves @ ..] if !moves.is_empty() => {
            let incoming = incoming();
            let filters = ordered(weight);
            drop(works(moves, Product::Input));
            drop((filters, incoming));
        }
        [2, moves @ ..] if !moves.is_empty() => {
            let incoming = incoming();
            let input = ordered(x);
            drop(works(moves, Product::Weight));
            drop((input, incoming));
        }
        [_, _, ..] => bias(),
        _ => {
            let input = ordered(x);
            drop(incoming());
            drop(input);
            if numbers.first() == Some(&1) {
                bias();
            }
        }
    }
}
