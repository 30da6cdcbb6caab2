//! Pooling over images.

use super::conv::{Window, image, is_channels_last};
use crate::tensor::{DType, Geometry, Tape, Tensor, grads};

/// `max_pool2d(x)`: keeps its input and, for every output, the int64 index of the largest.
pub fn max_pool2d(x: &Tensor, window: Window) -> Tensor {
    const OP: &str = "max_pool2d_with_indices";
    let tape = Tape::new(x.cx(), "MaxPool2DWithIndicesBackward0", &[x]);
    let saved_x = tape.save(x);
    let last = is_channels_last(x.geometry());
    let sizes = [x.size(0), x.size(1), window.places(x.size(2)), window.places(x.size(3))];
    let mut out = x.cx().empty(OP, image(sizes, last), x.dtype());
    let indices = x.cx().empty(OP, image(sizes, last), DType::Int64);
    let saved_indices = tape.save(&indices);
    drop(indices);
    tape.record([&mut out], move |g| {
        let (x, _indices) = (saved_x.unpack(), saved_indices.unpack());
        grads([Some(g.like("max_pool2d_with_indices_backward", &x))])
    });
    out
}

/// `adaptive_avg_pool2d(x, 1)`: a mean over height and width, both kept as 1; keeps nothing.
pub fn global_avg_pool2d(x: &Tensor) -> Tensor {
    let tape = Tape::new(x.cx(), "MeanBackward1", &[x]);
    let mut out = x.cx().empty_sizes("mean.dim", &[x.size(0), x.size(1), 1, 1], x.dtype());
    let from = x.geometry().clone();
    tape.record([&mut out], move |g| {
        let expanded = g.grad().geometry().expanded(from.dims());
        grads([Some(g.empty("div.Scalar", Geometry::elementwise(&[&expanded]), g.grad().dtype()))])
    });
    out
}

#[cfg(test)]
mod tests {
    use super::{Window, global_avg_pool2d, max_pool2d};
    use crate::ops::neg;
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
}
