//! What a run takes where the driver lays every segment below the last.
//!
//! Of equal free blocks PyTorch takes the one that lies lowest. Where segments lie is the driver's choice, and another in another
//! process: everything else is estimated as if each lay above the last. On an H100 and an H200 most lay below it
//! (`tests/corpus/README.md`, `card.jsonl`).

use plimsoll_ground::Bytes;
use plimsoll_ledger::Ledger;
use serde::Serialize;

use super::outcome::CardMemory;
use super::{Peak, Verdict};

/// The other end of what the driver may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Falling {
    /// What `torch.cuda.max_memory_allocated` reports then.
    pub allocated: Bytes,
    /// What `torch.cuda.max_memory_reserved` reports then.
    pub reserved: Bytes,
    /// The process.
    pub process: Bytes,
    /// Whether it fits.
    pub verdict: Verdict,
}

impl Falling {
    /// Of a run that takes `peak` where each lies above the last; `None` where it is the same.
    pub fn of(ledger: &Ledger, memory: &CardMemory, (peak, verdict): (&Peak, Verdict)) -> Option<Self> {
        let size = |id: u32| ledger.storages.get(id as usize).map_or(Bytes::ZERO, |s| Bytes::new(s.bytes));
        let outcome = memory.falling().outcome(ledger, size, peak.requested, None);
        let (allocated, reserved) = (outcome.peaks.allocated, outcome.peaks.reserved);
        let same = (allocated, reserved, outcome.verdict) == (peak.allocated, peak.reserved, verdict);
        (!same).then_some(Self { allocated, reserved, process: outcome.process, verdict: outcome.verdict })
    }

    /// In words, where it makes a difference that one would ask about: another verdict, or a hundredth of what is reserved.
    pub fn note(&self, (peak, verdict): (&Peak, Verdict)) -> Option<String> {
        let apart = self.reserved.get().abs_diff(peak.reserved.get());
        if self.verdict == verdict && apart < peak.reserved.get() / 100 {
            return None;
        }
        let words = match self.verdict {
            _ if self.verdict == verdict => "",
            Verdict::Fits => ", which fits",
            Verdict::Tight => ", which is tight",
            Verdict::DoesNotFit => ", which does not fit",
        };
        Some(format!(
            "where the driver lays each segment below the last, as it mostly did on an H100 and an H200, the allocator fits blocks \
             otherwise: {} reserved instead of {}, a process of {}{words}. It is the driver's choice, and may be another in another run",
            self.reserved, peak.reserved, self.process
        ))
    }
}
