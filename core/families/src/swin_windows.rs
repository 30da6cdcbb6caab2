//! Images cut into windows and put together again, and the mask of shifted ones, as transformers' Swin has it.

use std::rc::Rc;

use plimsoll_catalog::software::rules;
use plimsoll_torch::ops::{self, Fill, Pointwise};
use plimsoll_torch::tensor::{Context, DType, Tensor};

/// `window_partition` of `[batch, side, side, width]`, and its view: `[batch * windows, window * window, width]`.
pub fn window_partition(x: &Tensor, window: u64) -> Tensor {
    let (batch, side, width) = (x.size(0), x.size(1), x.size(3));
    let along = side / window;
    let cut = ops::view(x, &[batch, along, window, along, window, width]);
    let windows = ops::contiguous(&ops::transpose(&cut, 2, 3));
    ops::view(&windows, &[batch * along * along, window * window, width])
}

/// `window_reverse`: `[batch, side, side, width]` again.
pub fn window_reverse(windows: &Tensor, window: u64, side: u64) -> Tensor {
    let (along, width) = (side / window, windows.size(2));
    let batch = windows.size(0) / (along * along).max(1);
    let cut = ops::view(windows, &[batch, along, along, window, window, width]);
    let image = ops::contiguous(&ops::transpose(&cut, 2, 3));
    ops::view(&image, &[batch, side, side, width])
}

/// `get_attn_mask`: `[windows, area, area]`, zero where two patches were neighbours before the shift.
pub fn shift_mask(cx: &Rc<Context>, side: u64, window: u64, dtype: DType) -> Tensor {
    let image = if cx.machine().rules.has(&rules::SWIN_SHARES_ATTENTION) {
        regions(cx, side, dtype)
    } else {
        // Written into, slice by slice.
        let zeros = ops::fill(cx, Fill::Zeros, &[1, side, side, 1], dtype);
        (zeros, Vec::new())
    };
    let windows = window_partition(&image.0, window);
    let (count, area) = (windows.size(0), windows.size(1));
    let flat = ops::view(&windows, &[count, area]);
    let difference = ops::sub(&ops::unsqueeze(&flat, 1), &ops::unsqueeze(&flat, 2));
    let fill = |x: &Tensor, op| {
        let bits = ops::each(op, x, DType::Bool);
        let filled = ops::each(Pointwise::MaskedFillScalar, x, dtype);
        drop(bits);
        filled
    };
    let filled = fill(&difference, Pointwise::NeScalar);
    let mask = fill(&filled, Pointwise::EqScalar);
    drop((filled, difference, windows, image));
    mask
}

/// A number for each region of an image whose patches stay neighbours, `[1, side, side, 1]`, and what its making has names for.
fn regions(cx: &Rc<Context>, side: u64, dtype: DType) -> (Tensor, Vec<Tensor>) {
    let idx = [ops::arange(cx, side), ops::arange(cx, side)];
    // (idx >= side - window).long() + (idx >= side - shift).long()
    let region = || {
        let beyond = || {
            let bits = ops::pointwise(Pointwise::GeScalar, &idx[0], &[], &[side], DType::Bool);
            let numbers = ops::pointwise(Pointwise::ToCopy, &bits, &[], &[side], DType::Int64);
            drop(bits);
            numbers
        };
        let (first, second) = (beyond(), beyond());
        let region = ops::pointwise(Pointwise::AddTensor, &first, &[&second], &[side], DType::Int64);
        drop((first, second));
        region
    };
    let regions = [region(), region()];
    let image = {
        let sum = {
            let rows = ops::pointwise(Pointwise::MulTensor, &regions[0], &[], &[1, side, 1, 1], DType::Int64);
            let sum = ops::pointwise(Pointwise::AddTensor, &rows, &[&regions[1]], &[1, side, side, 1], DType::Int64);
            drop(rows);
            sum
        };
        ops::to(&sum, dtype)
    };
    let named = regions.into_iter().chain(idx).collect();
    (image, named)
}

#[cfg(test)]
mod tests {
    use plimsoll_torch::ops::neg;
    use plimsoll_torch::tensor::DType;
    use plimsoll_torch::tensor::testing::{activation, forward, live, watch};

    use super::{shift_mask, window_partition, window_reverse};

    #[test]
    fn windows_are_copied_out_of_the_image_and_back() {
        let cx = forward();
        let x = neg(&activation(&cx, &[2, 8, 8, 3]));
        let (events, windows) = watch(&cx, || window_partition(&x, 4));
        assert_eq!(events, ["+clone [2, 2, 2, 4, 4, 3] float32"]);
        assert_eq!(windows.dims(), [8, 16, 3]);
        let (events, image) = watch(&cx, || window_reverse(&windows, 4, 8));
        assert_eq!(events, ["+clone [2, 2, 4, 2, 4, 3] float32"]);
        assert_eq!(image.dims(), x.dims());
    }

    #[test]
    fn of_the_masks_making_only_the_mask_stays() {
        let cx = forward();
        let before = live(&cx);
        let mask = shift_mask(&cx, 8, 4, DType::BFloat16);
        assert_eq!(mask.dims(), [4, 16, 16]);
        assert_eq!(live(&cx) - before, 2 * 4 * 16 * 16);
    }
}
