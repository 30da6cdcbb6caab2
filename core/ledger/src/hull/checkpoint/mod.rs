//! Checkpointing, worked out from a tape that was recorded without it.
//!
//! What is here is `_checkpoint_without_reentrant_generator` and `_checkpoint_hook` of `torch/utils/checkpoint.py`: in a
//! checkpointed stretch autograd is given holders instead of tensors, and the stretch's inputs are kept until the last
//! holder is gone. Whoever asks a holder for its tensor first has the stretch run again, up to the last thing that it had
//! saved (early stop). A tape says all of this apart, so the result is a tape as well.

mod again;
mod patterns;

use std::collections::BTreeSet;

use plimsoll_ground::{Error, Result};

pub use patterns::names_match;

use super::Hull;
use super::tape::{Born, Segment, Step, Tape};
use again::Again;

/// Which stretches are checkpointed; of those within one another, the outermost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chosen<'a> {
    /// Those that were marked when it was recorded: what the model's own switch checkpoints, or the blocks that repeat.
    Marked,
    /// Calls of the modules whose names match one of these patterns.
    Named(&'a [String]),
}

fn cannot(problem: &str) -> Error {
    Error::new(
        "training.checkpointing",
        format!("checkpointing cannot be worked out from this recording: {problem}"),
        "call torch.utils.checkpoint in the model and record it again with plimsoll trace",
    )
}

/// A checkpointed stretch of a micro-batch.
#[derive(Debug, Default)]
struct Region {
    /// Its first instruction behind what it is given.
    start: usize,
    /// Where it ends.
    end: usize,
    /// Behind the last thing it had autograd save.
    stop: usize,
    /// The storage that would come next where it begins, as the recording counts.
    first: u32,
    /// The handle that would.
    handle: u32,
    /// Storages that it is given.
    inputs: Vec<u32>,
    /// Holders that are still there.
    holders: BTreeSet<u32>,
    /// Handles that stand for the kept inputs.
    kept: Vec<u32>,
    /// Whether it ran again.
    again: bool,
    /// Places of `kept` among what is left behind.
    left: Vec<u32>,
}

/// What becomes of something that a micro-batch leaves behind.
#[derive(Clone, Copy, Debug, Default)]
struct Left {
    /// Its place in the new list.
    place: Option<u32>,
    /// The stretch whose inputs go with its last holder.
    region: Option<usize>,
}

impl Tape {
    /// Whether anything was marked for checkpointing when it was recorded.
    pub fn is_marked(&self) -> bool {
        self.segments[0].steps.contains(&Step::Region)
    }

    /// Whether it says what modules are given, without which nothing can be worked out.
    pub fn says_what_is_given(&self) -> bool {
        self.segments[0].steps.iter().any(|step| matches!(step, Step::Given(_)))
    }

    /// Takes out what is marked for checkpointing: it cannot be worked out.
    pub fn unmark(&mut self) {
        self.segments.iter_mut().for_each(Segment::unmark);
    }

    /// The same micro-batches with these stretches checkpointed, and how many there are in the first.
    ///
    /// # Errors
    /// A stretch whose second run cannot be told from its first.
    pub fn checkpointed(&self, hull: &Hull, chosen: Chosen<'_>) -> Result<(Self, usize)> {
        let picked: Vec<bool> = match chosen {
            Chosen::Marked => Vec::new(),
            Chosen::Named(patterns) => {
                hull.modules.iter().map(|name| patterns.iter().any(|p| names_match(p, name))).collect()
            }
        };
        let begins = |step: &Step| match *step {
            Step::Region => chosen == Chosen::Marked,
            Step::Module(module) => picked.get(module as usize).copied().unwrap_or(false),
            _ => false,
        };
        let mut storages: Vec<Born> = self.storages.iter().take(self.loaded as usize).copied().collect();
        let mut before: Vec<Left> = vec![Left::default(); self.segments[0].leaves.len()];
        let mut regions: Vec<Region> = Vec::new();
        let mut made: Vec<Segment> = Vec::with_capacity(3);
        let mut count = 0;
        for (index, segment) in self.segments.iter().enumerate() {
            let found = stretches(segment, &begins)?;
            if index == 0 {
                count = found.len();
            }
            let again = Again::new(self, segment, found, &mut storages);
            let (segment, left, open) = again.run(&before, &mut regions)?;
            made.push(segment);
            (before, regions) = (left, open);
        }
        let kinds = |segment: &Segment| segment.leaves.iter().map(std::mem::discriminant).collect::<Vec<_>>();
        if made.iter().any(|segment| kinds(segment) != kinds(&made[0])) {
            return Err(cannot("micro-batches would leave different things behind"));
        }
        let Ok(segments) = <[Segment; 3]>::try_from(made) else { return Err(cannot("it has no three micro-batches")) };
        Ok((Self { storages, segments, ..self.clone() }, count))
    }
}

/// The stretches of a micro-batch's forward.
fn stretches(segment: &Segment, begins: &dyn Fn(&Step) -> bool) -> Result<Vec<Region>> {
    let mut regions: Vec<Region> = Vec::new();
    // Of every call that is open, whether it is the chosen one.
    let mut calls: Vec<(bool, bool)> = Vec::new();
    let (mut storages, mut handles) = (segment.first, 0u32);
    let mut open = false;
    let mut giving = false;
    for (at, step) in segment.steps.iter().enumerate().take(segment.begins[1] as usize) {
        let given = std::mem::replace(&mut giving, false);
        match *step {
            Step::Region | Step::Module(_) => {
                let chosen = !open && begins(step);
                calls.push((*step == Step::Region, chosen));
                if chosen {
                    (open, giving) = (true, true);
                    let (start, stop) = (at + 1, at + 1);
                    regions.push(Region { start, stop, first: storages, handle: handles, ..Region::default() });
                }
            }
            Step::Given(storage) => {
                if let (true, Some(region)) = (given, regions.last_mut()) {
                    giving = true;
                    region.inputs.push(storage);
                    region.start = at + 1;
                    region.stop = at + 1;
                }
            }
            Step::Return | Step::RegionEnd => {
                let Some((marked, chosen)) = calls.pop() else {
                    return Err(cannot("something ends that did not begin"));
                };
                if marked != (*step == Step::RegionEnd) {
                    return Err(cannot("calls are not within one another"));
                }
                if let (true, Some(region)) = (chosen, regions.last_mut()) {
                    region.end = at;
                    open = false;
                }
            }
            Step::Born => storages += 1,
            Step::Kept(_) => {
                if let (true, Some(region)) = (open, regions.last_mut()) {
                    region.holders.insert(handles);
                    region.stop = at + 1;
                }
                handles += 1;
            }
            Step::Taken(_) if open => return Err(cannot("it runs backward within its forward")),
            _ => {}
        }
    }
    if open {
        return Err(cannot("a stretch does not end within the forward"));
    }
    Ok(regions)
}
