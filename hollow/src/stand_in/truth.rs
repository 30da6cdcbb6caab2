//! What the host reads where a kernel would have computed a truth value.
//!
//! Memory of a hollow card reads as zeros. A single byte that comes to the host is taken for a truth value and answered by
//! rule, because code that asks one takes another path than it would on a card: transformers asks whether a mask is all
//! ones, generation asks whether every sequence has ended.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::Rules;

thread_local! {
    static LAST: Cell<[&'static str; 2]> = const { Cell::new(["", ""]) };
}

/// Questions of the kind "has everybody ended" since the process began.
static STOPS: AtomicU32 = AtomicU32::new(0);

/// A kernel was launched on this thread.
pub(super) fn launched(name: &'static str) {
    LAST.with(|last| last.set([last.get()[1], name]));
}

/// The truth value that the last kernels on this thread would have made.
pub(super) fn truth(rules: Rules) -> bool {
    let [before, last] = LAST.with(Cell::get);
    answer(rules, before, last, || STOPS.fetch_add(1, Ordering::Relaxed) + 1)
}

/// `any()` reduces with PyTorch's `or_kernel`, `all()` with `and_kernel` (aten/src/ATen/native/cuda/ReduceLogicKernel.cu);
/// a stop test compares the largest of the unfinished marks with zero (transformers, `unfinished_sequences.max() == 0`).
fn answer(rules: Rules, before: &str, last: &str, mut stop: impl FnMut() -> u32) -> bool {
    if let Some(truth) = rules.truth {
        return truth;
    }
    let largest = ["max_values", "MaxOps", "MaxNan"].iter().any(|part| before.contains(part));
    if largest && rules.stop_after > 1 {
        return stop().is_multiple_of(rules.stop_after);
    }
    !last.contains("or_kernel") || last.contains("xor_kernel")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_holds_and_any_does_not() {
        let rules = Rules::default();
        assert!(answer(rules, "", "and_kernel_cuda", || 1));
        assert!(!answer(rules, "", "or_kernel_cuda", || 1));
        assert!(answer(rules, "", "bitwise_xor_kernel", || 1));
        assert!(!answer(Rules { truth: Some(false), ..rules }, "", "and_kernel_cuda", || 1));
    }

    #[test]
    fn generation_ends_after_as_many_tokens_as_said() {
        let rules = Rules { stop_after: 3, ..Rules::default() };
        let mut asked = 0;
        let mut ask = || {
            asked += 1;
            asked
        };
        let answers: Vec<bool> = (0..3).map(|_| answer(rules, "max_values_kernel", "eq", &mut ask)).collect();
        assert_eq!(answers, [false, false, true]);
    }
}
