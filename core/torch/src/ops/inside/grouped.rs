//! What a product of groups takes beside its result.

use std::rc::Rc;

use super::Scratch;
use crate::Op;
use crate::tensor::{Context, DType, Kernels};

/// `_grouped_mm` of `groups`, and its result is there. In bfloat16 on compute capability 9.0 and 10.0 CUTLASS runs it
/// (`_grouped_mm_cuda` in `aten/src/ATen/native/cuda/GroupedBlas.cpp`), elsewhere cuBLAS, one group after the other.
pub fn grouped_mm(cx: &Rc<Context>, groups: u64, dtype: DType) {
    match cx.machine().kernels {
        Kernels::Cuda(9, _) if dtype == DType::BFloat16 => drop(hopper(cx, groups)),
        // How much it takes there hangs on how CUTLASS cuts the work, and is left out.
        Kernels::Cuda(10, _) if dtype == DType::BFloat16 => {}
        _ => cx.blas(),
    }
}

/// `bf16bf16_grouped_gemm_impl_sm90_sm100` in `GroupMM.cu`: pointers, strides and sizes of the groups in one buffer; and for every
/// multiprocessor four descriptors of 128 bytes, two for what comes in and two for what goes out (`get_workspace_size` of CUTLASS'
/// `sm90_mma_array_tma_gmma_ss_warpspecialized.hpp` and `sm90_epilogue_array_tma_warpspecialized.hpp`).
fn hopper(cx: &Rc<Context>, groups: u64) -> Option<Scratch<'_>> {
    const POINTERS: u64 = 3 * 8;
    const SIZES_AND_STRIDES: u64 = 3 * 4 + 3 * 8;
    const DESCRIPTORS: u64 = 4 * 128;
    let mut scratch = Scratch::of(cx, Op::GroupedMm)?;
    // Pointers are aligned to 16 bytes.
    let pointers = groups.div_ceil(2).saturating_mul(2 * POINTERS);
    let arguments = pointers.saturating_add(groups.saturating_mul(SIZES_AND_STRIDES));
    scratch.hold(&[arguments], DType::UInt8);
    scratch.hold(&[cx.machine().multiprocessors.saturating_mul(DESCRIPTORS)], DType::UInt8);
    Some(scratch)
}
