//! Who holds what: timelines and the groups of live storages.

use std::collections::BTreeMap;
use std::ops::Range;

use plimsoll_ground::Bytes;
use plimsoll_ledger::{Ledger, Storage};

use super::measure::{ROUNDING, alive, category};
use super::{Category, Holding, PeakBreakdown, Timeline, TimelinePoint};

/// `mm`, or `mm@MmBackward0` for what a backward node ran.
pub fn op_name(ledger: &Ledger, storage: &Storage) -> String {
    let (op, grad_fn) = (ledger.op(storage), ledger.grad_fn(storage));
    if grad_fn.is_empty() { op.to_owned() } else { format!("{op}@{grad_fn}") }
}

/// The groups of equal storages alive after the first `events` events, largest first.
pub fn alive_at(ledger: &Ledger, events: usize) -> Vec<Holding> {
    type Key<'a> = (Category, u32, &'a str, &'a str, &'a [u64], &'static str);
    let (paths, group_of) = ledger.modules.groups();
    let mut groups: BTreeMap<Key<'_>, (u64, Bytes)> = BTreeMap::new();
    for id in alive(ledger, events) {
        let s = &ledger.storages[id as usize];
        let module = group_of[s.module.index()];
        let key = (category(s.kind), module, ledger.op(s), ledger.grad_fn(s), ledger.sizes(s), s.dtype.name());
        let group = groups.entry(key).or_default();
        group.0 += 1;
        group.1 += Bytes::new(s.bytes).round_up_to(ROUNDING);
    }
    let mut holdings: Vec<Holding> = groups
        .into_iter()
        .map(|((category, module, op, node, shape, dtype), (count, bytes))| Holding {
            category,
            module: paths[module as usize].clone(),
            op: if node.is_empty() { op.to_owned() } else { format!("{op}@{node}") },
            shape: shape.to_vec(),
            dtype: dtype.to_owned(),
            count,
            bytes,
        })
        .collect();
    holdings.sort_by_key(|h| std::cmp::Reverse(h.bytes));
    holdings
}

/// How high it stands at one moment while the stream is walked.
#[derive(Clone, Copy)]
struct Height {
    event: usize,
    phase: usize,
    storage: usize,
    live: PeakBreakdown,
    total: Bytes,
}

/// At most `max_points` moments (but at least one a phase): the stream is cut into equal stretches and of each the
/// highest and the lowest moment are kept, with the peak and the last moment of every phase.
pub fn timeline(ledger: &Ledger, peak_event: usize, max_points: usize) -> Timeline {
    within(ledger, peak_event, 0..ledger.events.len(), max_points)
}

/// The same of a part of the stream: where it is shorter than `max_points` events, each of them. The highest moment of it
/// is its peak.
pub fn stretch(ledger: &Ledger, events: Range<usize>, max_points: usize) -> Timeline {
    let mut timeline = within(ledger, usize::MAX, events, max_points);
    let highest = timeline.points.iter().enumerate().max_by_key(|(i, p)| (p.live.total(), std::cmp::Reverse(*i)));
    timeline.peak = highest.map_or(0, |(index, _)| index);
    timeline
}

fn within(ledger: &Ledger, peak_event: usize, events: Range<usize>, max_points: usize) -> Timeline {
    let whole = (events.len() * 2).div_ceil(max_points.max(1)).max(1);
    // Where every event has a point of its own, none is left out for being neither high nor low.
    let stretch = if events.len() <= max_points { 1 } else { whole };
    let mut live = PeakBreakdown::default();
    let mut total = Bytes::ZERO;
    let mut storage = 0;
    let mut kept: Vec<Height> = Vec::new();
    for (phase, mark) in ledger.phases.iter().enumerate() {
        let end = ledger.phases.get(phase + 1).map_or(ledger.events.len(), |next| next.at).min(events.end);
        let mut at = mark.at;
        while at < end {
            // What lies before is only summed, in one go.
            let stop = if at < events.start { events.start.min(end) } else { (at + stretch).min(end) };
            let (mut high, mut low): (Option<Height>, Option<Height>) = (None, None);
            for (offset, event) in ledger.events[at..stop].iter().enumerate() {
                let id = event.id() as usize;
                let info = &ledger.storages[id];
                let size = Bytes::new(info.bytes).round_up_to(ROUNDING);
                if event.is_free() {
                    live.subtract(category(info.kind), size);
                    total -= size;
                } else {
                    live.add(category(info.kind), size);
                    total += size;
                    storage = id;
                }
                let moment = Height { event: at + offset, phase, storage, live, total };
                if at + offset == peak_event || high.is_none_or(|h| total > h.total && h.event != peak_event) {
                    high = Some(moment);
                }
                if low.is_none_or(|l| total < l.total) {
                    low = Some(moment);
                }
            }
            let mut pair: Vec<Height> =
                if at < events.start { Vec::new() } else { high.into_iter().chain(low).collect() };
            pair.sort_by_key(|m| m.event);
            pair.dedup_by_key(|m| m.event);
            kept.extend(pair);
            at = stop;
        }
        // The phase's own end, so that steps in the drawing stand where phases do.
        if end > mark.at && end > events.start && kept.last().is_none_or(|m| m.event != end - 1) {
            kept.push(Height { event: end - 1, phase, storage, live, total });
        }
    }
    let peak = kept.iter().position(|m| m.event == peak_event).unwrap_or(0);
    let points = kept
        .into_iter()
        .map(|m| TimelinePoint {
            event: m.event as u32 + 1,
            phase: m.phase as u32,
            live: m.live,
            op: op_name(ledger, &ledger.storages[m.storage]),
            module: ledger.module(&ledger.storages[m.storage]),
        })
        .collect();
    Timeline { points, peak }
}
