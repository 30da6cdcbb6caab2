//! What memory is for, as every face stacks it: the ledger's categories, and what lies over them.

use plimsoll_estimate::Category;
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
            Self::Weights => Category::Weights.label(),
            Self::KvCache => Category::KvCache.label(),
            Self::OptimizerStates => Category::OptimizerStates.label(),
            Self::Gradients => Category::Gradients.label(),
            Self::AutocastCopies => Category::AutocastCopies.label(),
            Self::SavedActivations => Category::SavedActivations.label(),
            Self::Temporaries => Category::Temporaries.label(),
            Self::Inputs => Category::Inputs.label(),
            Self::Workspace => Category::Workspace.label(),
            Self::Fragmentation => "allocator's cache and gaps",
            Self::Context => "context and libraries",
        }
    }

    /// Them again, where there is room for one word only.
    pub const fn word(self) -> &'static str {
        match self {
            Self::OptimizerStates => "states",
            Self::AutocastCopies => "copies",
            Self::SavedActivations => "saved",
            Self::Fragmentation => "gaps",
            Self::Context => "context",
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
            Self::Fragmentation => {
                "reserved by PyTorch's allocator beyond what is alive: rounding, cached and split blocks"
            }
            Self::Context => "CUDA context and loaded libraries, outside PyTorch",
        }
    }

    /// Its class in pages and pictures (`kind-weights`).
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

    /// Its colours, in light and in dark: those of the planner's `styles/tokens.css`, which a test there holds to these. What is
    /// nobody's tensors is hatched on the page, and in the hatching's line here.
    pub const fn colours(self) -> [&'static str; 2] {
        match self {
            Self::Weights => ["#16365a", "#d3dfec"],
            Self::KvCache => ["#4f7d4e", "#7fb27d"],
            Self::OptimizerStates => ["#3f6f9c", "#86aed6"],
            Self::Gradients => ["#3d9098", "#4fb0b4"],
            Self::AutocastCopies => ["#a5cdd0", "#2b656e"],
            Self::SavedActivations => ["#bf8a24", "#dda63c"],
            Self::Temporaries => ["#e8cd84", "#80601f"],
            Self::Inputs => ["#7b6a52", "#b09a78"],
            Self::Workspace => ["#b3a58d", "#6d6250"],
            Self::Fragmentation => ["#8d949c", "#71869c"],
            Self::Context => ["#5b6a7e", "#93a3b5"],
        }
    }

    /// The ledger's category it stands for, when it is one.
    pub fn category(self) -> Option<Category> {
        Category::ALL.into_iter().find(|&c| Self::from(c) == self)
    }
}

/// The other colours of a picture.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Colours {
    pub(crate) paper: &'static str,
    pub(crate) ink: &'static str,
    pub(crate) quiet: &'static str,
    pub(crate) sea: &'static str,
    pub(crate) signal: &'static str,
}

impl Colours {
    pub(crate) const LIGHT: Self =
        Self { paper: "#f5f3ea", ink: "#12233a", quiet: "#43536a", sea: "#d3e4ea", signal: "#bd1220" };
    pub(crate) const DARK: Self =
        Self { paper: "#0b1727", ink: "#e9edf1", quiet: "#b3c0ce", sea: "#14304d", signal: "#ff7a6e" };
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
    use plimsoll_estimate::Category;

    use super::Kind;

    #[test]
    fn the_ledgers_categories_come_first_and_in_its_order() {
        let ours: Vec<_> = Kind::ALL.iter().filter_map(|k| k.category()).collect();
        assert_eq!(ours, Category::ALL);
        assert_eq!(Kind::LEDGER, Category::ALL.len());
        assert!(Kind::ALL.iter().take(Kind::LEDGER).all(|k| k.category().is_some()));
    }
}
