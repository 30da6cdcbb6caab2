//! Attention's linear biases.

use std::rc::Rc;

use crate::ops::{self, Fill, Pointwise, Rearrangement, Reduction};
use crate::tensor::{Context, DType, Tensor};

/// BLOOM's `build_alibi_tensor(attention_mask [batch, seq], heads, dtype)`: `[batch * heads, 1, seq]`.
pub fn alibi(mask: &Tensor, heads: u64, dtype: DType) -> Tensor {
    let slopes = Slopes::new(mask.cx(), heads);
    let positions = positions(mask);
    let alibi = product(&positions, &slopes.slopes, heads, DType::Float32);
    let out = ops::to(&alibi, dtype);
    drop((positions, slopes));
    out
}

/// Of nothing that is hidden, since BLOOM makes no mask for it: `[batch * heads, 1, keys]`, and the slopes, which its forward has a name for.
pub fn alibi_of_all(cx: &Rc<Context>, [batch, keys]: [u64; 2], heads: u64, dtype: DType) -> (Tensor, Tensor) {
    let slopes = Slopes::new(cx, heads).slopes;
    let one = {
        let positions = ops::fill(cx, Fill::Arange, &[keys], DType::Int64);
        ops::pointwise(Pointwise::MulTensor, &slopes, &[&positions], &[heads, 1, keys], DType::Float32)
    };
    (ops::to(&ops::repeat_batch(&one, batch), dtype), slopes)
}

/// Falcon's, whose biases are rounded to bfloat16 first.
pub fn rounded_alibi(mask: &Tensor, heads: u64, dtype: DType) -> Tensor {
    let slopes = Slopes::new(mask.cx(), heads);
    let positions = positions(mask);
    let alibi = {
        let rounded = ops::pointwise(Pointwise::ToCopy, &slopes.slopes, &[], &[heads, 1], DType::BFloat16);
        product(&positions, &rounded, heads, DType::BFloat16)
    };
    let out = ops::to(&alibi, dtype);
    drop((positions, slopes));
    out
}

/// A slope for every head, and what making them leaves behind until the function returns.
struct Slopes {
    slopes: Tensor,
    _made: Vec<Tensor>,
}

impl Slopes {
    fn new(cx: &Rc<Context>, heads: u64) -> Self {
        // The largest power of two among the heads has slopes of its own; the rest lie between them.
        let power = if heads.is_power_of_two() { heads } else { heads.next_power_of_two() / 2 };
        let base = ops::fill(cx, Fill::Full, &[], DType::Float32);
        let powers = ops::fill(cx, Fill::Arange, &[power], DType::Int32);
        let mut slopes = ops::pointwise(Pointwise::PowTensorTensor, &base, &[&powers], &[power], DType::Float32);
        if power == heads {
            return Self { slopes: slopes.clone(), _made: vec![base, powers, slopes] };
        }
        let extra_base = ops::fill(cx, Fill::Full, &[], DType::Float32);
        let extra_powers = ops::fill(cx, Fill::Arange, &[heads - power], DType::Int32);
        let between =
            ops::pointwise(Pointwise::PowTensorTensor, &extra_base, &[&extra_powers], &[heads - power], DType::Float32);
        slopes = ops::rearrangement(slopes.cx(), Rearrangement::Cat, &[heads], DType::Float32);
        drop(between);
        Self { slopes: slopes.clone(), _made: vec![base, powers, slopes, extra_base, extra_powers] }
    }
}

/// `(attention_mask.cumsum(dim=-1) - 1) * attention_mask`.
fn positions(mask: &Tensor) -> Tensor {
    let dtype = mask.dtype();
    // A sum of whole numbers is int64; the masks are.
    let sum = ops::reduction(Reduction::Cumsum, mask, mask.dims(), dtype);
    let less = ops::each(Pointwise::SubTensor, &sum, dtype);
    drop(sum);
    let product = ops::pointwise(Pointwise::MulTensor, &less, &[mask], mask.dims(), dtype);
    drop(less);
    product
}

/// `slopes[..., None] * positions`, as `[batch * heads, 1, seq]`.
fn product(positions: &Tensor, slopes: &Tensor, heads: u64, dtype: DType) -> Tensor {
    let sizes = [positions.size(0) * heads, 1, positions.size(1)];
    ops::pointwise(Pointwise::MulTensor, slopes, &[positions], &sizes, dtype)
}
