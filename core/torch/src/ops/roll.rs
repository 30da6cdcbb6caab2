//! Rolling.

use crate::tensor::{Tape, Tensor, grads};
use crate::{GradFn, Op};

/// `torch.roll(x, shifts, dims)`: a copy; its backward rolls the gradient back, another one. Over several dimensions the
/// kernel rolls one after the other and lets go of what lies between; the reference rows see the result only.
pub fn roll(x: &Tensor) -> Tensor {
    let tape = Tape::new(x.cx(), GradFn::RollBackward0, &[x]);
    let mut out = x.cx().launch(Op::Roll, &[x]).make_like(x);
    tape.record([&mut out], |g| grads([Some(g.like(Op::Roll, g.grad(), &[]))]));
    out
}

#[cfg(test)]
mod tests {
    use super::roll;
    use crate::ops::neg;
    use crate::tensor::Kind;
    use crate::tensor::testing::{activation, alive, backward_of, forward, made};

    #[test]
    fn rolling_copies_there_and_back_and_keeps_nothing() {
        let cx = forward();
        let out = roll(&neg(&activation(&cx, &[2, 8, 8, 3])));
        assert!(alive(&cx, Kind::Saved).is_empty());
        assert_eq!(made(&backward_of(out)), ["ones_like", "roll", "neg"]);
    }
}
