use plimsoll_catalog::families::OWN;
use plimsoll_catalog::software::{Rules, rules};
use plimsoll_catalog::{families, models};
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::samples;

fn scenario(value: Value) -> Scenario {
    Scenario::from_value(&value).unwrap()
}

fn set(path: &str, value: Value) -> Change {
    Change::Set(lever(path).unwrap(), value)
}

fn own(name: &str) -> ModelSource {
    scenario(json!({ "model": { "family": name } })).model.source
}

proptest! {
    /// Whatever comes of a change can be written and read: it is a scenario as any other.
    #[test]
    fn a_neighbour_is_a_valid_scenario(scenario in samples::scenario(), other in samples::scenario()) {
        let sets = levers().filter_map(|lever| Some(Change::Set(lever, lever.get(&other)?)));
        let rest = [
            Change::Model(other.model.source.clone()),
            Change::Mode(other.training.mode),
            Change::Lora,
            Change::Qlora,
            Change::Full,
            Change::Adapters(ADAPTERS),
            Change::Parts(2),
            Change::Sizes { batch: other.input.batch, seq: other.input.seq },
            Change::Spread(Box::new(other.parallel.clone()), other.training.precision),
        ];
        for change in sets.chain(rest) {
            if let Ok(next) = change.apply(&scenario) {
                prop_assert_eq!(Scenario::from_value(&next.to_value()), Ok(next.clone()), "{:?}", change);
                // Nothing is left to settle.
                prop_assert_eq!(settled(&next, next.clone()), Ok(next));
            }
        }
    }

    #[test]
    fn every_model_can_follow_every_other(scenario in samples::scenario(), other in samples::scenario()) {
        let next = Change::Model(other.model.source.clone()).apply(&scenario);
        // A PyTorch without fused attention runs no model that calls it itself.
        let without = !Rules::of(&scenario.software).has(&rules::SDPA) && !other.family().eager;
        prop_assert!(next.is_ok() || without, "{:?}", next);
        for mode in Mode::ALL {
            let next = Change::Mode(*mode).apply(&scenario);
            prop_assert!(next.is_ok(), "{:?}", next);
        }
    }
}

#[test]
fn what_was_left_at_its_default_follows() {
    let start = scenario(json!({ "model": { "catalog": "gpt2" } }));
    let of = |change: Change, from: &Scenario| change.apply(from).unwrap();
    let adafactor = of(Change::Optimizer(Optimizer::Adafactor), &start);
    assert_eq!(adafactor.training.optimizer_impl, OptimizerImpl::ForLoop);
    assert_eq!(of(Change::Optimizer(Optimizer::AdamW), &adafactor), start);
    // One that was chosen stays where it can.
    let fused = of(Change::Implementation(OptimizerImpl::Fused), &start);
    assert_eq!(of(Change::Optimizer(Optimizer::Sgd), &fused).training.optimizer_impl, OptimizerImpl::Fused);
    assert_eq!(of(Change::Optimizer(Optimizer::Adafactor), &fused).training.optimizer_impl, OptimizerImpl::ForLoop);
    // Inference leaves room for what is generated, and training takes it back.
    let inference = of(Change::Mode(Mode::Inference), &start);
    assert_eq!((inference.input.seq, inference.input.max_new_tokens), (Some(768), Some(256)));
    assert_eq!(of(Change::Mode(Mode::Train), &inference), start);
    let old = of(set("software.torch", json!("1.13")), &start);
    assert_eq!(old, scenario(json!({ "model": { "catalog": "gpt2" }, "software": { "torch": "1.13" } })));
    assert_eq!(of(set("software.torch", json!("2.11")), &old), start);
    let pair = scenario(json!({ "model": { "catalog": "t5-base" } }));
    let short = of(Change::Sizes { batch: 2, seq: Some(64) }, &pair);
    assert_eq!((short.input.seq, short.input.target_seq), (Some(64), Some(64)));
}

/// A family's keys may be given in part: the planner names one and says no more.
#[test]
fn the_keys_of_a_family_are_completed() {
    let nbeats = |keys: Value| {
        let Value::Object(keys) = keys else { panic!("a table") };
        Change::Model(ModelSource::Family { name: "nbeats".to_owned(), keys }).apply(&Scenario::default())
    };
    assert_eq!(nbeats(json!({})).unwrap().model.source, own("nbeats"));
    let wide = nbeats(json!({ "width": 64 })).unwrap();
    assert_eq!(wide.model, scenario(json!({ "model": { "family": "nbeats", "width": 64 } })).model);
    assert_eq!(nbeats(json!({ "width": 0 })).unwrap_err().key, "model.width");
    assert_eq!(nbeats(json!({ "breadth": 1 })).unwrap_err().key, "model.breadth");
}

#[test]
fn a_quantized_base_comes_and_goes_with_its_adapters() {
    let start = scenario(json!({ "model": { "catalog": "qwen3-0.6b" } }));
    let qlora = Change::Qlora.apply(&start).unwrap();
    assert_eq!(qlora.training.checkpointing, Checkpointing::Full);
    let unprepared = Change::Unprepared.apply(&qlora).unwrap();
    assert!(!unprepared.training.prepare_kbit);
    let full = Change::Full.apply(&unprepared).unwrap().training;
    assert_eq!((full.lora, full.quantization, full.prepare_kbit), (None, Quantization::None, true));
    // GradScaler refuses the float16 gradients of modules to save that were not made float32.
    let saving = set("training.lora.modules_to_save", json!(["lm_head"])).apply(&unprepared).unwrap();
    assert!(Change::Precision(Precision::Fp16Amp).apply(&saving).unwrap().training.prepare_kbit);
    let fp32 = Change::Precision(Precision::Fp32).apply(&qlora).unwrap();
    assert_eq!(Change::Unprepared.apply(&fp32).unwrap_err().key, "training.prepare_kbit");
    assert_eq!(Change::Quantized(Quantization::Nf4).apply(&start).unwrap_err().key, "training.quantization");
    // FSDP cuts what is packed in floating point numbers only; one card has it as bitsandbytes packs it.
    assert_eq!(qlora.training.quant_storage, QuantStorage::Uint8);
    let two = json!({ "model": { "catalog": "qwen3-0.6b" }, "parallel": { "gpus": 2, "strategy": "fsdp2" } });
    let cut = Change::Qlora.apply(&scenario(two)).unwrap();
    assert_eq!(cut.training.quant_storage, QuantStorage::Bfloat16);
    assert_eq!(Change::Full.apply(&cut).unwrap().training.quant_storage, QuantStorage::Uint8);
}

/// Only another model or mode may undo what a person chose.
#[test]
fn a_change_that_cannot_stand_is_refused() {
    let resnet = scenario(json!({ "model": { "catalog": "resnet-50" } }));
    let refused = |change: Change, from: &Scenario| change.apply(from).unwrap_err().key;
    assert_eq!(refused(Change::Checkpointing(Checkpointing::Full), &resnet), "training.checkpointing");
    let gpt2 = scenario(json!({ "model": { "catalog": "gpt2" } }));
    assert_eq!(refused(Change::Sizes { batch: 1, seq: Some(1025) }, &gpt2), "input.seq");
    assert_eq!(refused(Change::Parts(2), &gpt2), "input.batch");
    let smooth = set("training.label_smoothing", json!(0.1)).apply(&gpt2).unwrap();
    assert_eq!(refused(Change::Loss(LossImpl::FusedLinear), &smooth), "training.loss_impl");
    let checkpointed = Change::Checkpointing(Checkpointing::Full).apply(&gpt2).unwrap();
    let moved = Change::Model(own("nanogpt")).apply(&checkpointed).unwrap();
    assert_eq!(moved.training.checkpointing, Checkpointing::None);
}

/// A lever is offered where the row takes it, and nowhere else.
#[test]
fn what_is_offered_goes_by_the_row() {
    let mut sources: Vec<ModelSource> = OWN.iter().map(|family| own(family.name)).collect();
    sources.extend(models().iter().map(|model| ModelSource::Catalog(model.id.to_owned())));
    let offered = |path: &str, scenario: &Scenario| lever(path).unwrap().is_offered(scenario);
    for source in sources {
        let scenario = Scenario::of(source);
        let family = scenario.family();
        let has = |expected: bool, path: &str| {
            assert_eq!(offered(path, &scenario), expected, "{path} of {}", family.name);
        };
        has(family.checkpointing != Checkpoints::Never, "training.checkpointing");
        has(family.adapters, "training.lora.rank");
        has(family.eager, "training.attention");
        has(family.has_mask, "input.attention_mask");
        has(family.inputs.has_sequence(), "input.seq");
        has(family.inputs.has_target(), "input.target_seq");
        has(matches!(family.inputs, families::Inputs::Image { fixed: false, .. }), "input.image");
        let task = scenario.model.task;
        has(family.computes_loss_in_parts(task) || family.computes_loss_in_tiles(task), "training.loss_impl");
        has(scenario.model.task.smooths_labels(), "training.label_smoothing");
        has(false, "training.quantization");
        has(false, "input.max_new_tokens");
    }
}

/// A checkpoint whose input waits elsewhere is a reentrant one: each brings or drops the other.
#[test]
fn offloaded_checkpoints_are_reentrant() {
    let start = scenario(json!({ "model": { "catalog": "gpt2" }, "training": { "checkpointing": "full" } }));
    let offload = set("training.activation_offloading", json!("checkpoint-inputs"));
    let there = offload.apply(&start).unwrap();
    assert_eq!(there, Change::Offloading(ActivationOffloading::CheckpointInputs).apply(&start).unwrap());
    assert_eq!(there.training.checkpointing, Checkpointing::Reentrant);
    let back = Change::Checkpointing(Checkpointing::Full).apply(&there).unwrap();
    assert_eq!(back, start);
    assert_eq!(Change::NotReentrant.apply(&there).unwrap_err().key, "training.checkpointing");
    let alone = json!({
        "model": { "catalog": "gpt2" }, "training": { "checkpointing": "full", "activation_offloading": "checkpoint-inputs" }
    });
    assert_eq!(Scenario::from_value(&alone).unwrap_err().key, "training.activation_offloading");
    // Its layers hand on a bias of positions.
    let t5 = scenario(json!({ "model": { "catalog": "t5-base" } }));
    assert_eq!(offload.apply(&t5).unwrap_err().key, "training.activation_offloading");
}
