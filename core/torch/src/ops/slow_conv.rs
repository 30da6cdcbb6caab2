//! Convolutions that cuDNN does not take: in bfloat16 before Ampere (`ConvParams::use_cudnn` in
//! `aten/src/ATen/native/Convolution.cpp`). What each sample's windows hold is laid into the columns of a matrix, which is multiplied
//! (`slow_conv2d_forward` and `slow_conv2d_backward` in `aten/src/ATen/native/cuda/ConvolutionMM2d.cu`). Filters of one channel each
//! have a kernel of their own, which takes and makes what cuDNN does, or row-major copies, by version (`DepthwiseConv2d.cu`).

use super::inside::{self, Scratch};
use crate::Op;
use crate::tensor::{DType, Gradients, Grads, Kernels, Launch, Tensor, grads};

/// Whose kernels run a convolution (`ConvBackend`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Backend {
    /// cuDNN's, or what is not followed.
    Cudnn,
    /// A filter for each channel.
    Depthwise,
    /// A matrix product for each sample.
    Columns,
}

impl Backend {
    /// Of this input and weight. A convolution over a line is one over an image of height 1.
    pub fn of(x: &Tensor, weight: &Tensor) -> Self {
        let old = matches!(x.cx().machine().kernels, Kernels::Cuda(..8, _));
        if !old || x.dtype() != DType::BFloat16 {
            return Self::Cudnn;
        }
        let groups = groups(x, weight);
        if groups > 1 && groups == x.size(1) && weight.size(0).is_multiple_of(groups) {
            Self::Depthwise
        } else {
            Self::Columns
        }
    }
}

/// A row-major copy of what is given.
pub(super) fn rows(op: Op, x: &Tensor) -> Option<Scratch<'_>> {
    Scratch::contiguous(x.cx(), op, x.geometry(), x.dtype())
}

/// In how many groups the channels lie.
pub(super) fn groups(x: &Tensor, weight: &Tensor) -> u64 {
    x.size(1) / weight.size(1).max(1)
}

/// These sizes with a group's share of the channels.
fn share(sizes: &[u64], groups: u64) -> Vec<u64> {
    let mut sizes = sizes.to_vec();
    if let Some(channels) = sizes.get_mut(1) {
        *channels /= groups;
    }
    sizes
}

/// Whether a filter reads one place, and every place (`requires_columns`): then a sample is its own columns.
pub(super) fn is_pointwise(weight: &Tensor, stride: u64, padding: u64) -> bool {
    stride == 1 && padding == 0 && weight.dims().iter().skip(2).all(|&size| size == 1)
}

/// `columns`, of one group and one sample of what is made of `sizes`.
fn columns(weight: &Tensor, sizes: &[u64]) -> [u64; 2] {
    [weight.numel() / weight.size(0).max(1), sizes.iter().skip(2).product()]
}

/// The forward, which makes what `launch` is for.
pub(super) fn forward(launch: &mut Launch<'_>, x: &Tensor, weight: &Tensor, sizes: &[u64], pointwise: bool) -> Tensor {
    let cx = x.cx();
    let scratch = |sizes: &[u64]| Scratch::converted(cx, Op::Convolution, sizes, x.dtype());
    let rows = rows(Op::Convolution, x);
    let (groups, columns) = (groups(x, weight), columns(weight, sizes));
    let columns = || if pointwise { None } else { scratch(&columns) };
    if groups == 1 {
        let out = launch.make_sizes(sizes, x.dtype());
        let columns = columns();
        cx.blas();
        drop((columns, rows));
        return out;
    }
    // Each group by itself (`subtensor`): what is given of it is copied where it lies in parts.
    let mut parts = Vec::new();
    for _ in 0..groups {
        let given = if x.size(0) > 1 { scratch(&share(x.dims(), groups)) } else { None };
        parts.push(scratch(&share(sizes, groups)));
        let columns = columns();
        cx.blas();
        drop((columns, given));
    }
    let out = launch.make_sizes(sizes, x.dtype());
    drop((parts, rows));
    out
}

/// The backward, which makes the gradients of input, weight and, where it has one, bias that `launch` is for. The input's comes out of
/// columns whatever the filter.
pub(super) fn backward(
    g: &Gradients<'_>,
    launch: &mut Launch<'_>,
    [x, weight]: [&Tensor; 2],
    bias: bool,
    pointwise: bool,
) -> Grads {
    const OP: Op = Op::ConvolutionBackward;
    let (cx, grad) = (g.cx(), g.grad());
    let scratch = |sizes: &[u64]| Scratch::converted(cx, OP, sizes, x.dtype());
    let copied = rows(OP, x);
    let (groups, columns) = (groups(x, weight), columns(weight, grad.dims()));
    let wants_bias = bias && g.needs(2);
    let summed = || drop(inside::sum(cx, OP, grad.geometry(), |i| i != 1, grad.dtype()));
    let (input, weight_grad, bias_grad);
    if groups == 1 {
        let copy = rows(OP, grad);
        input = g.needs(0).then(|| launch.make_sizes(x.dims(), x.dtype()));
        let mut held = if g.needs(0) { scratch(&columns) } else { None };
        if g.needs(0) {
            cx.blas();
        }
        bias_grad = wants_bias.then(|| launch.make_sizes(&[weight.size(0)], weight.dtype()));
        if wants_bias {
            summed();
        }
        weight_grad = g.needs(1).then(|| launch.make_sizes(weight.dims(), weight.dtype()));
        if g.needs(1) {
            held = held.or_else(|| if pointwise { None } else { scratch(&columns) });
            cx.blas();
        }
        drop((held, copy, copied));
    } else {
        let several = x.size(0) > 1;
        let mut parts = Vec::new();
        for _ in 0..groups {
            let given = several.then(|| [scratch(&share(grad.dims(), groups)), scratch(&share(x.dims(), groups))]);
            if g.needs(0) {
                parts.push(scratch(&share(x.dims(), groups)));
            }
            let mut held = if g.needs(0) { scratch(&columns) } else { None };
            if wants_bias {
                parts.push(scratch(&[weight.size(0) / groups]));
                summed();
            }
            if g.needs(1) {
                let mut sizes = weight.dims().to_vec();
                sizes[0] /= groups;
                parts.push(scratch(&sizes));
                held = held.or_else(|| if pointwise { None } else { scratch(&columns) });
            }
            cx.blas();
            drop((held, given));
        }
        input = g.needs(0).then(|| launch.make_sizes(x.dims(), x.dtype()));
        weight_grad = g.needs(1).then(|| launch.make_sizes(weight.dims(), weight.dtype()));
        bias_grad = wants_bias.then(|| launch.make_sizes(&[weight.size(0)], weight.dtype()));
        drop((parts, copied));
    }
    if bias { grads([input, weight_grad, bias_grad]) } else { grads([input, weight_grad]) }
}
