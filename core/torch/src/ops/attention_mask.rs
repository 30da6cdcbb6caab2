//! How the rows of a mask lie for the efficient kernel.

use plimsoll_ground::{Error, Reason};

use super::pad::pad_last;
use super::view::narrow;
use crate::tensor::{DType, Kernels, Tensor};

/// Refuses a mask whose rows the backward cannot read: [`pad_mask`] has seen to that, but what was saved on the host comes back without
/// the room behind its rows (`kMinimumAlignment` of `mem_eff_attention/gemm_kernel_utils.h`, asked for by `check_supported` of
/// `kernel_backward.h`).
pub(super) fn check_mask(mask: &Tensor, dtype: DType) {
    let alignment = match (mask.cx().machine().kernels, dtype.is_half()) {
        (Kernels::Cuda(7, 0..=4), true) => 2,
        (Kernels::Cuda(7, _), true) | (Kernels::Cuda(8.., _), _) => 4,
        _ => 1,
    };
    let geometry = mask.geometry();
    let mut before_last = geometry.dims().iter().zip(geometry.strides()).rev().skip(1);
    if before_last.all(|(size, stride)| *size <= 1 || stride.is_multiple_of(alignment)) {
        return;
    }
    let cx = mask.cx();
    cx.refuse(|| {
        let (module, keys) = (cx.path(cx.current_module()), mask.size(-1));
        let problem = format!(
            "{module} attends with a mask of {keys} keys, which comes back from the machine's memory without the room behind its rows, \
             and PyTorch fails there: \"attn_bias is not correctly aligned\""
        );
        let hint = format!("use attention = \"eager\", checkpointing = \"full\", or a multiple of {alignment} keys");
        Error::new("training.activation_offloading", problem, hint).because(Reason::UnalignedMask)
    });
}

/// CUTLASS wants every stride of the mask in multiples of 8 elements; else its rows are made longer (`preprocess_mask`,
/// `pad_bias`), those that are a multiple already by 8.
pub(super) fn pad_mask(mask: &Tensor) -> Tensor {
    const ALIGNMENT: u64 = 8;
    let keys = mask.size(-1);
    let strides = mask.geometry().strides();
    let aligned = strides.iter().rev().skip(1).all(|stride| stride.is_multiple_of(ALIGNMENT));
    if aligned {
        return mask.clone();
    }
    narrow(&pad_last(mask, (keys + 1).next_multiple_of(ALIGNMENT)), -1, keys)
}
