//! A snapshot as its dictionaries have it: segments and their blocks, and the history of what came and went.

use std::collections::HashMap;

use plimsoll_ground::{Bytes, Error, Result};
use serde::Serialize;

use crate::MOST_BYTES;
use crate::pickle::{Id, Pickle};

const HINT: &str = "give a file that torch.cuda.memory._dump_snapshot wrote";

/// Most segments, blocks and events of a file together.
const MOST_EVENTS: usize = 8 << 20;

/// Deepest call stack that is kept; the innermost frames.
const MOST_FRAMES: usize = 64;

/// What `torch.cuda.memory._dump_snapshot` wrote.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The cards that PyTorch had used, in order, each with what was on it.
    pub devices: Vec<Device>,
    /// `PYTORCH_CUDA_ALLOC_CONF`, where it was set and is told.
    pub conf: Option<String>,
    stacks: Stacks,
}

/// One card.
#[derive(Clone, Debug, Default)]
pub struct Device {
    /// Its number in PyTorch.
    pub index: u32,
    /// What the allocator had from the driver when the snapshot was taken.
    pub segments: Vec<Segment>,
    /// What came and went, in order; empty where no history was recorded.
    pub trace: Vec<Entry>,
    /// What the program said of itself, in order: `Optimizer.step#AdamW.step` and such; older versions mark nothing.
    pub marks: Vec<Mark>,
}

/// A piece of memory that the allocator had from the driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Its size.
    pub total: Bytes,
    /// The stream it belongs to.
    pub stream: u64,
    /// Whether it is for requests of up to 1 MiB.
    pub small: bool,
    /// Its parts, in order.
    pub blocks: Vec<Block>,
}

/// A part of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Where it begins.
    pub address: u64,
    /// Its size.
    pub size: Bytes,
    /// What was asked for; as large as it is where that is not told.
    pub requested: Bytes,
    /// Whose it is.
    pub state: State,
    /// Who asked for it.
    pub stack: StackId,
}

/// Whose a block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// A tensor's.
    Allocated,
    /// Freed, and waited for by another stream.
    Pending,
    /// Nobody's.
    Inactive,
}

/// One event of the history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// What happened.
    pub action: Action,
    /// Where; what the card had left, of [`Action::Oom`].
    pub address: u64,
    /// How large: as it was asked for, of tensors.
    pub size: Bytes,
    /// When, in microseconds of the machine's clock; 0 where it is not told.
    pub time: i64,
    /// Who did it.
    pub stack: StackId,
}

/// What can happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// A tensor came.
    Alloc,
    /// A tensor went; another stream may still use its memory.
    FreeRequested,
    /// Its memory can be used again.
    FreeCompleted,
    /// The driver gave a segment, or mapped more of one.
    SegmentAlloc,
    /// The driver took one back, or unmapped some of it.
    SegmentFree,
    /// There was no memory left.
    Oom,
    /// A snapshot was taken, or something that newer versions tell of.
    Other,
}

/// A moment that the program marked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// What it said.
    pub name: String,
    /// Whether something began, and did not end.
    pub begins: bool,
    /// When, as [`Entry::time`].
    pub time: i64,
}

/// One frame of a call stack.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct Frame {
    /// The function.
    pub name: String,
    /// Its file.
    pub file: String,
    /// The line.
    pub line: u32,
}

impl Frame {
    /// Whether it is code of a package or of Python's own, or no Python at all: not the person's.
    pub fn is_foreign(&self) -> bool {
        const PLACES: [&str; 4] = ["site-packages/", "dist-packages/", "lib/python", "/torch/"];
        let path = self.file.replace('\\', "/");
        !self.is_python() || PLACES.iter().any(|place| path.contains(place))
    }

    /// Whether it is Python at all, and not a frame of C++ (`stacks="all"`).
    pub fn is_python(&self) -> bool {
        !self.name.contains("::") && std::path::Path::new(&self.file).extension().is_some_and(|end| end == "py")
    }

    /// `train.py:31 in step`, without the folders that lead there.
    pub fn in_words(&self) -> String {
        let file = self.file.rsplit(['/', '\\']).next().unwrap_or_default();
        format!("{file}:{} in {}", self.line, self.name)
    }
}

/// A call stack's place in its snapshot; the first has no frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StackId(u32);

impl Snapshot {
    /// Reads a file's bytes; nothing of it is run.
    ///
    /// # Errors
    /// Under the key `snapshot`, what it is instead of a snapshot, where, and what to give.
    pub fn read(bytes: &[u8]) -> Result<Self> {
        if bytes.len() > MOST_BYTES {
            let problem = format!("it is longer than {}", Bytes::new(MOST_BYTES as u64));
            return Err(Error::new("snapshot", problem, "record a shorter history: max_entries=100000"));
        }
        let pickle = Pickle::read(bytes)?;
        let mut reader = Reader::of(&pickle);
        let root = pickle.root();
        let none = |what: &str| Error::new("snapshot", format!("it has no {what}"), HINT);
        let segments = pickle.get(root, "segments").filter(|id| pickle.is_list(*id));
        let segments = segments.ok_or_else(|| none("list of segments"))?;
        let mut devices: Vec<Device> = Vec::new();
        for (number, segment) in pickle.items(segments).iter().enumerate() {
            let (index, segment) =
                reader.segment(*segment).map_err(|what| none(&format!("{what} in segment {number}")))?;
            device(&mut devices, index).segments.push(segment);
        }
        let traces = pickle.get(root, "device_traces").map_or(&[][..], |traces| pickle.items(traces));
        for (index, trace) in traces.iter().enumerate() {
            let entries = pickle.items(*trace).iter().enumerate().map(|(number, entry)| {
                reader.entry(*entry).map_err(|what| none(&format!("{what} in event {number} of card {index}")))
            });
            let entries = entries.collect::<Result<Vec<_>>>()?;
            if !entries.is_empty() {
                device(&mut devices, index as u32).trace = entries;
            }
        }
        for mark in pickle.get(root, "external_annotations").map_or(&[][..], |marks| pickle.items(marks)) {
            if let Some((index, mark)) = reader.mark(*mark)
                && let Some(device) = devices.iter_mut().find(|device| device.index == index)
            {
                device.marks.push(mark);
            }
        }
        devices.sort_by_key(|device| device.index);
        let conf =
            pickle.get(root, "allocator_settings").and_then(|settings| pickle.get(settings, "PYTORCH_CUDA_ALLOC_CONF"));
        let conf = conf.and_then(|conf| pickle.text(conf)).filter(|conf| !conf.is_empty());
        let stacks = reader.stacks;
        Ok(Self { devices, conf, stacks })
    }

    /// A call stack, innermost frame first.
    pub fn stack(&self, id: StackId) -> impl Iterator<Item = &Frame> {
        let places = self.stacks.all.get(id.0 as usize).map_or(&[][..], Vec::as_slice);
        places.iter().filter_map(|place| self.stacks.frames.get(*place as usize))
    }

    /// The card with the most in its history, or else the most memory.
    pub fn busiest(&self) -> Option<&Device> {
        let held = |device: &Device| device.segments.iter().map(|segment| segment.total).sum::<Bytes>();
        self.devices.iter().rev().max_by_key(|device| (device.trace.len(), held(device)))
    }
}

/// The card of this number, new if it was not there.
fn device(devices: &mut Vec<Device>, index: u32) -> &mut Device {
    let at = devices.iter().position(|device| device.index == index).unwrap_or_else(|| {
        devices.push(Device { index, ..Device::default() });
        devices.len() - 1
    });
    &mut devices[at]
}

/// Call stacks and frames, each kept once: a snapshot refers to most of them many times.
#[derive(Clone, Debug, Default)]
struct Stacks {
    /// Each as places of frames.
    all: Vec<Vec<u32>>,
    frames: Vec<Frame>,
}

/// Where those are that were met.
#[derive(Debug, Default)]
struct Met {
    /// By a list's place in the pickle.
    lists: HashMap<Id, StackId>,
    /// By what they are, for lists that are equal and not the same.
    stacks: HashMap<Vec<u32>, StackId>,
    /// By a dictionary's place in the pickle.
    dicts: HashMap<Id, u32>,
    frames: HashMap<Frame, u32>,
}

struct Reader<'a, 'b> {
    pickle: &'a Pickle<'b>,
    stacks: Stacks,
    met: Met,
    /// Blocks and events that may still be read.
    left: usize,
}

/// A value, or what is missing.
type Found<T> = std::result::Result<T, &'static str>;

impl<'a, 'b> Reader<'a, 'b> {
    fn of(pickle: &'a Pickle<'b>) -> Self {
        let mut reader = Self { pickle, stacks: Stacks::default(), met: Met::default(), left: MOST_EVENTS };
        reader.keep(Vec::new());
        reader
    }

    fn segment(&mut self, id: Id) -> Found<(u32, Segment)> {
        self.count()?;
        let index = self.number(id, "device").unwrap_or(0);
        let start = self.number(id, "address").ok_or("address")?;
        let total = self.bytes(id, "total_size").ok_or("total_size")?;
        let small = self.text(id, "segment_type").is_some_and(|kind| kind == "small");
        let stream = self.number(id, "stream").unwrap_or(0);
        let mut address = start;
        let mut blocks = Vec::new();
        for block in self.pickle.get(id, "blocks").map_or(&[][..], |blocks| self.pickle.items(blocks)) {
            self.count()?;
            let size = self.bytes(*block, "size").ok_or("size of a block")?;
            let state = match self.text(*block, "state").as_deref() {
                Some("active_allocated") => State::Allocated,
                Some("active_pending_free" | "active_awaiting_free") => State::Pending,
                Some(_) => State::Inactive,
                None => return Err("state of a block"),
            };
            let requested = self.bytes(*block, "requested_size").filter(|asked| *asked <= size).unwrap_or(size);
            let stack = self.stack(*block);
            // Where a block does not say where it is: they lie one behind the other.
            let address_of = self.number(*block, "address").unwrap_or(address);
            blocks.push(Block { address: address_of, size, requested, state, stack });
            address = address.saturating_add(size.get());
        }
        let index = u32::try_from(index).map_err(|_| "device")?;
        Ok((index, Segment { total, stream, small, blocks }))
    }

    fn entry(&mut self, id: Id) -> Found<Entry> {
        self.count()?;
        let action = match self.text(id, "action").ok_or("action")?.as_str() {
            "alloc" => Action::Alloc,
            "free_requested" => Action::FreeRequested,
            "free_completed" | "free" => Action::FreeCompleted,
            "segment_alloc" | "segment_map" => Action::SegmentAlloc,
            "segment_free" | "segment_unmap" => Action::SegmentFree,
            "oom" => Action::Oom,
            _ => Action::Other,
        };
        let place = if action == Action::Oom { "device_free" } else { "addr" };
        let (address, size) = match action {
            Action::Other => (0, Bytes::ZERO),
            // What was asked for in vain may be of any size; it is never summed up.
            Action::Oom => (self.number(id, place).unwrap_or(0), Bytes::new(self.number(id, "size").ok_or("size")?)),
            _ => (self.number(id, place).unwrap_or(0), self.bytes(id, "size").ok_or("size")?),
        };
        let time = self.pickle.get(id, "time_us").and_then(|time| self.pickle.int(time)).unwrap_or(0);
        Ok(Entry { action, address, size, time, stack: self.stack(id) })
    }

    fn mark(&self, id: Id) -> Option<(u32, Mark)> {
        let begins = self.text(id, "stage")? == "START";
        let time = self.pickle.int(self.pickle.get(id, "time_us")?)?;
        let index = u32::try_from(self.number(id, "device")?).ok()?;
        Some((index, Mark { name: self.text(id, "name")?, begins, time }))
    }

    fn stack(&mut self, id: Id) -> StackId {
        let Some(list) = self.pickle.get(id, "frames") else { return StackId::default() };
        if let Some(known) = self.met.lists.get(&list) {
            return *known;
        }
        let frames = self.pickle.items(list).iter().take(MOST_FRAMES);
        let frames: Vec<u32> = frames.map(|frame| self.frame(*frame)).collect();
        let stack = self.keep(frames);
        self.met.lists.insert(list, stack);
        stack
    }

    fn keep(&mut self, frames: Vec<u32>) -> StackId {
        let next = StackId(self.stacks.all.len() as u32);
        *self.met.stacks.entry(frames).or_insert_with_key(|frames| {
            self.stacks.all.push(frames.clone());
            next
        })
    }

    fn frame(&mut self, id: Id) -> u32 {
        if let Some(known) = self.met.dicts.get(&id) {
            return *known;
        }
        let frame = Frame {
            name: self.text(id, "name").unwrap_or_default(),
            file: self.text(id, "filename").unwrap_or_default(),
            line: self.number(id, "line").and_then(|line| u32::try_from(line).ok()).unwrap_or(0),
        };
        let next = self.stacks.frames.len() as u32;
        let place = *self.met.frames.entry(frame).or_insert_with_key(|frame| {
            self.stacks.frames.push(frame.clone());
            next
        });
        self.met.dicts.insert(id, place);
        place
    }

    /// One block or event more.
    fn count(&mut self) -> Found<()> {
        self.left = self.left.checked_sub(1).ok_or("end: there are more blocks and events than are read,")?;
        Ok(())
    }

    fn number(&self, id: Id, key: &str) -> Option<u64> {
        self.pickle.get(id, key).and_then(|value| self.pickle.int(value)).and_then(|number| u64::try_from(number).ok())
    }

    fn bytes(&self, id: Id, key: &str) -> Option<Bytes> {
        self.number(id, key).filter(|size| *size <= MOST_SIZE).map(Bytes::new)
    }

    fn text(&self, id: Id, key: &str) -> Option<String> {
        self.pickle.get(id, key).and_then(|value| self.pickle.text(value))
    }
}

/// Largest size that is believed: sums of what a file can name stay within 64 bits.
const MOST_SIZE: u64 = 1 << 40;
