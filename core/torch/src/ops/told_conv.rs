//! Convolutions that a recording tells of: the copies that PyTorch makes around them, and what cuDNN takes while they run.
//!
//! A recording of before cuDNN's were counted says nothing of how filters move, and of a backward one thing for all gradients.

use std::rc::Rc;

use super::conv::{in_order, is_channels_last, is_ready, is_turned};
use super::inside::{self, Convolved, Product, Scratch};
use super::told::Given;
use crate::Op;
use crate::tensor::{Context, Geometry};

/// What is asked for.
fn convolved([x, weight]: [&Given; 2], made: &[u64], moves: &[u32], last: bool) -> Convolved {
    let sizes = [x.geometry.dims(), weight.geometry.dims()];
    let window = [moves.first(), moves.get(1)].map(|number| number.copied().map_or(0, u64::from));
    let convolved = Convolved::of(sizes, made, window, last, x.dtype);
    // Filters with gaps, and those that make more of less, were not measured, and are not asked for.
    if moves.get(2) == Some(&0) { convolved } else { Convolved { measured: false, shape: None, ..convolved } }
}

/// The copy of its input that a convolution makes before its output (`_convolution` in Convolution.cpp).
pub(super) fn before_forward<'c>(cx: &'c Rc<Context>, [x, weight]: [&Given; 2]) -> Option<Scratch<'c>> {
    let last = [x, weight].iter().any(|given| is_channels_last(&given.geometry));
    in_order(cx, Op::Convolution, &x.geometry, x.dtype, last)
}

/// The forward, whose output is there.
pub(super) fn forward(cx: &Rc<Context>, given: [&Given; 2], made: &Geometry, moves: &[u32]) {
    let [_, weight] = given;
    let last = given.iter().any(|given| is_channels_last(&given.geometry));
    let filters = in_order(cx, Op::Convolution, &weight.geometry, weight.dtype, last);
    drop(inside::convolution(cx, Op::Convolution, convolved(given, made.dims(), moves, last), Product::Forward));
    drop(filters);
}

/// A backward that makes the gradients of its input, its weight and its bias one by one.
struct Backward<'k, 'c> {
    cx: &'c Rc<Context>,
    given: [&'k Given; 3],
    last: bool,
}

impl<'k, 'c> Backward<'k, 'c> {
    fn new(cx: &'c Rc<Context>, given: [&'k Given; 3]) -> Self {
        let [_, x, weight] = given;
        Self { cx, given, last: [x, weight].iter().any(|given| is_channels_last(&given.geometry)) }
    }

    fn convolved(&self, moves: &[u32]) -> Convolved {
        let [grad, x, weight] = self.given;
        convolved([x, weight], grad.geometry.dims(), moves, self.last)
    }

    fn works(&self, moves: &[u32], product: Product) {
        drop(inside::convolution(self.cx, Op::ConvolutionBackward, self.convolved(moves), product));
    }

    fn ordered(&self, given: &Given) -> Option<Scratch<'c>> {
        in_order(self.cx, Op::ConvolutionBackward, &given.geometry, given.dtype, self.last)
    }

    fn incoming(&self) -> Option<Scratch<'c>> {
        let [grad, ..] = self.given;
        let ready = is_ready(&grad.geometry, self.last);
        if ready {
            None
        } else {
            Scratch::converted(self.cx, Op::ConvolutionBackward, grad.geometry.dims(), grad.dtype)
        }
    }
}

/// What a backward holds from before one of its gradients, `first` of them or not, is made, and whether until the last one: before the
/// first its input in order, where its weight has a gradient, and the gradient that comes in, if that is channels last and the
/// convolution is not, or the other way round; else before that of its weight (`convolution_backward` in Convolution.cpp,
/// `cudnn_convolution_backward` and `cudnn_convolution_backward_weight` in ConvShared.cpp). Of a line the input is
/// row-major, until all is done. PyTorch's own kernels for images make their copies behind their gradients.
pub(super) fn before_backward<'c>(
    cx: &'c Rc<Context>,
    given: [&Given; 3],
    numbers: &[u32],
    (first, weighs): (bool, bool),
) -> Vec<(Scratch<'c>, bool)> {
    let [_, x, _] = given;
    let (which, moves) = numbers.split_first().map_or((0, numbers), |(which, moves)| (*which, moves));
    let backward = Backward::new(cx, given);
    let cudnns = backward.convolved(moves).is_cudnns();
    let line = is_line(x);
    let input = if first && (line || weighs && cudnns) { backward.ordered(x) } else { None };
    let turned = is_turned(&given[0].geometry, backward.last);
    let incoming = if cudnns && if turned { first } else { which == 2 } { backward.incoming() } else { None };
    [(input, line), (incoming, false)].into_iter().filter_map(|(copy, all)| Some((copy?, all))).collect()
}

/// Whether it is one, which is taken as an image of height 1.
fn is_line(x: &Given) -> bool {
    x.geometry.rank() == 3
}

/// The backward, behind a gradient that it has made: by `numbers` that of the input (1), the weight (2) or the bias (3) and how filters
/// move, or of them all, with a 1 where the bias has one.
pub(super) fn backward(cx: &Rc<Context>, given: [&Given; 3], numbers: &[u32]) {
    let [grad, x, weight] = given;
    let backward = Backward::new(cx, given);
    let bias = || drop(inside::sum(cx, Op::ConvolutionBackward, &grad.geometry, |i| i != 1, grad.dtype));
    match numbers {
        [1, moves @ ..] if !moves.is_empty() => {
            let ready = backward.convolved(moves).is_cudnns() && is_turned(&grad.geometry, backward.last);
            let incoming = if ready { None } else { backward.incoming() };
            let filters = backward.ordered(weight);
            backward.works(moves, Product::Input);
            drop((filters, incoming));
        }
        [2, moves @ ..] if !moves.is_empty() => {
            let cudnns = backward.convolved(moves).is_cudnns();
            let incoming = if cudnns { None } else { backward.incoming() };
            let input = if cudnns || is_line(x) { None } else { backward.ordered(x) };
            backward.works(moves, Product::Weight);
            drop((input, incoming));
        }
        [_, _, ..] => bias(),
        _ => {
            let input = backward.ordered(x);
            drop(backward.incoming());
            drop(input);
            if numbers.first() == Some(&1) {
                bias();
            }
        }
    }
}
