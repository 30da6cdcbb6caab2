//! Layers in checkpoints of their own: what is an input of theirs, and what an output.

use std::rc::Rc;

use plimsoll_catalog::software::rules;
use plimsoll_torch::tensor::{Context, Tensor, checkpoint, checkpoint_all};

/// A layer's checkpoint on `inputs`, of which its mask and positions are inputs before [`rules::LAYERS_CHECKPOINT_THEMSELVES`]: `run` is handed what
/// comes back of them.
pub fn checkpoint_layer(
    cx: &Rc<Context>,
    mut inputs: Vec<Tensor>,
    (mask, positions): (Option<Tensor>, Option<Tensor>),
    run: impl Fn(&[Tensor], Option<Tensor>, Option<Tensor>) -> Tensor + 'static,
) -> Tensor {
    if cx.machine().rules.has(&rules::LAYERS_CHECKPOINT_THEMSELVES) {
        let run = move |inputs: &[Tensor]| run(inputs, mask.clone(), positions.clone());
        return checkpoint(cx, inputs, Rc::new(run));
    }
    let (own, masked) = (inputs.len(), mask.is_some());
    // `position_ids` and, of the same memory, `cache_position`.
    let both = positions.into_iter().flat_map(|positions| [positions.clone(), positions]);
    inputs.extend(mask.into_iter().chain(both));
    let run = move |inputs: &[Tensor]| {
        let (inputs, given) = inputs.split_at(own);
        let mask = given.first().filter(|_| masked).cloned();
        run(inputs, mask, given.get(usize::from(masked)).cloned())
    };
    checkpoint(cx, inputs, Rc::new(run))
}

/// A checkpointed block's two outputs, of which the second, probabilities, is not made by every release.
pub fn checkpointed(
    cx: &Rc<Context>,
    hidden: Tensor,
    block: impl Fn(&Tensor) -> (Tensor, Option<Tensor>) + 'static,
) -> (Tensor, Option<Tensor>) {
    let run = move |inputs: &[Tensor]| {
        let (next, weights) = block(&inputs[0]);
        std::iter::once(next).chain(weights).collect()
    };
    let mut outputs = checkpoint_all(cx, vec![hidden], Rc::new(run)).into_iter();
    match outputs.next() {
        Some(next) => (next, outputs.next()),
        None => unreachable!("the function above returns its output first"),
    }
}
