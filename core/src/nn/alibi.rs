//! Attention's linear biases.

use crate::ops;
use crate::tensor::{DType, Tensor};

/// `build_alibi_tensor(attention_mask [batch, seq], heads, dtype)`: `[batch * heads, 1, seq]`.
pub fn alibi(mask: &Tensor, heads: u64, dtype: DType) -> Tensor {
    let cx = mask.cx();
    let (batch, seq) = (mask.size(0), mask.size(1));
    // The largest power of two among the heads has slopes of its own; the rest lie between them.
    let power = if heads.is_power_of_two() { heads } else { heads.next_power_of_two() / 2 };
    let _base = ops::fresh(cx, "full", &[], DType::Float32);
    let _powers = ops::fresh(cx, "arange", &[power], DType::Int32);
    let mut _slopes = ops::fresh(cx, "pow.Tensor_Tensor", &[power], DType::Float32);
    let mut _extra = None;
    if power != heads {
        let base = ops::fresh(cx, "full", &[], DType::Float32);
        let powers = ops::fresh(cx, "arange", &[heads - power], DType::Int32);
        let between = ops::fresh(cx, "pow.Tensor_Tensor", &[heads - power], DType::Float32);
        _slopes = ops::fresh(cx, "cat", &[heads], DType::Float32);
        drop(between);
        _extra = Some((base, powers));
    }
    let positions = {
        let sum = ops::fresh(cx, "cumsum", &[batch, seq], mask.dtype());
        let less = ops::fresh(cx, "sub.Tensor", &[batch, seq], mask.dtype());
        drop(sum);
        let product = ops::fresh(cx, "mul.Tensor", &[batch, seq], mask.dtype());
        drop(less);
        product
    };
    let alibi = ops::fresh(cx, "mul.Tensor", &[batch * heads, 1, seq], DType::Float32);
    let out = ops::to(&alibi, dtype);
    drop(positions);
    out
}
