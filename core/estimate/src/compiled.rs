//! Where a run through `torch.compile` may end up, as an interval: what inductor fuses, keeps and computes again only PyTorch knows.

use plimsoll_catalog::{Gpu, Vendor};
use plimsoll_ground::Bytes;
use plimsoll_ledger::{DType, Kind, Ledger, PhaseName};
use plimsoll_scenario::{Link, Mode, Scenario};
use plimsoll_torch::Op;
use serde::Serialize;

use super::convolutions::is_network;
use super::share::{scaled, thousandths};
use super::{Peak, Phase};

/// How much of what forward and backward take beside what is held they take at least, in thousandths. Of the rows of
/// `tests/corpus/compiled-hollow.jsonl`, models of the catalog that PyTorch 2.11 compiled on hollow cards, none takes less; the test `compiled`
/// counts those that the interval holds.
const LEAST: u64 = 560;
/// What is reserved at most of what is reckoned at the upper end, in thousandths: in all of these but three.
const MOST: u64 = 1120;
/// How much more forward and backward may take where adapters are trained, of whose base autograd keeps little, and AOTAutograd more. It
/// was read off the first of the three lots; of the third, of adapters alone, every row lies within it.
const MOST_WITH_ADAPTERS: u64 = 1700;

/// Where the process of a compiled run ends up. It is an interval of experience, not a bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Compiled {
    /// The process at the lower end.
    pub process_low: Bytes,
    /// The process at the upper end.
    pub process_high: Bytes,
}

impl Compiled {
    /// Of a run that takes so much as it is written; `None` where it is not compiled, where that was recorded, or where nobody tried:
    /// inference, several cards, others than NVIDIA's, and networks of convolutions.
    ///
    /// Weights and the optimizer's states are the same. Of what forward and backward take beside them three things are known: a compiled
    /// backward is one function, which returns all gradients together when it is done, also where they are then added to others; inductor
    /// sums an embedding's gradient in float32, whatever it is of (`embedding_dense_backward`, `torch/_decomp/decompositions.py`); and
    /// fused kernels keep less.
    pub fn of(gpu: &Gpu, scenario: &Scenario, ledger: &Ledger, phases: &[Phase], peak: &Peak) -> Option<Self> {
        let tried = scenario.compiles_unmodelled()
            && scenario.training.mode == Mode::Train
            && gpu.vendor == Vendor::Nvidia
            && scenario.parallel.gpus == 1
            && !is_network(ledger);
        if !tried {
            return None;
        }
        let of = |name: PhaseName| move |phase: &Phase| phase.name == name;
        let (input, backward) =
            (phases.iter().find(|p| of(PhaseName::Input)(p))?, phases.iter().position(of(PhaseName::Backward))?);
        let gradients = phases[backward].end_allocated.saturating_sub(input.end_allocated);
        let is_compiled = |phase: &&Phase| matches!(phase.name, PhaseName::Forward | PhaseName::Backward);
        let highest = |phase: &Phase| phase.peak_allocated;
        let outside = phases.iter().filter(|phase| !is_compiled(phase)).map(highest).max()?;
        let held = phases.iter().filter(|p| of(PhaseName::Input)(p)).map(|phase| phase.end_allocated).max()?;
        let beside = phases.iter().filter(is_compiled).map(highest).max()?.saturating_sub(held);
        let sums = embeddings(ledger, backward);
        let low = (held + gradients.max(thousandths(beside, LEAST))).max(outside);
        let kept = if scenario.training.lora.is_some() { thousandths(beside, MOST_WITH_ADAPTERS) } else { beside };
        let high = (held + kept.max(gradients + sums + sums)).max(outside);
        // What the allocator holds beyond what is allocated, as it does of the run that is written.
        let high = scaled(high, peak.reserved.get(), peak.allocated.get());
        let context = peak.process.saturating_sub(peak.reserved);
        Some(Self { process_low: context + low, process_high: context + thousandths(high, MOST) })
    }

    /// In words.
    pub fn note(&self, scenario: &Scenario) -> String {
        let Self { process_low, process_high } = self;
        format!(
            "this is the run as it is written: torch.compile is not modelled. What is fused, kept and computed again only PyTorch knows; such \
             runs, compiled by it on cards that are not there, would put the process between {process_low} and {process_high}. To \
             the byte it is known with this command, by which PyTorch compiles this very run: {}",
            Link::rehearsal(scenario)
        )
    }
}

/// The gradients of embeddings in a phase, in float32.
fn embeddings(ledger: &Ledger, phase: usize) -> Bytes {
    let events = ledger.events.get(ledger.phase(phase)).unwrap_or_default();
    let made = events.iter().filter(|event| !event.is_free()).map(|event| &ledger.storages[event.id() as usize]);
    let gradients = made.filter(|s| s.op == Op::EmbeddingDenseBackward.id() && s.kind != Kind::Scratch);
    gradients.map(|s| Bytes::new(ledger.sizes(s).iter().product::<u64>() * DType::Float32.size())).sum()
}

#[cfg(test)]
mod tests {
    use plimsoll_scenario::Scenario;
    use serde_json::{Value, json};

    use crate::{Estimate, Run};

    fn estimate(model: Value, training: Value, more: Value) -> Estimate {
        let mut value = json!({ "model": model, "training": training, "device": { "gpu": "rtx-5070-ti" } });
        if let (Some(value), Some(more)) = (value.as_object_mut(), more.as_object()) {
            value.extend(more.clone());
        }
        Run::new(&Scenario::from_value(&value).unwrap()).unwrap().into_estimate()
    }

    #[test]
    fn a_compiled_run_has_an_interval_and_the_command_that_knows() {
        let [plain, compiled] = [false, true].map(|compile| {
            estimate(
                json!({ "catalog": "gpt2" }),
                json!({ "compile": compile }),
                json!({ "input": { "batch": 4, "seq": 512 } }),
            )
        });
        assert_eq!((plain.peak.process, plain.compiled), (compiled.peak.process, None));
        let interval = compiled.compiled.unwrap();
        assert!(interval.process_low < compiled.peak.process && compiled.peak.process < interval.process_high);
        let command = "plimsoll rehearse --gpu rtx-5070-ti -- plimsoll probe run --model gpt2 ";
        assert!(compiled.warnings.iter().any(|warning| warning.contains(command)), "{:?}", compiled.warnings);
    }

    /// All gradients come at once, also where others are there already, and that of an embedding is summed in float32.
    #[test]
    fn gradients_are_there_together() {
        let ends = |accumulation: u64| {
            let training =
                json!({ "compile": true, "precision": "bf16", "optimizer": "sgd", "accumulation": accumulation });
            estimate(json!({ "catalog": "qwen2.5-0.5b" }), training, json!({ "input": { "seq": 8 } })).compiled.unwrap()
        };
        let (once, twice) = (ends(1), ends(2));
        // 494,032,768 weights in bfloat16.
        let gradients = plimsoll_ground::Bytes::new(494_032_768 * 2);
        assert!(once.process_low + gradients <= twice.process_low, "{once:?} {twice:?}");
        // 151,936 words of 896 numbers.
        let summed = plimsoll_ground::Bytes::new(151_936 * 896 * 4);
        assert!(once.process_low + summed <= once.process_high, "{once:?}");
    }

    #[test]
    fn where_nobody_tried_there_is_none() {
        let of = |model: Value, training: Value, more: Value| {
            let estimate = estimate(model, training, more);
            assert!(
                estimate.warnings.iter().any(|w| w.contains("torch.compile is not modelled")),
                "{:?}",
                estimate.warnings
            );
            estimate.compiled
        };
        let gpt2 = || json!({ "catalog": "gpt2" });
        assert_eq!(of(gpt2(), json!({ "compile": true, "mode": "inference" }), json!({})), None);
        assert_eq!(
            of(gpt2(), json!({ "compile": true }), json!({ "parallel": { "gpus": 2, "strategy": "ddp" } })),
            None
        );
        assert_eq!(of(gpt2(), json!({ "compile": true }), json!({ "device": { "gpu": "mi300x" } })), None);
        let resnet = || json!({ "family": "resnet" });
        assert_eq!(of(resnet(), json!({ "compile": true }), json!({})), None);
        // Nor where nothing is left open of cuDNN.
        let counted = json!({ "device": { "gpu": "rtx-5070-ti", "workspaces": false } });
        assert_eq!(of(resnet(), json!({ "compile": true }), counted), None);
    }
}
