//! Liger's kernels in the place of norms, gated activations and rotary positions: liger-kernel 0.8.5, `ops/{rms_norm,swiglu,geglu,rope}.py`.
//! Each is a Python function of autograd that makes what it is given contiguous first, and writes gradients over what is there where
//! it can.

use plimsoll_catalog::families::LigerGate;

use super::inside;
use crate::tensor::{DType, Geometry, Gradients, Tape, Tensor, grads};
use crate::{GradFn, Op};

/// `x.contiguous()` within a function of autograd, which is no node of the graph.
fn contiguous(x: &Tensor) -> Tensor {
    if x.geometry().is_contiguous() {
        x.clone()
    } else {
        x.cx().launch(Op::Clone, &[x]).make_sizes(x.dims(), x.dtype())
    }
}

/// `x.view(-1, x.shape[-1])` of what is contiguous.
fn rows(x: &Tensor) -> Tensor {
    let last = x.size(-1);
    x.view_as(Geometry::contiguous(&[x.numel() / last.max(1), last]))
}

/// `LigerRMSNormFunction`: what comes out has the dtype of `x`, whatever `weight` has. It keeps `x`, `weight` and 1/rms of every row in
/// float32. The gradient of `weight` is summed over a row for each multiprocessor; that of `x` is written over the one that came
/// where `in_place` says so.
pub fn liger_rms_norm(x: &Tensor, weight: &Tensor, in_place: bool) -> Tensor {
    let cx = x.cx();
    let tape = Tape::new(cx, GradFn::LigerRMSNormFunctionBackward, &[x, weight]);
    let given = contiguous(x);
    let flat = rows(&given);
    let mut launch = cx.launch(Op::LigerRmsNorm, &[&given, weight]);
    let mut out = launch.make_sizes(x.dims(), x.dtype());
    let rstd = launch.make_sizes(&[flat.size(0)], DType::Float32);
    drop(launch);
    let saved = [tape.save(&flat), tape.save(weight), tape.save(&rstd)];
    drop((rstd, flat, given));
    tape.record([&mut out], move |g| {
        let grad = contiguous(g.grad());
        let [x, weight, rstd] = [saved[0].unpack(), saved[1].unpack(), saved[2].unpack()];
        let (cx, features) = (g.cx(), x.size(-1));
        let parts = Geometry::contiguous(&[cx.machine().multiprocessors.max(1), features]);
        let partial = g.needs(1).then(|| cx.empty_sizes(Op::EmptyMemoryFormat, parts.dims(), DType::Float32));
        // `dX.view(*shape)`: no sum is written over it.
        let input = if in_place { grad.clone() } else { cx.launch(Op::ZerosLike, &[]).make_like(&grad) };
        let input = input.view_as(Geometry::contiguous(grad.dims()));
        let mut launch = cx.launch(Op::LigerRmsNormBackward, &[&grad, &x, &weight, &rstd]).over(&input);
        if let Some(partial) = &partial {
            launch = launch.over(partial);
        }
        drop(launch);
        let summed = partial.map(|partial| {
            let total = cx.launch(Op::SumDimIntList, &[&partial]).make_sizes(&[features], DType::Float32);
            drop(inside::sum(cx, Op::SumDimIntList, partial.geometry(), |dim| dim == 0, DType::Float32));
            super::to(&total, weight.dtype())
        });
        // Its input needs no gradient where nothing before it is trained.
        grads([g.needs(0).then_some(input), summed])
    });
    out
}

/// `act(gate) * up`: it keeps both, and writes their gradients over them.
pub fn liger_gated(gate: &Tensor, up: &Tensor, act: LigerGate) -> Tensor {
    let cx = gate.cx();
    let (node, op, back) = match act {
        LigerGate::Silu => (GradFn::LigerSiLUMulFunctionBackward, Op::LigerSiluMul, Op::LigerSiluMulBackward),
        LigerGate::Gelu => (GradFn::LigerGELUMulFunctionBackward, Op::LigerGeluMul, Op::LigerGeluMulBackward),
    };
    let tape = Tape::new(cx, node, &[gate, up]);
    let given = [contiguous(gate), contiguous(up)];
    let flat = [rows(&given[0]), rows(&given[1])];
    let mut out = cx.launch(op, &[&given[0], &given[1]]).make_sizes(gate.dims(), gate.dtype());
    let saved = [tape.save(&flat[0]), tape.save(&flat[1])];
    drop((flat, given));
    tape.record([&mut out], move |g| {
        let grad = contiguous(g.grad());
        let both = [saved[0].unpack(), saved[1].unpack()];
        drop(g.cx().launch(back, &[&grad, &both[0], &both[1]]).over(&both[0]).over(&both[1]));
        let sizes = Geometry::contiguous(grad.dims());
        let [gate, up] = both.map(|x| x.view_as(sizes.clone()));
        grads([g.needs(0).then_some(gate), g.needs(1).then_some(up)])
    });
    out
}

/// `LigerRopeFunction`: queries and keys `[batch, heads, seq, dim]` are turned where they lie, or where heads do not lie next to one
/// another in a copy. It keeps cosines and sines.
pub fn liger_rope(query: &Tensor, key: &Tensor, cos: &Tensor, sin: &Tensor) -> (Tensor, Tensor) {
    let cx = query.cx();
    let tape = Tape::new(cx, GradFn::LigerRopeFunctionBackward, &[query, key]);
    let (mut turned, mut turned_key) = (physical(query), physical(key));
    let angles = [contiguous(cos), contiguous(sin)];
    drop(cx.launch(Op::LigerRope, &[&turned, &turned_key, cos, sin]).over(&turned).over(&turned_key));
    let saved = [tape.save(&angles[0]), tape.save(&angles[1])];
    drop(angles);
    tape.record([&mut turned, &mut turned_key], move |g| {
        let angles = [saved[0].unpack(), saved[1].unpack()];
        let turn = |g: &Gradients<'_>, i: usize| g.get(i).map(physical);
        let (query, key) = (turn(g, 0), turn(g, 1));
        let both: Vec<&Tensor> = query.iter().chain(&key).chain(&angles).collect();
        let mut launch = g.cx().launch(Op::LigerRope, &both);
        for gradient in query.iter().chain(&key) {
            launch = launch.over(gradient);
        }
        drop(launch);
        grads([query.filter(|_| g.needs(0)), key.filter(|_| g.needs(1))])
    });
    (turned, turned_key)
}

/// `x.transpose(1, 2).contiguous().transpose(1, 2)`.
fn physical(x: &Tensor) -> Tensor {
    let swapped = |x: &Tensor| x.view_as(x.geometry().transposed(1, 2));
    swapped(&contiguous(&swapped(x)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::{neg, transpose, view};
    use crate::tensor::testing::{
        activation_of, alive, backward_of, forward, frozen_of, gradient, made, watch, weight_of,
    };
    use crate::tensor::{DType, Kind, Machine};

    const BF16: DType = DType::BFloat16;

    /// What came in float32 comes out in float32, of a weight in 16 bits too; kept are the input and a number for each row.
    #[test]
    fn a_norm_keeps_its_input_and_a_number_for_each_row() {
        let cx = forward();
        cx.set_machine(Machine { multiprocessors: 7, ..cx.machine() });
        let (x, scale) = (neg(&activation_of(&cx, &[2, 3, 8], DType::Float32)), weight_of(&cx, &[8], BF16));
        let (events, out) = watch(&cx, || liger_rms_norm(&x, &scale, true));
        drop(x);
        assert_eq!(events, ["+_rms_norm_forward_kernel [2, 3, 8] float32", "+_rms_norm_forward_kernel [6] float32"]);
        assert_eq!(alive(&cx, Kind::Saved), ["neg [2, 3, 8] float32", "_rms_norm_forward_kernel [6] float32"]);
        let backward = backward_of(out);
        // A row for each multiprocessor, their sum, and that in the weight's dtype; the input's gradient is the one that came.
        assert_eq!(made(&backward), ["ones_like", "empty.memory_format", "sum.dim_IntList", "_to_copy", "neg"]);
        assert!(backward.contains(&"+empty.memory_format [7, 8] float32".to_owned()), "{backward:?}");
        assert_eq!(gradient(&scale).map(|g| g.dims().to_vec()), Some(vec![8]));
    }

    #[test]
    fn a_frozen_norm_sums_nothing_and_one_whose_gradient_is_needed_again_makes_another() {
        let cx = forward();
        let (x, scale) = (neg(&activation_of(&cx, &[4, 8], BF16)), frozen_of(&cx, &[8], BF16));
        let out = liger_rms_norm(&x, &scale, false);
        drop(x);
        assert_eq!(made(&backward_of(out)), ["ones_like", "zeros_like", "neg"]);
    }

    /// Gradients are written over what was kept: backward makes nothing.
    #[test]
    fn a_gated_activation_keeps_two_tensors_and_makes_no_gradients() {
        let cx = forward();
        let (gate, up) = (neg(&activation_of(&cx, &[4, 8], BF16)), neg(&activation_of(&cx, &[4, 8], BF16)));
        let (events, out) = watch(&cx, || liger_gated(&gate, &up, LigerGate::Silu));
        drop((gate, up));
        assert_eq!(events, ["+_swiglu_forward_kernel [4, 8] bfloat16"]);
        assert_eq!(alive(&cx, Kind::Saved), ["neg [4, 8] bfloat16"; 2]);
        assert_eq!(made(&backward_of(out)), ["ones_like", "neg", "neg"]);
    }

    /// Heads that lie next to one another in a token are turned where they are, forward and backward; others in a copy.
    #[test]
    fn positions_are_turned_where_they_lie() {
        let cx = forward();
        let angles = [0, 1].map(|_| activation_of(&cx, &[1, 4, 8], BF16).detach());
        let projected = |heads: u64| neg(&activation_of(&cx, &[1, 4, heads * 8], BF16));
        let heads = |x: &Tensor| transpose(&view(x, &[1, 4, x.size(-1) / 8, 8]), 1, 2);
        let (query, key) = (heads(&projected(3)), heads(&projected(2)));
        let (events, turned) = watch(&cx, || liger_rope(&query, &key, &angles[0], &angles[1]));
        assert!(events.is_empty(), "{events:?}");
        assert_eq!(turned.0.geometry(), query.geometry());
        // What comes back lies as tokens do. Keys that nobody looked at have none.
        let tokens = view(&transpose(&turned.0, 1, 2), &[1, 4, 24]);
        drop((query, key, turned));
        assert_eq!(made(&backward_of(tokens)), ["ones_like", "neg"]);

        let whole = [0, 1].map(|_| neg(&activation_of(&cx, &[1, 2, 4, 8], BF16)));
        let (events, _turned) = watch(&cx, || liger_rope(&whole[0], &whole[1], &angles[0], &angles[1]));
        assert_eq!(events, ["+clone [1, 4, 2, 8] bfloat16"; 2]);
    }
}
