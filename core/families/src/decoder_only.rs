//! What every decoder with a [`DecoderHead`] does alike around its stack.

use std::rc::Rc;

use plimsoll_torch::Batch;
use plimsoll_torch::generate::{Generate, Step};
use plimsoll_torch::tensor::{Context, Tensor};

use super::decoder_head::DecoderHead;
use super::{Model, Output, Plan};

/// What is around the stack of a model.
#[derive(Debug)]
pub struct Shell<'m> {
    /// Where it runs.
    pub cx: &'m Rc<Context>,
    /// `lm_head`, or what another task has in its place.
    pub head: &'m DecoderHead,
    /// Tokens of a sample.
    pub seq: u64,
    /// What the scenario asks for.
    pub plan: &'m Plan,
}

/// A stack of layers whose hidden states a [`DecoderHead`] reads.
pub trait DecoderOnly: std::fmt::Debug {
    /// What is around the stack.
    fn shell(&self) -> Shell<'_>;

    /// Along how many axes positions count that a generation hands it.
    fn position_axes(&self) -> u64 {
        1
    }

    /// Whether a generation of it hands tuples of keys and values around, and no cache.
    fn returns_tuples(&self) -> bool {
        false
    }

    /// What it keeps until its next forward, handed over.
    fn kept(&self) -> Vec<Tensor> {
        Vec::new()
    }

    /// The hidden states of the last layer, normed; `[batch, seq, hidden]`.
    fn hidden(&self, ids: &Tensor, mask: Option<&Tensor>, positions: Option<&Tensor>) -> Tensor;
}

/// A model of such a stack and its head.
#[derive(Debug)]
pub struct Headed<D>(pub D);

impl<D: DecoderOnly> Model for Headed<D> {
    fn batch(&self) -> Batch {
        let shell = self.0.shell();
        shell.head.batch(shell.cx, shell.plan, shell.seq)
    }

    fn forward(&self, batch: &Batch) -> Output {
        let (ids, mask, labels) = batch.parts();
        self.0.shell().head.output(self.0.hidden(ids, mask, None), ids, labels)
    }

    fn kept(&self) -> Vec<Tensor> {
        self.0.kept()
    }

    fn generate(&self) -> Option<&dyn Generate> {
        self.0.shell().head.generates().then_some(self)
    }
}

impl<D: DecoderOnly> Generate for Headed<D> {
    fn position_axes(&self) -> u64 {
        self.0.position_axes()
    }

    fn returns_tuples(&self) -> bool {
        self.0.returns_tuples()
    }

    fn logits(&self, step: Step<'_>) -> Tensor {
        self.0.shell().head.last_logits(self.0.hidden(step.ids, step.mask, step.positions))
    }
}
