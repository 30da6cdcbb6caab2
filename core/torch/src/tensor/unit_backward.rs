//! The backward of units that were copied.
//!
//! When the gradient reaches the node that stands for them, the units behind them have run. What the one before those did, the
//! model, is written for each copied unit, from the last to the first, and the gradient goes on to the second unit. Tensors that
//! outlive a unit's backward (the gradient itself, sums that other nodes are still waiting for) have handles; the storages
//! of these handles change places with those that stand for them in the backward of the last copied unit, so that each
//! dies where it should. Parameters get handles on their gradients where these came, and hooks are told what they were told then.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;

use plimsoll_ledger::{Kind, Ledger, Storage};

use super::autograd::{Node, Work};
use super::context::Context;
use super::heard::Listening;
use super::repeat::Position;
use super::retell::Begins;
use super::storage::Tensor;
use super::unit_lines::{Bases, Born, Lines, Shift, Source, Stretch, Whose};
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

/// A unit's forward: the storages and the nodes that it made.
#[derive(Clone, Debug, Default)]
pub(super) struct Run {
    pub born: Born,
    pub nodes: Range<u32>,
}

/// A repetition whose backward is to come, or has come.
pub struct Repetition {
    units: Vec<Unit>,
    /// Which of them is the last to be reached before the copied ones.
    model: usize,
    forward: Forward,
    /// Each unit's forward.
    runs: Vec<Run>,
    /// Reached before the second unit, behind the model, and behind the unit behind that: in the order of the graph.
    reached: [Rc<Cell<Option<Reached>>>; 3],
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
    /// The storages of the first copied unit's backward, which was the last to be written.
    last: Born,
    /// Storages that changed places: the one that a handle has, and the one that stands where it was.
    swapped: Vec<(u32, u32)>,
    /// How far the run had come then.
    end: Reached,
}

impl Repetition {
    /// Makes `node` the node of a repetition; `nodes` are the numbers of the first nodes of the second unit, of the unit behind the
    /// model, and of what follows that one.
    pub(super) fn begin(
        cx: &Rc<Context>,
        node: &Rc<Node>,
        (units, model): (Vec<Unit>, usize),
        forward: Forward,
        runs: Vec<Run>,
        nodes: [u32; 3],
    ) {
        let repetition =
            Rc::new(Self { units, model, forward, runs, reached: Default::default(), written: RefCell::default() });
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

    /// Writes the backwards of the copied units; this gradient is handed on to the second. What cannot be written fails the run's
    /// repeats.
    pub(super) fn write(&self, cx: &Rc<Context>, gradient: Option<&Tensor>) {
        if self.try_write(cx, gradient).is_none() {
            cx.fail_repeats();
        }
    }

    fn try_write(&self, cx: &Rc<Context>, gradient: Option<&Tensor>) -> Option<()> {
        let (own, before) = (self.runs.get(self.model)?, self.runs.get(self.model - 1)?);
        let (behind, from) = (self.reached(2)?, self.reached(1)?);
        let (model, next) = (self.units.get(self.model)?, self.units.get(self.model + 1)?);
        let stretch = cx.between(from, cx.reached());
        let behind = cx.between(behind, from).born;
        let bases = Bases::backward(&own.born, &before.born, [&stretch.born, &behind]);
        let source = Source { unit: model, behind: Some(&next.modules), nodes: &own.nodes, bases, renamed: &[] };
        let mut lines = cx.read_lines(&stretch, source)?;
        // The unit behind may have made more than this one does: a sum of what all units hand to another module.
        if let Some(own) = gradient.and_then(|gradient| stretch.born.number(gradient.storage_id())) {
            lines.carry(own);
        }
        let carried: Vec<u32> = lines.freed(Whose::BehindBackward).collect();
        self.all_goes(&lines, &carried).then_some(())?;

        let _quiet = cx.repetitions.quietly();
        let (grad_fn, module) = (cx.grad_fn.get(), cx.current_module());
        lines.reserve(cx, self.model - 2);
        let mut behind = stretch.born.clone();
        let mut begins = Vec::with_capacity(self.units.len());
        for index in (2..self.model).rev() {
            if cx.exhausted() {
                return None;
            }
            let (unit, run) = (self.units.get(index)?, self.runs.get(index)?);
            let next = self.units.get(index + 1)?.modules.start;
            begins.push(cx.position().event);
            let born = lines.make(cx, &Shift::new(model.modules.clone(), &unit.modules));
            let before = &self.runs.get(index - 1)?.born;
            let bases = Bases::backward(&run.born, before, [&born, &behind]);
            let nodes = Begins { forward: run.nodes.start, backward: cx.next_node() };
            lines.write(cx, (unit, next), nodes, &born, bases)?;
            for number in self.forward.cast_for_the_graph() {
                cx.set_references(run.born.id(number), 0);
            }
            behind = born;
        }
        // What follows sees what the second unit's last node has left.
        cx.grad_fn.set(grad_fn);
        cx.set_module(Shift::new(model.modules.clone(), &self.units.get(2)?.modules).module(module));
        // The second unit's storages that the first copied one let go of.
        let second = &self.runs.get(1)?.born;
        for number in lines.freed(Whose::Before) {
            cx.set_references(second.id(number), 0);
        }
        let mut swapped = Vec::with_capacity(carried.len());
        for number in carried {
            let (handle, stands) = (stretch.born.id(number), behind.id(number));
            let (first, last) = (*begins.first()?, *begins.last()?);
            let mut recorder = cx.recorder.borrow_mut();
            let events = &recorder.ledger().events;
            let place = |from: usize, id: u32, free: bool| {
                let is = |event: &plimsoll_ledger::Event| event.id() == id && event.is_free() == free;
                Some(from + events.get(from..)?.iter().position(is)?)
            };
            let birth = place(stretch.positions.start.event, handle, false)?;
            let death = place(first, handle, true)?;
            let stood = place(last, stands, false)?;
            recorder.swap(handle, stands, [(birth, stands), (death, stands), (stood, handle)]);
            swapped.push((handle, stands));
        }
        self.written.replace(Some(Written { lines, last: behind, swapped, end: cx.reached() }));
        Some(())
    }

    /// Whether all that a unit makes goes, is handed on (`carried`), or is a parameter's gradient.
    fn all_goes(&self, lines: &Lines, carried: &[u32]) -> bool {
        let all = |storages: &[Storage], gone: &mut Vec<u32>, whose: Whose| {
            // Gradients may be parts of one.
            let mut arrived: Vec<u32> = lines.arrived(whose).collect();
            arrived.sort_unstable();
            arrived.dedup();
            gone.extend(arrived);
            gone.sort_unstable();
            let made = (0u32..).zip(storages).filter(|(_, s)| s.bytes > 0).map(|(number, _)| number);
            made.eq(gone.iter().copied())
        };
        let mut forward = self.forward.gone();
        forward.extend(lines.freed(Whose::Own).chain(lines.freed(Whose::Before)));
        let mut backward = carried.to_vec();
        backward.extend(lines.freed(Whose::OwnBackward));
        all(&self.forward.lines.storages, &mut forward, Whose::Own)
            && all(&lines.storages, &mut backward, Whose::OwnBackward)
    }

    /// Holds the second unit's backward against what was written.
    pub(super) fn check(&self, cx: &Context) {
        if self.holds(cx).is_none() {
            cx.fail_repeats();
        }
    }

    fn holds(&self, cx: &Context) -> Option<()> {
        let written = self.written.borrow();
        let (written, to) = (written.as_ref()?, self.reached(0)?);
        let [first, second, ..] = self.runs.as_slice() else { return None };
        let (unit, behind, model) = (self.units.get(1)?, self.units.get(2)?, self.runs.get(self.model)?);
        let stretch = cx.between(written.end, to);
        let bases = Bases::backward(&second.born, &first.born, [&stretch.born, &written.last]);
        let behind = Some(&behind.modules);
        let source = Source { unit, behind, nodes: &second.nodes, bases, renamed: &written.swapped };
        let lines = cx.read_lines(&stretch, source)?;
        let recorder = cx.recorder.borrow();
        let kind = |of: &Born, number: u32| kind(recorder.ledger(), of.id(number));
        let mut numbers = 0..model.born.count();
        let same = lines.same(&written.lines) && numbers.all(|n| kind(&second.born, n) == kind(&model.born, n));
        same.then_some(())
    }
}

fn kind(ledger: &Ledger, id: u32) -> Option<Kind> {
    ledger.storages.get(id as usize).map(|storage| storage.kind)
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

    /// What was written between two places of backward.
    pub(super) fn between(&self, from: Reached, to: Reached) -> Stretch {
        let positions = from.position..to.position;
        let heard = self.repetitions.listening.heard.borrow();
        let heard = heard.get(positions.start.heard..positions.end.heard).unwrap_or_default();
        let born = Born::read(self.recorder.borrow().ledger(), from.storage..to.storage, heard);
        Stretch { positions, born }
    }

    /// Reads what a unit wrote in a stretch.
    pub(super) fn read_lines(&self, stretch: &Stretch, source: Source<'_>) -> Option<Lines> {
        let heard = self.repetitions.listening.heard.borrow();
        let heard = heard.get(stretch.positions.start.heard..stretch.positions.end.heard)?;
        Lines::read(self.recorder.borrow().ledger(), stretch, heard, source)
    }

    /// Repetitions whose backward does not come any more are not waited for.
    pub(super) fn let_go_of_repetitions(&self) {
        drop((self.repetitions.awaiting.take(), self.repetitions.marks.take()));
        self.repetitions.listening.clear();
    }

    /// The backward is over: what was written for copied units is held against what was executed.
    pub(super) fn end_backward(&self) {
        self.pass(0);
        for repetition in self.repetitions.awaiting.take() {
            repetition.check(self);
        }
        self.repetitions.listening.clear();
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
    /// What hooks hear, of units that may be copied.
    pub listening: Listening,
    /// Whether copies are being written, of which nothing is to be heard.
    quiet: Cell<bool>,
}

impl Repetitions {
    /// Whether a unit runs that may be copied, forward or backward.
    pub fn listens(&self) -> bool {
        !self.quiet.get() && (self.running.get() || !self.awaiting.borrow().is_empty())
    }

    /// Whether nothing is waited for.
    pub fn awaits_none(&self) -> bool {
        self.awaiting.borrow().is_empty()
    }

    /// Hears of nothing for as long as this lives.
    pub fn quietly(&self) -> Quiet<'_> {
        self.quiet.set(true);
        Quiet(&self.quiet)
    }
}

/// While it lives nothing is heard.
pub(super) struct Quiet<'a>(&'a Cell<bool>);

impl Drop for Quiet<'_> {
    fn drop(&mut self) {
        self.0.set(false);
    }
}
