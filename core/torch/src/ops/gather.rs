//! `gather` and `repeat`.

use super::inside;
use crate::tensor::{Geometry, Tape, Tensor, grads};
use crate::{GradFn, Op};

/// `torch.gather(x, axis, index)`: keeps x and the index; backward adds into zeros of x's size.
pub fn gather(x: &Tensor, index: &Tensor) -> Tensor {
    let tape = Tape::new(x.cx(), GradFn::GatherBackward0, &[x]);
    let saved = [tape.save(index), tape.save(x)];
    let mut out = x
        .cx()
        .launch(Op::Gather, &[index])
        .reads(index.numel().saturating_mul(x.dtype().size()))
        .of(x.dtype())
        .make_sizes(index.dims(), x.dtype());
    tape.record([&mut out], move |g| {
        let (index, x) = (saved[0].unpack(), saved[1].unpack());
        let zeros = g.make(Op::NewZeros, &[], Geometry::contiguous(x.dims()), g.grad().dtype());
        drop(g.cx().launch(Op::ScatterAddInPlace, &[g.grad(), &index, g.grad()]).over(g.grad()));
        grads([Some(zeros)])
    });
    out
}

/// `x.repeat(times, 1, 1)`: a copy even for once; its gradient is summed over the copies.
pub fn repeat_batch(x: &Tensor, times: u64) -> Tensor {
    let tape = Tape::new(x.cx(), GradFn::RepeatBackward0, &[x]);
    let from = x.geometry().clone();
    let mut sizes = x.dims().to_vec();
    if let Some(first) = sizes.first_mut() {
        *first *= times;
    }
    let mut out = x.cx().launch(Op::Repeat, &[x]).make_sizes(&sizes, x.dtype());
    tape.record([&mut out], move |g| {
        if times == 1 {
            return grads([Some(super::view::reshape_gradient(g, &from))]);
        }
        let dtype = g.cx().summed(g.grad().dtype());
        let summed = g.make(Op::SumDimIntList, &[g.grad()], Geometry::contiguous(from.dims()), dtype);
        let copies = Geometry::contiguous(&[times, from.numel()]);
        drop(inside::sum(g.cx(), Op::SumDimIntList, &copies, |i| i == 0, g.grad().dtype()));
        grads([Some(summed)])
    });
    out
}

#[cfg(test)]
mod tests {
    use super::{gather, repeat_batch};
    use crate::ops::{Pointwise, neg, pointwise};
    use crate::tensor::testing::{activation, alive, backward_of, forward, input, made, watch};
    use crate::tensor::{DType, Kind};

    /// `derivatives.yaml`: `gather_backward(grad, self, dim, index, sparse_grad)`, so self is kept for its sizes alone.
    #[test]
    fn gather_keeps_what_it_gathers_from() {
        let cx = forward();
        let chosen = input(&cx, &[2, 4, 4]);
        let index = pointwise(Pointwise::Clamp, &chosen, &[], &[2, 4, 4], DType::Int64);
        let out = gather(&neg(&activation(&cx, &[2, 4, 16])), &index);
        assert_eq!(out.dims(), [2, 4, 4]);
        assert_eq!(alive(&cx, Kind::Saved), ["clamp [2, 4, 4] int64", "neg [2, 4, 16] float32"]);
        assert_eq!(made(&backward_of(out)), ["ones_like", "new_zeros", "neg"]);
    }

    /// `repeat_backward` sums over the copies, and only views where there is one.
    #[test]
    fn repeating_copies_and_sums_back() {
        let cx = forward();
        let x = neg(&activation(&cx, &[3, 2, 4]));
        let (events, out) = watch(&cx, || repeat_batch(&x, 5));
        assert_eq!(events, ["+repeat [15, 2, 4] float32"]);
        assert_eq!(made(&backward_of(out)), ["ones_like", "sum.dim_IntList", "neg"]);
        let cx = forward();
        let x = neg(&activation(&cx, &[3, 2, 4]));
        let (events, out) = watch(&cx, || repeat_batch(&x, 1));
        assert_eq!(events, ["+repeat [3, 2, 4] float32"]);
        assert_eq!(made(&backward_of(out)), ["ones_like", "neg"]);
    }
}
