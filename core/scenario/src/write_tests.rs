//! What is written is read back as the same.

use proptest::prelude::*;
use serde_json::json;

use super::*;

proptest! {
    #[test]
    fn json_round_trips(scenario in samples::scenario()) {
        let text = scenario.to_value().to_string();
        prop_assert_eq!(Scenario::from_json(&text), Ok(scenario));
    }

    #[cfg(feature = "toml")]
    #[test]
    fn toml_round_trips(scenario in samples::scenario()) {
        let text = scenario.to_toml();
        prop_assert_eq!(Scenario::from_toml(&text), Ok(scenario), "{}", text);
    }
}

#[test]
fn toml_reads_like_the_documentation() {
    let scenario = Scenario::from_value(&json!({
        "model": { "catalog": "llama-3.2-1b" },
        "training": { "lora": { "rank": 16, "targets": ["q_proj", "v_proj"], "dropout": 0.05 } },
        "device": { "memory": "11.6 GiB" },
    }))
    .unwrap();
    assert_eq!(
        scenario.to_toml(),
        r#"schema = 1

[model]
catalog = "llama-3.2-1b"
task = "causal-lm"

[input]
batch = 1
seq = 1024
attention_mask = "none"

[training]
mode = "train"
precision = "bf16-amp"
optimizer = "adamw"
optimizer_impl = "foreach"
accumulation = 1
checkpointing = "none"
attention = "sdpa"
clip_grad_norm = true
zero_grad = "set-to-none"
zero_grad_at = "after-step"
keep_outputs = false
lora = { rank = 16, targets = ["q_proj", "v_proj"], dropout = 0.05 }

[device]
gpu = "rtx-5070-ti-laptop"
memory = "11.6 GiB"
workspaces = true

[software]
torch = "2.11"
transformers = "5.17"
"#
    );
}

#[cfg(feature = "toml")]
#[test]
fn toml_takes_a_config_as_table_or_as_text() {
    let table = "[model]\nhf = { model_type = \"llama\", hidden_size = 64 }";
    let text = "[model]\nhf = '''{ \"model_type\": \"llama\", \"hidden_size\": 64 }'''";
    assert_eq!(Scenario::from_toml(table), Scenario::from_toml(text));
    assert!(Scenario::from_toml(table).is_ok());
}

#[cfg(feature = "toml")]
#[test]
fn lists_within_lists_are_written_as_what_can_be_read() {
    let mut list = json!(vec![1; 800]);
    for _ in 0..100 {
        list = json!([list]);
    }
    let mut asked = json!({"model": {"hf": {"model_type": "gpt2", "task_specific_params": [list, list, list, list]}}});
    asked["model"]["hf"]["more"] = asked["model"]["hf"]["task_specific_params"].clone();
    let scenario = Scenario::from_value(&asked).unwrap();
    assert_eq!(Scenario::from_toml(&scenario.to_toml()), Ok(scenario));
}
