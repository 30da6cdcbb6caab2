//! Which modules of a model get an adapter, and which are trained whole beside them.

use plimsoll_catalog::families::{ExpertPart, Experts};
use plimsoll_scenario::{Lora, LoraTargets};

use crate::tensor::DType;

/// Low-rank adapters while a model is built: which linears get one.
#[derive(Clone, Debug)]
pub struct AdapterPlan {
    /// Rank, targets, dropout.
    pub lora: Lora,
    /// What every parameter is cast to once the adapters are there, where anything casts them: DeepSpeed's engine does.
    pub cast: Option<DType>,
    /// Of a mixture of experts.
    pub experts: Option<Experts>,
}

impl AdapterPlan {
    /// Whether peft gives the linear at `path` an adapter. `head` linears are exempt from `all-linear`, and so is what is
    /// trained whole.
    pub fn targets(&self, path: &str, head: bool) -> bool {
        if self.saving(path).is_some() {
            return false;
        }
        let names = self.experts.and_then(|experts| experts.adapted);
        let translated = |name: &str| names.is_some_and(|names| names.part(name).is_some());
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
        self.experts.is_some_and(|experts| self.lora.reaches(experts, part))
    }

    /// Which of the names of modules to save the module at `path`, or one it is part of, ends with (`_set_trainable` in
    /// peft's `utils/other.py`).
    pub(super) fn saving(&self, path: &str) -> Option<usize> {
        let ends = || path.match_indices('.').map(|(at, _)| at).chain([path.len()]);
        self.lora.modules_to_save.iter().position(|name| ends().any(|end| path[..end].ends_with(name.as_str())))
    }
}
