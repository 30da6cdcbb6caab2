//! `masked_fill` and `masked_fill_`.

use crate::tensor::{Geometry, Tape, Tensor, grads};
use crate::{GradFn, Op};

const OP: Op = Op::MaskedFillScalar;

/// `x.masked_fill(mask, number)`: a contiguous copy of x; keeps the mask, and its backward fills the gradient's copy.
pub fn masked_fill(x: &Tensor, mask: &Tensor) -> Tensor {
    let tape = Tape::new(x.cx(), GradFn::MaskedFillBackward0, &[x]);
    let (dims, rank) = Geometry::broadcast_dims(x.geometry(), mask.geometry());
    let out = x.cx().launch(OP, &[x, mask]).make_sizes(&dims[..rank], x.dtype());
    record_fill(tape, mask, out)
}

/// `x.masked_fill_(mask, number)`.
pub fn masked_fill_in_place(x: Tensor, mask: &Tensor) -> Tensor {
    let tape = Tape::new(x.cx(), GradFn::MaskedFillBackward0, &[&x]);
    x.cx().in_place(Op::MaskedFillInPlace, &x, &[mask]);
    let out = x.view_as(x.geometry().clone());
    drop(x);
    record_fill(tape, mask, out)
}

fn record_fill(tape: Tape, mask: &Tensor, mut out: Tensor) -> Tensor {
    let saved = tape.save(mask);
    tape.record([&mut out], move |g| {
        let mask = saved.unpack();
        grads([Some(g.make(OP, &[g.grad(), &mask], Geometry::contiguous(g.grad().dims()), g.grad().dtype()))])
    });
    out
}

#[cfg(test)]
mod tests {
    use super::masked_fill;
    use crate::ops::neg;
    use crate::tensor::testing::{activation, alive, backward_of, forward, input_of, made};
    use crate::tensor::{DType, Kind};

    /// `masked_fill(grad, mask, 0)`: the mask is kept in its own size, neither operand is.
    #[test]
    fn only_the_mask_is_kept() {
        let cx = forward();
        let out = masked_fill(&neg(&activation(&cx, &[3, 8, 8])), &input_of(&cx, &[8, 8], DType::Bool));
        assert_eq!(out.dims(), [3, 8, 8]);
        assert!(alive(&cx, Kind::Saved).is_empty());
        assert_eq!(alive(&cx, Kind::Input), ["empty.memory_format [8, 8] bool"]);
        assert_eq!(made(&backward_of(out)), ["ones_like", "masked_fill.Scalar", "neg"]);
    }
}
