use std::collections::BTreeSet;

use plimsoll_scenario::{Change, Scenario, at, lever};
use serde_json::{Value, json};

use super::look::{Look, beginning, line, shown};
use super::trial::{Trial, corners};
use super::*;
use crate::fit::space::{FUSED_OPTIMIZER, Point, parts};
use crate::work::StepWork;
use crate::{CardMemory, Run, card, execute};

fn asked(training: &Value, parallel: &Value) -> Scenario {
    let model = json!({"hf": {
        "model_type": "llama", "vocab_size": 4096, "hidden_size": 256, "intermediate_size": 768, "num_hidden_layers": 3,
        "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 512
    }});
    let value = json!({
        "model": model, "input": {"batch": 4, "seq": 256}, "training": training, "parallel": parallel, "device": {"gpu": "rtx-4090"}
    });
    Scenario::from_value(&value).unwrap_or_else(|error| panic!("{error}"))
}

/// A card of this size: a small model stands for a large one.
fn with_memory(scenario: &Scenario, memory: &str) -> Scenario {
    Change::Set(lever(at::device::memory).unwrap(), json!(memory)).apply(scenario).unwrap()
}

fn samples(scenario: &Scenario) -> u64 {
    scenario.input.batch * scenario.training.accumulation * scenario.parallel.gpus
}

fn cases() -> Vec<Scenario> {
    let trainings = [
        json!({"accumulation": 2}),
        json!({"precision": "bf16", "accumulation": 3, "checkpointing": "full"}),
        json!({"precision": "fp32", "optimizer": "sgd"}),
        json!({"precision": "bf16", "lora": {"autocast_adapter_dtype": false}}),
    ];
    let parallels = [
        json!({"gpus": 4, "per_node": 2}),
        json!({"gpus": 4, "strategy": "fsdp2", "replicate": 2}),
        json!({"gpus": 2, "strategy": "fsdp2", "fsdp": {"reshard_after_forward": false, "wrap": "root"}}),
    ];
    let mut all = Vec::new();
    for (training, parallel) in trainings.iter().zip(parallels.iter().cycle()) {
        for memory in ["430 MiB", "470 MiB", "560 MiB", "2.6 GiB"] {
            all.push(with_memory(&asked(training, parallel), memory));
        }
    }
    all
}

/// Whatever is named fits when it is estimated afresh, learns from as many samples a step, and its figures are the estimate's.
#[test]
fn a_plan_is_what_it_says() {
    let mut named = 0;
    for scenario in cases() {
        let answer = plans(&scenario, Freedom::default()).unwrap();
        assert_eq!(answer.plans.is_empty(), answer.nearest.is_some());
        weighed(&answer);
        let mut names = BTreeSet::new();
        for plan in &answer.plans {
            let next = plan.scenario().unwrap();
            let run = Run::new(&next).unwrap();
            let estimate = run.estimate();
            assert_eq!((estimate.verdict, estimate.peak.process), (Verdict::Fits, plan.process), "{}", plan.name);
            assert_eq!((samples(&next), next.input.seq), (samples(&scenario), scenario.input.seq), "{}", plan.name);
            assert_eq!(plan.changes, Altered::between(&scenario, &next), "{}", plan.name);
            assert_eq!(plan.traffic, estimate.work.traffic, "{}", plan.name);
            assert!(names.insert(plan.name.clone()), "{}", plan.name);
            named += 1;
        }
        let rejected: BTreeSet<&str> = answer.rejected.iter().map(|rejected| rejected.name.as_str()).collect();
        assert_eq!(rejected.len(), answer.rejected.len(), "a way has one reason");
        assert!(answer.rejected.iter().all(|rejected| !rejected.words.is_empty()));
        assert_eq!(answer.combinations, answer.looked_at + answer.pruned);
    }
    assert!(named > 12, "{named}");
}

/// What a few micro-batches say of a step is what the whole step says.
fn weighed(answer: &Plans) {
    for plan in &answer.plans {
        let next = plan.scenario().unwrap();
        let few = StepWork::of_longer(&execute(&shown(&next)).unwrap(), &next.parallel, next.training.accumulation);
        assert_eq!(few, Run::new(&next).unwrap().estimate().work, "{}", plan.name);
    }
}

/// Every point of every way, run whole: what fits is found, or something is that recomputes no more in as large a micro-batch;
/// and where a way is said not to fit, none of its points does.
#[test]
fn nothing_that_was_left_out_fits() {
    let mut fitting = 0;
    for scenario in cases() {
        let memory = CardMemory::new(card(&scenario).unwrap(), &scenario);
        let answer = plans(&scenario, Freedom::default()).unwrap();
        for spread in ways::ways(&scenario, Freedom::default()).unwrap() {
            let Ok(way) = spread.way else { continue };
            let parts = parts(&way.scenario);
            let mut trial = Trial::new(&way, &memory, parts.clone(), way.checkpoints());
            let found = corners(&mut trial, way.steps() & FUSED_OPTIMIZER);
            let rejected = answer.rejected.iter().find(|rejected| rejected.name == spread.name).map(|r| r.why);
            let none = matches!(rejected, Some(Why::StatesTooLarge | Why::LoadingTooLarge | Why::DoesNotFit));
            assert_eq!(found.is_empty(), none, "{}", spread.name);
            for parts in parts {
                for (checkpointing, steps) in (0..=FUSED_OPTIMIZER).flat_map(|steps| [(false, steps), (true, steps)]) {
                    let point = Point { checkpointing, parts, steps };
                    let Some(there) = way.at(point) else { continue };
                    if Run::new(&there).unwrap().estimate().verdict != Verdict::Fits {
                        continue;
                    }
                    fitting += 1;
                    let serves = |f: &Point| f.parts <= parts && (!f.checkpointing || checkpointing);
                    assert!(found.iter().any(serves), "{} at {point:?}, found {found:?}", spread.name);
                }
            }
        }
    }
    assert!(fitting > 100, "{fitting}");
}

/// What a look says of the points that are not looked at: parts that every micro-batch has, live tensors that grow with it, and
/// a step of the optimizer that another kernel changes alone.
#[test]
fn bounds_hold_over_a_way() {
    for scenario in cases().into_iter().step_by(4) {
        let memory = CardMemory::new(card(&scenario).unwrap(), &scenario);
        // On no card: every look says everything.
        let none = CardMemory { limits: DeviceLimits { load_line: Bytes::ZERO, ..memory.limits.clone() }, ..memory };
        for spread in ways::ways(&scenario, Freedom::default()).unwrap() {
            let Ok(way) = spread.way else { continue };
            let name = &spread.name;
            let all = parts(&way.scenario);
            let mut states: Option<(Bytes, Bytes)> = None;
            for checkpointing in [false, true] {
                let mut before: Option<(Look, Look)> = None;
                for parts in &all {
                    let at = |steps| {
                        let there = way.at(Point { checkpointing, parts: *parts, steps })?;
                        let of = |run: &Scenario| Some(Look::of(&execute(run).ok()?, &none, true));
                        let (one, whole) = (of(&beginning(&there))?, of(&shown(&there))?);
                        assert_eq!(one.loading, whole.loading, "{name}");
                        assert!(one.states <= whole.states && one.requested <= whole.requested, "{name}");
                        assert!(one.outside <= whole.outside, "{name}");
                        Some((one, whole))
                    };
                    let Some((one, whole)) = at(0) else { continue };
                    let same = *states.get_or_insert((one.states, one.loading));
                    assert_eq!((one.states, one.loading), same, "{name} in {parts} parts");
                    assert!(one.states <= one.requested && one.loading <= one.requested, "{name}");
                    if let Some((larger, several)) = before {
                        assert!(larger.requested >= one.requested, "{name} in {parts} parts");
                        assert!(*parts == all[1] || several.requested >= whole.requested, "{name} in {parts} parts");
                        assert!(*parts == all[1] || several.outside >= whole.outside, "{name} in {parts} parts");
                    }
                    if let Some((_, fused)) = at(FUSED_OPTIMIZER) {
                        assert!(fused.outside >= whole.outside, "{name}");
                    }
                    before = Some((one, whole));
                }
            }
        }
        assert!(line(&none).is_zero());
    }
}

#[test]
fn what_stays_is_not_searched() {
    let scenario =
        with_memory(&asked(&json!({"precision": "bf16"}), &json!({"gpus": 4, "strategy": "fsdp2"})), "560 MiB");
    let freedom = Freedom { strategy: false, recompute: false, offload: false, micro_batch: false };
    let answer = plans(&scenario, freedom).unwrap();
    for plan in &answer.plans {
        let next = plan.scenario().unwrap();
        assert_eq!(next.parallel.strategy, scenario.parallel.strategy);
        assert_eq!(next.training.checkpointing, scenario.training.checkpointing);
        assert_eq!(next.input.batch, scenario.input.batch);
        assert!(!next.parallel.fsdp.cpu_offload);
    }
    assert!(answer.combinations < plans(&scenario, Freedom::default()).unwrap().combinations);
}

#[test]
fn tokens_are_shared_evenly() {
    let scenario = asked(&json!({}), &json!({"gpus": 4}));
    let once = with_tokens(&scenario, 16 * 1024).unwrap();
    assert_eq!((once.input.batch, once.training.accumulation), (1, 16));
    let error = with_tokens(&scenario, 1500).unwrap_err();
    assert!(error.hint.contains("1024 or 2048"), "{error}");
    assert!(with_tokens(&scenario, 3).unwrap_err().hint.ends_with("1024"));
}

#[test]
fn one_card_has_no_plan() {
    let scenario = asked(&json!({}), &json!({}));
    assert_eq!(Search::new(&scenario, Freedom::default()).unwrap_err().key, "parallel.gpus");
}

/// A search that is taken piece by piece answers as one in a go.
#[test]
fn a_search_in_pieces_is_the_same() {
    let scenario = with_memory(&asked(&json!({"precision": "bf16"}), &json!({"gpus": 4})), "470 MiB");
    let mut search = Search::new(&scenario, Freedom::default()).unwrap();
    let (_, of) = search.progress();
    let mut pieces = 0;
    while search.step() {
        pieces += 1;
        assert_eq!(search.progress(), (pieces, of));
    }
    assert_eq!(pieces, of);
    assert_eq!(search.finish().unwrap(), plans(&scenario, Freedom::default()).unwrap());
}
