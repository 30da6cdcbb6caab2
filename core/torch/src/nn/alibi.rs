//! Attention's linear biases.

use crate::Op;
use crate::ops;
use crate::tensor::{DType, Tensor};

/// BLOOM's `build_alibi_tensor(attention_mask [batch, seq], heads, dtype)`: `[batch * heads, 1, seq]`.
pub fn alibi(mask: &Tensor, heads: u64, dtype: DType) -> Tensor {
    let slopes = Slopes::new(mask, heads);
    let positions = positions(mask);
    let alibi = product(mask, heads, DType::Float32);
    let out = ops::to(&alibi, dtype);
    drop((positions, slopes));
    out
}

/// Falcon's, whose biases are rounded to bfloat16 first.
pub fn rounded_alibi(mask: &Tensor, heads: u64, dtype: DType) -> Tensor {
    let slopes = Slopes::new(mask, heads);
    let positions = positions(mask);
    let alibi = {
        let _rounded = ops::fresh(mask.cx(), Op::ToCopy, &[heads, 1], DType::BFloat16);
        product(mask, heads, DType::BFloat16)
    };
    let out = ops::to(&alibi, dtype);
    drop((positions, slopes));
    out
}

/// A slope for every head, and what making them leaves behind until the function returns.
struct Slopes {
    _made: Vec<Tensor>,
}

impl Slopes {
    fn new(mask: &Tensor, heads: u64) -> Self {
        let cx = mask.cx();
        // The largest power of two among the heads has slopes of its own; the rest lie between them.
        let power = if heads.is_power_of_two() { heads } else { heads.next_power_of_two() / 2 };
        let base = ops::fresh(cx, Op::Full, &[], DType::Float32);
        let powers = ops::fresh(cx, Op::Arange, &[power], DType::Int32);
        let mut slopes = ops::fresh(cx, Op::PowTensorTensor, &[power], DType::Float32);
        if power == heads {
            return Self { _made: vec![base, powers, slopes] };
        }
        let extra_base = ops::fresh(cx, Op::Full, &[], DType::Float32);
        let extra_powers = ops::fresh(cx, Op::Arange, &[heads - power], DType::Int32);
        let between = ops::fresh(cx, Op::PowTensorTensor, &[heads - power], DType::Float32);
        slopes = ops::fresh(slopes.cx(), Op::Cat, &[heads], DType::Float32);
        drop(between);
        Self { _made: vec![base, powers, slopes, extra_base, extra_powers] }
    }
}

/// `(attention_mask.cumsum(dim=-1) - 1) * attention_mask`.
fn positions(mask: &Tensor) -> Tensor {
    let (cx, dtype) = (mask.cx(), mask.dtype());
    // A sum of whole numbers is int64; the masks are.
    let sum = ops::fresh(cx, Op::Cumsum, mask.dims(), dtype);
    let less = ops::fresh(cx, Op::SubTensor, mask.dims(), dtype);
    drop(sum);
    let product = ops::fresh(cx, Op::MulTensor, mask.dims(), dtype);
    drop(less);
    product
}

/// `slopes[..., None] * positions`, as `[batch * heads, 1, seq]`.
fn product(mask: &Tensor, heads: u64, dtype: DType) -> Tensor {
    ops::fresh(mask.cx(), Op::MulTensor, &[mask.size(0) * heads, 1, mask.size(1)], dtype)
}
