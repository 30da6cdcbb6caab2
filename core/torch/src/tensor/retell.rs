//! What hooks were told of a unit, wherever it stands, and telling them the same of another one.

use std::ops::Range;
use std::rc::Rc;

use plimsoll_ledger::ModuleId;

use super::context::Context;
use super::heard::{Call, Heard, Shape, What};
use super::hooks::Hooks;
use super::repeat::Position;
use super::storage::Tensor;
use super::unit_lines::{Bases, Source, Whose};
use super::units::Unit;
use crate::GradFn;

/// Something that hooks were told of a unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Told {
    said: Said,
    /// After so many of the unit's own lines, and so many of its launches.
    pub line: usize,
    pub launch: usize,
    /// After so many nodes.
    node: u32,
    grad_fn: GradFn,
    module: Place,
}

/// A module of the unit, of the one whose backward ran before, or another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Own(u32),
    Behind(u32),
    Other(ModuleId),
}

/// A node of the unit's forward, or one that a recomputation made in its backward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Nodes {
    Forward(u32),
    Backward(u32),
}

/// As [`What`], of parameters by their place in the unit, and of given bytes by the number of the time when they were given.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Said {
    Enters(Place, Option<bool>),
    Leaves(Place),
    Reaches(Nodes),
    Accumulated(usize),
    Reads(usize),
    Replaced(usize),
    RequiresOutput,
    WentBackward(Nodes),
    Holds(usize, Shape),
    Retains(usize),
    LetsGo(usize),
    /// The storage: of a gradient that was added to one that was there, none.
    Arrived(usize, Option<Arrival>, Shape),
}

/// The storage of a gradient that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Arrival {
    made: (Whose, u32),
    /// Whether it is nobody else's: mostly.
    alone: bool,
}

/// Where a unit's nodes begin: those of its forward, and those that its backward makes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Begins {
    pub forward: u32,
    pub backward: u32,
}

/// From the numbers of a run to those of one of its units.
struct Reading<'a> {
    source: Source<'a>,
    begins: Begins,
    /// Storages of bytes in the order in which they were given away.
    given: Vec<u32>,
}

impl Told {
    /// Reads what was heard of a unit in a stretch from `start` on. `None` where it is about something that another unit would not
    /// have.
    pub fn read(heard: &[Heard], source: Source<'_>, start: Position) -> Option<Vec<Self>> {
        let begins = Begins { forward: source.nodes.start, backward: start.node };
        let mut reading = Reading { source, begins, given: Vec::new() };
        let (mut events, mut launches) = (0, 0);
        let mut all = Vec::with_capacity(heard.len());
        for heard in heard {
            let Range { start: from, end: to } = heard.positions;
            if let Some(said) = reading.said(&heard.what)? {
                all.push(Self {
                    said,
                    line: from.event.checked_sub(start.event + events)?,
                    launch: from.launch.checked_sub(start.launch + launches)?,
                    node: from.node.checked_sub(start.node)?,
                    grad_fn: heard.grad_fn,
                    module: reading.place(heard.module),
                });
            }
            events += to.event - from.event;
            launches += to.launch - from.launch;
        }
        let mut arrivals: Vec<(Whose, u32)> = all.iter().filter_map(Self::arrived).collect();
        arrivals.sort_unstable();
        for told in &mut all {
            if let Said::Arrived(_, Some(Arrival { made, alone }), _) = &mut told.said {
                let first = arrivals.partition_point(|other| other < made);
                *alone = arrivals.get(first + 1) != Some(made);
            }
        }
        Some(all)
    }

    /// Whether anything may be written when it is told again.
    pub const fn writes(&self) -> bool {
        !matches!(self.said, Said::Arrived(..) | Said::Retains(_))
    }

    /// The storage of a gradient that came.
    pub const fn arrived(&self) -> Option<(Whose, u32)> {
        if let Said::Arrived(_, Some(Arrival { made, .. }), _) = &self.said { Some(*made) } else { None }
    }

    /// Whether bytes were given away for longer than a call.
    pub const fn gives(&self) -> bool {
        matches!(self.said, Said::Holds(..))
    }
}

impl Reading<'_> {
    fn place(&self, module: ModuleId) -> Place {
        let index = module.index() as u32;
        let (own, behind) = (&self.source.unit.modules, self.source.behind);
        match behind.filter(|behind| behind.contains(&index)) {
            _ if own.contains(&index) => Place::Own(index - own.start),
            Some(behind) => Place::Behind(index - behind.start),
            None => Place::Other(module),
        }
    }

    fn node(&self, node: u32) -> Option<Nodes> {
        match node {
            node if node >= self.begins.backward => Some(Nodes::Backward(node - self.begins.backward)),
            node if self.source.nodes.contains(&node) => Some(Nodes::Forward(node - self.begins.forward)),
            _ => None,
        }
    }

    /// The inner `None`: it is nothing that hooks would have to hear of.
    fn said(&mut self, what: &What) -> Option<Option<Said>> {
        let parameters = &self.source.unit.parameters;
        let of_storage = |id: u32| parameters.iter().position(|p| p.storage_id() == id);
        let of_number = |number: u32| {
            let told = |p: &Tensor| p.edge().and_then(|edge| edge.node.leaf()?.number.get());
            parameters.iter().position(|p| told(p) == Some(number))
        };
        let given = |given: &[u32], id: u32| given.iter().rposition(|of| *of == id);
        Some(Some(match what {
            What::Enters(module, takes) => Said::Enters(self.place(*module), *takes),
            What::Leaves(module) => Said::Leaves(self.place(*module)),
            What::Reaches(node) => Said::Reaches(self.node(*node)?),
            What::Accumulated(number) => Said::Accumulated(of_number(*number)?),
            What::Reads(id) => Said::Reads(of_storage(*id)?),
            What::Replaced(id) => Said::Replaced(of_storage(*id)?),
            What::RequiresOutput => Said::RequiresOutput,
            What::WentBackward(node) => Said::WentBackward(self.node(*node)?),
            What::Holds(of, shape, bytes) => {
                self.given.push(*bytes);
                Said::Holds(of_storage(*of)?, shape.clone())
            }
            What::Retains(id) => Said::Retains(given(&self.given, *id)?),
            What::LetsGo(id) => Said::LetsGo(given(&self.given, *id)?),
            What::Arrived(node, id, shape) => {
                let stands = |p: &Tensor| p.edge().is_some_and(|edge| std::ptr::from_ref(&*edge.node).addr() == *node);
                let Some(parameter) = parameters.iter().position(stands) else { return Some(None) };
                // Whether it is alone is known when all have come.
                let arrival = |made| Arrival { made, alone: false };
                Said::Arrived(parameter, self.source.bases.number(*id).map(arrival), shape.clone())
            }
        }))
    }
}

/// Telling hooks of one copied unit.
pub(super) struct Retelling<'a> {
    cx: &'a Rc<Context>,
    unit: &'a Unit,
    /// The modules of the one whose backward ran before.
    behind: u32,
    begins: Begins,
    /// The first node of the stretch.
    first: u32,
    /// Who is told. Nothing of it is heard: copies are written quietly.
    hooks: Option<Rc<dyn Hooks>>,
    /// Bytes that were given away, by the time when they were, as often as they are held.
    given: Vec<Vec<Tensor>>,
    /// Gradients that are parts of one that has arrived, each with its place in what is told.
    awaited: Vec<(usize, Tensor)>,
}

impl<'a> Retelling<'a> {
    /// Of a unit behind whose modules those of another begin with `behind`.
    pub fn new(cx: &'a Rc<Context>, unit: &'a Unit, behind: u32, begins: Begins) -> Self {
        let (hooks, first) = (cx.hooks(), cx.next_node());
        Self { cx, unit, behind, begins, first, hooks, given: Vec::new(), awaited: Vec::new() }
    }

    fn node(&self, node: &Nodes) -> u32 {
        match node {
            Nodes::Forward(offset) => self.begins.forward + offset,
            Nodes::Backward(offset) => self.begins.backward + offset,
        }
    }

    /// Tells what is at `index` of `all`. `None` where the unit is not as the one that was executed.
    pub fn tell(&mut self, all: &[Told], index: usize, bases: Bases<'_>) -> Option<()> {
        let told = all.get(index)?;
        if let Said::Arrived(parameter, arrival, shape) = &told.said {
            return self.arrive(all, index, (*parameter, *arrival, shape), bases);
        }
        let (cx, unit, behind) = (self.cx, self.unit, self.behind);
        let module = |place: Place| match place {
            Place::Own(offset) => ModuleId::new(unit.modules.start + offset),
            Place::Behind(offset) => ModuleId::new(behind + offset),
            Place::Other(module) => module,
        };
        cx.set_module(module(told.module));
        cx.grad_fn.set(told.grad_fn);
        let Some(hooks) = &self.hooks else { return Some(()) };
        cx.next_seq.set(self.first + told.node);
        let call = match &told.said {
            Said::Enters(of, takes) => {
                cx.takes_told.set(*takes);
                hooks.enters(cx, module(*of));
                cx.takes_told.set(None);
                return Some(());
            }
            Said::Leaves(of) => Call::Leaves(module(*of)),
            Said::Reaches(node) => Call::Reaches(self.node(node)),
            Said::Accumulated(parameter) => {
                let leaf = unit.parameters.get(*parameter)?.edge()?.node.leaf()?;
                Call::Accumulated(leaf.number.get()?)
            }
            Said::Reads(parameter) => Call::Reads(unit.parameters.get(*parameter)?),
            Said::Replaced(parameter) => Call::Replaced(unit.parameters.get(*parameter)?),
            Said::RequiresOutput => Call::RequiresOutput,
            Said::WentBackward(node) => Call::WentBackward(self.node(node)),
            Said::Holds(parameter, shape) => {
                let of = shape.view_of(unit.parameters.get(*parameter)?);
                self.given.push(vec![cx.held(&of)?]);
                return Some(());
            }
            Said::Retains(time) => {
                let held = self.given.get_mut(*time)?;
                held.push(held.last()?.clone());
                return Some(());
            }
            Said::LetsGo(time) => {
                drop(self.given.get_mut(*time)?.pop()?);
                return Some(());
            }
            Said::Arrived(..) => return Some(()),
        };
        call.reach(&**hooks, cx);
        Some(())
    }

    /// Gives a parameter its gradient.
    fn arrive(
        &mut self,
        all: &[Told],
        index: usize,
        (parameter, arrival, shape): (usize, Option<Arrival>, &Shape),
        bases: Bases<'_>,
    ) -> Option<()> {
        let leaf = self.unit.parameters.get(parameter)?.edge()?.node.leaf()?;
        let mut gradient = leaf.grad.borrow_mut();
        let Some(Arrival { made: (whose, number), alone }) = arrival else { return gradient.is_some().then_some(()) };
        gradient.is_none().then_some(())?;
        let id = bases.id(whose, number);
        if alone {
            self.cx.set_references(id, self.cx.references(id) + 1);
            *gradient = Some(shape.on_storage(self.cx, id));
            return Some(());
        }
        let known = self.awaited.iter().position(|(at, _)| *at == index);
        if let Some(known) = known {
            *gradient = Some(self.awaited.swap_remove(known).1);
            return Some(());
        }
        for (at, told) in all.iter().enumerate().skip(index) {
            let Said::Arrived(_, Some(of), shape) = &told.said else { continue };
            if of.made == (whose, number) {
                self.cx.set_references(id, self.cx.references(id) + 1);
                self.awaited.push((at, shape.on_storage(self.cx, id)));
            }
        }
        let own = self.awaited.iter().position(|(at, _)| *at == index)?;
        *gradient = Some(self.awaited.swap_remove(own).1);
        Some(())
    }

    /// Everything was told, and so many nodes made. `None` where something is still held.
    pub fn end(self, nodes: u32) -> Option<()> {
        if self.hooks.is_some() {
            let (next, graph) = (self.first + nodes, &self.cx.graph);
            // These nodes take none of our memory.
            graph.set(graph.get() + next.saturating_sub(self.first));
            self.cx.next_seq.set(next);
        }
        (self.given.iter().all(Vec::is_empty) && self.awaited.is_empty()).then_some(())
    }
}
