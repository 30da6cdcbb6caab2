//! What one may change about a run: each lever turns a scenario into its neighbour.

use plimsoll_core::Scenario;
use plimsoll_core::scenario::{Checkpointing, Lora, LoraTargets, ModelSource, Optimizer, OptimizerImpl, Precision};
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
}

impl Lever {
    /// Every lever, in the order of the what-if table.
    pub const ALL: [Self; 12] = [
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
            Self::Foreach => "foreach optimizer",
            Self::Sgd => "SGD",
            Self::AdamW => "AdamW",
            Self::Lora => "LoRA r16",
            Self::Full => "full training",
            Self::HalfBatch => "half the batch",
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
        }
    }

    /// The scenario with this lever set; `None` where it is set already or has no meaning.
    pub fn apply(self, scenario: &Scenario) -> Option<Scenario> {
        let mut next = scenario.clone();
        let training = &mut next.training;
        match self {
            Self::Fp32 => training.precision = Precision::Fp32,
            Self::Bf16Amp => training.precision = Precision::Bf16Amp,
            Self::Bf16 => training.precision = Precision::Bf16,
            Self::Checkpointing if has_layers(scenario) => training.checkpointing = Checkpointing::Full,
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
                training.accumulation = training.accumulation.saturating_mul(2);
            }
            _ => {}
        }
        (next != *scenario).then_some(next)
    }

    /// The levers that change `scenario`, with what each turns it into.
    pub fn around(scenario: &Scenario) -> Vec<(Self, Scenario)> {
        Self::ALL.into_iter().filter_map(|lever| lever.apply(scenario).map(|next| (lever, next))).collect()
    }
}

/// Rank-16 adapters on every linear: what most fine-tunes start with.
pub fn lora() -> Lora {
    Lora { rank: 16, targets: LoraTargets::AllLinear, dropout: 0.0 }
}

/// Adafactor has one implementation only; the others start at PyTorch's default when they come from it.
fn relax(scenario: &mut Scenario) {
    let training = &mut scenario.training;
    if training.optimizer != Optimizer::Adafactor && training.optimizer_impl == OptimizerImpl::ForLoop {
        training.optimizer_impl = OptimizerImpl::Foreach;
    }
}

/// Whether the model is one of Hugging Face's: those take adapters.
pub fn takes_lora(scenario: &Scenario) -> bool {
    !matches!(scenario.model.source, ModelSource::Family { .. })
}

/// Whether checkpointing has layers to work on.
pub fn has_layers(scenario: &Scenario) -> bool {
    match &scenario.model.source {
        ModelSource::Family { name, .. } => name == "nanogpt",
        _ => true,
    }
}
