//! Whether gradients overflowed, as `GradScaler` asks: never.
//!
//! What says so is a float that a kernel sets to zero first, and kernels do nothing. Its memory may have held a label or a mask
//! before, which were copied to the card and are still there; the scaler would take that for an overflow and skip its step.

use std::cell::Cell;

thread_local! {
    static ASKED: Cell<bool> = const { Cell::new(false) };
}

/// A kernel was launched on this thread: between PyTorch's look for what is not finite and its next scale
/// (aten/src/ATen/native/cuda/AmpKernels.cu), the scaler asks.
pub(super) fn launched(name: &str) {
    if name.contains("non_finite_check_and_unscale") {
        ASKED.set(true);
    } else if name.contains("amp_update_scale") {
        ASKED.set(false);
    }
}

/// The answer, if this thread's scaler may be who asks: zero, as every number of four bytes.
pub(super) fn found() -> Option<u32> {
    ASKED.get().then_some(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_overflows_between_unscaling_and_the_next_scale() {
        assert_eq!(found(), None);
        launched("_ZN2at6native43_amp_foreach_non_finite_check_and_unscale_cuda_E");
        launched("_ZN2at6native29vectorized_elementwise_kernelE");
        assert_eq!(found(), Some(0));
        assert_eq!(found(), Some(0), "each optimizer asks");
        launched("_ZN2at6native28amp_update_scale_cuda_kernelE");
        assert_eq!(found(), None);
    }
}
