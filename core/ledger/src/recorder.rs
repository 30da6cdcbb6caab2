//! The writing side of a ledger.

use std::borrow::Cow;
use std::ops::Range;

use crate::shapes::ShapeIndex;
use crate::work::WorkIndex;
use crate::{
    DType, Event, GradFnId, Kind, Launch, Law, Ledger, ModuleId, Names, OpId, Owner, PhaseMark, PhaseName, Storage,
    Stream, What, Work, WorkId,
};

/// What each entry takes, in bytes, on a machine of 64 bits: itself, and its place in the index that finds it again.
mod weight {
    pub const STORAGE: u64 = 40;
    pub const EVENT: u64 = 8;
    pub const LAUNCH: u64 = 8;
    pub const WORK: u64 = 80;
    pub const LAW: u64 = 80;
    pub const SHAPE: u64 = 64;
    pub const NUMBER: u64 = 16;
    pub const MODULE: u64 = 48;
    pub const STREAM: u64 = 1;
}

/// What is said of a storage at its birth.
#[derive(Clone, Copy, Debug)]
pub struct Birth<'a> {
    /// Bytes asked for; of none, no event is written.
    pub bytes: u64,
    /// Why it exists.
    pub kind: Kind,
    /// The op that makes it.
    pub op: OpId,
    /// In backward, the autograd function that runs the op.
    pub grad_fn: GradFnId,
    /// The module it is made in.
    pub module: ModuleId,
    /// Element type of the tensor it is made for.
    pub dtype: DType,
    /// Sizes of that tensor.
    pub sizes: &'a [u64],
    /// The parameter it belongs to.
    pub owner: Option<Owner>,
}

/// A ledger that is being written.
#[derive(Debug, Default)]
pub struct Recorder {
    ledger: Ledger,
    shapes: ShapeIndex,
    works: WorkIndex,
    /// Whether only memory is asked for, and launches are not written down.
    weightless: bool,
    /// Where storages are allocated.
    stream: Stream,
    /// Of every storage up to the last one that does not lie on the default stream, the one it lies on.
    streams: Vec<Stream>,
}

impl Recorder {
    /// How many storages there is room for at first.
    pub const STORAGES: usize = 1 << 16;

    /// In [`Recorder::again`]: a storage has no copy.
    pub const NO_COPY: u32 = u32::MAX;

    /// Most allocations and frees of a run. The largest model of the catalog, of 405 billion parameters, has 1.44 million in eight
    /// micro-batches with quantized weights, adapters with dropout on every layer and checkpointing; further micro-batches are
    /// not run one by one.
    pub const EVENTS: usize = 1_700_000;

    /// Most modules of a model.
    pub const MODULES: usize = 300_000;

    /// Most memory that a run may have of ours, in bytes, what it refers to besides its ledger included. The run of 1.44 million
    /// stays below it; what exceeds it are thousands of layers with adapters, whose modules weigh more than what they write.
    pub const BYTES: u64 = 128 << 20;

    /// An empty ledger over these names, with room for the storages of a model of some eighty layers, so that a run does not
    /// begin by growing; what is not used of it is never touched.
    pub fn new(ops: Names, grad_fns: Names) -> Self {
        let ledger = Ledger {
            storages: Vec::with_capacity(Self::STORAGES),
            events: Vec::with_capacity(2 * Self::STORAGES),
            phases: Vec::with_capacity(32),
            ops,
            grad_fns,
            ..Ledger::default()
        };
        Self { ledger, shapes: ShapeIndex::default(), works: WorkIndex::default(), ..Self::default() }
    }

    /// What is written so far.
    pub const fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Whether more is written than [`Recorder::EVENTS`] and the others allow, where `beside` bytes are held besides: nothing that
    /// follows is worth writing.
    pub fn over(&self, beside: u64) -> bool {
        let ledger = &self.ledger;
        ledger.events.len() > Self::EVENTS
            || ledger.storages.len() > Self::EVENTS
            || ledger.modules.len() > Self::MODULES
            || self.bytes().saturating_add(beside) > Self::BYTES
    }

    /// How many entries are written: each takes a few dozen bytes.
    #[inline]
    pub fn entries(&self) -> usize {
        let ledger = &self.ledger;
        ledger.storages.len() + ledger.events.len() + ledger.launches.len() + ledger.modules.len()
    }

    /// About what is written takes of our memory, in bytes: counted, and by the same figures on every machine, so that what is
    /// refused on one is refused on all.
    pub fn bytes(&self) -> u64 {
        let ledger = &self.ledger;
        let weighed = [
            (ledger.storages.len(), weight::STORAGE),
            (ledger.events.len(), weight::EVENT),
            (ledger.launches.len(), weight::LAUNCH),
            (ledger.works.len(), weight::WORK),
            (ledger.laws.len(), weight::LAW),
            (ledger.shapes.len(), weight::SHAPE),
            (ledger.shapes.numbers(), weight::NUMBER),
            (ledger.modules.len(), weight::MODULE),
            (self.streams.len(), weight::STREAM),
        ];
        weighed.iter().fold(0, |sum, (count, bytes)| sum + *count as u64 * bytes)
    }

    /// Takes the ledger out.
    pub fn finish(self) -> Ledger {
        self.ledger
    }

    /// What is cached goes back to the card (`torch.cuda.empty_cache`).
    pub fn empty_cache(&mut self) {
        let after = self.ledger.events.len() as u32;
        if self.ledger.emptied.last() != Some(&after) {
            self.ledger.emptied.push(after);
        }
    }

    /// What was written so far, a load alone, happened otherwise: these are its events, and behind so many of them what was cached
    /// went back. Its launches are the first of all that happens.
    pub fn reload(&mut self, events: Vec<Event>, emptied: Option<usize>) {
        self.ledger.events = events;
        self.ledger.emptied = emptied.into_iter().map(|after| after as u32).collect();
        for launch in &mut self.ledger.launches {
            launch.at = 0;
        }
    }

    /// The number of an operator's name, which is added where it is new.
    pub fn name_op(&mut self, name: &str) -> OpId {
        OpId(self.ledger.ops.number(name))
    }

    /// The number of the name of an autograd function, which is added where it is new.
    pub fn name_grad_fn(&mut self, name: &str) -> GradFnId {
        GradFnId(self.ledger.grad_fns.number(name))
    }

    /// A storage comes; its id.
    pub fn birth(&mut self, birth: Birth<'_>) -> u32 {
        let Birth { bytes, kind, op, grad_fn, module, dtype, sizes, owner } = birth;
        let shape = self.shapes.of(&mut self.ledger.shapes, sizes);
        self.born(Storage { bytes, module, shape, owner, op, grad_fn, kind, dtype })
    }

    /// A storage comes that is like another one in all that `storage` says; its id.
    pub fn born(&mut self, storage: Storage) -> u32 {
        let id = self.ledger.storages.len() as u32;
        if storage.bytes > 0 {
            self.ledger.events.push(Event::new(What::Alloc, id, self.stream));
            lies(&mut self.streams, id, self.stream);
        }
        self.ledger.storages.push(storage);
        id
    }

    /// Storage `id` goes; one of no bytes leaves no trace.
    pub fn death(&mut self, id: u32) {
        if self.ledger.storages[id as usize].bytes > 0 {
            // A block goes back to the stream it came from.
            let stream = self.streams.get(id as usize).copied().unwrap_or_default();
            self.ledger.events.push(Event::new(What::Free, id, stream));
        }
    }

    /// Storages come on `stream` from now on; the one they came on before.
    pub const fn switch(&mut self, stream: Stream) -> Stream {
        std::mem::replace(&mut self.stream, stream)
    }

    /// Why storage `id` exists, now that more is known.
    pub fn kind_mut(&mut self, id: u32) -> &mut Kind {
        &mut self.ledger.storages[id as usize].kind
    }

    /// The size of a storage follows from another one's.
    pub fn law(&mut self, law: Law) {
        self.ledger.laws.push(law);
    }

    /// Writes no launches down, only which ops ran: for those who ask for memory alone.
    pub const fn leave_out_launches(&mut self) {
        self.weightless = true;
    }

    /// An op runs of whose kernels nothing is known.
    pub fn runs(&mut self, op: OpId) {
        self.ledger.ran.insert(op);
    }

    /// A kernel runs.
    pub fn launch(&mut self, work: Work) {
        self.runs(work.op);
        if self.weightless {
            return;
        }
        let work = self.works.of(&mut self.ledger.works, work);
        self.launch_again(work);
    }

    /// A kernel runs that does what an earlier one did.
    pub fn launch_again(&mut self, work: WorkId) {
        self.ledger.launches.push(Launch { at: self.ledger.events.len() as u32, work });
    }

    /// The kernels of a range of launches run once more, in the stretch that begins at event `begin` as another one began at
    /// `from`; `left_out` are the events of that one, in order, that do not come again.
    pub fn launch_like(&mut self, range: Range<usize>, from: usize, begin: usize, left_out: &[usize]) {
        let launches = &mut self.ledger.launches;
        launches.reserve(range.len());
        for index in range {
            let Launch { at, work } = launches[index];
            let gone = match left_out {
                [] => 0,
                _ => left_out.partition_point(|event| *event < at as usize),
            };
            launches.push(Launch { at: (begin + (at as usize).saturating_sub(from + gone)) as u32, work });
        }
    }

    /// The events of a range come once more, with storages of their own: `copies` has those of each storage from `first` on,
    /// [`Recorder::NO_COPY`] where there is none, and gets those that come. `dies` is told of every copy that goes. Answers
    /// the events that do not come again: of storages without a copy, and of those that are made once.
    pub fn again(
        &mut self,
        range: Range<usize>,
        first: u32,
        copies: &mut Vec<u32>,
        mut dies: impl FnMut(u32),
    ) -> Vec<usize> {
        let Ledger { storages, events, .. } = &mut self.ledger;
        let mut left_out = Vec::new();
        events.reserve(range.len());
        // What comes goes, mostly.
        storages.reserve(range.len() / 2);
        for at in range {
            let event = events[at];
            let place = event.id().wrapping_sub(first) as usize;
            if event.is_free() {
                match copies.get(place) {
                    Some(copy) if *copy != Self::NO_COPY => {
                        dies(*copy);
                        events.push(event.of(*copy));
                    }
                    _ => left_out.push(at),
                }
                continue;
            }
            let storage = storages[event.id() as usize];
            if matches!(storage.kind, Kind::Workspace | Kind::OptimizerState) {
                left_out.push(at);
                continue;
            }
            let copy = storages.len() as u32;
            storages.push(storage);
            events.push(event.of(copy));
            lies(&mut self.streams, copy, event.stream());
            match copies.get_mut(place) {
                Some(known) => *known = copy,
                None => copy_beyond(copies, place, copy),
            }
        }
        left_out
    }

    /// Makes room for so many more storages, events and launches: for what a run may have at most.
    pub fn reserve(&mut self, storages: usize, events: usize, launches: usize) {
        self.ledger.storages.reserve(storages.min(Self::EVENTS));
        self.ledger.events.reserve(events.min(Self::EVENTS));
        self.ledger.launches.reserve(launches.min(Self::EVENTS));
    }

    /// Storages are there whose events are written later ([`Recorder::stretch`]); their ids.
    pub fn extend(&mut self, storages: impl Iterator<Item = Storage>) -> Range<u32> {
        let first = self.ledger.storages.len() as u32;
        self.ledger.storages.extend(storages);
        first..self.ledger.storages.len() as u32
    }

    /// Storages come and go in a stretch that is written at once, in which kernels run that do what earlier ones did.
    #[inline]
    pub fn stretch(&mut self, events: impl Iterator<Item = Event>, launches: impl Iterator<Item = Launch>) {
        let streams = &mut self.streams;
        self.ledger.events.extend(events.map(|event| noted(streams, event)));
        self.ledger.launches.extend(launches);
    }

    /// Two storages change places: what is said of them, and in the events at these places, whose storage is given.
    pub fn swap(&mut self, a: u32, b: u32, events: [(usize, u32); 3]) {
        self.ledger.storages.swap(a as usize, b as usize);
        for (at, id) in events {
            if let Some(event) = self.ledger.events.get_mut(at) {
                *event = event.of(id);
            }
        }
    }

    /// A phase begins.
    pub fn phase(&mut self, name: PhaseName, step: Option<u32>, micro_batch: Option<u64>) {
        let (at, launch) = (self.ledger.events.len(), self.ledger.launches.len());
        self.ledger.phases.push(PhaseMark { at, launch, name, step, micro_batch });
    }

    /// A module is registered.
    pub fn module(&mut self, parent: ModuleId, name: Cow<'static, str>, item: Option<u32>) -> ModuleId {
        self.ledger.modules.add(parent, name, item)
    }
}

/// The first copy of a storage that `copies` has no place for yet: those behind it will want one as well.
#[cold]
fn copy_beyond(copies: &mut Vec<u32>, place: usize, copy: u32) {
    copies.resize(place, Recorder::NO_COPY);
    copies.push(copy);
    copies.resize(copies.capacity(), Recorder::NO_COPY);
}

/// An event, with the stream noted that its storage comes on.
#[inline]
fn noted(streams: &mut Vec<Stream>, event: Event) -> Event {
    if !event.is_free() {
        lies(streams, event.id(), event.stream());
    }
    event
}

/// Storage `id` comes on `stream`.
#[inline]
fn lies(streams: &mut Vec<Stream>, id: u32, stream: Stream) {
    if stream != Stream::DEFAULT {
        streams.resize(streams.len().max(id as usize + 1), Stream::DEFAULT);
        if let Some(of) = streams.get_mut(id as usize) {
            *of = stream;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn birth(sizes: &[u64]) -> Birth<'_> {
        Birth {
            bytes: 0,
            kind: Kind::Forward,
            op: OpId::default(),
            grad_fn: GradFnId::default(),
            module: ModuleId::ROOT,
            dtype: DType::Float32,
            sizes,
            owner: None,
        }
    }

    #[test]
    fn what_entries_weigh_is_what_they_take() {
        let takes = [
            (size_of::<Storage>(), weight::STORAGE),
            (size_of::<Event>(), weight::EVENT),
            (size_of::<Launch>(), weight::LAUNCH),
            (size_of::<Work>(), weight::WORK),
            (size_of::<Law>(), weight::LAW),
            (size_of::<crate::Module>(), weight::MODULE),
            (size_of::<Stream>(), weight::STREAM),
        ];
        for (takes, weight) in takes {
            assert!(takes as u64 <= weight, "{takes} {weight}");
        }
    }

    #[test]
    fn shapes_that_never_repeat_are_more_than_a_run_may_have_before_their_number_is() {
        let mut recorder = Recorder::new(Names::default(), Names::default());
        for n in 0..2_000_000u64 {
            recorder.birth(birth(&[n, n + 1, n + 2, n + 3, n + 4, n + 5]));
            if recorder.over(0) {
                break;
            }
        }
        let storages = recorder.ledger().storages.len();
        assert!(recorder.over(0) && storages < 1_500_000, "{storages}");
    }

    #[test]
    fn launches_count_where_nothing_comes_or_goes() {
        let mut recorder = Recorder::new(Names::default(), Names::default());
        let work = Work { op: OpId::default(), dtype: DType::Float32, flops: 0, read: 1, written: 1 };
        (0..1_000_000).for_each(|_| recorder.launch(work));
        assert!(recorder.bytes() > 8_000_000 && !recorder.over(0));
        // With what the graph holds besides.
        assert!(recorder.over(Recorder::BYTES));
    }
}
