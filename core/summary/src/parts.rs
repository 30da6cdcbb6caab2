//! What the peak of the process is stacked of.

use plimsoll_estimate::{Estimate, Peak, PeakBreakdown};
use plimsoll_ground::Bytes;
use serde::{Deserialize, Serialize};

use crate::Kind;

/// Bytes of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// What for.
    pub kind: Kind,
    /// How much.
    pub bytes: Bytes,
}

/// The ledger's categories, then what the allocator reserved beyond them, then what lies outside it, in the order of
/// [`Kind::ALL`]; empty ones are among them. They sum to the process's peak.
///
/// Live tensors peak at one moment and the allocator's segments perhaps at a later one; what the segments are larger by
/// is the allocator's.
pub fn parts(estimate: &Estimate) -> Vec<Part> {
    stacked(&estimate.peak, &estimate.at_peak)
}

/// [`parts`] of one role's peak.
pub(crate) fn stacked(peak: &Peak, at_peak: &PeakBreakdown) -> Vec<Part> {
    let ledger = at_peak.total();
    Kind::ALL
        .into_iter()
        .map(|kind| Part {
            kind,
            bytes: match (kind.category(), kind) {
                (Some(category), _) => at_peak.get(category),
                (None, Kind::Context) => peak.process.saturating_sub(peak.reserved.max(ledger)),
                (None, _) => peak.reserved.saturating_sub(ledger),
            },
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::markdown::tests::estimated;

    #[test]
    fn the_parts_sum_to_the_process_peak() {
        let (_, estimate) = estimated();
        let parts = parts(&estimate);
        assert_eq!(parts.iter().map(|p| p.bytes).sum::<Bytes>(), estimate.peak.process);
        assert_eq!(parts.len(), Kind::ALL.len());
        assert!(parts.iter().any(|p| p.kind == Kind::Context && !p.bytes.is_zero()));
    }
}
