//! Triangular systems.

use std::rc::Rc;

use super::elementwise::unary;
use super::inside;
use super::matmul::matmul;
use super::view::transpose;
use crate::tensor::{Context, DType, Geometry, Tape, Tensor, grads};
use crate::{GradFn, Op};

/// `torch.linalg.solve_triangular(a, b, upper=False, unitriangular=True)` of batches of matrices: keeps a and its result.
/// `torch.utils.flop_counter` counts none of its operations.
pub fn solve_triangular(a: &Tensor, b: &Tensor) -> Tensor {
    let tape = Tape::new(a.cx(), GradFn::LinalgSolveTriangularBackward0, &[a, b]);
    let saved_a = tape.save(a);
    let mut out = solved(a.cx(), a, b);
    let saved_out = tape.save_if(tape.needs(0), &out);
    tape.record([&mut out], move |g| {
        let a = saved_a.unpack();
        let result = saved_out.get();
        // linalg_solve_triangular_backward: G_B = solve(A^H, grad); G_A = -(G_B X^H), of which what is below stays.
        let b_grad = solved(g.cx(), &a.view_as(a.geometry().transposed(-2, -1)), g.grad());
        let a_grad = result.map(|result| {
            let mut gradient = matmul(&b_grad, &transpose(&result, -2, -1));
            gradient = unary(Op::Neg, &gradient);
            g.cx().launch(Op::Tril, &[&gradient]).make_sizes(gradient.dims(), gradient.dtype())
        });
        grads([a_grad, g.needs(1).then_some(b_grad)])
    });
    out
}

/// `x.tril()`: keeps nothing, and its gradient is cut off as it is.
pub fn tril(x: &Tensor) -> Tensor {
    let tape = Tape::new(x.cx(), GradFn::TrilBackward0, &[x]);
    let mut out = unary(Op::Tril, x);
    tape.record([&mut out], |g| grads([Some(g.like(Op::Tril, g.grad(), &[]))]));
    out
}

/// The kernel: its result lies column by column (`linalg_solve_triangular_out` in `BatchLinearAlgebra.cpp`).
fn solved(cx: &Rc<Context>, a: &Tensor, b: &Tensor) -> Tensor {
    let columns_first = Geometry::contiguous(b.geometry().transposed(-2, -1).dims()).transposed(-2, -1);
    let out = cx.launch(Op::LinalgSolveTriangular, &[a, b]).make(columns_first, b.dtype());
    let matrices = a.numel() / (a.size(-1) * a.size(-2)).max(1);
    if matrices > 8 || a.size(-1) < 64 {
        // cuBLAS is handed where each matrix lies (`get_device_pointers` in `BatchLinearAlgebraLib.cpp`).
        let pointers = || inside::Scratch::converted(cx, Op::LinalgSolveTriangular, &[matrices], DType::Int64);
        drop((pointers(), pointers()));
    }
    cx.blas();
    out
}

#[cfg(test)]
mod tests {
    use super::solve_triangular;
    use crate::ops::neg;
    use crate::tensor::Kind;
    use crate::tensor::testing::{activation, alive, backward_of, forward, made};

    /// `linalg_solve_triangular_backward(grad, self, result, ...)`: the system and the result are kept, not what it was solved
    /// for; back it solves, multiplies, turns round and cuts off. The result lies column by column.
    #[test]
    fn system_and_result_are_kept_and_four_made_on_the_way_back() {
        let cx = forward();
        let (a, b) = (neg(&activation(&cx, &[3, 4, 4])), neg(&activation(&cx, &[3, 4, 2])));
        let out = solve_triangular(&a, &b);
        drop((a, b));
        assert_eq!((out.dims(), out.geometry().strides()), (&[3, 4, 2][..], &[8, 1, 4][..]));
        assert_eq!(alive(&cx, Kind::Saved), ["neg [3, 4, 4] float32", "linalg_solve_triangular [3, 4, 2] float32"]);
        let events = backward_of(out);
        // What b is given lies otherwise than b.
        let expected = ["ones_like", "linalg_solve_triangular", "bmm", "neg", "tril", "neg", "clone", "neg"];
        assert_eq!(made(&events), expected);
    }
}
