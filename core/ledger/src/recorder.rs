//! The writing side of a ledger.

use std::borrow::Cow;

use crate::shapes::ShapeIndex;
use crate::work::WorkIndex;
use crate::{
    DType, Event, GradFnId, Kind, Launch, Law, Ledger, ModuleId, Names, OpId, Owner, PhaseMark, PhaseName, Storage,
    Work, WorkId,
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
}

impl Recorder {
    /// An empty ledger over these names, with room for the storages of a model of some thirty layers, so that a run does not
    /// begin by growing.
    pub fn new(ops: Names, grad_fns: Names) -> Self {
        const STORAGES: usize = 1 << 14;
        let ledger = Ledger {
            storages: Vec::with_capacity(STORAGES),
            events: Vec::with_capacity(2 * STORAGES),
            phases: Vec::with_capacity(32),
            ops,
            grad_fns,
            ..Ledger::default()
        };
        Self { ledger, shapes: ShapeIndex::default(), works: WorkIndex::default() }
    }

    /// What is written so far.
    pub const fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Takes the ledger out.
    pub fn finish(self) -> Ledger {
        self.ledger
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
            self.ledger.events.push(Event::alloc(id));
        }
        self.ledger.storages.push(storage);
        id
    }

    /// Storage `id` goes; one of no bytes leaves no trace.
    pub fn death(&mut self, id: u32) {
        if self.ledger.storages[id as usize].bytes > 0 {
            self.ledger.events.push(Event::free(id));
        }
    }

    /// Why storage `id` exists, now that more is known.
    pub fn kind_mut(&mut self, id: u32) -> &mut Kind {
        &mut self.ledger.storages[id as usize].kind
    }

    /// The size of a storage follows from another one's.
    pub fn law(&mut self, law: Law) {
        self.ledger.laws.push(law);
    }

    /// A kernel runs.
    pub fn launch(&mut self, work: Work) {
        let work = self.works.of(&mut self.ledger.works, work);
        self.launch_again(work);
    }

    /// A kernel runs that does what an earlier one did.
    pub fn launch_again(&mut self, work: WorkId) {
        self.ledger.launches.push(Launch { at: self.ledger.events.len() as u32, work });
    }

    /// A phase begins.
    pub fn phase(&mut self, name: PhaseName, step: Option<u32>, micro_batch: Option<u64>) {
        let at = self.ledger.events.len();
        self.ledger.phases.push(PhaseMark { at, name, step, micro_batch });
    }

    /// A module is registered.
    pub fn module(&mut self, parent: ModuleId, name: Cow<'static, str>, item: Option<u32>) -> ModuleId {
        self.ledger.modules.add(parent, name, item)
    }
}
