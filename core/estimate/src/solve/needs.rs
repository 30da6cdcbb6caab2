//! What a model of the catalog takes to be trained at all: one sample, AdamW, in full, with LoRA and with QLoRA.

use plimsoll_catalog::device;
use plimsoll_catalog::{self, Gpu, Model};
use plimsoll_ground::{Bytes, Result};
use plimsoll_scenario::{ADAPTER_RANK, Change, ModelSource, Scenario};

use crate::Run;

/// Most tokens of the sample; fewer where the model takes fewer.
pub const TOKENS: u64 = 1024;

/// Rank of the adapters, on every linear layer.
pub const RANK: u64 = ADAPTER_RANK;

/// The card whose kernels are assumed. Another one's take other workspaces, tens of MiB.
pub const CARD: &str = "rtx-4090";

/// How it is trained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Every parameter, float32 weights under bfloat16 autocast.
    Full,
    /// Adapters on a bfloat16 base, checkpointed.
    Lora,
    /// Adapters on a base in NF4 with double quantization, checkpointed as peft's preparation has it, under bfloat16
    /// autocast as a Trainer with `bf16=True` runs it:
    /// without, peft's cast to float32 would leave attention in float32 too.
    Qlora,
}

impl Method {
    /// From the most to the least.
    pub const ALL: [Self; 3] = [Self::Full, Self::Lora, Self::Qlora];

    /// As people call it.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Lora => "LoRA",
            Self::Qlora => "QLoRA",
        }
    }
}

/// The scenario behind a figure: a link to it can be given.
///
/// # Errors
/// When the model cannot be trained that way.
pub fn scenario(model: &Model, method: Method) -> Result<Scenario> {
    let mut scenario = Scenario::of(ModelSource::Catalog(model.id.to_owned()));
    scenario.device.gpu = CARD.to_owned();
    scenario.input.seq = scenario.input.seq.map(|seq| seq.min(TOKENS));
    let changes: &[Change] = match method {
        Method::Full => &[],
        Method::Lora => &[Change::Lora],
        Method::Qlora => &[Change::Qlora],
    };
    changes.iter().try_fold(scenario, |scenario, change| change.apply(&scenario))
}

/// What PyTorch takes from the driver at its highest; the CUDA context comes on top.
///
/// # Errors
/// When the model cannot be trained that way, or is not estimated.
pub fn reserved(model: &Model, method: Method) -> Result<Bytes> {
    Ok(Run::new(&scenario(model, method)?)?.estimate().peak.reserved)
}

/// Whether training that has PyTorch reserve so much keeps above a card's load line.
pub fn fits(reserved: Bytes, gpu: &Gpu) -> bool {
    reserved + device::context(gpu).bytes <= device::limits(gpu, None, None).load_line
}

/// The model of the catalog with most parameters whose training keeps above a card's load line.
pub fn largest(gpu: &Gpu, method: Method) -> Option<&'static Model> {
    let mut models: Vec<&Model> = plimsoll_catalog::models().iter().collect();
    models.sort_by_key(|m| (std::cmp::Reverse(m.parameters), m.id));
    // Half a byte a parameter is the least a base can take: what is larger need not be run.
    let could = |m: &&&Model| fits(Bytes::new(m.parameters / 2), gpu);
    models.iter().filter(could).find(|m| reserved(m, method).is_ok_and(|reserved| fits(reserved, gpu))).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adapters_take_less_than_full_training_and_a_large_base_less_in_four_bits() {
        let of = |id: &str| Method::ALL.map(|way| reserved(plimsoll_catalog::model(id).unwrap(), way).unwrap());
        let [full, lora, qlora] = of("llama-2-7b");
        assert!(full > lora && lora > qlora, "{full} {lora} {qlora}");
        assert!(full > Bytes::new(20 * 6_738_415_616), "{full}");
    }

    #[test]
    fn the_largest_of_a_card_fits_and_a_larger_card_takes_no_smaller_one() {
        let of = |id: &str| largest(plimsoll_catalog::gpu(id).unwrap(), Method::Lora).unwrap();
        assert!(of("rtx-4060").parameters < of("rtx-4090").parameters);
        let gpu = plimsoll_catalog::gpu("rtx-4090").unwrap();
        assert!(fits(reserved(of(gpu.id), Method::Lora).unwrap(), gpu));
    }
}
