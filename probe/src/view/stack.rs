//! How the kinds that the process's peak is stacked of look in a terminal.

use clap::builder::styling::AnsiColor;
use plimsoll_core::summary::Kind;

/// Stands for a kind in a bar without colour.
pub const fn letter(kind: Kind) -> char {
    match kind {
        Kind::Weights => 'w',
        Kind::OptimizerStates => 'o',
        Kind::Gradients => 'g',
        Kind::AutocastCopies => 'c',
        Kind::SavedActivations => 'a',
        Kind::Temporaries => 't',
        Kind::Inputs => 'i',
        Kind::Workspace => 'k',
        Kind::KvCache => 'v',
        Kind::Fragmentation => '+',
        Kind::Context => 'x',
    }
}

/// Its colour; what is nobody's tensors has none. Red is kept for what does not fit.
pub const fn colour(kind: Kind) -> Option<AnsiColor> {
    match kind {
        Kind::Weights => Some(AnsiColor::Blue),
        Kind::OptimizerStates => Some(AnsiColor::Magenta),
        Kind::Gradients => Some(AnsiColor::Cyan),
        Kind::AutocastCopies => Some(AnsiColor::BrightBlue),
        Kind::SavedActivations => Some(AnsiColor::Green),
        Kind::Temporaries => Some(AnsiColor::Yellow),
        Kind::Inputs => Some(AnsiColor::BrightCyan),
        Kind::Workspace => Some(AnsiColor::BrightMagenta),
        Kind::KvCache => Some(AnsiColor::BrightGreen),
        Kind::Fragmentation | Kind::Context => None,
    }
}
