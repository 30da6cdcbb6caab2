//! The backward of units that were copied.
//!
//! When the gradient reaches the node that stands for them, the last two units have run. What the last but one did is
//! written for each copied unit, from the last to the first, and the gradient goes on to the second unit. Tensors that
//! outlive a unit's backward (the gradient itself, sums that other nodes are still waiting for) have handles; the storages
//! of these handles change places with those that stand for them in the backward of the last copied unit, so that each
//! dies where it should.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;

use plimsoll_ledger::{Ledger, Storage};

use super::autograd::{Node, Work};
use super::context::Context;
use super::repeat::Position;
use super::storage::Tensor;
use super::unit_lines::{Bases, Lines, ModuleShift, Stretch, Told, Whose};
use super::units::{Forward, Unit};

/// How far a run had come when its backward reached the first node below a number.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reached {
    position: Position,
    storage: u32,
}

/// A place in the graph that the backward reports when it comes by.
#[derive(Debug)]
pub struct Mark {
    /// Nodes with lower numbers lie behind it.
    pub node: u32,
    reached: Rc<Cell<Option<Reached>>>,
}

/// A repetition whose backward is to come, or has come.
pub struct Repetition {
    units: Vec<Unit>,
    forward: Forward,
    /// The storages of each unit's forward.
    born: Vec<Range<u32>>,
    /// Reached behind the second unit, before the copied ones, and before and behind the last: in the order of the graph.
    reached: [Rc<Cell<Option<Reached>>>; 4],
    written: RefCell<Option<Written>>,
}

impl std::fmt::Debug for Repetition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Repetition").field("units", &self.units.len()).finish_non_exhaustive()
    }
}

/// What was written for the copied units.
#[derive(Debug)]
struct Written {
    lines: Lines,
    /// Of which gradients hooks were told.
    told: Vec<Told>,
    /// The storages of the first copied unit's backward, which was the last to be written.
    last: Range<u32>,
    /// Storages that changed places: the one that a handle has, and the one that stands where it was.
    swapped: Vec<(u32, u32)>,
    /// How far the run had come then.
    end: Reached,
}

/// A gradient that a unit's backward gave to a parameter.
#[derive(Debug)]
struct Given {
    parameter: usize,
    whose: Whose,
    number: u32,
}

impl Repetition {
    /// Makes `node` the node of a repetition; `nodes` are the numbers of the first nodes of the second unit, the last but
    /// one, the last, and of what follows.
    pub(super) fn begin(
        cx: &Rc<Context>,
        node: &Rc<Node>,
        units: Vec<Unit>,
        forward: Forward,
        born: Vec<Range<u32>>,
        nodes: [u32; 4],
    ) {
        let repetition =
            Rc::new(Self { units, forward, born, reached: Default::default(), written: RefCell::default() });
        for (node, reached) in nodes.iter().zip(&repetition.reached) {
            cx.mark(Mark { node: *node, reached: Rc::clone(reached) });
        }
        cx.repetitions.awaiting.borrow_mut().push(Rc::clone(&repetition));
        if let Work::Repeated(place) = &node.work {
            // A node is begun once.
            drop(place.set(repetition));
        }
    }

    fn reached(&self, place: usize) -> Option<Reached> {
        self.reached.get(place)?.get()
    }

    /// Writes the backwards of the copied units. What cannot be written fails the run's repeats.
    pub(super) fn write(&self, cx: &Rc<Context>) {
        if self.try_write(cx).is_none() {
            cx.fail_repeats();
        }
    }

    fn try_write(&self, cx: &Rc<Context>) -> Option<()> {
        let [.., before, last_but_one, _] = self.born.as_slice() else { return None };
        let (behind, from) = (self.reached(3)?, self.reached(2)?);
        let to = cx.reached();
        let stretch = Stretch { positions: from.position..to.position, born: from.storage..to.storage };
        let ranges = [
            (Whose::Own, last_but_one.clone()),
            (Whose::Before, before.clone()),
            (Whose::OwnBackward, stretch.born.clone()),
            (Whose::BehindBackward, behind.storage..from.storage),
        ];
        let model = &self.units[self.units.len() - 2];
        let (told, apart) = cx.told_of(model, &stretch.positions)?;
        let lines = Lines::read(cx.recorder.borrow().ledger(), &stretch, &ranges, &[], &apart)?;
        let given = gradients(model, &stretch.born, last_but_one);
        let carried = self.carried(&lines, &given)?;

        let mut behind = stretch.born.clone();
        let mut begins = Vec::with_capacity(self.units.len());
        for index in (2..self.units.len() - 2).rev() {
            if cx.exhausted() {
                return None;
            }
            let unit = &self.units[index];
            let modules = ModuleShift::new(model.modules.clone(), unit.modules.start);
            let bases = [self.born[index].start, self.born[index - 1].start, cx.next_storage(), behind.start];
            let tell = |parameter: usize| {
                let edge = unit.parameters.get(parameter).and_then(Tensor::edge);
                if let Some(leaf) = edge.and_then(|edge| edge.node.leaf()) {
                    leaf.tell(cx);
                }
            };
            let (born, begin) = lines.write(cx, bases, &modules, &told, tell);
            begins.push(begin);
            for number in self.forward.cast_for_the_graph() {
                cx.set_references(bases[Whose::Own as usize] + number, 0);
            }
            for gradient in &given {
                hand_over(cx, (model, unit), gradient, bases);
            }
            behind = born;
        }
        // The second unit's storages that the first copied one let go of.
        for (number, _) in lines.freed(Whose::Before) {
            cx.set_references(self.born[1].start + number, 0);
        }
        let mut swapped = Vec::with_capacity(carried.len());
        for number in carried {
            let (handle, stands) = (stretch.born.start + number, behind.start + number);
            let birth = lines.birth(Whose::OwnBackward, number)?;
            let (_, death) = lines.freed(Whose::BehindBackward).find(|(n, _)| *n == number)?;
            let (written_first, written_last) = (begins.first()?, begins.last()?);
            let mut recorder = cx.recorder.borrow_mut();
            recorder.swap(
                handle,
                stands,
                [
                    (stretch.positions.start.event + birth, stands),
                    (written_first + death, stands),
                    (written_last + birth, handle),
                ],
            );
            swapped.push((handle, stands));
        }
        self.written.replace(Some(Written { lines, told, last: behind, swapped, end: cx.reached() }));
        Some(())
    }

    /// Which storages of a unit's backward go to the next unit; `None` where something neither goes nor is handed over.
    fn carried(&self, lines: &Lines, given: &[Given]) -> Option<Vec<u32>> {
        let numbers = |whose| lines.freed(whose).map(|(number, _)| number);
        let kept = |whose: Whose| given.iter().filter(move |g| g.whose == whose).map(|g| g.number);
        let all = |storages: &[Storage], gone: &mut Vec<u32>| {
            gone.sort_unstable();
            let made = (0u32..).zip(storages).filter(|(_, s)| s.bytes > 0).map(|(number, _)| number);
            made.eq(gone.iter().copied())
        };
        let mut forward = self.forward.gone();
        forward.extend(numbers(Whose::Own).chain(numbers(Whose::Before)).chain(kept(Whose::Own)));
        let carried: Vec<u32> = numbers(Whose::BehindBackward).collect();
        let mut backward = carried.clone();
        backward.extend(numbers(Whose::OwnBackward).chain(kept(Whose::OwnBackward)));
        (all(&self.forward.lines.storages, &mut forward) && all(&lines.storages, &mut backward)).then_some(carried)
    }

    /// Holds the second unit's backward against what was written.
    pub(super) fn check(&self, cx: &Context) {
        if !self.holds(cx, cx.recorder.borrow().ledger()) {
            cx.fail_repeats();
        }
    }

    fn holds(&self, cx: &Context, ledger: &Ledger) -> bool {
        let written = self.written.borrow();
        let (Some(written), Some(to)) = (written.as_ref(), self.reached(0)) else { return false };
        let [first, second, .., last_but_one, _] = self.born.as_slice() else { return false };
        let positions = written.end.position..to.position;
        let stretch = Stretch { positions, born: written.end.storage..to.storage };
        let ranges = [
            (Whose::Own, second.clone()),
            (Whose::Before, first.clone()),
            (Whose::OwnBackward, stretch.born.clone()),
            (Whose::BehindBackward, written.last.clone()),
        ];
        let Some((told, apart)) = self.units.get(1).and_then(|unit| cx.told_of(unit, &stretch.positions)) else {
            return false;
        };
        let Some(lines) = Lines::read(ledger, &stretch, &ranges, &written.swapped, &apart) else { return false };
        let kind = |id: u32| ledger.storages[id as usize].kind;
        let mut numbers = 0..last_but_one.end - last_but_one.start;
        lines.same(&written.lines)
            && told == written.told
            && numbers.all(|n| kind(second.start + n) == kind(last_but_one.start + n))
    }
}

/// The gradients that a unit's parameters were given in its backward, whose storages are `born`, or in its forward.
fn gradients(unit: &Unit, born: &Range<u32>, forward: &Range<u32>) -> Vec<Given> {
    let given = |(parameter, tensor): (usize, &Tensor)| {
        let id = tensor.edge()?.node.leaf()?.grad.borrow().as_ref()?.storage_id();
        let (whose, range) = match (born.contains(&id), forward.contains(&id)) {
            (true, _) => (Whose::OwnBackward, born),
            (_, true) => (Whose::Own, forward),
            // Added to one that was there.
            _ => return None,
        };
        Some(Given { parameter, whose, number: id - range.start })
    };
    unit.parameters.iter().enumerate().filter_map(given).collect()
}

/// Gives a copied unit's parameter the gradient that the model's has.
fn hand_over(cx: &Context, (model, unit): (&Unit, &Unit), given: &Given, bases: Bases) {
    let leaf = |unit: &Unit| unit.parameters.get(given.parameter)?.edge().map(|edge| Rc::clone(&edge.node));
    let (Some(from), Some(to)) = (leaf(model), leaf(unit)) else { return };
    let (Some(from), Some(to)) = (from.leaf(), to.leaf()) else { return };
    let id = bases[given.whose as usize] + given.number;
    if let Some(gradient) = from.grad.borrow().as_ref() {
        cx.set_references(id, 1);
        drop(to.grad.replace(Some(gradient.on_storage(id))));
    }
}

impl Context {
    /// How far the run has come.
    pub(super) fn reached(&self) -> Reached {
        Reached { position: self.position(), storage: self.next_storage() }
    }

    /// Asks to be told when the backward comes by.
    fn mark(&self, mark: Mark) {
        self.repetitions.next_mark.set(mark.node);
        self.repetitions.marks.borrow_mut().push(mark);
    }

    /// The backward runs a node.
    pub(super) fn pass(&self, node: u32) {
        if node >= self.repetitions.next_mark.get() {
            return;
        }
        let mut marks = self.repetitions.marks.borrow_mut();
        while let Some(mark) = marks.pop_if(|mark| mark.node > node) {
            mark.reached.set(Some(self.reached()));
        }
        self.repetitions.next_mark.set(marks.last().map_or(0, |mark| mark.node));
    }

    /// Hooks are told of the gradient of the parameter of this number, in `tell`. While units that were copied are waited for,
    /// it is noted where that was, and what it launched.
    pub(super) fn telling(&self, number: u32, tell: impl FnOnce()) {
        if self.repetitions.awaiting.borrow().is_empty() {
            return tell();
        }
        let (before, first) = (self.position(), self.next_storage());
        tell();
        let after = self.position();
        if after.event != before.event || self.next_storage() != first {
            // What comes or goes in it would be the unit's.
            self.fail_repeats();
        }
        let launches = before.launch..after.launch;
        self.repetitions.told.borrow_mut().push(Heard { number, event: before.event, launches });
    }

    /// Of which gradients of a unit hooks were told between two positions, and what that launched; `None` where they were told
    /// of others.
    fn told_of(&self, unit: &Unit, positions: &Range<Position>) -> Option<(Vec<Told>, Vec<Range<usize>>)> {
        let told = self.repetitions.told.borrow();
        let Range { start, end } = positions;
        let number = |p: &Tensor| p.edge()?.node.leaf()?.number.get();
        let mut apart: Vec<Range<usize>> = Vec::new();
        let mut all = Vec::new();
        for heard in told.get(start.told..end.told)? {
            let parameter = unit.parameters.iter().position(|p| number(p) == Some(heard.number))?;
            let others: usize = apart.iter().map(ExactSizeIterator::len).sum();
            let launch = heard.launches.start.checked_sub(start.launch + others)?;
            all.push(Told { parameter, line: heard.event.checked_sub(start.event)?, launch });
            apart.push(heard.launches.clone());
        }
        Some((all, apart))
    }

    /// Repetitions whose backward does not come any more are not waited for.
    pub(super) fn let_go_of_repetitions(&self) {
        drop((self.repetitions.awaiting.take(), self.repetitions.marks.take(), self.repetitions.told.take()));
    }

    /// The backward is over: what was written for copied units is held against what was executed.
    pub(super) fn end_backward(&self) {
        self.pass(0);
        for repetition in self.repetitions.awaiting.take() {
            repetition.check(self);
        }
        drop(self.repetitions.told.take());
    }
}

/// What a run knows of its repetitions.
#[derive(Debug, Default)]
pub(super) struct Repetitions {
    /// Whether units may be copied at all.
    pub allowed: Cell<bool>,
    /// Whether units are being run: those within them are not copied.
    pub running: Cell<bool>,
    /// Whether a copy turned out to be none.
    pub failed: Cell<bool>,
    /// The number of the last mark; 0 where there is none.
    next_mark: Cell<u32>,
    /// Places the backward reports, by number.
    marks: RefCell<Vec<Mark>>,
    /// Repetitions whose backward is to come.
    awaiting: RefCell<Vec<Rc<Repetition>>>,
    /// Gradients that hooks were told of in this backward.
    pub told: RefCell<Vec<Heard>>,
}

/// A gradient that hooks were told of: of which parameter, after how many events, and what they launched then.
#[derive(Debug)]
pub(super) struct Heard {
    number: u32,
    event: usize,
    launches: Range<usize>,
}
