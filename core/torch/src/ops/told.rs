//! Kernels that a recording tells of, as far as they hold something of their own while they run: by the operator's name, what it was
//! given and what it made.

use std::rc::Rc;

use super::attention::is_by_sequence;
use super::conv::{in_order, is_channels_last};
use super::inside::{self, GroupNormBackward, Scratch, Sizes};
use super::told_conv;
use super::told_kind::{Full, Kind};
use crate::Op;
use crate::tensor::{Context, DType, Geometry, Kernels};

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

/// What a kernel's copies of what it is given are called: `contiguous` clones.
const COPY: Op = Op::Clone;

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
        let kind = Kind::of(name)?;
        Some(Self { kind, given, numbers })
    }

    /// It runs, and what it made, of this shape, is there.
    pub fn run(&self, cx: &Rc<Context>, made: &Geometry) {
        if !is_held(made.dims(), &[]) {
            return;
        }
        let number = |at: usize| self.numbers.get(at).copied().unwrap_or(0);
        let summed = |i: usize| 1u32.checked_shl(i as u32).is_some_and(|bit| number(0) & bit != 0);
        match (self.kind, &self.given[..]) {
            (Kind::Sum(op), [x]) => {
                let converted =
                    [DType::Int64, DType::Float32].into_iter().find(|dtype| dtype.size() == u64::from(number(1)));
                let copy = converted.and_then(|dtype| Scratch::converted(cx, op, x.geometry.dims(), dtype));
                let geometry = if converted.is_some() { x.geometry.preserved() } else { x.geometry.clone() };
                drop((inside::sum(cx, op, &geometry, summed, converted.unwrap_or(x.dtype)), copy));
            }
            (Kind::Reduced(op), [x]) => {
                drop(inside::reduced(cx, op, &x.geometry, summed, (x.dtype, inside::part(op, x.dtype))));
            }
            (Kind::GroupNorm, [x]) => {
                drop(inside::group_norm(cx, Op::NativeGroupNorm, &x.geometry, number(0) == 1, x.dtype));
            }
            (Kind::GroupNormBackward, [x]) => {
                let groups = u64::from(number(0));
                let asked = GroupNormBackward { groups, input: number(1) == 1, weight: number(2) == 1 };
                drop(inside::group_norm_backward(cx, Op::NativeGroupNormBackward, &x.geometry, asked, x.dtype));
            }
            (Kind::Sort, [x]) => {
                drop(inside::sort(cx, Op::SortStable, &x.geometry, number(0) as usize, x.dtype));
            }
            (Kind::Topk, [x, values]) => {
                let dim = number(0) as usize;
                if let Some(&kept) = values.geometry.dims().get(dim) {
                    drop(inside::topk(cx, Op::Topk, &x.geometry, (dim, kept), number(1) == 1, x.dtype));
                }
            }
            (Kind::LayerNorm, [grad, x, weight]) => {
                let op = Op::NativeLayerNormBackward;
                let incoming = Scratch::contiguous(cx, op, &grad.geometry, grad.dtype);
                let columns = weight.geometry.numel();
                let sizes = (x.geometry.numel() / columns.max(1), columns);
                let gradients = number(0).min(2) as usize;
                let parts = inside::layer_norm_parts(cx, op, sizes, gradients, weight.dtype);
                for _ in parts.iter().flat_map(|_| 0..gradients) {
                    drop(inside::layer_norm_sum(cx, sizes, weight.dtype));
                }
                drop((parts, incoming));
            }
            (Kind::Unfolded, [x, out]) if bytes(x) >= bytes(out) => {
                drop(Scratch::contiguous(cx, COPY, &x.geometry, x.dtype));
            }
            (Kind::RmsNorm, [grad, _]) => drop(Scratch::contiguous(cx, COPY, &grad.geometry, grad.dtype)),
            (Kind::Cumulated, [x, out]) => {
                let converted = (x.dtype != out.dtype)
                    .then(|| Scratch::converted(cx, COPY, x.geometry.dims(), out.dtype))
                    .flatten();
                let geometry = if converted.is_some() { x.geometry.preserved() } else { x.geometry.clone() };
                let rows = Scratch::contiguous(cx, COPY, &geometry, out.dtype);
                let length = x.geometry.dims().get(number(0) as usize).copied().unwrap_or(1);
                Scratch::running_sum(cx, Op::Cumsum, (x.geometry.numel(), length), out.dtype.size());
                drop((rows, converted));
            }
            // What lies in neither order has its statistics taken by `var_mean`, of float32 (`batch_norm_mean_var` in Normalization.cu).
            (Kind::BatchNorm, [x]) if x.dtype.is_half() && !by_channels(&x.geometry) => {
                drop(Scratch::converted(cx, Op::NativeBatchNorm, x.geometry.dims(), DType::Float32));
            }
            // What both matrices are is there until they are multiplied.
            (Kind::Multiplied, given) => {
                let copied = given.iter().filter_map(|x| Scratch::converted(cx, COPY, x.geometry.dims(), x.dtype));
                drop(copied.collect::<Vec<_>>());
            }
            // `where_self_out` in TensorCompare.cpp.
            (Kind::Chosen, [given @ .., out]) => {
                let converted = given.iter().filter_map(|x| Scratch::converted(cx, COPY, x.geometry.dims(), out.dtype));
                drop(converted.collect::<Vec<_>>());
            }
            (Kind::Copied, given) => drop(copies(cx, given, number(0) == 1)),
            (Kind::Softmax(op), [x]) => drop(Scratch::contiguous(cx, op, &x.geometry, x.dtype)),
            (Kind::SoftmaxBackward(op), [result, grad @ ..]) => {
                let product = (op == Op::SoftmaxBackwardData)
                    .then(|| inside::softmax_backward(cx, op, result.geometry.dims(), result.dtype));
                // Both row-major (`host_softmax_backward`).
                let incoming = grad.first().and_then(|grad| {
                    let multiplied = || Geometry::elementwise(&[&grad.geometry, &result.geometry]);
                    let geometry = if product.is_some() { multiplied() } else { grad.geometry.clone() };
                    Scratch::contiguous(cx, op, &geometry, result.dtype)
                });
                drop(Scratch::contiguous(cx, op, &result.geometry, result.dtype));
                drop((incoming, product));
            }
            (Kind::Embedding, [grad, indices]) if made.rank() == 2 => {
                let op = Op::EmbeddingDenseBackward;
                let tokens = indices.geometry.numel();
                let mut scratch = inside::sorted_indices(cx, op, tokens);
                if let Some(scratch) = &mut scratch {
                    inside::after_sorting(scratch, made, grad.dtype, tokens);
                }
                drop(scratch);
            }
            (Kind::Rows, [values, rows]) => {
                let added = (&values.geometry, values.dtype);
                let dimensions = number(0).max(1) as usize;
                let place = number(1).checked_sub(1);
                let (count, mask) = match place.map(|at| values.geometry.dims().get(at as usize)) {
                    None => (rows.geometry.numel(), None),
                    Some(selected) => (selected.copied().unwrap_or(0), Some((&rows.geometry, rows.dtype))),
                };
                let rows = inside::Rows { count, dimensions, mask };
                drop(inside::accumulate_rows(cx, Op::IndexPut, rows, (made, false), added));
            }
            (Kind::Scattered, [mask, source]) => drop(Scratch::scattered(cx, made.dims(), [mask, source])),
            (Kind::Counted, [x]) => {
                if let Some(scratch) = Scratch::of(cx, Op::Nonzero) {
                    scratch.picked(x.geometry.numel());
                }
            }
            (Kind::Convolution, [x, weight]) => told_conv::forward(cx, [x, weight], made, &self.numbers),
            (Kind::ConvolutionBackward, [grad, x, weight]) => {
                told_conv::backward(cx, [grad, x, weight], &self.numbers);
            }
            (Kind::Loss(op, Full::Beside | Full::Both), [x, target]) => {
                let larger = [x, target].into_iter().max_by_key(|given| given.geometry.numel()).unwrap_or(x);
                drop(Scratch::converted(cx, op, larger.geometry.dims(), x.dtype));
            }
            (Kind::Flash, [queries, keys]) if self.numbers.is_empty() => drop(shared(cx, queries, keys)),
            (Kind::Shuffled, [out]) => drop(inside::shuffled(cx, Op::Randperm, (made.numel(), out.dtype))),
            // `arange` of it (`_unfold_backward_internal` in UnfoldBackward.cpp).
            (Kind::UnfoldBackward, _) => {
                let length = made.dims().get(number(0) as usize).copied().unwrap_or(0);
                drop(Scratch::converted(cx, Op::Arange, &[length], DType::Int64));
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

    /// Bytes of what it makes, where that keeps more memory than its sizes say.
    pub fn keeps(&self, cx: &Context) -> Option<u64> {
        let bytes = match (self.kind, &self.given[..]) {
            (Kind::Loss(_, Full::Kept | Full::Both), [x, target]) => {
                x.geometry.numel().max(target.geometry.numel()).saturating_mul(x.dtype.size())
            }
            // What was made as large as the input and is large enough (`resize_`).
            (Kind::Unfolded, [x, out]) if bytes(x) > bytes(out) => bytes(x),
            _ => return None,
        };
        (cx.machine().kernels != Kernels::Uncounted).then_some(bytes)
    }

    /// Most storages of an operator that come before the one that it is told of with.
    pub const MOST_BEFORE: u32 = 3;

    /// How many storages that its operator makes come before the one that it is told of with, where it may hold something from before
    /// the first of them.
    pub fn before(&self) -> Option<u32> {
        match (self.kind, &self.numbers[..]) {
            (Kind::Normalized | Kind::FlashBackward, _) => Some(2),
            (Kind::CopiedBefore, &[_, before, ..])
            | (Kind::RmsNorm | Kind::EfficientBackward | Kind::Flash, &[before, ..]) => {
                Some(before.min(Self::MOST_BEFORE))
            }
            (Kind::LayerNorm, &[gradients, ref input @ ..]) => {
                let made = gradients.min(2) + u32::from(input.first() != Some(&0));
                made.checked_sub(1)
            }
            (Kind::Rolled | Kind::Unfolded | Kind::Counted | Kind::Embedding | Kind::Convolution, _)
            | (Kind::ConvolutionBackward, [1 | 2, _, ..]) => Some(0),
            _ => None,
        }
    }

    /// Whether it is told of with the next storage of the operator that `before` is told of with.
    pub fn continues(&self, before: &Self) -> bool {
        let gradient = |kernel: &Self| match (kernel.kind, &kernel.numbers[..]) {
            (Kind::ConvolutionBackward, &[which, _, ..]) => Some(which),
            _ => None,
        };
        gradient(before).zip(gradient(self)).is_some_and(|(before, which)| which > before)
    }

    /// What its operator holds from before the first storage that it makes, in row-major or channels-last order, and behind how many
    /// more storages it goes; `further` are told of with those ([`ToldKernel::continues`]), and `first` says that none came before. Both directions of a layer norm copy
    /// their input first (`layer_norm_cuda` and `layer_norm_backward_cuda` in `layer_norm_kernel.cu`), and convolutions as
    /// `told_conv::before_backward` says.
    pub fn holds<'c>(&self, cx: &'c Rc<Context>, first: bool, further: &[&Self]) -> Vec<(Scratch<'c>, u32)> {
        let rows = |op: Op, x: &Given| Scratch::contiguous(cx, op, &x.geometry, x.dtype);
        let alone = |copies: &mut dyn Iterator<Item = Option<Scratch<'c>>>| {
            copies.flatten().map(|copy| (copy, 0)).collect::<Vec<_>>()
        };
        match (self.kind, &self.given[..], &self.numbers[..]) {
            // Dimension by dimension, of the first one row-major (`roll_cuda` in TensorTransformations.cu).
            (Kind::Rolled, [x], &[dims, ..]) => {
                let copy = rows(COPY, x);
                let rolled = if dims > 1 { Scratch::converted(cx, Op::Roll, x.geometry.dims(), x.dtype) } else { None };
                alone(&mut [if dims > 1 { rolled } else { copy }].into_iter())
            }
            // `contiguous_grad_out` and `contiguous_out` of _flash_attention_backward, which looks at them likewise.
            (Kind::FlashBackward, given, _) => {
                let op = Op::ScaledDotProductFlashAttentionBackward;
                let copied = given.iter().filter(|x| !is_by_sequence(&x.geometry));
                alone(&mut copied.map(|x| Scratch::converted(cx, op, x.geometry.dims(), x.dtype)))
            }
            // `grad_out_.contiguous()` in `_efficient_attention_backward`, which looks at it as `[batch, seq, heads, dim]`.
            (Kind::EfficientBackward, [grad], _) if !is_by_sequence(&grad.geometry) => {
                alone(&mut [Scratch::converted(cx, COPY, grad.geometry.dims(), grad.dtype)].into_iter())
            }
            (Kind::Flash, [queries, keys], [_, ..]) => alone(&mut [shared(cx, queries, keys)].into_iter()),
            // `embedding_dense_backward_cuda` in Embedding.cu.
            (Kind::Embedding, [grad, indices], _) => {
                alone(&mut [indices, grad].into_iter().map(|x| rows(Op::EmbeddingDenseBackward, x)))
            }
            (Kind::Counted, [x], _) => alone(&mut [Scratch::counted(cx, &x.geometry, x.dtype)].into_iter()),
            (Kind::CopiedBefore, given, &[last, ..]) => alone(&mut copies(cx, given, last == 1).into_iter().map(Some)),
            (Kind::Normalized, [x], _) => alone(&mut [rows(Op::NativeLayerNorm, x)].into_iter()),
            (Kind::LayerNorm, [_, x, _], _) => alone(&mut [rows(Op::NativeLayerNormBackward, x)].into_iter()),
            (Kind::RmsNorm, [_, x], _) => alone(&mut [rows(COPY, x)].into_iter()),
            // `at::empty_like` makes the result, which is made anew behind the copy where that is too small.
            (Kind::Unfolded, [x, out], _) if bytes(x) < bytes(out) => {
                let made = Scratch::converted(cx, Op::EmptyLike, x.geometry.dims(), x.dtype);
                alone(&mut [made, rows(COPY, x)].into_iter())
            }
            (Kind::Convolution, [x, weight], _) => alone(&mut [told_conv::before_forward(cx, [x, weight])].into_iter()),
            (Kind::ConvolutionBackward, [grad, x, weight], numbers @ &[which @ (1 | 2), _, ..]) => {
                let all = further.len() as u32;
                let weight_at = further.iter().position(|next| next.numbers.first() == Some(&2));
                let gradients = weight_at.map_or(0, |at| at as u32 + 1);
                let weighs = which == 2 || weight_at.is_some();
                let copies = told_conv::before_backward(cx, [grad, x, weight], numbers, (first, weighs));
                copies.into_iter().map(|(copy, to_the_end)| (copy, if to_the_end { all } else { gradients })).collect()
            }
            _ => Vec::new(),
        }
    }
}

/// Whether batch norm has a kernel for how this lies: row by row, or channels last (`batch_norm_choose_impl`).
fn by_channels(x: &Geometry) -> bool {
    x.is_contiguous() || is_channels_last(x) || x.rank() == 5 && x.is_dense()
}

/// What a tensor takes where nothing lies between its numbers.
fn bytes(x: &Given) -> u64 {
    x.geometry.numel().saturating_mul(x.dtype.size())
}

/// Copies of what does not lie row by row, or channels last where `last` lets the last of them say so (`suggest_memory_format`).
fn copies<'c>(cx: &'c Rc<Context>, given: &[Given], last: bool) -> Vec<Scratch<'c>> {
    let last = last && given.last().is_some_and(|x| is_channels_last(&x.geometry));
    given.iter().filter_map(|x| in_order(cx, COPY, &x.geometry, x.dtype, last)).collect()
}

/// What blocks of a flash attention write of keys that they share.
fn shared<'c>(cx: &'c Rc<Context>, queries: &Given, keys: &Given) -> Option<Scratch<'c>> {
    let sizes = attention(&queries.geometry, &keys.geometry)?;
    inside::shared_keys(cx, Op::ScaledDotProductFlashAttention, sizes)
}

/// The sizes of queries and keys, both `[batch, heads, seq, dim]`.
fn attention(queries: &Geometry, keys: &Geometry) -> Option<Sizes> {
    let (&[batch, heads, rows, head], &[_, kv_heads, columns, _]) = (queries.dims(), keys.dims()) else { return None };
    Some(Sizes { batch, heads, kv_heads, queries: rows, keys: columns, head, value: head })
}
