//! `LinearFunctionForZeroStage3` (`deepspeed/runtime/zero/linear.py`, 0.19.8): a linear that saves the parameter itself, and no view
//! of it, so that its bytes can go between forward and backward.

use super::inside;
use super::matmul::{addmm_cast, matmul_cast, t};
use super::view::reshape;
use crate::tensor::{Tape, Tensor, grads};
use crate::{GradFn, Op};

/// `PostBackwardFunctionModule`, before what a module is given: the gradient goes on when its turn comes, after the leaves'.
fn passed(x: &Tensor) -> Tensor {
    let tape = Tape::new(x.cx(), GradFn::PostBackwardFunctionModuleBackward, &[x]);
    let mut out = x.detach();
    tape.record([&mut out], |g| grads([Some(g.grad().clone())]));
    out
}

/// `LinearFunctionForZeroStage3.apply(input, weight, bias)`: of several dimensions the bias is added in place, and no cuBLASLt
/// is asked for it.
pub(super) fn apply(x: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Tensor {
    let cx = x.cx();
    let x = &passed(x);
    let inputs: Vec<&Tensor> = [x, weight].into_iter().chain(bias).collect();
    let tape = Tape::new(cx, GradFn::LinearFunctionForZeroStage3Backward, &inputs);
    let mut out = cx.no_grad(|| match bias {
        Some(bias) if x.geometry().rank() == 2 => addmm_cast(bias, x, &t(weight)),
        _ => {
            let out = matmul_cast(x, &t(weight));
            if let Some(bias) = bias {
                cx.in_place(Op::AddInPlace, &out, &[bias]);
            }
            out
        }
    });
    let (saved_x, saved_weight) = (tape.save(x), tape.save(weight));
    let saved_bias = bias.map(|bias| tape.save(bias));
    tape.record([&mut out], move |g| {
        let (x, weight) = (saved_x.get(), saved_weight.get());
        let bias = saved_bias.as_ref().and_then(crate::tensor::Saved::get);
        let grad = g.grad();
        let rows = |tensor: &Tensor| {
            let last = tensor.size(-1);
            reshape(tensor, &[tensor.numel() / last.max(1), last])
        };
        // Its names hold what was saved until it returns.
        let this = weight.as_ref().filter(|_| g.needs(0)).map(|weight| matmul_cast(grad, weight));
        let of_weight = x.as_ref().filter(|_| g.needs(1)).map(|x| {
            let grad = rows(grad);
            matmul_cast(&t(&grad), &rows(x))
        });
        let of_bias = bias.as_ref().filter(|_| g.needs(2)).map(|bias| {
            let summed = g.cx().launch(Op::SumDimIntList, &[grad]).make_sizes(bias.dims(), g.cx().summed(grad.dtype()));
            let last = grad.dims().len().saturating_sub(1);
            drop(inside::sum(g.cx(), Op::SumDimIntList, grad.geometry(), |dim| dim < last, grad.dtype()));
            summed
        });
        drop((x, weight, bias));
        grads([this, of_weight, of_bias])
    });
    out
}
