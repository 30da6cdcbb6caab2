//! Kernels that a recording tells of, as far as they hold something of their own while they run: by the operator's name, what it was
//! given and what it made.

use std::rc::Rc;

use super::attention::heads_first;
use super::conv::{is_channels_last, is_ready};
use super::inside::{self, Scratch, Sizes};
use crate::Op;
use crate::tensor::{Context, DType, Geometry};

/// A tensor that a kernel was given.
#[derive(Clone, Debug)]
pub struct Given {
    /// Sizes and strides.
    pub geometry: Geometry,
    /// Element type.
    pub dtype: DType,
}

/// What runs in a recording.
#[derive(Clone, Debug)]
pub struct ToldKernel {
    kind: Kind,
    given: Vec<Given>,
    numbers: Vec<u32>,
}

/// Which of them.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// A sum, mean or norm: the tensor; the dimensions that are summed, a bit each.
    Sum(Op),
    /// The input.
    Normalized,
    /// The gradient that goes in, the input, the weight; how many gradients of weight and bias are made.
    LayerNorm,
    /// The result.
    Softmax,
    /// The gradient that goes in, the indices.
    Embedding,
    /// What is added, and one tensor of row numbers.
    Rows,
    /// The gradient that goes in, the input, the weight; whether a bias has one.
    Convolution,
    /// Queries and keys.
    Flash,
    /// Queries and values.
    Efficient,
    /// The gradient that goes in, and the output.
    FlashBackward,
}

/// What holds something while it runs, by the operator's name.
const KINDS: [(Op, Kind); 11] = [
    (Op::SumDimIntList, Kind::Sum(Op::SumDimIntList)),
    (Op::MeanDim, Kind::Sum(Op::MeanDim)),
    (Op::LinalgVectorNorm, Kind::Sum(Op::LinalgVectorNorm)),
    (Op::NativeLayerNorm, Kind::Normalized),
    (Op::NativeLayerNormBackward, Kind::LayerNorm),
    (Op::SoftmaxBackwardData, Kind::Softmax),
    (Op::EmbeddingDenseBackward, Kind::Embedding),
    (Op::ConvolutionBackward, Kind::Convolution),
    (Op::ScaledDotProductFlashAttention, Kind::Flash),
    (Op::ScaledDotProductEfficientAttention, Kind::Efficient),
    (Op::ScaledDotProductFlashAttentionBackward, Kind::FlashBackward),
];

/// Operators by which rows are added to what has just been made for them.
const ROWS: [&str; 4] = ["index_put", "index_put_", "_index_put_impl_", "_unsafe_index_put"];

/// More elements than any tensor has on a card, 2 TiB in 16 bits: a recording comes from anywhere, and what is worked out from sizes
/// multiplies a few of them.
const MOST_ELEMENTS: u64 = 1 << 40;

/// Whether these are sizes, or strides and sizes, of a tensor that a card may hold.
pub(super) fn is_held(sizes: &[u64], strides: &[u64]) -> bool {
    let elements = sizes.iter().fold(1, |n: u64, size| n.saturating_mul(*size));
    elements <= MOST_ELEMENTS && sizes.iter().chain(strides).all(|number| *number <= MOST_ELEMENTS)
}

impl ToldKernel {
    /// The kernel of the operator of this name, where it is one that holds something and what it was given fits on any card.
    pub fn of(name: &str, given: Vec<Given>, numbers: Vec<u32>) -> Option<Self> {
        if !given.iter().all(|given| is_held(given.geometry.dims(), given.geometry.strides())) {
            return None;
        }
        let known = KINDS.iter().find(|(op, _)| op.name() == name).map(|(_, kind)| *kind);
        let kind = known.or_else(|| ROWS.contains(&name).then_some(Kind::Rows))?;
        Some(Self { kind, given, numbers })
    }

    /// It runs, and what it made, of this shape, is there.
    pub fn run(&self, cx: &Rc<Context>, made: &Geometry) {
        if !is_held(made.dims(), &[]) {
            return;
        }
        let number = |at: usize| self.numbers.get(at).copied().unwrap_or(0);
        match (self.kind, &self.given[..]) {
            (Kind::Sum(op), [x]) => {
                let summed = |i: usize| 1u32.checked_shl(i as u32).is_some_and(|bit| number(0) & bit != 0);
                drop(inside::sum(cx, op, &x.geometry, summed, x.dtype));
            }
            (Kind::Normalized, [x]) => drop(Scratch::contiguous(cx, Op::NativeLayerNorm, &x.geometry, x.dtype)),
            (Kind::LayerNorm, [grad, x, weight]) => {
                let op = Op::NativeLayerNormBackward;
                let copy = Scratch::contiguous(cx, op, &x.geometry, x.dtype);
                let incoming = Scratch::contiguous(cx, op, &grad.geometry, grad.dtype);
                let columns = weight.geometry.numel();
                let sizes = (x.geometry.numel() / columns.max(1), columns);
                drop(inside::layer_norm_parts(cx, op, sizes, number(0).min(2) as usize, weight.dtype));
                drop((incoming, copy));
            }
            (Kind::Softmax, [result]) => {
                drop(inside::softmax_backward(cx, Op::SoftmaxBackwardData, result.geometry.dims(), result.dtype));
            }
            (Kind::Embedding, [grad, indices]) if made.rank() == 2 => {
                let op = Op::EmbeddingDenseBackward;
                let tokens = indices.geometry.numel();
                let copy = Scratch::contiguous(cx, op, &grad.geometry, grad.dtype);
                let mut scratch = inside::sorted_indices(cx, op, tokens);
                if let Some(scratch) = &mut scratch {
                    inside::after_sorting(scratch, made, grad.dtype, tokens);
                }
                drop((scratch, copy));
            }
            (Kind::Rows, [values, rows]) => {
                let added = (&values.geometry, values.dtype);
                drop(inside::accumulate_rows(cx, Op::IndexPut, rows.geometry.numel(), added));
            }
            (Kind::Convolution, [grad, x, weight]) => {
                let op = Op::ConvolutionBackward;
                let last = is_channels_last(&x.geometry) || is_channels_last(&weight.geometry);
                if !is_ready(&grad.geometry, last) {
                    drop(Scratch::converted(cx, op, grad.geometry.dims(), grad.dtype));
                }
                if number(0) == 1 {
                    drop(inside::sum(cx, op, &grad.geometry, |i| i != 1, grad.dtype));
                }
            }
            (Kind::Flash, [queries, keys]) => {
                let op = Op::ScaledDotProductFlashAttention;
                if let Some(sizes) = attention(&queries.geometry, &keys.geometry) {
                    drop(inside::shared_keys(cx, op, sizes));
                }
            }
            (Kind::Efficient, [queries, values]) => {
                if let (&[b, h, s, _], &[.., d]) = (queries.geometry.dims(), values.geometry.dims()) {
                    let op = Op::ScaledDotProductEfficientAttention;
                    drop(inside::attention_forward(cx, op, [b, s, h, d], queries.dtype));
                }
            }
            _ => {}
        }
    }

    /// Copies that a flash attention's backward makes of what it is given, before anything else that it holds.
    pub fn copies<'c>(&self, cx: &'c Rc<Context>) -> Vec<Scratch<'c>> {
        let Kind::FlashBackward = self.kind else { return Vec::new() };
        let op = Op::ScaledDotProductFlashAttentionBackward;
        let copied = self.given.iter().filter(|x| heads_first(&x.geometry));
        copied.filter_map(|x| Scratch::converted(cx, op, x.geometry.dims(), x.dtype)).collect()
    }
}

/// The sizes of queries and keys, both `[batch, heads, seq, dim]`.
fn attention(queries: &Geometry, keys: &Geometry) -> Option<Sizes> {
    let (&[batch, heads, rows, head], &[_, kv_heads, columns, _]) = (queries.dims(), keys.dims()) else { return None };
    Some(Sizes { batch, heads, kv_heads, queries: rows, keys: columns, head })
}
