//! `TrainingArguments` of transformers and what it is given with: `SFTConfig` of trl, `LoraConfig` of peft, `BitsAndBytesConfig`,
//! `from_pretrained`. Names and defaults as of transformers 5 and trl 1.

use plimsoll_scenario::{LossImpl, Optimizer, OptimizerImpl, ParallelStrategy};
use serde_json::Value;

use super::common::{
    attention, clip, compute_dtype, keeps, liger, model, offloads, optim, quant_storage, quant_type, rank, row, save,
    targets, weights,
};
use crate::draft::Draft;
use crate::rule::{Does, Heard, Rule, flag};

use Does::{Beyond, By, Chance, Count, Flag, Free};

/// `TrainingArguments()`: batch 8, no accumulation, no checkpointing, the norm clipped at 1; AdamW, fused since PyTorch 2.8
/// (transformers/training_args.py).
pub fn arguments(draft: &mut Draft) {
    draft.batch = Some(8);
    draft.accumulation = Some(1);
    draft.checkpointing = Some(false);
    draft.clip = Some(true);
    draft.optimizer = Some(Optimizer::AdamW);
    draft.implementation = Some(OptimizerImpl::Fused);
    draft.bf16 = Some(false);
    draft.fp16 = Some(false);
    draft.by_trainer = true;
}

/// `SFTConfig()`: checkpointing on, bf16 unless fp16, 1024 tokens (trl/trainer/base_config.py, sft_config.py). Its `nll` keeps no logits
/// since trl 1.7; a quantized base is left as it was loaded since 0.27, and its adapters are cast to bfloat16 (trl/trainer/sft_trainer.py of 1.16).
pub fn sft(draft: &mut Draft) {
    arguments(draft);
    draft.checkpointing = Some(true);
    draft.bf16 = Some(true);
    draft.seq = Some(1024);
    draft.by_trl = true;
}

/// `DPOConfig()`: as `SFTConfig`; each sample is a pair, whose two sequences run together, beside a reference, and nothing is dropped out
/// (trl/trainer/dpo_config.py, dpo_trainer.py of 1.16).
pub fn dpo(draft: &mut Draft) {
    sft(draft);
    draft.pairs = true;
    draft.disable_dropout = true;
    draft.reference = true;
    draft.remark(
        "DPO: a pair is two sequences, which run together, and all positions are taken to count, as if there were no prompt. With adapters the \
         reference is the model without them",
    );
}

/// Trainers of trl that sample, or compare otherwise: their arguments are read, what they do beside is not known.
pub fn others_of_trl(draft: &mut Draft) {
    sft(draft);
    draft.remark(
        "of trl's trainers SFTTrainer and DPOTrainer are estimated: this is SFTTrainer's step with these arguments, without what the trainer \
         that was named generates, scores and holds beside it",
    );
}

/// `LoraConfig()`: rank 8 (peft/tuners/lora/config.py).
pub fn lora(draft: &mut Draft) {
    draft.adapters = Some(true);
    draft.rank = Some(8);
}

/// Nothing said is nothing meant.
pub fn nothing(_: &mut Draft) {}

fn fp16(draft: &mut Draft, value: &Value) -> Heard {
    match flag(value) {
        Some(on) => {
            draft.fp16 = Some(on);
            // trl's bf16 is on unless this is.
            if on {
                draft.bf16 = Some(false);
            }
            Heard::Taken
        }
        None => Heard::wrong("true or false"),
    }
}

fn loss_type(draft: &mut Draft, value: &Value) -> Heard {
    match value.as_str() {
        Some("nll" | "chunked_nll") => {
            draft.by_trl = true;
            Heard::Taken
        }
        Some("dft") => {
            draft.by_trl = true;
            Heard::Beyond("its weights, a number a token, are not estimated".to_owned())
        }
        Some("liger") => {
            draft.loss = Some(LossImpl::FusedLinear);
            Heard::Taken
        }
        _ => Heard::Beyond("this loss is not estimated: the model's own stands for it".to_owned()),
    }
}

fn disable_dropout(draft: &mut Draft, value: &Value) -> Heard {
    match flag(value) {
        Some(on) => {
            draft.disable_dropout = on;
            Heard::Taken
        }
        None => Heard::wrong("true or false"),
    }
}

fn precomputed(draft: &mut Draft, value: &Value) -> Heard {
    match flag(value) {
        Some(on) => {
            draft.reference = !on;
            Heard::Taken
        }
        None => Heard::wrong("true or false"),
    }
}

fn fsdp(draft: &mut Draft, value: &Value) -> Heard {
    let words = match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" "),
        Value::Bool(true) => "full_shard".to_owned(),
        Value::Bool(false) => return Heard::Silent,
        _ => return Heard::wrong("options such as \"full_shard auto_wrap\""),
    };
    draft.strategy = draft.strategy.or(Some(ParallelStrategy::Fsdp1));
    if words.contains("offload") {
        draft.cpu_offload = Some(true);
    }
    Heard::Taken
}

fn deepspeed(_: &mut Draft, value: &Value) -> Heard {
    match value.as_str() {
        Some(file) => Heard::Beyond(format!("DeepSpeed's own file says it: give {file} too")),
        None => Heard::wrong("a file's name"),
    }
}

/// What `DPOConfig` has alone.
pub const PAIRED: &[Rule] = &[
    row("precompute_ref_log_probs", By(precomputed)),
    row("precompute_ref_batch_size", Free),
    row("disable_dropout", By(disable_dropout)),
    row("sync_ref_model", Free),
    row("ref_model_*", Free),
    row("beta", Free),
    row("loss_type", Free),
    row("loss_weights", Free),
    row("f_divergence_type", Free),
    row("f_alpha_divergence_coef", Free),
    row("label_smoothing", Free),
    row("use_weighting", Free),
    row("ld_alpha", Free),
    row("discopop_tau", Free),
    row("truncation_mode", Free),
    row("max_prompt_length", Free),
    row("max_completion_length", Free),
];

/// `target_modules` of peft.
pub const LORA: &[Rule] = &[
    row("r", By(rank)),
    row("lora_r", By(rank)),
    row("lora_rank", By(rank)),
    row("target_modules", By(targets)),
    row("lora_target_modules", By(targets)),
    row("lora_dropout", Chance(|d| &mut d.dropout)),
    row("use_dora", Flag(|d| &mut d.dora)),
    row("modules_to_save", By(save)),
    row("autocast_adapter_dtype", Flag(|d| &mut d.adapters_in_float32)),
    row("base_model_name_or_path", By(model)),
    row("peft_type", Free),
    row("lora_alpha", Free),
    row("bias", Beyond("biases are estimated frozen")),
    row("task_type", Free),
    row("use_rslora", Free),
    row("init_lora_weights", Free),
    row("inference_mode", Free),
    row("fan_in_fan_out", Free),
    row("revision", Free),
    row("rank_pattern", Beyond("one rank is estimated for all modules")),
    row("alpha_pattern", Free),
    row("layers_to_transform", Beyond("adapters are estimated on every layer")),
];

/// `BitsAndBytesConfig`.
pub const QUANTIZED: &[Rule] = &[
    row("load_in_4bit", Flag(|d| &mut d.four_bit)),
    row("load_in_8bit", Flag(|d| &mut d.eight_bit)),
    row("bnb_4bit_use_double_quant", Flag(|d| &mut d.double_quant)),
    row("bnb_4bit_quant_type", By(quant_type)),
    row("bnb_4bit_compute_dtype", By(compute_dtype)),
    row("bnb_4bit_quant_storage", By(quant_storage)),
];

/// What comes first in `from_pretrained`.
pub const NAMED: &[Rule] = &[row("0", By(model))];

/// `from_pretrained` and `from_config`.
pub const LOADED: &[Rule] = &[
    row("pretrained_model_name_or_path", By(model)),
    row("model_name_or_path", By(model)),
    row("model_name", By(model)),
    row("model_id", By(model)),
    row("model", By(model)),
    row("dtype", By(weights)),
    row("torch_dtype", By(weights)),
    row("attn_implementation", By(attention)),
    row("use_cache", Flag(|d| &mut d.use_cache)),
    row("device_map", Free),
    row("trust_remote_code", Free),
    row("quantization_config", Free),
];

/// `TrainingArguments` and what trl adds.
pub const ARGUMENTS: &[Rule] = &[
    row("per_device_train_batch_size", Count(|d| &mut d.batch)),
    row("gradient_accumulation_steps", Count(|d| &mut d.accumulation)),
    row("gradient_checkpointing", Flag(|d| &mut d.checkpointing)),
    row("bf16", Flag(|d| &mut d.bf16)),
    row("fp16", By(fp16)),
    row("optim", By(optim)),
    row("max_grad_norm", By(clip)),
    row("label_smoothing_factor", Chance(|d| &mut d.smoothing)),
    row("torch_compile", Flag(|d| &mut d.compile)),
    row("use_liger_kernel", By(liger)),
    row("use_liger", By(liger)),
    row("liger_kernel_config.rope", Flag(|d| &mut d.liger_parts[0])),
    row("liger_kernel_config.rms_norm", Flag(|d| &mut d.liger_parts[1])),
    row("liger_kernel_config.swiglu", Flag(|d| &mut d.liger_parts[2])),
    row("liger_kernel_config.geglu", Flag(|d| &mut d.liger_parts[2])),
    row("liger_kernel_config.fused_linear_cross_entropy", Flag(|d| &mut d.liger_loss)),
    row("liger_kernel_config.cross_entropy", By(super::liger::cross_entropy)),
    row("use_cache", Flag(|d| &mut d.use_cache)),
    row("max_length", Count(|d| &mut d.seq)),
    row("max_seq_length", Count(|d| &mut d.seq)),
    row("block_size", Count(|d| &mut d.seq)),
    row("packing", Flag(|d| &mut d.packing)),
    row("loss_type", By(loss_type)),
    row("model_name_or_path", By(model)),
    row("dtype", By(weights)),
    row("torch_dtype", By(weights)),
    row("attn_implementation", By(attention)),
    row("model_init_kwargs.dtype", By(weights)),
    row("model_init_kwargs.torch_dtype", By(weights)),
    row("model_init_kwargs.attn_implementation", By(attention)),
    row("ddp_find_unused_parameters", Flag(|d| &mut d.find_unused)),
    row("ddp_bucket_cap_mb", Count(|d| &mut d.bucket_cap_mb)),
    row("ddp_broadcast_buffers", Flag(|d| &mut d.broadcast_buffers)),
    row("ddp_static_graph", Flag(|d| &mut d.static_graph)),
    row("fsdp", By(fsdp)),
    row("deepspeed", By(deepspeed)),
    row("gradient_checkpointing_kwargs.use_reentrant", Flag(|d| &mut d.reentrant)),
    row("gradient_checkpointing_kwargs.context_fn", By(keeps)),
    row("activation_offloading", By(offloads)),
    row("padding_free", Beyond("padded samples are estimated")),
    row("auto_find_batch_size", Beyond("the batch that is given is estimated")),
    row("torch_empty_cache_steps", Beyond("the cache is estimated as it is left")),
    row("neftune_noise_alpha", Beyond("the noise on the embeddings is not estimated")),
    row("galore_*", Beyond("GaLore is not estimated")),
    row("optim_target_modules", Beyond("GaLore, APOLLO and their like are not estimated")),
    row("do_train", Free),
    row("do_eval", Free),
    row("output_dir", Free),
    row("overwrite_output_dir", Free),
    row("per_device_eval_batch_size", Free),
    row("eval_accumulation_steps", Free),
    row("prediction_loss_only", Free),
    row("learning_rate", Free),
    row("weight_decay", Free),
    row("adam_*", Free),
    row("num_train_epochs", Free),
    row("max_steps", Free),
    row("lr_scheduler_type", Free),
    row("lr_scheduler_kwargs.*", Free),
    row("warmup_*", Free),
    row("log_*", Free),
    row("logging_*", Free),
    row("save_*", Free),
    row("eval_*", Free),
    row("evaluation_strategy", Free),
    row("load_best_model_at_end", Free),
    row("metric_for_best_model", Free),
    row("greater_is_better", Free),
    row("seed", Free),
    row("data_seed", Free),
    row("dataloader_*", Free),
    row("dataset_*", Free),
    row("remove_unused_columns", Free),
    row("label_names", Free),
    row("report_to", Free),
    row("run_name", Free),
    row("push_to_hub", Free),
    row("hub_*", Free),
    row("tf32", Free),
    row("ddp_timeout", Free),
    row("resume_from_checkpoint", Free),
    row("disable_tqdm", Free),
    row("group_by_length", Free),
    row("length_column_name", Free),
    row("skip_memory_metrics", Free),
    row("include_*", Free),
    row("full_determinism", Free),
    row("assistant_only_loss", Free),
    row("completion_only_loss", Free),
    row("eos_token", Free),
    row("pad_token", Free),
    row("chat_template_path", Free),
    row("tokenizer_name", Free),
    row("config_name", Free),
    row("train_file", Free),
    row("validation_file", Free),
];
