//! What a product of groups takes beside its result.

use std::rc::Rc;

use super::Scratch;
use crate::Op;
use crate::tensor::{Context, DType, Kernels};

/// `_grouped_mm` of `groups`, and its result is there. In bfloat16 on compute capability 9.0 and 10.0 CUTLASS runs it
/// (`_grouped_mm_cuda` in `aten/src/ATen/native/cuda/GroupedBlas.cpp`), elsewhere cuBLAS, one group after the other.
///
/// `sizes` are rows and columns of one group's result, where they differ of a mean one.
pub fn grouped_mm(cx: &Rc<Context>, groups: u64, sizes: [u64; 2], dtype: DType) {
    match cx.machine().kernels {
        Kernels::Cuda(9, _) if dtype == DType::BFloat16 => drop(cutlass(cx, groups, HOPPER)),
        Kernels::Cuda(10, _) if dtype == DType::BFloat16 => {
            let small = sizes.iter().any(|size| *size <= SMALL);
            drop(cutlass(cx, groups, if small { BLACKWELL_SMALL } else { BLACKWELL }));
        }
        _ => cx.blas(),
    }
}

/// For every multiprocessor four descriptors of 128 bytes, two for what comes in and two for what goes out (`get_workspace_size` of
/// CUTLASS' `sm90_mma_array_tma_gmma_ss_warpspecialized.hpp` and `sm90_epilogue_array_tma_warpspecialized.hpp`).
const HOPPER: u64 = 4 * 128;

/// Up to how many rows or columns of a group the other tile is taken (`dispatch_bf16_grouped_kernel_on_tile_size` in `GroupMM.cu`).
const SMALL: u64 = 128;

/// What it is on compute capability 10, for small groups. That of PyTorch 2.11 on a hollow B200 of 148 multiprocessors, which is 795,648
/// bytes for 4 to 64 groups of 17 to 128 rows.
const BLACKWELL_SMALL: u64 = 795_648 / 148;

/// And for others, for which two multiprocessors work together: 871,424 bytes for 8 to 128 groups of 129 to 2,048 rows.
const BLACKWELL: u64 = 871_424 / 148;

/// `bf16bf16_grouped_gemm_impl_sm90_sm100` in `GroupMM.cu`: pointers, strides and sizes of the groups in one buffer; and so many bytes for
/// every multiprocessor.
fn cutlass(cx: &Rc<Context>, groups: u64, each: u64) -> Option<Scratch<'_>> {
    const POINTERS: u64 = 3 * 8;
    const SIZES_AND_STRIDES: u64 = 3 * 4 + 3 * 8;
    let mut scratch = Scratch::of(cx, Op::GroupedMm)?;
    // Pointers are aligned to 16 bytes.
    let pointers = groups.div_ceil(2).saturating_mul(2 * POINTERS);
    let arguments = pointers.saturating_add(groups.saturating_mul(SIZES_AND_STRIDES));
    scratch.hold(&[arguments], DType::UInt8);
    scratch.hold(&[cx.machine().multiprocessors.saturating_mul(each)], DType::UInt8);
    Some(scratch)
}
