//! Sums of many numbers: several blocks share an output, and hand their parts to one another in memory.

use std::rc::Rc;

use plimsoll_ledger::{Law, Rule, Sum};
use smallvec::SmallVec;

use super::Scratch;
use crate::Op;
use crate::tensor::{Context, DType, Geometry, Kernels, Tensor};

/// A dimension as `TensorIterator` has it: how many, and how far apart.
type Dimension = (u64, u64);

/// What `x.sum(dim)` takes beside its result while it runs, `x` as `input` has it, summed over the dimensions that `summed`
/// names: parts in float32, and of float64 and int64 in that.
pub fn sum<'c>(
    cx: &'c Rc<Context>,
    op: Op,
    input: &Geometry,
    summed: impl Fn(usize) -> bool,
    dtype: DType,
) -> Option<Scratch<'c>> {
    let part = if matches!(dtype, DType::Int64 | DType::Float64) { dtype } else { DType::Float32 };
    reduced(cx, op, input, summed, (dtype, part.size()))
}

/// What `op` of `x` takes beside its result of `sizes` and `dtype` while it runs: the dimensions that are not kept, or, where fewer
/// are, those behind them, are reduced. A sum of booleans or int32 is one of their copies in int64
/// (`make_reduction_from_out_ty` in `aten/src/ATen/native/ReduceOps.cpp`).
pub fn reduced_to(op: Op, x: &Tensor, sizes: &[u64], dtype: DType) {
    let (cx, dims) = (x.cx(), x.dims());
    let summed = |i: usize| if sizes.len() == dims.len() { sizes[i] != dims[i] } else { i >= sizes.len() };
    match op {
        Op::Sum | Op::SumDimIntList if dtype == DType::Int64 && x.dtype() != dtype => {
            let copy = Scratch::converted(cx, op, dims, dtype);
            drop((sum(cx, op, &x.geometry().preserved(), summed, dtype), copy));
        }
        Op::Sum | Op::SumDimIntList | Op::LinalgVectorNorm => drop(sum(cx, op, x.geometry(), summed, x.dtype())),
        _ => drop(reduced(cx, op, x.geometry(), summed, (x.dtype(), part(op, x.dtype())))),
    }
}

/// How many bytes the blocks of a reduction that is no sum hand to one another (`arg_t` of its operation): a number of the input's
/// type (`ReduceMinValuesKernel.cu`, `ReduceLogicKernel.cu`), or a number and its place, or a mean and its moments
/// (`ReduceArgMaxKernel.cu`, `std_var_kernel_impl`).
pub const fn part(op: Op, dtype: DType) -> u64 {
    match op {
        Op::MaxDim | Op::MinDim | Op::Argmax | Op::Argmin => 16,
        Op::VarCorrection | Op::StdCorrection | Op::VarMeanCorrection => 16,
        _ => dtype.size(),
    }
}

/// What a reduction takes beside its result while it runs (`gpu_reduce_kernel` in `aten/src/ATen/native/cuda/Reduce.cuh`): parts of
/// `unit` bytes each (its `arg_t`), and one counter for every column of blocks. A sum of inputs of 2 GiB and more, which is cut in
/// pieces, is not followed.
pub fn reduced<'c>(
    cx: &'c Rc<Context>,
    op: Op,
    input: &Geometry,
    summed: impl Fn(usize) -> bool,
    (dtype, unit): (DType, u64),
) -> Option<Scratch<'c>> {
    const IN_ONE_PIECE: u64 = 1 << 31;
    let Kernels::Cuda(..) = cx.machine().kernels else { return None };
    let (mut sum, inputs) = shared(cx, input, summed)?;
    sum.unit = unit;
    let bytes = sum.bytes(inputs);
    if input.numel().saturating_mul(dtype.size()) >= IN_ONE_PIECE || bytes == 0 {
        return None;
    }
    let mut scratch = Scratch::of(cx, op)?;
    let part = match unit {
        unit if unit == DType::Float32.size() => DType::Float32,
        unit if unit == dtype.size() => dtype,
        _ => DType::UInt8,
    };
    let parts = scratch.hold(&[bytes / part.size()], part);
    cx.law(Law { storage: parts, count: inputs, rule: Rule::Sum(sum) });
    scratch.hold(&[sum.counters(inputs)], DType::Int32);
    scratch.held.reverse();
    Some(scratch)
}

/// As [`sum`], where `sizes` is what comes out, with as many dimensions: those that are 1 there were summed.
pub fn sum_to<'c>(cx: &'c Rc<Context>, op: Op, input: &Geometry, sizes: &[u64], dtype: DType) -> Option<Scratch<'c>> {
    sum(cx, op, input, |i| sizes.get(i) == Some(&1), dtype)
}

/// The sum, and how many numbers go into each output.
fn shared(cx: &Context, input: &Geometry, summed: impl Fn(usize) -> bool) -> Option<(Sum, u64)> {
    let mut dims: [SmallVec<[Dimension; 6]>; 2] = Default::default();
    for (i, (&size, &stride)) in input.dims().iter().zip(input.strides()).enumerate() {
        if size > 1 {
            dims[usize::from(summed(i))].push((size, stride));
        }
    }
    let [kept, over] = dims.map(coalesced);
    let count = |dims: &[Dimension]| dims.iter().fold(1, |n: u64, (size, _)| n.saturating_mul(*size));
    let (outputs, inputs) = (count(&kept), count(&over));
    let (_, nearest) = *over.first()?;
    let along = kept.first().is_none_or(|(_, stride)| nearest < *stride);
    let mut sum = Sum {
        outputs,
        unit: DType::Float32.size(),
        vector: 1,
        along,
        read: 1,
        multiprocessors: cx.machine().multiprocessors,
        threads: cx.machine().threads,
    };
    match kept.split_first() {
        // `input_vec_size`
        None if nearest == 1 && over.len() == 1 && inputs > 128 => sum.read = 4,
        // `get_output_vec_size`
        Some(((size, 1), others)) if !along => {
            let fits = |n: &u64| {
                size.is_multiple_of(*n) && others.iter().chain(&over).all(|(_, stride)| stride.is_multiple_of(*n))
            };
            sum.vector = [4, 2].into_iter().find(fits).unwrap_or(1);
        }
        _ => {}
    }
    Some((sum, inputs))
}

/// `reorder_dimensions` and `coalesce_dimensions` of `TensorIterator`: the nearest first, those that follow one another as
/// one.
fn coalesced(mut dims: SmallVec<[Dimension; 6]>) -> SmallVec<[Dimension; 6]> {
    dims.sort_by_key(|(_, stride)| *stride);
    let mut out: SmallVec<[Dimension; 6]> = SmallVec::new();
    for (size, stride) in dims {
        match out.last_mut() {
            Some(last) if last.0.saturating_mul(last.1) == stride => last.0 = last.0.saturating_mul(size),
            _ => out.push((size, stride)),
        }
    }
    out
}
