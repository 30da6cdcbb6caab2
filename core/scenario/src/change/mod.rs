//! A neighbour of a scenario: one thing changed, and with it everything that must be settled.

use plimsoll_catalog::families::Checkpoints;
use plimsoll_ground::{Error, Result};
use serde_json::Value;

use crate::lever::{SECTIONS, Table};
use crate::lora::ATTENTION;
use crate::model::default_task;
use crate::{
    ActivationOffloading, BaseDtype, Checkpointing, Kernels, Lever, Lora, LoraTargets, LossImpl, Mode, ModelSource,
    Optimizer, OptimizerImpl, Parallel, ParallelStrategy, Precision, QuantStorage, Quantization, Scenario, Training,
    at, lever, levers, model,
};

/// The rank that most fine-tunes start with.
pub const ADAPTER_RANK: u64 = 16;

/// Adapters of that rank on every linear layer.
pub const ADAPTERS: Lora = Lora {
    rank: ADAPTER_RANK,
    targets: LoraTargets::AllLinear,
    dropout: 0.0,
    dora: false,
    autocast_adapter_dtype: true,
    modules_to_save: Vec::new(),
};

/// One change of a scenario.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// One lever, to a value.
    Set(&'static Lever, Value),
    /// The precision.
    Precision(Precision),
    /// Whether activations are recomputed.
    Checkpointing(Checkpointing),
    /// Every layer is recomputed, where not all are.
    Recompute,
    /// `use_reentrant=False`, where checkpoints are reentrant.
    NotReentrant,
    /// The optimizer, with an implementation it has.
    Optimizer(Optimizer),
    /// The optimizer's implementation.
    Implementation(OptimizerImpl),
    /// Each parameter stepped in backward, as soon as its gradient is there: without clipping.
    InBackward,
    /// Where what backward needs waits for it.
    Offloading(ActivationOffloading),
    /// How head and loss are computed; with Liger's loss go its kernels, where the model has them (`use_liger_kernel`).
    Loss(LossImpl),
    /// A quantized base as it was loaded, without peft's cast to float32: where something was cast.
    Unprepared,
    /// With that cast.
    Prepared,
    /// These adapters; where there are some, they stay.
    Adapters(Lora),
    /// LoRA as most run it: adapters in float32 on a frozen base in 16 bits, as it is published, checkpointed where the model
    /// can be.
    Lora,
    /// A frozen base that is quantized so.
    Quantized(Quantization),
    /// QLoRA as peft's documentation has it: adapters on NF4 with double quantization, `prepare_model_for_kbit_training`,
    /// which turns checkpointing on, and autocast.
    Qlora,
    /// Every weight is trained.
    Full,
    /// The micro-batch in so many parts, accumulated as many times more.
    Parts(u64),
    /// Another micro-batch, and another sequence where there is one.
    Sizes {
        /// Samples.
        batch: u64,
        /// Tokens; `None`: as long as it is.
        seq: Option<u64>,
    },
    /// Spread over its cards in another way, in the digits that go with it.
    Spread(Box<Parallel>, Precision),
    /// Training or inference; what only the other has takes its default.
    Mode(Mode),
    /// Another model; what it has no use for takes its default.
    Model(ModelSource),
}

impl Change {
    /// The scenario after it, with everything settled that goes by it: what was left at its default stays at its default,
    /// and what cannot stand beside the change gives way where its row says so; of another model or mode, whatever it is.
    ///
    /// # Errors
    /// When the scenario does not take it. A neighbour of a scenario that the engine estimates is estimated too.
    pub fn apply(&self, scenario: &Scenario) -> Result<Scenario> {
        let mut next = scenario.clone();
        self.edit(&mut next)?;
        spare_router(scenario, &mut next);
        settled(scenario, next)
    }

    /// The change itself, and nothing that follows from it.
    fn edit(&self, next: &mut Scenario) -> Result<()> {
        let checkpoints = next.family().checkpointing;
        let recorded = |four_bit: bool| match &next.model.source {
            ModelSource::Hull(hull) => hull.adapted(&next.training, four_bit),
            _ => None,
        };
        let (adapted, four_bit) = (recorded(false), recorded(true));
        let training = &mut next.training;
        match self {
            Self::Set(lever, value) => {
                lever.set(next, value)?;
                let training = &mut next.training;
                if lever.path == at::training::activation_offloading {
                    offloaded(training);
                }
                // The precision's own dtype by its name is no other choice.
                if training.base_dtype == training.precision.dtype(training.quantization != Quantization::None) {
                    training.base_dtype = BaseDtype::Precision;
                }
            }
            Self::Precision(precision) => training.precision = *precision,
            Self::Checkpointing(checkpointing) => training.checkpointing = *checkpointing,
            Self::Recompute => match training.checkpointing {
                Checkpointing::Full | Checkpointing::Reentrant => {
                    return Err(Error::new(
                        at::training::checkpointing,
                        "every layer is recomputed already",
                        "leave it",
                    ));
                }
                Checkpointing::None | Checkpointing::Selective => training.checkpointing = Checkpointing::Full,
            },
            Self::NotReentrant if training.checkpointing != Checkpointing::Reentrant => {
                return Err(Error::new(at::training::checkpointing, "no checkpoint is reentrant", "leave it"));
            }
            Self::NotReentrant if training.activation_offloading == ActivationOffloading::CheckpointInputs => {
                let problem = "a checkpoint whose input waits in the machine's memory is reentrant";
                return Err(Error::new(at::training::checkpointing, problem, "leave it"));
            }
            Self::NotReentrant => training.checkpointing = Checkpointing::Full,
            Self::Optimizer(optimizer) => training.optimizer = *optimizer,
            Self::Implementation(implementation) => training.optimizer_impl = *implementation,
            Self::InBackward => training.optimizer_in_backward = true,
            Self::Offloading(offloading) => {
                training.activation_offloading = *offloading;
                offloaded(training);
            }
            Self::Loss(implementation) => {
                training.loss_impl = *implementation;
                if *implementation == LossImpl::FusedLinear {
                    with_kernels(next);
                }
            }
            Self::Unprepared if training.precision == Precision::Fp32 => {
                return Err(Error::new(
                    at::training::prepare_kbit,
                    "the base was loaded in float32: there is nothing to cast",
                    "choose a precision of 16 bits",
                ));
            }
            Self::Unprepared => training.prepare_kbit = false,
            Self::Prepared => training.prepare_kbit = true,
            Self::Quantized(quantization) => {
                training.quantization = *quantization;
                packed(next);
            }
            Self::Adapters(_) | Self::Lora | Self::Qlora | Self::Full if training.mode == Mode::Inference => {
                return Err(Error::new(at::training::mode, "nothing is trained in inference", "set mode = \"train\""));
            }
            // Of a recorded model those that it was recorded with, checkpointed or not as it was.
            Self::Adapters(_) | Self::Lora if training.lora.is_none() && adapted.is_some() => {
                if let Some(adapted) = adapted {
                    *training = adapted;
                }
            }
            Self::Adapters(lora) => {
                training.lora.get_or_insert_with(|| lora.clone());
            }
            Self::Lora => {
                training.lora.get_or_insert(ADAPTERS);
                // What everybody runs: a base in 16 bits and adapters in float32, under autocast where there was any. A
                // quantized base is loaded in 16 bits already.
                match (training.quantization, training.precision.is_amp()) {
                    (Quantization::None, true) => training.base_dtype = training.precision.dtype(true),
                    (Quantization::None, false) => training.precision = training.precision.half(),
                    _ => {}
                }
                training.checkpointing = under_adapters(checkpoints);
            }
            Self::Qlora if four_bit.is_some() => {
                if let Some(four_bit) = four_bit {
                    *training = four_bit;
                }
            }
            Self::Qlora => {
                training.lora.get_or_insert(ADAPTERS);
                training.quantization = Quantization::Nf4Double;
                training.precision = autocast(training.precision);
                training.checkpointing = under_adapters(checkpoints);
                packed(next);
            }
            Self::Full => training.lora = None,
            Self::Parts(parts) if next.input.batch < *parts || *parts == 0 => {
                let hint = "give a larger micro-batch";
                return Err(Error::new(at::input::batch, "the micro-batch has no sample for each part", hint));
            }
            Self::Parts(parts) => {
                next.input.batch /= parts;
                if training.mode == Mode::Train {
                    training.accumulation = training.accumulation.saturating_mul(*parts);
                }
            }
            Self::Sizes { batch, seq } => {
                next.input.batch = *batch;
                next.input.seq = next.input.seq.map(|before| seq.unwrap_or(before));
            }
            Self::Spread(parallel, precision) => {
                training.precision = *precision;
                next.parallel = (**parallel).clone();
                packed(next);
            }
            Self::Mode(mode) => training.mode = *mode,
            Self::Model(source) => {
                if let ModelSource::Hull(hull) = source {
                    training.precision = hull.recorded_precision(training.precision);
                }
                next.model.source = source.clone();
            }
        }
        Ok(())
    }
}

impl Lever {
    /// The values that this scenario takes here, of those that show what the lever can hold: every word, both values of a
    /// flag, two of whatever there are many of. The present one is always among the words.
    pub fn offers(&'static self, scenario: &Scenario) -> Vec<Value> {
        let present = self.get(scenario);
        let taken = |value: &Value| present.as_ref() == Some(value) || self.takes(scenario, value);
        self.row.kind.samples().into_iter().filter(taken).collect()
    }

    /// Whether there is a choice: a value it can be given that it does not have.
    pub fn is_offered(&'static self, scenario: &Scenario) -> bool {
        let present = self.get(scenario);
        self.row.kind.samples().iter().any(|value| present.as_ref() != Some(value) && self.takes(scenario, value))
    }

    /// Whether it can be given this value, and keeps it.
    fn takes(&'static self, scenario: &Scenario, value: &Value) -> bool {
        let next = Change::Set(self, value.clone()).apply(scenario);
        next.is_ok_and(|next| self.get(&next).as_ref() == Some(value))
    }
}

/// Where adapters come to a model whose router cannot have one, be it that they or it are new: on its attention instead of on
/// every linear.
fn spare_router(before: &Scenario, next: &mut Scenario) {
    let routed = next.model.source.family().experts.is_some_and(|experts| experts.unadaptable.is_some());
    let new = before.training.lora.is_none() || before.model.source != next.model.source;
    let all = |lora: &&mut Lora| routed && new && lora.targets == LoraTargets::AllLinear;
    if let Some(lora) = next.training.lora.as_mut().filter(all) {
        lora.targets = LoraTargets::Names(ATTENTION.map(str::to_owned).to_vec());
    }
}

/// Checkpointing, of a model that can be checkpointed under adapters.
const fn under_adapters(checkpoints: Checkpoints) -> Checkpointing {
    match checkpoints {
        Checkpoints::Always => Checkpointing::Full,
        Checkpoints::WithoutAdapters | Checkpoints::Never => Checkpointing::None,
    }
}

/// The same precision under autocast.
const fn autocast(precision: Precision) -> Precision {
    match precision {
        Precision::Fp16 | Precision::Fp16Amp => Precision::Fp16Amp,
        Precision::Fp32 | Precision::Bf16 | Precision::Bf16Amp => Precision::Bf16Amp,
    }
}

/// The checkpoints that go with the offloading that was asked for.
fn offloaded(training: &mut Training) {
    if training.activation_offloading == ActivationOffloading::CheckpointInputs {
        training.checkpointing = Checkpointing::Reentrant;
    }
}

/// With Liger's kernels, where the scenario takes them.
fn with_kernels(next: &mut Scenario) {
    let before = std::mem::replace(&mut next.training.kernels, Kernels::Liger);
    if next.replaces(next.family()).is_err() {
        next.training.kernels = before;
    }
}

/// Packs a four-bit base in what FSDP can cut, the dtype the rest is loaded in.
fn packed(next: &mut Scenario) {
    let cuts = matches!(next.parallel.strategy, ParallelStrategy::Fsdp1 | ParallelStrategy::Fsdp2);
    let four_bit = !matches!(next.training.quantization, Quantization::None | Quantization::Int8);
    if cuts && four_bit && next.training.quant_storage == QuantStorage::Uint8 {
        next.training.quant_storage = next.training.loaded().packed();
    }
}

/// `next`, which was made of `before` by a change, with everything that goes by it.
fn settled(before: &Scenario, mut next: Scenario) -> Result<Scenario> {
    let estimated = before.estimated().is_ok();
    if next.model.source != before.model.source {
        let family = next.model.source.family();
        if !family.tasks.contains(&next.model.task) {
            next.model.task = default_task(family);
        }
    }
    // Another card: what was said about the memory of the last one no longer holds.
    if next.device.gpu != before.device.gpu {
        next.device.memory = next.device.memory.filter(|_| next.device.memory != before.device.memory);
        next.device.load_line = next.device.load_line.filter(|_| next.device.load_line != before.device.load_line);
    }
    model::settle(&mut next.model);
    follow(before, &mut next)?;
    next.settle();
    // Each round lets one lever go, so this ends.
    for _ in levers() {
        let problem = match check(&next, estimated) {
            Ok(()) => return Ok(next),
            Err(problem) => problem,
        };
        let was = next.clone();
        if !give_way(before, &mut next, &problem.key)? {
            return Err(problem);
        }
        follow(&was, &mut next)?;
    }
    check(&next, estimated).map(|()| next)
}

fn check(scenario: &Scenario, estimated: bool) -> Result<()> {
    scenario.check()?;
    if estimated { scenario.estimated().map(drop) } else { Ok(()) }
}

/// What was left at its default stays at its default, which may be another now.
fn follow(before: &Scenario, next: &mut Scenario) -> Result<()> {
    for lever in SECTIONS.iter().rev().flat_map(|section| section.levers()) {
        let left = lever.follows.is_some() && lever.get(before) == lever.default(before);
        if left && lever.get(next) == lever.get(before) && lever.path != at::model::task {
            lever.reset(next)?;
        }
    }
    Ok(())
}

/// Lets the lever or table at `key` go, where it is not what was changed and may give way.
fn give_way(before: &Scenario, next: &mut Scenario, key: &str) -> Result<bool> {
    let anew = next.model != before.model || next.training.mode != before.training.mode;
    if let Some(lever) = lever(key) {
        let now = lever.get(next);
        let gives = (anew || lever.row.yields) && now == lever.get(before) && now != lever.default(next);
        if gives {
            lever.reset(next)?;
        }
        return Ok(gives);
    }
    match Table::at(key) {
        Some(table) if anew && (table.is_open)(next) && (table.is_open)(before) => {
            (table.close)(next);
            Ok(!(table.is_open)(next))
        }
        _ => Ok(false),
    }
}

#[cfg(test)]
mod tests;
