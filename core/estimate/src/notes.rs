//! What an estimate should not be read without: figures that are assumed, and what is left out because nobody knows it.

use std::collections::BTreeSet;

use plimsoll_catalog::device;
use plimsoll_catalog::families::{Experts, Once};
use plimsoll_catalog::software::{Rules, rules, without_kernels};
use plimsoll_catalog::{Gpu, Vendor};
use plimsoll_ground::Bytes;
use plimsoll_ledger::{DType, Ledger};
use plimsoll_scenario::{Checkpointing, Mode, ModelSource, Optimizer, ParallelStrategy, Quantization, Scenario, Task};
use plimsoll_torch::Op;
use plimsoll_torch::optim::SMALLEST_PAGED;

use super::compiled::Compiled;
use super::convolutions;

/// A sentence for each figure of this card that no reading stands behind and that the verdict rests on. That a desktop
/// may be running is assumed of every card that can have one, and said where cards are listed.
pub fn assumed(gpu: &Gpu, scenario: &Scenario) -> Vec<String> {
    let given = scenario.device.memory.is_some();
    let matters = |part: &device::Part| match part.key {
        "memory" => !given,
        "context" => true,
        _ => false,
    };
    let parts = device::footprint(gpu);
    let assumed = parts.iter().filter(|part| part.figure.assumed && matters(part));
    assumed
        .map(|part| format!("{} of this card, {}, is assumed: {}", part.what, part.figure.bytes, part.figure.source))
        .collect()
}

/// What kernels take for themselves and nobody can know, and where a card is known to take another kernel than the
/// reference rows: a sentence each. `cudnn` is what is said of a network of convolutions.
pub fn uncounted(gpu: &Gpu, scenario: &Scenario, ledger: &Ledger, cudnn: Option<String>) -> Vec<String> {
    const CUDNN: &str = "of what cuDNN's attention takes in its backward only what its front end asks for is counted, not \
         what its own plan may ask for on top";
    const AMD: &str = "what AMD's attention kernels take in their backward is not counted: it is not known";
    const LINEAR: &str = "linear attention is estimated as transformers has it in PyTorch alone: where flash-linear-attention and \
         causal-conv1d are installed it runs their kernels, which keep something else, and no such run is estimated";
    let ran = |op: Op| ledger.ran.has(op.id());
    let trains = scenario.training.mode == Mode::Train;
    let mut sentences = Vec::new();
    // Nothing else that is written by hand solves one.
    if ran(Op::LinalgSolveTriangular) && !matches!(scenario.model.source, ModelSource::Hull(_)) {
        sentences.push(LINEAR.to_owned());
    }
    if ran(Op::Convolution) {
        let said = || convolutions::said(convolutions::is_counted(gpu, scenario)).to_owned();
        sentences.push(cudnn.unwrap_or_else(said));
    }
    let measured = gpu.compute_capability == Some((9, 0)) && Rules::of(&scenario.software).has(&rules::CUDNN_BUNDLED);
    if trains && !measured && ran(Op::ScaledDotProductCudnnAttention) {
        sentences.push(CUDNN.to_owned());
    }
    if trains
        && gpu.vendor == Vendor::Amd
        && (ran(Op::ScaledDotProductFlashAttention) || ran(Op::ScaledDotProductEfficientAttention))
    {
        sentences.push(AMD.to_owned());
    }
    sentences
}

/// What the versions of a scenario do not have: its model, and kernels for its card. The estimate is there all the same; the run would not be.
pub fn lacking(gpu: &Gpu, scenario: &Scenario) -> Vec<String> {
    let (source, software) = (&scenario.model.source, &scenario.software);
    let (family, task) = (source.family(), scenario.model.task);
    let since = family.since(task);
    let early = source.stand_in().is_none() && software.transformers < since;
    let model = early.then(|| {
        let class = if since > family.came.first { format!(" with a head for {task}") } else { String::new() };
        format!("transformers {} does not have {}{class} yet: it came with {since}", software.transformers, family.name)
    });
    let kernels = gpu.compute_capability.and_then(|capability| without_kernels(software.torch, capability));
    model.into_iter().chain(kernels).collect()
}

/// What the estimate says of a compiled run, if it is one; `within` what is known of where it ends up.
pub fn compiled(scenario: &Scenario, within: Option<&Compiled>) -> Option<String> {
    const RECORDED: &str = "what torch.compile makes of the model was recorded without a card: what is saved for backward, and the \
         buffers of its kernels, when each comes and goes, are inductor's own; what follows from measurements on a card, padding \
         and sums that are cut into parts are left out";
    const OTHER: &str = "this is the run as it is written: torch.compile is not modelled. Compiled, kernels are \
         fused and other activations are kept or recomputed, so the run may take less or more";
    if !scenario.training.compile {
        return None;
    }
    if matches!(scenario.model.source, ModelSource::Hull(_)) {
        return Some(RECORDED.to_owned());
    }
    Some(within.map_or_else(|| OTHER.to_owned(), |within| within.note(scenario)))
}

/// What a model leaves open that has itself compiled.
pub fn compiles_itself(scenario: &Scenario) -> Option<String> {
    const SAID: &str = "transformers before 5.1 has torch.compile run ModernBERT's embeddings, MLPs and prediction head where Triton is installed, as it is \
         with PyTorch on Linux: this is the estimate of the run without, which reference_compile = false in its config makes it. Where kernels are \
         measured, in the first run, that takes 256 MiB more for a moment";
    let written = Rules::of(&scenario.software).has(&rules::MODERNBERT_RUNS_AS_WRITTEN);
    (scenario.model.source.family().name == "modernbert" && !written).then(|| SAID.to_owned())
}

/// What a model kept besides that is not followed: caches of the whole length from the start, which a compiled forward may run on.
pub fn cached_whole(scenario: &Scenario) -> Option<String> {
    const SAID: &str = "transformers before 4.53 keeps this model's keys and values in a cache that has its whole length from the start, and looks at all of \
         it: this is the estimate with one that grows, as 4.53 and later have it, and too low";
    let grows = Rules::of(&scenario.software).has(&rules::CACHES_GROW);
    let kept = match scenario.model.source.family().name {
        "gemma2" | "gemma3_text" => scenario.training.mode == Mode::Inference,
        // Its forward makes one in training too, and masks as wide as its chunks.
        "llama4_text" => true,
        _ => false,
    };
    (kept && !grows).then(|| SAID.to_owned())
}

/// What a reentrant checkpoint costs beside FSDP2 where it need not.
pub fn gathers_all(scenario: &Scenario) -> Option<String> {
    const SAID: &str = "FSDP2 before PyTorch 2.10 gathers a layer once more when a reentrant checkpoint has gone backward, and has the whole model on the card \
         by the end of backward: use_reentrant=False (checkpointing = \"full\") does not";
    let nested = scenario.training.checkpointing == Checkpointing::Reentrant;
    let spared = Rules::of(&scenario.software).has(&rules::RECOMPUTED_STAYS_WHOLE);
    (nested && scenario.parallel.strategy == ParallelStrategy::Fsdp2 && !spared).then(|| SAID.to_owned())
}

/// What was recorded of masks of which only data says how many elements they select.
pub fn masked(scenario: &Scenario) -> Option<String> {
    let ModelSource::Hull(model) = &scenario.model.source else { return None };
    let hull = model.file().ok()?;
    let asked: BTreeSet<(&str, &str)> = hull.tapes.iter().flat_map(|tape| tape.masks()).collect();
    let taken: Vec<String> = asked.iter().map(|(who, part)| format!("{who} ({part})")).collect();
    let (who, _) = asked.first()?;
    let bound = match asked.iter().all(|(_, part)| *part == "all") {
        true => format!("Nothing takes more; plimsoll trace --answer {who}=0.25 records a part"),
        false => format!("A run whose data selects more takes more; plimsoll trace --answer {who}=true records all"),
    };
    Some(format!(
        "only data says how many elements these select by a mask, and of so many they were recorded: {}. {bound}",
        taken.join(", ")
    ))
}

/// What a quantized base leaves open: a sentence each.
pub fn quantized(scenario: &Scenario) -> Vec<String> {
    const EXPERTS: &str = "the experts of this mixture are not quantized: transformers 5 keeps them in two tensors a layer, \
         and bitsandbytes replaces linear layers";
    const FALCON: &str = "nothing of this model is quantized: its linear layers are of a class of their own, which transformers 5 \
         leaves as they are; transformers 4 quantized them";
    const ROWS: &str = "the eight-bit product follows bitsandbytes 0.50; before 0.45 it kept more of its input and turned the \
         weight into another layout";
    const OUTLIERS: &str = "columns of activations with outliers, which depend on the data, are multiplied in 16 bits beside \
         the int8 product; none are counted";
    let quantization = scenario.training.quantization;
    let experts = scenario.family().experts;
    let modules = |experts: &Experts| matches!(experts.once, Once::Listed | Once::Sorted) && !stacks_experts(scenario);
    let stacked = experts.is_some_and(|experts| !modules(&experts));
    let mut sentences = Vec::new();
    if quantization != Quantization::None && stacked {
        sentences.push(EXPERTS.to_owned());
    }
    let falcon = scenario.model.source.family().name == "falcon";
    if quantization != Quantization::None && falcon && Rules::of(&scenario.software).has(&rules::PLAIN_LINEARS) {
        sentences.push(FALCON.to_owned());
    }
    if quantization == Quantization::Int8 {
        sentences.push(OUTLIERS.to_owned());
        if !Rules::of(&scenario.software).has(&rules::EIGHT_BIT_ROWS) {
            sentences.push(ROWS.to_owned());
        }
    }
    sentences
}

/// What the modules that a mixture's experts were in the transformers of the scenario leave open.
pub fn listed_experts(scenario: &Scenario) -> Option<String> {
    const SHARED: &str = "before transformers 5 the experts of this mixture are modules that run one after the other, each on the tokens \
         that chose it: which those are depends on the data, and here every expert has as many";
    const SORTED: &str = "before transformers 5 the experts of this mixture were linear layers of their own, which ran one after the \
         other, with adapters of their own; here they are the two tensors a layer that transformers 5 has";
    const LOOPED: &str = "in training, before transformers 5, the experts of this mixture run one after the other, each on the tokens that chose \
         it: which those are depends on the data, and here every expert has as many";
    let experts = scenario.family().experts.filter(|_| !stacks_experts(scenario))?;
    match experts.once {
        Once::Stacked => None,
        Once::Looped => (scenario.training.mode == Mode::Train).then(|| LOOPED.to_owned()),
        Once::Listed => Some(SHARED.to_owned()),
        Once::Sorted => Some(SORTED.to_owned()),
    }
}

fn stacks_experts(scenario: &Scenario) -> bool {
    Rules::of(&scenario.software).has(&rules::STACKED_EXPERTS)
}

/// What a paged optimizer keeps where PyTorch's allocator does not see it: in bytes, of one process.
pub fn paged(scenario: &Scenario, ledger: &Ledger) -> Option<Bytes> {
    let each = match scenario.training.optimizer {
        Optimizer::PagedAdamW => 2 * DType::Float32.size(),
        Optimizer::PagedAdamW8bit => 2,
        _ => return None,
    };
    let numbers = |id: &u32| {
        let storage = ledger.storages.get(*id as usize)?;
        Some(storage.bytes / storage.dtype.size().max(1)).filter(|n| *n >= SMALLEST_PAGED)
    };
    let paged = ledger.trained.iter().filter_map(numbers).fold(0u64, u64::saturating_add);
    (scenario.training.mode == Mode::Train && paged > 0).then(|| Bytes::new(paged.saturating_mul(each)))
}

/// Of a decoder that classifies, in inference: what its forward would make besides if it were asked to remember.
pub fn without_cache(scenario: &Scenario) -> Option<String> {
    const SENTENCE: &str = "this is a forward with use_cache = False, as transformers' text classification pipeline calls it; \
         called as its config says by default, a decoder makes and returns keys and values for every layer as well";
    let decodes = scenario.model.source.family().tasks.contains(&Task::CausalLm);
    let classifies = scenario.model.task == Task::SequenceClassification;
    (decodes && classifies && scenario.training.mode == Mode::Inference).then(|| SENTENCE.to_owned())
}

/// Of a model that sees: its batches are text.
pub fn without_images(scenario: &Scenario) -> Option<String> {
    const TRAINED: &str = "this is a run on text alone: the tower for images is on the card, does not run and gets no gradient; \
         with images it takes more";
    const ASKED: &str = "this is a run on text alone: the tower for images is on the card and does not run";
    let said = if scenario.training.mode == Mode::Train { TRAINED } else { ASKED };
    scenario.model.source.family().tower.then(|| said.to_owned())
}

#[cfg(test)]
mod tests {
    use plimsoll_scenario::Scenario;
    use serde_json::{Value, json};

    use crate::Run;

    #[test]
    fn modernbert_has_itself_compiled_before_transformers_5_1() {
        let said = |model: &str, transformers: &str| {
            let software = json!({ "torch": "2.11", "transformers": transformers });
            let scenario = json!({ "model": { "catalog": model }, "software": software });
            let estimate = Run::new(&Scenario::from_value(&scenario).unwrap()).unwrap().into_estimate();
            estimate.warnings.iter().any(|warning| warning.contains("reference_compile"))
        };
        assert!(said("modernbert-base", "4.51") && said("modernbert-base", "5.0"));
        assert!(
            !said("modernbert-base", "5.1") && !said("modernbert-base", "5.17") && !said("bert-base-uncased", "4.51")
        );
    }

    #[test]
    fn a_cache_of_the_whole_length_is_said_where_there_was_one() {
        let said = |model: &str, mode: &str, transformers: &str| {
            let software = json!({ "torch": "2.7", "transformers": transformers });
            let input = json!({ "batch": 1, "seq": 8 });
            let scenario = json!({ "model": { "hf": { "model_type": model, "num_hidden_layers": 1 } }, "input": input,
                "training": { "mode": mode }, "software": software, "device": { "gpu": "b200" } });
            let estimate = Run::new(&Scenario::from_value(&scenario).unwrap()).unwrap().into_estimate();
            estimate.warnings.iter().any(|warning| warning.contains("whole length"))
        };
        assert!(said("gemma2", "inference", "4.52") && !said("gemma2", "inference", "4.53"));
        assert!(said("llama4_text", "train", "4.52") && !said("llama4_text", "train", "4.57"));
        assert!(!said("gemma2", "train", "4.52") && !said("llama", "inference", "4.52"));
    }

    #[test]
    fn a_gated_delta_net_says_whose_code_it_is() {
        let value = json!({
            "model": { "hf": { "model_type": "qwen3_next", "hidden_size": 64, "num_hidden_layers": 1, "vocab_size": 64,
                "linear_num_key_heads": 1, "linear_num_value_heads": 1, "mlp_only_layers": [0] } },
            "input": { "batch": 1, "seq": 8 }, "device": { "gpu": "a100-80gb" },
        });
        let estimate = Run::new(&Scenario::from_value(&value).unwrap()).unwrap().into_estimate();
        assert!(estimate.warnings.iter().any(|sentence| sentence.contains("flash-linear-attention")));
    }

    fn warnings(gpu: &str, extra: Value) -> Vec<String> {
        let mut device = json!({ "gpu": gpu });
        if let (Some(device), Some(extra)) = (device.as_object_mut(), extra.as_object()) {
            device.extend(extra.clone());
        }
        let value = json!({
            "model": { "hf": { "model_type": "llama", "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 1,
                "num_attention_heads": 2, "vocab_size": 64 } },
            "input": { "seq": 16 }, "device": device
        });
        Run::new(&Scenario::from_value(&value).unwrap()).unwrap().into_estimate().warnings
    }

    fn has(warnings: &[String], words: &str) -> bool {
        warnings.iter().any(|w| w.contains(words))
    }

    #[test]
    fn a_model_that_sees_says_that_it_is_read_on_text() {
        let of = |model: &str, training: Value| {
            let value = json!({ "model": { "catalog": model }, "input": { "seq": 16 }, "training": training,
                "device": { "gpu": "h200" } });
            Run::new(&Scenario::from_value(&value).unwrap()).unwrap().into_estimate().warnings
        };
        assert!(has(&of("qwen3-vl-2b", json!({})), "gets no gradient"));
        assert!(has(&of("qwen3-vl-2b", json!({ "mode": "inference" })), "does not run"));
        assert!(!has(&of("qwen3-1.7b", json!({})), "images"));
    }

    #[test]
    fn a_card_that_was_read_has_no_notes() {
        assert!(warnings("rtx-4090", json!({})).is_empty());
    }

    #[test]
    fn a_card_nobody_read_says_so() {
        let v100 = warnings("v100-32gb", json!({}));
        assert!(has(&v100, "of this card") && has(&v100, "is assumed: no reading of this architecture"), "{v100:?}");
        let b200 = warnings("b200", json!({}));
        assert!(has(&b200, "cuDNN's attention") && b200.len() == 1, "{b200:?}");
        assert!(!has(&warnings("b200", json!({ "workspaces": false })), "cuDNN"), "nothing is meant to be counted");
        assert!(warnings("h100-sxm", json!({})).is_empty(), "measured");
        let amd = warnings("mi300x", json!({}));
        assert!(
            has(&amd, "AMD's attention kernels") && has(&amd, "is assumed: 952 MiB on a 288 GiB Instinct"),
            "{amd:?}"
        );
    }

    #[test]
    fn a_decoder_that_classifies_says_that_it_remembers_nothing() {
        let said = |model: &str, mode: &str| {
            let text = json!({
                "model": { "catalog": model, "task": "sequence-classification" }, "input": { "batch": 1, "seq": 16 },
                "training": { "mode": mode }, "device": { "gpu": "rtx-4090" },
            });
            has(&Run::new(&Scenario::from_value(&text).unwrap()).unwrap().into_estimate().warnings, "use_cache = False")
        };
        assert!(said("llama-3.2-1b", "inference"));
        assert!(!said("llama-3.2-1b", "train") && !said("bert-base-uncased", "inference"));
    }

    /// What a backward takes is nobody's concern where there is none.
    #[test]
    fn inference_has_no_notes_about_a_backward() {
        let said = |mode: &str, card: &str| {
            let text = json!({
                "model": { "catalog": "llama-3.2-1b" }, "input": { "batch": 1, "seq": 16 },
                "training": { "mode": mode, "precision": "bf16" }, "device": { "gpu": card },
            });
            Run::new(&Scenario::from_value(&text).unwrap()).unwrap().into_estimate().warnings
        };
        for (card, words) in [("b200", "cuDNN's attention"), ("mi300x", "AMD's attention kernels")] {
            assert!(has(&said("train", card), words) && !has(&said("inference", card), words), "{card}");
        }
    }

    /// Memory that was given is no assumption any more.
    #[test]
    fn given_memory_is_not_assumed() {
        let mac = warnings("apple-m4-16gb", json!({}));
        assert!(has(&mac, "memory as reported of this card, 10.67 GiB, is assumed: Metal's recommended"), "{mac:?}");
        assert!(!has(&warnings("apple-m4-16gb", json!({ "memory": "11 GiB" })), "memory as reported"));
    }

    #[test]
    fn a_quantized_base_says_what_it_leaves_open() {
        let with = |model: &str, quantization: &str, bitsandbytes: &str| {
            let text = json!({
                "model": { "catalog": model }, "input": { "batch": 1, "seq": 16 },
                "training": { "lora": { "targets": ["q_proj"] }, "quantization": quantization },
                "software": { "bitsandbytes": bitsandbytes },
            });
            super::quantized(&Scenario::from_value(&text).unwrap())
        };
        let said = |model: &str, quantization: &str| with(model, quantization, "0.50.2").len();
        assert!(has(&with("llama-3.2-1b", "int8", "0.44.1"), "follows bitsandbytes 0.50"));
        assert!(with("llama-3.2-1b", "nf4", "0.44.1").is_empty() && with("llama-3.2-1b", "int8", "0.45.0").len() == 1);
        assert_eq!(
            (said("llama-3.2-1b", "nf4"), said("llama-3.2-1b", "int8"), said("llama-3.2-1b", "none")),
            (0, 1, 0)
        );
        let falcon = json!({ "model": { "catalog": "falcon-7b" }, "input": { "batch": 1, "seq": 16 }, "training": { "lora": {}, "quantization": "nf4" } });
        assert!(has(&super::quantized(&Scenario::from_value(&falcon).unwrap()), "nothing of this model is quantized"));
        assert_eq!(
            (said("mixtral-8x7b-v0.1", "nf4"), said("mixtral-8x7b-v0.1", "int8"), said("mixtral-8x7b-v0.1", "none")),
            (1, 2, 0)
        );
    }

    #[test]
    fn experts_that_were_linears_are_said() {
        let asked = |version: &str, training: Value| {
            let hf = json!({ "model_type": "mixtral", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 1,
                "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100 });
            let software = json!({ "torch": "2.6", "transformers": version });
            Scenario::from_value(&json!({ "model": { "hf": hf }, "training": training, "software": software }))
        };
        let said = |version: &str, training: Value| {
            let run = Run::new(&asked(version, training).unwrap()).unwrap();
            let warnings = &run.estimate().warnings;
            warnings.iter().filter(|words| words.contains("experts of this mixture")).cloned().collect::<Vec<_>>()
        };
        let quantized = json!({ "quantization": "nf4", "lora": {} });
        let [then] = &said("4.51", quantized.clone())[..] else { panic!("not once") };
        assert!(then.contains("every expert has as many"), "{then}");
        let [now] = &said("5.17", quantized)[..] else { panic!("not once") };
        assert!(now.contains("are not quantized"), "{now}");
        assert!(said("4.51", json!({})).len() == 1 && said("5.17", json!({})).is_empty());
        let looped = |version: &str, mode: &str| {
            let model = json!({ "hf": { "model_type": "gpt_oss", "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2,
                "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "num_local_experts": 4, "vocab_size": 100 } });
            let value =
                json!({ "model": model, "training": { "mode": mode }, "software": { "transformers": version } });
            super::listed_experts(&Scenario::from_value(&value).unwrap())
        };
        assert!(looped("4.57", "train").unwrap().contains("every expert has as many"));
        assert_eq!((looped("4.57", "inference"), looped("5.17", "train")), (None, None));
    }
}
