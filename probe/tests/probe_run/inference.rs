//! Models that answer.

use serde_json::Value;

use super::stub::Stub;
use super::{attempts, kinds, message};

/// A small decoder that answers.
const ANSWERS: &str = r#"{"model": {"hf": {"model_type": "llama", "hidden_size": 64, "intermediate_size": 128,
    "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 300}},
    "input": {"batch": 8, "seq": 32, "max_new_tokens": 11}, "training": {"mode": "inference", "precision": "bf16"}}"#;

#[test]
fn a_generation_is_measured_and_told_in_its_own_words() {
    let place = ["--busy", "ignore", "--planner", "http://127.0.0.1:7070/"];
    let ran = Stub::new("fine").scenario(ANSWERS).device("cuda").with(&place).text();
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let record = ran.record.unwrap();
    let names: Vec<&str> = record["phases"].as_array().unwrap().iter().filter_map(|p| p["name"].as_str()).collect();
    assert_eq!(names, ["load", "input", "prefill", "decode", "input", "prefill", "decode"]);
    assert_eq!(attempts(&record), [(8, 1, "finished", 3)]);
    assert!(record["steps"].as_array().unwrap().iter().all(|step| step["loss"].is_null()));
    assert!(kinds(&record).iter().all(|kind| *kind != "numeric"), "a generation has no loss: {record}");
    // 8 answers of 11 tokens in 2 ms.
    assert_eq!(record["speed"]["tokens_per_second"], 44_000.0);
    let problems = serde_json::from_value::<plimsoll_core::Measurement>(record).unwrap().validate();
    assert!(problems.is_empty(), "{problems:?}");
    for part in [
        "inference, batch 8 x 32 tokens, 11 new tokens, bf16, sdpa attention",
        "3 generations of batch 8",
        "generation 1",
        "last generation",
        "prefill",
        "decode",
        "Generation    2.0 ms (generation 1: 5.0 ms)",
        "Token         100 us each after the first",
        "44,000 new tokens/s",
        "Parameters    1,000\n",
    ] {
        assert!(ran.stdout.contains(part), "no {part:?} in {}", ran.stdout);
    }
    for word in ["step", "trained", "micro-batch", "optimizer", "Loss", "backward"] {
        assert!(!ran.stdout.contains(word), "{word:?} in {}", ran.stdout);
    }
    assert!(
        ran.stderr.contains("batch 8, 3 generations") && ran.stderr.contains("generation 3 of 3"),
        "{}",
        ran.stderr
    );
    assert!(ran.stderr.contains("mode=inference") && ran.stderr.contains("new_tokens=11"), "{}", ran.stderr);
}

#[test]
fn a_forward_is_measured() {
    let bert = r#"{"model": {"hf": {"model_type": "bert"}, "task": "masked-lm"}, "input": {"batch": 8, "seq": 32},
        "training": {"mode": "inference", "precision": "bf16"}}"#;
    let ran = Stub::new("fine").scenario(bert).text();
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let record = ran.record.unwrap();
    let names: Vec<&str> = record["phases"].as_array().unwrap().iter().filter_map(|p| p["name"].as_str()).collect();
    assert_eq!(names, ["load", "input", "forward", "input", "forward"]);
    assert!(ran.stdout.contains("3 forward passes of batch 8"), "{}", ran.stdout);
}

/// There is no step to fill: half the batch is half the answers.
#[test]
fn where_memory_runs_out_fewer_are_answered() {
    let ran = Stub::new("oom").scenario(ANSWERS).json();
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let record = ran.record.unwrap();
    assert_eq!(attempts(&record), [(8, 1, "out_of_memory", 0), (4, 1, "out_of_memory", 0), (2, 1, "finished", 3)]);
    assert_eq!(message(&record, "halved"), "batch halved to 4");
    assert!(
        message(&record, "out_of_memory").starts_with("out of memory with a batch of 8, in prefill of generation 1:")
    );
    let record = serde_json::from_value::<plimsoll_core::Measurement>(record).unwrap();
    assert_eq!(record.validate(), []);
    assert_eq!(record.as_run().unwrap().input.batch, 2, "the planner's link is of what ran");
}

/// With the engine's own words, before Python is started.
#[test]
fn what_the_engine_does_not_generate_is_refused() {
    let with = |model: Value, more: &[(&str, Value)]| {
        let mut scenario = serde_json::json!({ "model": model, "training": { "mode": "inference" } });
        for (key, value) in more {
            scenario["training"][key] = value.clone();
        }
        scenario
    };
    let hf = |model_type: &str| serde_json::json!({ "hf": { "model_type": model_type } });
    let mut refused = 0;
    for scenario in [
        with(hf("falcon"), &[]),
        with(hf("t5"), &[]),
        with(hf("llama"), &[("lora", serde_json::json!({ "rank": 8 }))]),
        with(hf("llama"), &[("checkpointing", "full".into())]),
        with(serde_json::json!({ "catalog": "gpt2" }), &[("accumulation", 2.into())]),
    ] {
        // Whatever it is that the engine refuses today.
        let read = plimsoll_core::Scenario::from_value(&scenario);
        let Err(error) = read.and_then(|scenario| plimsoll_core::estimate::Run::new(&scenario).map(drop)) else {
            continue;
        };
        refused += 1;
        let (pids, ran) = Stub::new("fine").scenario(&scenario.to_string()).start().end();
        assert_eq!(ran.code, Some(2), "{scenario}: {}", ran.stderr);
        assert!(pids.is_empty() && ran.record.is_none(), "{scenario}");
        assert!(ran.stderr.contains(&error.problem) && ran.stderr.contains(&error.hint), "{error}: {}", ran.stderr);
    }
    assert!(refused >= 2);
}
