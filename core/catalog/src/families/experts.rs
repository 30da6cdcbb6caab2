//! What a mixture's experts are called.

use crate::software::{Rules, rules};

/// A mixture of experts, whose weights transformers 5 keeps in two stacked tensors a layer.
#[derive(Clone, Copy, Debug)]
pub struct Experts {
    /// What their projections are called in adapters' targets, where peft translates them to parameters; `None` where it
    /// leaves them alone.
    pub adapted: Option<ExpertNames>,
    /// The same before [`rules::QWEN_MOE_LEFT_ALONE`].
    pub adapted_once: Option<ExpertNames>,
    /// The router, where it is a linear by its class that returns two tensors: peft puts an adapter around it, and the adapter
    /// fails (`result.dtype` in `tuners/lora/layer.py`).
    pub unadaptable: Option<&'static str>,
    /// What transformers 4 had in the place of these tensors.
    pub once: Once,
    /// Whether the router divides what `topk` made where it stands (`/=`).
    pub rescales: Rescales,
}

/// What a mixture's experts were before [`rules::STACKED_EXPERTS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Once {
    /// The same tensors, or nothing: there was no such model.
    Stacked,
    /// The same tensors, of which training took one expert's part after the other, and anything else all for every token (GPT-OSS,
    /// Qwen3-VL-MoE).
    Looped,
    /// A list of modules, each of which ran on its tokens.
    Listed,
    /// A list of modules whose tokens were sorted first, which is not followed.
    Sorted,
}

impl Experts {
    /// As the transformers of these rules has them: what is a list of modules has linears by their own names, and the routers of
    /// those that took turns made other numbers of what `topk` made.
    pub fn under(self, rules: Rules) -> Self {
        let listed = self.once == Once::Listed && !rules.has(&rules::STACKED_EXPERTS);
        let adapted = if listed {
            None
        } else if rules.has(&rules::QWEN_MOE_LEFT_ALONE) {
            self.adapted
        } else {
            self.adapted_once
        };
        let looped = self.once == Once::Looped && !rules.has(&rules::STACKED_EXPERTS);
        Self { adapted, rescales: if looped { Rescales::Never } else { self.rescales }, ..self }
    }
}

/// Whether a router writes over the chosen experts' weights, which a selective checkpoint keeps as `topk` made them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rescales {
    /// It makes others of them, or chose by something else.
    Never,
    /// They are made to add up to one.
    Always,
    /// Where the config's `norm_topk_prob` says so.
    Asked {
        /// What it says where it says nothing.
        default: bool,
    },
}

impl Rescales {
    /// Whether it does where `norm_topk_prob` says so.
    pub fn given(self, norm_topk_prob: Option<bool>) -> bool {
        match self {
            Self::Never => false,
            Self::Always => true,
            Self::Asked { default } => norm_topk_prob.unwrap_or(default),
        }
    }
}

/// What the projections of single experts are called, and their router: targets of these names become adapters on the
/// stacked parameters (`_MOE_TARGET_MODULE_MAPPING` in peft's `utils/transformers_weight_conversion.py`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpertNames {
    /// The two that lie in `gate_up_proj`.
    pub gate_up: [&'static str; 2],
    /// The one in `down_proj`.
    pub down: &'static str,
    /// The router.
    pub router: &'static str,
}

/// A parameter of a mixture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpertPart {
    /// `experts.gate_up_proj`.
    GateUp,
    /// `experts.down_proj`.
    Down,
    /// `gate.weight`.
    Router,
}

impl ExpertPart {
    /// Every one.
    pub const ALL: [Self; 3] = [Self::GateUp, Self::Down, Self::Router];
}

impl ExpertNames {
    /// Which part a target means: `w1`, or `experts.w1`.
    pub fn part(&self, target: &str) -> Option<ExpertPart> {
        let name = target.rsplit('.').next().unwrap_or(target);
        if self.gate_up.contains(&name) {
            Some(ExpertPart::GateUp)
        } else if name == self.down {
            Some(ExpertPart::Down)
        } else {
            (name == self.router).then_some(ExpertPart::Router)
        }
    }
}
