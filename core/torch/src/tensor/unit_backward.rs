//! The backward of units that were copied.
//!
//! When the gradient reaches the node that stands for them, the units behind them have run. What the one before those did, the
//! model, is written for each copied unit, from the last to the first, and the gradient goes on to the second unit. Tensors that
//! outlive a unit's backward (the gradient itself, sums that other nodes are still waiting for) have handles; the storages
//! of these handles change places with those that stand for them in the backward of the last copied unit, so that each
//! dies where it should.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;

use plimsoll_ledger::{Ledger, Storage};

use super::autograd::{Node, Work};
use super::context::Context;
use super::hooks::CopiedBackward;
use super::repeat::Position;
use super::storage::Tensor;
use super::unit_lines::{Bases, Lines, Stretch, Told, Whose};
use super::units::{Forward, Unit};
use crate::optim;

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
    /// Which of them is the last to be reached before the copied ones.
    model: usize,
    forward: Forward,
    /// The storages of each unit's forward.
    born: Vec<Range<u32>>,
    /// Reached behind the second unit, behind the model, behind the unit behind that, and before that and the next: in the order of
    /// the graph.
    reached: [Rc<Cell<Option<Reached>>>; 5],
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
    /// Those of the one behind it.
    further: Range<u32>,
    /// Storages that changed places: the one that a handle has, and the one that stands where it was.
    swapped: Vec<(u32, u32)>,
    /// How far the run had come then.
    end: Reached,
}

/// What a unit's backward left behind.
#[derive(Debug)]
struct Given {
    to: Place,
    whose: Whose,
    number: u32,
}

/// Where that is.
#[derive(Clone, Copy, Debug)]
enum Place {
    /// The gradient of one of the unit's parameters.
    Parameter(usize),
    /// The gradient of a part that hooks made of them, of the unit so many behind it: that may be reduced when the next one is reached.
    Part(usize, usize),
    /// What else hooks hold of a unit.
    Kept(usize, usize),
}

impl Repetition {
    /// Makes `node` the node of a repetition; `nodes` are the numbers of the first nodes of the second unit, of the model, and of the
    /// three units behind that, where there are so many, or of what follows.
    pub(super) fn begin(
        cx: &Rc<Context>,
        node: &Rc<Node>,
        (units, model): (Vec<Unit>, usize),
        forward: Forward,
        born: Vec<Range<u32>>,
        nodes: [u32; 5],
    ) {
        let repetition =
            Rc::new(Self { units, model, forward, born, reached: Default::default(), written: RefCell::default() });
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
        let (own, before) = (self.born.get(self.model)?, self.born.get(self.model - 1)?);
        let (further, behind, from) = (self.reached(4)?, self.reached(3)?, self.reached(2)?);
        let to = cx.reached();
        let stretch = Stretch { positions: from.position..to.position, born: from.storage..to.storage };
        let ranges = [
            (Whose::Own, own.clone()),
            (Whose::Before, before.clone()),
            (Whose::OwnBackward, stretch.born.clone()),
            (Whose::BehindBackward, behind.storage..from.storage),
            (Whose::Behind, self.born.get(self.model + 1)?.clone()),
            (Whose::FurtherBackward, further.storage..behind.storage),
        ];
        let model = self.units.get(self.model)?;
        let (told, apart) = cx.told_of(model, &stretch.positions)?;
        let lines = Lines::read(cx.recorder.borrow().ledger(), &stretch, &ranges, &[], &apart)?;
        let given = self.given(cx, &stretch.born, own);
        let carried: Vec<u32> = lines.freed(Whose::BehindBackward).map(|(number, _)| number).collect();
        // What the next unit lets go of is handed on, not left behind.
        let passes = |given: &Given| given.whose == Whose::OwnBackward && carried.contains(&given.number);
        let (passed, left): (Vec<Given>, Vec<Given>) = given.into_iter().partition(passes);
        self.all_goes(&lines, &carried, &left).then_some(())?;

        let outlives: Vec<u32> = lines.freed(Whose::FurtherBackward).map(|(number, _)| number).collect();
        // Where the backwards begin, from the unit behind the model on down.
        let mut backwards = vec![behind.storage, from.storage];
        let mut behind = stretch.born.clone();
        let mut begins = Vec::with_capacity(self.units.len());
        for index in (2..self.model).rev() {
            if cx.exhausted() {
                return None;
            }
            let unit = &self.units[index];
            let bases = [
                self.born[index].start,
                self.born[index - 1].start,
                cx.next_storage(),
                behind.start,
                self.born[index + 1].start,
                backwards[backwards.len() - 2],
            ];
            let tell = |parameter: usize| {
                let edge = unit.parameters.get(parameter).and_then(Tensor::edge);
                if let Some(leaf) = edge.and_then(|edge| edge.node.leaf()) {
                    leaf.tell(cx);
                }
            };
            let shift = cx.shift(&model.modules, &unit.modules);
            let (born, begin) = lines.write(cx, bases, &shift, &told, tell);
            begins.push(begin);
            for number in self.forward.cast_for_the_graph() {
                cx.set_references(bases[Whose::Own as usize] + number, 0);
            }
            self.hand_over(cx, index, &left, bases);
            backwards.push(born.start);
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
        let [.., further, last] = backwards[..] else { return None };
        self.settle_hooks(cx, &passed, &outlives, [*backwards.first()?, from.storage, further, last]);
        let further = further..last;
        self.written.replace(Some(Written { lines, told, last: behind, further, swapped, end: cx.reached() }));
        Some(())
    }

    /// What hooks hold of the model, and gradients that the unit before it lets go of, are the third unit's now.
    ///
    /// Of what `outlives` the next unit's backward, what was made behind the model and in it is what was made in the units before the
    /// second: there their backwards begin.
    fn settle_hooks(&self, cx: &Rc<Context>, passed: &[Given], outlives: &[u32], backwards: [u32; 4]) {
        let (Some(model), Some(third)) = (self.units.get(self.model), self.units.get(2)) else { return };
        for given in passed {
            let Place::Parameter(parameter) = given.to else { continue };
            if let (Some(from), Some(to)) = (model.parameters.get(parameter), third.parameters.get(parameter)) {
                optim::set_gradient(to, optim::take_gradient(from));
            }
        }
        let Some(hooks) = cx.hooks() else { return };
        let Some(hooks) = hooks.of_units() else { return };
        let gone = |held: Tensor| {
            let id = held.storage_id();
            let copied = self.born.iter().any(|born| born.contains(&id));
            if copied {
                cx.retain(id);
            }
            drop(held);
            if copied {
                cx.set_references(id, 0);
            }
        };
        let [behind, own, third, second] = backwards;
        let moved = |held: Tensor| {
            let id = held.storage_id();
            let place = |(from, to): (u32, u32)| {
                let number = id.checked_sub(from).filter(|number| outlives.contains(number))?;
                Some(to + number)
            };
            let pairs = if id >= own { (own, second) } else { (behind, third) };
            let Some(to) = place(pairs) else { return held };
            cx.retain(id);
            let moved = held.on_storage(to);
            drop(held);
            cx.set_references(id, 0);
            cx.set_references(to, 1);
            moved
        };
        let units: Vec<Range<u32>> = self.units.iter().map(|unit| unit.modules.clone()).collect();
        hooks.backward_copied(&CopiedBackward { units: &units, model: self.model, gone: &gone, moved: &moved });
    }

    /// Whether all that a unit makes goes, is handed on (`carried`), or is left behind.
    fn all_goes(&self, lines: &Lines, carried: &[u32], left: &[Given]) -> bool {
        let numbers = |whose| lines.freed(whose).map(|(number, _)| number);
        let kept = |whose: Whose| {
            let mut kept: Vec<u32> = left.iter().filter(|g| g.whose == whose).map(|g| g.number).collect();
            // Gradients may be parts of one.
            kept.sort_unstable();
            kept.dedup();
            kept
        };
        let all = |storages: &[Storage], gone: &mut Vec<u32>| {
            gone.sort_unstable();
            let made = (0u32..).zip(storages).filter(|(_, s)| s.bytes > 0).map(|(number, _)| number);
            made.eq(gone.iter().copied())
        };
        let mut forward = self.forward.gone();
        forward.extend(numbers(Whose::Own).chain(numbers(Whose::Before)).chain(numbers(Whose::Behind)));
        forward.extend(kept(Whose::Own));
        let mut backward = carried.to_vec();
        backward.extend(numbers(Whose::OwnBackward).chain(numbers(Whose::FurtherBackward)));
        backward.extend(kept(Whose::OwnBackward));
        all(&self.forward.lines.storages, &mut forward) && all(&lines.storages, &mut backward)
    }

    /// What the model's backward, whose storages are `born`, left behind: its own gradients, or of its forward, and what hooks made of
    /// them and of those of the unit behind.
    fn given(&self, cx: &Context, born: &Range<u32>, forward: &Range<u32>) -> Vec<Given> {
        let given = |to: Place, id: u32| {
            let (whose, range) = match (born.contains(&id), forward.contains(&id)) {
                (true, _) => (Whose::OwnBackward, born),
                (_, true) => (Whose::Own, forward),
                // Added to one that was there.
                _ => return None,
            };
            Some(Given { to, whose, number: id - range.start })
        };
        let gradients = |of: &[Tensor], place: &dyn Fn(usize) -> Place| -> Vec<Given> {
            let given = |(index, tensor)| given(place(index), optim::gradient_storage(tensor)?);
            of.iter().enumerate().filter_map(given).collect()
        };
        let mut all = self.units.get(self.model).map(|unit| gradients(&unit.parameters, &Place::Parameter));
        let Some(all) = all.as_mut() else { return Vec::new() };
        let hooks = cx.hooks();
        if let Some(hooks) = hooks.as_ref().and_then(|hooks| hooks.of_units()) {
            for (behind, unit) in self.units.iter().skip(self.model).take(2).enumerate() {
                all.extend(gradients(&hooks.parts(&unit.modules), &|index| Place::Part(behind, index)));
                for (index, held) in hooks.kept(&unit.modules).iter().enumerate() {
                    all.extend(held.as_ref().and_then(|held| given(Place::Kept(behind, index), held.storage_id())));
                }
            }
        }
        std::mem::take(all)
    }

    /// Gives a copied unit, and its hooks, what the model's backward left behind.
    fn hand_over(&self, cx: &Context, index: usize, left: &[Given], bases: Bases) {
        let hooks = cx.hooks();
        let hooks = hooks.as_ref().and_then(|hooks| hooks.of_units());
        let modules = |index: usize| self.units.get(index).map(|unit| unit.modules.clone()).unwrap_or_default();
        let parts = |index: usize| hooks.map(|hooks| hooks.parts(&modules(index))).unwrap_or_default();
        let mut parts_of: [Option<[Vec<Tensor>; 2]>; 2] = [None, None];
        for given in left {
            let id = bases[given.whose as usize] + given.number;
            let copied = |from: &Tensor| {
                // The first of what is alive of it revives it.
                cx.set_references(id, cx.references(id) + 1);
                from.on_storage(id)
            };
            match given.to {
                Place::Parameter(parameter) => {
                    let of = |unit: usize| self.units.get(unit).and_then(|unit| unit.parameters.get(parameter));
                    if let (Some(from), Some(to)) = (of(self.model), of(index)) {
                        pass_on(from, to, copied);
                    }
                }
                Place::Part(behind, part) => {
                    let both =
                        parts_of[behind].get_or_insert_with(|| [parts(self.model + behind), parts(index + behind)]);
                    if let (Some(from), Some(to)) = (both[0].get(part), both[1].get(part)) {
                        pass_on(from, to, copied);
                    }
                }
                Place::Kept(behind, place) => {
                    let Some(hooks) = hooks else { continue };
                    let held = hooks.kept(&modules(self.model + behind));
                    if let Some(held) = held.get(place).and_then(Option::as_ref) {
                        hooks.keep(&modules(index + behind), place, copied(held));
                    }
                }
            }
        }
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
        let ([first, second, third, ..], Some(model)) = (self.born.as_slice(), self.born.get(self.model)) else {
            return false;
        };
        let positions = written.end.position..to.position;
        let stretch = Stretch { positions, born: written.end.storage..to.storage };
        let ranges = [
            (Whose::Own, second.clone()),
            (Whose::Before, first.clone()),
            (Whose::OwnBackward, stretch.born.clone()),
            (Whose::BehindBackward, written.last.clone()),
            (Whose::Behind, third.clone()),
            (Whose::FurtherBackward, written.further.clone()),
        ];
        let Some((told, apart)) = self.units.get(1).and_then(|unit| cx.told_of(unit, &stretch.positions)) else {
            return false;
        };
        let Some(lines) = Lines::read(ledger, &stretch, &ranges, &written.swapped, &apart) else { return false };
        let kind = |id: u32| ledger.storages[id as usize].kind;
        let mut numbers = 0..model.end - model.start;
        lines.same(&written.lines)
            && told == written.told
            && numbers.all(|n| kind(second.start + n) == kind(model.start + n))
    }
}

/// Gives a parameter a gradient like another one's.
fn pass_on(from: &Tensor, to: &Tensor, copied: impl Fn(&Tensor) -> Tensor) {
    let leaf = |of: &Tensor| of.edge().map(|edge| Rc::clone(&edge.node));
    let (Some(from), Some(to)) = (leaf(from), leaf(to)) else { return };
    let (Some(from), Some(to)) = (from.leaf(), to.leaf()) else { return };
    if let Some(gradient) = from.grad.borrow().as_ref() {
        drop(to.grad.replace(Some(copied(gradient))));
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
