//! A hull: somebody's own model as the tape of its training step, with sizes as expressions over named axes.
//!
//! A tape is recorded below autograd, so it needs no knowledge of operators: storages come, Python lets go of them,
//! autograd keeps them under handles and lets go of those. Whoever plays it composes micro-batches out of three recorded
//! ones. The file is described in `docs/hull.md`; it holds no code, and reading one checks everything that is taken for
//! granted of it.

mod checkpoint;
mod columns;
mod expr;
mod file;
mod fit;
mod kernel;
mod measure;
mod names;
mod packed;
mod recording;
mod repeats;
mod solve;
mod tape;
mod variant;
mod views;

#[cfg(test)]
mod tests;

pub use checkpoint::{Chosen, names_match};
pub use expr::{Expr, Term, values};
pub use file::{MOST_BYTES, MOST_UNPACKED};
pub use fit::{Asked, Holds, Trial, fit, fit_whole, same_but_for_marks, same_program};
pub use kernel::{Kernel, Operand};
pub use measure::{Phase, phases};
pub use packed::ANY as MAGIC;
pub use recording::{Recording, Reply};
pub use tape::{Born, MASK, Segment, Step, Tape, Way};
pub use variant::{Adapters, Variant};

use serde::{Deserialize, Serialize};

/// A whole file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hull {
    /// What made it, for people: the program, PyTorch, Python.
    pub made: Vec<(String, String)>,
    /// What was traced, for people; nothing executes it.
    pub model: String,
    /// How its loss is computed, for people.
    pub loss: String,
    /// The inputs as they were given, for people: name and type.
    pub inputs: Vec<(String, String)>,
    /// What sizes depend on; the first is the micro-batch.
    pub axes: Vec<Axis>,
    /// Names of modules, operators and autograd's functions that the tapes give by number.
    #[serde(with = "names")]
    pub modules: Vec<String>,
    /// Names of operators.
    pub ops: Vec<String>,
    /// Names of autograd's functions; the first is empty.
    pub nodes: Vec<String>,
    /// Names of element types.
    pub dtypes: Vec<String>,
    /// Sizes as expressions over the axes, each referring to earlier ones only.
    pub exprs: Vec<Expr>,
    /// Shapes that storages are made for: an expression a dimension.
    pub shapes: Vec<Vec<u32>>,
    /// What kernels were given that hold something of their own while they run; which they are, the operators of the storages say.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kernels: Vec<Kernel>,
    /// One for each precision and kind of card that differ.
    pub tapes: Vec<Tape>,
}

/// The operator of every convolution.
const CONVOLUTION: &str = "convolution";

/// What sizes depend on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Axis {
    /// Its name: `B`, `S`.
    pub name: String,
    /// The value it has where nothing is said.
    pub usual: u64,
    /// The least value the expressions were tried at; smaller ones are refused.
    pub least: u64,
    /// Only multiples of this were recorded; others are refused.
    pub step: u64,
}

/// A parameter, in the model's order; one that is tied stands once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameter {
    /// Its dotted name.
    pub name: String,
    /// Its sizes.
    pub sizes: Vec<u64>,
    /// Its element type's name.
    pub dtype: String,
    /// Whether it is trained.
    pub trained: bool,
    /// The number of its storage.
    pub storage: u32,
}

/// What a direct recording, in which autograd holds what it saves itself, came to at sizes that no expression was made from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Witness {
    /// The values of the axes.
    pub axes: Vec<u64>,
    /// Whether the model was checkpointed in it, by PyTorch itself.
    #[serde(default, skip_serializing_if = "is_false")]
    pub checkpointed: bool,
    /// Peak and end of input, forward and backward of three micro-batches, in bytes of live storages, each rounded to 512.
    pub phases: Vec<Phase>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn is_false(flag: &bool) -> bool {
    !flag
}

impl Hull {
    /// The number of an axis.
    pub fn axis(&self, name: &str) -> Option<usize> {
        self.axes.iter().position(|axis| axis.name == name)
    }

    /// Whether it says how the filters of its convolutions move, from which follows what cuDNN takes for them; older recorders do not.
    pub fn says_how_filters_move(&self) -> bool {
        let convolution = |kernel: &&Kernel| self.ops.get(kernel.op as usize).is_some_and(|op| op == CONVOLUTION);
        self.kernels.iter().find(convolution).is_some_and(|kernel| !kernel.numbers.is_empty())
    }

    /// The precisions that were recorded, each once, in the order of the words.
    pub fn precisions(&self) -> Vec<&str> {
        let mut known: Vec<&str> = self.tapes.iter().map(|tape| tape.precision.as_str()).collect();
        known.sort_unstable();
        known.dedup();
        known
    }

    /// The precisions that this variant was recorded in.
    pub fn precisions_of(&self, variant: &Variant) -> Vec<&str> {
        let mut known: Vec<&str> =
            self.tapes.iter().filter(|tape| tape.variant == *variant).map(|tape| tape.precision.as_str()).collect();
        known.sort_unstable();
        known.dedup();
        known
    }

    /// What was recorded beside the model as it was named, each once, in the order of the file.
    pub fn variants(&self) -> Vec<&Variant> {
        let mut known: Vec<&Variant> = Vec::new();
        for tape in self.tapes.iter().filter(|tape| !tape.variant.is_plain()) {
            if !known.contains(&&tape.variant) {
                known.push(&tape.variant);
            }
        }
        known
    }

    /// The tape for a precision on a card of this compute capability: the one recorded for it, or for one that chooses the
    /// same kernels; where this micro-batch has one of its own, that. It is of the model as it was named.
    pub fn tape(&self, precision: &str, capability: (u8, u8), batch: u64) -> Option<&Tape> {
        let suits =
            |tape: &Tape| tape.variant.is_plain() && tape.precision == precision && tape.cards.contains(&capability);
        self.position(batch, false, suits).and_then(|position| self.tapes.get(position))
    }

    /// Where among those that `suits` the tape of a micro-batch is; under checkpointing the one that is for that alone, where
    /// there is one.
    pub fn position(&self, batch: u64, checkpointed: bool, suits: impl Fn(&Tape) -> bool) -> Option<usize> {
        let of = |wanted: Option<u64>, alone: bool| {
            self.tapes.iter().position(|tape| tape.batch == wanted && tape.checkpointed == alone && suits(tape))
        };
        let among = |alone: bool| of(Some(batch), alone).or_else(|| of(None, alone));
        checkpointed.then(|| among(true)).flatten().or_else(|| among(false))
    }
}
