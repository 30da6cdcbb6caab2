//! A card through both steps: its phases and its highest point.

use plimsoll_ground::Bytes;
use plimsoll_ledger::Ledger;

use super::outcome::CardMemory;
use super::{Peak, PeakBreakdown, Phase, Verdict, explain, measure};

/// What a card does, read.
#[derive(Debug)]
pub struct Followed {
    pub ledger: Ledger,
    /// The allocation that made the peak.
    pub peak_event: usize,
    pub phases: Vec<Phase>,
    pub peak: Peak,
    pub at_peak: PeakBreakdown,
    pub verdict: Verdict,
    /// How often cached segments were released to make room.
    pub retries: u32,
    /// As [`measure::AllocatorPeaks::apart`].
    pub apart: Vec<Bytes>,
}

impl Followed {
    /// Reads what a run wrote, on this card.
    pub fn of(ledger: Ledger, memory: &CardMemory) -> Self {
        let (mut phases, highest) = measure::requested(&ledger);
        let size = |id: u32| Bytes::new(ledger.storages[id as usize].bytes);
        let outcome = memory.outcome(&ledger, size, highest.bytes, Some(&mut phases));
        let maker = ledger.events.get(highest.event).map(|e| &ledger.storages[e.id() as usize]);
        let phase = ledger.phases.partition_point(|mark| mark.at <= highest.event).saturating_sub(1);
        let peak = Peak {
            allocated: outcome.peaks.allocated,
            requested: highest.bytes,
            reserved: outcome.peaks.reserved,
            process: outcome.process,
            phase: phases[phase].name,
            step: phases[phase].step.unwrap_or(0),
            op: maker.map(|s| explain::op_name(&ledger, s)).unwrap_or_default(),
            module: maker.map(|s| ledger.module(s)).unwrap_or_default(),
        };
        let at_peak = measure::breakdown(&ledger, highest.event + 1);
        let (verdict, retries) = (outcome.verdict, outcome.peaks.retries);
        let apart = outcome.peaks.apart;
        Self { peak_event: highest.event, phases, peak, at_peak, verdict, retries, apart, ledger }
    }
}
