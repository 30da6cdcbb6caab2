//! What a worker is told: a job from a scenario, and commands.

use plimsoll_core::Scenario;
use serde_json::{Map, Value, json};

/// A scenario with every default filled in.
pub fn scenario(value: &Value) -> Scenario {
    Scenario::from_value_to_measure(value).unwrap_or_else(|error| panic!("{error}: {value}"))
}

/// A scenario from its three tables.
pub fn parts(model: Value, input: Value, training: Value) -> Scenario {
    scenario(&json!({ "model": model, "input": input, "training": training }))
}

/// A small mlp, for what does not depend on the model.
pub fn mlp(input: Value, training: Value) -> Scenario {
    parts(json!({ "family": "mlp", "d_in": 16, "hidden": 32, "layers": 3 }), input, training)
}

/// A small llama.
pub fn llama(input: Value, training: Value) -> Scenario {
    let config = json!({
        "model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 300, "max_position_embeddings": 64,
    });
    parts(json!({ "hf": config }), input, training)
}

/// The job of a scenario on the CPU.
pub fn job(scenario: &Scenario) -> Map<String, Value> {
    let job = json!({
        "protocol": 1, "scenario": scenario.to_value(), "config": scenario.model.source.config(), "device": "cpu",
        "index": 0, "steps": 2, "limit": null, "snapshot": null, "trace": null, "seed": 0, "phases": true,
    });
    let Value::Object(job) = job else { unreachable!() };
    job
}

/// The command for an attempt.
pub fn attempt(batch: u64, accumulation: u64, steps: u64) -> Value {
    json!({ "command": "attempt", "batch": batch, "accumulation": accumulation, "steps": steps })
}

/// The command for the attempt that the scenario describes.
pub fn first_attempt(scenario: &Scenario, steps: u64) -> Value {
    attempt(scenario.input.batch, scenario.training.accumulation, steps)
}

/// The last command.
pub fn finish() -> Value {
    json!({ "command": "finish" })
}
