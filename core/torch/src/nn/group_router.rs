//! DeepSeek's router, which GLM-4.5 has as well: experts in groups, the best groups first, then the best experts in them
//! (transformers `models/{deepseek_v2,deepseek_v3,glm4_moe}/modeling_*.py`, `...TopkRouter`).

use plimsoll_catalog::families::ExpertPart;
use plimsoll_catalog::software::rules;

use super::Scope;
use super::experts::Routing;
use super::parameter_adapter::{ParameterAdapter, Parametrized};
use crate::ops::{self, Fill, Pointwise};
use crate::tensor::{DType, ModuleId, Tensor};

/// How experts are chosen, and what they weigh.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// The largest of a softmax over all experts (DeepSeek V2's `topk_method = "greedy"`).
    Greedy,
    /// So, among those of the groups with the best expert (`group_limited_greedy`).
    BestGroups,
    /// By sigmoids, moved by a bias nobody trains, among those of the groups whose two best are best; they weigh what they
    /// had without the bias (DeepSeek V3, GLM-4.5).
    Biased {
        /// `norm_topk_prob`: the chosen ones' weights add up to one.
        normalised: bool,
    },
}

/// How many there are, of what.
#[derive(Clone, Copy, Debug)]
pub struct RouterSizes {
    /// Experts.
    pub experts: u64,
    /// `hidden_size`.
    pub hidden: u64,
    /// Experts a token goes to.
    pub top_k: u64,
    /// `n_group`.
    pub groups: u64,
    /// `topk_group`.
    pub top_groups: u64,
}

/// `DeepseekV3TopkRouter` and its relatives.
#[derive(Debug)]
pub struct GroupRouter {
    weight: Tensor,
    adapter: Option<ParameterAdapter>,
    /// `e_score_correction_bias`, which stays in float32 (`_keep_in_fp32_modules_strict`).
    bias: Option<Tensor>,
    sizes: RouterSizes,
    choice: Choice,
    module: ModuleId,
}

impl GroupRouter {
    /// A router of so many experts, choosing so.
    pub fn new(scope: &Scope, sizes: RouterSizes, choice: Choice) -> Self {
        let rank = scope.expert_adapter(ExpertPart::Router);
        let base = if rank.is_some() { scope.child("base_layer") } else { scope.clone() };
        let weight = {
            let stays = scope.cx().machine().rules.has(&rules::GROUP_ROUTERS_STAY_WIDE);
            let sizes = [sizes.experts, sizes.hidden];
            if stays { base.wide_parameter(&sizes) } else { base.parameter(&sizes) }
        };
        let bias = matches!(choice, Choice::Biased { .. }).then(|| base.buffer(&[sizes.experts]));
        let adapter = rank.map(|rank| ParameterAdapter::new(scope, rank, 1, [sizes.experts, sizes.hidden]));
        Self { weight, adapter, bias, sizes, choice, module: scope.module() }
    }

    /// Of `[batch, seq, hidden]`. The product is float32's, but where autocast has the last word.
    pub fn forward(&self, hidden: &Tensor) -> Routing {
        hidden.cx().within(self.module, || {
            let adapted = self.adapter.as_ref().map(|adapter| adapter.activate(&self.weight));
            let weight = || adapted.as_ref().map_or_else(|| self.weight.clone(), Parametrized::get);
            let flat = ops::view(hidden, &[hidden.numel() / self.sizes.hidden, self.sizes.hidden]);
            let logits = {
                let wide = ops::to(&flat, DType::Float32);
                ops::linear(&wide, &ops::to(&weight(), DType::Float32), None)
            };
            // What DeepSeek V2's forward has names for until it is done.
            let mut named = Vec::new();
            let (scores, indices) = match self.choice {
                Choice::Greedy => {
                    let scores = ops::softmax_fp32(&logits);
                    let chosen = ops::topk(&scores, self.sizes.top_k);
                    named.push(scores);
                    (ops::mul_scalar(&chosen.0), chosen.1)
                }
                Choice::BestGroups => {
                    let mut scores = ops::softmax_fp32(&logits);
                    let best = ops::max_last(&self.grouped(&scores));
                    let limited = self.limit(&best, &mut scores);
                    let chosen = ops::topk(&scores, self.sizes.top_k);
                    named.extend(limited);
                    named.push(scores);
                    (ops::mul_scalar(&chosen.0), chosen.1)
                }
                Choice::Biased { normalised } => self.biased(&ops::sigmoid(&logits), normalised),
            };
            drop(named);
            Routing { logits, scores, indices }
        })
    }

    /// The chosen weights, scaled, and whose they are. Everything else goes once they are scaled.
    fn biased(&self, scores: &Tensor, normalised: bool) -> (Tensor, Tensor) {
        let mut choice = match &self.bias {
            Some(bias) => ops::add(scores, bias),
            None => scores.clone(),
        };
        let best = {
            let (two, _) = ops::topk(&self.grouped(&choice), 2);
            ops::sum_last(&two)
        };
        let limited = self.limit(&best, &mut choice);
        let (_, indices) = ops::topk(&choice, self.sizes.top_k);
        let mut named = Some((choice, best, limited));
        if !scores.cx().machine().rules.has(&rules::ROUTER_HOLDS_CHOICE) {
            named = None;
        }
        let mut weights = ops::gather(scores, &indices);
        if normalised {
            let denominator = {
                let sum = ops::sum_last(&weights);
                ops::add_scalar(&sum)
            };
            weights = ops::div_in_place(weights, &denominator);
        }
        weights = ops::mul_scalar(&weights);
        drop(named);
        (weights, indices)
    }

    /// `[tokens, experts]` as `[tokens, groups, experts of a group]`.
    fn grouped(&self, scores: &Tensor) -> Tensor {
        let groups = self.sizes.groups;
        ops::view(scores, &[scores.size(0), groups, self.sizes.experts / groups])
    }

    /// Leaves of `scores` those of the groups where `best`, `[tokens, groups, 1]`, is largest. What is returned is what
    /// the forward's names hold until it is done.
    fn limit(&self, best: &Tensor, scores: &mut Tensor) -> [Tensor; 4] {
        let RouterSizes { experts, groups, top_groups, .. } = self.sizes;
        let tokens = scores.size(0);
        let best = ops::view(best, &[tokens, groups]);
        let (_, chosen) = ops::topk(&best, top_groups);
        let group_mask = ops::fill(best.cx(), Fill::ZerosLike, &[tokens, groups], best.dtype());
        let wide = ops::expand(&ops::unsqueeze(&group_mask, -1), &[tokens, groups, experts / groups]);
        let score_mask = ops::reshape(&wide, &[tokens, experts]);
        let hidden = {
            let kept = ops::each(Pointwise::ToCopy, &score_mask, DType::Bool);
            ops::each(Pointwise::BitwiseNot, &kept, DType::Bool)
        };
        *scores = ops::masked_fill(scores, &hidden);
        [best, chosen, group_mask, score_mask]
    }
}
