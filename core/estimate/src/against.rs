//! A snapshot of the real run laid over the run of a scenario.

use std::ops::Range;

use plimsoll_ground::Bytes;
use plimsoll_ledger::{Event, PhaseName};
use plimsoll_snapshot::{Course, Snapshot, Storage};
use serde::Serialize;

use super::Run;
use super::explain;
use super::measure::ROUNDING;

/// What both say of one run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Against {
    /// `torch.cuda.max_memory_allocated`, where the history is whole.
    pub allocated: Pair,
    /// `torch.cuda.max_memory_reserved`.
    pub reserved: Pair,
    /// The steady step, request by request; absent where the snapshot has no two steps of an optimizer, or where the estimate
    /// runs one micro-batch for several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<Requests>,
}

/// One figure, twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Pair {
    /// The estimate's.
    pub estimate: Bytes,
    /// The snapshot's.
    pub snapshot: Bytes,
}

/// What was asked for from the end of one optimizer step to the end of the next, in order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Requests {
    /// How many in the estimate's second step.
    pub estimate: u64,
    /// How many in the snapshot's last whole step.
    pub snapshot: u64,
    /// How many are equal, to the byte, from the first on.
    pub equal: u64,
    /// What stands where they part; absent where they never do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub differs: Option<Differs>,
    /// Most that was alive in it.
    pub peak: Pair,
    /// What was alive, change by change: the estimate's, and the snapshot's.
    #[serde(skip)]
    pub lines: (Vec<Bytes>, Vec<Bytes>),
}

/// The first requests that are not equal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Differs {
    /// The estimate's; absent where it has no more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub estimate: Option<Asked>,
    /// The snapshot's; absent where it has no more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<Asked>,
}

/// One request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Asked {
    /// How much.
    pub bytes: Bytes,
    /// What ran: the phase, op and module, or the lines of Python.
    pub by: String,
}

impl Against {
    /// Lays a card's history over a run.
    pub fn new(run: &Run, snapshot: &Snapshot, course: &Course) -> Self {
        let highest = |line: &[Bytes]| line.iter().copied().max().unwrap_or(Bytes::ZERO);
        let peak = &run.estimate().peak;
        Self {
            allocated: Pair { estimate: peak.allocated, snapshot: highest(&course.live) },
            reserved: Pair { estimate: peak.reserved, snapshot: highest(&course.reserved) },
            step: requests(run, snapshot, course),
        }
    }
}

/// The events of the steady step: from the end of the optimizer's first step to the end of its second.
fn steady(run: &Run) -> Option<Range<usize>> {
    let ledger = run.ledger();
    let of = |step: u32| {
        let is = |index: &usize| {
            let mark = &ledger.phases[*index];
            mark.name == PhaseName::Optimizer && mark.step == Some(step)
        };
        (0..ledger.phases.len()).rfind(is).map(|index| ledger.phase(index).end)
    };
    Some(of(1)?..of(2)?)
}

fn requests(run: &Run, snapshot: &Snapshot, course: &Course) -> Option<Requests> {
    let ledger = run.ledger();
    let folded = (0..ledger.phases.len()).any(|index| ledger.phase_stands_for(index) > 1);
    let window = course.steady().filter(|_| !folded)?;
    let range = steady(run)?;
    let size = |event: &Event| Bytes::new(ledger.storages[event.id() as usize].bytes);
    let ours: Vec<(usize, Bytes)> = (range.clone())
        .filter(|at| !ledger.events[*at].is_free())
        .map(|at| (at, size(&ledger.events[at])))
        .filter(|(_, bytes)| !bytes.is_zero())
        .collect();
    let theirs = course.came(window.clone());
    let equal = ours.iter().zip(&theirs).take_while(|((_, own), other)| *own == other.size).count();
    let asked_here = |(at, bytes): &(usize, Bytes)| {
        let storage = &ledger.storages[ledger.events[*at].id() as usize];
        let phase = ledger.phases.iter().rev().find(|mark| mark.at <= *at).map_or("", |mark| mark.name.as_str());
        let (op, module) = (explain::op_name(ledger, storage), ledger.module(storage));
        let by = if module.is_empty() { format!("{phase}: {op}") } else { format!("{phase}: {op} in {module}") };
        Asked { bytes: *bytes, by }
    };
    let asked_there = |storage: &&Storage| Asked { bytes: storage.size, by: snapshot.origin(storage.stack) };
    let differs = Differs { estimate: ours.get(equal).map(asked_here), snapshot: theirs.get(equal).map(asked_there) };
    let differs = (differs.estimate.is_some() || differs.snapshot.is_some()).then_some(differs);
    let (own, other) = (line(run, range), changes(course.live[window.start..=window.end].iter().copied()));
    let highest = |line: &[Bytes]| line.iter().copied().max().unwrap_or(Bytes::ZERO);
    Some(Requests {
        estimate: ours.len() as u64,
        snapshot: theirs.len() as u64,
        equal: equal as u64,
        differs,
        peak: Pair { estimate: highest(&own), snapshot: highest(&other) },
        lines: (own, other),
    })
}

/// Alive before the first of these events and after each, each storage rounded up.
fn line(run: &Run, range: Range<usize>) -> Vec<Bytes> {
    let ledger = run.ledger();
    let mut live = Bytes::ZERO;
    let heights = ledger.events.iter().take(range.end).map(|event| {
        let size = Bytes::new(ledger.storages[event.id() as usize].bytes).round_up_to(ROUNDING);
        if event.is_free() {
            live -= size;
        } else {
            live += size;
        }
        live
    });
    changes(heights.skip(range.start.saturating_sub(1)))
}

/// Every height that is not the one before it.
fn changes(heights: impl Iterator<Item = Bytes>) -> Vec<Bytes> {
    let mut changes: Vec<Bytes> = heights.collect();
    changes.dedup();
    changes
}
