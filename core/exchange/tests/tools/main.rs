//! Files as people have them, tool by tool, and what is made of them.

mod reentrant;
mod trl;
mod unsloth;

use plimsoll_exchange::{Imported, Outcome, Source, read};
use plimsoll_scenario::Scenario;
use serde_json::{Value, json};

fn sources(texts: &[(&str, &str)]) -> Vec<Source> {
    texts.iter().map(|(name, text)| Source { name: (*name).to_owned(), text: (*text).to_owned() }).collect()
}

fn imported(texts: &[(&str, &str)]) -> Imported {
    read(&sources(texts), None).unwrap_or_else(|error| panic!("{error}: {}", texts[0].1))
}

fn said(imported: &Imported, outcome: Outcome) -> Vec<&str> {
    let keys = imported.parts.iter().flat_map(|part| &part.keys);
    keys.filter(|key| key.outcome == outcome).map(|key| key.key.as_str()).collect()
}

/// What the scenario is, after it was read with every default.
fn scenario(imported: &Imported) -> Value {
    let value = Value::Object(imported.scenario.clone());
    Scenario::from_value(&value).unwrap_or_else(|error| panic!("{error}; {}\n{value:#}", error.hint)).to_value()
}

fn holds(value: &Value, expected: &[(&str, Value)]) {
    for (path, expected) in expected {
        let found = path.split('.').try_fold(value, |place, step| place.get(step));
        assert_eq!(found, Some(expected), "{path} in {value:#}");
    }
}

const AXOLOTL: &str = "
base_model: Qwen/Qwen3-8B
load_in_4bit: true
adapter: qlora
lora_r: 32
lora_alpha: 16
lora_dropout: 0.05
lora_target_linear: true
sequence_len: 2048
sample_packing: true
micro_batch_size: 2
gradient_accumulation_steps: 4
optimizer: paged_adamw_8bit
lr_scheduler: cosine
learning_rate: 0.0002
bf16: auto
tf32: false
gradient_checkpointing: true
attn_implementation: flash_attention_2
datasets:
  - path: mhenrichsen/alpaca_2k_test
    type: alpaca
val_set_size: 0.05
activation_offloading: true
something_new: 3
";

/// Ways of its own are told, and not taken for TRL's.
#[test]
fn axolotls_own_offloading() {
    for own in ["legacy", "disk", "hidden_states"] {
        let text = AXOLOTL.replace("activation_offloading: true", &format!("activation_offloading: {own}"));
        let imported = imported(&[("qlora.yml", &text)]);
        assert_eq!(said(&imported, Outcome::NotEstimated), ["activation_offloading"]);
        assert_eq!(scenario(&imported)["training"].get("activation_offloading"), None, "{own}");
    }
}

#[test]
fn axolotl() {
    let imported = imported(&[("qlora.yml", AXOLOTL)]);
    assert_eq!(imported.parts[0].tool, "Axolotl");
    assert_eq!(said(&imported, Outcome::Unknown), ["something_new"]);
    assert!(said(&imported, Outcome::NotEstimated).is_empty());
    holds(
        &scenario(&imported),
        &[
            ("model.catalog", json!("qwen3-8b")),
            ("input.batch", json!(2)),
            ("input.seq", json!(2048)),
            ("training.precision", json!("bf16-amp")),
            ("training.activation_offloading", json!("offload-activations")),
            ("training.quantization", json!("nf4")),
            ("training.optimizer", json!("paged-adamw-8bit")),
            ("training.accumulation", json!(4)),
            ("training.checkpointing", json!("reentrant")),
            ("training.lora.rank", json!(32)),
            ("training.lora.dropout", json!(0.05)),
            ("training.lora.targets", json!("all-linear")),
        ],
    );
}

#[test]
fn llama_factory() {
    let text = "
model_name_or_path: meta-llama/Llama-3.1-8B-Instruct
stage: sft
do_train: true
finetuning_type: lora
lora_target: all
dataset: identity
template: llama3
cutoff_len: 4096
output_dir: saves
per_device_train_batch_size: 1
gradient_accumulation_steps: 8
learning_rate: 1.0e-4
bf16: true
";
    let imported = imported(&[("llama3_lora_sft.yaml", text)]);
    assert_eq!(imported.parts[0].tool, "LLaMA-Factory");
    assert!(said(&imported, Outcome::Unknown).is_empty(), "{imported:#?}");
    holds(
        &scenario(&imported),
        &[
            ("model.catalog", json!("llama-3.1-8b")),
            ("input.seq", json!(4096)),
            ("training.precision", json!("bf16-amp")),
            ("training.base_dtype", json!("bfloat16")),
            ("training.checkpointing", json!("reentrant")),
            ("training.lora.rank", json!(8)),
            ("training.optimizer_impl", json!("fused")),
        ],
    );
    // All the weights trained: float32 under autocast, unless pure_bf16.
    let full = text.replace("finetuning_type: lora", "finetuning_type: full");
    let table = scenario(&self::imported(&[("full.yaml", &full)]));
    holds(&table, &[("training.precision", json!("bf16-amp"))]);
    let pure = format!("{full}pure_bf16: true\n");
    let table = scenario(&self::imported(&[("full.yaml", &pure)]));
    holds(&table, &[("training.precision", json!("bf16"))]);
}

#[test]
fn torchtune() {
    let text = "
model:
  _component_: torchtune.models.llama3_1.lora_llama3_1_8b
  lora_attn_modules: ['q_proj', 'v_proj', 'output_proj']
  apply_lora_to_mlp: True
  lora_rank: 8
  lora_alpha: 16
  lora_dropout: 0.0
tokenizer:
  _component_: torchtune.models.llama3.llama3_tokenizer
  max_seq_len: 2048
dataset:
  _component_: torchtune.datasets.alpaca_cleaned_dataset
  packed: False
batch_size: 2
gradient_accumulation_steps: 8
optimizer:
  _component_: torch.optim.AdamW
  fused: True
  lr: 3e-4
loss:
  _component_: torchtune.modules.loss.LinearCrossEntropyLoss
clip_grad_norm: null
compile: False
enable_activation_checkpointing: True
enable_activation_offloading: True
dtype: bf16
";
    let imported = imported(&[("8B_lora_single_device.yaml", text)]);
    assert_eq!(imported.parts[0].tool, "torchtune");
    assert!(said(&imported, Outcome::Unknown).is_empty());
    let names = ["q_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"];
    holds(
        &scenario(&imported),
        &[
            ("model.catalog", json!("llama-3.1-8b")),
            ("training.precision", json!("bf16")),
            ("training.loss_impl", json!("chunked")),
            ("training.activation_offloading", json!("offload-activations")),
            ("training.clip_grad_norm", json!(false)),
            ("training.optimizer_impl", json!("fused")),
            ("training.lora.targets", json!(names)),
        ],
    );
}

#[test]
fn torchtitan_in_three_dialects() {
    let toml = "
[job]
dump_folder = \"./outputs\"
[model]
name = \"llama3\"
flavor = \"8B\"
[optimizer]
name = \"AdamW\"
lr = 3e-4
[training]
local_batch_size = 1
seq_len = 8192
max_norm = 1.0
[parallelism]
data_parallel_shard_degree = -1
tensor_parallel_degree = 1
[activation_checkpoint]
mode = \"full\"
";
    let line = "torchrun --nproc_per_node=8 -m torchtitan.train --model.name llama3 --model.flavor 8B --training.local_batch_size 1 --training.seq_len 8192 --activation_checkpoint.mode full";
    let tokens = "torchrun --nproc_per_node=8 -m torchtitan.train --model.name llama3 --model.flavor 8B --training.max_context_length 8192 --training.num_tokens_per_microbatch_per_dp_rank 8192 --activation_checkpoint.mode full";
    for (name, text) in [("llama3_8b.toml", toml), ("", line), ("", tokens)] {
        let imported = imported(&[(name, text)]);
        assert_eq!(imported.parts[0].tool, "torchtitan", "{text}");
        let table = Value::Object(imported.scenario.clone());
        holds(
            &table,
            &[
                ("model.catalog", json!("llama-3.1-8b")),
                ("input.batch", json!(1)),
                ("input.seq", json!(8192)),
                ("training.precision", json!("fp32")),
                ("training.checkpointing", json!("full")),
            ],
        );
        if name.is_empty() {
            let fsdp = [
                ("parallel.gpus", json!(8)),
                ("parallel.strategy", json!("fsdp2")),
                ("parallel.fsdp.param_dtype", json!("bf16")),
                ("parallel.fsdp.reduce_dtype", json!("fp32")),
            ];
            holds(&table, &fsdp);
        } else {
            assert!(imported.remarks.iter().any(|remark| remark.contains("--gpus")), "{:?}", imported.remarks);
        }
    }
}

/// torchtitan's default is every other layer (`selective_ac_option`, "2" in `config/job_config.py` until it went).
#[test]
fn what_torchtitan_and_torchtune_recompute() {
    let titan = |more: &str| {
        let line = "torchrun --nproc_per_node=8 -m torchtitan.train --model.name llama3 --model.flavor 8B";
        imported(&[("", &format!("{line} {more}"))]).scenario
    };
    let of = |table: serde_json::Map<String, Value>| {
        let training = &table["training"];
        (training["checkpointing"].as_str().map(str::to_owned), training["checkpoint_every"].as_u64())
    };
    let is = |word: &str, every: Option<u64>| (Some(word.to_owned()), every);
    let mode = "--activation_checkpoint.mode";
    assert_eq!(of(titan("--training.seq_len 4096")), is("full", Some(2)));
    let operators = format!("{mode} selective --activation_checkpoint.selective_ac_option op");
    assert_eq!(of(titan(&operators)), is("selective", None));
    let third = format!("{mode} selective --activation_checkpoint.selective_ac_option 3");
    assert_eq!(of(titan(&third)), is("full", Some(3)));
    assert_eq!(of(titan(&format!("{mode} full"))), is("full", None));
    // What the mode does not ask for may stand there all the same, before it or behind.
    let option = "--activation_checkpoint.selective_ac_option op";
    for said in [format!("{mode} full {option}"), format!("{option} {mode} full")] {
        assert_eq!(of(titan(&said)), is("full", None), "{said}");
    }
    assert_eq!(of(titan(&format!("{mode} memory_budget"))), is("none", None));
    assert_eq!(of(titan(&format!("{mode} none"))), is("none", None));
    let tune = "
model:
  _component_: torchtune.models.llama3_1.llama3_1_8b
enable_activation_checkpointing: False
ac_mode: selective
ac_option: 2
dtype: bf16
";
    assert_eq!(of(imported(&[("8B_full.yaml", tune)]).scenario), is("full", Some(2)));
    let whole =
        tune.replace("checkpointing: False", "checkpointing: True").replace("ac_mode: selective", "ac_mode: none");
    assert_eq!(of(imported(&[("8B_full.yaml", &whole)]).scenario), is("full", None));
}

/// A function of one's own that selects what is kept is named as what is not known; ours is.
#[test]
fn a_context_fn_is_ours_or_not_known() {
    let script = |name: &str| {
        format!(
            "model = AutoModelForCausalLM.from_pretrained(\"meta-llama/Llama-3.1-8B\")\n\
             model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={{\"use_reentrant\": False, \"context_fn\": {name}}})\n\
             for batch in loader:\n    model(**batch).loss.backward()\n"
        )
    };
    let ours = imported(&[("train.py", &script("keep_selected"))]);
    assert_eq!(ours.scenario["training"]["checkpointing"], json!("selective"));
    let other = imported(&[("train.py", &script("my_policy"))]);
    assert_eq!(other.scenario["training"]["checkpointing"], json!("full"));
    assert!(!said(&other, Outcome::NotEstimated).is_empty(), "{:?}", other.remarks);
}

#[test]
fn accelerate_with_fsdp_and_the_script_it_starts() {
    let yaml = "
compute_environment: LOCAL_MACHINE
debug: false
distributed_type: FSDP
downcast_bf16: 'no'
fsdp_config:
  fsdp_version: 2
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_reshard_after_forward: true
  fsdp_offload_params: false
  fsdp_activation_checkpointing: true
  fsdp_cpu_ram_efficient_loading: true
machine_rank: 0
mixed_precision: bf16
num_machines: 1
num_processes: 8
";
    let line = "accelerate launch --config_file fsdp.yaml run_clm.py --model_name_or_path Qwen/Qwen3-0.6B --per_device_train_batch_size 4 --block_size 2048 --bf16";
    let imported = imported(&[("fsdp.yaml", yaml), ("run.sh", line)]);
    let tools: Vec<&str> = imported.parts.iter().map(|part| part.tool).collect();
    assert_eq!(tools, ["Accelerate", "transformers' TrainingArguments"]);
    holds(
        &Value::Object(imported.scenario),
        &[
            ("model.catalog", json!("qwen3-0.6b")),
            ("input.batch", json!(4)),
            ("input.seq", json!(2048)),
            ("parallel.gpus", json!(8)),
            ("parallel.strategy", json!("fsdp2")),
            ("parallel.fsdp.reshard_after_forward", json!("true")),
            ("training.checkpointing", json!("full")),
            ("training.precision", json!("bf16-amp")),
        ],
    );
}

#[test]
fn deepspeed() {
    let text = r#"{"train_micro_batch_size_per_gpu": 4, "train_batch_size": 256, "bf16": {"enabled": true}, "gradient_clipping": 1.0,
        "zero_optimization": {"stage": 2, "reduce_bucket_size": 5e8, "offload_optimizer": {"device": "cpu"}}}"#;
    let imported = read(&sources(&[("ds.json", text)]), Some(8)).unwrap();
    assert!(said(&imported, Outcome::NotEstimated).is_empty());
    holds(
        &Value::Object(imported.scenario),
        &[
            ("input.batch", json!(4)),
            ("training.accumulation", json!(8)),
            ("training.clip_grad_norm", json!(true)),
            ("training.precision", json!("bf16")),
            ("parallel.strategy", json!("zero-2")),
            ("parallel.zero.reduce_bucket_size", json!(500_000_000)),
            ("parallel.zero.offload_optimizer", json!("cpu")),
        ],
    );
    let text = r#"{"bf16": {"enabled": true}, "zero_optimization": {"stage": 3, "stage3_prefetch_bucket_size": 1e7,
        "stage3_max_live_parameters": 2e8, "stage3_max_reuse_distance": 0, "stage3_param_persistence_threshold": 5000,
        "sub_group_size": 1e9, "contiguous_gradients": false, "reduce_scatter": true, "offload_param": {"device": "cpu"}}}"#;
    let imported = read(&sources(&[("ds.json", text)]), Some(8)).unwrap();
    assert!(said(&imported, Outcome::NotEstimated).is_empty());
    holds(
        &Value::Object(imported.scenario),
        &[
            ("parallel.strategy", json!("zero-3")),
            ("parallel.zero.prefetch_bucket_size", json!(10_000_000)),
            ("parallel.zero.max_live_parameters", json!(200_000_000)),
            ("parallel.zero.max_reuse_distance", json!(0)),
            ("parallel.zero.param_persistence_threshold", json!(5000)),
            ("parallel.zero.contiguous_gradients", json!(false)),
            ("parallel.zero.offload_param", json!("cpu")),
        ],
    );
    // "auto" is for transformers to say.
    let auto = imported_auto();
    assert!(auto.scenario.get("input").is_none(), "{auto:#?}");
}

fn imported_auto() -> Imported {
    imported(&[(
        "ds.json",
        r#"{"train_micro_batch_size_per_gpu": "auto", "bf16": {"enabled": "auto"}, "zero_optimization": {"stage": 3}}"#,
    )])
}

/// Tools whose files say another way of training than fine-tuning: a pair is two sequences, and what is not estimated is said.
#[test]
fn ways_beyond_fine_tuning_are_told() {
    let axolotl = |rl: &str| imported(&[("axolotl.yaml", &format!("{AXOLOTL}rl: {rl}\n"))]);
    for (way, batch) in [("dpo", 4), ("kto", 2)] {
        let imported = axolotl(way);
        assert!(said(&imported, Outcome::NotEstimated).contains(&"rl"), "{way}");
        holds(&scenario(&imported), &[("input.batch", json!(batch))]);
    }
    let factory = |stage: &str| {
        let text = format!(
            "model_name_or_path: Qwen/Qwen3-8B\nstage: {stage}\nfinetuning_type: lora\nper_device_train_batch_size: 2\n"
        );
        imported(&[("llama.yaml", &text)])
    };
    for (stage, batch, taken) in [("sft", 2, true), ("dpo", 4, false), ("ppo", 2, false)] {
        let imported = factory(stage);
        assert_eq!(said(&imported, Outcome::NotEstimated).contains(&"stage"), !taken, "{stage}");
        holds(&scenario(&imported), &[("input.batch", json!(batch))]);
    }
}

#[test]
fn swift_lightning_and_a_block_of_ones_own() {
    let line = "CUDA_VISIBLE_DEVICES=0 swift sft --model Qwen/Qwen2.5-7B-Instruct --train_type lora --torch_dtype bfloat16 \\\n --per_device_train_batch_size 1 --gradient_accumulation_steps 16 --lora_rank 8 --target_modules all-linear --max_length 2048";
    let table = scenario(&imported(&[("", line)]));
    holds(
        &table,
        &[
            ("model.catalog", json!("qwen2.5-7b")),
            ("training.lora.rank", json!(8)),
            ("training.accumulation", json!(16)),
        ],
    );

    let lightning = "trainer:\n  precision: bf16-mixed\n  devices: 4\n  strategy: ddp\n  accumulate_grad_batches: 2\ndata:\n  batch_size: 16\n";
    let imported_lightning = imported(&[("config.yaml", lightning)]);
    assert_eq!(imported_lightning.parts[0].tool, "Lightning");
    holds(
        &Value::Object(imported_lightning.scenario),
        &[
            ("training.precision", json!("bf16-amp")),
            ("parallel.strategy", json!("ddp")),
            ("parallel.gpus", json!(4)),
            ("input.batch", json!(16)),
        ],
    );

    let block = "gpu_optimization:\n  max_memory_gb: 10\n  use_mixed_precision: true\n  gradient_accumulation_steps: 4\n  dynamic_batch_sizing: true\n  memory_monitoring: true\n  target_utilization: 0.9\n";
    let block = imported(&[("", block)]);
    assert_eq!(block.parts[0].tool, "gpu_optimization");
    holds(
        &Value::Object(block.scenario),
        &[
            ("device.memory", json!("10 GiB")),
            ("device.load_line", json!("9 GiB")),
            ("training.accumulation", json!(4)),
            ("training.precision", json!("bf16-amp")),
        ],
    );
}

#[test]
fn a_config_json_beside_another_tool_is_the_model() {
    let config = r#"{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "num_hidden_layers": 2,
        "num_attention_heads": 4, "intermediate_size": 128, "vocab_size": 1000}"#;
    let imported = imported(&[("a.yml", AXOLOTL), ("config.json", config)]);
    holds(&Value::Object(imported.scenario), &[("model.hf.hidden_size", json!(64))]);
}

#[test]
fn what_is_of_no_tool_is_refused_with_what_is_known() {
    for (name, text) in [
        ("a.yaml", "a: 1"),
        ("", "hello: world"),
        ("x.json", "{}"),
        ("x.json", "[1]"),
        ("t.py", "print(1)"),
        ("a.toml", "[model]\ncatalog = 'gpt2'"),
    ] {
        let error = read(&sources(&[(name, text)]), None).unwrap_err();
        assert!(!error.hint.is_empty(), "{error}");
    }
}

#[test]
fn wrong_values_are_named_and_the_rest_is_taken() {
    let imported = imported(&[(
        "a.yml",
        "base_model: gpt2\nmicro_batch_size: many\nsequence_len: -4\nadapter: 7\nlora_dropout: 2\n",
    )]);
    assert_eq!(said(&imported, Outcome::Wrong), ["micro_batch_size", "sequence_len", "adapter", "lora_dropout"]);
    holds(&Value::Object(imported.scenario), &[("model.catalog", json!("gpt2"))]);
}
