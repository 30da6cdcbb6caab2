//! `torch.utils.checkpoint(use_reentrant=True)`: one node of the graph stands for the whole function. Its forward runs without a
//! graph; its backward runs it again, all of it, and then a backward of its own within the one that is running
//! (`CheckpointFunction` of `torch/utils/checkpoint.py`).
//!
//! And the same with the first input in the machine's memory (`CPU_Offloaded_Gradient_Checkpointer` of Axolotl 0.19,
//! `UnslothGradientCheckpointing` of LLaMA-Factory 0.9.5, both after Unsloth's of 2024): page-locked, for `.to("cpu",
//! non_blocking=True)` of what lies on a card is (`_to_copy` of `aten/src/ATen/native/TensorConversions.cpp`).

use std::rc::Rc;

use plimsoll_ground::{Error, Reason};
use plimsoll_ledger::DType;

use super::autograd::{Attribute, Edge, Grads, Node, Tape};
use super::backward::nested;
use super::checkpoint::Function;
use super::context::Context;
use super::geometry::Geometry;
use super::heard::Call;
use super::offloaded::{Offloaded, Offloading};
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
    let offloads = cx.offloads() == Offloading::Checkpoints;
    let (saved, args) = if offloads { sent(cx, &tape, inputs) } else { (kept(&tape, inputs), Vec::new()) };
    tape.hold(Attribute::Call(Rc::clone(function), args));
    let mut outputs = cx.no_grad(|| function(inputs));
    if offloads && outputs.len() > 1 {
        refuse(cx, "makes more than one tensor");
    }
    let (again, autocast, module) = (Rc::clone(function), cx.autocast_dtype(), cx.current_module());
    let metas: Vec<_> = outputs.iter().map(|output| (Geometry::contiguous(output.dims()), output.dtype())).collect();
    tape.record(outputs.iter_mut(), move |g| {
        let cx = g.cx();
        // `materialize_grads`: of an output that nobody took a gradient of it is zero.
        let zeros = |(geometry, dtype): &(Geometry, DType)| g.make(Op::Zeros, &[], geometry.clone(), *dtype);
        let grads: Vec<Tensor> =
            metas.iter().enumerate().map(|(i, meta)| g.get(i).cloned().unwrap_or_else(|| zeros(meta))).collect();
        let detached: Vec<Tensor> = saved.iter().map(|(input, takes)| detached(input, *takes)).collect();
        let run_again = || {
            let grad = cx.grad_enabled.replace(true);
            let outer = cx.current_module();
            cx.set_module(module);
            let outputs = again(&detached);
            cx.set_module(outer);
            cx.grad_enabled.set(grad);
            outputs
        };
        // `torch.autograd.backward(outputs_with_grad, args_with_grad)`.
        let backward = |outputs: Vec<Tensor>| {
            nested(cx, outputs.iter().zip(&grads).filter_map(|(output, grad)| Some((output.edge()?, grad.clone()))));
            cx.tell(Call::WentBackward(g.sequence()));
            outputs
        };
        let _outputs = if offloads {
            // `custom_bwd` of `torch/amp/autocast_mode.py`: its region goes on around that backward.
            cx.with_autocast(autocast, || backward(run_again()))
        } else {
            backward(cx.with_autocast(autocast, run_again))
        };
        detached.iter().map(gradient).collect::<Grads>()
    });
    outputs
}

/// `ctx.save_for_backward(*tensor_inputs)`. Each with whether it takes a gradient.
fn kept(tape: &Tape, inputs: &[Tensor]) -> Vec<(Saved, bool)> {
    inputs.iter().map(|input| (tape.save(input), input.requires_grad())).collect()
}

/// `hidden_states.to("cpu", non_blocking=True)` is saved, the others are `ctx.args`.
fn sent(cx: &Rc<Context>, tape: &Tape, inputs: &[Tensor]) -> (Vec<(Saved, bool)>, Vec<Tensor>) {
    let Some((hidden, others)) = inputs.split_first().filter(|_| (0..inputs.len()).any(|i| tape.needs(i))) else {
        return (kept(tape, inputs), Vec::new());
    };
    if others.iter().any(Tensor::requires_grad) {
        // The second such layer: "Trying to backward through the graph a second time".
        refuse(cx, "is given a second tensor that takes a gradient");
    }
    let there = Saved::Offloaded(Rc::new(Offloaded::pack(cx, hidden)));
    let args: Vec<Tensor> = others.iter().map(Tensor::detach).collect();
    let held = args.iter().map(|arg| (Saved::Held(arg.clone()), false));
    (std::iter::once((there, hidden.requires_grad())).chain(held).collect(), args)
}

fn refuse(cx: &Context, what: &str) {
    cx.refuse(|| {
        let problem = format!(
            "a layer of {} {what}, and a checkpoint that keeps its input in the machine's memory has one of each: PyTorch fails there",
            cx.path(cx.current_module())
        );
        let hint = "leave it out, or use save-on-cpu";
        Error::new("training.activation_offloading", problem, hint).because(Reason::OneOfEach)
    });
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
