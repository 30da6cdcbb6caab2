//! Views of every second element, single entries, and their way back (GPT-J's rotary embedding, BLOOM's fused heads).

use crate::tensor::{Geometry, Tape, Tensor, grads};
use crate::{GradFn, Op};

/// `x[..., start::2]`.
pub fn every_second(x: &Tensor) -> Tensor {
    every_second_of(x, -1)
}

/// `x[..., ::2], x[..., 1::2]`.
pub fn halves_by_turns(x: &Tensor) -> (Tensor, Tensor) {
    (every_second(x), every_second(x).beginning(x.geometry().strides().last().copied().unwrap_or(0)))
}

/// Every second along `axis`, of an even number.
pub fn every_second_of(x: &Tensor, axis: isize) -> Tensor {
    let tape = Tape::new(x.cx(), GradFn::SliceBackward0, &[x]);
    let mut out = x.view_as(x.geometry().stepped(axis, 2));
    let from = x.geometry().clone();
    tape.record([&mut out], move |g| {
        grads([Some(g.make(Op::SliceBackward, &[g.grad()], Geometry::contiguous(from.dims()), g.grad().dtype()))])
    });
    out
}

/// `torch.stack((a, b), dim=-1)`.
pub fn stack_last(a: &Tensor, b: &Tensor) -> Tensor {
    let tape = Tape::new(a.cx(), GradFn::StackBackward0, &[a, b]);
    let mut sizes = a.dims().to_vec();
    sizes.push(2);
    let mut out = a.cx().launch(Op::Stack, &[a, b]).make_sizes(&sizes, a.dtype().promote(b.dtype()));
    tape.record([&mut out], |g| {
        let part = |i| g.needs(i).then(|| g.grad().view_as(g.grad().geometry().selected(-1)));
        grads([part(0), part(1)])
    });
    out
}

#[cfg(test)]
mod tests {
    use super::{every_second, stack_last};
    use crate::ops::{neg, select};
    use crate::tensor::testing::{activation, backward_of, forward, made, watch};

    /// `slice_backward` and `select_backward` make zeros of the whole; stacking's gradients are views.
    #[test]
    fn gradients_of_parts_are_as_large_as_the_whole() {
        let cx = forward();
        let x = neg(&activation(&cx, &[2, 8]));
        let (events, pairs) = watch(&cx, || stack_last(&every_second(&x), &every_second(&x)));
        assert_eq!(events, ["+stack [2, 4, 2] float32"], "the parts are views");
        drop(x);
        let backward = backward_of(pairs);
        assert_eq!(backward.iter().filter(|e| *e == "+slice_backward [2, 8] float32").count(), 2);
        let picked = select(&neg(&activation(&cx, &[2, 3, 4])), 1);
        assert_eq!(picked.dims(), [2, 4]);
        assert_eq!(made(&backward_of(picked)), ["ones_like", "select_backward", "neg"]);
    }
}
