//! `scaled_dot_product_attention`: what each of its kernels keeps and allocates.
//!
//! After `attention.cu`, `attention_backward.cu` (`aten/src/ATen/native/transformers/cuda`) and the traced rows of PyTorch
//! 2.11. What the kernels take for themselves is in [`super::inside`].

use std::rc::Rc;

use super::attention_mask::{check_mask, pad_mask};
use super::cast::{lower_precision, to};
use super::elementwise::{add, mul_cpp_scalar};
use super::inplace::add_in_place;
use super::inside;
use super::matmul::matmul_cast;
use super::pad::pad_last;
use super::sdpa_rules::{Call, Kernel, SdpaRules};
use super::softmax::softmax_to;
use super::told::is_held;
use super::view::{clone, expand, reshape, transpose, unsqueeze};
use crate::tensor::{Context, DType, Geometry, Kernels, Launch, Saved, Tape, Tensor, grads};
use crate::{GradFn, Op};
use plimsoll_catalog::software::rules;

/// `scaled_dot_product_attention(q, k, v, mask, dropout_p, is_causal, enable_gqa)` on `[batch, heads, seq, dim]`;
/// `mask` is boolean or of q's dtype. On autocast's lower-precision list.
pub fn scaled_dot_product_attention(
    rules: &SdpaRules,
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    mask: Option<&Tensor>,
    dropout: f64,
    causal: bool,
) -> Tensor {
    let dropout = if q.cx().is_inference() { 0.0 } else { dropout };
    let mask = mask.map(lower_precision);
    let mask = mask.as_ref();
    let [q, k, v] = cast([q, k, v]);
    let call = Call {
        dtype: q.dtype(),
        head: q.size(-1),
        value_head: v.size(-1),
        keys: k.size(-2),
        grouped: q.size(1) != k.size(1),
        mask: mask.is_some(),
        mask_gradient: mask.is_some_and(Tensor::requires_grad),
        mask_strided: mask.is_some_and(|m| m.geometry().strides().last() != Some(&1)),
        dropout: dropout > 0.0,
        // `input_requires_grad` in sdp_utils.h.
        gradient: !q.cx().is_inference() && [&q, &k, &v].iter().any(|x| x.requires_grad()),
    };
    match rules.select(&call) {
        Kernel::Math => {
            let mask = mask.map(|m| additive(m, q.dtype()));
            math(&q, &k, &v, mask.as_ref(), dropout, causal, call.grouped)
        }
        Kernel::Flash => flash(&q, &k, &v, call.dropout),
        kernel => {
            let mut mask = mask.map(|m| additive(m, q.dtype()));
            if kernel == Kernel::Efficient {
                mask = mask.map(|m| expand(&pad_mask(&m), &[q.size(0), q.size(1), q.size(2), k.size(2)]));
            }
            fused(kernel, &q, &k, &v, mask.as_ref(), call.dropout)
        }
    }
}

/// Autocast's copies: the arguments of a call are evaluated from the last to the first, as in matrix products.
fn cast([q, k, v]: [&Tensor; 3]) -> [Tensor; 3] {
    let v = lower_precision(v);
    let k = lower_precision(k);
    [lower_precision(q), k, v]
}

/// `scaled_dot_product_attention(q, k, v, mask, dropout_p, is_causal)` without `enable_gqa` though keys have one head and queries
/// many: no fused kernel takes that (`check_batch_size_and_num_heads_dense`), and the products broadcast.
pub fn ungrouped_dot_product_attention(
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    mask: Option<&Tensor>,
    dropout: f64,
    causal: bool,
) -> Tensor {
    let mask = mask.map(lower_precision);
    let [q, k, v] = cast([q, k, v]);
    let mask = mask.map(|m| additive(&m, q.dtype()));
    math(&q, &k, &v, mask.as_ref(), dropout, causal, false)
}

/// A boolean mask as zeros and minus infinities (`convert_boolean_attn_mask`): chosen from two numbers on a card; the fake
/// tensors of the reference rows fill zeros where it is false.
fn additive(mask: &Tensor, dtype: DType) -> Tensor {
    if mask.dtype() != DType::Bool {
        return mask.clone();
    }
    let cx = mask.cx();
    if cx.machine().kernels.is_counted() {
        let number = || cx.launch(Op::ScalarTensor, &[]).make_sizes(&[], dtype);
        let numbers = [number(), number()];
        let [one, other] = &numbers;
        return cx.launch(Op::WhereSelf, &[mask, one, other]).make(mask.geometry().preserved(), dtype);
    }
    let out = cx.launch(Op::ZerosLike, &[]).make(mask.geometry().preserved(), dtype);
    let hidden = cx.launch(Op::LogicalNot, &[mask]).make(mask.geometry().preserved(), DType::Bool);
    cx.in_place(Op::MaskedFillInPlace, &out, &[&hidden]);
    drop(hidden);
    out
}

/// `[batch, heads, seq, dim]` laid out as `[batch, seq, heads, dim]`, as every fused kernel writes its output.
fn by_sequence(b: u64, h: u64, s: u64, d: u64) -> Geometry {
    Geometry::contiguous(&[b, s, h, d]).transposed(1, 2)
}

/// What a kernel writes for `x` lies in x's own memory order (cuDNN, and flash with its `empty_like`); the efficient one
/// always writes `[batch, seq, heads, dim]`.
fn layout(kernel: Kernel, x: &Tensor, d: u64) -> Geometry {
    let (b, h, s) = (x.size(0), x.size(1), x.size(2));
    let heads_first = x.geometry().strides()[1] > x.geometry().strides()[2];
    let matches = matches!(kernel, Kernel::Cudnn | Kernel::Flash);
    if matches && heads_first { Geometry::contiguous(&[b, h, s, d]) } else { by_sequence(b, h, s, d) }
}

/// Whether `[batch, heads, seq, dim]` is a contiguous `[batch, seq, heads, dim]`.
pub(super) fn is_by_sequence(x: &Geometry) -> bool {
    x.rank() == 4 && x.permuted(&[0, 2, 1, 3]).is_contiguous()
}

/// Flash attention pads the head size to a multiple of 8 first (`pad_last_dim`).
fn flash(q: &Tensor, k: &Tensor, v: &Tensor, drops: bool) -> Tensor {
    let head = q.size(-1);
    let padded = head.next_multiple_of(8);
    if padded == head {
        return fused(Kernel::Flash, q, k, v, None, drops);
    }
    let (q, k, v) = (pad_last(q, padded), pad_last(k, padded), pad_last(v, padded));
    super::view::narrow(&fused(Kernel::Flash, &q, &k, &v, None, drops), -1, head)
}

/// Names of a kernel's forward op, node and backward op.
const fn names(kernel: Kernel) -> (Op, GradFn, Op) {
    match kernel {
        Kernel::Cudnn => (
            Op::ScaledDotProductCudnnAttention,
            GradFn::ScaledDotProductCudnnAttentionBackward0,
            Op::ScaledDotProductCudnnAttentionBackward,
        ),
        Kernel::Flash => (
            Op::ScaledDotProductFlashAttention,
            GradFn::ScaledDotProductFlashAttentionBackward0,
            Op::ScaledDotProductFlashAttentionBackward,
        ),
        Kernel::Efficient | Kernel::Math => (
            Op::ScaledDotProductEfficientAttention,
            GradFn::ScaledDotProductEfficientAttentionBackward0,
            Op::ScaledDotProductEfficientAttentionBackward,
        ),
    }
}

impl Kernel {
    /// The kernel whose backward is the operator of this name.
    pub fn of_backward(name: &str) -> Option<Self> {
        [Self::Cudnn, Self::Flash, Self::Efficient].into_iter().find(|kernel| names(*kernel).2.name() == name)
    }
}

/// What a kernel's backward holds while it runs, where a recording has just told of the gradients that it made: `queries` and `keys`
/// are the sizes of theirs, `[batch, heads, seq, dim]`.
pub fn attention_backward_told(cx: &Rc<Context>, kernel: Kernel, queries: &[u64], keys: &[u64], dtype: DType) {
    let (&[batch, heads, rows, head], &[_, kv_heads, columns, _]) = (queries, keys) else { return };
    if !is_held(queries, &[]) || !is_held(keys, &[]) {
        return;
    }
    let sizes = inside::Sizes { batch, heads, kv_heads, queries: rows, keys: columns, head, value: head };
    drop(inside::attention_backward(cx, names(kernel).2, kernel, sizes, dtype));
}

/// Operations of one of attention's products: of queries with keys, `head` being theirs, or of scores with values, `head`
/// being theirs: for every head of the queries, all queries with all keys. What a causal mask leaves out is counted, as `torch.utils.flop_counter` does; grouped heads, which it refuses, are
/// counted as if every head of the queries had keys of its own, which is what the kernels do.
fn product_flops(q: &Tensor, k: &Tensor, head: u64) -> u64 {
    (q.size(0) * q.size(1)).saturating_mul(q.size(-2)).saturating_mul(head).saturating_mul(k.size(-2)).saturating_mul(2)
}

/// A fused kernel: keeps q, k, v, the mask, the output, the log-sum-exp of every row, and the random state.
fn fused(kernel: Kernel, q: &Tensor, k: &Tensor, v: &Tensor, mask: Option<&Tensor>, drops: bool) -> Tensor {
    let (op, node, backward) = names(kernel);
    let cx = q.cx();
    let (b, h, s) = (q.size(0), q.size(1), q.size(2));
    let inputs: Vec<&Tensor> = [Some(q), Some(k), Some(v), mask].into_iter().flatten().collect();
    let tape = Tape::new(cx, node, &inputs);
    let wanted = (0..3).any(|input| tape.needs(input));
    let saved_mask = mask.map_or(Saved::Nothing, |m| tape.save(m));
    let saved = [tape.save(k), tape.save(q), tape.save(v)];
    let (scores, outputs) = (product_flops(q, k, q.size(-1)), product_flops(q, k, v.size(-1)));
    let backward_flops = scores.saturating_mul(3).saturating_add(outputs.saturating_mul(2));
    let (head, value) = (q.size(-1), v.size(-1));
    let sizes = inside::Sizes { batch: b, heads: h, kv_heads: k.size(1), queries: s, keys: k.size(2), head, value };
    let mut results = cx.kept(op, || {
        let mut launch = cx.launch(op, &inputs).flops(scores.saturating_add(outputs));
        // cuDNN's is made before its output (`_cudnn_attention_forward` in attention.cu); the fake tensors of the reference
        // rows have it afterwards.
        let early = (kernel == Kernel::Cudnn && cx.machine().kernels.is_counted())
            .then(|| random_state(cx, &mut launch, kernel, drops));
        let out = launch.make(layout(kernel, q, v.size(-1)), q.dtype());
        let rows = match kernel {
            // `compute_logsumexp` of `_cudnn_attention_forward` (attention.cu); fake tensors have them always.
            Kernel::Cudnn if !wanted && cx.machine().kernels.is_counted() => Geometry::contiguous(&[b, h, 0, 1]),
            Kernel::Cudnn => Geometry::contiguous(&[b, h, s, 1]),
            Kernel::Flash => Geometry::contiguous(&[b, h, s]),
            // Only where one of them wants a gradient (`should_compute_logsumexp` in attention.cpp): with adapters behind it
            // the first layer's does not.
            Kernel::Efficient if !wanted => Geometry::contiguous(&[b, h, 0]),
            Kernel::Efficient | Kernel::Math => Geometry::contiguous(&[b, h, s.next_multiple_of(32)]),
        };
        let logsumexp = launch.make(rows, DType::Float32);
        match kernel {
            Kernel::Efficient => drop(inside::attention_forward(cx, op, [b, s, h, v.size(-1)], q.dtype())),
            Kernel::Cudnn => drop(inside::cudnn_forward(cx, op, sizes)),
            Kernel::Flash | Kernel::Math => {}
        }
        let shared = if kernel == Kernel::Flash && !drops { inside::shared_keys(cx, op, sizes) } else { None };
        let random = early.unwrap_or_else(|| random_state(cx, &mut launch, kernel, drops));
        drop((launch, shared));
        [vec![logsumexp, out], random].concat()
    });
    // The node lets go of them by their names' order, inputs first: the mask, key, query, value, log_sumexp, output
    // (`release_variables` in the generated Functions.cpp).
    let kept: Vec<Saved> = results.iter().map(|t| tape.save(t)).collect();
    if results.len() == 2 {
        // Its random state is two numbers that are not on the card.
        tape.save_nothing();
        tape.save_nothing();
    }
    let mut out = results.remove(1);
    drop(results);
    let q_dtype = q.dtype();
    tape.record([&mut out], move |g| {
        let mask = saved_mask.get();
        if let Some(mask) = mask.as_ref().filter(|_| kernel == Kernel::Efficient) {
            check_mask(mask, q_dtype);
        }
        let [k, q, v] = [saved[0].unpack(), saved[1].unpack(), saved[2].unpack()];
        let kept: Vec<Tensor> = kept.iter().map(Saved::unpack).collect();
        let operands: Vec<&Tensor> = [g.grad(), &q, &k, &v].into_iter().chain(&mask).chain(&kept).collect();
        let mut launch = g.cx().launch(backward, &operands).flops(backward_flops);
        // `contiguous_grad_out` and `contiguous_out` of _flash_attention_backward, which looks at them as `[batch, seq, heads, dim]`, and
        // `grad_out` of _efficient_attention_backward. Nobody sees them from outside.
        let inner = matches!(g.cx().machine().kernels, Kernels::Cuda(..));
        let output = kept.get(1).filter(|_| kernel == Kernel::Flash);
        let incoming = matches!(kernel, Kernel::Flash | Kernel::Efficient).then(|| g.grad());
        let contiguous: Vec<Tensor> = [incoming, output]
            .into_iter()
            .flatten()
            .filter(|x| inner && !is_by_sequence(x.geometry()))
            .map(|x| launch.make(by_sequence(x.size(0), x.size(1), x.size(2), x.size(3)), x.dtype()))
            .collect();
        let mut gradient = |x: &Tensor| launch.make(layout(kernel, x, x.size(3)), x.dtype());
        let mut gradients = grads([Some(gradient(&q)), Some(gradient(&k)), Some(gradient(&v))]);
        if let Some(mask) = &mask {
            gradients.push(g.needs(3).then(|| bias_gradient(&mut launch, mask)));
        }
        drop(launch);
        drop(inside::attention_backward(g.cx(), backward, kernel, sizes, q.dtype()));
        drop(contiguous);
        gradients
    });
    out
}

/// The efficient kernel's gradient of an additive mask: its rows are made a multiple of 16 elements long.
fn bias_gradient(launch: &mut Launch<'_>, mask: &Tensor) -> Tensor {
    const ALIGNMENT: u64 = 16;
    let keys = mask.size(-1);
    let mut sizes = mask.dims().to_vec();
    if let Some(last) = sizes.last_mut() {
        *last = keys.next_multiple_of(ALIGNMENT);
    }
    let whole = launch.make_sizes(&sizes, mask.dtype());
    if sizes == mask.dims() { whole } else { whole.view_as(whole.geometry().narrowed(-1, keys)) }
}

/// What drew the probabilities that were dropped. The efficient kernel's two numbers lie on the host
/// (`_efficient_attention_forward` in attention.cu, but for graph captures), from the version of the rule on with dropout only; the
/// fake tensors of the reference rows have them on the card.
fn random_state(cx: &Context, launch: &mut Launch<'_>, kernel: Kernel, drops: bool) -> Vec<Tensor> {
    let machine = cx.machine();
    let counted = matches!(machine.kernels, Kernels::Cuda(..));
    match kernel {
        Kernel::Flash if counted && !machine.rules.has(&rules::FLASH_STATE) => Vec::new(),
        Kernel::Flash => {
            let state = launch.make_sizes(&[2], DType::UInt64);
            let unused = launch.make_sizes(&[], DType::UInt64);
            // With dropout it is made again, and the first goes (`mha_fwd` in flash_api.cpp).
            let drawn = if counted && drops { launch.make_sizes(&[2], DType::UInt64) } else { state };
            vec![drawn, unused]
        }
        Kernel::Efficient if counted && (drops || !machine.rules.has(&rules::EFFICIENT_STATE)) => Vec::new(),
        _ => vec![launch.make_sizes(&[], DType::Int64), launch.make_sizes(&[], DType::Int64)],
    }
}

/// `_scaled_dot_product_attention_math`.
fn math(
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    mask: Option<&Tensor>,
    dropout: f64,
    causal: bool,
    grouped: bool,
) -> Tensor {
    let origin = q.dtype();
    let safe = q.cx().machine().rules.has(&rules::MATH_IN_FLOAT32);
    // Half inputs are computed in float32 unless allow_fp16_bf16_reduction_math_sdp is set (it is not by default).
    let compute = if origin.is_half() && safe { DType::Float32 } else { origin };
    let (q, k, v) = (to(q, compute), to(k, compute), to(v, compute));
    let cx = q.cx();
    let scaled_q = mul_cpp_scalar(&q);
    let mask = if causal { Some(causal_mask(&q, &k)) } else { mask.cloned() };
    let repeat = if grouped { q.size(1) / k.size(1).max(1) } else { 1 };
    let (keys, values) = (repeat_interleave(&k, repeat), repeat_interleave(&v, repeat));
    let scaled_k = mul_cpp_scalar(&transpose(&keys, -2, -1));
    let mut scores = matmul_cast(&scaled_q, &scaled_k);
    drop(scaled_k);
    if let Some(mask) = &mask {
        // `attn.add_(mask)` on real tensors. Under a dispatch mode, such as that of the fake tensors of the reference rows,
        // PyTorch takes the other branch and allocates the sum.
        let in_place = cx.machine().kernels.is_counted() && !cx.is_dispatched();
        scores = if in_place { add_in_place(scores, mask) } else { add(&scores, mask) };
    }
    scores = if safe { safe_softmax(&scores) } else { softmax_to(&scores, scores.dtype()) };
    if dropout > 0.0 {
        scores = super::activation::dropout(&scores, dropout);
    }
    if origin == compute {
        return matmul_cast(&scores, &values);
    }
    // The compiler evaluates a call's arguments from the last to the first: the probabilities are returned as well.
    let _attention = cx.no_grad(|| to(&scores, origin));
    to(&matmul_cast(&scores, &values), origin)
}

fn causal_mask(q: &Tensor, k: &Tensor) -> Tensor {
    let cx = q.cx();
    let sizes = [q.size(-2), k.size(-2)];
    let ones = cx.launch(Op::Ones, &[]).make_sizes(&sizes, DType::Bool);
    let lower = cx.launch(Op::Tril, &[&ones]).make_sizes(&sizes, DType::Bool);
    drop(ones);
    if !cx.machine().rules.has(&rules::MATH_IN_FLOAT32) {
        // `new_attn_mask.masked_fill_(attn_mask.logical_not(), -inf)`
        let mask = cx.launch(Op::ZerosLike, &[]).of(q.dtype()).make_sizes(&sizes, q.dtype());
        let upper = cx.launch(Op::LogicalNot, &[&lower]).make_sizes(&sizes, DType::Bool);
        cx.in_place(Op::MaskedFillInPlace, &mask, &[&upper]);
        drop((upper, lower));
        return mask;
    }
    let _zero = cx.launch(Op::ScalarTensor, &[]).make_sizes(&[], q.dtype());
    let inverts = !cx.machine().rules.has(&rules::MATH_WRITES_OVER);
    let _upper = inverts.then(|| cx.launch(Op::LogicalNot, &[&lower]).make_sizes(&sizes, DType::Bool));
    let _infinity = cx.launch(Op::ScalarTensor, &[]).make_sizes(&[], q.dtype());
    let mask = cx.launch(Op::WhereSelf, &[&lower]).of(q.dtype()).make_sizes(&sizes, q.dtype());
    drop(lower);
    mask
}

/// `repeat_interleave(n, dim=-3)` of keys or values.
fn repeat_interleave(x: &Tensor, n: u64) -> Tensor {
    if n == 1 {
        return x.clone();
    }
    let [b, h, s, d] = [x.size(0), x.size(1), x.size(2), x.size(3)];
    reshape(&clone(&expand(&unsqueeze(x, 2), &[b, h, n, s, d])), &[b, h * n, s, d])
}

/// `_safe_softmax`: a softmax whose fully masked rows become zero; keeps the corrected result.
fn safe_softmax(x: &Tensor) -> Tensor {
    let cx = x.cx();
    let tape = Tape::new(cx, GradFn::SafeSoftmaxBackward0, &[x]);
    let geometry = Geometry::contiguous(x.dims());
    let softmax = cx.launch(Op::Softmax, &[x]).make(geometry.clone(), x.dtype());
    let scalar = || cx.launch(Op::ScalarTensor, &[]).make_sizes(&[], x.dtype());
    // At first the numbers compared with and put in were tensors, and the result was a third.
    let writes_over = cx.machine().rules.has(&rules::MATH_WRITES_OVER);
    let _infinity = (!writes_over).then(scalar);
    let infinite = cx.launch(Op::EqScalar, &[x]).make(geometry.clone(), DType::Bool);
    let mut rows = x.dims().to_vec();
    if let Some(last) = rows.last_mut() {
        *last = 1;
    }
    let masked = cx.launch(Op::AllDim, &[&infinite]).make_sizes(&rows, DType::Bool);
    let zero = cx.launch(Op::Zeros, &[]).make_sizes(&[], x.dtype());
    // C++ writes the result into the softmax (`out.masked_fill_`); what the reference rows ran, in Python, does not.
    let mut out = if cx.machine().kernels.is_counted() && writes_over {
        cx.in_place(Op::MaskedFillInPlace, &softmax, &[&masked]);
        drop((zero, masked, infinite));
        softmax
    } else {
        let out = cx.launch(Op::WhereSelf, &[&softmax, &masked, &zero]).make(geometry, x.dtype());
        drop((softmax, infinite, masked, zero));
        out
    };
    let saved = tape.save(&out);
    tape.record([&mut out], move |g| {
        let result = saved.unpack();
        let (op, geometry) = (Op::SoftmaxBackwardData, Geometry::contiguous(result.dims()));
        let gradient = g.make(op, &[g.grad(), &result], geometry, result.dtype());
        drop(inside::softmax_backward(g.cx(), op, result.dims(), result.dtype()));
        grads([Some(gradient)])
    });
    out
}

#[cfg(test)]
#[path = "attention_tests.rs"]
mod tests;
