//! Reductions.

use crate::tensor::{Geometry, Tape, Tensor, grads};

/// `x.mean(-1, keepdim=True)`.
pub fn mean_last(x: &Tensor) -> Tensor {
    let tape = Tape::new(x.cx(), "MeanBackward1", &[x]);
    let mut sizes = x.dims().to_vec();
    if let Some(last) = sizes.last_mut() {
        *last = 1;
    }
    let mut out = x.cx().empty_sizes("mean.dim", &sizes, x.dtype());
    let from = x.geometry().clone();
    tape.record([&mut out], move |g| {
        // sum_backward expands the gradient; the division makes it real.
        let expanded = g.grad().geometry().expanded(from.dims());
        grads([Some(g.empty("div.Scalar", Geometry::elementwise(&[&expanded]), g.grad().dtype()))])
    });
    out
}
