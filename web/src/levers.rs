//! What one may change about a run: each lever turns a scenario into its neighbour.

use plimsoll_core::Scenario;
use plimsoll_core::catalog::families::Checkpoints;
use plimsoll_core::scenario::{
    Checkpointing, Lora, LossImpl, Mode, Optimizer, OptimizerImpl, Precision, Quantization, Training,
};
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
    /// Two moments of a byte each.
    AdamW8bit,
    /// Head and loss in one, without the logits.
    FusedLoss,
    /// All logits at once.
    FullLoss,
    /// Low-rank adapters, rank 16.
    Lora,
    /// The same on a base quantized to four bits, checkpointed, under autocast: as peft prepares it.
    Qlora,
    /// A quantized base as it was loaded, without peft's cast to float32.
    Unprepared,
    /// With that cast.
    Prepared,
    /// Train every weight.
    Full,
    /// Half the micro-batch, twice the accumulation.
    HalfBatch,
    /// Everything that saves without changing the data: 16 bits, adapters, checkpointing, fused loss, fused optimizer.
    Lightest,
}

impl Lever {
    /// Every lever, in the order of the what-if table.
    pub const ALL: [Self; 19] = [
        Self::Fp32,
        Self::Bf16Amp,
        Self::Bf16,
        Self::Checkpointing,
        Self::NoCheckpointing,
        Self::Fused,
        Self::Foreach,
        Self::Sgd,
        Self::AdamW,
        Self::AdamW8bit,
        Self::FusedLoss,
        Self::FullLoss,
        Self::HalfBatch,
        Self::Lora,
        Self::Qlora,
        Self::Unprepared,
        Self::Prepared,
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
            Self::AdamW8bit => "8-bit AdamW",
            Self::FusedLoss => "fused loss",
            Self::FullLoss => "all logits",
            Self::Lora => "LoRA r16",
            Self::Qlora => "QLoRA r16",
            Self::Unprepared => "no fp32 cast",
            Self::Prepared => "fp32 cast",
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
            Self::AdamW8bit => "bitsandbytes: the moments in one byte each; training hardly changes",
            Self::FusedLoss => "Liger's fused linear cross-entropy: the logits are never kept; needs Triton",
            Self::FullLoss => "the model's own loss: every logit in float32",
            Self::Lora => "trains small adapters on frozen weights, not the model itself",
            Self::Qlora => {
                "adapters on a frozen 4-bit base, checkpointed; slower, each product unpacks its weight first"
            }
            Self::Unprepared => {
                "without prepare_model_for_kbit_training: norms, embeddings and logits compute in the loaded 16 bits"
            }
            Self::Prepared => "peft's prepare_model_for_kbit_training: norms, embeddings and logits in float32",
            Self::Full => "trains every weight",
            Self::HalfBatch => "same effective batch, more and smaller kernels",
            Self::Lightest => {
                "16 bits, LoRA, checkpointing, fused loss and optimizer, no fp32 cast of a quantized base, which it does not add"
            }
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
            Self::Fused if has(training.optimizer, OptimizerImpl::Fused) => {
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
            Self::AdamW8bit => {
                training.optimizer = Optimizer::AdamW8bit;
                training.optimizer_impl = OptimizerImpl::ForLoop;
            }
            Self::FusedLoss if takes_fused_loss(scenario) => training.loss_impl = LossImpl::FusedLinear,
            Self::FullLoss => training.loss_impl = LossImpl::Full,
            Self::Lora if takes_lora(scenario) && training.lora.is_none() => training.lora = Some(lora()),
            Self::Qlora if takes_lora(scenario) && takes_quantization(scenario) => quantize(&mut next),
            Self::Unprepared if takes_unprepared(training) => training.prepare_kbit = false,
            Self::Prepared => training.prepare_kbit = true,
            Self::Full => {
                training.lora = None;
                training.quantization = Quantization::None;
                settle(training);
            }
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
    if takes_fused_loss(scenario) {
        scenario.training.loss_impl = LossImpl::FusedLinear;
    }
    let training = &mut scenario.training;
    // Autocast has the adapters of a quantized base compute in 16 bits, whatever else is in float32.
    let quantized = training.quantization != Quantization::None;
    training.precision = match training.precision {
        Precision::Fp16 | Precision::Fp16Amp if quantized => Precision::Fp16Amp,
        _ if quantized => Precision::Bf16Amp,
        Precision::Fp16 => Precision::Fp16,
        _ => Precision::Bf16,
    };
    training.prepare_kbit &= !takes_unprepared(training);
    if has(training.optimizer, OptimizerImpl::Fused) {
        training.optimizer_impl = OptimizerImpl::Fused;
    }
}

fn has(optimizer: Optimizer, implementation: OptimizerImpl) -> bool {
    optimizer.implementations().contains(&implementation)
}

/// QLoRA as peft's documentation has it: NF4 with double quantization, `prepare_model_for_kbit_training`, which turns
/// checkpointing on, and autocast.
fn quantize(scenario: &mut Scenario) {
    if takes_checkpointing(scenario) {
        scenario.training.checkpointing = Checkpointing::Full;
    }
    let training = &mut scenario.training;
    training.lora.get_or_insert_with(lora);
    training.quantization = Quantization::Nf4Double;
    training.precision = match training.precision {
        Precision::Fp16 | Precision::Fp16Amp => Precision::Fp16Amp,
        Precision::Fp32 | Precision::Bf16 | Precision::Bf16Amp => Precision::Bf16Amp,
    };
}

/// Whether it makes a difference to leave peft's `prepare_model_for_kbit_training` out, and training goes on without:
/// the base is quantized and was loaded in 16 bits. GradScaler refuses gradients in float16, which modules to save that
/// were not cast would have.
pub fn takes_unprepared(training: &Training) -> bool {
    training.mode == Mode::Train
        && training.quantization != Quantization::None
        && training.precision != Precision::Fp32
        && !scaler_refuses(training)
}

fn scaler_refuses(training: &Training) -> bool {
    let saved = training.lora.as_ref().is_some_and(|lora| !lora.modules_to_save.is_empty());
    training.precision == Precision::Fp16Amp && saved
}

/// After a change of quantization or precision: a base that cannot stay as it was loaded is prepared.
pub fn settle(training: &mut Training) {
    training.prepare_kbit |= training.quantization == Quantization::None || scaler_refuses(training);
}

/// Rank-16 adapters on every linear: what most fine-tunes start with.
pub fn lora() -> Lora {
    Lora { rank: 16, ..Lora::default() }
}

/// Some optimizers have one implementation only; PyTorch's own start at its default when they come from one of those.
fn relax(scenario: &mut Scenario) {
    let training = &mut scenario.training;
    if training.optimizer != Optimizer::Adafactor && training.optimizer_impl == OptimizerImpl::ForLoop {
        training.optimizer_impl = OptimizerImpl::Foreach;
    }
}

/// Whether head and loss can be one, with labels as they are.
pub fn takes_fused_loss(scenario: &Scenario) -> bool {
    let family = scenario.model.source.family();
    family.computes_loss_in_parts(scenario.model.task) && scenario.training.label_smoothing <= 0.0
}

/// Whether the model is trained and has linear layers for adapters.
pub fn takes_lora(scenario: &Scenario) -> bool {
    scenario.training.mode == Mode::Train && scenario.model.source.family().adapters
}

/// Whether the model can be quantized.
pub fn takes_quantization(scenario: &Scenario) -> bool {
    scenario.model.source.family().unquantized.is_some()
}

/// Whether the model can be checkpointed as it is trained.
pub fn takes_checkpointing(scenario: &Scenario) -> bool {
    match scenario.model.source.family().checkpointing {
        Checkpoints::Always => true,
        Checkpoints::WithoutAdapters => scenario.training.lora.is_none(),
        Checkpoints::Never => false,
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_core::Scenario;
    use plimsoll_core::catalog::families;
    use plimsoll_core::scenario::{ModelSource, Precision, Quantization};

    use super::{Lever, settle};
    use crate::engine::{depth, opening, with_model};

    #[test]
    fn a_lever_that_is_set_is_not_offered() {
        let scenario = opening();
        let offered: Vec<Lever> = Lever::around(&scenario).into_iter().map(|(lever, _)| lever).collect();
        for set in [Lever::Bf16Amp, Lever::AdamW, Lever::Foreach, Lever::NoCheckpointing, Lever::Full, Lever::FullLoss]
        {
            assert!(!offered.contains(&set), "{set:?}");
        }
        for (lever, next) in Lever::around(&scenario) {
            assert_eq!(lever.apply(&next).filter(|_| lever != Lever::HalfBatch), None, "{lever:?} twice");
        }
    }

    #[test]
    fn every_neighbour_is_a_valid_scenario() {
        let mut sources = vec![opening().model.source];
        for family in families::OWN {
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

    /// What it saves is the base: a model of eight billion numbers that a 24 GiB card does not train in bf16.
    #[test]
    fn qlora_brings_a_large_model_onto_a_small_card() {
        let text = r#"{"model":{"catalog":"llama-3.1-8b"},"input":{"batch":1,"seq":1024},"device":{"gpu":"rtx-4090"}}"#;
        let scenario = Scenario::from_json(text).unwrap();
        let next = Lever::Qlora.apply(&scenario).unwrap();
        let (before, after) = (depth(&scenario).unwrap(), depth(&next).unwrap());
        assert!(
            before.process > plimsoll_core::Bytes::new(24 << 30) && after.process < plimsoll_core::Bytes::new(16 << 30)
        );
        assert_eq!(Lever::Qlora.apply(&next), None);
        let full = Lever::Full.apply(&next).unwrap();
        assert_eq!(full.training.quantization, Quantization::None, "quantized weights are not trained themselves");
    }

    /// Where something was cast, leaving it as it was loaded saves; elsewhere there is nothing to leave.
    #[test]
    fn a_quantized_base_need_not_be_cast() {
        let text = r#"{"model":{"catalog":"llama-3.1-8b"},"input":{"batch":1,"seq":1024},
            "training":{"precision":"bf16","quantization":"nf4","lora":{}},"device":{"gpu":"rtx-4090"}}"#;
        let scenario = Scenario::from_json(text).unwrap();
        let next = Lever::Unprepared.apply(&scenario).unwrap();
        let saved = depth(&scenario).unwrap().process.saturating_sub(depth(&next).unwrap().process);
        assert!(saved > plimsoll_core::Bytes::new(2 << 30), "{saved}");
        assert_eq!(Lever::Prepared.apply(&next), Some(scenario.clone()));
        assert_eq!(Lever::Unprepared.apply(&opening()), None, "nothing is quantized");
        let set = |key: &str, value: serde_json::Value| {
            let mut table = scenario.to_value();
            table["training"][key] = value;
            Scenario::from_value(&table).unwrap()
        };
        assert_eq!(Lever::Unprepared.apply(&set("precision", "fp32".into())), None, "it was loaded in float32");
        let mut saving = set("lora", serde_json::json!({ "modules_to_save": ["lm_head"] }));
        saving.training.precision = Precision::Fp16Amp;
        assert_eq!(Lever::Unprepared.apply(&saving), None, "GradScaler would refuse its gradients");
        saving.training.prepare_kbit = false;
        settle(&mut saving.training);
        assert!(saving.training.prepare_kbit);
        let full = Lever::Full.apply(&next).unwrap();
        assert!(full.training.prepare_kbit);
        assert_eq!(Scenario::from_value(&full.to_value()), Ok(full));
    }

    /// Of a quantized base as well, as peft prepares it or as it was loaded.
    #[test]
    fn the_lightest_mix_of_a_quantized_base_is_the_lightest() {
        for prepare in [true, false] {
            let mut scenario = Lever::Qlora.apply(&opening()).unwrap();
            scenario.training.prepare_kbit = prepare;
            let lightest = Lever::Lightest.apply(&scenario).unwrap();
            let least = depth(&lightest).unwrap().process;
            for (lever, next) in Lever::around(&scenario) {
                assert!(lever == Lever::HalfBatch || depth(&next).unwrap().process >= least, "{lever:?}");
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
