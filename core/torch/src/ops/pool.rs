//! Pooling over images.

use super::conv::{Window, image, is_channels_last};
use super::reduce::kept_by_mean;
use crate::tensor::{DType, Geometry, Tape, Tensor, grads};
use crate::{GradFn, Op};

/// `max_pool2d(x)`: keeps its input and, for every output, the int64 index of the largest.
pub fn max_pool2d(x: &Tensor, window: Window) -> Tensor {
    const OP: Op = Op::MaxPool2dWithIndices;
    let tape = Tape::new(x.cx(), GradFn::MaxPool2DWithIndicesBackward0, &[x]);
    let saved_x = tape.save(x);
    let last = is_channels_last(x.geometry());
    let sizes = [x.size(0), x.size(1), window.places(x.size(2)), window.places(x.size(3))];
    let mut launch = x.cx().launch(OP, &[x]);
    let mut out = launch.make(image(sizes, last), x.dtype());
    let indices = launch.make(image(sizes, last), DType::Int64);
    drop(launch);
    let saved_indices = tape.save(&indices);
    drop(indices);
    tape.record([&mut out], move |g| {
        let (x, indices) = (saved_x.unpack(), saved_indices.unpack());
        grads([Some(g.cx().launch(Op::MaxPool2dWithIndicesBackward, &[g.grad(), &indices]).make_like(&x))])
    });
    out
}

/// `avg_pool2d(x)`: keeps its input, for its sizes.
pub fn avg_pool2d(x: &Tensor, window: Window) -> Tensor {
    let tape = Tape::new(x.cx(), GradFn::AvgPool2DBackward0, &[x]);
    let saved = tape.save(x);
    let last = is_channels_last(x.geometry());
    let sizes = [x.size(0), x.size(1), window.places(x.size(2)), window.places(x.size(3))];
    let mut out = x.cx().launch(Op::AvgPool2d, &[x]).make(image(sizes, last), x.dtype());
    tape.record([&mut out], move |g| {
        let x = saved.unpack();
        grads([Some(g.cx().launch(Op::AvgPool2dBackward, &[g.grad()]).make_like(&x))])
    });
    out
}

/// `adaptive_avg_pool2d(x, 1)`: a mean over height and width, both kept as 1; keeps what a mean does. Where x lies channels
/// last, the result is given such strides by `as_strided_`, whose backward goes through a buffer of its own.
pub fn global_avg_pool2d(x: &Tensor) -> Tensor {
    let tape = Tape::new(x.cx(), GradFn::MeanBackward1, &[x]);
    let kept = kept_by_mean(&tape, x);
    let mut out = x.cx().launch(Op::MeanDim, &[x]).make_sizes(&[x.size(0), x.size(1), 1, 1], x.dtype());
    let from = x.geometry().clone();
    tape.record([&mut out], move |g| {
        drop(kept.get());
        let expanded = g.grad().geometry().expanded(from.dims());
        grads([Some(g.make(Op::DivScalar, &[g.grad()], Geometry::elementwise(&[&expanded]), g.grad().dtype()))])
    });
    if is_channels_last(x.geometry()) { restrided(&out) } else { out }
}

/// `x.as_strided_([n, c, 1, 1], [c, 1, c, c])`
fn restrided(x: &Tensor) -> Tensor {
    let tape = Tape::new(x.cx(), GradFn::AsStridedBackward1, &[x]);
    let sizes = [x.size(0), x.size(1), 1, 1];
    let mut out = x.unsafe_view_as(image(sizes, true));
    tape.record([&mut out], move |g| {
        // as_strided_backward(): the gradient is scattered into zeros of the storage's size.
        let storage = g.make(Op::NewZeros, &[], Geometry::contiguous(&[sizes[0] * sizes[1]]), g.grad().dtype());
        drop(g.cx().launch(Op::CopyInPlace, &[g.grad()]).over(&storage));
        grads([Some(storage.view_as(Geometry::contiguous(&sizes)))])
    });
    out
}

#[cfg(test)]
mod tests {
    use super::{Window, global_avg_pool2d, max_pool2d};
    use crate::ops::{neg, permute};
    use crate::tensor::Kind;
    use crate::tensor::testing::{activation, alive, backward_of, forward, made};

    /// `max_pool2d_with_indices_backward(grad, self, ..., indices)`.
    #[test]
    fn max_pooling_keeps_its_input_and_eight_bytes_an_output() {
        let cx = forward();
        let out = max_pool2d(&neg(&activation(&cx, &[2, 3, 8, 8])), Window { kernel: 3, stride: 2, padding: 1 });
        assert_eq!(out.dims(), [2, 3, 4, 4]);
        assert_eq!(alive(&cx, Kind::Saved), ["neg [2, 3, 8, 8] float32", "max_pool2d_with_indices [2, 3, 4, 4] int64"]);
        assert_eq!(made(&backward_of(out)), ["ones_like", "max_pool2d_with_indices_backward", "neg"]);
    }

    #[test]
    fn the_mean_over_an_image_keeps_nothing() {
        let cx = forward();
        let out = global_avg_pool2d(&neg(&activation(&cx, &[2, 3, 8, 8])));
        assert_eq!(out.dims(), [2, 3, 1, 1]);
        assert!(alive(&cx, Kind::Saved).is_empty());
        let events = backward_of(out);
        assert!(events.contains(&"+div.Scalar [2, 3, 8, 8] float32".to_owned()), "{events:?}");
    }

    #[test]
    fn the_mean_over_a_channels_last_image_is_restrided() {
        let cx = forward();
        let x = permute(&neg(&activation(&cx, &[2, 8, 8, 3])), &[0, 3, 1, 2]);
        let out = global_avg_pool2d(&x);
        assert_eq!(out.geometry().strides(), [3, 1, 3, 3]);
        let events = backward_of(out);
        assert_eq!(made(&events)[..4], ["ones_like", "new_zeros", "div.Scalar", "neg"]);
        assert!(events.contains(&"+new_zeros [6] float32".to_owned()), "{events:?}");
    }
}
