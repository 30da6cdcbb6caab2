//! What a unit of a model wrote, so that it can be written once more for another unit.

use std::cell::Cell;
use std::ops::Range;

use plimsoll_ledger::{Event, Kind, Law, Ledger, ModuleId, Owner, Storage, Stream, What, WorkId};

use super::context::Context;
use super::repeat::Position;

/// What a unit wrote in one direction: forward or backward.
#[derive(Clone, Debug)]
pub(super) struct Stretch {
    /// From where to where.
    pub positions: Range<Position>,
    /// The storages that were made.
    pub born: Range<u32>,
}

/// Which storage an event of a unit is about: one that was made ...
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whose {
    /// ... in this unit's forward.
    Own,
    /// ... in the forward of the unit before.
    Before,
    /// ... in this unit's backward.
    OwnBackward,
    /// ... in the backward of the unit behind, which ran before this one's.
    BehindBackward,
    /// ... in the forward of the unit behind.
    Behind,
    /// ... in the backward of the unit behind that.
    FurtherBackward,
}

/// Where the storages of each [`Whose`] begin.
pub(super) type Bases = [u32; 6];

/// One event, wherever the unit stands: its storage is the `number`-th of those of `whose`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Line {
    pub what: What,
    pub whose: Whose,
    stream: Stream,
    pub number: u32,
}

/// That hooks were told of the gradient of a unit's parameter: after so many of its lines, and so many of its launches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Told {
    pub parameter: usize,
    pub line: usize,
    pub launch: usize,
}

/// Everything a unit wrote in one direction.
#[derive(Clone, Debug)]
pub(super) struct Lines {
    lines: Vec<Line>,
    pub storages: Vec<Storage>,
    /// Launches, each with the number of lines before it.
    launches: Vec<(u32, WorkId)>,
    /// Those of `storages` whose size is no line over the batch: each law's storage is a number of them.
    laws: Vec<Law>,
}

impl Lines {
    /// Reads a stretch; `ranges` are the storages that its events may be about, where those of `renamed` have another name.
    /// Launches in the ranges `apart`, of the ledger's, are not the unit's. `None` where an event is about another storage, or where something was made that is made only once.
    pub fn read(
        ledger: &Ledger,
        stretch: &Stretch,
        ranges: &[(Whose, Range<u32>)],
        renamed: &[(u32, u32)],
        apart: &[Range<usize>],
    ) -> Option<Self> {
        let Range { start, end } = &stretch.positions;
        let storages = ledger.storages[stretch.born.start as usize..stretch.born.end as usize].to_vec();
        if storages.iter().any(|s| matches!(s.kind, Kind::Workspace | Kind::OptimizerState)) {
            return None;
        }
        let once: Vec<u32> = ranges.iter().flat_map(|(_, range)| made_once(ledger, range)).collect();
        let line = |event: &Event| {
            let id = renamed.iter().find(|(name, _)| *name == event.id()).map_or(event.id(), |(_, other)| *other);
            let (whose, range) = ranges.iter().find(|(_, range)| range.contains(&id))?;
            let skipped = once.iter().filter(|other| (range.start..id).contains(other)).count() as u32;
            let number = id - range.start - skipped;
            Some(Line { what: event.what(), whose: *whose, stream: event.stream(), number })
        };
        let lines = ledger.events[start.event..end.event].iter().map(line).collect::<Option<Vec<Line>>>()?;
        let launches = (start.launch..)
            .zip(&ledger.launches[start.launch..end.launch])
            .filter(|(index, _)| apart.iter().all(|range| !range.contains(index)))
            .map(|(_, launch)| ((launch.at as usize).saturating_sub(start.event) as u32, launch.work))
            .collect();
        let numbered = |law: &Law| {
            let number = stretch.born.contains(&law.storage).then(|| law.storage - stretch.born.start)?;
            Some(Law { storage: number, ..*law })
        };
        let laws = ledger.laws[start.law..end.law].iter().map(numbered).collect::<Option<Vec<Law>>>()?;
        Some(Self { lines, storages, launches, laws })
    }

    /// Writes it for another unit; says the storages that were made, and where its events begin. Where hooks were `told` of a
    /// gradient, `tell` does so again.
    pub fn write(
        &self,
        cx: &Context,
        bases: Bases,
        shift: &Shift,
        told: &[Told],
        tell: impl Fn(usize),
    ) -> (Range<u32>, usize) {
        let storages = self.storages.iter().map(|storage| shift.of(storage));
        let (begin, born) = {
            let mut recorder = cx.recorder.borrow_mut();
            (recorder.ledger().events.len(), recorder.extend(storages, std::iter::empty()))
        };
        cx.references.borrow_mut().resize(born.end as usize, Cell::new(0));
        let (mut line, mut launch) = (0, 0);
        for told in told {
            self.write_part(cx, begin, bases, (line..told.line, launch..told.launch));
            tell(told.parameter);
            (line, launch) = (told.line, told.launch);
        }
        self.write_part(cx, begin, bases, (line..self.lines.len(), launch..self.launches.len()));
        let mut recorder = cx.recorder.borrow_mut();
        for law in &self.laws {
            recorder.law(Law { storage: born.start + law.storage, ..*law });
        }
        (born, begin)
    }

    /// Writes some of its lines and launches, of a unit that begins at event `begin`.
    fn write_part(&self, cx: &Context, begin: usize, bases: Bases, (lines, launches): (Range<usize>, Range<usize>)) {
        let mut recorder = cx.recorder.borrow_mut();
        for (before, work) in self.launches.get(launches).unwrap_or_default() {
            recorder.launch_at((begin + *before as usize) as u32, *work);
        }
        let events = self.lines.get(lines).unwrap_or_default();
        let event = |line: &Line| Event::new(line.what, bases[line.whose as usize] + line.number, line.stream);
        recorder.extend(std::iter::empty(), events.iter().map(event));
    }

    /// Whether another unit did the same: the same events, and storages of the same sizes for the same reasons.
    pub fn same(&self, other: &Self) -> bool {
        let alike = |(a, b): (&Storage, &Storage)| {
            (a.bytes, a.shape, a.op, a.grad_fn, a.dtype, a.owner.is_some())
                == (b.bytes, b.shape, b.op, b.grad_fn, b.dtype, b.owner.is_some())
        };
        self.lines == other.lines
            && self.launches == other.launches
            && self.laws == other.laws
            && self.storages.len() == other.storages.len()
            && self.storages.iter().zip(&other.storages).all(alike)
    }

    /// The numbers of the storages of `whose` that are let go of in it, each with the place of its line.
    pub fn freed(&self, whose: Whose) -> impl Iterator<Item = (u32, usize)> {
        let lines = self.lines.iter().enumerate();
        lines.filter(move |(_, l)| l.whose == whose && l.what == What::Free).map(|(at, l)| (l.number, at))
    }

    /// The place of the line in which the `number`-th storage of `whose` comes.
    pub fn birth(&self, whose: Whose, number: u32) -> Option<usize> {
        self.lines.iter().position(|l| l.whose == whose && l.number == number && l.what == What::Alloc)
    }
}

/// Storages that a unit made for all that come after it: they have no number in it.
fn made_once(ledger: &Ledger, range: &Range<u32>) -> impl Iterator<Item = u32> {
    let storages = ledger.storages.get(range.start as usize..range.end as usize).unwrap_or_default();
    (range.start..).zip(storages).filter(|(_, storage)| storage.kind == Kind::Workspace).map(|(id, _)| id)
}

/// From the modules and parameters of one unit to those of another.
#[derive(Clone, Debug)]
pub(super) struct Shift {
    from: Range<u32>,
    to: u32,
    /// Storages of parameters that something may belong to, each with that of the other unit.
    owners: Vec<(u32, u32)>,
}

impl Shift {
    /// `to` begins the modules of the other unit.
    pub const fn new(from: Range<u32>, to: u32, owners: Vec<(u32, u32)>) -> Self {
        Self { from, to, owners }
    }

    fn of(&self, storage: &Storage) -> Storage {
        let index = storage.module.index() as u32;
        let within = self.from.contains(&index);
        let module = if within { ModuleId::new(index - self.from.start + self.to) } else { storage.module };
        let owner = storage.owner.map(|owner| {
            let other = self.owners.iter().find(|(from, _)| *from == owner.parameter());
            other.and_then(|(_, to)| Owner::new(*to)).unwrap_or(owner)
        });
        Storage { module, owner, ..*storage }
    }
}
