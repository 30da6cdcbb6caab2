//! Which modules of a model get an adapter, and which are trained whole beside them.

use plimsoll_scenario::{Lora, LoraTargets};

/// Low-rank adapters while a model is built: which linears get one.
#[derive(Clone, Debug)]
pub struct AdapterPlan {
    /// Rank, targets, dropout.
    pub lora: Lora,
    /// What names mean in a mixture of experts, where peft translates them.
    pub experts: Option<&'static ExpertNames>,
}

/// What the projections of single experts are called that transformers 5 keeps in stacked parameters, and their router:
/// targets of these names become adapters on the parameters (`_MOE_TARGET_MODULE_MAPPING` in peft's
/// `utils/transformers_weight_conversion.py`).
#[derive(Debug, PartialEq, Eq)]
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

impl ExpertNames {
    /// Whether a target is one of them: `w1`, or `experts.w1`.
    fn translate(&self, target: &str) -> Option<ExpertPart> {
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

impl AdapterPlan {
    /// Whether peft gives the linear at `path` an adapter. `head` linears are exempt from `all-linear`, and so is what is
    /// trained whole.
    pub fn targets(&self, path: &str, head: bool) -> bool {
        if self.saving(path).is_some() {
            return false;
        }
        let translated = |name: &str| self.experts.is_some_and(|experts| experts.translate(name).is_some());
        match &self.lora.targets {
            LoraTargets::AllLinear => !head && !translated(path),
            LoraTargets::Names(names) => names
                .iter()
                .filter(|name| !translated(name))
                .any(|n| path == n || path.strip_suffix(n.as_str()).is_some_and(|rest| rest.ends_with('.'))),
        }
    }

    /// Whether a mixture's parameter gets an adapter.
    pub(super) fn targets_part(&self, part: ExpertPart) -> bool {
        self.experts.is_some_and(|experts| match &self.lora.targets {
            LoraTargets::AllLinear => true,
            LoraTargets::Names(names) => names.iter().any(|name| experts.translate(name) == Some(part)),
        })
    }

    /// Why peft does not add these adapters to a mixture, and what to do, if it does not.
    pub fn refusal(&self) -> Option<(&'static str, String, String)> {
        let experts = self.experts?;
        let parts = [ExpertPart::GateUp, ExpertPart::Down, ExpertPart::Router];
        if !parts.into_iter().any(|part| self.targets_part(part)) {
            return None;
        }
        if let LoraTargets::Names(names) = &self.lora.targets {
            let named = |wanted: &str| names.iter().any(|name| name.rsplit('.').next() == Some(wanted));
            let [first, second] = experts.gate_up;
            if named(first) != named(second) {
                let problem = format!("peft adapts {first:?} and {second:?} together: they are one tensor here");
                return Some(("targets", problem, "name both, or neither".to_owned()));
            }
        }
        let attention = "target [\"q_proj\", \"k_proj\", \"v_proj\", \"o_proj\"]";
        if self.lora.dropout > 0.0 {
            let problem = "peft has no dropout for adapters on experts and their router".to_owned();
            return Some(("dropout", problem, format!("set it to 0, or {attention}")));
        }
        let problem = "peft has no DoRA on experts and their router".to_owned();
        self.lora.dora.then(|| ("dora", problem, format!("leave it out, or {attention}")))
    }

    /// Which of the names of modules to save the module at `path`, or one it is part of, ends with (`_set_trainable` in
    /// peft's `utils/other.py`).
    pub(super) fn saving(&self, path: &str) -> Option<usize> {
        let ends = || path.match_indices('.').map(|(at, _)| at).chain([path.len()]);
        self.lora.modules_to_save.iter().position(|name| ends().any(|end| path[..end].ends_with(name.as_str())))
    }
}
