//! DeepSeek's mixture, which GLM-4.5 has as well: chosen experts, and some that every token goes to
//! (transformers `DeepseekV3MoE`, `DeepseekV2Moe`, `Glm4MoeMoE`).

use plimsoll_catalog::software::rules;
use plimsoll_ground::Result;
use plimsoll_torch::nn::{Choice, ExpertList, Experts, GatedMlp, GroupRouter, RouterSizes, Scope, Visits};
use plimsoll_torch::ops;
use plimsoll_torch::tensor::{ModuleId, Tensor};

use super::config::{Config, divide};
use super::sparse;

/// The block.
#[derive(Debug)]
pub struct SharedMoe {
    experts: Chosen,
    gate: GroupRouter,
    shared_experts: GatedMlp,
    module: ModuleId,
}

/// The experts that a token chooses from.
#[derive(Debug)]
enum Chosen {
    /// Two tensors for all of them.
    Stacked(Box<Experts>),
    /// Modules, before [`rules::STACKED_EXPERTS`].
    Listed(ExpertList),
}

/// What a config class takes where a configuration does not say.
#[derive(Clone, Copy, Debug)]
pub struct MixtureDefaults {
    /// `moe_intermediate_size`.
    pub intermediate: u64,
    /// `n_routed_experts`.
    pub experts: u64,
    /// `num_experts_per_tok`.
    pub top_k: u64,
    /// `n_shared_experts`.
    pub shared: u64,
    /// `n_group`.
    pub groups: u64,
    /// `topk_group`.
    pub top_groups: u64,
    /// `first_k_dense_replace`.
    pub dense: u64,
}

/// What a configuration says of its mixtures.
#[derive(Clone, Copy, Debug)]
pub struct Mixture<'a> {
    sizes: RouterSizes,
    intermediate: u64,
    shared: u64,
    choice: Choice,
    act: &'a str,
    /// `mlp_bias`, which shared experts and dense layers have (DeepSeek V2).
    pub bias: bool,
    /// How many layers come before the first mixture.
    pub dense: u64,
}

impl<'a> Mixture<'a> {
    /// Of layers `hidden` wide, chosen by biased sigmoids (DeepSeek V3, GLM-4.5).
    ///
    /// # Errors
    /// Groups that do not divide the experts, more chosen than there are, or what is not estimated yet.
    pub fn read(config: &'a Config<'_>, hidden: u64, defaults: MixtureDefaults) -> Result<Self> {
        let choice = Choice::Biased { normalised: config.flag("norm_topk_prob", true)? };
        let mixture = Self::chosen(config, hidden, defaults, choice)?;
        let RouterSizes { experts, groups, .. } = mixture.sizes;
        if experts / groups < 2 {
            return Err(config.error(
                "n_group",
                format!("{experts} experts in {groups} groups: a group is judged by its two best"),
                "make groups of at least two experts",
            ));
        }
        Ok(mixture)
    }

    /// So, by the largest of a softmax, be it among those of the groups with the best expert (DeepSeek V2).
    ///
    /// # Errors
    /// As [`Mixture::read`]; and where nothing says how many experts a token goes to, or how they are grouped.
    pub fn read_greedy(config: &'a Config<'_>, hidden: u64, defaults: MixtureDefaults) -> Result<Self> {
        let given = |key: &str, hint| {
            if config.has(key) { Ok(()) } else { Err(config.error(key, "transformers fails without it", hint)) }
        };
        given("num_experts_per_tok", "give how many experts a token goes to")?;
        let choice = match config.text("topk_method", "greedy")? {
            "greedy" => Choice::Greedy,
            "group_limited_greedy" => {
                given("n_group", "give into how many groups the experts are divided")?;
                given("topk_group", "give how many groups a token's experts may be of")?;
                Choice::BestGroups
            }
            other => {
                return Err(config.error(
                    "topk_method",
                    format!("transformers does not choose experts by {other:?}"),
                    "give greedy or group_limited_greedy",
                ));
            }
        };
        Ok(Self { bias: config.flag("mlp_bias", false)?, ..Self::chosen(config, hidden, defaults, choice)? })
    }

    const fn is_biased(&self) -> bool {
        matches!(self.choice, Choice::Biased { .. })
    }

    fn chosen(config: &'a Config<'_>, hidden: u64, defaults: MixtureDefaults, choice: Choice) -> Result<Self> {
        let experts = sparse::experts(config, "n_routed_experts", defaults.experts)?;
        let top_k = sparse::chosen(config, defaults.top_k, experts)?;
        // Whatever a configuration says of groups, a greedy choice does not look.
        let (groups, top_groups) =
            if choice == Choice::Greedy { (1, 1) } else { Self::groups(config, experts, defaults)? };
        let intermediate = config.size("moe_intermediate_size", defaults.intermediate)?;
        let shared = intermediate.saturating_mul(config.size("n_shared_experts", defaults.shared)?);
        if shared > super::config::MAX_SIZE {
            return Err(config.error("n_shared_experts", "shared experts are too wide together", "give fewer"));
        }
        Ok(Self {
            sizes: RouterSizes { experts, hidden, top_k, groups, top_groups },
            intermediate,
            shared,
            choice,
            act: config.text("hidden_act", "silu")?,
            bias: false,
            dense: config.count("first_k_dense_replace", defaults.dense)?,
        })
    }

    /// How many groups there are, and of how many of them a token's experts may be.
    fn groups(config: &Config<'_>, experts: u64, defaults: MixtureDefaults) -> Result<(u64, u64)> {
        let groups = config.size("n_group", defaults.groups)?;
        divide(config, ("n_routed_experts", experts), ("n_group", groups))?;
        let top_groups = config.size("topk_group", defaults.top_groups)?;
        if top_groups > groups {
            return Err(config.error(
                "topk_group",
                format!("{top_groups} of {groups} groups"),
                "choose no more groups than there are",
            ));
        }
        Ok((groups, top_groups))
    }
}

impl SharedMoe {
    /// `None` for an unknown activation.
    pub fn new(scope: &Scope, mixture: &Mixture<'_>) -> Option<Self> {
        let RouterSizes { experts, hidden, .. } = mixture.sizes;
        let Mixture { intermediate, shared, act, bias, .. } = *mixture;
        // DeepSeek V2 sorted the tokens by expert, which is not followed: its experts are stacked here whatever the version.
        let listed = !scope.cx().machine().rules.has(&rules::STACKED_EXPERTS) && mixture.is_biased();
        Some(Self {
            experts: if listed {
                let one = |expert: &Scope| GatedMlp::new(expert, hidden, intermediate, act, false);
                Chosen::Listed(ExpertList::new(scope, experts, Visits::Guarded, one)?)
            } else {
                Chosen::Stacked(Box::new(Experts::new(&scope.child("experts"), experts, hidden, intermediate, act)?))
            },
            gate: GroupRouter::new(&scope.child("gate"), mixture.sizes, mixture.choice),
            shared_experts: GatedMlp::new(&scope.child("shared_experts"), hidden, shared, act, bias)?,
            module: scope.module(),
        })
    }

    /// `forward`.
    pub fn forward(&self, hidden: &Tensor) -> Tensor {
        hidden.cx().within(self.module, || {
            let sizes = hidden.dims();
            let routing = self.gate.forward(hidden);
            let mut out = {
                let flat = ops::view(hidden, &[sizes[0] * sizes[1], sizes[2]]);
                match &self.experts {
                    Chosen::Stacked(experts) => experts.forward(&flat, &routing.indices, &routing.scores),
                    // `moe()`, which is a function of its own.
                    Chosen::Listed(experts) => experts.forward(&flat, &routing.indices, &routing.scores).0,
                }
            };
            out = ops::view(&out, sizes);
            let shared = self.shared_experts.forward(hidden);
            let sum = ops::add(&out, &shared);
            drop((shared, routing));
            sum
        })
    }
}
