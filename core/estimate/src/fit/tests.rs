use plimsoll_scenario::{Change, Scenario, at, lever};
use serde_json::{Value, json};

use super::*;
use crate::{Run, Verdict, max_batch};

fn asked(model: &Value, gpu: &str, batch: u64, training: &Value) -> Scenario {
    let value = json!({
        "model": model, "input": {"batch": batch, "seq": 256}, "training": training, "device": {"gpu": gpu}
    });
    Scenario::from_value(&value).unwrap()
}

fn llama() -> Value {
    json!({"hf": {
        "model_type": "llama", "vocab_size": 4096, "hidden_size": 256, "intermediate_size": 768, "num_hidden_layers": 3,
        "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 512
    }})
}

/// A card of this size: a small model stands for a large one.
fn with_memory(scenario: &Scenario, memory: &str) -> Scenario {
    Change::Set(lever(at::device::memory).unwrap(), json!(memory)).apply(scenario).unwrap()
}

fn effective(scenario: &Scenario) -> u64 {
    scenario.input.batch * scenario.training.accumulation
}

/// Whatever is named has been run and keeps the data as it is, and its figures are those of a single estimate.
#[test]
fn a_recipe_is_what_it_says() {
    let recipes =
        [json!({}), json!({"precision": "fp32", "accumulation": 3}), json!({"lora": {}}), json!({"optimizer": "sgd"})];
    let mut named = 0;
    for training in recipes {
        for memory in ["430 MiB", "480 MiB", "560 MiB", "650 MiB"] {
            let scenario = with_memory(&asked(&llama(), "rtx-4090", 12, &training), memory);
            let answer = fit(&scenario, Allowed::default()).unwrap();
            assert_eq!(answer.recipes.is_empty(), answer.verdict == Verdict::Fits || answer.nearest.is_some());
            for recipe in &answer.recipes {
                let next = recipe.scenario().unwrap();
                let place = format!("{training} {memory} {}", recipe.name);
                let run = Run::new(&next).unwrap();
                assert_eq!(
                    (run.estimate().verdict, run.estimate().peak.process),
                    (Verdict::Fits, recipe.process),
                    "{place}"
                );
                assert_eq!(recipe.headroom, run.estimate().headroom, "{place}");
                assert_eq!(recipe.largest_batch, max_batch(&next).unwrap(), "{place}");
                assert_eq!((effective(&next), next.input.seq), (effective(&scenario), scenario.input.seq), "{place}");
                assert_eq!(recipe.changes, Altered::between(&scenario, &next), "{place}");
                assert!(!recipe.changes.is_empty() && !recipe.costs.is_empty() && !recipe.name.is_empty(), "{place}");
                named += 1;
            }
            let names: std::collections::BTreeSet<&str> = answer.recipes.iter().map(|r| r.name.as_str()).collect();
            assert_eq!(names.len(), answer.recipes.len());
        }
    }
    assert!(named > 12, "{named}");
}

/// "Nothing fits" is said of the whole space: tried one by one.
#[test]
fn nothing_fits_only_where_nothing_does() {
    for memory in ["400 MiB", "420 MiB", "440 MiB", "460 MiB"] {
        let scenario = with_memory(&asked(&llama(), "rtx-4090", 4, &json!({})), memory);
        let answer = fit(&scenario, Allowed::default()).unwrap();
        let mut any = false;
        let ways = space::ways(&scenario);
        let away = space::offloaded(&ways);
        for way in ways.into_iter().chain(away) {
            for parts in space::parts(&way.scenario) {
                for (checkpointing, steps) in (0..=space::EVERY_STEP).flat_map(|steps| [(false, steps), (true, steps)])
                {
                    let point = space::Point { checkpointing, parts, steps };
                    let verdict = |s: &Scenario| Run::new(s).unwrap().estimate().verdict;
                    any |= way.at(point).is_some_and(|s| verdict(&s) == Verdict::Fits);
                }
            }
        }
        assert_eq!(any, !answer.recipes.is_empty(), "{memory}");
        if let Some(miss) = &answer.nearest {
            assert!(miss.over.get() > 0 && miss.process < answer.process);
            let holds = &miss.cards[0];
            assert_eq!(holds.verdict, Verdict::Fits);
        }
    }
}

#[test]
fn the_sequence_is_cut_last_and_only_where_it_may_be() {
    let model = json!({"hf": {"model_type": "gpt2", "vocab_size": 512, "n_positions": 2048, "n_embd": 64, "n_layer": 2, "n_head": 4}});
    let mut scenario = asked(&model, "rtx-4090", 1, &json!({"attention": "eager", "lora": {}}));
    scenario = Change::Sizes { batch: 1, seq: Some(2048) }.apply(&scenario).unwrap();
    let scenario = with_memory(&scenario, "640 MiB");
    let strict = fit(&scenario, Allowed::default()).unwrap();
    assert!(strict.recipes.is_empty() && strict.nearest.is_some(), "{:?}", strict.recipes);
    let free = fit(&scenario, Allowed { shorter: true }).unwrap();
    let cut = free.recipes.first().unwrap_or_else(|| panic!("{:?}", free.nearest));
    assert!(cut.scenario().unwrap().input.seq < Some(2048) && cut.costs.iter().any(|cost| cost.kind == Kind::Quality));
}

#[test]
fn a_run_that_fits_needs_no_recipe() {
    let answer = fit(&asked(&llama(), "rtx-4090", 1, &json!({})), Allowed::default()).unwrap();
    assert_eq!((answer.verdict, answer.recipes.len(), answer.nearest), (Verdict::Fits, 0, None));
}

#[test]
fn every_card_that_holds_a_run_is_named() {
    let scenario = asked(&json!({"catalog": "llama-3.2-1b"}), "rtx-4060", 4, &json!({}));
    let answer = cards(&scenario).unwrap();
    assert!(answer.cards.is_sorted_by_key(|card| card.memory));
    for gpu in plimsoll_catalog::gpus() {
        let there = Change::Set(lever(at::device::gpu).unwrap(), json!(gpu.id)).apply(&scenario).unwrap();
        let run = Run::new(&there).unwrap();
        let said = answer.cards.iter().find(|card| card.gpu == gpu.id);
        match run.estimate().verdict {
            Verdict::DoesNotFit => assert_eq!(said, None, "{}", gpu.id),
            verdict => {
                let said = said.unwrap();
                assert_eq!((said.verdict, said.process), (verdict, run.estimate().peak.process), "{}", gpu.id);
            }
        }
    }
}

/// A recording holds for the kernels that it was made with: cards with others are passed over, and the rest is said.
#[test]
fn a_recording_is_no_dead_end_where_some_cards_do_not_take_it() {
    let scenario = Scenario::from_value(&json!({
        "model": {"catalog": "sdxl-unet-lora"}, "input": {"batch": 1}, "device": {"gpu": "rtx-3060"}
    }))
    .unwrap();
    let answer = cards(&scenario).unwrap();
    assert!(answer.cards.iter().any(|card| card.gpu == "rtx-5090"), "{:?}", answer.cards);
    let other = Change::Set(lever(at::device::gpu).unwrap(), json!("rx-7900-xtx")).apply(&scenario).unwrap();
    assert!(Run::new(&other).is_err() && answer.cards.iter().all(|card| card.gpu != "rx-7900-xtx"));
}

/// Adapters do not stand for all weights: full training that steps in backward is named beside them, with nothing to accumulate.
#[test]
fn full_training_in_backward_stands_beside_adapters() {
    let text = r#"{"model":{"catalog":"llama-3.2-3b"},"input":{"batch":4,"seq":1024},"device":{"gpu":"rtx-5070-ti"}}"#;
    let answer = fit(&Scenario::from_json(text).unwrap(), Allowed::default()).unwrap();
    let recipes: Vec<Scenario> = answer.recipes.iter().map(|recipe| recipe.scenario().unwrap()).collect();
    assert!(recipes[0].training.lora.is_some(), "{}", answer.recipes[0].name);
    let early: Vec<&Scenario> = recipes.iter().filter(|recipe| recipe.training.optimizer_in_backward).collect();
    assert!(!early.is_empty());
    for Scenario { training, input, .. } in early {
        assert!(training.lora.is_none() && !training.clip_grad_norm);
        assert_eq!((input.batch, training.accumulation), (4, 1));
    }
}

/// Of a run that recomputes already only the other way to do it is left, which gives up nothing.
#[test]
fn reentrant_checkpoints_need_not_be() {
    let scenario = asked(&llama(), "rtx-4090", 12, &json!({"checkpointing": "reentrant", "loss_impl": "fused-linear"}));
    let way = space::ways(&scenario).swap_remove(0);
    assert!(!way.checkpoints());
    let other = space::STEPS.iter().position(|step| *step == space::Step::NotReentrant).unwrap();
    let point = space::Point { steps: 1 << other, ..space::Point::START };
    let next = way.at(point).unwrap();
    assert_eq!(
        (next.training.checkpointing.as_str(), way.name(point, &next).as_str()),
        ("full", "use_reentrant=False")
    );
    let alive = |scenario: &Scenario| Run::new(scenario).unwrap().estimate().peak.requested;
    assert!(alive(&next) <= alive(&scenario));
    let plain = asked(&llama(), "rtx-4090", 12, &json!({"checkpointing": "full"}));
    assert_eq!(space::ways(&plain)[0].at(point), None);
}

/// A long sequence is its layers' inputs: where nothing else fits they wait in the machine's memory.
#[test]
fn a_long_sequence_fits_with_its_checkpoints_elsewhere() {
    let text = r#"{"model":{"catalog":"qwen3-8b"},"input":{"batch":1,"seq":20480},"device":{"gpu":"rtx-5070-ti"},
        "training":{"precision":"bf16-amp","quantization":"nf4-double","lora":{},"loss_impl":"fused-linear","checkpointing":"full"}}"#;
    let answer = fit(&Scenario::from_json(text).unwrap(), Allowed::default()).unwrap();
    let recipe = answer.recipes.first().unwrap_or_else(|| panic!("{:?}", answer.nearest));
    assert!(recipe.name.ends_with("offloaded checkpoints"), "{}", recipe.name);
    assert!(recipe.costs.iter().any(|cost| cost.kind == Kind::Traffic), "{:?}", recipe.costs);
    let next = recipe.scenario().unwrap();
    assert_eq!(next.training.activation_offloading.as_str(), "checkpoint-inputs");
    assert_eq!(Run::new(&next).unwrap().estimate().verdict, Verdict::Fits);
}

/// Where a sequence has to be cut, less of it has to go with the inputs of its checkpoints elsewhere.
#[test]
fn a_sequence_is_cut_less_with_its_checkpoints_elsewhere() {
    let text = r#"{"model":{"catalog":"qwen3-8b"},"input":{"batch":1,"seq":40960},"device":{"gpu":"rtx-5070-ti"},
        "training":{"precision":"bf16-amp","quantization":"nf4-double","lora":{},"loss_impl":"fused-linear","checkpointing":"full"}}"#;
    let answer = fit(&Scenario::from_json(text).unwrap(), Allowed { shorter: true }).unwrap();
    let kept = |recipe: &Recipe| (recipe.scenario().unwrap().input.seq, recipe.name.contains("offloaded checkpoints"));
    let kept: Vec<(Option<u64>, bool)> = answer.recipes.iter().map(kept).collect();
    let longest = kept.iter().max().unwrap_or_else(|| panic!("{:?}", answer.nearest));
    assert!(longest.1 && longest.0 < Some(40960), "{kept:?}");
}
