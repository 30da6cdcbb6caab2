//! `conv1d`, in row-major order: unlike `conv2d` it knows no channels-last.

use super::cast::lower_precision;
use super::conv::{backward_launch, convolution_flops, convolved};
use super::inside::{self, Product};
use super::slow_conv::{self, Backend};
use crate::tensor::{Tape, Tensor, grads};
use crate::{GradFn, Op};

/// `conv1d(x [N, C, L], weight [O, C, K], bias, stride, padding)`: keeps its input and weight. On autocast's
/// lower-precision list.
pub fn conv1d(x: &Tensor, weight: &Tensor, bias: Option<&Tensor>, stride: u64, padding: u64) -> Tensor {
    // The compiler evaluates the casts of a call's arguments from the last to the first.
    let bias = bias.map(lower_precision);
    let weight = lower_precision(weight);
    let x = lower_precision(x);
    let inputs: Vec<&Tensor> = [Some(&x), Some(&weight), bias.as_ref()].into_iter().flatten().collect();
    let tape = Tape::new(x.cx(), GradFn::ConvolutionBackward0, &inputs);
    let saved = [tape.save(&x), tape.save(&weight)];
    let mut sizes = vec![x.size(0), weight.size(0)];
    sizes.extend(
        x.dims().iter().zip(weight.dims()).skip(2).map(|(&n, &k)| (n + 2 * padding).saturating_sub(k) / stride + 1),
    );
    let backend = Backend::of(&x, &weight);
    let pointwise = slow_conv::is_pointwise(&weight, stride, padding);
    let flops = convolution_flops(sizes.iter().product(), &weight);
    let convolved = convolved([&x, &weight], &sizes, [stride, padding], false);
    let by_cudnn = backend == Backend::Cudnn;
    let mut out = x.cx().kept(Op::Convolution, || {
        let mut launch = x.cx().launch(Op::Convolution, &inputs).flops(flops);
        if backend == Backend::Columns {
            return slow_conv::forward(&mut launch, &x, &weight, &sizes, pointwise);
        }
        let rows = inside::Scratch::contiguous(x.cx(), Op::Convolution, x.geometry(), x.dtype());
        let out = launch.make_sizes(&sizes, x.dtype());
        drop(launch);
        if by_cudnn {
            drop(inside::convolution(x.cx(), Op::Convolution, convolved, Product::Forward));
        }
        drop(rows);
        out
    });
    let has_bias = bias.is_some();
    tape.record([&mut out], move |g| {
        let (x, weight) = (saved[0].unpack(), saved[1].unpack());
        let mut launch = backward_launch(g, &x, &weight, flops);
        if backend == Backend::Columns {
            return slow_conv::backward(g, &mut launch, [&x, &weight], has_bias, pointwise);
        }
        // To the end, whatever has a gradient: a line is taken as an image of height 1 (`convolution_backward` in Convolution.cpp).
        let _rows = inside::Scratch::contiguous(g.cx(), Op::ConvolutionBackward, x.geometry(), x.dtype());
        // For both convolutions (`cudnn_convolution_backward` in ConvShared.cpp).
        let incoming =
            inside::Scratch::contiguous(g.cx(), Op::ConvolutionBackward, g.grad().geometry(), g.grad().dtype());
        let mut gradient = |like: &Tensor| launch.make_sizes(like.dims(), like.dtype());
        let works =
            |product| by_cudnn.then(|| inside::convolution(g.cx(), Op::ConvolutionBackward, convolved, product));
        let input = g.needs(0).then(|| gradient(&x));
        if g.needs(0) {
            drop(works(Product::Input));
        }
        let weight_grad = g.needs(1).then(|| gradient(&weight));
        if g.needs(1) {
            drop(works(Product::Weight));
        }
        drop(incoming);
        if !has_bias {
            return grads([input, weight_grad]);
        }
        let bias = g.needs(2).then(|| launch.make_sizes(&[weight.size(0)], weight.dtype()));
        if g.needs(2) {
            // Beside the convolution (`convolution_backward` in Convolution.cpp).
            let over = |i| i != 1;
            drop(inside::sum(g.cx(), Op::ConvolutionBackward, g.grad().geometry(), over, g.grad().dtype()));
        }
        grads([input, weight_grad, bias])
    });
    out
}

#[cfg(test)]
mod tests {
    use super::conv1d;
    use crate::ops::neg;
    use crate::tensor::Kind;
    use crate::tensor::testing::{activation, alive, backward_of, forward, input, made, weight};

    #[test]
    fn a_stride_of_two_halves_the_length() {
        let cx = forward();
        let out = conv1d(&input(&cx, &[2, 80, 3000]), &weight(&cx, &[384, 80, 3]), Some(&weight(&cx, &[384])), 2, 1);
        assert_eq!(out.dims(), [2, 384, 1500]);
    }

    /// `convolution_backward(grad, input, weight, ...)`: the bias is not kept.
    #[test]
    fn input_and_weight_are_kept_and_three_gradients_made() {
        let cx = forward();
        let x = neg(&activation(&cx, &[2, 3, 10]));
        let out = conv1d(&x, &weight(&cx, &[4, 3, 3]), Some(&weight(&cx, &[4])), 1, 1);
        drop(x);
        assert_eq!(alive(&cx, Kind::Saved), ["neg [2, 3, 10] float32"]);
        let events = backward_of(out);
        assert_eq!(made(&events).iter().filter(|op| **op == "convolution_backward").count(), 3);
    }

    /// Features from the outside want no gradient, and none is made.
    #[test]
    fn the_first_layers_input_gets_no_gradient() {
        let cx = forward();
        let out = conv1d(&input(&cx, &[2, 3, 8, 8]), &weight(&cx, &[4, 3, 4, 4]), None, 4, 0);
        assert_eq!(out.dims(), [2, 4, 2, 2]);
        assert_eq!(made(&backward_of(out)), ["ones_like", "convolution_backward"]);
    }
}
