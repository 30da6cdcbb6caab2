//! What a run wrote.

use std::ops::Range;

use crate::{Event, Launch, Law, Modules, Names, OpSet, Parameters, PhaseMark, Shapes, Storage, Work, WorkId};

/// What a run wrote: every storage in the order of its birth, every birth and death, every launch, where each phase of the
/// loop begins, and the tables that these refer to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ledger {
    /// Storages by id.
    pub storages: Vec<Storage>,
    /// Births and deaths in order.
    pub events: Vec<Event>,
    /// After how many events what was cached went back to the card (`torch.cuda.empty_cache`), in rising order.
    pub emptied: Vec<u32>,
    /// Where each phase begins.
    pub phases: Vec<PhaseMark>,
    /// The kernels that ran, in order.
    pub launches: Vec<Launch>,
    /// What launches do.
    pub works: Vec<Work>,
    /// The ops that ran.
    pub ran: OpSet,
    /// Sizes of storages that are no line over the micro-batch, in the order of the storages.
    pub laws: Vec<Law>,
    /// The sizes of storages' tensors.
    pub shapes: Shapes,
    /// The tree of modules.
    pub modules: Modules,
    /// Names of ops.
    pub ops: Names,
    /// Names of autograd's functions.
    pub grad_fns: Names,
    /// Numbers in the model.
    pub parameters: Parameters,
    /// The storages of the parameters that are trained, in the model's order.
    pub trained: Vec<u32>,
    /// Storages that one card handed to `record_stream` behind the stream that computes, in rising order. Not in the file.
    pub handed: Vec<u32>,
    /// What the same rank's process had in the machine's own memory, where anything of it is followed: page-locked storages come on
    /// stream 1. Not in the file.
    pub host: Option<Box<Ledger>>,
}

impl Ledger {
    /// The name of the op that made a storage.
    pub fn op(&self, storage: &Storage) -> &str {
        self.ops.get(storage.op.0)
    }

    /// The name of the autograd function that ran it; empty outside backward.
    pub fn grad_fn(&self, storage: &Storage) -> &str {
        self.grad_fns.get(storage.grad_fn.0)
    }

    /// The path of the module a storage was made in.
    pub fn module(&self, storage: &Storage) -> String {
        self.modules.path(storage.module)
    }

    /// The sizes of the tensor a storage was made for.
    pub fn sizes(&self, storage: &Storage) -> &[u64] {
        self.shapes.get(storage.shape)
    }

    /// What a launch does.
    pub fn work(&self, launch: &Launch) -> Option<&Work> {
        let WorkId(number) = launch.work;
        self.works.get(number as usize)
    }

    /// A range of events, cut where what is cached goes back to the card: each piece, and whether it does so before the
    /// piece's first event.
    pub fn between_emptyings(&self, range: Range<usize>) -> impl Iterator<Item = (bool, Range<usize>)> {
        let before = |place: usize| self.emptied.partition_point(|after| (*after as usize) < place);
        let cuts = self.emptied.get(before(range.start)..before(range.end)).unwrap_or_default();
        let end = move |index: usize| cuts.get(index).map_or(range.end, |cut| *cut as usize);
        let first = (false, range.start..end(0));
        let others = cuts.iter().enumerate().map(move |(index, cut)| (true, *cut as usize..end(index + 1)));
        std::iter::once(first).chain(others)
    }

    /// Where the events of the `index`-th phase stand.
    pub fn phase(&self, index: usize) -> Range<usize> {
        let at = |index: usize| self.phases.get(index).map_or(self.events.len(), |mark| mark.at);
        at(index)..at(index + 1)
    }

    /// The launches of the `index`-th phase.
    pub fn phase_launches(&self, index: usize) -> &[Launch] {
        let at = |index: usize| self.phases.get(index).map_or(self.launches.len(), |mark| mark.launch);
        self.launches.get(at(index)..at(index + 1)).unwrap_or_default()
    }

    /// How many micro-batches the `index`-th phase stands for: of a long accumulation the first and the last are run, and
    /// those between do what the one before them did.
    pub fn phase_stands_for(&self, index: usize) -> u64 {
        let Some(mark) = self.phases.get(index) else { return 1 };
        let next = self.phases.iter().skip(index + 1).find(|later| later.name == mark.name && later.step == mark.step);
        let micro_batches = next.and_then(|next| next.micro_batch).zip(mark.micro_batch);
        micro_batches.map_or(1, |(next, this)| next.saturating_sub(this))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_cut_where_the_cache_is_emptied() {
        let ledger = Ledger { emptied: vec![0, 3, 7, 9], ..Ledger::default() };
        let pieces = |range: Range<usize>| -> Vec<(bool, Range<usize>)> {
            ledger.between_emptyings(range).filter(|(emptied, piece)| *emptied || !piece.is_empty()).collect()
        };
        assert_eq!(pieces(1..3), [(false, 1..3)]);
        assert_eq!(pieces(3..7), [(true, 3..7)]);
        assert_eq!(pieces(0..9), [(true, 0..3), (true, 3..7), (true, 7..9)]);
        assert_eq!(pieces(4..8), [(false, 4..7), (true, 7..8)]);
        assert_eq!(pieces(7..7), []);
    }
}
