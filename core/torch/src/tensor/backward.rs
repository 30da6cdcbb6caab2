//! The backward pass, in the order of PyTorch's engine (`torch/csrc/autograd/engine.cpp`, `input_buffer.cpp`,
//! `functions/accumulate_grad.h`).

use std::rc::Rc;

use plimsoll_ledger::DType;
use plimsoll_ledger::Kind;
use smallvec::SmallVec;

use super::autograd::{Edge, Grads, Leaf, Meta, Node, Work};
use super::context::Context;
use super::geometry::{Geometry, MAX_RANK};
use super::heard::Call;
use super::storage::Tensor;
use crate::ops::inside;
use crate::{GradFn, Op};

/// What a node's formula works from.
#[derive(Debug)]
pub struct Gradients<'a> {
    cx: &'a Rc<Context>,
    node: &'a Node,
    incoming: &'a [Option<Tensor>],
}

impl Gradients<'_> {
    /// The run.
    pub fn cx(&self) -> &Rc<Context> {
        self.cx
    }

    /// The number of the node that runs.
    pub(super) fn sequence(&self) -> u32 {
        self.node.seq
    }

    /// The gradient of output 0, which a formula with one output always has.
    pub fn grad(&self) -> &Tensor {
        match self.incoming.iter().flatten().next() {
            Some(grad) => grad,
            None => unreachable!("a formula is only run when a gradient arrived"),
        }
    }

    /// The gradient of output `i`, if one arrived.
    pub fn get(&self, i: usize) -> Option<&Tensor> {
        self.incoming.get(i).and_then(Option::as_ref)
    }

    /// Whether a gradient for input `i` is wanted.
    pub fn needs(&self, i: usize) -> bool {
        self.node.next[i].is_some()
    }

    /// Runs a kernel that reads `operands` and makes one tensor.
    pub fn make(&self, op: Op, operands: &[&Tensor], geometry: Geometry, dtype: DType) -> Tensor {
        self.cx.launch(op, operands).make(geometry, dtype)
    }

    /// Runs a kernel that puts the gradients of all outputs together, and what stands in for those that never came.
    pub fn gathered(&self, op: Op, instead: &[Tensor], geometry: Geometry) -> Tensor {
        let parts: SmallVec<[&Tensor; 4]> = self.incoming.iter().flatten().chain(instead).collect();
        self.cx.launch(op, &parts).make(geometry, self.grad().dtype())
    }

    /// Runs a kernel that makes a tensor like `x`, which it reads beside `others`.
    pub fn like(&self, op: Op, x: &Tensor, others: &[&Tensor]) -> Tensor {
        self.cx.launch(op, others).reads(x.touched()).of(x.dtype()).make(x.geometry().preserved(), x.dtype())
    }
}

/// `loss.backward()` for a scalar loss; gradients land in the leaves.
pub fn backward(loss: &Tensor) {
    from(loss, false);
}

/// `output.backward(torch.ones_like(output), retain_graph=True)`: what nodes keep stays as long as the output.
pub fn backward_retaining(output: &Tensor) {
    from(output, true);
}

fn from(loss: &Tensor, retain: bool) {
    let cx = loss.cx();
    let Some(root) = loss.edge() else { return };
    cx.no_grad(|| {
        let outer = cx.current_module();
        // torch.autograd.backward holds the root gradient for the whole pass.
        let seed = cx.launch(Op::OnesLike, &[]).make_like(loss);
        run(cx, root, seed.clone(), retain);
        if !retain {
            cx.graph_is_gone();
        }
        cx.grad_fn.set(GradFn::None);
        cx.set_module(outer);
        drop(seed);
    });
}

fn run(cx: &Rc<Context>, root: &Edge, seed: Tensor, retain: bool) {
    walk(cx, [(root, seed)], retain);
    if cx.exhausted() {
        return;
    }
    cx.graph_has_run();
    if let Some(hooks) = cx.hooks() {
        cx.grad_fn.set(GradFn::None);
        hooks.finishes(cx);
    }
    cx.end_backward();
}

/// A backward within the one that runs, from these outputs with these gradients; the nodes of the other wait.
pub(super) fn nested<'a>(cx: &Rc<Context>, roots: impl IntoIterator<Item = (&'a Edge, Tensor)>) {
    let (name, module) = (cx.grad_fn.get(), cx.current_module());
    cx.within_node(|| cx.no_grad(|| walk(cx, roots, false)));
    cx.grad_fn.set(name);
    cx.set_module(module);
}

/// Runs all nodes that these lead to.
fn walk<'a>(cx: &Rc<Context>, roots: impl IntoIterator<Item = (&'a Edge, Tensor)>, retain: bool) {
    let (edges, seeds): (Vec<&Edge>, Vec<Tensor>) = roots.into_iter().unzip();
    let root = Node::root(edges.into_iter().cloned());
    count_dependencies(&root);
    let mut ready: Vec<Rc<Node>> = Vec::new();
    hand_on(&root, seeds.into_iter().map(Some), &mut ready);
    drop(root);
    while let Some(node) = pop_latest(&mut ready) {
        if cx.exhausted() {
            return;
        }
        cx.pass(node.seq);
        // Hooks are told of the nodes of units that were copied as these are written.
        if !matches!(node.work, Work::Repeated(_)) {
            cx.tell(Call::Reaches(node.seq));
            cx.grad_fn.set(node.name);
        }
        let incoming = std::mem::take(&mut *node.buffer.borrow_mut());
        cx.node_runs(&node);
        let formula = match &node.work {
            Work::Accumulate(leaf) => {
                accumulate(cx, leaf, &node.outputs[0], incoming.into_iter().flatten().next());
                cx.arrived(&node, leaf);
                leaf.tell(cx);
                continue;
            }
            Work::Formula(formula) => formula.take(),
            Work::Repeated(repetition) => {
                if let Some(repetition) = repetition.get() {
                    repetition.write(cx, incoming.first().and_then(Option::as_ref));
                }
                hand_on(&node, incoming, &mut ready);
                continue;
            }
        };
        cx.set_module(node.module);
        let results = match &formula {
            Some(formula) if incoming.iter().any(Option::is_some) => {
                let mut results = formula(&Gradients { cx, node: &node, incoming: &incoming });
                validate(cx, &node, &mut results);
                results
            }
            _ => SmallVec::from_iter(node.next.iter().map(|_| None)),
        };
        cx.node_has_run();
        // call_function() lets go of the incoming gradients, then release_variables() of what was saved.
        drop(incoming);
        if let (true, Work::Formula(kept)) = (retain, &node.work) {
            kept.replace(formula);
        } else {
            drop(formula);
        }
        hand_on(&node, results, &mut ready);
    }
}

/// Delivers a node's results, and adds the nodes that have all theirs now to those that are ready.
fn hand_on(node: &Node, results: impl IntoIterator<Item = Option<Tensor>>, ready: &mut Vec<Rc<Node>>) {
    for (edge, result) in node.next.iter().zip(results) {
        let Some(edge) = edge else { continue };
        deliver(&edge.node, edge.slot as usize, result);
        let left = edge.node.dependencies.get() - 1;
        edge.node.dependencies.set(left);
        if left == 0 {
            ready.push(Rc::clone(&edge.node));
        }
    }
}

/// The ready queue's order: the node created last runs first; leaves, which come before all others, in the order in which their
/// gradients came, a weight before its bias. It rarely holds more than a handful.
fn pop_latest(ready: &mut Vec<Rc<Node>>) -> Option<Rc<Node>> {
    let (index, _) = ready.iter().enumerate().rev().max_by_key(|(_, n)| n.seq)?;
    Some(ready.swap_remove(index))
}

fn count_dependencies(root: &Node) {
    let mut pending: Vec<&Node> = vec![root];
    while let Some(node) = pending.pop() {
        for edge in node.next.iter().flatten() {
            let seen = edge.node.dependencies.get();
            edge.node.dependencies.set(seen + 1);
            // The first edge that reaches a node explores it; every node's count is zero again once backward is over.
            if seen == 0 {
                pending.push(&edge.node);
            }
        }
    }
}

/// `validate_outputs`: a gradient is summed to the input's sizes and cast to its dtype.
fn validate(cx: &Rc<Context>, node: &Node, results: &mut Grads) {
    for (edge, result) in node.next.iter().zip(results.iter_mut()) {
        let Some(edge) = edge else {
            *result = None;
            continue;
        };
        let meta = &edge.node.outputs[edge.slot as usize];
        if let Some(grad) = result {
            if grad.dims() != meta.geometry.dims() {
                *grad = sum_to(cx, grad, meta.geometry.dims());
            }
            if grad.dtype() != meta.dtype {
                *grad = cx.launch(Op::ToCopy, &[grad]).make(grad.geometry().preserved(), meta.dtype);
            }
        }
    }
}

/// `at::sum_to`: sums the dimensions that were broadcast, keeping them, then drops the leading ones.
fn sum_to(cx: &Rc<Context>, grad: &Tensor, sizes: &[u64]) -> Tensor {
    let lead = grad.geometry().rank() - sizes.len();
    let mut kept = [1; MAX_RANK];
    for (i, slot) in kept.iter_mut().enumerate().take(grad.geometry().rank()).skip(lead) {
        *slot = sizes[i - lead];
    }
    let kept = &kept[..grad.geometry().rank()];
    let summed = cx.launch(Op::SumDimIntList, &[grad]).make_sizes(kept, cx.summed(grad.dtype()));
    drop(inside::sum_to(cx, Op::SumDimIntList, grad.geometry(), kept, grad.dtype()));
    if lead == 0 { summed } else { summed.view_as(Geometry::contiguous(sizes)) }
}

/// `InputBuffer::add`: the first gradient is moved in; a later one is added in place if nobody else can see the sum.
fn deliver(node: &Node, slot: usize, grad: Option<Tensor>) {
    let Some(grad) = grad else { return };
    let mut buffer = node.buffer.borrow_mut();
    if buffer.len() < node.outputs.len() {
        buffer.resize(node.outputs.len(), None);
    }
    let view = node.leaf().and_then(|leaf| leaf.view.get());
    match view {
        Some(stream) => grad.cx().clone().on_stream(stream, || add(&mut buffer[slot], grad)),
        None => add(&mut buffer[slot], grad),
    }
}

fn add(place: &mut Option<Tensor>, grad: Tensor) {
    match place {
        None => *place = Some(grad),
        Some(old) if old.can_accumulate_in_place() => old.cx().in_place(Op::AddInPlace, old, &[&grad]),
        Some(old) => {
            let geometry = Geometry::elementwise(&[old.geometry(), grad.geometry()]);
            let sum = old.cx().launch(Op::AddTensor, &[old, &grad]).make(geometry, old.dtype());
            *old = sum;
        }
    }
}

/// `AccumulateGrad`: steals the first gradient where it may, adds later ones in place. A stolen view keeps the whole of what
/// it is a part of: a class token's gradient, where there is one sample, that of the sequence it was put before.
fn accumulate(cx: &Rc<Context>, leaf: &Leaf, meta: &Meta, grad: Option<Tensor>) {
    let Some(grad) = grad else { return };
    let mut place = leaf.grad.borrow_mut();
    if leaf.view.get().is_some() {
        return add(&mut place, grad);
    }
    if place.is_none() {
        let stolen = if grad.is_only_handle() && grad.geometry().same_layout(&meta.geometry) {
            grad.detach()
        } else {
            cx.launch(Op::Clone, &[&grad]).make(meta.geometry.clone(), grad.dtype())
        };
        if leaf.variable.is_none() {
            stolen.mark(Kind::Gradient);
        }
        *place = Some(stolen);
    } else if let Some(known) = place.as_ref() {
        cx.in_place(Op::AddInPlace, known, &[&grad]);
    }
}
