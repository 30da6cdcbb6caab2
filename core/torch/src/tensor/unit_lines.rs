//! What a unit of a model wrote, so that it can be written once more for another unit.

use std::cell::Cell;
use std::ops::Range;
use std::rc::Rc;

use plimsoll_ledger::{Event, Kind, Launch, Law, Ledger, ModuleId, Storage, Stream, What, WorkId};

use super::context::Context;
use super::heard::Heard;
use super::repeat::Position;
use super::retell::{Begins, Retelling, Told};
use super::units::Unit;

/// The storages that were made in a stretch. Those of a unit's own have numbers in it; what hooks made meanwhile, and what is made
/// only once for all, has none.
#[derive(Clone, Debug, Default)]
pub(super) struct Born {
    ids: Range<u32>,
    apart: Vec<Apart>,
}

/// Storages without numbers.
#[derive(Clone, Debug)]
struct Apart {
    ids: Range<u32>,
    /// How many of those without a number there are before and among these.
    upto: u32,
}

/// None at all.
static UNBORN: Born = Born::all(0..0);

impl Born {
    /// Of storages that all have numbers.
    const fn all(ids: Range<u32>) -> Self {
        Self { ids, apart: Vec::new() }
    }

    /// Of these storages, but for those that were made while hooks ran, and workspaces.
    pub fn read(ledger: &Ledger, ids: Range<u32>, heard: &[Heard]) -> Self {
        let storages = ledger.storages.get(ids.start as usize..ids.end as usize).unwrap_or_default();
        let once = (ids.start..).zip(storages).filter(|(_, storage)| storage.kind == Kind::Workspace);
        let hooks = heard.iter().map(|heard| heard.storages.clone()).filter(|made| !made.is_empty());
        let mut ranges: Vec<Range<u32>> = hooks.chain(once.map(|(id, _)| id..id + 1)).collect();
        ranges.sort_by_key(|range| (range.start, range.end));
        let mut apart: Vec<Apart> = Vec::with_capacity(ranges.len());
        for range in ranges {
            let (end, upto) = apart.last().map_or((0, 0), |last| (last.ids.end, last.upto));
            if range.end > end {
                let ids = range.start.max(end)..range.end;
                apart.push(Apart { upto: upto + (ids.end - ids.start), ids });
            }
        }
        Self { ids, apart }
    }

    /// How many storages with numbers there are.
    pub fn count(&self) -> u32 {
        self.ids.end - self.ids.start - self.apart.last().map_or(0, |last| last.upto)
    }

    /// Whether a storage was made here, with a number or without.
    pub fn contains(&self, id: u32) -> bool {
        self.ids.contains(&id)
    }

    /// The number of a storage.
    pub fn number(&self, id: u32) -> Option<u32> {
        if !self.contains(id) {
            return None;
        }
        let before = self.apart.partition_point(|apart| apart.ids.start <= id);
        match before.checked_sub(1).and_then(|last| self.apart.get(last)) {
            Some(last) if last.ids.contains(&id) => None,
            Some(last) => Some(id - self.ids.start - last.upto),
            None => Some(id - self.ids.start),
        }
    }

    /// The storage of a number.
    #[inline]
    pub fn id(&self, number: u32) -> u32 {
        // Of a copied unit every storage has one.
        if self.apart.is_empty() { self.ids.start + number } else { self.id_among(number) }
    }

    /// The same where some have none.
    #[cold]
    fn id_among(&self, number: u32) -> u32 {
        let numbered = |apart: &Apart| apart.ids.end - self.ids.start - apart.upto;
        let before = self.apart.partition_point(|apart| numbered(apart) <= number);
        let without = before.checked_sub(1).and_then(|last| self.apart.get(last)).map_or(0, |last| last.upto);
        self.ids.start + number + without
    }
}

/// What a unit wrote in one direction: forward or backward.
#[derive(Clone, Debug)]
pub(super) struct Stretch {
    /// From where to where.
    pub positions: Range<Position>,
    /// The storages that were made.
    pub born: Born,
}

/// Which storage an event of a unit is about: one that was made ...
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Whose {
    /// ... in this unit's forward.
    Own,
    /// ... in the forward of the unit before.
    Before,
    /// ... in this unit's backward.
    OwnBackward,
    /// ... in the backward of the unit behind, which ran before this one's.
    BehindBackward,
}

impl Whose {
    /// All of them, by number.
    const ALL: [Self; 4] = [Self::Own, Self::Before, Self::OwnBackward, Self::BehindBackward];
}

/// The storages of each [`Whose`], in their order; where there are none, nothing is about them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bases<'a>([&'a Born; 4]);

impl<'a> Bases<'a> {
    /// Of a forward.
    pub const fn forward(own: &'a Born, before: &'a Born) -> Self {
        Self([own, before, &UNBORN, &UNBORN])
    }

    /// Of a backward, whose own storages and those of the unit behind are `backwards`.
    pub const fn backward(own: &'a Born, before: &'a Born, [made, behind]: [&'a Born; 2]) -> Self {
        Self([own, before, made, behind])
    }

    /// The storage of a number.
    #[inline]
    pub fn id(&self, whose: Whose, number: u32) -> u32 {
        self.0[whose as usize].id(number)
    }

    /// Whose a storage is, and its number.
    pub fn number(&self, id: u32) -> Option<(Whose, u32)> {
        Whose::ALL.into_iter().zip(self.0).find_map(|(whose, born)| Some((whose, born.number(id)?)))
    }
}

/// One event, wherever the unit stands: its storage is the `number`-th of those of `whose`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Line {
    pub what: What,
    pub whose: Whose,
    stream: Stream,
    pub number: u32,
}

/// Everything a unit wrote in one direction, but for what hooks did.
#[derive(Clone, Debug)]
pub(super) struct Lines {
    lines: Vec<Line>,
    pub storages: Vec<Storage>,
    /// Launches, each with the number of lines before it.
    launches: Vec<(u32, WorkId)>,
    /// Those of `storages` whose size is no line over the batch: each law's storage is a number of them.
    laws: Vec<Law>,
    /// What hooks were told of it.
    pub told: Vec<Told>,
    /// How many nodes of the graph it made.
    nodes: u32,
}

/// What was read of a unit: which one it is, the nodes of its forward, and the storages that its events may be about.
#[derive(Clone, Copy, Debug)]
pub(super) struct Source<'a> {
    pub unit: &'a Unit,
    /// The modules of the unit whose backward ran before this one's.
    pub behind: Option<&'a Range<u32>>,
    pub nodes: &'a Range<u32>,
    pub bases: Bases<'a>,
    /// Storages that have another one's name.
    pub renamed: &'a [(u32, u32)],
}

impl Lines {
    /// Reads a stretch in which hooks `heard` this. `None` where an event is about another storage, or where something was made that is
    /// made only once.
    pub fn read(ledger: &Ledger, stretch: &Stretch, heard: &[Heard], source: Source<'_>) -> Option<Self> {
        let (Range { start, end }, born) = (&stretch.positions, &stretch.born);
        let number = |id: u32| {
            let renamed = source.renamed.iter().find(|(name, _)| *name == id);
            source.bases.number(renamed.map_or(id, |(_, other)| *other))
        };
        let made = born.ids.clone().filter(|id| born.number(*id).is_some());
        let storages: Vec<Storage> = made.map(|id| ledger.storages.get(id as usize).copied()).collect::<Option<_>>()?;
        let kept = |id: u32| heard.iter().any(|heard| heard.storages.contains(&id));
        let once = |id: u32| {
            let kind = ledger.storages.get(id as usize).map(|storage| storage.kind);
            matches!(kind, Some(Kind::Workspace | Kind::OptimizerState)) && !kept(id)
        };
        if born.ids.clone().any(once) {
            return None;
        }
        let mut lines = Vec::with_capacity(end.event - start.event);
        let mut launches = Vec::with_capacity(end.launch - start.launch);
        let (mut event, mut launch, mut apart) = (start.event, start.launch, 0);
        let whole = std::iter::once((end, end));
        // What hooks did is left out, piece by piece.
        for (from, to) in heard.iter().map(|heard| (&heard.positions.start, &heard.positions.end)).chain(whole) {
            for event in ledger.events.get(event..from.event)? {
                let (whose, number) = number(event.id())?;
                lines.push(Line { what: event.what(), whose, stream: event.stream(), number });
            }
            for launch in ledger.launches.get(launch..from.launch)? {
                launches.push(((launch.at as usize).checked_sub(start.event + apart)? as u32, launch.work));
            }
            apart += to.event - from.event;
            (event, launch) = (to.event, to.launch);
        }
        let numbered = |law: &Law| Some(Law { storage: born.number(law.storage)?, ..*law });
        let laws = ledger.laws.get(start.law..end.law)?.iter().filter(|law| !kept(law.storage));
        let laws = laws.map(numbered).collect::<Option<Vec<Law>>>()?;
        let told = Told::read(heard, source, *start)?;
        Some(Self { lines, storages, launches, laws, told, nodes: end.node - start.node })
    }

    /// Makes room for `count` units more; what hooks write is not in it.
    pub fn reserve(&self, cx: &Context, count: usize) {
        let mut recorder = cx.recorder.borrow_mut();
        recorder.reserve(self.storages.len() * count, self.lines.len() * count, self.launches.len() * count);
    }

    /// Makes its storages for another unit.
    pub fn make(&self, cx: &Context, shift: &Shift) -> Born {
        let storages = self.storages.iter().map(|storage| shift.of(storage));
        let born = cx.recorder.borrow_mut().extend(storages);
        cx.references.borrow_mut().resize(born.end as usize, Cell::new(0));
        Born::all(born)
    }

    /// Writes it for another unit, whose storages were made, and tells hooks of it. `None` where that one is not as this.
    pub fn write(
        &self,
        cx: &Rc<Context>,
        (unit, behind): (&Unit, u32),
        begins: Begins,
        born: &Born,
        bases: Bases<'_>,
    ) -> Option<()> {
        let (mut line, mut launch) = (0, 0);
        let mut retelling = Retelling::new(cx, unit, behind, begins);
        for (index, told) in self.told.iter().enumerate() {
            if told.writes() {
                self.write_part(cx, bases, (line..told.line, launch..told.launch));
                (line, launch) = (told.line, told.launch);
            }
            retelling.tell(&self.told, index, bases)?;
        }
        self.write_part(cx, bases, (line..self.lines.len(), launch..self.launches.len()));
        let mut recorder = cx.recorder.borrow_mut();
        for law in &self.laws {
            recorder.law(Law { storage: born.id(law.storage), ..*law });
        }
        drop(recorder);
        retelling.end(self.nodes)
    }

    /// Writes some of its lines and launches.
    fn write_part(&self, cx: &Context, bases: Bases<'_>, (lines, launches): (Range<usize>, Range<usize>)) {
        if lines.is_empty() && launches.is_empty() {
            return;
        }
        let mut recorder = cx.recorder.borrow_mut();
        let (begin, first) = (recorder.ledger().events.len(), lines.start);
        let launch = |(before, work): &(u32, WorkId)| {
            let at = begin + *before as usize - first;
            Launch { at: at as u32, work: *work }
        };
        let event = |line: &Line| Event::new(line.what, bases.id(line.whose, line.number), line.stream);
        let (events, launches) = (self.lines.get(lines), self.launches.get(launches));
        recorder.stretch(events.unwrap_or_default().iter().map(event), launches.unwrap_or_default().iter().map(launch));
    }

    /// Whether another unit did the same: the same events, and storages of the same sizes for the same reasons.
    pub fn same(&self, other: &Self) -> bool {
        let alike = |(a, b): (&Storage, &Storage)| {
            (a.bytes, a.shape, a.op, a.grad_fn, a.dtype, a.owner.is_some())
                == (b.bytes, b.shape, b.op, b.grad_fn, b.dtype, b.owner.is_some())
        };
        self.lines == other.lines
            && self.told == other.told
            && self.nodes == other.nodes
            && self.launches == other.launches
            && self.laws == other.laws
            && self.storages.len() == other.storages.len()
            && self.storages.iter().zip(&other.storages).all(alike)
    }

    /// The one storage of the unit behind that it lets go of is the gradient that was handed to it: what it hands on itself has the
    /// number `own`, and so has that.
    pub fn carry(&mut self, own: u32) {
        let of_behind = |line: &&mut Line| line.whose == Whose::BehindBackward;
        let mut numbers = self.lines.iter().filter(|line| line.whose == Whose::BehindBackward).map(|line| line.number);
        let first = numbers.next();
        if numbers.all(|number| Some(number) == first) {
            self.lines.iter_mut().filter(of_behind).for_each(|line| line.number = own);
        }
    }

    /// The numbers of the storages of `whose` that are let go of in it.
    pub fn freed(&self, whose: Whose) -> impl Iterator<Item = u32> {
        self.lines.iter().filter(move |l| l.whose == whose && l.what == What::Free).map(|l| l.number)
    }

    /// The numbers of the storages of `whose` that parameters have as gradients.
    pub fn arrived(&self, whose: Whose) -> impl Iterator<Item = u32> {
        self.told.iter().filter_map(Told::arrived).filter(move |(of, _)| *of == whose).map(|(_, number)| number)
    }
}

/// From the modules of one unit to those of another.
#[derive(Clone, Debug)]
pub(super) struct Shift {
    from: Range<u32>,
    to: u32,
}

impl Shift {
    /// Between units of these modules.
    pub const fn new(from: Range<u32>, to: &Range<u32>) -> Self {
        Self { from, to: to.start }
    }

    /// The module of the other unit that stands where this one does.
    pub fn module(&self, module: ModuleId) -> ModuleId {
        let index = module.index() as u32;
        if self.from.contains(&index) { ModuleId::new(index - self.from.start + self.to) } else { module }
    }

    fn of(&self, storage: &Storage) -> Storage {
        Storage { module: self.module(storage.module), ..*storage }
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_ledger::{Birth, DType, GradFnId, Kind, Ledger, ModuleId, Names, OpId, Recorder};

    use super::super::repeat::Position;
    use super::{Born, Heard};
    use crate::GradFn;
    use crate::tensor::heard::What;

    fn heard(storages: std::ops::Range<u32>) -> Heard {
        let here = Position::default();
        Heard {
            what: What::RequiresOutput,
            positions: here..here,
            storages,
            grad_fn: GradFn::None,
            module: ModuleId::ROOT,
        }
    }

    fn ledger(kinds: &[Kind]) -> Ledger {
        let mut recorder = Recorder::new(Names::default(), Names::default());
        for kind in kinds {
            recorder.birth(Birth {
                bytes: 512,
                kind: *kind,
                op: OpId::default(),
                grad_fn: GradFnId::default(),
                module: ModuleId::ROOT,
                dtype: DType::Float32,
                sizes: &[128],
                owner: None,
            });
        }
        recorder.finish()
    }

    #[test]
    fn what_hooks_made_and_workspaces_have_no_number() {
        use Kind::{Forward as F, Workspace as W};
        let ledger = ledger(&[F, F, F, F, W, F, F, F, F]);
        // From the third on; hooks made the fourth, and the seventh and eighth.
        let born = Born::read(&ledger, 2..9, &[heard(3..4), heard(5..5), heard(6..8)]);
        let numbered: Vec<(u32, u32)> = (0..10).filter_map(|id| Some((id, born.number(id)?))).collect();
        assert_eq!(numbered, [(2, 0), (5, 1), (8, 2)]);
        assert_eq!(born.count(), 3);
        assert!((0..3).all(|number| born.number(born.id(number)) == Some(number)));
        assert!(born.contains(4) && !born.contains(1) && !born.contains(9));
    }

    #[test]
    fn a_stretch_that_begins_with_what_hooks_made_has_its_first_number_behind() {
        let ledger = ledger(&[Kind::Forward; 6]);
        let born = Born::read(&ledger, 0..6, &[heard(0..2), heard(2..3)]);
        assert_eq!((born.id(0), born.id(2), born.number(2)), (3, 5, None));
    }
}
