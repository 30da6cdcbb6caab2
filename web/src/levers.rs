//! What one may change about a run: each lever turns a scenario into its neighbour.

use plimsoll_core::Scenario;
use plimsoll_core::scenario::{Checkpointing, Lora, Mode, ModelSource, Optimizer, OptimizerImpl, Precision};
use serde::{Deserialize, Serialize};

/// One lever. On the ladder each is a mark: how deep the same run would sit with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Lever {
    /// Everything in float32.
    Fp32,
    /// bfloat16 autocast.
    Bf16Amp,
    /// Weights and states in bfloat16.
    Bf16,
    /// Recompute activations.
    Checkpointing,
    /// Keep activations.
    NoCheckpointing,
    /// One kernel for the optimizer.
    Fused,
    /// PyTorch's default optimizer implementation.
    Foreach,
    /// No optimizer states.
    Sgd,
    /// Two moments.
    AdamW,
    /// Low-rank adapters, rank 16.
    Lora,
    /// Train every weight.
    Full,
    /// Half the micro-batch, twice the accumulation.
    HalfBatch,
    /// Everything that saves without changing the data: 16 bits, adapters, checkpointing, fused.
    Lightest,
}

impl Lever {
    /// Every lever, in the order of the what-if table.
    pub const ALL: [Self; 13] = [
        Self::Fp32,
        Self::Bf16Amp,
        Self::Bf16,
        Self::Checkpointing,
        Self::NoCheckpointing,
        Self::Fused,
        Self::Foreach,
        Self::Sgd,
        Self::AdamW,
        Self::HalfBatch,
        Self::Lora,
        Self::Full,
        Self::Lightest,
    ];

    /// The mark's name.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Fp32 => "fp32",
            Self::Bf16Amp => "bf16-amp",
            Self::Bf16 => "pure bf16",
            Self::Checkpointing => "checkpointing",
            Self::NoCheckpointing => "no checkpointing",
            Self::Fused => "fused optimizer",
            Self::Foreach => "foreach",
            Self::Sgd => "SGD",
            Self::AdamW => "AdamW",
            Self::Lora => "LoRA r16",
            Self::Full => "full training",
            Self::HalfBatch => "half the batch",
            Self::Lightest => "lightest mix",
        }
    }

    /// The mark's name where there is little room.
    pub const fn short(self) -> &'static str {
        match self {
            Self::NoCheckpointing => "no checkp.",
            Self::Fused => "fused",
            Self::HalfBatch => "half batch",
            _ => self.label(),
        }
    }

    /// What it changes and what that costs.
    pub const fn cost(self) -> &'static str {
        match self {
            Self::Fp32 => "every tensor in 4 bytes; slowest on tensor cores",
            Self::Bf16Amp => "float32 weights, 16-bit matmuls; the usual choice",
            Self::Bf16 => "weights and optimizer states in 16 bits; updates lose precision",
            Self::Checkpointing => "recomputes each layer in backward: about a third more compute",
            Self::NoCheckpointing => "keeps what backward needs; no recomputation",
            Self::Fused => "same result, no whole-model temporaries in the step; faster",
            Self::Foreach => "PyTorch's default; allocates a copy of the parameters in the step",
            Self::Sgd => "no optimizer states; transformers train worse with it",
            Self::AdamW => "two moments for every trained number",
            Self::Lora => "trains small adapters on frozen weights, not the model itself",
            Self::Full => "trains every weight",
            Self::HalfBatch => "same effective batch, more and smaller kernels",
            Self::Lightest => "pure bf16, LoRA, checkpointing and the fused optimizer together",
        }
    }

    /// The scenario with this lever set; `None` where it is set already or has no meaning.
    pub fn apply(self, scenario: &Scenario) -> Option<Scenario> {
        let inference = scenario.training.mode == Mode::Inference;
        if inference && !matches!(self, Self::Fp32 | Self::Bf16Amp | Self::Bf16 | Self::HalfBatch) {
            return None;
        }
        let mut next = scenario.clone();
        let training = &mut next.training;
        match self {
            Self::Fp32 => training.precision = Precision::Fp32,
            Self::Bf16Amp => training.precision = Precision::Bf16Amp,
            Self::Bf16 => training.precision = Precision::Bf16,
            Self::Checkpointing if takes_checkpointing(scenario) => training.checkpointing = Checkpointing::Full,
            Self::NoCheckpointing => training.checkpointing = Checkpointing::None,
            Self::Fused if training.optimizer != Optimizer::Adafactor => {
                training.optimizer_impl = OptimizerImpl::Fused;
            }
            Self::Foreach if training.optimizer_impl != OptimizerImpl::ForLoop => {
                training.optimizer_impl = OptimizerImpl::Foreach;
            }
            Self::Sgd => {
                training.optimizer = Optimizer::Sgd;
                relax(&mut next);
            }
            Self::AdamW => {
                training.optimizer = Optimizer::AdamW;
                relax(&mut next);
            }
            Self::Lora if takes_lora(scenario) && training.lora.is_none() => training.lora = Some(lora()),
            Self::Full => training.lora = None,
            Self::HalfBatch if next.input.batch > 1 => {
                next.input.batch /= 2;
                if !inference {
                    training.accumulation = training.accumulation.saturating_mul(2);
                }
            }
            Self::Lightest => lighten(&mut next),
            _ => {}
        }
        (next != *scenario).then_some(next)
    }

    /// The levers that change `scenario`, with what each turns it into.
    pub fn around(scenario: &Scenario) -> Vec<(Self, Scenario)> {
        Self::ALL.into_iter().filter_map(|lever| lever.apply(scenario).map(|next| (lever, next))).collect()
    }
}

/// Every lever that makes a run lighter on the same data, as far as the model takes it.
fn lighten(scenario: &mut Scenario) {
    if takes_checkpointing(scenario) {
        scenario.training.checkpointing = Checkpointing::Full;
    }
    if takes_lora(scenario) && scenario.training.lora.is_none() {
        scenario.training.lora = Some(lora());
    }
    let training = &mut scenario.training;
    training.precision = if training.precision == Precision::Fp16 { Precision::Fp16 } else { Precision::Bf16 };
    if training.optimizer != Optimizer::Adafactor {
        training.optimizer_impl = OptimizerImpl::Fused;
    }
}

/// Rank-16 adapters on every linear: what most fine-tunes start with.
pub fn lora() -> Lora {
    Lora { rank: 16, ..Lora::default() }
}

/// Adafactor has one implementation only; the others start at PyTorch's default when they come from it.
fn relax(scenario: &mut Scenario) {
    let training = &mut scenario.training;
    if training.optimizer != Optimizer::Adafactor && training.optimizer_impl == OptimizerImpl::ForLoop {
        training.optimizer_impl = OptimizerImpl::Foreach;
    }
}

/// Whether the model is one of Hugging Face's, and trained: those take adapters.
pub fn takes_lora(scenario: &Scenario) -> bool {
    scenario.training.mode == Mode::Train && !matches!(scenario.model.source, ModelSource::Family { .. })
}

/// Whether the model can be checkpointed: those of Hugging Face bring it with them.
pub fn takes_checkpointing(scenario: &Scenario) -> bool {
    !matches!(scenario.model.source, ModelSource::Family { .. })
}

#[cfg(test)]
mod tests {
    use plimsoll_core::Scenario;
    use plimsoll_core::scenario::{ModelSource, supported};

    use super::Lever;
    use crate::engine::{depth, opening, with_model};

    #[test]
    fn a_lever_that_is_set_is_not_offered() {
        let scenario = opening();
        let offered: Vec<Lever> = Lever::around(&scenario).into_iter().map(|(lever, _)| lever).collect();
        for set in [Lever::Bf16Amp, Lever::AdamW, Lever::Foreach, Lever::NoCheckpointing, Lever::Full] {
            assert!(!offered.contains(&set), "{set:?}");
        }
        for (lever, next) in Lever::around(&scenario) {
            assert_eq!(lever.apply(&next).filter(|_| lever != Lever::HalfBatch), None, "{lever:?} twice");
        }
    }

    #[test]
    fn every_neighbour_is_a_valid_scenario() {
        let mut sources = vec![opening().model.source];
        for family in supported::FAMILIES {
            sources.push(ModelSource::Family { name: family.name.to_owned(), keys: serde_json::Map::new() });
        }
        for source in sources {
            let scenario = with_model(&opening(), source).unwrap();
            for (lever, next) in Lever::around(&scenario) {
                assert_eq!(Scenario::from_value(&next.to_value()), Ok(next.clone()), "{lever:?}");
                assert!(depth(&next).is_ok(), "{lever:?} on {:?}", scenario.model.source);
            }
        }
    }

    #[test]
    fn the_lightest_mix_is_the_lightest() {
        let scenario = opening();
        let peaks: Vec<_> =
            Lever::around(&scenario).iter().map(|(lever, next)| (*lever, depth(next).unwrap().process)).collect();
        let least = peaks.iter().min_by_key(|(_, peak)| *peak).map(|(lever, _)| *lever);
        assert_eq!(least, Some(Lever::Lightest), "{peaks:?}");
    }
}
