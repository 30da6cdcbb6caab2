//! The neighbours of a run: what one may change about a run, and what each change costs.

use plimsoll_core::Scenario;
use plimsoll_core::scenario::{
    ActivationOffloading, Change, Checkpointing, LossImpl, Mode, Optimizer, OptimizerImpl, Precision,
};

/// How deep the same run would sit with one thing changed.
#[derive(Debug)]
pub struct Neighbour {
    /// Its name.
    pub label: &'static str,
    /// Its name where there is little room.
    pub short: &'static str,
    /// What it changes and what that costs.
    pub cost: &'static str,
    /// What is changed.
    pub change: Change,
    /// Whether it says something only of training.
    trains: bool,
}

/// Every neighbour, in the order of the what-if table.
pub static NEIGHBOURS: [Neighbour; 22] = [
    Neighbour {
        label: "fp32",
        short: "fp32",
        cost: "every tensor in 4 bytes; slowest on tensor cores",
        change: Change::Precision(Precision::Fp32),
        trains: false,
    },
    Neighbour {
        label: "bf16-amp",
        short: "bf16-amp",
        cost: "float32 weights, 16-bit matmuls; the usual choice",
        change: Change::Precision(Precision::Bf16Amp),
        trains: false,
    },
    Neighbour {
        label: "pure bf16",
        short: "pure bf16",
        cost: "weights and optimizer states in 16 bits; updates lose precision",
        change: Change::Precision(Precision::Bf16),
        trains: false,
    },
    Neighbour {
        label: "checkpointing",
        short: "checkp.",
        cost: "recomputes each layer in backward: about a third more compute",
        change: Change::Recompute,
        trains: true,
    },
    Neighbour {
        label: "use_reentrant=False",
        short: "not reentrant",
        cost: "the same numbers; what is recomputed goes as soon as it was used",
        change: Change::NotReentrant,
        trains: true,
    },
    Neighbour {
        label: "no checkpointing",
        short: "no checkp.",
        cost: "keeps what backward needs; no recomputation",
        change: Change::Checkpointing(Checkpointing::None),
        trains: true,
    },
    Neighbour {
        label: "fused optimizer",
        short: "fused",
        cost: "same result, no whole-model temporaries in the step; faster",
        change: Change::Implementation(OptimizerImpl::Fused),
        trains: true,
    },
    Neighbour {
        label: "foreach",
        short: "foreach",
        cost: "PyTorch's default; allocates a copy of the parameters in the step",
        change: Change::Implementation(OptimizerImpl::Foreach),
        trains: true,
    },
    Neighbour {
        label: "SGD",
        short: "SGD",
        cost: "no optimizer states; transformers train worse with it",
        change: Change::Optimizer(Optimizer::Sgd),
        trains: true,
    },
    Neighbour {
        label: "AdamW",
        short: "AdamW",
        cost: "two moments for every trained number",
        change: Change::Optimizer(Optimizer::AdamW),
        trains: true,
    },
    Neighbour {
        label: "8-bit AdamW",
        short: "8-bit AdamW",
        cost: "bitsandbytes: the moments in one byte each; training hardly changes",
        change: Change::Optimizer(Optimizer::AdamW8bit),
        trains: true,
    },
    Neighbour {
        label: "step in backward",
        short: "in backward",
        cost: "each parameter is stepped when its gradient comes, which then goes: no clipping, no accumulation",
        change: Change::InBackward,
        trains: true,
    },
    Neighbour {
        label: "offload activations",
        short: "offload act.",
        cost: "save_on_cpu: what backward needs waits in the machine's memory; slow, it goes over PCIe twice",
        change: Change::Offloading(ActivationOffloading::SaveOnCpu),
        trains: true,
    },
    Neighbour {
        label: "offload checkpoints",
        short: "offload ckpt.",
        cost: "each layer's input waits in the machine's memory, and the layer is recomputed: over PCIe twice, a third more compute",
        change: Change::Offloading(ActivationOffloading::CheckpointInputs),
        trains: true,
    },
    Neighbour {
        label: "fused loss",
        short: "fused loss",
        cost: "Liger's kernels: the logits are never kept, norms and gated activations keep less; needs Triton",
        change: Change::Loss(LossImpl::FusedLinear),
        trains: true,
    },
    Neighbour {
        label: "all logits",
        short: "all logits",
        cost: "the model's own loss: every logit in float32",
        change: Change::Loss(LossImpl::Full),
        trains: true,
    },
    Neighbour {
        label: "half the batch",
        short: "half batch",
        cost: "same effective batch, more and smaller kernels",
        change: Change::Parts(2),
        trains: false,
    },
    Neighbour {
        label: "LoRA r16",
        short: "LoRA r16",
        cost: "trains small adapters on a frozen 16-bit base, checkpointed; not the model itself",
        change: Change::Lora,
        trains: true,
    },
    Neighbour {
        label: "QLoRA r16",
        short: "QLoRA r16",
        cost: "adapters on a frozen 4-bit base, checkpointed; slower, each product unpacks its weight first",
        change: Change::Qlora,
        trains: true,
    },
    Neighbour {
        label: "no fp32 cast",
        short: "no fp32 cast",
        cost: "without prepare_model_for_kbit_training: norms, embeddings and logits compute in the loaded 16 bits",
        change: Change::Unprepared,
        trains: true,
    },
    Neighbour {
        label: "fp32 cast",
        short: "fp32 cast",
        cost: "peft's prepare_model_for_kbit_training: norms, embeddings and logits in float32",
        change: Change::Prepared,
        trains: true,
    },
    Neighbour {
        label: "full training",
        short: "full training",
        cost: "trains every weight",
        change: Change::Full,
        trains: true,
    },
];

impl PartialEq for Neighbour {
    fn eq(&self, other: &Self) -> bool {
        self.label == other.label
    }
}

impl Eq for Neighbour {}

impl Neighbour {
    /// The scenario with this change; `None` where it is so already, has no meaning, or cannot stand.
    pub fn apply(&self, scenario: &Scenario) -> Option<Scenario> {
        if self.trains && scenario.training.mode == Mode::Inference {
            return None;
        }
        self.change.apply(scenario).ok().filter(|next| next != scenario)
    }

    /// The neighbours of `scenario`, with what each turns it into.
    pub fn around(scenario: &Scenario) -> Vec<(&'static Self, Scenario)> {
        NEIGHBOURS.iter().filter_map(|neighbour| neighbour.apply(scenario).map(|next| (neighbour, next))).collect()
    }

    /// The neighbour of this name.
    pub fn named(label: &str) -> Option<&'static Self> {
        NEIGHBOURS.iter().find(|neighbour| neighbour.label == label)
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_core::catalog::families::OWN;
    use plimsoll_core::scenario::{Lora, ModelSource, Precision, Quantization};
    use plimsoll_core::{Bytes, Scenario};

    use super::{NEIGHBOURS, Neighbour};
    use crate::engine::{opening, peak, with_model};

    fn pulled(label: &str, scenario: &Scenario) -> Option<Scenario> {
        Neighbour::named(label).unwrap().apply(scenario)
    }

    #[test]
    fn a_mark_that_is_reached_is_not_offered() {
        let scenario = opening();
        let offered: Vec<&str> =
            Neighbour::around(&scenario).into_iter().map(|(neighbour, _)| neighbour.label).collect();
        for reached in ["bf16-amp", "AdamW", "foreach", "no checkpointing", "full training", "all logits"] {
            assert!(!offered.contains(&reached), "{reached}");
        }
        for (neighbour, next) in Neighbour::around(&scenario) {
            assert_eq!(
                neighbour.apply(&next).filter(|_| neighbour.label != "half the batch"),
                None,
                "{} twice",
                neighbour.label
            );
        }
        let mut labels: Vec<&str> = NEIGHBOURS.iter().map(|neighbour| neighbour.label).collect();
        labels.sort_unstable();
        labels.dedup();
        assert_eq!(labels.len(), NEIGHBOURS.len());
    }

    #[test]
    fn every_neighbour_is_estimated() {
        let own = OWN.iter().map(|f| ModelSource::Family { name: f.name.to_owned(), keys: serde_json::Map::new() });
        let catalog = ["resnet-50", "t5-base", "clip-vit-base-patch32"].map(|id| ModelSource::Catalog(id.to_owned()));
        for source in own.chain(catalog).chain([opening().model.source]) {
            let scenario = with_model(&opening(), source).unwrap();
            for (neighbour, next) in Neighbour::around(&scenario) {
                assert_eq!(Scenario::from_value(&next.to_value()), Ok(next.clone()), "{}", neighbour.label);
                assert!(peak(&next).is_ok(), "{} on {:?}", neighbour.label, scenario.model.source);
            }
        }
    }

    /// What it saves is the base: a model of eight billion numbers that a 24 GiB card does not train in bf16.
    #[test]
    fn qlora_brings_a_large_model_onto_a_small_card() {
        let text = r#"{"model":{"catalog":"llama-3.1-8b"},"input":{"batch":1,"seq":1024},"device":{"gpu":"rtx-4090"}}"#;
        let scenario = Scenario::from_json(text).unwrap();
        let next = pulled("QLoRA r16", &scenario).unwrap();
        let (before, after) = (peak(&scenario).unwrap(), peak(&next).unwrap());
        assert!(before.process > Bytes::from_gib(24) && after.process < Bytes::from_gib(16));
        assert_eq!(pulled("QLoRA r16", &next), None);
        let full = pulled("full training", &next).unwrap();
        assert_eq!(full.training.quantization, Quantization::None, "quantized weights are not trained themselves");
    }

    /// Where something was cast, leaving it as it was loaded saves; elsewhere there is nothing to leave.
    #[test]
    fn a_quantized_base_need_not_be_cast() {
        let text = r#"{"model":{"catalog":"llama-3.1-8b"},"input":{"batch":1,"seq":1024},
            "training":{"precision":"bf16","quantization":"nf4","lora":{}},"device":{"gpu":"rtx-4090"}}"#;
        let scenario = Scenario::from_json(text).unwrap();
        let next = pulled("no fp32 cast", &scenario).unwrap();
        let saved = peak(&scenario).unwrap().process.saturating_sub(peak(&next).unwrap().process);
        assert!(saved > Bytes::from_gib(2), "{saved}");
        assert_eq!(pulled("fp32 cast", &next), Some(scenario.clone()));
        assert_eq!(pulled("no fp32 cast", &opening()), None, "nothing is quantized");
        let mut loaded = scenario.clone();
        loaded.training.precision = Precision::Fp32;
        assert_eq!(pulled("no fp32 cast", &loaded), None, "it was loaded in float32");
        let mut saving = scenario;
        saving.training.precision = Precision::Fp16Amp;
        saving.training.lora = Some(Lora { modules_to_save: vec!["lm_head".to_owned()], ..Lora::default() });
        assert_eq!(pulled("no fp32 cast", &saving), None, "GradScaler would refuse its gradients");
        assert!(pulled("full training", &next).unwrap().training.prepare_kbit);
    }
}
