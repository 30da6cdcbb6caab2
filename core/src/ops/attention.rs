//! `scaled_dot_product_attention`: which kernel PyTorch picks, and what each keeps and allocates.
//!
//! Selection after `aten/src/ATen/native/transformers/cuda/sdp_utils.cpp`; the kernels' tensors after `attention.cu`,
//! `attention_backward.cu` and the traced rows of PyTorch 2.11.

use super::cast::{lower_precision, to};
use super::elementwise::{add, mul_cpp_scalar};
use super::matmul::matmul_cast;
use super::view::{clone, expand, reshape, transpose, unsqueeze};
use crate::tensor::{Context, DType, Geometry, Gradients, Saved, Tape, Tensor, grads};

/// The kernels behind `scaled_dot_product_attention`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kernel {
    /// cuDNN's fused attention.
    Cudnn,
    /// FlashAttention-2.
    Flash,
    /// Memory-efficient attention (CUTLASS).
    Efficient,
    /// Matmuls and a softmax; every score is kept.
    Math,
}

/// Which kernels a card has, in the order they are tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SdpaRules {
    /// Tried in this order; math always works.
    pub order: Vec<Kernel>,
    /// The largest head cuDNN takes.
    cudnn_head: u64,
    /// Compute capability 8.0 and up: the memory-efficient kernel takes bfloat16, and float32 goes through tensor cores,
    /// which want heads in multiples of 4 (`minimum_gemm_alignment`).
    tensor_cores: bool,
    /// Cards with too little shared memory for flash's backward on large heads.
    small_flash: bool,
}

impl SdpaRules {
    /// The rules of a CUDA card (`priority_order` in `sdp_utils.cpp`, PyTorch 2.11: cuDNN comes first on compute
    /// capability 9.0 and 10.0 with the cuDNN 9.19 its wheels ship; flash needs 8.0).
    pub fn cuda(compute_capability: (u8, u8)) -> Self {
        let order = match compute_capability.0 {
            9 | 10 => vec![Kernel::Cudnn, Kernel::Flash, Kernel::Efficient],
            8 | 11.. => vec![Kernel::Flash, Kernel::Efficient],
            _ => vec![Kernel::Efficient],
        };
        // check_cudnn_tensor_shapes(): 256 on Hopper, 128 elsewhere, asked of PyTorch 2.11 itself.
        let cudnn_head = if compute_capability.0 == 9 { 256 } else { 128 };
        let small_flash = matches!(compute_capability, (8, 6..=9) | (12, _));
        Self { order, cudnn_head, tensor_cores: compute_capability.0 >= 8, small_flash }
    }

    /// ROCm builds: flash and efficient attention come from AOTriton.
    pub fn rocm() -> Self {
        Self { order: vec![Kernel::Flash, Kernel::Efficient], cudnn_head: 0, tensor_cores: true, small_flash: false }
    }

    /// Where no fused kernel is modelled.
    pub fn math_only() -> Self {
        Self { order: Vec::new(), cudnn_head: 0, tensor_cores: false, small_flash: false }
    }

    /// For a mask that requires grad: cuDNN has none for it (`check_for_attn_mask_cudnn` refuses).
    fn without_cudnn(&self) -> Self {
        let order = self.order.iter().copied().filter(|&kernel| kernel != Kernel::Cudnn).collect();
        Self { order, ..self.clone() }
    }

    fn select(&self, q: &Tensor, k: &Tensor, mask: bool, grouped: bool, dropout: f64) -> Kernel {
        let (dtype, head, keys) = (q.dtype(), q.size(-1), k.size(-2));
        // check_requires_grad_and_head_dim_gt192_constraints_on_sm86_89_or_120()
        // ... which asks whether a gradient is wanted at all.
        let too_large = self.small_flash
            && !q.cx().is_inference()
            && ((193..=224).contains(&head) || (head > 224 && dropout > 0.0));
        let fits = |kernel: &Kernel| match kernel {
            Kernel::Cudnn => dtype.is_half() && head <= self.cudnn_head && head.is_multiple_of(8) && keys != 1,
            Kernel::Flash => dtype.is_half() && !mask && head <= 256 && !too_large,
            Kernel::Efficient => {
                let alignment = match (dtype.is_half(), self.tensor_cores) {
                    (true, _) => 8,
                    (false, true) => 4,
                    (false, false) => 1,
                };
                !grouped && head.is_multiple_of(alignment) && (dtype != DType::BFloat16 || self.tensor_cores)
            }
            Kernel::Math => true,
        };
        self.order.iter().copied().find(fits).unwrap_or(Kernel::Math)
    }
}

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
    let (q, k, v) = (lower_precision(q), lower_precision(k), lower_precision(v));
    let rules = if mask.is_some_and(Tensor::requires_grad) { &rules.without_cudnn() } else { rules };
    let grouped = q.size(1) != k.size(1);
    match rules.select(&q, &k, mask.is_some(), grouped, dropout) {
        Kernel::Math => math(&q, &k, &v, mask, dropout, causal),
        Kernel::Flash => flash(&q, &k, &v),
        kernel => {
            let mut mask = mask.map(|m| additive(m, q.dtype()));
            if kernel == Kernel::Efficient {
                mask = mask.map(|m| expand(&pad_mask(&m), &[q.size(0), q.size(1), q.size(2), k.size(2)]));
            }
            fused(kernel, &q, &k, &v, mask.as_ref())
        }
    }
}

/// A boolean mask as zeros and minus infinities (`convert_boolean_attn_mask`).
fn additive(mask: &Tensor, dtype: DType) -> Tensor {
    if mask.dtype() != DType::Bool {
        return mask.clone();
    }
    let out = mask.cx().empty("zeros_like", mask.geometry().preserved(), dtype);
    drop(mask.cx().empty("logical_not", mask.geometry().preserved(), DType::Bool));
    out
}

/// `[batch, heads, seq, dim]` laid out as `[batch, seq, heads, dim]`, as every fused kernel writes its output.
fn by_sequence(b: u64, h: u64, s: u64, d: u64) -> Geometry {
    Geometry::contiguous(&[b, s, h, d]).transposed(1, 2)
}

/// cuDNN matches the query's memory order; the others always write `[batch, seq, heads, dim]`.
fn output_layout(kernel: Kernel, q: &Tensor, d: u64) -> Geometry {
    let (b, h, s) = (q.size(0), q.size(1), q.size(2));
    let heads_first = q.geometry().strides()[1] > q.geometry().strides()[2];
    if kernel == Kernel::Cudnn && heads_first { Geometry::contiguous(&[b, h, s, d]) } else { by_sequence(b, h, s, d) }
}

/// Flash attention pads the head size to a multiple of 8 first (`pad_last_dim`).
fn flash(q: &Tensor, k: &Tensor, v: &Tensor) -> Tensor {
    let head = q.size(-1);
    let padded = head.next_multiple_of(8);
    if padded == head {
        return fused(Kernel::Flash, q, k, v, None);
    }
    let (q, k, v) = (pad_last(q, padded), pad_last(k, padded), pad_last(v, padded));
    super::view::narrow(&fused(Kernel::Flash, &q, &k, &v, None), -1, head)
}

fn pad_last(x: &Tensor, size: u64) -> Tensor {
    let tape = Tape::new(x.cx(), "ConstantPadNdBackward0", &[x]);
    let mut sizes = x.dims().to_vec();
    if let Some(last) = sizes.last_mut() {
        *last = size;
    }
    let mut out = x.cx().empty_sizes("constant_pad_nd", &sizes, x.dtype());
    let from = x.geometry().clone();
    tape.record([&mut out], move |g| {
        grads([Some(g.empty("constant_pad_nd", Geometry::contiguous(from.dims()), g.grad().dtype()))])
    });
    out
}

/// Names of a kernel's forward op, node and backward op.
const fn names(kernel: Kernel) -> (&'static str, &'static str, &'static str) {
    match kernel {
        Kernel::Cudnn => (
            "_scaled_dot_product_cudnn_attention",
            "ScaledDotProductCudnnAttentionBackward0",
            "_scaled_dot_product_cudnn_attention_backward",
        ),
        Kernel::Flash => (
            "_scaled_dot_product_flash_attention",
            "ScaledDotProductFlashAttentionBackward0",
            "_scaled_dot_product_flash_attention_backward",
        ),
        Kernel::Efficient | Kernel::Math => (
            "_scaled_dot_product_efficient_attention",
            "ScaledDotProductEfficientAttentionBackward0",
            "_scaled_dot_product_efficient_attention_backward",
        ),
    }
}

/// A fused kernel: keeps q, k, v, the mask, the output, the log-sum-exp of every row, and the random state.
fn fused(kernel: Kernel, q: &Tensor, k: &Tensor, v: &Tensor, mask: Option<&Tensor>) -> Tensor {
    let (op, node, backward) = names(kernel);
    let cx = q.cx();
    let (b, h, s) = (q.size(0), q.size(1), q.size(2));
    let inputs: Vec<&Tensor> = [Some(q), Some(k), Some(v), mask].into_iter().flatten().collect();
    let tape = Tape::new(cx, node, &inputs);
    let saved = [tape.save(q), tape.save(k), tape.save(v)];
    let saved_mask = mask.map_or(Saved::Nothing, |m| tape.save(m));
    let mut out = cx.empty(op, output_layout(kernel, q, v.size(-1)), q.dtype());
    let rows = match kernel {
        Kernel::Cudnn => Geometry::contiguous(&[b, h, s, 1]),
        Kernel::Flash => Geometry::contiguous(&[b, h, s]),
        // Only where a gradient is wanted (`compute_log_sumexp`).
        Kernel::Efficient if cx.is_inference() => Geometry::contiguous(&[b, h, 0]),
        Kernel::Efficient | Kernel::Math => Geometry::contiguous(&[b, h, s.next_multiple_of(32)]),
    };
    let logsumexp = cx.empty(op, rows, DType::Float32);
    let random = random_state(cx, kernel, op);
    let kept: Vec<Saved> = [&out, &logsumexp].into_iter().chain(&random).map(|t| tape.save(t)).collect();
    drop((logsumexp, random));
    tape.record([&mut out], move |g| {
        let [q, k, v] = [saved[0].unpack(), saved[1].unpack(), saved[2].unpack()];
        let mask = saved_mask.get();
        let _kept: Vec<Tensor> = kept.iter().map(Saved::unpack).collect();
        let gradient = |x: &Tensor| {
            let (b, h, s, d) = (x.size(0), x.size(1), x.size(2), x.size(3));
            let heads_first = x.geometry().strides()[1] > x.geometry().strides()[2];
            let layout = if heads_first && kernel == Kernel::Cudnn {
                Geometry::contiguous(&[b, h, s, d])
            } else {
                by_sequence(b, h, s, d)
            };
            g.empty(backward, layout, x.dtype())
        };
        let mut gradients = grads([Some(gradient(&q)), Some(gradient(&k)), Some(gradient(&v))]);
        if let Some(mask) = mask {
            gradients.push(g.needs(3).then(|| bias_gradient(g, backward, &mask)));
        }
        gradients
    });
    out
}

/// The efficient kernel's gradient of an additive mask: its rows are made a multiple of 16 elements long.
fn bias_gradient(g: &Gradients<'_>, backward: &'static str, mask: &Tensor) -> Tensor {
    const ALIGNMENT: u64 = 16;
    let keys = mask.size(-1);
    let mut sizes = mask.dims().to_vec();
    if let Some(last) = sizes.last_mut() {
        *last = keys.next_multiple_of(ALIGNMENT);
    }
    let whole = g.empty(backward, Geometry::contiguous(&sizes), mask.dtype());
    if sizes == mask.dims() { whole } else { whole.view_as(whole.geometry().narrowed(-1, keys)) }
}

fn random_state(cx: &std::rc::Rc<Context>, kernel: Kernel, op: &'static str) -> [Tensor; 2] {
    match kernel {
        Kernel::Flash => [cx.empty_sizes(op, &[2], DType::UInt64), cx.empty_sizes(op, &[], DType::UInt64)],
        _ => [cx.empty_sizes(op, &[], DType::Int64), cx.empty_sizes(op, &[], DType::Int64)],
    }
}

/// CUTLASS wants the mask's rows in multiples of 8 elements (`pad_bias`).
fn pad_mask(mask: &Tensor) -> Tensor {
    const ALIGNMENT: u64 = 8;
    let keys = mask.size(-1);
    if keys.is_multiple_of(ALIGNMENT) {
        return mask.clone();
    }
    super::view::narrow(&pad_last(mask, keys.next_multiple_of(ALIGNMENT)), -1, keys)
}

/// `_scaled_dot_product_attention_math`.
fn math(q: &Tensor, k: &Tensor, v: &Tensor, mask: Option<&Tensor>, dropout: f64, causal: bool) -> Tensor {
    let origin = q.dtype();
    // Half inputs are computed in float32 unless allow_fp16_bf16_reduction_math_sdp is set (it is not by default).
    let compute = if origin.is_half() { DType::Float32 } else { origin };
    let (q, k, v) = (to(q, compute), to(k, compute), to(v, compute));
    let cx = q.cx();
    let scaled_q = mul_cpp_scalar(&q);
    let mask = if causal { Some(causal_mask(&q, &k)) } else { mask.map(|m| additive(m, compute)) };
    let repeat = q.size(1) / k.size(1).max(1);
    let (keys, values) = (repeat_interleave(&k, repeat), repeat_interleave(&v, repeat));
    let scaled_k = mul_cpp_scalar(&transpose(&keys, -2, -1));
    let mut scores = matmul_cast(&scaled_q, &scaled_k);
    drop(scaled_k);
    if let Some(mask) = &mask {
        // `attn.add_(mask)` on real tensors. Under the fake ones of the reference rows PyTorch takes the other branch and
        // allocates the sum; the old scores die at once, and the peak, three score matrices later on, is the same.
        scores = add(&scores, mask);
    }
    scores = safe_softmax(&scores);
    if dropout > 0.0 {
        scores = super::activation::dropout(&scores, dropout);
    }
    let out = matmul_cast(&scores, &values);
    if origin == compute {
        return out;
    }
    let _attention = cx.no_grad(|| to(&scores, origin));
    to(&out, origin)
}

fn causal_mask(q: &Tensor, k: &Tensor) -> Tensor {
    let cx = q.cx();
    let sizes = [q.size(-2), k.size(-2)];
    let ones = cx.empty_sizes("ones", &sizes, DType::Bool);
    let lower = cx.empty_sizes("tril", &sizes, DType::Bool);
    drop(ones);
    let _zero = cx.empty_sizes("scalar_tensor", &[], q.dtype());
    let _infinity = cx.empty_sizes("scalar_tensor", &[], q.dtype());
    let mask = cx.empty_sizes("where.self", &sizes, q.dtype());
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
    let tape = Tape::new(cx, "SafeSoftmaxBackward0", &[x]);
    let geometry = Geometry::contiguous(x.dims());
    let softmax = cx.empty("_softmax", geometry.clone(), x.dtype());
    let infinite = cx.empty("eq.Scalar", geometry.clone(), DType::Bool);
    let mut rows = x.dims().to_vec();
    if let Some(last) = rows.last_mut() {
        *last = 1;
    }
    let masked = cx.empty_sizes("all.dim", &rows, DType::Bool);
    let zero = cx.empty_sizes("zeros", &[], x.dtype());
    let mut out = cx.empty("where.self", geometry, x.dtype());
    drop((softmax, infinite, masked, zero));
    let saved = tape.save(&out);
    tape.record([&mut out], move |g| {
        let result = saved.unpack();
        grads([Some(g.empty("_softmax_backward_data", Geometry::contiguous(result.dims()), result.dtype()))])
    });
    out
}

#[cfg(test)]
#[path = "attention_tests.rs"]
mod tests;
