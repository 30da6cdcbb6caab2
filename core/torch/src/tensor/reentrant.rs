//! `torch.utils.checkpoint(use_reentrant=True)`: one node of the graph stands for the whole function. Its forward runs without a
//! graph; its backward runs it again, all of it, and then a backward of its own within the one that is running
//! (`CheckpointFunction` of `torch/utils/checkpoint.py`).

use std::rc::Rc;

use plimsoll_ledger::DType;

use super::autograd::{Attribute, Edge, Grads, Node, Tape};
use super::backward::nested;
use super::checkpoint::Function;
use super::context::Context;
use super::geometry::Geometry;
use super::saved::Saved;
use super::storage::Tensor;
use crate::{GradFn, Op};

impl Context {
    /// Whether checkpoints are reentrant.
    pub fn set_reentrant(&self, reentrant: bool) {
        self.reentrant.set(reentrant);
    }

    /// Whether what a checkpoint computes again has a backward of its own.
    pub fn is_reentrant(&self) -> bool {
        self.reentrant.get()
    }
}

/// Runs `function` on `inputs`. What it made takes a gradient where one of `inputs` does: of parameters alone it knows nothing.
pub(super) fn reentrant(cx: &Rc<Context>, inputs: &[Tensor], function: &Function) -> Vec<Tensor> {
    let taken: Vec<&Tensor> = inputs.iter().collect();
    let mut tape = Tape::new(cx, GradFn::CheckpointFunctionBackward, &taken);
    let saved: Vec<(Saved, bool)> = inputs.iter().map(|input| (tape.save(input), input.requires_grad())).collect();
    tape.hold(Attribute::Function(Rc::clone(function)));
    let mut outputs = cx.no_grad(|| function(inputs));
    let (again, autocast, module) = (Rc::clone(function), cx.autocast_dtype(), cx.current_module());
    let metas: Vec<_> = outputs.iter().map(|output| (Geometry::contiguous(output.dims()), output.dtype())).collect();
    tape.record(outputs.iter_mut(), move |g| {
        let cx = g.cx();
        // `materialize_grads`: of an output that nobody took a gradient of it is zero.
        let zeros = |(geometry, dtype): &(Geometry, DType)| g.make(Op::Zeros, &[], geometry.clone(), *dtype);
        let grads: Vec<Tensor> =
            metas.iter().enumerate().map(|(i, meta)| g.get(i).cloned().unwrap_or_else(|| zeros(meta))).collect();
        let detached: Vec<Tensor> = saved.iter().map(|(input, takes)| detached(input, *takes)).collect();
        let grad = cx.grad_enabled.replace(true);
        let outer = cx.current_module();
        cx.set_module(module);
        let outputs = cx.with_autocast(autocast, || again(&detached));
        cx.set_module(outer);
        cx.grad_enabled.set(grad);
        // `torch.autograd.backward(outputs_with_grad, args_with_grad)`.
        nested(cx, outputs.iter().zip(&grads).filter_map(|(output, grad)| Some((output.edge()?, grad.clone()))));
        detached.iter().map(gradient).collect::<Grads>()
    });
    outputs
}

/// `detach_variable`: the input apart from the graph that it came from, a leaf where it took a gradient.
fn detached(input: &Saved, takes: bool) -> Tensor {
    let alone = input.unpack().with_edge(None);
    if !takes {
        return alone;
    }
    // Of a view with gaps the gradient lies together (`obeys_layout_contract` of `functions/accumulate_grad.h`).
    let geometry = alone.geometry();
    let together = if geometry.is_dense() { geometry.clone() } else { Geometry::contiguous(geometry.dims()) };
    let leaf = Node::accumulate(together, alone.dtype(), Some(alone.detach()));
    alone.with_edge(Some(Edge { node: leaf, slot: 0 }))
}

/// `.grad` of a leaf, which has it as long as anything leads there: keys and values that a function left behind.
fn gradient(input: &Tensor) -> Option<Tensor> {
    input.edge().and_then(|edge| edge.node.leaf()).and_then(|leaf| leaf.grad.borrow().clone())
}
