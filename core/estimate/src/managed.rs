//! What a paged optimizer keeps in managed memory.
//!
//! bitsandbytes asks for it with `cudaMallocManaged` (`get_paged` in `bitsandbytes/functional.py`, `cget_managed_ptr` in
//! `csrc/pythonInterface.cpp`, 0.50). The driver moves its pages: to the card when a step wants them (`prefetch_tensor`), and to the
//! machine's memory when the card has no room ("GPU Memory Oversubscription" in NVIDIA's CUDA programming guide). They are in no
//! figure of PyTorch's allocator, and in the machine's memory they are page-locked in fact, not in PyTorch's count.

use plimsoll_ground::Bytes;
use serde::Serialize;

use super::Verdict;
use super::host::verdict;

/// States of an optimizer in memory that moves between card and machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Managed {
    /// Of one process.
    pub process: Bytes,
    /// Of one process, what has no room on its card beside the run's peak: so much at least lies in the machine's memory then.
    pub evicted: Bytes,
    /// The same of all processes of a machine.
    pub evicted_per_node: Bytes,
    /// Of all processes of a machine: the most that it may have to hold.
    pub per_node: Bytes,
    /// Whether the machine holds all of it, beside the rest; where the scenario says what there is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
}

impl Managed {
    /// So much of each of `processes`, whose cards have `room` beside their peak; of a machine that holds `beside` as well, out of what
    /// it has.
    pub(super) fn of(process: Bytes, processes: u64, room: Bytes, beside: (Bytes, Option<Bytes>)) -> Self {
        let all = |bytes: Bytes| Bytes::new(bytes.get().saturating_mul(processes));
        let evicted = process.saturating_sub(room);
        let taken = Bytes::new(beside.0.get().saturating_add(all(process).get()));
        Self {
            process,
            evicted,
            evicted_per_node: all(evicted),
            per_node: all(process),
            verdict: beside.1.map(|capacity| verdict(taken, capacity)),
        }
    }

    /// What it should not be read without, beside the figures.
    pub(super) fn notes(&self) -> Vec<String> {
        let waits = if self.evicted.is_zero() {
            "another program on the card may take the room it has there"
        } else {
            "every step waits for what comes and goes"
        };
        let mut notes = vec![format!(
            "the driver moves managed memory between card and machine (cudaMallocManaged): no figure of the card has it, and {waits}"
        )];
        if self.verdict == Some(Verdict::DoesNotFit) {
            notes.push(format!(
                "the machine's own memory does not hold all of it, {} with the other processes', beside what else is there",
                self.per_node
            ));
        }
        notes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_room_on_the_card_is_in_the_machines_memory() {
        let gib = Bytes::from_gib;
        let fits = Managed::of(gib(4), 2, gib(6), (gib(1), None));
        assert_eq!((fits.evicted, fits.per_node, fits.verdict), (Bytes::ZERO, gib(8), None));
        let full = Managed::of(gib(4), 2, gib(1), (gib(1), Some(gib(9))));
        assert_eq!((full.evicted, full.evicted_per_node), (gib(3), gib(6)));
        assert_eq!(full.verdict, Some(Verdict::Tight));
        assert_eq!(Managed::of(gib(4), 2, gib(1), (gib(1), Some(gib(8)))).verdict, Some(Verdict::DoesNotFit));
        assert!(full.notes().join(" ").contains("every step waits") && !fits.notes().join(" ").contains("waits"));
    }
}
