//! Parameters that no loss reaches, under DistributedDataParallel.
#![allow(clippy::unwrap_used, reason = "a scenario that cannot be read fails the test")]

use plimsoll_run::execute;
use plimsoll_scenario::Scenario;
use serde_json::{Value, json};

/// DINOv2, whose mask token is trained by its own loss alone, or N-BEATS, whose last block's backcast nobody reads.
fn model(own: bool) -> Value {
    if own {
        json!({ "family": "nbeats", "stacks": 2, "layers": 2, "width": 8, "theta": 3, "backcast": 5, "horizon": 4 })
    } else {
        json!({ "hf": { "model_type": "dinov2", "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
            "image_size": 32, "patch_size": 8, "num_labels": 4 }, "task": "image-classification" })
    }
}

fn run(own: bool, training: &Value, parallel: &Value) -> Result<(), String> {
    let scenario = json!({ "model": model(own), "input": { "batch": 2 }, "training": training, "parallel": parallel });
    let scenario = Scenario::from_value(&scenario).unwrap();
    execute(&scenario).map(drop).map_err(|error| error.to_string())
}

#[test]
fn ddp_fails_where_a_gradient_never_comes() {
    for (own, name) in [(false, "dinov2.embeddings [1, 32]"), (true, "blocks.1.tb [3, 8]")] {
        for accumulation in [1, 3] {
            let training = json!({ "precision": "fp32", "accumulation": accumulation });
            let refused = run(own, &training, &json!({ "gpus": 2, "strategy": "ddp" })).unwrap_err();
            for word in [name, "find_unused_parameters", "finished reduction", "set it to true"] {
                assert!(refused.contains(word), "{refused}");
            }
        }
        for keys in [json!({ "find_unused_parameters": true }), json!({ "static_graph": true })] {
            let parallel = json!({ "gpus": 2, "strategy": "ddp", "ddp": keys });
            assert_eq!(run(own, &json!({ "precision": "fp32" }), &parallel), Ok(()));
        }
    }
}

#[test]
fn what_cuts_parameters_lets_them_be() {
    for strategy in ["fsdp1", "fsdp2", "zero-0", "zero-1", "zero-2", "zero-3", "data-parallel"] {
        let parallel = json!({ "gpus": 2, "strategy": strategy });
        assert_eq!(run(false, &json!({ "precision": "fp32" }), &parallel), Ok(()), "{strategy}");
    }
}
