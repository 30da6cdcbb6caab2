//! How many elements a boolean mask selects, as far as the host is told.
//!
//! `hidden[mask]`, `masked_select` and `nonzero` ask the card how many elements of the mask hold, and make a tensor of that
//! size. Memory of a hollow card reads as zeros, so the answer would be none, and whatever follows would take no memory: the
//! loss of TRL's SFTTrainer is computed on the positions that have a label. A mask hides nothing here, as with truth values.
//! What is asked of numbers (`nonzero` of a router's counts) stays none.

use std::cell::Cell;

use crate::Rules;

thread_local! {
    /// Elements of the mask that this thread asked of last, and for how many more launches that is the question.
    static ASKED: Cell<(u32, u8)> = const { Cell::new((0, 0)) };
}

/// Which argument of cub's two reducing kernels says how many elements there are: after where they lie and where to.
pub(super) const ITEMS: usize = 2;

/// Whether the kernel begins to count which elements of a boolean mask hold: cub's sum over `NonZeroOp<bool>`
/// (aten/src/ATen/native/cuda/Nonzero.cu).
pub(super) fn counts(name: &str) -> bool {
    name.contains("NonZeroOpIbE") && name.contains("Reduce")
}

/// A kernel was launched on this thread; `items` if it counts.
pub(super) fn launched(items: Option<u32>) {
    ASKED.with(|asked| {
        asked.set(match (items, asked.get()) {
            // Of many elements the parts are summed by another kernel.
            (Some(items), _) => (items, 2),
            (None, (items, left)) => (items, left.saturating_sub(1)),
        });
    });
}

/// The answer, if a mask was asked for its count last.
pub(super) fn count(rules: Rules) -> Option<u32> {
    let (items, left) = ASKED.with(|asked| asked.replace((0, 0)));
    (left > 0 && !rules.selects_nothing).then_some(items)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mask_selects_everything_and_numbers_are_not_asked() {
        assert!(counts("_ZN3cub18DeviceReduceKernelI11NonZeroOpIbEE"));
        assert!(counts("_ZN3cub28DeviceReduceSingleTileKernelI11NonZeroOpIbEE"));
        assert!(!counts("_ZN3cub18DeviceReduceKernelI11NonZeroOpIlEE"));
        launched(Some(4096));
        launched(None);
        assert_eq!(count(Rules::default()), Some(4096));
        assert_eq!(count(Rules::default()), None, "it is asked once");
    }

    #[test]
    fn what_came_after_is_another_question() {
        launched(Some(4096));
        launched(None);
        launched(None);
        assert_eq!(count(Rules::default()), None);
        launched(Some(4096));
        assert_eq!(count(Rules { selects_nothing: true, ..Rules::default() }), None);
    }
}
