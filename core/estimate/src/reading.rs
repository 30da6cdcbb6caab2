//! A ledger by itself: what it says without the scenario and the card it was written for.

use std::collections::BTreeMap;

use plimsoll_allocator::Settings;
use plimsoll_ground::Bytes;
use plimsoll_ledger::{Ledger, Parameters, PhaseName};
use plimsoll_scenario::Parallel;
use serde::Serialize;

use super::measure::{self, ROUNDING, RequestedPeak};
use super::work::StepWork;
use super::{Holding, PeakBreakdown, Phase, explain};

/// A ledger and where it stands highest.
#[derive(Debug)]
pub struct Reading {
    ledger: Ledger,
    peak: RequestedPeak,
    summary: Summary,
}

/// What a ledger says.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// Format version: 1.
    pub schema: u32,
    /// How many numbers the model holds.
    pub parameters: Parameters,
    /// How many storages there were.
    pub storages: u64,
    /// How many came and went.
    pub events: u64,
    /// How many kernels ran.
    pub launches: u64,
    /// The highest point.
    pub peak: LedgerPeak,
    /// What is alive where `requested` peaks.
    pub at_peak: PeakBreakdown,
    /// Who made it: groups of equal storages, largest first.
    pub holdings: Vec<Holding>,
    /// Every phase in order.
    pub phases: Vec<Phase>,
    /// What a step computes and moves; absent where it is not counted.
    #[serde(skip_serializing_if = "StepWork::is_none")]
    pub work: StepWork,
}

/// The highest point of a ledger.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LedgerPeak {
    /// Sum of live storages, each rounded up to 512 bytes.
    pub requested: Bytes,
    /// What `torch.cuda.max_memory_allocated` reports on a card without end.
    pub allocated: Bytes,
    /// What `torch.cuda.max_memory_reserved` reports there.
    pub reserved: Bytes,
    /// Phase in which `requested` peaks; none of an empty ledger.
    pub phase: Option<PhaseName>,
    /// Optimizer step; 0 for `load`.
    pub step: u32,
    /// The op whose allocation made the peak.
    pub op: String,
    /// The module it ran in.
    pub module: String,
}

impl Reading {
    /// Reads a ledger.
    pub fn new(ledger: Ledger) -> Self {
        let (mut phases, peak) = measure::requested(&ledger);
        let size = |id: u32| Bytes::new(ledger.storages[id as usize].bytes);
        // A request that no card can address is refused; then nothing lies between the storages.
        let replayed = measure::replay(&ledger, size, (None, &Settings::default()), Some(&mut phases));
        let (allocated, reserved) =
            replayed.map_or((peak.bytes, peak.bytes), |peaks| (peaks.allocated, peaks.reserved));
        let maker = ledger.events.get(peak.event).map(|event| &ledger.storages[event.id() as usize]);
        let phase = ledger.phases.iter().rev().find(|mark| mark.at <= peak.event);
        let events = if peak.bytes.is_zero() { 0 } else { peak.event + 1 };
        let summary = Summary {
            schema: 1,
            parameters: ledger.parameters,
            storages: ledger.storages.len() as u64,
            events: ledger.events.len() as u64,
            launches: ledger.launches.len() as u64,
            peak: LedgerPeak {
                requested: peak.bytes,
                allocated,
                reserved,
                phase: phase.map(|mark| mark.name),
                step: phase.and_then(|mark| mark.step).unwrap_or(0),
                op: maker.map(|storage| explain::op_name(&ledger, storage)).unwrap_or_default(),
                module: maker.map(|storage| ledger.module(storage)).unwrap_or_default(),
            },
            at_peak: measure::breakdown(&ledger, events),
            holdings: explain::alive_at(&ledger, events),
            phases,
            work: StepWork::of(&ledger, &Parallel::default()),
        };
        Self { ledger, peak, summary }
    }

    /// What it says.
    pub const fn summary(&self) -> &Summary {
        &self.summary
    }

    /// The bytes alive at the peak by what a group is asked for, largest first.
    pub fn held_by(&self, name: impl Fn(&Holding) -> String) -> Vec<(String, Bytes)> {
        let mut groups: BTreeMap<String, Bytes> = BTreeMap::new();
        for holding in &self.summary.holdings {
            *groups.entry(name(holding)).or_default() += holding.bytes;
        }
        let mut groups: Vec<(String, Bytes)> = groups.into_iter().collect();
        groups.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
        groups
    }

    /// Live memory in `columns` equal stretches of the stream: the highest of each.
    pub fn heights(&self, columns: usize) -> Vec<Bytes> {
        let mut heights = vec![Bytes::ZERO; columns];
        let mut live = Bytes::ZERO;
        for (at, event) in self.ledger.events.iter().enumerate() {
            let size = Bytes::new(self.ledger.storages[event.id() as usize].bytes).round_up_to(ROUNDING);
            if event.is_free() {
                live -= size;
            } else {
                live += size;
            }
            if let Some(height) = heights.get_mut(self.column(at, columns)) {
                *height = (*height).max(live);
            }
        }
        heights
    }

    /// The stretch of `columns` that an event of the stream falls into.
    fn column(&self, event: usize, columns: usize) -> usize {
        (event as u128 * columns as u128 / self.ledger.events.len().max(1) as u128) as usize
    }

    /// In which of `columns` stretches each phase begins that has events.
    pub fn beginnings(&self, columns: usize) -> Vec<(usize, PhaseName)> {
        let with_events =
            self.ledger.phases.iter().enumerate().filter(|(index, _)| !self.ledger.phase(*index).is_empty());
        with_events.map(|(_, mark)| (self.column(mark.at, columns), mark.name)).collect()
    }

    /// In which of `columns` stretches the peak lies.
    pub fn peak_column(&self, columns: usize) -> usize {
        self.column(self.peak.event, columns)
    }
}
