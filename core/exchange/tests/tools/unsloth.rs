//! Unsloth's notebooks.

use plimsoll_exchange::Outcome;
use serde_json::json;

use super::{holds, imported, said, scenario};

#[test]
fn unsloth_notebook() {
    let text = r#"
from unsloth import FastLanguageModel
max_seq_length = 2048 # any
model, tokenizer = FastLanguageModel.from_pretrained(model_name = "unsloth/Qwen3-8B-unsloth-bnb-4bit", max_seq_length = max_seq_length, load_in_4bit = True)
model = FastLanguageModel.get_peft_model(model, r = 16, target_modules = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj",],
    lora_alpha = 16, lora_dropout = 0, bias = "none", use_gradient_checkpointing = "unsloth", random_state = 3407)
trainer = SFTTrainer(model = model, args = SFTConfig(per_device_train_batch_size = 2, gradient_accumulation_steps = 4, optim = "adamw_8bit"))
"#;
    let imported = imported(&[("", text)]);
    assert!(said(&imported, Outcome::Unknown).is_empty(), "{imported:#?}");
    assert!(said(&imported, Outcome::NotEstimated).is_empty(), "{imported:#?}");
    holds(
        &scenario(&imported),
        &[
            ("model.catalog", json!("qwen3-8b")),
            ("input.seq", json!(2048)),
            ("training.activation_offloading", json!("checkpoint-inputs")),
            ("training.kernels", json!("liger")),
            ("input.batch", json!(2)),
            ("training.accumulation", json!(4)),
            ("training.quantization", json!("nf4")),
            ("training.optimizer", json!("adamw-8bit")),
            ("training.checkpointing", json!("reentrant")),
            ("training.lora.rank", json!(16)),
        ],
    );
}
