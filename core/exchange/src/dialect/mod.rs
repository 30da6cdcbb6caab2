//! One row a tool: how its files are told apart, what it does where they say nothing, and its keys.

mod accelerate;
mod axolotl;
mod budget;
mod common;
pub use common::KEEPS;
pub use plain::OFFLOADED;
mod deepspeed;
mod fsdp;
mod launcher;
mod liger;
mod lightning;
mod llama_factory;
mod plain;
mod swift;
mod torchtitan;
mod torchtune;
mod transformers;
mod unsloth;

use serde_json::Value;

use crate::draft::Draft;
use crate::rule::{Heard, Rule};
use crate::syntax::Group;

/// A tool, or one of the calls that are given to it.
#[derive(Debug)]
pub struct Dialect {
    /// What it is called.
    pub name: &'static str,
    /// Its keys: the first row that fits counts.
    pub keys: &'static [&'static [Rule]],
    /// What it does where nothing is said.
    pub defaults: fn(&mut Draft),
    /// What is called in Python: the last parts of a dotted name.
    pub calls: &'static [&'static str],
    /// The first words of a command.
    pub commands: &'static [&'static str],
    /// Keys that its files have and others' have not.
    pub marks: &'static [&'static str],
    /// What the name of the call itself says.
    pub called: Option<fn(&mut Draft, &Value) -> Heard>,
}

/// A row without calls, commands and marks.
const NONE: Dialect = Dialect {
    name: "",
    keys: &[],
    defaults: transformers::nothing,
    calls: &[],
    commands: &[],
    marks: &[],
    called: None,
};

/// All of them. What one of them does by itself holds against those before it.
pub const DIALECTS: &[Dialect] = &[
    Dialect {
        name: "Lightning",
        keys: &[lightning::RULES],
        defaults: lightning::defaults,
        calls: &["Trainer"],
        commands: &["lightning"],
        marks: &[
            "trainer.accelerator",
            "trainer.devices",
            "trainer.precision",
            "trainer.max_epochs",
            "seed_everything",
        ],
        ..NONE
    },
    Dialect {
        name: "transformers' from_pretrained",
        keys: &[transformers::NAMED, transformers::LOADED],
        calls: &["from_pretrained"],
        ..NONE
    },
    Dialect { name: "transformers' from_config", keys: &[transformers::LOADED], calls: &["from_config"], ..NONE },
    Dialect {
        name: "transformers' TrainingArguments",
        keys: &[transformers::ARGUMENTS, fsdp::RULES],
        defaults: transformers::arguments,
        calls: &["TrainingArguments", "Seq2SeqTrainingArguments"],
        marks: &["per_device_train_batch_size", "output_dir", "per_device_eval_batch_size", "logging_steps", "optim"],
        ..NONE
    },
    Dialect {
        name: "trl's SFTConfig",
        keys: &[transformers::ARGUMENTS, fsdp::RULES, transformers::LORA, transformers::QUANTIZED],
        defaults: transformers::sft,
        calls: &["SFTConfig"],
        commands: &["trl sft"],
        ..NONE
    },
    Dialect {
        name: "trl's DPOConfig",
        keys: &[
            transformers::PAIRED,
            transformers::ARGUMENTS,
            fsdp::RULES,
            transformers::LORA,
            transformers::QUANTIZED,
        ],
        defaults: transformers::dpo,
        calls: &["DPOConfig"],
        commands: &["trl dpo"],
        ..NONE
    },
    Dialect {
        name: "another trainer of trl's",
        defaults: transformers::others_of_trl,
        keys: &[transformers::ARGUMENTS, fsdp::RULES, transformers::LORA, transformers::QUANTIZED],
        calls: &[
            "GRPOConfig",
            "RLOOConfig",
            "KTOConfig",
            "RewardConfig",
            "ORPOConfig",
            "CPOConfig",
            "PPOConfig",
            "GKDConfig",
            "DistillationConfig",
            "PRMConfig",
            "BCOConfig",
            "OnlineDPOConfig",
        ],
        commands: &["trl grpo", "trl rloo", "trl kto", "trl reward"],
        ..NONE
    },
    Dialect {
        name: "bitsandbytes' config",
        keys: &[transformers::QUANTIZED],
        calls: &["BitsAndBytesConfig"],
        marks: &["bnb_4bit_quant_type", "bnb_4bit_compute_dtype"],
        ..NONE
    },
    Dialect {
        name: "peft's LoraConfig",
        keys: &[transformers::LORA],
        defaults: transformers::lora,
        calls: &["LoraConfig"],
        marks: &["peft_type", "target_modules", "base_model_name_or_path"],
        ..NONE
    },
    Dialect {
        name: "Liger's loader",
        keys: &[transformers::NAMED, liger::KERNELS, transformers::LOADED],
        defaults: liger::applied,
        calls: &["AutoLigerKernelForCausalLM.from_pretrained"],
        ..NONE
    },
    Dialect { name: "Liger's kernels", keys: &[liger::KERNELS], defaults: liger::applied, calls: liger::CALLS, ..NONE },
    Dialect { name: "Unsloth's loader", keys: &[unsloth::LOADED], defaults: unsloth::loaded, calls: UNSLOTH, ..NONE },
    Dialect {
        name: "Unsloth's adapters",
        keys: &[unsloth::ADAPTERS],
        defaults: unsloth::adapters,
        calls: &["FastLanguageModel.get_peft_model", "FastModel.get_peft_model", "FastVisionModel.get_peft_model"],
        ..NONE
    },
    Dialect {
        name: "Axolotl",
        keys: &[axolotl::RULES, fsdp::RULES, transformers::LORA, transformers::QUANTIZED, transformers::ARGUMENTS],
        defaults: axolotl::defaults,
        commands: &["axolotl train"],
        marks: &[
            "base_model",
            "micro_batch_size",
            "sequence_len",
            "sample_packing",
            "lora_target_linear",
            "adapter",
            "val_set_size",
        ],
        ..NONE
    },
    Dialect {
        name: "LLaMA-Factory",
        keys: &[llama_factory::RULES, fsdp::RULES, transformers::LORA, transformers::ARGUMENTS],
        defaults: llama_factory::defaults,
        commands: &["llamafactory-cli train"],
        marks: &[
            "finetuning_type",
            "cutoff_len",
            "stage",
            "template",
            "lora_target",
            "quantization_bit",
            "flash_attn",
            "dataset_dir",
        ],
        ..NONE
    },
    Dialect {
        name: "ms-swift",
        keys: &[swift::RULES, transformers::LORA, transformers::QUANTIZED, transformers::ARGUMENTS],
        defaults: swift::defaults,
        commands: &["swift sft", "swift pt", "megatron sft"],
        marks: &["train_type", "tuner_type", "sft_type", "split_dataset_ratio"],
        ..NONE
    },
    Dialect {
        name: "torchtune",
        keys: &[torchtune::RULES],
        defaults: torchtune::defaults,
        commands: &["tune run"],
        marks: &[
            "model._component_",
            "tokenizer._component_",
            "optimizer._component_",
            "enable_activation_checkpointing",
            "loss._component_",
        ],
        ..NONE
    },
    Dialect {
        name: "torchtitan",
        keys: &[torchtitan::RULES],
        defaults: torchtitan::defaults,
        marks: &[
            "training.local_batch_size",
            "training.seq_len",
            "training.max_context_length",
            "activation_checkpoint.mode",
            "model.flavor",
            "parallelism.data_parallel_shard_degree",
            "parallelism.tensor_parallel_degree",
            "training.num_tokens_per_microbatch_per_dp_rank",
            "job.dump_folder",
        ],
        ..NONE
    },
    Dialect {
        name: "Accelerate",
        keys: &[accelerate::RULES, fsdp::RULES],
        defaults: accelerate::defaults,
        marks: &["distributed_type", "num_processes", "compute_environment", "machine_rank", "main_training_function"],
        ..NONE
    },
    Dialect {
        name: "DeepSpeed",
        keys: &[deepspeed::RULES],
        defaults: deepspeed::defaults,
        marks: &[
            "zero_optimization.stage",
            "train_micro_batch_size_per_gpu",
            "train_batch_size",
            "bf16.enabled",
            "fp16.enabled",
        ],
        ..NONE
    },
    Dialect {
        name: "gpu_optimization",
        keys: &[budget::RULES],
        defaults: budget::defaults,
        marks: &[
            "gpu_optimization.max_memory_gb",
            "gpu_optimization.use_mixed_precision",
            "gpu_optimization.target_utilization",
            "max_memory_gb",
            "use_mixed_precision",
            "gpu_optimization.gradient_accumulation_steps",
            "gpu_optimization.dynamic_batch_sizing",
        ],
        ..NONE
    },
    Dialect {
        name: "torch.autocast",
        keys: &[plain::AUTOCAST],
        defaults: plain::autocast,
        calls: &["torch.autocast", "autocast"],
        ..NONE
    },
    Dialect {
        name: "an optimizer",
        keys: &[plain::OPTIMIZER],
        calls: &[
            "optim.SGD",
            "optim.Adam",
            "optim.AdamW",
            "optim.Adagrad",
            "optim.RMSprop",
            "optim.NAdam",
            "optim.Adamax",
            "optim.Adafactor",
            "optim.Muon",
            "optim.AdamW8bit",
            "optim.PagedAdamW",
            "optim.PagedAdamW8bit",
            "transformers.Adafactor",
            "bnb.optim.Lion",
        ],
        called: Some(common::optimizer_class),
        ..NONE
    },
    Dialect {
        name: "checkpointing",
        defaults: plain::checkpointing,
        keys: &[&[
            common::row("gradient_checkpointing_kwargs.context_fn", crate::rule::Does::By(common::keeps)),
            common::row("gradient_checkpointing_kwargs.use_reentrant", crate::rule::Does::Flag(|d| &mut d.reentrant)),
            common::row("gradient_checkpointing_kwargs.*", crate::rule::Does::Free),
        ]],
        calls: &["gradient_checkpointing_enable"],
        ..NONE
    },
    Dialect { name: "a loop of one's own", defaults: plain::own_loop, calls: &["backward"], ..NONE },
    Dialect {
        name: "register_post_accumulate_grad_hook",
        defaults: plain::steps_in_backward,
        calls: &["register_post_accumulate_grad_hook"],
        ..NONE
    },
    Dialect { name: OFFLOADED, defaults: plain::offloads_inputs, calls: &[OFFLOADED], ..NONE },
    Dialect { name: "save_on_cpu", defaults: plain::saves_on_cpu, calls: &["save_on_cpu"], ..NONE },
    Dialect {
        name: "OffloadActivations",
        defaults: plain::offloads_activations,
        calls: &["get_act_offloading_ctx_manager", "OffloadActivations"],
        ..NONE
    },
    Dialect { name: "clip_grad_norm_", defaults: plain::clips, calls: &["clip_grad_norm_"], ..NONE },
    Dialect {
        name: "prepare_model_for_kbit_training",
        defaults: plain::prepares,
        keys: &[&[
            common::row("use_gradient_checkpointing", crate::rule::Does::Flag(|d| &mut d.checkpointing)),
            common::row("gradient_checkpointing_kwargs.use_reentrant", crate::rule::Does::Flag(|d| &mut d.reentrant)),
        ]],
        calls: &["prepare_model_for_kbit_training"],
        ..NONE
    },
    Dialect { name: "zero_grad", keys: &[plain::ZERO_GRAD], calls: &["zero_grad"], ..NONE },
    Dialect { name: "DataLoader", keys: &[plain::LOADER], calls: &["DataLoader"], ..NONE },
    Dialect {
        name: "DistributedDataParallel",
        keys: &[plain::DDP],
        defaults: plain::ddp,
        calls: &["DistributedDataParallel", "DDP"],
        ..NONE
    },
    Dialect { name: "fully_shard", defaults: plain::fsdp2, calls: &["fully_shard"], ..NONE },
    Dialect { name: "names", keys: &[plain::NAMES], calls: &["="], ..NONE },
];

/// How Unsloth's loader is called.
const UNSLOTH: &[&str] =
    &["FastLanguageModel.from_pretrained", "FastModel.from_pretrained", "FastVisionModel.from_pretrained"];

/// The keys of what starts the processes.
pub const LAUNCHER: &[Rule] = launcher::RULES;

/// The tools whose files are known, for those who ask.
pub fn tools() -> impl Iterator<Item = &'static str> {
    DIALECTS.iter().filter(|dialect| !dialect.marks.is_empty()).map(|dialect| dialect.name)
}

/// What a group is, by its place in the table.
pub fn of(group: &Group) -> Option<usize> {
    if !group.called.is_empty() {
        // The longest name that fits: Unsloth's from_pretrained is not transformers'.
        let call = |name: &&str| group.called == **name || group.called.ends_with(&format!(".{name}"));
        let longest = |dialect: &Dialect| dialect.calls.iter().filter(|name| call(name)).map(|name| name.len()).max();
        let command = |dialect: &Dialect| dialect.commands.iter().any(|words| group.called.starts_with(words));
        let called =
            (0..).zip(DIALECTS).filter_map(|(place, dialect)| longest(dialect).map(|length| (length, place))).max();
        if let Some((_, place)) = called {
            return Some(place);
        }
        if let Some(place) = DIALECTS.iter().position(command) {
            return Some(place);
        }
        // A call of something else.
        if !group.command {
            return None;
        }
    }
    // By the keys that only one of them has: the most of them, the first of those that have as many.
    let marked = |dialect: &Dialect| dialect.marks.iter().filter(|mark| group.get(mark).is_some()).count();
    let best = (0..).zip(DIALECTS).map(|(place, dialect)| (marked(dialect), usize::MAX - place)).max()?;
    (best.0 > 0).then_some(usize::MAX - best.1)
}
