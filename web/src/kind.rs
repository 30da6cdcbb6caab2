//! What memory is for, as the planner stacks it: the ledger's categories, and what lies over them.

use plimsoll_core::estimate::Category;
use serde::{Deserialize, Serialize};

/// One layer of the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Kind {
    /// Parameters and buffers.
    Weights,
    /// Keys and values of the tokens a generation has seen.
    KvCache,
    /// Moments, steps, momentum.
    OptimizerStates,
    /// What ended up in `.grad`.
    Gradients,
    /// Autocast's low-precision copies of the weights.
    AutocastCopies,
    /// Kept for backward.
    SavedActivations,
    /// Dropped as soon as the next ops ran.
    Temporaries,
    /// The batch.
    Inputs,
    /// What kernel libraries keep.
    Workspace,
    /// Reserved by the caching allocator beyond what is asked of it.
    Fragmentation,
    /// CUDA context and loaded libraries.
    Context,
}

impl Kind {
    /// Every kind, from the keel up.
    pub const ALL: [Self; 11] = [
        Self::Weights,
        Self::KvCache,
        Self::OptimizerStates,
        Self::Gradients,
        Self::AutocastCopies,
        Self::SavedActivations,
        Self::Temporaries,
        Self::Inputs,
        Self::Workspace,
        Self::Fragmentation,
        Self::Context,
    ];

    /// How many of them the ledger itself knows; the first so many of [`Kind::ALL`].
    pub const LEDGER: usize = 9;

    /// The words people read.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Weights => "weights",
            Self::KvCache => "KV cache",
            Self::OptimizerStates => "optimizer states",
            Self::Gradients => "gradients",
            Self::AutocastCopies => "autocast copies",
            Self::SavedActivations => "saved activations",
            Self::Temporaries => "temporaries",
            Self::Inputs => "inputs",
            Self::Workspace => "workspace",
            Self::Fragmentation => "fragmentation",
            Self::Context => "context",
        }
    }

    /// Them again, where there is room for one word only.
    pub const fn word(self) -> &'static str {
        match self {
            Self::OptimizerStates => "states",
            Self::AutocastCopies => "copies",
            Self::SavedActivations => "saved",
            Self::Fragmentation => "gaps",
            other => other.label(),
        }
    }

    /// One line on what it is.
    pub const fn note(self) -> &'static str {
        match self {
            Self::Weights => "parameters and buffers",
            Self::KvCache => "keys and values of every token so far",
            Self::OptimizerStates => "moments, momentum, step counters",
            Self::Gradients => "what ends up in .grad",
            Self::AutocastCopies => "16-bit copies of the weights, cached by autocast",
            Self::SavedActivations => "kept by autograd until backward has used them",
            Self::Temporaries => "dropped as soon as the next ops have run",
            Self::Inputs => "the batch and its targets",
            Self::Workspace => "scratch space of the kernel libraries",
            Self::Fragmentation => "reserved by PyTorch's allocator beyond what was asked for",
            Self::Context => "CUDA context and loaded libraries, outside PyTorch",
        }
    }

    /// The suffix of its CSS class (`kind-weights`).
    pub const fn class(self) -> &'static str {
        match self {
            Self::Weights => "kind-weights",
            Self::KvCache => "kind-cache",
            Self::OptimizerStates => "kind-states",
            Self::Gradients => "kind-gradients",
            Self::AutocastCopies => "kind-copies",
            Self::SavedActivations => "kind-saved",
            Self::Temporaries => "kind-temporaries",
            Self::Inputs => "kind-inputs",
            Self::Workspace => "kind-workspace",
            Self::Fragmentation => "kind-fragmentation",
            Self::Context => "kind-context",
        }
    }

    /// The ledger's category it stands for, when it is one.
    pub fn category(self) -> Option<Category> {
        Category::ALL.into_iter().find(|&c| Self::from(c) == self)
    }
}

impl From<Category> for Kind {
    fn from(category: Category) -> Self {
        match category {
            Category::Weights => Self::Weights,
            Category::OptimizerStates => Self::OptimizerStates,
            Category::Gradients => Self::Gradients,
            Category::AutocastCopies => Self::AutocastCopies,
            Category::SavedActivations => Self::SavedActivations,
            Category::Temporaries => Self::Temporaries,
            Category::Inputs => Self::Inputs,
            Category::Workspace => Self::Workspace,
            Category::KvCache => Self::KvCache,
        }
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_core::estimate::Category;

    use super::Kind;

    #[test]
    fn the_ledgers_categories_come_first_and_in_its_order() {
        let ours: Vec<_> = Kind::ALL.iter().filter_map(|k| k.category()).collect();
        assert_eq!(ours, Category::ALL);
        assert_eq!(Kind::LEDGER, Category::ALL.len());
        assert!(Kind::ALL.iter().take(Kind::LEDGER).all(|k| k.category().is_some()));
    }
}
