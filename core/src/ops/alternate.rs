//! Views of every second element, single entries, and their way back (GPT-J's rotary embedding, BLOOM's fused heads).

use crate::tensor::{Geometry, Tape, Tensor, grads};

/// `x[..., start::2]`.
pub fn every_second(x: &Tensor) -> Tensor {
    let tape = Tape::new(x.cx(), "SliceBackward0", &[x]);
    let mut out = x.view_as(x.geometry().stepped(-1, 2));
    let from = x.geometry().clone();
    tape.record([&mut out], move |g| {
        grads([Some(g.empty("slice_backward", Geometry::contiguous(from.dims()), g.grad().dtype()))])
    });
    out
}

/// `torch.stack((a, b), dim=-1)`.
pub fn stack_last(a: &Tensor, b: &Tensor) -> Tensor {
    let tape = Tape::new(a.cx(), "StackBackward0", &[a, b]);
    let mut sizes = a.dims().to_vec();
    sizes.push(2);
    let mut out = a.cx().empty_sizes("stack", &sizes, a.dtype().promote(b.dtype()));
    tape.record([&mut out], |g| {
        let part = |i| g.needs(i).then(|| g.grad().view_as(g.grad().geometry().selected(-1)));
        grads([part(0), part(1)])
    });
    out
}
