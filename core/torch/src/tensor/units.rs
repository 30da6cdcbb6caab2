//! Units of a model that repeat are executed a few times and written down many times.
//!
//! The layers of a transformer do what the one before did, forward and backward, with storages of their own. Of many such
//! units the first two and the last two are executed; what lies between is copied event by event, the forward from the
//! second unit, the backward from the last but one. The graph of the copied units is one node, which hands the gradient on
//! as it came and writes their backward ([`super::unit_backward`]).
//!
//! A copy is only as good as its original. The forward of the first of the last units is held against the second's, and the second's
//! backward against that one's; all that a unit made must be gone or handed over where the executed ones let go of
//! it. Where any of that fails the run says so ([`Context::repeats_failed`]), and whoever began it executes everything.

use std::ops::Range;
use std::rc::Rc;

use plimsoll_ledger::{Kind, Module};

use super::autograd::{Edge, Node};
use super::context::Context;
use super::retell::{Begins, Told};
use super::storage::Tensor;
use super::unit_backward::{Repetition, Run};
use super::unit_lines::{Bases, Lines, Shift, Source, Stretch, Whose};

/// A unit that is like those beside it: one layer, or as many as make up a pattern of layers.
#[derive(Clone, Debug, Default)]
pub struct Unit {
    /// The modules of its layers.
    pub modules: Range<u32>,
    /// Their parameters, in the order in which they were registered.
    pub parameters: Vec<Tensor>,
}

/// With fewer units there would be nothing to copy between the four that are executed.
pub const WORTH: usize = 5;

/// Runs `units` one after the other: `run` executes the unit of an index on what the one before returned.
pub fn run_units(
    cx: &Rc<Context>,
    units: Vec<Unit>,
    input: Tensor,
    mut run: impl FnMut(usize, Tensor) -> Tensor,
) -> Tensor {
    let count = units.len();
    if count < WORTH || !cx.may_repeat() || !are_alike(cx, &units) {
        return (0..count).fold(input, |hidden, index| run(index, hidden));
    }
    if cx.repetitions.awaits_none() {
        cx.repetitions.listening.clear();
    }
    cx.set_repeating(true);
    let mut run = |index, hidden| cx.stretch(|| run(index, hidden));
    let hidden = repeat(cx, units, input, &mut run);
    cx.set_repeating(false);
    hidden
}

/// Runs units of which those between the second and the last but one are copied.
fn repeat(
    cx: &Rc<Context>,
    units: Vec<Unit>,
    input: Tensor,
    run: &mut dyn FnMut(usize, Tensor) -> (Stretch, Tensor),
) -> Tensor {
    let (count, model) = (units.len(), units.len() - 2);
    let (first, hidden) = run(0, input);
    let given = (hidden.geometry().clone(), hidden.dtype());
    let (second, hidden) = run(1, hidden);
    let alike = (hidden.geometry(), hidden.dtype()) == (&given.0, given.1);
    let forward = alike.then(|| Forward::read(cx, &units[1], &first, &second, &hidden)).flatten();
    let Some(forward) = forward else {
        return (2..count).fold(hidden, |hidden, index| run(index, hidden).1);
    };
    let node = hidden.edge().map(|edge| Node::repetition(cx, edge, &hidden));
    let mut runs = vec![Run::of(&first), Run::of(&second)];
    let Some(mut hidden) = forward.write(cx, &units[..model], &mut runs, hidden, node.as_ref()) else {
        cx.fail_repeats();
        // Any storage will do: nobody reads this ledger.
        cx.retain(0);
        return Tensor::fresh(cx, 0, given.0, given.1);
    };
    for index in model..count {
        let (stretch, output) = run(index, hidden);
        hidden = output;
        if cx.exhausted() {
            // What was to be copied may not be there.
            return hidden;
        }
        if let (true, Some(unit)) = (index == model, units.get(index)) {
            forward.check(cx, unit, &stretch, &runs);
        }
        runs.push(Run::of(&stretch));
    }
    forward.settle_kinds(cx, &runs, model);
    match node {
        Some(node) => {
            let nodes = [second.positions.start.node, runs[model + 1].nodes.start, cx.next_node()];
            Repetition::begin(cx, &node, (units, model), forward, runs, nodes);
        }
        None if forward.lets_go_of_all() => {}
        None => cx.fail_repeats(),
    }
    hidden
}

/// Whether all units have parameters and modules of the same kind.
fn are_alike(cx: &Context, units: &[Unit]) -> bool {
    let Some(model) = units.first() else { return false };
    let recorder = cx.recorder.borrow();
    let modules: Vec<&Module> = recorder.ledger().modules.iter().collect();
    let of = |unit: &Unit| modules.get(unit.modules.start as usize..unit.modules.end as usize);
    let parameter = |(a, b): (&Tensor, &Tensor)| {
        (a.dims(), a.dtype(), a.requires_grad()) == (b.dims(), b.dtype(), b.requires_grad())
    };
    units.iter().all(|unit| {
        let place = |unit: &Unit, module: &Module| (module.parent.index() as u32).checked_sub(unit.modules.start);
        let module = |(a, b): (&&Module, &&Module)| {
            let (a_place, b_place) = (place(model, a), place(unit, b));
            a.name == b.name && (a_place == b_place || (a.item.is_some() && b.item.is_some()))
        };
        unit.parameters.len() == model.parameters.len()
            && unit.modules.len() == model.modules.len()
            && unit.parameters.iter().zip(&model.parameters).all(parameter)
            && of(model).zip(of(unit)).is_some_and(|(a, b)| a.iter().zip(b).all(module))
    })
}

/// Autocast's copy of a parameter that a unit made.
#[derive(Clone, Copy, Debug)]
struct Cached {
    /// Which of the unit's parameters.
    parameter: usize,
    /// Which of its storages.
    number: u32,
    /// Whether the graph holds it too.
    in_graph: bool,
}

/// The forward of the second unit, ready to be written for others.
#[derive(Debug)]
pub(super) struct Forward {
    pub lines: Lines,
    /// Modules of the unit it was read from.
    modules: Range<u32>,
    /// Which of its storages is handed to the next unit.
    output: u32,
    cached: Vec<Cached>,
}

impl Forward {
    /// Reads the second unit, which made `hidden`. `None` where it cannot be written for another.
    fn read(cx: &Context, unit: &Unit, first: &Stretch, second: &Stretch, hidden: &Tensor) -> Option<Self> {
        let number = |id: u32| second.born.number(id);
        let output = number(hidden.storage_id())?;
        // Where the unit's own graph holds its output, the graph of the copies would have to.
        if cx.references(hidden.storage_id()) != 1 {
            return None;
        }
        let mut cached = Vec::new();
        for (parameter, tensor) in unit.parameters.iter().enumerate() {
            let Some(copy) = cx.cached_copy(tensor) else { continue };
            // Beside this handle and the region's.
            let in_graph = cx.references(copy.storage_id()) > 2;
            cached.push(Cached { parameter, number: number(copy.storage_id())?, in_graph });
        }
        let (bases, nodes) = (Bases::forward(&second.born, &first.born), second.nodes());
        let lines = cx.read_lines(second, Source { unit, behind: None, nodes: &nodes, bases, renamed: &[] })?;
        // What else the unit before handed over has a handle that nobody here knows, and so has what hooks gave to one.
        let known = lines.freed(Whose::Before).all(|number| number == output) && !lines.told.iter().any(Told::gives);
        known.then_some(Self { lines, modules: unit.modules.clone(), output, cached })
    }

    /// Writes the forwards of the third of `units` and those behind it, after the second, whose output is `hidden`; what the
    /// last of them returns. `runs` has the first two units and gets the others. `None` where one is not as the second was.
    fn write(
        &self,
        cx: &Rc<Context>,
        units: &[Unit],
        runs: &mut Vec<Run>,
        hidden: Tensor,
        node: Option<&Rc<Node>>,
    ) -> Option<Tensor> {
        let _quiet = cx.repetitions.quietly();
        let (grad_fn, module) = (cx.grad_fn.get(), cx.current_module());
        let copied = units.get(2..)?;
        self.lines.reserve(cx, copied.len());
        for unit in copied {
            if cx.exhausted() {
                break;
            }
            let first = cx.next_node();
            let born = self.lines.make(cx, &Shift::new(self.modules.clone(), &unit.modules));
            let bases = Bases::forward(&born, &runs.last()?.born);
            self.lines.write(cx, (unit, 0), Begins { forward: first, backward: first }, &born, bases)?;
            for cached in &self.cached {
                let copy = cx.cached_copy(units.get(1)?.parameters.get(cached.parameter)?);
                let id = born.id(cached.number);
                let Some(copy) = copy.map(|copy| copy.on_storage(id)) else { continue };
                // This handle takes one reference; the graph's goes with the copied backward.
                cx.set_references(id, 1 + u32::from(cached.in_graph));
                cx.cache_copy(unit.parameters.get(cached.parameter)?, &copy);
            }
            runs.push(Run { born, nodes: first..cx.next_node() });
        }
        cx.grad_fn.set(grad_fn);
        cx.set_module(module);
        // The second unit's output goes where the copies say.
        let gone = self.lines.freed(Whose::Before).any(|number| number == self.output);
        cx.retain(hidden.storage_id());
        let (id, shape) = (hidden.storage_id(), hidden.clone());
        drop(hidden);
        let last = runs.last()?.born.id(self.output);
        let edge = node.map(|node| Edge { node: Rc::clone(node), slot: 0 });
        let handed_on = shape.on_storage(last).with_edge(edge);
        drop(shape);
        cx.set_references(last, 1);
        if gone {
            cx.set_references(id, 0);
        }
        Some(handed_on)
    }

    /// Holds another executed unit against the second; `runs` are those before it.
    fn check(&self, cx: &Context, unit: &Unit, stretch: &Stretch, runs: &[Run]) {
        let Some(before) = runs.last() else { return };
        let (bases, nodes) = (Bases::forward(&stretch.born, &before.born), stretch.nodes());
        let lines = cx.read_lines(stretch, Source { unit, behind: None, nodes: &nodes, bases, renamed: &[] });
        if !lines.is_some_and(|lines| lines.same(&self.lines)) {
            cx.fail_repeats();
        }
    }

    /// Why a storage exists is known when the next unit has run: what that one keeps of it is saved.
    fn settle_kinds(&self, cx: &Context, runs: &[Run], model: usize) {
        let mut recorder = cx.recorder.borrow_mut();
        let (Some(executed), Some(copied)) = (runs.get(model), runs.get(1..model)) else { return };
        for (number, storage) in (0u32..).zip(&self.lines.storages) {
            let kind: Kind = *recorder.kind_mut(executed.born.id(number));
            if kind != storage.kind {
                for unit in copied {
                    *recorder.kind_mut(unit.born.id(number)) = kind;
                }
            }
        }
    }

    /// Which storages go while units run forward, or when the region of autocast ends.
    pub fn gone(&self) -> Vec<u32> {
        let freed = [Whose::Own, Whose::Before].into_iter().flat_map(|whose| self.lines.freed(whose));
        freed.chain(self.cached.iter().filter(|c| !c.in_graph).map(|c| c.number)).collect()
    }

    /// Autocast's copies that the backward lets go of.
    pub fn cast_for_the_graph(&self) -> impl Iterator<Item = u32> {
        self.cached.iter().filter(|cached| cached.in_graph).map(|cached| cached.number)
    }

    /// Whether nothing that a unit makes outlives the next unit.
    fn lets_go_of_all(&self) -> bool {
        let mut gone = self.gone();
        gone.sort_unstable();
        let made = (0u32..).zip(&self.lines.storages).filter(|(_, s)| s.bytes > 0).map(|(number, _)| number);
        made.eq(gone)
    }
}

impl Run {
    fn of(stretch: &Stretch) -> Self {
        Self { born: stretch.born.clone(), nodes: stretch.nodes() }
    }
}

impl Stretch {
    /// The nodes that were made.
    fn nodes(&self) -> Range<u32> {
        self.positions.start.node..self.positions.end.node
    }
}
