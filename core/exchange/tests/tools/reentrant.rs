//! Which way a tool checkpoints where nobody says, and where somebody does.

use serde_json::json;

use super::{holds, imported, scenario};

const FACTORY: &str = "model_name_or_path: meta-llama/Llama-3.1-8B\nfinetuning_type: lora\nlora_target: all\ncutoff_len: 1024\nbf16: true\n";
const AXOLOTL: &str = "base_model: Qwen/Qwen3-8B\nadapter: lora\nlora_target_linear: true\nsequence_len: 1024\nbf16: true\ngradient_checkpointing: true\n";
const ARGUMENTS: &str = "args = TrainingArguments(gradient_checkpointing=True, bf16=True)\n";
const LOADED: &str = "model = AutoModelForCausalLM.from_pretrained(\"Qwen/Qwen3-8B\")\n";
const SWIFT: &str =
    "swift sft --model Qwen/Qwen2.5-7B-Instruct --train_type lora --torch_dtype bfloat16 --max_length 1024";

#[test]
fn each_tool_has_its_own_way() {
    let explicit = "args = TrainingArguments(gradient_checkpointing=True, gradient_checkpointing_kwargs={\"use_reentrant\": True})\n";
    // Handed no word of it, PyTorch's own way is the reentrant one.
    let prepared = "model = prepare_model_for_kbit_training(model)\nloss.backward()\n";
    let quantized = "model = AutoModelForCausalLM.from_pretrained(\"Qwen/Qwen3-8B\", quantization_config=BitsAndBytesConfig(load_in_4bit=True))\n\
                     model = get_peft_model(model, LoraConfig(r=8, target_modules=\"all-linear\"))\n";
    let told = prepared.replace("(model)", "(model, gradient_checkpointing_kwargs={\"use_reentrant\": False})");
    for (text, is) in [
        (FACTORY.to_owned(), "reentrant"),
        (format!("{FACTORY}use_reentrant_gc: false\n"), "full"),
        (format!("{FACTORY}disable_gradient_checkpointing: true\n"), "none"),
        (AXOLOTL.to_owned(), "reentrant"),
        (format!("{AXOLOTL}gradient_checkpointing_kwargs:\n  use_reentrant: false\n"), "full"),
        (format!("{AXOLOTL}rl: dpo\n"), "full"),
        (AXOLOTL.replace("gradient_checkpointing: true", "gradient_checkpointing: false"), "none"),
        (SWIFT.to_owned(), "reentrant"),
        (format!("{LOADED}{ARGUMENTS}"), "full"),
        (format!("{LOADED}{explicit}"), "reentrant"),
        (format!("{quantized}{prepared}"), "reentrant"),
        (format!("{quantized}{told}"), "full"),
        (format!("{quantized}{prepared}{ARGUMENTS}"), "full"),
    ] {
        let imported = imported(&[("", &text)]);
        holds(&scenario(&imported), &[("training.checkpointing", json!(is))]);
    }
}

/// FSDP2 takes them as they are; where FSDP1 wraps a model as one they fail, and the other way is estimated.
#[test]
fn under_fsdp_they_stay_where_they_run() {
    let whole = AXOLOTL.replace("adapter: lora\nlora_target_linear: true\n", "");
    let spread = |more: &str| format!("num_processes: 4\ndistributed_type: FSDP\nfsdp_config:\n  {more}\n");
    for (more, is, strategy) in [
        ("fsdp_version: 2", "reentrant", "fsdp2"),
        (
            "fsdp_version: 1\n  fsdp_use_orig_params: true\n  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP",
            "reentrant",
            "fsdp1",
        ),
        ("fsdp_version: 1\n  fsdp_use_orig_params: true\n  fsdp_auto_wrap_policy: NO_WRAP", "full", "fsdp1"),
    ] {
        let imported = imported(&[("axolotl.yaml", &whole), ("accelerate.yaml", &spread(more))]);
        holds(&scenario(&imported), &[("training.checkpointing", json!(is)), ("parallel.strategy", json!(strategy))]);
        let said = imported.remarks.iter().any(|remark| remark.contains("use_reentrant=False"));
        assert_eq!(said, is == "full", "{more}: {:#?}", imported.remarks);
    }
}

/// LLaMA-Factory's checkpoint keeps each layer's input in the machine's memory, and is a reentrant one whatever is said beside it.
#[test]
fn offloaded_inputs_are_read_and_written() {
    let text = format!("{FACTORY}use_unsloth_gc: true\nuse_reentrant_gc: false\n");
    let there = scenario(&imported(&[("", &text)]));
    holds(
        &there,
        &[
            ("training.checkpointing", json!("reentrant")),
            ("training.activation_offloading", json!("checkpoint-inputs")),
        ],
    );
    let without = imported(&[("", &format!("{text}disable_gradient_checkpointing: true\n"))]);
    let without = scenario(&without);
    holds(&without, &[("training.checkpointing", json!("none"))]);
    assert_eq!(without["training"].get("activation_offloading"), None);
    let spread = |wrap: &str| {
        format!(
            "num_processes: 4\ndistributed_type: FSDP\nfsdp_config:\n  fsdp_version: 1\n  fsdp_use_orig_params: true\n  fsdp_auto_wrap_policy: {wrap}\n"
        )
    };
    let text = text.replace("finetuning_type: lora\nlora_target: all\n", "finetuning_type: full\n");
    let there = imported(&[("llama.yaml", &text), ("accelerate.yaml", &spread("TRANSFORMER_BASED_WRAP"))]);
    holds(
        &scenario(&there),
        &[
            ("training.checkpointing", json!("reentrant")),
            ("training.activation_offloading", json!("checkpoint-inputs")),
        ],
    );
    let imported = imported(&[("llama.yaml", &text), ("accelerate.yaml", &spread("NO_WRAP"))]);
    let there = scenario(&imported);
    holds(&there, &[("training.checkpointing", json!("full"))]);
    assert_eq!(there["training"].get("activation_offloading"), None);
    assert!(imported.remarks.iter().any(|remark| remark.contains("estimated on the card")), "{:#?}", imported.remarks);
}

/// Axolotl offloads by TRL, with its own checkpoints under adapters and torch's `checkpoint_wrapper` around a whole model's layers.
#[test]
fn axolotl_offloads_by_trl() {
    let whole = AXOLOTL.replace("adapter: lora\nlora_target_linear: true\n", "");
    for (text, is) in [(AXOLOTL, "reentrant"), (&whole, "full")] {
        for asked in ["gradient_checkpointing: offload", "gradient_checkpointing: true\nactivation_offloading: true"] {
            let text = text.replace("gradient_checkpointing: true", asked);
            let there = scenario(&imported(&[("axolotl.yaml", &text)]));
            holds(
                &there,
                &[
                    ("training.checkpointing", json!(is)),
                    ("training.activation_offloading", json!("offload-activations")),
                ],
            );
        }
    }
}
