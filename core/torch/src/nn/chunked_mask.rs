//! What a chunked mask adds to a causal one (`chunked_overlay` of transformers' `masking_utils.py`, which Llama 4 looks through).

use std::rc::Rc;

use crate::ops::{self, Fill, Pointwise, Rearrangement, Reduction};
use crate::tensor::{Context, DType, Tensor};

/// How many tokens each sample is padded by on the left: its chunks begin behind them.
pub(super) fn left_padding(cx: &Rc<Context>, batch: u64, padding: Option<&Tensor>) -> Tensor {
    let Some(mask) = padding else { return ops::fill(cx, Fill::Zeros, &[batch], DType::Int64) };
    let sum = ops::reduction(Reduction::Cumsum, mask, mask.dims(), DType::Int64);
    let none = {
        let zeros = ops::fill(cx, Fill::ZerosLike, mask.dims(), DType::Bool);
        ops::pointwise(Pointwise::EqTensor, &sum, &[&zeros], mask.dims(), DType::Bool)
    };
    drop(sum);
    ops::reduction(Reduction::Sum, &none, &[batch], DType::Int64)
}

/// `(kv_idx - left_padding[batch_idx]) // size == (q_idx - left_padding[batch_idx]) // size`.
pub(super) fn same_chunk(queries: &Tensor, keys: &Tensor, left_padding: &Tensor) -> Tensor {
    let (cx, batch) = (queries.cx(), left_padding.size(0));
    let chunk = |indices: &Tensor, sizes: [u64; 4]| {
        let behind = {
            let left = ops::rearrangement(cx, Rearrangement::IndexTensor, &[batch, 1, 1, 1], DType::Int64);
            ops::pointwise(Pointwise::SubTensor, indices, &[&left], &sizes, DType::Int64)
        };
        ops::pointwise(Pointwise::FloorDivide, &behind, &[], &sizes, DType::Int64)
    };
    let of_keys = chunk(keys, [batch, 1, 1, keys.size(0)]);
    let of_queries = chunk(queries, [batch, 1, queries.size(0), 1]);
    let square = [batch, 1, queries.size(0), keys.size(0)];
    ops::pointwise(Pointwise::EqTensor, &of_keys, &[&of_queries], &square, DType::Bool)
}
