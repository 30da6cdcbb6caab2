//! Micro-batches that are copied: a later one does what an earlier one did.

use std::collections::BTreeMap;
use std::ops::Range;

use plimsoll_torch::optim;
use plimsoll_torch::tensor::{DType, Geometry, Position, Repeat, Tensor};

use super::Loop;

/// Where in the stream an executed micro-batch stands, and what it left behind.
#[derive(Debug)]
pub(super) struct Recording {
    /// Whether gradients were there when its backward began: then it adds to them, else it makes them.
    pub(super) accumulates: bool,
    first_storage: u32,
    /// The model's forward; then what the loop does with the loss; then backward; then what goes with the names that it leaves.
    stretches: [Range<Position>; 4],
    /// The storage of the loss, and its dtype.
    loss: (u32, DType),
    /// The storage of every parameter's gradient that it made.
    gradients: Vec<Option<u32>>,
    /// Whether some of them are parts of one storage.
    shared: bool,
    /// What else is alive after it: leaves of the graph and their gradients.
    graph: Vec<u32>,
    /// What the model keeps.
    kept: Vec<u32>,
    /// What a wrapper holds beside gradients.
    held: Vec<(u32, Geometry, DType)>,
}

impl Loop<'_> {
    /// Keeps where the micro-batch that was just executed stands, its stretches and its loss.
    pub(super) fn record(
        &mut self,
        accumulates: bool,
        first_storage: u32,
        stretches: [Range<Position>; 4],
        loss: (u32, DType),
    ) {
        let gradients: Vec<Option<u32>> =
            self.parameters.iter().map(|p| optim::gradient_storage(p).filter(|id| *id >= first_storage)).collect();
        let held = self.spread.cut.as_ref().map_or_else(Vec::new, |cut| cut.held());
        let held: Vec<_> = held.iter().map(|held| (held.storage_id(), held.geometry().clone(), held.dtype())).collect();
        let mut known: Vec<u32> = gradients.iter().flatten().copied().chain([loss.0]).collect();
        known.extend(held.iter().map(|(id, ..)| *id));
        let kept: Vec<u32> = self.locals.kept.iter().map(Tensor::storage_id).collect();
        known.extend(&kept);
        known.sort_unstable();
        let shared = known.windows(2).any(|pair| matches!(pair, [a, b] if a == b));
        let mut graph = self.cx.alive_since(first_storage);
        graph.retain(|id| known.binary_search(id).is_err());
        // A leaf lets go of its gradient, which is younger, before it goes itself.
        graph.reverse();
        self.recordings.push(Recording {
            accumulates,
            first_storage,
            stretches,
            loss,
            gradients,
            shared,
            graph,
            kept,
            held,
        });
    }

    /// What [`Loop::execute`] would do, copied from what it did.
    pub(super) fn repeat(&mut self, index: usize, before_backward: impl Fn(&Self)) {
        let cx = self.cx;
        if let Some(cut) = &self.spread.cut {
            cut.prepare(cx);
        }
        let recording = &self.recordings[index];
        let mut repeat = Repeat::new(recording.first_storage);
        let [forward, settled, backward, left] = recording.stretches.clone();
        self.locals.kept.clear();
        repeat.events(cx, forward);
        self.locals.graph.clear();
        if self.trainer.is_none() {
            self.locals.loss = None;
        }
        repeat.events(cx, settled);
        before_backward(self);
        repeat.events(cx, backward);
        let recording = &self.recordings[index];
        let (loss, dtype) = recording.loss;
        self.locals.loss = repeat.tensor(cx, loss, Geometry::contiguous(&[]), dtype);
        repeat.events(cx, left);
        self.locals.kept = recording.kept.iter().filter_map(|id| repeat.whole(cx, *id)).collect();
        self.locals.graph = recording.graph.iter().filter_map(|id| repeat.whole(cx, *id)).collect();
        // Gradients that are parts of one buffer share it.
        let mut made: BTreeMap<u32, Tensor> = BTreeMap::new();
        for (parameter, gradient) in self.parameters.iter().zip(&recording.gradients) {
            if let Some(id) = gradient {
                let geometry = parameter.geometry().clone();
                let known = made.get(id).map(|known| known.view_as(geometry.clone()));
                let gradient = known.or_else(|| repeat.tensor(cx, *id, geometry, parameter.dtype()));
                if recording.shared {
                    made.extend(gradient.clone().map(|gradient| (*id, gradient)));
                }
                optim::set_gradient(parameter, gradient);
            }
        }
        // What came before it is held all along.
        let copy = |(id, geometry, dtype): &(u32, Geometry, DType)| repeat.tensor(cx, *id, geometry.clone(), *dtype);
        let held: Vec<Tensor> = recording.held.iter().filter_map(copy).collect();
        if let (Some(cut), false) = (&self.spread.cut, held.is_empty()) {
            cut.hold(held);
        }
    }
}
