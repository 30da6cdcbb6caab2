//! Scripts that train with trl.

use plimsoll_exchange::{Outcome, Source, read_for};
use serde_json::{Value, json};

use super::{holds, imported, said, scenario};

#[test]
fn trl_in_python() {
    let text = r#"
from trl import SFTConfig, SFTTrainer
model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-3.2-1B", torch_dtype=torch.bfloat16, attn_implementation="sdpa",
    quantization_config=BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=torch.bfloat16))
peft_config = LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", lora_dropout=0.1, task_type="CAUSAL_LM")
args = SFTConfig(output_dir="out", per_device_train_batch_size=2, max_length=512, optim="paged_adamw_32bit", learning_rate=2e-4,
    activation_offloading=True)
"#;
    let imported = imported(&[("train.py", text)]);
    assert!(said(&imported, Outcome::Unknown).is_empty(), "{imported:#?}");
    holds(
        &scenario(&imported),
        &[
            ("model.catalog", json!("llama-3.2-1b")),
            ("training.activation_offloading", json!("offload-activations")),
            // trl's own keeps no logits, and its loop is transformers' Trainer.
            ("training.loss_impl", json!("fused-lm-head")),
            ("training.trainer", json!("transformers")),
            // It leaves the base as it was loaded, and casts the adapters.
            ("training.prepare_kbit", json!(false)),
            ("training.lora.autocast_adapter_dtype", json!(false)),
            ("input.batch", json!(2)),
            ("input.seq", json!(512)),
            ("training.precision", json!("bf16-amp")),
            ("training.quantization", json!("nf4-double")),
            ("training.optimizer", json!("paged-adamw")),
            ("training.checkpointing", json!("full")),
            ("training.lora.rank", json!(16)),
        ],
    );
}

/// What is no causal language model keeps the model's own loss, and that is said.
#[test]
fn trl_on_what_is_no_causal_language_model() {
    for (model, loss) in
        [("Qwen/Qwen3-8B", Some("fused-lm-head")), ("t5-small", None), ("granite-3.3-2b", Some("fused-lm-head"))]
    {
        let text = format!(
            "model = AutoModelForCausalLM.from_pretrained(\"{model}\")\nargs = SFTConfig(output_dir=\"out\", max_length=512)\n"
        );
        let imported = imported(&[("train.py", &text)]);
        let known = scenario(&imported)["training"]["loss_impl"].as_str().map(str::to_owned);
        assert_eq!(known.as_deref(), loss, "{model}");
        assert!(imported.remarks.iter().any(|remark| remark.contains("keeps no logits")), "{model}");
    }
    // Without Liger it is trl's own; labels that are smoothed it computes with all logits, and nothing stands in.
    let of = |key: &str| {
        let text = format!(
            "model = AutoModelForCausalLM.from_pretrained(\"Qwen/Qwen3-8B\")\nargs = SFTConfig(output_dir=\"out\", {key})\n"
        );
        let imported = imported(&[("train.py", &text)]);
        (
            scenario(&imported)["training"]["loss_impl"].clone(),
            imported.remarks.iter().any(|r| r.contains("keeps no logits")),
        )
    };
    assert_eq!(of("use_liger_kernel=False"), (json!("fused-lm-head"), true));
    assert_eq!(of("use_liger_kernel=True"), (json!("fused-lm-head"), true));
    assert_eq!(of("label_smoothing_factor=0.1"), (Value::Null, false));
}

/// `use_liger_kernel` is all that Liger has for a model, and its loss where the loop computes none of its own.
#[test]
fn liger_takes_the_place_of_norms_and_of_the_loss() {
    let of = |arguments: &str, model: &str, key: &str| {
        let text = format!(
            "model = AutoModelForCausalLM.from_pretrained(\"{model}\")\nargs = {arguments}(output_dir=\"out\", {key})\n"
        );
        let imported = imported(&[("train.py", &text)]);
        let said = scenario(&imported)["training"].clone();
        let remarked = imported.remarks.iter().any(|remark| remark.contains("Liger's norms"));
        (said["kernels"].clone(), said["loss_impl"].clone(), remarked)
    };
    let (liger, fused, tiles) = (json!("liger"), json!("fused-linear"), json!("fused-lm-head"));
    let whole = "use_liger_kernel=True";
    assert_eq!(of("SFTConfig", "Qwen/Qwen3-8B", whole), (liger.clone(), tiles, false));
    assert_eq!(of("TrainingArguments", "Qwen/Qwen3-8B", whole), (liger.clone(), fused.clone(), false));
    let config = |said: &str| format!("{whole}, liger_kernel_config={{{said}}}");
    let kept = config("\"fused_linear_cross_entropy\": False");
    assert_eq!(of("TrainingArguments", "Qwen/Qwen3-8B", &kept), (liger, Value::Null, false));
    let loss_alone = config("\"rope\": False, \"rms_norm\": False, \"swiglu\": False");
    assert_eq!(of("TrainingArguments", "Qwen/Qwen3-8B", &loss_alone), (Value::Null, fused.clone(), false));
    // Norms without the rest are not followed, nor what Liger makes of experts.
    assert_eq!(
        of("TrainingArguments", "Qwen/Qwen3-8B", &config("\"rope\": False")),
        (Value::Null, fused.clone(), true)
    );
    assert_eq!(of("TrainingArguments", "Qwen/Qwen3-30B-A3B", whole), (Value::Null, fused, true));
}

/// What SFTTrainer does by itself depends on the model, which may be known from elsewhere.
#[test]
fn the_model_may_stand_elsewhere() {
    let of = |model: Option<&Value>| {
        let text = "args = SFTConfig(output_dir=\"out\", max_length=512)\n".to_owned();
        let read = read_for(&[Source { name: "train.py".to_owned(), text }], None, model).unwrap();
        read.scenario.get("training").and_then(|training| training.get("loss_impl")).cloned()
    };
    assert_eq!(of(None), None);
    assert_eq!(of(Some(&json!({ "catalog": "qwen3-0.6b" }))), Some(json!("fused-lm-head")));
    assert_eq!(of(Some(&json!({ "hf": { "model_type": "llama" } }))), Some(json!("fused-lm-head")));
    assert_eq!(of(Some(&json!({ "catalog": "t5-small" }))), None);
}

/// Each sample of DPO is a pair whose sequences run together; the reference is the model without its adapters, or a copy of it.
#[test]
fn dpo_runs_pairs_beside_a_reference() {
    let of = |adapters: &str, key: &str| {
        let text = format!(
            "model = AutoModelForCausalLM.from_pretrained(\"Qwen/Qwen3-8B\")\n{adapters}\nargs = DPOConfig(output_dir=\"out\", \
             per_device_train_batch_size=2, beta=0.1, loss_type=[\"sigmoid\"], {key})\n"
        );
        imported(&[("train.py", &text)])
    };
    let full = of("", "max_length=512");
    assert!(said(&full, Outcome::Unknown).is_empty(), "{full:#?}");
    assert!(full.remarks.iter().any(|remark| remark.contains("a pair is two sequences")), "{full:#?}");
    holds(
        &scenario(&full),
        &[
            ("input.batch", json!(4)),
            ("input.seq", json!(512)),
            ("training.loss_impl", json!("fused-lm-head")),
            ("training.trainer", json!("transformers")),
            ("training.reference_model", json!(true)),
            ("training.checkpointing", json!("full")),
        ],
    );
    assert_eq!(scenario(&of("", "precompute_ref_log_probs=True"))["training"]["reference_model"], Value::Null);
    let adapted = scenario(&of("peft_config = LoraConfig(r=16, lora_dropout=0.1)", "max_length=512"));
    assert_eq!(adapted["training"]["reference_model"], Value::Null, "the base is there already");
    assert_eq!(adapted["training"]["lora"]["dropout"], json!(0.0), "DPOTrainer drops nothing out");
    let dropping = scenario(&of("peft_config = LoraConfig(r=16, lora_dropout=0.1)", "disable_dropout=False"));
    assert_eq!(dropping["training"]["lora"]["dropout"], json!(0.1), "unless it is told to");
    // Over several cards a model beside it is not estimated, and not passed over.
    let cut = of("", "fsdp=\"full_shard auto_wrap\"");
    assert!(cut.remarks.iter().any(|remark| remark.contains("comes on top")), "{cut:#?}");
}

/// What is not estimated of trl is not passed over.
#[test]
fn other_trainers_are_told_apart() {
    let text = "model = AutoModelForCausalLM.from_pretrained(\"Qwen/Qwen3-8B\")\nargs = GRPOConfig(output_dir=\"out\", num_generations=8)\n";
    let imported = imported(&[("train.py", text)]);
    assert_eq!(said(&imported, Outcome::Unknown), ["num_generations"]);
    assert!(imported.remarks.iter().any(|remark| remark.contains("SFTTrainer and DPOTrainer are estimated")));
}
