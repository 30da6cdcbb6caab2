//! The output head and its cross-entropy in one, chunk by chunk: Liger's `LigerFusedLinearCrossEntropyFunction`
//! (liger-kernel 0.8, `ops/fused_linear_cross_entropy.py`). The gradients are computed in the forward and kept.

use super::cast::lower_precision;
use super::creation::fresh;
use crate::tensor::{Context, DType, Geometry, Kind, Tape, Tensor};
use crate::{GradFn, Op};

const NODE: GradFn = GradFn::LigerFusedLinearCrossEntropyFunctionBackward;

/// What the card and its libraries can do.
#[derive(Clone, Copy, Debug)]
pub struct FusedRules {
    /// `_can_use_mm_out`: an NVIDIA card.
    pub cuda: bool,
    /// `torch.addmm(out=)` sums a half-precision product into the weight's gradient: compute capability 8.0 and up.
    pub sums_in_product: bool,
}

/// The loss of `hidden [N, features]` under the head `weight [classes, features]` and `bias [classes]`, mean or sum
/// over the targets.
pub fn fused_linear_cross_entropy(
    rules: FusedRules,
    hidden: &Tensor,
    weight: &Tensor,
    bias: Option<&Tensor>,
) -> Tensor {
    let cx = hidden.cx();
    let mut inputs = vec![hidden, weight];
    inputs.extend(bias);
    let tape = Tape::new(cx, NODE, &inputs);
    let wanted = tape.needs(0);
    let (mut loss, gradients) = cx.no_grad(|| forward(rules, hidden, weight, bias, wanted && tape.needs(1)));
    let saved: Vec<_> = gradients.iter().map(|gradient| gradient.as_ref().map(|g| tape.save(g))).collect();
    drop(gradients);
    tape.record([&mut loss], move |g| {
        // torch.equal(grad_output, torch.tensor(1.0)): where it is not 1, the gradients are scaled in place.
        let one = g.empty(Op::Full, Geometry::contiguous(&[]), DType::Float32);
        let equal = g.empty(Op::EqTensor, Geometry::contiguous(&[]), DType::Bool);
        let all = g.empty(Op::All, Geometry::contiguous(&[]), DType::Bool);
        drop((equal, all, one));
        saved.iter().enumerate().map(|(i, s)| s.as_ref().filter(|_| g.needs(i)).map(|s| s.unpack())).collect()
    });
    loss
}

/// `fused_linear_cross_entropy_forward`: the loss, and the gradients of hidden states, weight and bias.
fn forward(
    rules: FusedRules,
    hidden: &Tensor,
    weight: &Tensor,
    bias: Option<&Tensor>,
    weight_wanted: bool,
) -> (Tensor, Vec<Option<Tensor>>) {
    let cx = hidden.cx();
    let (rows, features, classes) = (hidden.size(0), hidden.size(1), weight.size(0));
    // As many logits at a time as there are hidden states: chunks of a power of two.
    let chunk = rows.div_ceil(classes.div_ceil(features)).next_power_of_two().min(rows);
    let like = |op: Op, x: &Tensor| cx.empty(op, x.geometry().preserved(), x.dtype());

    let grad_hidden = like(Op::ZerosLike, hidden);
    let grad_weight = weight_wanted.then(|| like(Op::ZerosLike, weight));
    let grad_bias = bias.map(|b| like(Op::ZerosLike, b));
    let losses = fresh(cx, Op::Zeros, &[rows], DType::Float32);
    let mask = fresh(cx, Op::NeScalar, &[rows], DType::Bool);
    drop(fresh(cx, Op::Sum, &[], DType::Int64));

    let autocast = cx.autocast_dtype();
    let in_place =
        rules.cuda && hidden.dtype() == weight.dtype() && autocast.is_none_or(|dtype| dtype == hidden.dtype());
    let dtype = autocast.unwrap_or(hidden.dtype());
    let buffered = in_place && bias.is_none_or(|b| b.dtype() == hidden.dtype());
    let buffer = buffered.then(|| fresh(cx, Op::EmptyMemoryFormat, &[chunk, classes], hidden.dtype()));
    for rows in listed(rows, chunk) {
        let step = Step { cx, dtype, rows, features, classes };
        let logits = match &buffer {
            Some(buffer) => {
                cx.blas();
                buffer.clone()
            }
            None => step.logits(hidden, weight, bias),
        };
        if in_place && logits.dtype() == hidden.dtype() {
            cx.blas();
        } else {
            step.hidden_gradient(&logits, weight);
        }
        if let Some(gradient) = &grad_weight {
            let half = logits.dtype().is_half();
            let sums = rules.sums_in_product
                && half
                && matches!(gradient.dtype(), d if d == DType::Float32 || d == logits.dtype());
            step.weight_gradient(sums, &logits, hidden);
        }
        if bias.is_some() {
            drop(fresh(cx, Op::SumDimIntList, &[classes], logits.dtype()));
        }
    }
    drop(buffer);
    let loss = fresh(cx, Op::Sum, &[], DType::Float32);
    drop((mask, losses));
    (loss, vec![Some(grad_hidden), grad_weight, grad_bias])
}

/// How many rows each chunk has that is executed. All whole chunks allocate and free the same: of very many (a large
/// vocabulary over few features) only the first ones are executed, and the last one, which may be smaller.
fn listed(rows: u64, chunk: u64) -> impl Iterator<Item = u64> {
    const MOST: u64 = 1024;
    let (whole, rest) = (rows / chunk, rows % chunk);
    (0..whole.min(MOST)).map(move |_| chunk).chain((rest > 0).then_some(rest))
}

/// One chunk.
#[derive(Clone, Copy, Debug)]
struct Step<'a> {
    cx: &'a std::rc::Rc<Context>,
    /// What products are computed in.
    dtype: DType,
    rows: u64,
    features: u64,
    classes: u64,
}

impl Step<'_> {
    fn product(&self, sizes: [u64; 2]) -> Tensor {
        let out = fresh(self.cx, Op::Mm, &sizes, self.dtype);
        self.cx.blas();
        out
    }

    /// Autocast's copy of an operand that it does not remember: no leaf, or no weight.
    fn cast(&self, from: DType, sizes: [u64; 2], kind: Kind) -> Option<Tensor> {
        let make = || self.cx.counting_as(kind, || fresh(self.cx, Op::ToCopy, &sizes, self.dtype));
        (from != self.dtype).then(make)
    }

    /// `_input_chunk @ weight.t() + bias`.
    fn logits(&self, hidden: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Tensor {
        // The transposed weight is a view: autocast casts it anew for every chunk.
        let turned = self.cast(weight.dtype(), [self.features, self.classes], Kind::AutocastCopy);
        let chunk = self.cast(hidden.dtype(), [self.rows, self.features], Kind::Forward);
        let logits = self.product([self.rows, self.classes]);
        drop((chunk, turned));
        match bias {
            Some(bias) => fresh(self.cx, Op::AddTensor, logits.dims(), logits.dtype().promote(bias.dtype())),
            None => logits,
        }
    }

    /// `grad_logits_chunk @ weight`, copied into the whole.
    fn hidden_gradient(&self, logits: &Tensor, weight: &Tensor) {
        let weight = lower_precision(weight);
        let logits = self.cast(logits.dtype(), [self.rows, self.classes], Kind::Forward);
        let product = self.product([self.rows, self.features]);
        drop((logits, weight));
        drop(product);
    }

    /// `grad_logits_chunk.t() @ _input_chunk`: summed up inside the product, or a product of the weight's size and,
    /// where that is not float32, a float32 copy of it.
    fn weight_gradient(&self, sums: bool, logits: &Tensor, hidden: &Tensor) {
        if sums {
            let chunk = (hidden.dtype() != logits.dtype())
                .then(|| fresh(self.cx, Op::ToCopy, &[self.rows, self.features], logits.dtype()));
            self.cx.blas();
            drop(chunk);
            return;
        }
        let chunk = self.cast(hidden.dtype(), [self.rows, self.features], Kind::Forward);
        let turned = self.cast(logits.dtype(), [self.classes, self.rows], Kind::Forward);
        let product = self.product([self.classes, self.features]);
        drop((turned, chunk));
        let wide = product.dtype().is_half().then(|| fresh(self.cx, Op::ToCopy, product.dims(), DType::Float32));
        drop(product);
        drop(wide);
    }
}

#[cfg(test)]
mod tests {
    use super::{FusedRules, fused_linear_cross_entropy};
    use crate::ops::neg;
    use crate::tensor::testing::{
        activation, activation_of, alive, backward_of, forward, frozen_of, gradient, made, watch, weight, weight_of,
    };
    use crate::tensor::{DType, Kind};

    const AMPERE: FusedRules = FusedRules { cuda: true, sums_in_product: true };

    fn count(events: &[String], what: &str) -> usize {
        events.iter().filter(|e| *e == what).count()
    }

    /// 80 rows of 64 features under 1000 classes: as many logits as hidden states are five rows, made a power of two.
    #[test]
    fn no_more_logits_than_hidden_states_at_a_time() {
        let cx = forward();
        let (hidden, head) = (neg(&activation(&cx, &[80, 64])), weight(&cx, &[1000, 64]));
        let (events, loss) = watch(&cx, || fused_linear_cross_entropy(AMPERE, &hidden, &head, None));
        assert_eq!(count(&events, "+empty.memory_format [8, 1000] float32"), 1, "{events:?}");
        assert_eq!(count(&events, "+mm [1000, 64] float32"), 10, "in float32 each chunk makes a whole weight gradient");
        drop(hidden);
        assert_eq!(alive(&cx, Kind::Saved), ["zeros_like [80, 64] float32", "zeros_like [1000, 64] float32"]);
        let backward = backward_of(loss);
        assert_eq!(
            made(&backward),
            ["ones_like", "full", "eq.Tensor", "all", "neg"],
            "the gradients are there already"
        );
        assert_eq!(gradient(&head).map(|g| g.dims().to_vec()), Some(vec![1000, 64]));
    }

    /// Half weights are summed inside the product: nothing of the weight's size is made but its gradient.
    #[test]
    fn half_weights_need_no_temporary_of_their_size() {
        let cx = forward();
        let hidden = activation_of(&cx, &[80, 64], DType::BFloat16);
        let head = weight_of(&cx, &[1000, 64], DType::BFloat16);
        let (events, _loss) = watch(&cx, || fused_linear_cross_entropy(AMPERE, &hidden, &head, None));
        assert_eq!(events.iter().filter(|e| e.starts_with("+") && e.contains("[1000, 64]")).count(), 1);
        // Before Ampere each chunk makes one, and a float32 copy of it.
        let turing = FusedRules { sums_in_product: false, ..AMPERE };
        let (events, _loss) = watch(&cx, || fused_linear_cross_entropy(turing, &hidden, &head, None));
        assert_eq!(count(&events, "+mm [1000, 64] bfloat16"), 10);
        assert_eq!(count(&events, "+_to_copy [1000, 64] float32"), 10);
    }

    /// Under autocast the transposed weight, a view, is cast for every chunk; the weight itself once.
    #[test]
    fn autocast_casts_the_transposed_weight_for_every_chunk() {
        let cx = forward();
        let (hidden, head) = (activation(&cx, &[80, 64]), weight(&cx, &[1000, 64]));
        let run = || fused_linear_cross_entropy(AMPERE, &hidden, &head, None);
        let (events, _loss) = watch(&cx, || cx.with_autocast(Some(DType::BFloat16), run));
        assert_eq!(count(&events, "+_to_copy [64, 1000] bfloat16"), 10);
        assert_eq!(count(&events, "+_to_copy [1000, 64] bfloat16"), 1);
        assert_eq!(count(&events, "+mm [8, 1000] bfloat16"), 10);
    }

    #[test]
    fn the_last_chunk_has_what_is_left() {
        assert_eq!(super::listed(37, 8).collect::<Vec<_>>(), [8, 8, 8, 8, 5]);
        assert_eq!(super::listed(32, 8).collect::<Vec<_>>(), [8; 4]);
        assert_eq!(super::listed(u64::MAX, 2).count(), 1025, "very many are not all executed");
    }

    #[test]
    fn a_frozen_head_has_no_gradient() {
        let cx = forward();
        let hidden = neg(&activation(&cx, &[80, 64]));
        let head = frozen_of(&cx, &[1000, 64], DType::Float32);
        let (events, _loss) = watch(&cx, || fused_linear_cross_entropy(AMPERE, &hidden, &head, None));
        assert!(!events.iter().any(|e| e.contains("[1000, 64]")), "{events:?}");
    }
}
