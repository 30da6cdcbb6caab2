//! The output head and each token's log-probability in one, tile by tile: TRL's `ChunkedLogProbFunction`
//! (TRL 1.16, `kernels/chunked_logprob.py`, where Triton is). No gradient is computed in the forward: backward computes each tile again.

use std::rc::Rc;

use plimsoll_catalog::software::rules;
use plimsoll_ledger::{Law, Rows, Rule};

use super::fused_linear_loss::listed;
use super::inside;
use super::plain::{Fill, Pointwise, each, fill, pointwise};
use crate::tensor::{Context, DType, Geometry, Gradients, Grads, Kind, Saved, Tape, Tensor, grads};
use crate::{GradFn, Op};

/// `TOKEN_CHUNK_SIZE`.
const TOKENS: u64 = 4096;

/// `_CHUNKED_LOGPROB_CHUNK_SIZE` (`trainer/utils.py`): a tile is as wide where the vocabulary is smaller, too.
const VOCABULARY: u64 = 32_768;

/// What is computed of each token.
#[derive(Debug)]
pub struct LogProbs {
    /// The log-probability of its label, float32.
    pub log_probs: Tensor,
    /// The entropy over the vocabulary, float32, where it is asked for.
    pub entropy: Option<Tensor>,
    /// Whether its label is the likeliest, where it is asked for.
    pub is_top1: Option<Tensor>,
}

/// The products of a tile.
#[derive(Clone, Copy, Debug)]
struct Tiles<'a> {
    cx: &'a Rc<Context>,
    /// `compute_dtype`.
    dtype: DType,
    tokens: u64,
    features: u64,
    classes: u64,
}

/// A tile whose logits are there: its place in the buffer, the states they are a product of, and its width.
#[derive(Debug)]
struct Tile {
    logits: Tensor,
    states: Tensor,
    classes: u64,
    /// Of each of its products.
    flops: u64,
    /// How many tiles it stands for.
    times: u64,
}

impl Tiles<'_> {
    fn buffer(&self) -> Tensor {
        let buffer = self.cx.empty_sizes(Op::EmptyMemoryFormat, &[self.tokens.min(TOKENS), VOCABULARY], self.dtype);
        // More tokens are given in turn.
        let rows = Rows { rows: TOKENS, unit: VOCABULARY.saturating_mul(self.dtype.size()), tokens_per_part: 0 };
        self.cx.law(Law { storage: buffer.storage_id(), count: self.tokens, rule: Rule::Rows(rows) });
        buffer
    }

    /// `x.to(compute_dtype)`.
    fn cast(&self, x: Tensor, kind: Kind, times: u64) -> Tensor {
        if x.dtype() == self.dtype {
            return x;
        }
        let make = || self.cx.launch(Op::ToCopy, &[&x]).times(times).make_sizes(x.dims(), self.dtype);
        self.cx.counting_as(kind, make)
    }

    /// Every tile's logits in `buffer`, and then what `work` makes of them. In backward the part of the weight has a name, which the next
    /// one takes when it is there (`w_chunk`), as that of the states has everywhere. Answers what the last names hold, until the function
    /// returns.
    fn each(
        &self,
        (buffer, named): (&Tensor, bool),
        (hidden, weight, bias): (&Tensor, &Tensor, Option<&Tensor>),
        work: impl Fn(&Tile, Option<&Tensor>),
    ) -> [Option<Tensor>; 2] {
        let (mut states, mut name) = (None, None);
        for (tokens, times) in listed(self.tokens, TOKENS) {
            let part = hidden.view_as(hidden.geometry().narrowed(0, tokens));
            let states = &*states.insert(self.cast(part, Kind::Forward, times));
            for (classes, _) in listed(self.classes, VOCABULARY) {
                let part = weight.view_as(weight.geometry().narrowed(0, classes));
                let part = &*name.insert(self.cast(part, Kind::AutocastCopy, times));
                let logits = buffer.view_as(buffer.geometry().narrowed(0, tokens).narrowed(1, classes));
                let flops = [tokens, self.features, classes].iter().fold(2, |n: u64, &size| n.saturating_mul(size));
                let tile = Tile { logits, states: states.clone(), classes, flops, times };
                tile.product(self.cx, Op::MmOut, &[states, part], &tile.logits);
                if !named {
                    name = None;
                }
                if let Some(bias) = bias {
                    let part = bias.view_as(bias.geometry().narrowed(0, classes));
                    let part = self.cast(part, Kind::AutocastCopy, times);
                    drop(self.cx.launch(Op::AddInPlace, &[&part, &tile.logits]).over(&tile.logits).times(times));
                }
                work(&tile, name.as_ref());
            }
        }
        [states, name]
    }
}

impl Tile {
    fn product(&self, cx: &Rc<Context>, op: Op, operands: &[&Tensor], out: &Tensor) {
        drop(cx.launch(op, operands).flops(self.flops).over(out).times(self.times));
        cx.blas();
    }

    /// `_addmm_fp32`: `out += a @ b`, of half numbers in one where PyTorch does so, else of float32 copies.
    fn add_product(&self, cx: &Rc<Context>, [a, b]: [&Tensor; 2], out: &Tensor, wider: bool) {
        if a.dtype().is_half() && wider {
            return self.product(cx, Op::AddmmDtypeOut, &[a, b, out], out);
        }
        let float = |x: &Tensor| match x.dtype() {
            DType::Float32 => x.clone(),
            _ => cx.launch(Op::ToCopy, &[x]).times(self.times).make_sizes(x.dims(), DType::Float32),
        };
        let (a, b) = (float(a), float(b));
        self.product(cx, Op::AddmmInPlace, &[&a, &b, out], out);
    }
}

/// `ChunkedLogProbFunction.apply` of `hidden [tokens, features]` under the head `weight [classes, features]` and `bias [classes]`, of
/// `targets [tokens]`. `metrics` asks for the entropy and whether each target is the likeliest.
pub fn chunked_log_probs(
    hidden: &Tensor,
    weight: &Tensor,
    bias: Option<&Tensor>,
    targets: &Tensor,
    metrics: bool,
) -> LogProbs {
    let cx = hidden.cx();
    let inputs: Vec<&Tensor> = [hidden, weight].into_iter().chain(bias).collect();
    let tape = Tape::new(cx, GradFn::ChunkedLogProbFunctionBackward, &inputs);
    let dtype = cx.autocast_dtype().unwrap_or(hidden.dtype());
    let (mut out, log_z) = cx.no_grad(|| forward(cx, dtype, (hidden, weight, bias), targets, metrics));
    let saved = [tape.save(hidden), tape.save(weight)];
    let saved_bias = bias.map(|bias| tape.save(bias));
    let numbers = [tape.save(targets), tape.save(&log_z), tape.save(out.entropy.as_ref().unwrap_or(&log_z))];
    drop(log_z);
    tape.record(std::iter::once(&mut out.log_probs).chain(out.entropy.as_mut()), move |g| {
        let [hidden, weight] = [saved[0].unpack(), saved[1].unpack()];
        let bias = saved_bias.as_ref().map(Saved::unpack);
        let numbers: Vec<Tensor> = numbers.iter().map(Saved::unpack).collect();
        let gradients = backward(g, dtype, (&hidden, &weight, bias.as_ref()), &numbers);
        drop(numbers);
        gradients
    });
    out
}

/// The outputs, and `log_z`.
fn forward(
    cx: &Rc<Context>,
    dtype: DType,
    head: (&Tensor, &Tensor, Option<&Tensor>),
    targets: &Tensor,
    metrics: bool,
) -> (LogProbs, Tensor) {
    let (hidden, weight, _) = head;
    let tokens = hidden.size(0);
    let tiles = Tiles { cx, dtype, tokens, features: hidden.size(1), classes: weight.size(0) };
    let full = |op| fill(cx, op, &[tokens], DType::Float32);
    let running_max = full(Fill::Full);
    let sums = [(); 4].map(|()| full(Fill::Zeros));
    let [sum_exp, x_sum_exp, ..] = &sums;
    let (max_before_target, target_logit) = (full(Fill::Full), full(Fill::Zeros));
    let buffer = tiles.buffer();
    let _names = tiles.each((&buffer, false), head, |tile, _| {
        let running = [&running_max, &max_before_target, &target_logit];
        let read = running.into_iter().chain(&sums).chain([targets]).fold(0, |n: u64, x| n.saturating_add(x.touched()));
        let launch = cx.launch(Op::ChunkedLogProbForward, &[&tile.logits]).reads(read).times(tile.times);
        drop(launch.over(&running_max).over(sum_exp).over(x_sum_exp).over(&max_before_target));
    });
    let float = |op, x: &Tensor, others: &[&Tensor]| pointwise(op, x, others, &[tokens], DType::Float32);
    let log_z = {
        let log = each(Pointwise::Log, sum_exp, DType::Float32);
        float(Pointwise::AddTensor, &running_max, &[&log])
    };
    let log_probs = float(Pointwise::SubTensor, &target_logit, &[&log_z]);
    let entropy = metrics.then(|| {
        let mean = float(Pointwise::DivTensor, x_sum_exp, &[sum_exp]);
        float(Pointwise::SubTensor, &log_z, &[&mean])
    });
    let is_top1 = metrics.then(|| {
        let flag = |op, x: &Tensor, other: &Tensor| pointwise(op, x, &[other], &[tokens], DType::Bool);
        let likeliest = flag(Pointwise::GeTensor, &target_logit, &running_max);
        let first = flag(Pointwise::GtTensor, &target_logit, &max_before_target);
        flag(Pointwise::BitwiseAndTensor, &likeliest, &first)
    });
    (LogProbs { log_probs, entropy, is_top1 }, log_z)
}

/// The gradients of hidden states, weight and bias: summed in float32, whatever they are.
fn backward(
    g: &Gradients<'_>,
    dtype: DType,
    (hidden, weight, bias): (&Tensor, &Tensor, Option<&Tensor>),
    numbers: &[Tensor],
) -> Grads {
    let cx = g.cx();
    let tiles = Tiles { cx, dtype, tokens: hidden.size(0), features: hidden.size(1), classes: weight.size(0) };
    let zeros = |x: &Tensor| g.make(Op::Zeros, &[], Geometry::contiguous(x.dims()), DType::Float32);
    let of_hidden = g.needs(0).then(|| zeros(hidden));
    let of_weight = g.needs(1).then(|| zeros(weight));
    let of_bias = bias.filter(|_| g.needs(2)).map(zeros);
    let buffer = tiles.buffer();
    let wider = cx.machine().rules.has(&rules::PRODUCTS_SUM_WIDER);
    let sum = |tile: &Tile, operands: [&Tensor; 2], out: &Tensor| tile.add_product(cx, operands, out, wider);
    let names = tiles.each((&buffer, true), (hidden, weight, bias), |tile, weight| {
        let read = numbers.iter().fold(0, |n: u64, x| n.saturating_add(x.touched()));
        let launch = cx.launch(Op::ChunkedLogProbBackward, &[&tile.logits, g.grad()]).reads(read).times(tile.times);
        drop(launch.over(&tile.logits));
        let part = |gradient: &Tensor, rows| gradient.view_as(gradient.geometry().narrowed(0, rows));
        if let (Some(gradient), Some(weight)) = (&of_hidden, weight) {
            let part = part(gradient, tile.states.size(0));
            sum(tile, [&tile.logits, weight], &part);
        }
        if let Some(gradient) = &of_weight {
            let part = part(gradient, tile.classes);
            sum(tile, [&tile.logits, &tile.states], &part);
        }
        if let Some(gradient) = &of_bias {
            let part = part(gradient, tile.classes);
            let launch = cx.launch(Op::SumDimIntList, &[&tile.logits]).times(tile.times);
            let summed = { launch }.make_sizes(part.dims(), DType::Float32);
            drop(inside::sum(cx, Op::SumDimIntList, tile.logits.geometry(), |dim| dim == 0, DType::Float32));
            drop(cx.launch(Op::AddInPlace, &[&summed, &part]).over(&part).times(tile.times));
        }
    });
    let cast = |gradient: Option<Tensor>, x: &Tensor| {
        gradient.map(|sum| {
            if sum.dtype() == x.dtype() {
                sum
            } else {
                g.make(Op::ToCopy, &[&sum], Geometry::contiguous(x.dims()), x.dtype())
            }
        })
    };
    // Its names hold the sums until it returns.
    let kept = (of_hidden.clone(), of_weight.clone(), of_bias.clone());
    let results = grads([cast(of_hidden, hidden), cast(of_weight, weight), bias.and_then(|bias| cast(of_bias, bias))]);
    drop((kept, buffer, names));
    results
}

#[cfg(test)]
mod tests {
    use plimsoll_catalog::software::{Rules, Software, Version};

    use super::chunked_log_probs;
    use crate::ops::neg;
    use crate::tensor::testing::{
        activation, activation_of, alive, backward_of, forward, frozen_of, input_of, watch, weight, weight_of,
    };
    use crate::tensor::{DType, Kind, Machine, Tensor};

    fn count(events: &[String], what: &str) -> usize {
        events.iter().filter(|e| *e == what).count()
    }

    fn targets(of: &Tensor) -> Tensor {
        input_of(of.cx(), &[of.size(0)], DType::Int64)
    }

    /// Of 80 tokens over 70,000 words, a tile is as wide as ever: three of them stand in one buffer, one after the other.
    #[test]
    fn one_tile_is_there_at_a_time_and_no_logits_are_kept() {
        let cx = forward();
        let (hidden, head) = (neg(&activation(&cx, &[80, 64])), weight(&cx, &[70_000, 64]));
        let targets = targets(&hidden);
        let (events, out) = watch(&cx, || chunked_log_probs(&hidden, &head, None, &targets, false));
        assert_eq!(count(&events, "+empty.memory_format [80, 32768] float32"), 1, "{events:?}");
        assert!(!events.iter().any(|e| e.contains("70000")), "{events:?}");
        drop((hidden, targets));
        // log_z stands in for the entropy that nobody asked for.
        assert_eq!(alive(&cx, Kind::Saved), ["neg [80, 64] float32", "add.Tensor [80] float32"]);
        let backward = backward_of(out.log_probs);
        assert_eq!(count(&backward, "+zeros [80, 64] float32"), 1);
        assert_eq!(count(&backward, "+zeros [70000, 64] float32"), 1);
        assert_eq!(count(&backward, "+empty.memory_format [80, 32768] float32"), 1, "each tile is computed again");
    }

    /// 5,000 tokens are two times one vocabulary: autocast's parts of the weight are made for both, in forward and in backward.
    #[test]
    fn autocast_casts_parts_and_sums_are_float32() {
        let cx = forward();
        let (hidden, head) = (neg(&activation(&cx, &[5000, 64])), weight(&cx, &[40_000, 64]));
        let targets = targets(&hidden);
        let run = || chunked_log_probs(&hidden, &head, None, &targets, true);
        let (events, out) = watch(&cx, || cx.with_autocast(Some(DType::BFloat16), run));
        let casts = |events: &[String], what: &str| count(events, &format!("+_to_copy [{what}] bfloat16"));
        assert_eq!((casts(&events, "32768, 64"), casts(&events, "7232, 64")), (2, 2), "{events:?}");
        assert_eq!((casts(&events, "4096, 64"), casts(&events, "904, 64")), (1, 1));
        assert_eq!(count(&events, "+empty.memory_format [4096, 32768] bfloat16"), 1);
        let events = backward_of(out.log_probs);
        assert_eq!((casts(&events, "32768, 64"), casts(&events, "7232, 64")), (2, 2), "{events:?}");
        assert_eq!(count(&events, "+zeros [40000, 64] float32"), 1);
    }

    /// Half weights' gradients are summed in float32 and cast; before PyTorch 2.8 what is multiplied is copied to float32 as well.
    #[test]
    fn half_products_are_summed_wider() {
        let run = |minor| {
            let software = Software { torch: Version::new(2, minor), ..Software::default() };
            let cx = forward();
            cx.set_machine(Machine { rules: Rules::of(&software), ..Machine::default() });
            let hidden = neg(&activation_of(&cx, &[80, 64], DType::BFloat16));
            let head = weight_of(&cx, &[1000, 64], DType::BFloat16);
            let targets = targets(&hidden);
            let out = chunked_log_probs(&hidden, &head, None, &targets, false);
            drop(hidden);
            backward_of(out.log_probs)
        };
        let now = run(11);
        assert_eq!(count(&now, "+_to_copy [1000, 64] bfloat16"), 1, "{now:?}");
        assert_eq!(count(&now, "+_to_copy [80, 1000] float32"), 0);
        let before = run(7);
        assert_eq!(count(&before, "+_to_copy [80, 1000] float32"), 2, "{before:?}");
        assert_eq!(count(&before, "+_to_copy [1000, 64] float32"), 1);
    }

    #[test]
    fn a_frozen_head_has_no_sum() {
        let cx = forward();
        let hidden = neg(&activation(&cx, &[80, 64]));
        let head = frozen_of(&cx, &[1000, 64], DType::Float32);
        let targets = targets(&hidden);
        let out = chunked_log_probs(&hidden, &head, None, &targets, false);
        drop((hidden, targets));
        let events = backward_of(out.log_probs);
        assert!(!events.iter().any(|e| e.contains("[1000, 64]")), "{events:?}");
    }
}
