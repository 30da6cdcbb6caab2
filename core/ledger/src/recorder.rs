//! The writing side of a ledger.

use std::borrow::Cow;
use std::ops::Range;

use crate::shapes::ShapeIndex;
use crate::work::WorkIndex;
use crate::{
    DType, Event, GradFnId, Kind, Launch, Law, Ledger, ModuleId, Names, OpId, Owner, PhaseMark, PhaseName, Storage,
    Stream, What, Work, WorkId,
};

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
    /// Those that do not lie on the default stream, in the order of their numbers.
    elsewhere: Vec<(u32, Stream)>,
}

impl Recorder {
    /// How many storages there is room for at first.
    pub const STORAGES: usize = 1 << 14;

    /// Most allocations and frees of a run. The largest model of the catalog, of 405 billion parameters, has half of them in
    /// eight micro-batches with adapters on every layer;
    /// reading a ledger takes some hundred bytes for each.
    pub const EVENTS: usize = 3_000_000;

    /// Most modules of a model.
    pub const MODULES: usize = 300_000;

    /// An empty ledger over these names, with room for the storages of a model of some thirty layers, so that a run does not
    /// begin by growing.
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

    /// Whether more is written than [`Recorder::EVENTS`] and the others allow: nothing that follows is worth writing.
    pub fn over(&self) -> bool {
        let ledger = &self.ledger;
        ledger.events.len() > Self::EVENTS
            || ledger.storages.len() > Self::EVENTS
            || ledger.modules.len() > Self::MODULES
    }

    /// Takes the ledger out.
    pub fn finish(self) -> Ledger {
        self.ledger
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
            if self.stream != Stream::DEFAULT {
                self.elsewhere.push((id, self.stream));
            }
        }
        self.ledger.storages.push(storage);
        id
    }

    /// Storage `id` goes; one of no bytes leaves no trace.
    pub fn death(&mut self, id: u32) {
        if self.ledger.storages[id as usize].bytes > 0 {
            // A block goes back to the stream it came from.
            let place = self.elsewhere.binary_search_by_key(&id, |(id, _)| *id).ok();
            let stream = place.and_then(|at| self.elsewhere.get(at)).map_or(Stream::DEFAULT, |(_, stream)| *stream);
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

    /// A kernel runs.
    pub fn launch(&mut self, work: Work) {
        self.ledger.ran.insert(work.op);
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

    /// A kernel runs that does what an earlier one did, after `at` events.
    pub fn launch_at(&mut self, at: u32, work: WorkId) {
        self.ledger.launches.push(Launch { at, work });
    }

    /// The kernels of a range of launches run once more, where now the stretch begins that began at event `from` then;
    /// `left_out` are the events of then, in order, that do not come again.
    pub fn launch_like(&mut self, range: Range<usize>, from: usize, left_out: &[usize]) {
        let begin = self.ledger.events.len();
        for index in range {
            let Launch { at, work } = self.ledger.launches[index];
            let gone = left_out.partition_point(|event| *event < at as usize);
            self.launch_at((begin + (at as usize).saturating_sub(from + gone)) as u32, work);
        }
    }

    /// Storages come and go in a stretch that is written at once; the ids of those that came.
    pub fn extend(
        &mut self,
        storages: impl Iterator<Item = Storage>,
        events: impl Iterator<Item = Event>,
    ) -> Range<u32> {
        let first = self.ledger.storages.len() as u32;
        self.ledger.storages.extend(storages);
        self.ledger.events.extend(events);
        first..self.ledger.storages.len() as u32
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
