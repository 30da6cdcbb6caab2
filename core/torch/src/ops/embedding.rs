//! Table look-ups.

use super::inside;
use crate::tensor::{Tape, Tensor, grads};
use crate::{GradFn, Op};

const BACKWARD: Op = Op::EmbeddingDenseBackward;

/// `embedding(weight, indices)`: keeps the indices; backward makes a dense gradient of the whole table.
pub fn embedding(weight: &Tensor, indices: &Tensor) -> Tensor {
    let tape = Tape::new(weight.cx(), GradFn::EmbeddingBackward0, &[weight]);
    let saved = tape.save(indices);
    let mut sizes = indices.dims().to_vec();
    sizes.push(weight.size(-1));
    // `indices.reshape(-1)`, of more than one dimension (`embedding_symint`): what was expanded is copied.
    let several = indices.geometry().rank() > 1;
    let flatten = || inside::Scratch::contiguous(weight.cx(), Op::Embedding, indices.geometry(), indices.dtype());
    let flat = several.then(flatten).flatten();
    let mut launch = weight.cx().launch(Op::Embedding, &[indices]).of(weight.dtype());
    let mut out = launch.make_sizes(&sizes, weight.dtype());
    drop(flat);
    drop(launch.reads(out.touched()));
    let table = weight.geometry().clone();
    tape.record([&mut out], move |g| {
        let indices = saved.unpack();
        let (tokens, dtype) = (indices.numel(), g.grad().dtype());
        // `indices_.contiguous()`
        let flat = inside::Scratch::contiguous(g.cx(), BACKWARD, indices.geometry(), indices.dtype());
        let copy = inside::Scratch::contiguous(g.cx(), BACKWARD, g.grad().geometry(), dtype);
        let mut scratch = inside::sorted_indices(g.cx(), BACKWARD, tokens);
        let gradient = g.make(BACKWARD, &[g.grad(), &indices], table.clone(), dtype);
        if let Some(scratch) = &mut scratch {
            inside::after_sorting(scratch, &table, dtype, tokens);
        }
        drop((scratch, copy, flat));
        grads([Some(gradient)])
    });
    out
}

#[cfg(test)]
mod tests {
    use super::embedding;
    use crate::tensor::testing::{alive, backward_of, forward, frozen_of, gradient, input_of, live, weight, weight_of};
    use crate::tensor::{DType, Kind};

    /// `embedding_backward(grad, indices, ...)` keeps the indices, not the table; its gradient is a whole table.
    #[test]
    fn backward_makes_a_dense_gradient_of_the_table() {
        let cx = forward();
        let table = weight(&cx, &[100, 8]);
        let out = embedding(&table, &input_of(&cx, &[2, 3], DType::Int64));
        assert_eq!(out.dims(), [2, 3, 8]);
        // The table's, the indices' and the result's bytes; the indices only because the graph keeps them.
        assert_eq!(live(&cx), 3200 + 48 + 192);
        let events = backward_of(out);
        assert!(events.contains(&"+embedding_dense_backward [100, 8] float32".to_owned()), "{events:?}");
        assert_eq!(gradient(&table).unwrap().dims(), [100, 8]);
    }

    /// Autocast does not touch look-ups: their result has the table's dtype.
    #[test]
    fn the_result_has_the_tables_dtype() {
        let cx = forward();
        let indices = input_of(&cx, &[2, 3], DType::Int64);
        let out = cx.with_autocast(Some(DType::BFloat16), || embedding(&weight(&cx, &[10, 8]), &indices));
        assert_eq!(out.dtype(), DType::Float32);
        assert_eq!(embedding(&weight_of(&cx, &[10, 8], DType::Float16), &indices).dtype(), DType::Float16);
    }

    #[test]
    fn a_frozen_table_keeps_nothing() {
        let cx = forward();
        let out = embedding(&frozen_of(&cx, &[10, 8], DType::Float32), &input_of(&cx, &[2, 3], DType::Int64));
        assert!(!out.requires_grad());
        assert!(alive(&cx, Kind::Input).is_empty(), "the indices went");
    }
}
