//! Mixtures of experts: the block, and what configurations say of it.

use plimsoll_catalog::software::rules;
use plimsoll_ground::Result;
use plimsoll_torch::nn::{
    ExpertList, Experts, GatedMlp, Linear, LinearRouter, PickedExperts, Router, Scope, Scores, Visits,
};
use plimsoll_torch::ops;
use plimsoll_torch::tensor::{ModuleId, Tensor};

use super::config::Config;

/// `MixtralSparseMoeBlock` and its relatives.
#[derive(Debug)]
pub struct SparseMoeBlock {
    routed: Routed,
    /// The expert every token goes to, and its gate (Qwen2-MoE).
    shared: Option<(GatedMlp, Linear)>,
    module: ModuleId,
}

/// A router and what it chooses from.
#[derive(Debug)]
enum Routed {
    /// Two tensors for all experts.
    Stacked(Box<(Router, Experts)>),
    /// Modules, before [`rules::STACKED_EXPERTS`].
    Listed(LinearRouter, ExpertList),
    /// Both tensors, of which a copy is made for each expert (Qwen3-VL-MoE before [`rules::STACKED_EXPERTS`]).
    Picked(Box<PickedExperts>),
}

/// How a block's experts were written in transformers 4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listing {
    /// `MixtralBlockSparseTop2MLP`
    Mixtral,
    /// `OlmoeMLP`, all of which run.
    Olmoe,
    /// `Qwen2MoeMLP`
    Qwen,
    /// `Qwen3VLMoeTextExperts`: no modules, but stacked tensors.
    Picked,
}

/// What a block is made of.
#[derive(Clone, Copy, Debug)]
pub struct BlockSizes<'a> {
    /// `hidden_size`.
    pub hidden: u64,
    /// Features inside an expert.
    pub intermediate: u64,
    /// Features inside the shared expert, where there is one.
    pub shared: Option<u64>,
    /// How many experts.
    pub count: u64,
    /// How many of them a token goes to.
    pub top_k: u64,
    /// How the router makes weights.
    pub scores: Scores,
    /// Whether the experts are registered before the router (Qwen3-MoE).
    pub experts_first: bool,
    /// The activation.
    pub act: &'a str,
    /// What the experts were in transformers 4.
    pub listing: Listing,
    /// Whether DeepSpeed knows the block by its class, and gathers all that lies in it at once (`DEFAULT_LEAF_MODULE_CLASSES` of
    /// `deepspeed/runtime/zero/leaf_module_config.py`, 0.19.8: Mixtral's, Qwen2-MoE's and Qwen3-MoE's).
    pub leaf: bool,
}

impl SparseMoeBlock {
    /// `None` for an unknown activation.
    pub fn new(scope: &Scope, sizes: &BlockSizes<'_>) -> Option<Self> {
        let BlockSizes { hidden, act, .. } = *sizes;
        if sizes.leaf {
            scope.is_leaf();
        }
        let routed = if scope.cx().machine().rules.has(&rules::STACKED_EXPERTS) {
            Self::stacked(scope, sizes)?
        } else if sizes.listing == Listing::Picked {
            let experts = PickedExperts::new(scope, [sizes.count, sizes.top_k], [hidden, sizes.intermediate], act)?;
            Routed::Picked(Box::new(experts))
        } else {
            Self::listed(scope, sizes)?
        };
        let shared = match sizes.shared {
            Some(width) => {
                let expert = GatedMlp::new(&scope.child("shared_expert"), hidden, width, act, false)?;
                Some((expert, Linear::new(&scope.child("shared_expert_gate"), hidden, 1, false)))
            }
            None => None,
        };
        Some(Self { routed, shared, module: scope.module() })
    }

    fn stacked(scope: &Scope, sizes: &BlockSizes<'_>) -> Option<Routed> {
        let BlockSizes { hidden, intermediate, count, top_k, act, .. } = *sizes;
        let gate = || Router::new(&scope.child("gate"), count, hidden, top_k, sizes.scores);
        let experts = || Experts::new(&scope.child("experts"), count, hidden, intermediate, act);
        let both = if sizes.experts_first {
            let experts = experts()?;
            (gate(), experts)
        } else {
            (gate(), experts()?)
        };
        Some(Routed::Stacked(Box::new(both)))
    }

    fn listed(scope: &Scope, sizes: &BlockSizes<'_>) -> Option<Routed> {
        let BlockSizes { hidden, intermediate, count, top_k, act, .. } = *sizes;
        let normalised = matches!(sizes.scores, Scores::Float32 | Scores::Cast { normalised: true });
        let gate = LinearRouter::new(scope, count, hidden, top_k, normalised);
        let visits = if sizes.listing == Listing::Olmoe { Visits::Every } else { Visits::of_blocks(scope.cx()) };
        let experts = ExpertList::new(scope, count, visits, |expert| match sizes.listing {
            Listing::Mixtral => GatedMlp::block_sparse(expert, hidden, intermediate, act),
            _ => GatedMlp::new(expert, hidden, intermediate, act, false),
        })?;
        Some(Routed::Listed(gate, experts))
    }

    /// `forward`: what comes out, and the router's logits where the layer that calls it has a name for them.
    pub fn forward(&self, hidden: &Tensor) -> (Tensor, Option<Tensor>) {
        hidden.cx().within(self.module, || {
            let sizes = hidden.dims().to_vec();
            let flat = ops::view(hidden, &[sizes[0] * sizes[1], sizes[2]]);
            match &self.routed {
                Routed::Stacked(both) => {
                    let (gate, experts) = both.as_ref();
                    let shared = self.shared.as_ref().map(|(expert, gate)| (expert.forward(&flat), gate));
                    let routing = gate.forward(&flat);
                    let mut out = experts.forward(&flat, &routing.indices, &routing.scores);
                    if let Some((shared, gate)) = shared {
                        let shared = weigh(shared, gate, &flat);
                        out = if flat.cx().machine().rules.has(&rules::SHARED_EXPERT_ADDED_APART) {
                            ops::add(&out, &shared)
                        } else {
                            ops::add_in_place(out, &shared)
                        };
                        return (ops::reshape(&out, &sizes), None);
                    }
                    (ops::reshape(&out, &sizes), None)
                }
                Routed::Listed(gate, experts) => {
                    let routing = gate.forward(&flat);
                    let (mut out, names) = experts.forward(&flat, &routing.indices, &routing.scores);
                    if let Some((expert, gate)) = &self.shared {
                        let shared = weigh(expert.forward(&flat), gate, &flat);
                        out = ops::add(&out, &shared);
                    }
                    drop(names);
                    (ops::reshape(&out, &sizes), Some(routing.logits))
                }
                Routed::Picked(experts) => {
                    let [out, logits] = experts.forward(&flat);
                    (ops::view(&out, &sizes), Some(logits))
                }
            }
        })
    }
}

/// What the shared expert made, weighed by its gate.
fn weigh(shared: Tensor, gate: &Linear, flat: &Tensor) -> Tensor {
    let weight = {
        let logit = gate.forward(flat);
        ops::sigmoid(&logit)
    };
    let product = ops::mul(&weight, &shared);
    drop(shared);
    product
}

/// How many experts there are.
///
/// # Errors
/// No size, or more than any published model has.
pub fn experts(config: &Config<'_>, key: &str, default: u64) -> Result<u64> {
    const MOST: u64 = 4096;
    let count = config.size(key, default)?;
    if count > MOST {
        return Err(config.error(key, format!("{count} experts are too many"), format!("give at most {MOST}")));
    }
    Ok(count)
}

/// How many of `count` experts a token goes to.
///
/// # Errors
/// More than there are.
pub fn chosen(config: &Config<'_>, default: u64, count: u64) -> Result<u64> {
    let top_k = config.size("num_experts_per_tok", default)?;
    if top_k > count {
        return Err(config.error(
            "num_experts_per_tok",
            format!("{top_k} of {count} experts"),
            "choose no more experts than there are",
        ));
    }
    Ok(top_k)
}

/// What is not estimated yet.
///
/// # Errors
/// An auxiliary loss, or noise on the router's input.
pub fn refuse(config: &Config<'_>) -> Result<()> {
    if config.flag("output_router_logits", false)? {
        return Err(config.error("output_router_logits", "the auxiliary loss is not estimated yet", "set it to false"));
    }
    if config.number("router_jitter_noise").is_some_and(|noise| noise > 0.0) {
        return Err(config.error("router_jitter_noise", "is not estimated yet", "set it to 0"));
    }
    Ok(())
}
