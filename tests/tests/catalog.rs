//! Every catalog row is usable: each card and each model makes a scenario, and the engine counts the model's parameters alike.
#![cfg(not(target_arch = "wasm32"))]

use plimsoll_core::Scenario;
use plimsoll_core::catalog::{gpus, models};
use plimsoll_core::estimate::Run;
use serde_json::{Value, json};

fn scenario(value: &Value) -> Scenario {
    Scenario::from_value(value).unwrap_or_else(|e| panic!("{value}: {e}"))
}

#[test]
fn every_card_makes_a_scenario() {
    for gpu in gpus() {
        assert_eq!(
            scenario(&json!({ "model": { "catalog": "gpt2" }, "device": { "gpu": gpu.id } })).device.gpu,
            gpu.id
        );
    }
}

#[test]
fn the_engine_counts_the_parameters_of_every_model() {
    for model in models() {
        let asked = json!({
            "model": { "catalog": model.id },
            "input": { "batch": 1, "seq": 16 },
            "training": { "precision": "bf16" },
            "device": { "gpu": "b200" },
        });
        match Run::new(&scenario(&asked)) {
            Ok(run) => assert_eq!(run.estimate().parameters.total, model.parameters, "{}", model.id),
            Err(error) => panic!("{}: {error}", model.id),
        }
    }
}
