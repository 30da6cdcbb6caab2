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
use super::hooks::{CopiedForward, UnitHooks};
use super::storage::Tensor;
use super::unit_backward::Repetition;
use super::unit_lines::{Lines, Shift, Stretch, Whose};

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
    let settles = cx.hooks().and_then(|hooks| hooks.of_units().map(UnitHooks::settles_after)).unwrap_or(0);
    if count < WORTH + settles || !cx.may_repeat() || !are_alike(cx, &units) {
        return (0..count).fold(input, |hidden, index| run(index, hidden));
    }
    cx.set_repeating(true);
    let mut run = |index, hidden| cx.stretch(|| run(index, hidden));
    let hidden = repeat(cx, units, count - 2 - settles, input, &mut run);
    cx.set_repeating(false);
    hidden
}

/// Runs units of which those between the second and the one of the index `model` are copied.
fn repeat(
    cx: &Rc<Context>,
    units: Vec<Unit>,
    model: usize,
    input: Tensor,
    run: &mut dyn FnMut(usize, Tensor) -> (Stretch, Tensor),
) -> Tensor {
    let count = units.len();
    let (first, hidden) = run(0, input);
    let given = (hidden.geometry().clone(), hidden.dtype());
    let second_node = cx.next_seq.get();
    let (second, hidden) = run(1, hidden);
    let alike = (hidden.geometry(), hidden.dtype()) == (&given.0, given.1);
    let forward = alike.then(|| Forward::read(cx, &units[1], &first, &second, &hidden)).flatten();
    let Some(forward) = forward else {
        return (2..count).fold(hidden, |hidden, index| run(index, hidden).1);
    };
    let node = hidden.edge().map(|edge| Node::repetition(cx, edge, &hidden));
    let mut born = vec![first.born, second.born];
    let mut hidden = forward.write(cx, &units[..model], &mut born, hidden, node.as_ref());
    // The first nodes of the units that are executed, and of what follows.
    let mut nodes = vec![cx.next_seq.get()];
    for index in model..count {
        let (stretch, output) = run(index, hidden);
        hidden = output;
        if cx.exhausted() {
            // What was to be copied may not be there.
            return hidden;
        }
        if index == model {
            forward.check(cx, &stretch, &born);
        }
        born.push(stretch.born);
        nodes.push(cx.next_seq.get());
    }
    forward.settle_kinds(cx, &born, model);
    match node {
        Some(node) => {
            let [model_node, behind, further, ..] = nodes[..] else { return hidden };
            let after = nodes.get(3).copied().unwrap_or(further);
            let nodes = [second_node, model_node, behind, further, after];
            Repetition::begin(cx, &node, (units, model), forward, born, nodes);
        }
        None if forward.lets_go_of_all() => {}
        None => cx.fail_repeats(),
    }
    hidden
}

/// Whether all units have parameters and modules of the same kind.
fn are_alike(cx: &Context, units: &[Unit]) -> bool {
    let Some(model) = units.first() else { return false };
    let hooks = cx.hooks();
    if let Some(hooks) = hooks.as_ref().and_then(|hooks| hooks.of_units())
        && units.iter().any(|unit| !hooks.are_alike(&model.modules, &unit.modules))
    {
        return false;
    }
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
    /// Which of its storages hooks hold until the next unit.
    between: Vec<u32>,
    cached: Vec<Cached>,
}

impl Forward {
    /// Reads the second unit, which made `hidden`. `None` where it cannot be written for another.
    fn read(cx: &Context, unit: &Unit, first: &Stretch, second: &Stretch, hidden: &Tensor) -> Option<Self> {
        let number = |id: u32| second.born.contains(&id).then(|| id - second.born.start);
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
        let ranges = [(Whose::Own, second.born.clone()), (Whose::Before, first.born.clone())];
        let lines = Lines::read(cx.recorder.borrow().ledger(), second, &ranges, &[], &[])?;
        let held = cx.hooks().and_then(|hooks| hooks.of_units().map(UnitHooks::between)).unwrap_or_default();
        let between: Vec<u32> = held.iter().filter_map(|tensor| number(tensor.storage_id())).collect();
        // What else the unit before handed over has a handle that nobody here knows.
        let known = lines.freed(Whose::Before).all(|(number, _)| number == output || between.contains(&number));
        let goes = |held: &u32| lines.freed(Whose::Before).any(|(number, _)| number == *held);
        (known && between.iter().all(goes)).then_some(Self {
            lines,
            modules: unit.modules.clone(),
            output,
            between,
            cached,
        })
    }

    /// Writes the forwards of the third of `units` and those behind it, after the second, whose output is `hidden`; what the
    /// last of them returns. `born` has the storages of the first two units and gets those of the others.
    fn write(
        &self,
        cx: &Rc<Context>,
        units: &[Unit],
        born: &mut Vec<Range<u32>>,
        hidden: Tensor,
        node: Option<&Rc<Node>>,
    ) -> Tensor {
        for unit in &units[2..] {
            if cx.exhausted() {
                break;
            }
            let before = born.last().map_or(0, |born| born.start);
            let begin = cx.next_storage();
            let shift = cx.shift(&self.modules, &unit.modules);
            let (made, _) = self.lines.write(cx, [begin, before, 0, 0, 0, 0], &shift, &[], |_| ());
            for cached in &self.cached {
                let copy = cx.cached_copy(&units[1].parameters[cached.parameter]);
                let Some(copy) = copy.map(|copy| copy.on_storage(begin + cached.number)) else { continue };
                // This handle takes one reference; the graph's goes with the copied backward.
                cx.set_references(begin + cached.number, 1 + u32::from(cached.in_graph));
                cx.cache_copy(&unit.parameters[cached.parameter], &copy);
            }
            born.push(made);
        }
        // The second unit's output goes where the copies say.
        let gone = self.lines.freed(Whose::Before).any(|(number, _)| number == self.output);
        cx.retain(hidden.storage_id());
        let (id, shape) = (hidden.storage_id(), hidden.clone());
        drop(hidden);
        let last = born.last().map_or(0, |born| born.start);
        if let Some(hooks) = cx.hooks().as_ref().and_then(|hooks| hooks.of_units()) {
            let second = born.get(1).map_or(0, |born| born.start);
            let copied: Vec<Range<u32>> = units[2..].iter().map(|unit| unit.modules.clone()).collect();
            let node = node.map_or_else(|| cx.next_node(), |node| node.seq);
            let moved = |held: Tensor| {
                let id = held.storage_id();
                let Some(number) = id.checked_sub(second).filter(|number| self.between.contains(number)) else {
                    return held;
                };
                cx.retain(id);
                let moved = held.on_storage(last + number);
                drop(held);
                cx.set_references(last + number, 1);
                cx.set_references(id, 0);
                moved
            };
            let copy = |held: &Tensor, index: usize| {
                let second = born.get(1).filter(|of| of.contains(&held.storage_id()))?;
                let id = born.get(2 + index)?.start + held.storage_id() - second.start;
                cx.set_references(id, cx.references(id) + 1);
                Some(held.on_storage(id))
            };
            let like = &self.modules;
            hooks.forward_copied(&CopiedForward { like, units: &copied, node, moved: &moved, copy: &copy });
        }
        let last = last + self.output;
        let edge = node.map(|node| Edge { node: Rc::clone(node), slot: 0 });
        let handed_on = shape.on_storage(last).with_edge(edge);
        drop(shape);
        cx.set_references(last, 1);
        if gone {
            cx.set_references(id, 0);
        }
        handed_on
    }

    /// Holds another executed unit against the second; `born` are the storages of those before it.
    fn check(&self, cx: &Context, stretch: &Stretch, born: &[Range<u32>]) {
        let Some(before) = born.last() else { return };
        let ranges = [(Whose::Own, stretch.born.clone()), (Whose::Before, before.clone())];
        let lines = Lines::read(cx.recorder.borrow().ledger(), stretch, &ranges, &[], &[]);
        if !lines.is_some_and(|lines| lines.same(&self.lines)) {
            cx.fail_repeats();
        }
    }

    /// Why a storage exists is known when the next unit has run: what that one keeps of it is saved.
    fn settle_kinds(&self, cx: &Context, born: &[Range<u32>], model: usize) {
        let mut recorder = cx.recorder.borrow_mut();
        let (Some(executed), Some(copied)) = (born.get(model), born.get(1..model)) else { return };
        for (number, storage) in (0u32..).zip(&self.lines.storages) {
            let kind: Kind = *recorder.kind_mut(executed.start + number);
            if kind != storage.kind {
                for unit in copied {
                    *recorder.kind_mut(unit.start + number) = kind;
                }
            }
        }
    }

    /// Which storages go while units run forward, or when the region of autocast ends.
    pub fn gone(&self) -> Vec<u32> {
        let freed = [Whose::Own, Whose::Before].into_iter().flat_map(|whose| self.lines.freed(whose).map(|(n, _)| n));
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

impl Context {
    /// From what a unit of these modules has to what another one has.
    pub(super) fn shift(&self, from: &Range<u32>, to: &Range<u32>) -> Shift {
        let parts = |unit| self.hooks().and_then(|hooks| hooks.of_units().map(|hooks| hooks.parts(unit)));
        let owners = match (parts(from), parts(to)) {
            (Some(from), Some(to)) => from.iter().zip(&to).map(|(a, b)| (a.storage_id(), b.storage_id())).collect(),
            _ => Vec::new(),
        };
        Shift::new(from.clone(), to.start, owners)
    }
}
