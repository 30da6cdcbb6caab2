//! What a snapshot says of one card, for people and programs.

use std::collections::BTreeMap;

use plimsoll_ground::Bytes;
use serde::Serialize;

use crate::course::{Course, Oom, rounded};
use crate::read::{Device, Frame, Segment, Snapshot, StackId, State};

/// A card in a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// Format version: 1.
    pub schema: u32,
    /// The card's number in PyTorch.
    pub device: u32,
    /// How many events its history has; 0 where none was recorded.
    pub events: u64,
    /// Alive before the history begins: what it cannot tell apart.
    pub before: Bytes,
    /// Most that was alive: what was asked for, each rounded up to 512 bytes.
    pub peak: Bytes,
    /// How much of that was there before the history began.
    pub peak_from_before: Bytes,
    /// Most that the allocator had from the driver.
    pub peak_reserved: Bytes,
    /// After which event the peak was, from 1; 0 where it was before all.
    pub peak_at: u64,
    /// Who held it: groups by the place in the person's own code and the function that asked, largest first.
    pub holdings: Vec<Held>,
    /// What was asked for in vain.
    pub out_of_memory: Vec<Vain>,
    /// Steps of an optimizer that the history has whole.
    pub steps: u64,
    /// What lies between, when the snapshot was taken.
    pub at_end: Fragmentation,
    /// `PYTORCH_CUDA_ALLOC_CONF`, where it was set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conf: Option<String>,
}

/// Storages of one origin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Held {
    /// Where in the person's code: `train.py:31 in step`; empty where the call came from none.
    pub place: String,
    /// The innermost Python function: `functional.py:1753 in gelu`; empty where the call came from no Python, as backward's do.
    pub function: String,
    /// Whether it was there before the history begins.
    pub before: bool,
    /// How many.
    pub count: u64,
    /// Their sum, each rounded up to 512 bytes.
    pub bytes: Bytes,
}

/// A request for which there was no memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Vain {
    /// After which event.
    pub at: u64,
    /// What was asked for.
    pub asked: Bytes,
    /// What the driver had left.
    pub free: Bytes,
    /// What was alive.
    pub live: Bytes,
    /// As of [`Held`].
    pub place: String,
    /// As of [`Held`].
    pub function: String,
}

/// What the allocator had from the driver when the snapshot was taken.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Fragmentation {
    /// All of it.
    pub reserved: Bytes,
    /// In segments, so many.
    pub segments: u64,
    /// What tensors have: whole blocks.
    pub allocated: Bytes,
    /// What they asked for.
    pub requested: Bytes,
    /// Freed, but waited for by another stream.
    pub pending: Bytes,
    /// Free within segments that hold something: what cannot be given back.
    pub stranded: Bytes,
    /// Free in segments that hold nothing: `torch.cuda.empty_cache` gives it back.
    pub empty: Bytes,
    /// The largest free block: a larger request asks the driver.
    pub largest_free: Bytes,
    /// On how many streams.
    pub streams: u64,
}

impl Fragmentation {
    fn of(segments: &[Segment]) -> Self {
        let mut all = Self { segments: segments.len() as u64, ..Self::default() };
        let mut streams: Vec<u64> = segments.iter().map(|segment| segment.stream).collect();
        streams.sort_unstable();
        streams.dedup();
        all.streams = streams.len() as u64;
        for segment in segments {
            all.reserved += segment.total;
            let used = segment.blocks.iter().any(|block| block.state != State::Inactive);
            for block in &segment.blocks {
                match block.state {
                    State::Allocated => {
                        all.allocated += block.size;
                        all.requested += block.requested;
                    }
                    State::Pending => all.pending += block.size,
                    State::Inactive => {
                        *if used { &mut all.stranded } else { &mut all.empty } += block.size;
                        all.largest_free = all.largest_free.max(block.size);
                    }
                }
            }
        }
        all
    }
}

impl Summary {
    /// Sums a card's history up.
    pub fn of(snapshot: &Snapshot, device: &Device, course: &Course) -> Self {
        let peak = course.peak();
        let before = course.alive(peak).filter(|storage| storage.from.is_none());
        Self {
            schema: 1,
            device: device.index,
            events: device.trace.len() as u64,
            before: course.live.first().copied().unwrap_or(Bytes::ZERO),
            peak: course.live.get(peak).copied().unwrap_or(Bytes::ZERO),
            peak_from_before: before.map(|storage| rounded(storage.size)).sum(),
            peak_reserved: course.reserved.iter().copied().max().unwrap_or(Bytes::ZERO),
            peak_at: peak as u64,
            holdings: holdings(snapshot, course, peak),
            out_of_memory: course.ooms.iter().map(|oom| vain(snapshot, course, oom)).collect(),
            steps: course.steps.len() as u64,
            at_end: Fragmentation::of(&device.segments),
            conf: snapshot.conf.clone(),
        }
    }
}

fn vain(snapshot: &Snapshot, course: &Course, oom: &Oom) -> Vain {
    let (place, function) = origin(snapshot, oom.stack);
    Vain {
        at: oom.at as u64,
        asked: oom.asked,
        free: oom.free,
        live: course.live.get(oom.at).copied().unwrap_or(Bytes::ZERO),
        place,
        function,
    }
}

/// Who holds what is alive after so many events, largest first.
fn holdings(snapshot: &Snapshot, course: &Course, after: usize) -> Vec<Held> {
    let mut by_stack: BTreeMap<(StackId, bool), (u64, Bytes)> = BTreeMap::new();
    for storage in course.alive(after) {
        let (count, bytes) = by_stack.entry((storage.stack, storage.from.is_none())).or_default();
        *count += 1;
        *bytes += rounded(storage.size);
    }
    let mut groups: BTreeMap<(String, String, bool), (u64, Bytes)> = BTreeMap::new();
    for ((stack, before), (count, bytes)) in by_stack {
        let (place, function) = origin(snapshot, stack);
        let group = groups.entry((place, function, before)).or_default();
        group.0 += count;
        group.1 += bytes;
    }
    let held = |((place, function, before), (count, bytes))| Held { place, function, before, count, bytes };
    let mut holdings: Vec<Held> = groups.into_iter().map(held).collect();
    holdings.sort_by_key(|held| std::cmp::Reverse(held.bytes));
    holdings
}

/// Where in the person's own code a call came from, and the innermost Python function.
fn origin(snapshot: &Snapshot, stack: StackId) -> (String, String) {
    let own = snapshot.stack(stack).find(|frame| !frame.is_foreign());
    let python = snapshot.stack(stack).find(|frame| frame.is_python());
    let words = |frame: Option<&Frame>| frame.map(Frame::in_words).unwrap_or_default();
    (words(own), words(python))
}

/// The same in a few words: `functional.py:1753 in gelu, train.py:31`.
fn in_words(place: &str, function: &str) -> String {
    match (place, function) {
        ("", "") => "autograd's own thread: no Python".to_owned(),
        (place, function) if place == function || function.is_empty() => place.to_owned(),
        ("", function) => function.to_owned(),
        (place, function) => format!("{function}, {}", place.split(" in ").next().unwrap_or(place)),
    }
}

impl Snapshot {
    /// Where a call came from, in a few words.
    pub fn origin(&self, stack: StackId) -> String {
        let (place, function) = origin(self, stack);
        in_words(&place, &function)
    }
}

impl Held {
    /// Where it came from, in a few words.
    pub fn origin(&self) -> String {
        match (&*self.place, &*self.function, self.before) {
            ("", "", true) => "before the history begins".to_owned(),
            (place, function, _) => in_words(place, function),
        }
    }
}

impl Vain {
    /// Who asked, in a few words.
    pub fn origin(&self) -> String {
        in_words(&self.place, &self.function)
    }
}
