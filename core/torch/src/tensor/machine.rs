//! What ops have to know of the card they run on and the software that runs them.

use plimsoll_catalog::software::Rules;

/// A card and its software, as ops see them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    /// The versions' rules.
    pub rules: Rules,
    /// Whose kernels run.
    pub kernels: Kernels,
    /// How many multiprocessors it has: a heuristic or two of PyTorch's asks.
    pub multiprocessors: u64,
    /// How many threads each of them holds.
    pub threads: u64,
    /// Whether transformers multiplies the experts of a mixture one after the other.
    pub one_expert_at_a_time: bool,
}

/// Whose kernels run, and whether what they take for themselves is counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kernels {
    /// Nothing that a kernel allocates for itself is counted: `device.workspaces = false`, and Apple's Metal.
    #[default]
    Uncounted,
    /// NVIDIA's, by compute capability.
    Cuda(u8, u8),
    /// AMD's.
    Rocm,
}

impl Kernels {
    /// Whether a run on a card is followed, and not the fake tensors of the reference rows, which know no kernels.
    pub fn is_counted(self) -> bool {
        self != Self::Uncounted
    }
}
