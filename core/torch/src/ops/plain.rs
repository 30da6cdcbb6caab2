//! Ops no gradient goes through: masks, positions, comparisons, counts. A door for each way they read and write, and
//! behind it the ops that go through it.

use std::rc::Rc;

use super::inside::{self, Scratch};
use crate::Op;
use crate::tensor::{Context, DType, Geometry, Tensor};

/// Declares the ops of a door, each by its name in the table of ops.
macro_rules! door {
    ($(#[$doc:meta])* $name:ident { $($op:ident),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(missing_docs, reason = "each is the op of its name")]
        pub enum $name { $($op),+ }

        impl From<$name> for Op {
            fn from(op: $name) -> Self {
                match op { $($name::$op => Self::$op),+ }
            }
        }
    };
}

door! {
    /// What reads nothing on the card: it fills what it makes, or copies it from the host.
    Fill {
        Arange, EmptyLike, EmptyMemoryFormat, Eye, Full, FullLike, NewOnes, NewZeros, Ones, OnesLike, Rand, ScalarTensor, ToCopy, Zeros,
        ZerosLike,
    }
}

door! {
    /// What works number by number.
    Pointwise {
        Abs, AddTensor, BitwiseAndTensor, BitwiseNot, BitwiseOrTensor, Ceil, Clamp, Cos, DivTensor, EqScalar, EqTensor, Floor,
        FloorDivide, GeScalar, GeTensor, GtScalar, GtTensor, LeScalar, LeTensor, Log, Log1p, LtScalar, MaskedFillScalar, Minimum,
        MulTensor, NeScalar, Neg, PowTensorTensor, RemainderScalar, RsubScalar, Sign, Sin, SubTensor, ToCopy,
        Tril, Triu, WhereSelf,
    }
}

door! {
    /// What sums up, counts or chooses.
    Reduction { All, Any, Argmax, Cumsum, Histc, LinalgVectorNorm, Max, Nonzero, Sort, Sum, SumDimIntList }
}

door! {
    /// What puts numbers elsewhere: of its operands it reads as much as it writes.
    Rearrangement { Cat, Clone, ConstantPadNd, Gather, IndexTensor, Repeat, ToCopy }
}

/// Makes a tensor of nothing.
pub fn fill(cx: &Rc<Context>, op: Fill, sizes: &[u64], dtype: DType) -> Tensor {
    let op = Op::from(op);
    match op {
        Op::EmptyLike | Op::EmptyMemoryFormat => cx.empty_sizes(op, sizes, dtype),
        _ => cx.launch(op, &[]).make_sizes(sizes, dtype),
    }
}

/// Makes a tensor number by number of `first` and `others`, which are broadcast.
pub fn pointwise(op: Pointwise, first: &Tensor, others: &[&Tensor], sizes: &[u64], dtype: DType) -> Tensor {
    let cx = first.cx();
    cx.launch(op.into(), others).reads(first.touched()).of(first.dtype()).make_sizes(sizes, dtype)
}

/// [`pointwise`] of one tensor, whose sizes the result has.
pub fn each(op: Pointwise, x: &Tensor, dtype: DType) -> Tensor {
    pointwise(op, x, &[], x.dims(), dtype)
}

/// Sums `x` up, counts it or chooses from it: over the dimensions that are not in `sizes`, if not over all.
pub fn reduction(op: Reduction, x: &Tensor, sizes: &[u64], dtype: DType) -> Tensor {
    let counted = if op == Reduction::Nonzero { Scratch::counted(x.cx(), x.geometry(), x.dtype()) } else { None };
    let out = x.cx().launch(op.into(), &[x]).make_sizes(sizes, dtype);
    if let Some(counted) = counted {
        counted.picked(x.numel());
    }
    match op {
        Reduction::Cumsum => {
            // It only takes its own.
            let converted = (x.dtype() != dtype).then(|| Scratch::converted(x.cx(), op.into(), x.dims(), dtype));
            Scratch::running_sum(x.cx(), op.into(), (x.numel(), x.size(-1)), dtype.size());
            drop(converted);
        }
        Reduction::Histc | Reduction::Nonzero | Reduction::Sort => {}
        _ => inside::reduced_to(op.into(), x, sizes, dtype),
    }
    out
}

/// `x.flatten().sort()` of int64: the numbers, and the places that they had.
pub fn sort_flat(x: &Tensor) -> (Tensor, Tensor) {
    let sizes = [x.numel()];
    let sorted = || reduction(Reduction::Sort, x, &sizes, DType::Int64);
    let both = (sorted(), sorted());
    drop(inside::sort(x.cx(), Op::Sort, &Geometry::contiguous(&sizes), 0, DType::Int64));
    both
}

/// `x[rows, columns]`, of two index tensors that are broadcast to `sizes`: on a card both are written out first, so that they lie in
/// memory alike (`make_info` in `aten/src/ATen/native/TensorAdvancedIndexing.cpp`). The columns of a single row lie like this already.
pub fn picked(cx: &Rc<Context>, sizes: &[u64], dtype: DType) -> Tensor {
    let op = Op::IndexTensor;
    let row = sizes.last().copied().unwrap_or(1);
    let several = sizes.iter().fold(1, |n: u64, size| n.saturating_mul(*size)) > row;
    let copies = if several { 2 } else { 1 };
    let indices: Vec<_> = (0..copies).map(|_| Scratch::converted(cx, op, sizes, DType::Int64)).collect();
    let out = rearrangement(cx, Rearrangement::IndexTensor, sizes, dtype);
    drop(indices);
    out
}

/// Makes a tensor of what stands in another one.
pub fn rearrangement(cx: &Rc<Context>, op: Rearrangement, sizes: &[u64], dtype: DType) -> Tensor {
    let mut launch = cx.launch(op.into(), &[]).of(dtype);
    let out = launch.make_sizes(sizes, dtype);
    drop(launch.reads(out.touched()));
    out
}
