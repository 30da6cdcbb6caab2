//! Convolutions. What cuDNN takes as workspace while one runs is in `inside/convolution.rs`.

use std::rc::Rc;

use plimsoll_catalog::software::rules;

use super::cast::lower_precision;
use super::inside::{self, Convolved, Product};
use super::slow_conv::{self, Backend};
use crate::tensor::{Context, DType, Geometry, Gradients, Launch, Tape, Tensor, grads};
use crate::{GradFn, Op};

/// How the kernel moves over the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Side of the kernel.
    pub kernel: u64,
    /// Pixels from one place to the next.
    pub stride: u64,
    /// Pixels added on every side.
    pub padding: u64,
}

impl Window {
    /// Places along a side of `size` pixels.
    pub const fn places(&self, size: u64) -> u64 {
        (size + 2 * self.padding).saturating_sub(self.kernel) / self.stride + 1
    }
}

/// Whether a gradient is in the order that the forward ran in, channels last or row-major, and needs no copy for the convolution's
/// backward (`cudnn_convolution_backward` in Conv_v8.cpp and ConvShared.cpp).
pub(super) fn is_ready(gradient: &Geometry, last: bool) -> bool {
    if last { is_channels_last(gradient) } else { gradient.is_contiguous() }
}

/// Whether a gradient suggests another order than the forward ran in: it is then copied before anything is made of it (`to` with a
/// memory format, in `cudnn_convolution_backward` of ConvShared.cpp).
pub(super) fn is_turned(gradient: &Geometry, last: bool) -> bool {
    is_channels_last(gradient) != last
}

/// A copy in the order that the convolution runs in, where what it is given lies in another (`contiguous(memory_format)` in
/// ConvShared.cpp): filters are row-major, and images may lie channels last.
pub(super) fn in_order<'c>(
    cx: &'c Rc<Context>,
    op: Op,
    given: &Geometry,
    dtype: DType,
    last: bool,
) -> Option<inside::Scratch<'c>> {
    let ordered = if last && given.rank() == 4 { given.permuted(&[0, 2, 3, 1]) } else { given.clone() };
    if ordered.is_contiguous() { None } else { inside::Scratch::converted(cx, op, given.dims(), dtype) }
}

/// Whether the strides of `[N, C, H, W]` say channels last (`is_channels_last_strides_2d` in `c10/core/MemoryFormat.h`).
pub(super) fn is_channels_last(geometry: &Geometry) -> bool {
    let (dims, strides) = (geometry.dims(), geometry.strides());
    if dims.len() != 4 || strides[1] == 0 {
        return false;
    }
    let mut least = 0;
    for axis in [1, 3, 2, 0] {
        if dims[axis] == 0 || strides[axis] < least || (axis == 0 && least == strides[1]) {
            return false;
        }
        least = strides[axis].saturating_mul(dims[axis].max(1));
    }
    true
}

/// A fresh tensor's geometry in the order `suggest_memory_format()` names: channels last where it lies so, else common.
pub(super) fn suggested(geometry: &Geometry) -> Geometry {
    if is_channels_last(geometry) { geometry.preserved() } else { Geometry::contiguous(geometry.dims()) }
}

/// A fresh `[N, C, H, W]` tensor's geometry in channels-last or in common order.
pub(super) fn image(sizes: [u64; 4], channels_last: bool) -> Geometry {
    let [n, c, h, w] = sizes;
    if channels_last {
        Geometry::contiguous(&[n, h, w, c]).permuted(&[0, 3, 1, 2])
    } else {
        Geometry::contiguous(&sizes)
    }
}

/// Operations of a convolution that makes so many numbers: each sums one product for every number of a filter.
pub(super) fn convolution_flops(made: u64, weight: &Tensor) -> u64 {
    made.saturating_mul(weight.numel() / weight.size(0).max(1)).saturating_mul(2)
}

/// The kernel of a convolution's backward. The gradients of input and weight take as many operations as the forward, each;
/// `torch.utils.flop_counter` counts that of a weight in groups as if there were none.
pub(super) fn backward_launch<'g>(g: &'g Gradients<'_>, x: &Tensor, weight: &Tensor, flops: u64) -> Launch<'g> {
    let products = u64::from(g.needs(0)) + u64::from(g.needs(1));
    g.cx().launch(Op::ConvolutionBackward, &[g.grad(), x, weight]).flops(flops.saturating_mul(products))
}

/// The convolution of an image or a line that makes something of `sizes`.
pub(super) fn convolved([x, weight]: [&Tensor; 2], sizes: &[u64], window: [u64; 2], last: bool) -> Convolved {
    Convolved::of([x.dims(), weight.dims()], sizes, window, last, x.dtype())
}

/// What cuDNN is asked for when it is to find an algorithm: which of the three convolutions, of what, and how it moves.
fn asked(which: u64, x: &Tensor, weight: &Tensor, window: Window, last: bool) -> impl Iterator<Item = u64> {
    let sizes: Vec<u64> = x.dims().iter().chain(weight.dims()).copied().collect();
    let moves = [window.stride, window.padding, u64::from(last), x.dtype().size(), u64::from(x.dtype().is_half())];
    std::iter::once(which).chain(sizes).chain(moves)
}

/// `conv2d(x, weight, bias)`: keeps its input and weight. On autocast's lower-precision list. Its backward makes the
/// gradients of input, weight and bias in the memory order of what it kept.
pub fn conv2d(x: &Tensor, weight: &Tensor, bias: Option<&Tensor>, window: Window) -> Tensor {
    // The compiler evaluates the casts of a call's arguments from the last to the first.
    let bias = bias.map(lower_precision);
    let weight = lower_precision(weight);
    let x = lower_precision(x);
    let inputs: Vec<&Tensor> = [Some(&x), Some(&weight), bias.as_ref()].into_iter().flatten().collect();
    let tape = Tape::new(x.cx(), GradFn::ConvolutionBackward0, &inputs);
    let saved = [tape.save(&x), tape.save(&weight)];
    // cudnn_conv_suggest_memory_format()
    let backend = Backend::of(&x, &weight);
    let pointwise = slow_conv::is_pointwise(&weight, window.stride, window.padding);
    let takes_last = x.cx().machine().rules.has(&rules::DEPTHWISE_CHANNELS_LAST);
    let is_last = move |x: &Tensor, weight: &Tensor| {
        let takes = match backend {
            Backend::Cudnn => true,
            Backend::Depthwise => takes_last,
            Backend::Columns => false,
        };
        takes && (is_channels_last(x.geometry()) || is_channels_last(weight.geometry()))
    };
    let last = is_last(&x, &weight);
    let sizes = [x.size(0), weight.size(0), window.places(x.size(2)), window.places(x.size(3))];
    let flops = convolution_flops(sizes.iter().product(), &weight);
    let convolved = convolved([&x, &weight], &sizes, [window.stride, window.padding], last);
    let mut out = x.cx().kept(Op::Convolution, || {
        let mut launch = x.cx().launch(Op::Convolution, &inputs).flops(flops);
        if backend == Backend::Columns {
            return slow_conv::forward(&mut launch, &x, &weight, &sizes, pointwise);
        }
        let rows = if backend == Backend::Depthwise && !last { slow_conv::rows(Op::Convolution, &x) } else { None };
        let out = launch.make(image(sizes, last), x.dtype());
        drop((launch, rows));
        if backend == Backend::Cudnn {
            let filters = in_order(x.cx(), Op::Convolution, weight.geometry(), weight.dtype(), last);
            x.cx().convolves(asked(0, &x, &weight, window, last));
            drop(inside::convolution(x.cx(), Op::Convolution, convolved, Product::Forward));
            drop(filters);
        }
        out
    });
    let has_bias = bias.is_some();
    tape.record([&mut out], move |g| {
        let (x, weight) = (saved[0].unpack(), saved[1].unpack());
        if backend == Backend::Columns {
            let mut launch = backward_launch(g, &x, &weight, flops);
            return slow_conv::backward(g, &mut launch, [&x, &weight], has_bias, pointwise);
        }
        // What was saved on the host comes back row by row.
        let last = is_last(&x, &weight);
        let convolved = self::convolved([&x, &weight], &sizes, [window.stride, window.padding], last);
        // Where it is not turned, each of the two convolutions makes its own (`cudnn_convolution_backward_input` and `_weight` in
        // ConvShared.cpp), the second before its gradient.
        let whole = backend != Backend::Cudnn || is_turned(g.grad().geometry(), last);
        let incoming = || {
            (!is_ready(g.grad().geometry(), last))
                .then(|| inside::Scratch::converted(g.cx(), Op::ConvolutionBackward, &sizes, g.grad().dtype()))
        };
        let copied = if whole { incoming() } else { None };
        let mut launch = backward_launch(g, &x, &weight, flops);
        let mut gradient = |like: &Tensor| {
            let sizes = [like.size(0), like.size(1), like.size(2), like.size(3)];
            launch.make(image(sizes, last), like.dtype())
        };
        let weight_first = g.cx().machine().kernels.is_counted() && convolved.is_own_depthwise();
        let early = (weight_first && g.needs(1)).then(|| {
            let _rows = if last { None } else { slow_conv::rows(Op::ConvolutionBackward, &x) };
            gradient(&weight)
        });
        let input = g.needs(0).then(|| gradient(&x));
        if g.needs(0) && backend == Backend::Cudnn {
            let copy = if whole { None } else { incoming() };
            let filters = in_order(g.cx(), Op::ConvolutionBackward, weight.geometry(), weight.dtype(), last);
            g.cx().convolves(asked(1, &x, &weight, window, last));
            drop(inside::convolution(g.cx(), Op::ConvolutionBackward, convolved, Product::Input));
            drop((filters, copy));
        }
        let copy = if g.needs(1) && !whole { incoming() } else { None };
        let weight_grad = early.or_else(|| g.needs(1).then(|| gradient(&weight)));
        if g.needs(1) && backend == Backend::Cudnn {
            g.cx().convolves(asked(2, &x, &weight, window, last));
            drop(inside::convolution(g.cx(), Op::ConvolutionBackward, convolved, Product::Weight));
        }
        drop((copy, copied));
        if !has_bias {
            return grads([input, weight_grad]);
        }
        let channels = Geometry::contiguous(&[weight.size(0)]);
        let bias = g.needs(2).then(|| launch.make(channels, weight.dtype()));
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
    use super::{Window, conv2d, is_channels_last};
    use crate::ops::{neg, permute};
    use crate::tensor::testing::{activation, alive, backward_of, forward, gradient, input, made, watch, weight};
    use crate::tensor::{DType, Geometry, Kind};

    const SAME: Window = Window { kernel: 3, stride: 1, padding: 1 };

    /// `convolution_backward(grad, input, weight, bias_sizes, ...)`: the bias is not kept.
    #[test]
    fn a_convolution_keeps_its_input_and_makes_three_gradients() {
        let cx = forward();
        let x = neg(&activation(&cx, &[2, 3, 8, 8]));
        let out = conv2d(&x, &weight(&cx, &[4, 3, 3, 3]), Some(&weight(&cx, &[4])), SAME);
        assert_eq!(out.dims(), [2, 4, 8, 8]);
        drop(x);
        assert_eq!(alive(&cx, Kind::Saved), ["neg [2, 3, 8, 8] float32"]);
        let events = backward_of(out);
        let births: Vec<&String> = events.iter().filter(|e| e.starts_with("+convolution_backward")).collect();
        assert_eq!(
            births,
            [
                "+convolution_backward [2, 3, 8, 8] float32",
                "+convolution_backward [4, 3, 3, 3] float32",
                "+convolution_backward [4] float32"
            ]
        );
    }

    /// The first layer's input wants no gradient, and none is made.
    #[test]
    fn images_get_no_gradient() {
        let cx = forward();
        let out = conv2d(&input(&cx, &[2, 3, 8, 8]), &weight(&cx, &[4, 3, 3, 3]), None, SAME);
        assert_eq!(made(&backward_of(out)), ["ones_like", "convolution_backward"]);
    }

    #[test]
    fn sides_follow_kernel_stride_and_padding() {
        assert_eq!(Window { kernel: 7, stride: 2, padding: 3 }.places(224), 112);
        assert_eq!(Window { kernel: 16, stride: 16, padding: 0 }.places(224), 14);
        assert_eq!(Window { kernel: 3, stride: 2, padding: 1 }.places(56), 28);
    }

    /// Channels last goes in, channels last comes out, and a weight's gradient in that order cannot be taken over as it
    /// is: `AccumulateGrad` copies it into the weight's order.
    #[test]
    fn channels_last_is_handed_on() {
        let cx = forward();
        let x = permute(&neg(&activation(&cx, &[2, 8, 8, 3])), &[0, 3, 1, 2]);
        let w = weight(&cx, &[4, 3, 3, 3]);
        let out = conv2d(&x, &w, None, SAME);
        assert!(is_channels_last(out.geometry()) && permute(&out, &[0, 2, 3, 1]).geometry().is_contiguous());
        let events = backward_of(out);
        assert!(made(&events).contains(&"clone"), "{events:?}");
        assert_eq!(gradient(&w).unwrap().geometry().strides(), w.geometry().strides());
    }

    #[test]
    fn ambiguous_strides_are_not_channels_last() {
        for sizes in [[2, 3, 8, 8], [4, 1, 7, 7], [4, 8, 1, 1], [2, 1, 1, 1]] {
            assert!(!is_channels_last(&Geometry::contiguous(&sizes)), "{sizes:?}");
        }
        assert!(is_channels_last(&super::image([2, 3, 8, 8], true)));
    }

    /// Weight first, image last to be cast is the other way round: arguments are cast from the last to the first.
    #[test]
    fn autocast_casts_bias_weight_and_image_in_this_order() {
        let cx = forward();
        let (w, b, x) = (weight(&cx, &[4, 3, 3, 3]), weight(&cx, &[4]), input(&cx, &[2, 3, 8, 8]));
        let (events, out) = watch(&cx, || cx.with_autocast(Some(DType::BFloat16), || conv2d(&x, &w, Some(&b), SAME)));
        assert_eq!(
            events[..4],
            [
                "+_to_copy [4] bfloat16",
                "+_to_copy [4, 3, 3, 3] bfloat16",
                "+_to_copy [2, 3, 8, 8] bfloat16",
                "+convolution [2, 4, 8, 8] bfloat16"
            ]
        );
        assert_eq!(out.dtype(), DType::BFloat16);
    }
}
