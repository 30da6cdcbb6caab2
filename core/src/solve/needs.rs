//! What a model of the catalog takes to be trained at all: one sample, AdamW, in full, with LoRA and with QLoRA.

use crate::catalog::Model;
use crate::estimate::Run;
use crate::scenario::{Lora, ModelSource, Optimizer, Precision, Quantization, Scenario};
use crate::{Bytes, Result};

/// Most tokens of the sample; fewer where the model takes fewer.
pub const TOKENS: u64 = 1024;

/// Rank of the adapters, on every linear layer.
pub const RANK: u64 = 16;

/// The card whose kernels are assumed. Another one's take other workspaces, tens of MiB.
pub const CARD: &str = "rtx-4090";

/// How it is trained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Every parameter, float32 weights under bfloat16 autocast.
    Full,
    /// Adapters on a bfloat16 base.
    Lora,
    /// Adapters on a base in NF4 with double quantization.
    Qlora,
}

impl Way {
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
pub fn scenario(model: &Model, way: Way) -> Result<Scenario> {
    let mut scenario = Scenario::of(ModelSource::Catalog(model.id.to_owned()));
    scenario.device.gpu = CARD.to_owned();
    scenario.training.optimizer = Optimizer::AdamW;
    scenario.input.seq = scenario.input.seq.map(|seq| seq.min(TOKENS));
    if way != Way::Full {
        scenario.training.precision = Precision::Bf16;
        scenario.training.lora = Some(Lora { rank: RANK, ..Lora::default() });
    }
    if way == Way::Qlora {
        scenario.training.quantization = Quantization::Nf4Double;
    }
    Scenario::from_value(&scenario.to_value())
}

/// What PyTorch takes from the driver at its highest; the CUDA context comes on top.
///
/// # Errors
/// When the model cannot be trained that way, or is not estimated.
pub fn reserved(model: &Model, way: Way) -> Result<Bytes> {
    Ok(Run::new(&scenario(model, way)?)?.estimate().peak.reserved)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog;

    #[test]
    fn each_way_takes_less_than_the_one_before() {
        for id in ["llama-3.2-1b", "qwen2.5-0.5b"] {
            let model = catalog::model(id).unwrap();
            let [full, lora, qlora] = Way::ALL.map(|way| reserved(model, way).unwrap());
            assert!(full > lora && lora > qlora, "{id}: {full} {lora} {qlora}");
            assert!(full > Bytes::new(20 * model.parameters), "{id}: {full}");
        }
    }
}
