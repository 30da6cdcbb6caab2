//! The autograd graph: nodes that own exactly what PyTorch saves for them.

use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;

use plimsoll_ledger::{DType, ModuleId, Stream};
use smallvec::SmallVec;

use super::backward::Gradients;
use super::checkpoint::Function;
use super::context::Context;
use super::geometry::Geometry;
use super::saved::Saved;
use super::storage::Tensor;
use super::unit_backward::Repetition;
use crate::GradFn;

/// The gradients a node returns, one for each of its forward's inputs; `None` where none is asked for.
pub type Grads = SmallVec<[Option<Tensor>; 3]>;

/// A node's formula: given the gradients of its outputs, allocates and returns those of its inputs.
type Formula = Box<dyn Fn(&Gradients<'_>) -> Grads>;

/// Collects a node's results, in the order of the forward's inputs.
pub fn grads<const N: usize>(values: [Option<Tensor>; N]) -> Grads {
    SmallVec::from_iter(values)
}

/// Where a gradient goes: the `slot`-th output of `node`'s forward.
#[derive(Clone, Debug)]
pub struct Edge {
    /// The node.
    pub node: Rc<Node>,
    /// Which of its outputs.
    pub slot: u32,
}

/// What a node remembers of one of its outputs; incoming gradients are summed and cast to it (`validate_outputs`).
#[derive(Clone, Debug)]
pub struct Meta {
    /// Sizes and strides.
    pub geometry: Geometry,
    /// Element type.
    pub dtype: DType,
}

/// The end of the graph at a leaf: `AccumulateGrad` and the leaf's `.grad`.
#[derive(Debug, Default)]
pub struct Leaf {
    /// `.grad`.
    pub grad: RefCell<Option<Tensor>>,
    /// A leaf nobody else holds (not a parameter) lives as long as its node.
    pub variable: Option<Tensor>,
    /// What hooks call it.
    pub(super) number: Cell<Option<u32>>,
    /// Where it stands for a view of a flat parameter the stream that view was made on: what flows back goes on to that one.
    pub(super) view: Cell<Option<Stream>>,
}

pub(super) enum Work {
    /// `None` once it has run and its saved tensors are released.
    Formula(RefCell<Option<Formula>>),
    Accumulate(Leaf),
    /// Units that were copied; empty until the unit behind them has run.
    Repeated(OnceCell<Rc<Repetition>>),
}

/// What a Python function's `ctx` has besides what it saved.
pub(super) enum Attribute {
    /// A tensor.
    Tensor(#[allow(dead_code, reason = "held alive, as Python holds it")] Tensor),
    /// What is called, all that was bound to it, and what of its inputs is not saved.
    Call(
        #[allow(dead_code, reason = "held alive, as Python holds it")] Function,
        #[allow(dead_code, reason = "held alive, as Python holds it")] Vec<Tensor>,
    ),
}

impl std::fmt::Debug for Attribute {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Tensor(_) => "Tensor",
            Self::Call(..) => "Call",
        })
    }
}

/// One node of the graph.
pub struct Node {
    pub(super) name: GradFn,
    /// Order of creation; `AccumulateGrad` is `u32::MAX` and so runs as soon as it is ready.
    pub(super) seq: u32,
    pub(super) module: ModuleId,
    pub(super) next: SmallVec<[Option<Edge>; 3]>,
    pub(super) outputs: SmallVec<[Meta; 1]>,
    pub(super) work: Work,
    /// Attributes of a Python function's `ctx`: they live as long as the node, not only until it has run.
    #[allow(dead_code, reason = "held alive, as Python holds it")]
    pub(super) attribute: Option<Attribute>,
    /// Gradients that have arrived, one place for each output.
    pub(super) buffer: RefCell<SmallVec<[Option<Tensor>; 1]>>,
    pub(super) dependencies: Cell<u32>,
}

impl Node {
    /// The `AccumulateGrad` of a leaf with this geometry.
    pub fn accumulate(geometry: Geometry, dtype: DType, variable: Option<Tensor>) -> Rc<Self> {
        Rc::new(Self {
            name: GradFn::AccumulateGrad,
            seq: u32::MAX,
            module: ModuleId::default(),
            next: SmallVec::new(),
            outputs: SmallVec::from_iter([Meta { geometry, dtype }]),
            work: Work::Accumulate(Leaf {
                grad: RefCell::default(),
                variable,
                number: Cell::new(None),
                view: Cell::new(None),
            }),
            attribute: None,
            buffer: RefCell::default(),
            dependencies: Cell::new(0),
        })
    }

    /// The node of units that are copied behind the one that made `hidden`.
    pub(super) fn repetition(cx: &Context, edge: &Edge, hidden: &Tensor) -> Rc<Self> {
        let seq = cx.next_seq.get();
        cx.next_seq.set(seq + 1);
        Rc::new(Self {
            name: GradFn::None,
            seq,
            module: ModuleId::ROOT,
            next: SmallVec::from_iter([Some(edge.clone())]),
            outputs: SmallVec::from_iter([Meta { geometry: hidden.geometry().clone(), dtype: hidden.dtype() }]),
            work: Work::Repeated(OnceCell::new()),
            attribute: None,
            buffer: RefCell::default(),
            dependencies: Cell::new(0),
        })
    }

    /// What stands before the nodes at which a backward begins (`GraphRoot`).
    pub(super) fn root(next: impl IntoIterator<Item = Edge>) -> Self {
        Self {
            name: GradFn::None,
            seq: 0,
            module: ModuleId::ROOT,
            next: next.into_iter().map(Some).collect(),
            outputs: SmallVec::new(),
            work: Work::Formula(RefCell::default()),
            attribute: None,
            buffer: RefCell::default(),
            dependencies: Cell::new(0),
        }
    }

    /// The leaf behind an `AccumulateGrad`.
    pub fn leaf(&self) -> Option<&Leaf> {
        match &self.work {
            Work::Accumulate(leaf) => Some(leaf),
            Work::Formula(_) | Work::Repeated(_) => None,
        }
    }
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Node").field("name", &self.name).field("seq", &self.seq).finish_non_exhaustive()
    }
}

thread_local! {
    /// How many nodes are being dropped within one another.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
    /// What nodes too deep for that held; the outermost drops it.
    static LATER: RefCell<Vec<Work>> = const { RefCell::new(Vec::new()) };
}

/// So deep nodes may be dropped within one another. A run that is followed to its end comes nowhere near; of one that is broken
/// off within its forward, each checkpoint holds the node before it.
const DEEPEST: u32 = 64;

impl Drop for Node {
    /// Unlinks a long chain one node after the other; dropping it recursively would overflow a small stack.
    fn drop(&mut self) {
        let mut pending: SmallVec<[Rc<Self>; 4]> = SmallVec::new();
        let unlink = |node: &mut Self, pending: &mut SmallVec<[Rc<Self>; 4]>| {
            // As `gatherFunctions` in `torch/csrc/autograd/function.cpp`: of two edges to one node the first is only let go
            // of, so that the second is its last.
            for Edge { node, .. } in node.next.iter_mut().filter_map(Option::take) {
                if Rc::strong_count(&node) == 1 {
                    pending.push(node);
                }
            }
        };
        let depth = DEPTH.get();
        DEPTH.set(depth + 1);
        unlink(self, &mut pending);
        while let Some(node) = pending.pop() {
            if let Some(mut node) = Rc::into_inner(node) {
                unlink(&mut node, &mut pending);
            }
        }
        let held = std::mem::replace(&mut self.work, Work::Formula(RefCell::default()));
        if depth < DEEPEST {
            drop(held);
        } else {
            LATER.with_borrow_mut(|later| later.push(held));
        }
        while depth == 0
            && let Some(held) = LATER.with_borrow_mut(Vec::pop)
        {
            drop(held);
        }
        DEPTH.set(depth);
    }
}

/// A node in the making: what an op does before, while and after its kernel runs. Inactive when no gradient is wanted.
#[derive(Debug)]
pub struct Tape {
    recording: Option<Recording>,
}

#[derive(Debug)]
struct Recording {
    cx: Rc<Context>,
    name: GradFn,
    seq: u32,
    next: SmallVec<[Option<Edge>; 3]>,
    attribute: Option<Attribute>,
}

impl Tape {
    /// Begins the node `name` over the op's differentiable inputs. Call before the kernel allocates.
    pub fn new(cx: &Rc<Context>, name: GradFn, inputs: &[&Tensor]) -> Self {
        let wanted =
            cx.grad_enabled.get() && !cx.muted.get() && !cx.exhausted() && inputs.iter().any(|t| t.requires_grad());
        let recording = wanted.then(|| {
            let seq = cx.next_seq.get();
            cx.next_seq.set(seq + 1);
            let next = inputs.iter().map(|t| t.edge().cloned()).collect();
            Recording { cx: Rc::clone(cx), name, seq, next, attribute: None }
        });
        Self { recording }
    }

    /// Whether a gradient for input `i` is wanted.
    pub fn needs(&self, i: usize) -> bool {
        self.recording.as_ref().is_some_and(|r| r.next[i].is_some())
    }

    /// Keeps `tensor` for backward; inputs before the kernel runs, outputs after.
    pub fn save(&self, tensor: &Tensor) -> Saved {
        self.save_if(true, tensor)
    }

    /// Keeps `tensor` if `condition` holds (most formulas need an operand only for the other operand's gradient).
    pub fn save_if(&self, condition: bool, tensor: &Tensor) -> Saved {
        match &self.recording {
            Some(recording) if condition => Saved::pack(&recording.cx, tensor),
            _ => Saved::Nothing,
        }
    }

    /// Keeps something that the card has nothing of.
    pub fn save_nothing(&self) {
        if let Some(recording) = &self.recording {
            recording.cx.saves_nothing();
        }
    }

    /// Makes `tensor` an attribute of the node (`ctx.x = x` in Python): no checkpoint defers it, and it lives as long as
    /// the node does.
    pub fn keep(&mut self, tensor: &Tensor) {
        if let Some(recording) = &mut self.recording {
            tensor.mark_saved();
            recording.attribute = Some(Attribute::Tensor(tensor.detach()));
        }
    }

    /// As [`Tape::keep`], of anything.
    pub(super) fn hold(&mut self, attribute: Attribute) {
        if let Some(recording) = &mut self.recording {
            recording.attribute = Some(attribute);
        }
    }

    /// Makes `outputs` the node's outputs, with `formula` as its backward.
    pub fn record<'t>(
        self,
        outputs: impl IntoIterator<Item = &'t mut Tensor>,
        formula: impl Fn(&Gradients<'_>) -> Grads + 'static,
    ) {
        let Some(Recording { cx, name, seq, next, attribute }) = self.recording else { return };
        let mut outputs: SmallVec<[&mut Tensor; 3]> = outputs.into_iter().collect();
        let node = Rc::new(Node {
            name,
            seq,
            module: cx.current_module(),
            next,
            outputs: outputs.iter().map(|t| Meta { geometry: t.geometry().clone(), dtype: t.dtype() }).collect(),
            work: Work::Formula(RefCell::new(Some(Box::new(formula)))),
            attribute,
            buffer: RefCell::default(),
            dependencies: Cell::new(0),
        });
        for (slot, output) in outputs.iter_mut().enumerate() {
            output.set_edge(&node, slot as u32);
        }
    }
}

impl Tensor {
    /// Makes a leaf that requires grad (`requires_grad_()`), accumulating into a `.grad` of its own. `owned` says
    /// that the graph holds the tensor too (a plain tensor, not a parameter). What requires grad already stays as it is.
    pub fn into_leaf(mut self, owned: bool) -> Self {
        if self.requires_grad() {
            return self;
        }
        if owned {
            self.cx().leaf_made.set(true);
        }
        let variable = owned.then(|| self.detach());
        let node = Node::accumulate(self.geometry().clone(), self.dtype(), variable);
        self.set_edge(&node, 0);
        self
    }
}
