//! The output head and its cross-entropy in one, chunk by chunk: Liger's `LigerFusedLinearCrossEntropyFunction`
//! (liger-kernel 0.8, `ops/fused_linear_cross_entropy.py`). The gradients are computed in the forward and kept.

use super::cast::lower_precision;
use super::elementwise::binary;
use super::inside;
use super::plain::{Reduction, reduction};
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
        let one = g.make(Op::Full, &[], Geometry::contiguous(&[]), DType::Float32);
        let equal = g.make(Op::EqTensor, &[g.grad(), &one], Geometry::contiguous(&[]), DType::Bool);
        let all = g.make(Op::All, &[&equal], Geometry::contiguous(&[]), DType::Bool);
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
    let zeros_like = |x: &Tensor| cx.launch(Op::ZerosLike, &[]).make_like(x);

    let grad_hidden = zeros_like(hidden);
    let grad_weight = weight_wanted.then(|| zeros_like(weight));
    let grad_bias = bias.map(zeros_like);
    let losses = cx.launch(Op::Zeros, &[]).make_sizes(&[rows], DType::Float32);
    let targets = rows.saturating_mul(DType::Int64.size());
    let mask = cx.launch(Op::NeScalar, &[]).reads(targets).make_sizes(&[rows], DType::Bool);
    drop(reduction(Reduction::Sum, &mask, &[], DType::Int64));

    let autocast = cx.autocast_dtype();
    let in_place =
        rules.cuda && hidden.dtype() == weight.dtype() && autocast.is_none_or(|dtype| dtype == hidden.dtype());
    let dtype = autocast.unwrap_or(hidden.dtype());
    let buffered = in_place && bias.is_none_or(|b| b.dtype() == hidden.dtype());
    let buffer = buffered.then(|| cx.empty_sizes(Op::EmptyMemoryFormat, &[chunk, classes], hidden.dtype()));
    for (rows, times) in listed(rows, chunk) {
        let step = Step { cx, dtype, rows, features, classes, times };
        let chunk = hidden.view_as(hidden.geometry().narrowed(0, rows));
        let logits = match &buffer {
            Some(buffer) => {
                let logits = buffer.view_as(buffer.geometry().narrowed(0, rows));
                step.product_into(&[&chunk, weight], &logits);
                logits
            }
            None => step.logits(&chunk, weight, bias),
        };
        drop(cx.launch(Op::LigerCrossEntropy, &[&logits]).over(&logits).times(times));
        if in_place && logits.dtype() == hidden.dtype() {
            step.product_into(&[&logits, weight], &chunk);
        } else {
            step.hidden_gradient(&logits, weight);
        }
        if let Some(gradient) = &grad_weight {
            let half = logits.dtype().is_half();
            let sums = rules.sums_in_product
                && half
                && matches!(gradient.dtype(), d if d == DType::Float32 || d == logits.dtype());
            step.weight_gradient(sums, &logits, &chunk, gradient);
        }
        if bias.is_some() {
            let launch = cx.launch(Op::SumDimIntList, &[&logits]).times(times);
            let summed = { launch }.make_sizes(&[classes], logits.dtype());
            drop((inside::sum(cx, Op::SumDimIntList, logits.geometry(), |dim| dim == 0, logits.dtype()), summed));
        }
    }
    drop(buffer);
    let loss = reduction(Reduction::Sum, &losses, &[], DType::Float32);
    drop((mask, losses));
    (loss, vec![Some(grad_hidden), grad_weight, grad_bias])
}

/// How many rows each chunk has that is executed, and how many there are like it. All whole chunks allocate and free the same: of very many (a large
/// vocabulary over few features) only the first ones are executed, and the last one, which may be smaller.
pub(super) fn listed(rows: u64, chunk: u64) -> impl Iterator<Item = (u64, u64)> {
    const MOST: u64 = 1024;
    let (whole, rest) = (rows / chunk, rows % chunk);
    let left_out = whole.saturating_sub(MOST);
    let times = move |index: u64| if index == 0 { 1 + left_out } else { 1 };
    (0..whole.min(MOST)).map(move |index| (chunk, times(index))).chain((rest > 0).then_some((rest, 1)))
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
    /// How many chunks it stands for.
    times: u64,
}

impl Step<'_> {
    /// Operations of each of a chunk's products: of logits, and of both gradients.
    fn flops(&self) -> u64 {
        [self.rows, self.features, self.classes].iter().fold(2, |n: u64, &size| n.saturating_mul(size))
    }

    fn product(&self, operands: &[&Tensor], sizes: [u64; 2]) -> Tensor {
        let launch = self.cx.launch(Op::Mm, operands).of(self.dtype).flops(self.flops()).times(self.times);
        let out = { launch }.make_sizes(&sizes, self.dtype);
        self.cx.blas();
        out
    }

    /// `torch.mm(a, b, out=out)`.
    fn product_into(&self, operands: &[&Tensor], out: &Tensor) {
        drop(self.cx.launch(Op::MmOut, operands).flops(self.flops()).over(out).times(self.times));
        self.cx.blas();
    }

    /// A copy of `x`, transposed where `sizes` are.
    fn copy(&self, x: &Tensor, sizes: [u64; 2], dtype: DType) -> Tensor {
        let launch = self.cx.launch(Op::ToCopy, &[x]).times(self.times);
        { launch }.make_sizes(&sizes, dtype)
    }

    /// Autocast's copy of an operand that it does not remember: no leaf, or no weight.
    fn cast(&self, x: &Tensor, sizes: [u64; 2], kind: Kind) -> Option<Tensor> {
        let make = || self.cx.counting_as(kind, || self.copy(x, sizes, self.dtype));
        (x.dtype() != self.dtype).then(make)
    }

    /// `_input_chunk @ weight.t() + bias`.
    fn logits(&self, hidden: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Tensor {
        // The transposed weight is a view: autocast casts it anew for every chunk.
        let turned = self.cast(weight, [self.features, self.classes], Kind::AutocastCopy);
        let chunk = self.cast(hidden, [self.rows, self.features], Kind::Forward);
        let operands = [chunk.as_ref().unwrap_or(hidden), turned.as_ref().unwrap_or(weight)];
        let logits = self.product(&operands, [self.rows, self.classes]);
        drop((chunk, turned));
        match bias {
            Some(bias) => binary(Op::AddTensor, &logits, bias),
            None => logits,
        }
    }

    /// `grad_logits_chunk @ weight`, copied into the whole.
    fn hidden_gradient(&self, logits: &Tensor, weight: &Tensor) {
        let weight = lower_precision(weight);
        let cast = self.cast(logits, [self.rows, self.classes], Kind::Forward);
        let product = self.product(&[cast.as_ref().unwrap_or(logits), &weight], [self.rows, self.features]);
        drop((cast, weight));
        drop(self.cx.launch(Op::CopyInPlace, &[&product]).over(&product).times(self.times));
        drop(product);
    }

    /// `grad_logits_chunk.t() @ _input_chunk`: summed up inside the product, or a product of the weight's size and,
    /// where that is not float32, a float32 copy of it.
    fn weight_gradient(&self, sums: bool, logits: &Tensor, hidden: &Tensor, gradient: &Tensor) {
        if sums {
            let chunk = (hidden.dtype() != logits.dtype())
                .then(|| self.copy(hidden, [self.rows, self.features], logits.dtype()));
            self.product_into(&[logits, chunk.as_ref().unwrap_or(hidden), gradient], gradient);
            drop(chunk);
            return;
        }
        let chunk = self.cast(hidden, [self.rows, self.features], Kind::Forward);
        let turned = self.cast(logits, [self.classes, self.rows], Kind::Forward);
        let operands = [turned.as_ref().unwrap_or(logits), chunk.as_ref().unwrap_or(hidden)];
        let product = self.product(&operands, [self.classes, self.features]);
        drop((turned, chunk));
        let wide =
            product.dtype().is_half().then(|| self.copy(&product, [self.classes, self.features], DType::Float32));
        let added = wide.as_ref().unwrap_or(&product);
        drop(self.cx.launch(Op::AddInPlace, &[added, gradient]).over(gradient).times(self.times));
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
        assert_eq!(super::listed(37, 8).collect::<Vec<_>>(), [(8, 1), (8, 1), (8, 1), (8, 1), (5, 1)]);
        assert_eq!(super::listed(32, 8).collect::<Vec<_>>(), [(8, 1); 4]);
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
