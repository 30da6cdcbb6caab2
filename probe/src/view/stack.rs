//! What the process's peak is stacked of, from the bottom up.

use clap::builder::styling::AnsiColor;
use plimsoll_core::estimate::Category;
use plimsoll_core::{Bytes, Estimate};

/// One layer of the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layer {
    /// Live tensors of one category.
    Tensors(Category),
    /// What the allocator holds beyond them: rounding, cached and split blocks.
    Allocator,
    /// What the process takes before PyTorch allocates anything.
    Context,
}

impl Layer {
    /// The words people read.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Tensors(category) => category.label(),
            Self::Allocator => "allocator's cache and gaps",
            Self::Context => "context and libraries",
        }
    }

    /// Stands for the layer in a bar without colour.
    pub const fn letter(self) -> char {
        match self {
            Self::Tensors(Category::Weights) => 'w',
            Self::Tensors(Category::OptimizerStates) => 'o',
            Self::Tensors(Category::Gradients) => 'g',
            Self::Tensors(Category::AutocastCopies) => 'c',
            Self::Tensors(Category::SavedActivations) => 'a',
            Self::Tensors(Category::Temporaries) => 't',
            Self::Tensors(Category::Inputs) => 'i',
            Self::Tensors(Category::Workspace) => 'k',
            Self::Tensors(Category::KvCache) => 'v',
            Self::Allocator => '+',
            Self::Context => 'x',
        }
    }

    /// Its colour; the layers that are nobody's tensors have none. Red is kept for "below the line".
    pub const fn colour(self) -> Option<AnsiColor> {
        match self {
            Self::Tensors(Category::Weights) => Some(AnsiColor::Blue),
            Self::Tensors(Category::OptimizerStates) => Some(AnsiColor::Magenta),
            Self::Tensors(Category::Gradients) => Some(AnsiColor::Cyan),
            Self::Tensors(Category::AutocastCopies) => Some(AnsiColor::BrightBlue),
            Self::Tensors(Category::SavedActivations) => Some(AnsiColor::Green),
            Self::Tensors(Category::Temporaries) => Some(AnsiColor::Yellow),
            Self::Tensors(Category::Inputs) => Some(AnsiColor::BrightCyan),
            Self::Tensors(Category::Workspace) => Some(AnsiColor::BrightMagenta),
            Self::Tensors(Category::KvCache) => Some(AnsiColor::BrightGreen),
            Self::Allocator | Self::Context => None,
        }
    }
}

/// The layers of the peak with their sizes. They sum to the process's peak.
///
/// Live tensors peak at one moment and the allocator's segments perhaps at a later one; what the segments are larger by
/// is the allocator's.
pub fn stack(estimate: &Estimate) -> Vec<(Layer, Bytes)> {
    let mut layers: Vec<(Layer, Bytes)> =
        Category::ALL.iter().map(|&c| (Layer::Tensors(c), estimate.at_peak.get(c))).collect();
    let tensors = estimate.at_peak.total();
    layers.push((Layer::Allocator, estimate.peak.reserved.saturating_sub(tensors)));
    layers.push((Layer::Context, estimate.peak.process.saturating_sub(estimate.peak.reserved.max(tensors))));
    layers
}
