//! What a tape comes to at given sizes, without a context: how witnesses are held against it.

use super::{Hull, Step, Tape, Way, values};
use plimsoll_ground::{Error, Result};
use serde::{Deserialize, Serialize};

/// What a phase came to, in bytes of live storages, each rounded to the allocator's 512.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Phase {
    /// The most that was alive.
    pub peak: u64,
    /// What was alive when it ended.
    pub end: u64,
}

/// The caching allocator hands out multiples of this (`kMinBlockSize` in `CUDACachingAllocator.cpp`).
const BLOCK: u64 = 512;

struct Live {
    sizes: Vec<u64>,
    references: Vec<u32>,
    now: u64,
    phases: Vec<Phase>,
}

impl Live {
    fn begin(&mut self) {
        let now = self.now;
        self.phases.push(Phase { peak: now, end: now });
    }

    fn hold(&mut self, storage: u32) {
        let references = &mut self.references[storage as usize];
        *references += 1;
        if *references == 1 {
            self.now = self.now.saturating_add(self.sizes[storage as usize]);
            if let Some(phase) = self.phases.last_mut() {
                phase.peak = phase.peak.max(self.now);
            }
        }
        self.end();
    }

    fn release(&mut self, storage: u32) {
        let references = &mut self.references[storage as usize];
        if *references == 1 {
            self.now = self.now.saturating_sub(self.sizes[storage as usize]);
        }
        *references = references.saturating_sub(1);
        self.end();
    }

    fn end(&mut self) {
        if let Some(phase) = self.phases.last_mut() {
            phase.end = self.now;
        }
    }
}

/// Input, forward and backward of the three micro-batches as they were recorded, played at these sizes.
///
/// # Errors
/// A size that no expression gives there.
pub fn phases(hull: &Hull, tape: &Tape, axes: &[u64]) -> Result<Vec<Phase>> {
    let values = values(&hull.exprs, axes);
    let mut sizes = Vec::with_capacity(tape.storages.len());
    for born in &tape.storages {
        let bytes = values.get(born.bytes as usize).copied().flatten().and_then(|b| b.checked_next_multiple_of(BLOCK));
        sizes.push(bytes.ok_or_else(|| {
            let op = hull.ops.get(born.op as usize).map_or("", String::as_str);
            Error::new("model.hull", format!("a size of {op} has no whole value there"), "ask for other sizes")
        })?);
    }
    let mut live = Live { references: vec![0; sizes.len()], sizes, now: 0, phases: Vec::new() };
    for storage in 0..tape.loaded {
        live.hold(storage);
    }
    let mut left: Vec<u32> = Vec::new();
    for (index, segment) in tape.segments.iter().enumerate() {
        if index == 2 {
            // Gradients go between the phases.
            let phases = std::mem::take(&mut live.phases);
            for gradient in tape.segments[0].gradients.iter().flatten() {
                live.release(*gradient);
            }
            live.phases = phases;
        }
        let (mut next, mut handles, mut taken) = (segment.first, Vec::new(), Vec::new());
        live.begin();
        for (at, step) in segment.steps.iter().enumerate() {
            if segment.begins.contains(&(at as u32)) {
                live.begin();
            }
            match *step {
                Step::Born => {
                    live.hold(next);
                    next += 1;
                }
                Step::Dropped(storage) => live.release(storage),
                Step::Carried(index) => {
                    if let Some(storage) = left.get(index as usize) {
                        live.release(*storage);
                    }
                }
                Step::Kept(storage) => {
                    live.hold(storage);
                    handles.push(storage);
                }
                Step::LetGo(handle) => live.release(handles[handle as usize]),
                Step::Taken(handle) => {
                    let storage = handles[handle as usize];
                    live.hold(storage);
                    taken.push(storage);
                }
                Step::PutBack(number) => live.release(taken[number as usize]),
                Step::Takes
                | Step::Module(_)
                | Step::Return
                | Step::Product(_)
                | Step::Region
                | Step::RegionEnd
                | Step::Given(_)
                | Step::Reached(_)
                | Step::Arrived(_) => {}
            }
        }
        left = segment
            .leaves
            .iter()
            .map(|way| match *way {
                Way::Storage(storage) => storage,
                Way::Handle(handle) => handles[handle as usize],
                Way::Taken(number) => taken[number as usize],
            })
            .collect();
    }
    Ok(live.phases)
}
