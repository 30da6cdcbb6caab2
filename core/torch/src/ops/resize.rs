//! Making images larger or smaller.

use super::conv::{image, is_channels_last};
use crate::tensor::{Tape, Tensor, grads};
use crate::{GradFn, Op};

/// `F.interpolate(x, size=(side, side), mode="bicubic")`: keeps nothing, and hands on the memory order in both directions.
pub fn upsample_bicubic2d(x: &Tensor, side: u64) -> Tensor {
    let tape = Tape::new(x.cx(), GradFn::UpsampleBicubic2DBackward0, &[x]);
    let last = is_channels_last(x.geometry());
    let from = [x.size(0), x.size(1), x.size(2), x.size(3)];
    let mut out =
        x.cx().launch(Op::UpsampleBicubic2d, &[x]).make(image([from[0], from[1], side, side], last), x.dtype());
    tape.record([&mut out], move |g| {
        let last = is_channels_last(g.grad().geometry());
        grads([Some(g.make(Op::UpsampleBicubic2dBackward, &[g.grad()], image(from, last), g.grad().dtype()))])
    });
    out
}

#[cfg(test)]
mod tests {
    use super::upsample_bicubic2d;
    use crate::ops::neg;
    use crate::tensor::Kind;
    use crate::tensor::testing::{activation, alive, backward_of, forward};

    #[test]
    fn resizing_keeps_nothing_and_its_gradient_has_the_old_size() {
        let cx = forward();
        let out = upsample_bicubic2d(&neg(&activation(&cx, &[1, 3, 8, 8])), 5);
        assert_eq!(out.dims(), [1, 3, 5, 5]);
        assert!(alive(&cx, Kind::Saved).is_empty());
        let events = backward_of(out);
        assert!(events.contains(&"+upsample_bicubic2d_backward [1, 3, 8, 8] float32".to_owned()), "{events:?}");
    }
}
