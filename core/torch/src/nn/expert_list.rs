//! Mixtures of experts as transformers 4 ran them: a list of modules, one after the other, each on the tokens that chose it
//! (`MixtralSparseMoeBlock` and `DeepseekV3MoE.moe` in `models/{mixtral,deepseek_v3}/modeling_*.py` of 4.51.3 and 4.57.1).

use plimsoll_catalog::software::rules;

use super::experts::Routing;
use super::{GatedMlp, Linear, Scope};
use crate::ops::{self, Fill, Pointwise, Reduction};
use crate::tensor::{Context, DType, Tensor};

/// A list of experts.
#[derive(Debug)]
pub struct ExpertList {
    experts: Vec<GatedMlp>,
    visits: Visits,
}

/// Which experts a forward goes to, and how it finds their tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Visits {
    /// All of them (OLMoE; Mixtral and the Qwens before [`rules::EXPERTS_HIT`]).
    Every,
    /// Those that a token chose.
    Hit,
    /// Those that have a token, of which the weights are taken first, and float32 sums (DeepSeek V3, GLM-4.5).
    Guarded,
}

impl Visits {
    /// Those of Mixtral and the Qwens.
    pub fn of_blocks(cx: &Context) -> Self {
        if cx.machine().rules.has(&rules::EXPERTS_HIT) { Self::Hit } else { Self::Every }
    }
}

impl ExpertList {
    /// The list `experts` of `count`; `None` where `build` makes none.
    pub fn new(scope: &Scope, count: u64, visits: Visits, build: impl Fn(&Scope) -> Option<GatedMlp>) -> Option<Self> {
        let mut experts = Vec::new();
        for i in 0..count {
            if scope.cx().exhausted() && !experts.is_empty() {
                break;
            }
            experts.push(build(&scope.item("experts", i))?);
        }
        Some(Self { experts, visits })
    }

    /// From `[tokens, hidden]`, each token's experts `[tokens, k]` and their weights. Beside the sum, what the loop's names hold until the function
    /// it stands in returns.
    pub fn forward(&self, hidden: &Tensor, chosen: &Tensor, weights: &Tensor) -> (Tensor, LoopNames) {
        let cx = hidden.cx();
        let (tokens, top_k) = (chosen.size(0), chosen.size(1));
        let guarded = self.visits == Visits::Guarded;
        let mut sum = if guarded {
            ops::fill(cx, Fill::ZerosLike, hidden.dims(), weights.dtype())
        } else {
            ops::fill(cx, Fill::Zeros, hidden.dims(), hidden.dtype())
        };
        // `one_hot`, and its view with an expert's mask behind the other.
        let mask = ops::fill(cx, Fill::Zeros, &[tokens, top_k, self.experts.len() as u64], DType::Int64);
        let mask = ops::permute(&mask, if guarded { &[2, 0, 1] } else { &[2, 1, 0] });
        let (pairs, count) = (tokens.saturating_mul(top_k), self.experts.len() as u64);
        let hit = (self.visits == Visits::Hit).then(|| hit(&mask, count.min(pairs)));
        let mut named = LoopNames::default();
        for (i, expert) in (0..).zip(&self.experts) {
            let count = share(pairs, count, i);
            if count == 0 && hit.is_some() {
                break;
            }
            let found = {
                let own = if hit.is_some() { copied(&mask) } else { ops::select(&mask, 0) };
                ops::reduction(Reduction::Nonzero, &own, &[count, 2], DType::Int64)
            };
            // Of none there is nothing to hold.
            if count == 0 {
                continue;
            }
            // Its columns are what Python has names for; they keep all of it.
            let rows = ops::select(&found, 1);
            named.found = Some(found);
            if guarded {
                let share = ops::index(&ops::unsqueeze(weights, -1), &[&rows, &rows]);
                named.weights = Some(share.clone());
                let input = ops::index_rows(hidden, &rows);
                named.state = Some(input.clone());
                let output = expert.forward(&input);
                named.output = Some(output.clone());
                let weighted = ops::mul(&output, &share);
                named.weighted = Some(weighted.clone());
                sum = ops::index_add_in_place(sum, &rows, &weighted);
            } else {
                // `hidden_states[None, top_x]`, of a view, as which its gradient comes back.
                let state = ops::index_rows(&ops::view(hidden, hidden.dims()), &rows);
                named.state = Some(state.clone());
                let weighted = {
                    let output = expert.forward(&state);
                    let share = ops::index(&ops::unsqueeze(weights, -1), &[&rows, &rows]);
                    ops::mul(&output, &share)
                };
                named.weighted = Some(weighted.clone());
                sum = ops::index_add_in_place(sum, &rows, &ops::to(&weighted, hidden.dtype()));
            }
        }
        let sum = if guarded { ops::to(&sum, hidden.dtype()) } else { sum };
        named.masks = Some((mask, hit));
        (sum, named)
    }
}

/// How many of so many pairs of a token and a choice fall to expert `i` of `count`. Which tokens choose it only data know: they are
/// shared out evenly, one more to the first experts where that leaves a rest.
pub(super) fn share(pairs: u64, count: u64, i: u64) -> u64 {
    pairs.checked_div(count).map_or(0, |each| each + u64::from(i < pairs % count))
}

/// `one_hot(chosen)` among so many classes, as which experts are gone through: a class first.
pub(super) fn one_hot(chosen: &Tensor, classes: u64) -> Tensor {
    let mask = ops::fill(chosen.cx(), Fill::Zeros, &[chosen.size(0), chosen.size(1), classes], DType::Int64);
    ops::permute(&mask, &[2, 1, 0])
}

/// `torch.where(expert_mask[i])` of a mask whose classes come first: the places of so many tokens.
pub(super) fn places(mask: &Tensor, tokens: u64) -> Tensor {
    ops::reduction(Reduction::Nonzero, &ops::select(mask, 0), &[tokens, 2], DType::Int64)
}

/// `torch.greater(expert_mask.sum(dim=(-1, -2)), 0).nonzero()`, of a mask whose classes come first: so many of them have a token.
pub(super) fn hit(mask: &Tensor, with_token: u64) -> Tensor {
    let classes = mask.size(0);
    let some = {
        let sums = ops::reduction(Reduction::SumDimIntList, mask, &[classes], DType::Int64);
        ops::pointwise(Pointwise::GtScalar, &sums, &[], &[classes], DType::Bool)
    };
    ops::reduction(Reduction::Nonzero, &some, &[with_token, 1], DType::Int64)
}

/// `expert_mask[expert_idx].squeeze(0)` by a number on the card: a copy that lies in memory as the mask does.
fn copied(mask: &Tensor) -> Tensor {
    let lying = [mask.size(2), mask.size(1)];
    ops::transpose(&ops::pointwise(Pointwise::ToCopy, mask, &[], &lying, DType::Int64), 0, 1)
}

/// What the loop's variables hold from one expert to the next, and behind the last.
#[derive(Debug, Default)]
pub struct LoopNames {
    masks: Option<(Tensor, Option<Tensor>)>,
    found: Option<Tensor>,
    weights: Option<Tensor>,
    state: Option<Tensor>,
    output: Option<Tensor>,
    weighted: Option<Tensor>,
}

/// The router of a block in transformers 4: a linear, which is quantized and adapted as others are, and what follows it.
#[derive(Debug)]
pub struct LinearRouter {
    gate: Linear,
    top_k: u64,
    normalised: bool,
}

impl LinearRouter {
    /// Among `count` experts, `top_k` for each token, whose weights are made to add up to one where they are `normalised`.
    pub fn new(scope: &Scope, count: u64, hidden: u64, top_k: u64, normalised: bool) -> Self {
        Self { gate: Linear::new(&scope.child("gate"), hidden, count, false), top_k, normalised }
    }

    /// Of `[tokens, hidden]`.
    pub fn forward(&self, hidden: &Tensor) -> Routing {
        let logits = self.gate.forward(hidden);
        let (mut scores, indices) = {
            let probabilities = ops::softmax_fp32(&logits);
            ops::topk(&probabilities, self.top_k)
        };
        if self.normalised {
            let sum = ops::sum_last(&scores);
            scores = ops::div_in_place(scores, &sum);
        }
        scores = ops::to(&scores, hidden.dtype());
        Routing { logits, scores, indices }
    }
}

#[cfg(test)]
mod tests {
    use super::{ExpertList, Visits};
    use crate::nn::{GatedMlp, Scope};
    use crate::tensor::DType;
    use crate::tensor::testing::{activation, forward, input_of, made, watch};

    /// How many rows each expert's first product has.
    fn rows(visits: Visits, [tokens, chosen, count]: [u64; 3]) -> Vec<u64> {
        let cx = forward();
        let scope = Scope::root(&cx, DType::Float32, None, None, None);
        let list = ExpertList::new(&scope, count, visits, |scope| GatedMlp::new(scope, 8, 24, "silu", false)).unwrap();
        let (hidden, weights) = (activation(&cx, &[tokens, 8]), activation(&cx, &[tokens, chosen]));
        let indices = input_of(&cx, &[tokens, chosen], DType::Int64);
        let (events, (out, _)) = watch(&cx, || list.forward(&hidden, &indices, &weights));
        assert_eq!((out.dims(), out.dtype()), ([tokens, 8].as_slice(), DType::Float32));
        let product = |event: &String| event.strip_prefix("+mm [")?.strip_suffix(", 24] float32")?.parse().ok();
        // Two of them for each: gate and up.
        events.iter().filter_map(product).step_by(2).collect()
    }

    #[test]
    fn experts_share_tokens_evenly_and_the_first_take_the_rest() {
        assert_eq!(rows(Visits::Every, [9, 2, 4]), [5, 5, 4, 4]);
        assert_eq!(rows(Visits::Guarded, [8, 2, 4]), [4; 4]);
        assert_eq!(rows(Visits::Hit, [1, 2, 4]), [1, 1], "nobody else was chosen");
        assert_eq!(rows(Visits::Every, [1, 2, 4]), [1, 1], "products of nothing are nothing");
    }

    /// `expert_hit` is found first, and each mask is copied out by a number on the card.
    #[test]
    fn those_that_were_hit_are_looked_for_on_the_card() {
        let begun = |visits| {
            let cx = forward();
            let scope = Scope::root(&cx, DType::Float32, None, None, None);
            let list = ExpertList::new(&scope, 2, visits, |scope| GatedMlp::new(scope, 8, 24, "silu", false)).unwrap();
            let (hidden, weights) = (activation(&cx, &[4, 8]), activation(&cx, &[4, 1]));
            let indices = input_of(&cx, &[4, 1], DType::Int64);
            let (events, _) = watch(&cx, || list.forward(&hidden, &indices, &weights));
            made(&events).into_iter().take(7).map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(begun(Visits::Every), ["zeros", "zeros", "nonzero", "index.Tensor", "mm", "silu", "mm"]);
        let hit = ["zeros", "zeros", "sum.dim_IntList", "gt.Scalar", "nonzero", "_to_copy", "nonzero"];
        assert_eq!(begun(Visits::Hit), hit);
    }
}
