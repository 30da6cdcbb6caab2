//! Table look-ups.

use crate::tensor::{Tape, Tensor, grads};

/// `embedding(weight, indices)`: keeps the indices; backward makes a dense gradient of the whole table.
pub fn embedding(weight: &Tensor, indices: &Tensor) -> Tensor {
    let tape = Tape::new(weight.cx(), "EmbeddingBackward0", &[weight]);
    let saved = tape.save(indices);
    let mut sizes = indices.dims().to_vec();
    sizes.push(weight.size(-1));
    let mut out = weight.cx().empty_sizes("embedding", &sizes, weight.dtype());
    let table = weight.geometry().clone();
    tape.record([&mut out], move |g| {
        let _indices = saved.unpack();
        grads([Some(g.empty("embedding_dense_backward", table.clone(), g.grad().dtype()))])
    });
    out
}
