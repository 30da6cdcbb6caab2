//! What kernels were given, as far as what they hold while they run follows from it.

use serde::{Deserialize, Serialize};

/// The tensors that a kernel was given, and numbers that are the same at all sizes. What they mean is the operator's own
/// (`docs/hull.md`).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kernel {
    /// The number of its operator's name: of one that writes to what another has just made, not the storage's.
    pub op: u32,
    /// In the operator's own order.
    pub operands: Vec<Operand>,
    /// Bits of dimensions, counts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub numbers: Vec<u32>,
}

/// A tensor that a kernel was given: numbers of two of the hull's shapes, its sizes and its strides in elements, and that of its element type's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Operand(pub u32, pub u32, pub u32);

/// A tensor as the recorder says it: sizes, strides, element type.
pub(super) type Given = (Vec<u64>, Vec<u64>, String);

/// A kernel as the recorder says it: the operator, what it was given, numbers.
pub(super) type Run = (String, Vec<Given>, Vec<u32>);

/// A kernel with expressions for sizes and strides, of an element type each.
pub(super) type Expressed = (String, Vec<(Vec<u32>, Vec<u32>, String)>, Vec<u32>);

/// Whether these are one kernel at several sizes.
pub(super) fn alike(runs: &[&Run]) -> bool {
    let rank = |(sizes, strides, dtype): &Given| (sizes.len(), strides.len(), dtype.clone());
    let kind =
        |(op, operands, numbers): &Run| (op.clone(), operands.iter().map(rank).collect::<Vec<_>>(), numbers.clone());
    runs.windows(2).all(|pair| kind(pair[0]) == kind(pair[1]))
}

/// Sizes and strides of one kernel, as `number` finds expressions for them from their values at all points. `None` where one has none:
/// what the kernel holds is then not counted.
pub(super) fn expressed(runs: &[&Run], mut number: impl FnMut(&[u64]) -> Option<u32>) -> Option<Expressed> {
    let (op, first, numbers) = runs.first()?;
    let mut list = |of: &dyn Fn(&Run) -> Option<&Vec<u64>>, length: usize| {
        let place = |at: usize| runs.iter().map(|run| of(run)?.get(at).copied()).collect::<Option<Vec<u64>>>();
        (0..length).map(|at| number(&place(at)?)).collect::<Option<Vec<u32>>>()
    };
    let mut operands = Vec::with_capacity(first.len());
    for (at, (sizes, _, dtype)) in first.iter().enumerate() {
        let of_sizes = list(&|run| run.1.get(at).map(|given| &given.0), sizes.len())?;
        let strides = list(&|run| run.1.get(at).map(|given| &given.1), sizes.len())?;
        operands.push((of_sizes, strides, dtype.clone()));
    }
    Some((op.clone(), operands, numbers.clone()))
}
