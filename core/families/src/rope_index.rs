//! Positions as models of images counted them before their text did (transformers `models/{qwen2_5_vl,qwen3_vl}/modeling_*.py`,
//! read in 4.57.1).

use plimsoll_catalog::software::rules;
use plimsoll_torch::ops::{self, Fill, Pointwise, Reduction};
use plimsoll_torch::tensor::{Context, DType, Tensor};

use super::decoder::Decoder;

impl Decoder {
    /// Whether a model of images counts positions before its text does, which counts them all the same: always before
    /// [`rules::VL_COUNTS_FOR_IMAGES`], but for a generation, which hands them on.
    pub(crate) fn counts_before(&self, cx: &Context) -> bool {
        self.outer.is_some()
            && !cx.machine().rules.has(&rules::VL_COUNTS_FOR_IMAGES)
            && !(cx.is_inference() && cx.remembers())
    }

    /// `get_rope_index` of text alone: positions, as the tokens along all axes have them, and `rope_deltas`, which the model keeps.
    pub(crate) fn rope_index(&self, ids: &Tensor, mask: Option<&Tensor>) -> Tensor {
        let (cx, batch) = (&self.cx, ids.size(0));
        let (positions, deltas) = match mask {
            None => {
                let positions = ops::unsqueeze(&ops::arange(cx, ids.size(1)), 0);
                (positions, ops::fill(cx, Fill::Zeros, &[batch, 1], DType::Int64))
            }
            Some(mask) => {
                // mask.long().cumsum(-1) - 1, masked_fill_(mask == 0, 1)
                let positions = {
                    let sum = {
                        let long = ops::to(mask, DType::Int64);
                        ops::reduction(Reduction::Cumsum, &long, mask.dims(), DType::Int64)
                    };
                    ops::each(Pointwise::SubTensor, &sum, DType::Int64)
                };
                drop(ops::each(Pointwise::EqScalar, mask, DType::Bool));
                let last = |of: &Tensor, sizes: &[u64]| {
                    let values = ops::reduction(Reduction::Max, of, sizes, DType::Int64);
                    // The indices beside them.
                    drop(ops::empty(cx, sizes, DType::Int64));
                    values
                };
                let largest = last(&last(&positions, mask.dims()), &[batch, 1]);
                let next = ops::each(Pointwise::AddTensor, &largest, DType::Int64);
                drop(largest);
                (positions, ops::each(Pointwise::SubTensor, &next, DType::Int64))
            }
        };
        drop(self.rope_deltas.replace(Some(deltas)));
        positions
    }
}
