//! torchtune's YAML, and `key=value` behind `tune run`.

use plimsoll_scenario::LossImpl;
use serde_json::Value;

use super::common::{clip, fused, offloads, optimizer_class, quant_type, rank, recompute, recomputed, row, weights};
use crate::draft::{Draft, Dtype, Targets};
use crate::rule::{Does, Heard, Rule, flag, names};

use Does::{Beyond, By, Chance, Count, Flag, Free};

/// What recipes/configs say where nothing else is said: bfloat16 weights without autocast, the norm not clipped.
pub fn defaults(draft: &mut Draft) {
    draft.weights = Some(Dtype::Bfloat16);
    draft.bf16 = Some(false);
    draft.clip = Some(false);
    draft.adapters = Some(false);
    draft.remark("torchtune's own modules are estimated as transformers' of the same model");
}

/// `apply_selective_activation_checkpointing`, beside `enable_activation_checkpointing`.
fn selects(draft: &mut Draft, value: &Value) -> Heard {
    if value == "none" { Heard::Silent } else { recompute(draft, value) }
}

/// `torchtune.models.llama3_1.qlora_llama3_1_8b`.
fn component(draft: &mut Draft, value: &Value) -> Heard {
    let Some(name) = value.as_str() else { return Heard::wrong("a model of torchtune") };
    let last = name.rsplit('.').next().unwrap_or(name);
    let last = match last.split_once("lora_") {
        Some((q, model)) => {
            draft.adapters = Some(true);
            if q == "q" {
                draft.four_bit = Some(true);
                draft.remark("torchao's NF4 is estimated as bitsandbytes'");
            }
            model
        }
        None => last,
    };
    // `llama3_1_8b` is llama-3.1-8b, `qwen2_5_7b_instruct` qwen2.5-7b.
    let mut called = String::new();
    for word in last.split('_') {
        if !called.is_empty() {
            let digit = |text: &str| text.chars().all(|c| c.is_ascii_digit());
            let version = called.ends_with(|c: char| c.is_ascii_digit()) && digit(word) && !called.contains('.');
            called.push(if version { '.' } else { '-' });
        }
        called.push_str(word);
    }
    draft.model = Some(match called.strip_prefix("llama") {
        Some(rest) if rest.starts_with(|c: char| c.is_ascii_digit()) => format!("llama-{rest}"),
        _ => called,
    });
    Heard::Taken
}

fn attention_modules(draft: &mut Draft, value: &Value) -> Heard {
    match names(value) {
        Some(more) => {
            add(draft, more.iter().map(|name| if name == "output_proj" { "o_proj" } else { name.as_str() }));
            Heard::Taken
        }
        None => Heard::wrong("names of modules"),
    }
}

fn mlp(draft: &mut Draft, value: &Value) -> Heard {
    match flag(value) {
        Some(on) => {
            if on {
                add(draft, ["gate_proj", "up_proj", "down_proj"].into_iter());
            }
            Heard::Taken
        }
        None => Heard::wrong("true or false"),
    }
}

fn add<'n>(draft: &mut Draft, more: impl Iterator<Item = &'n str>) {
    let mut names = match draft.targets.take() {
        Some(Targets::Names(names)) => names,
        _ => Vec::new(),
    };
    for name in more {
        if !names.iter().any(|known| known == name) {
            names.push(name.to_owned());
        }
    }
    draft.targets = Some(Targets::Names(names));
}

/// `OffloadActivations` of torchtune/training/_activation_offloading.py, which TRL's was made from.
fn offloading(draft: &mut Draft, value: &Value) -> Heard {
    let heard = offloads(draft, value);
    if flag(value) == Some(true) {
        draft.remark("torchtune's offloading is estimated as TRL's, which was made from it");
    }
    heard
}

fn loss(draft: &mut Draft, value: &Value) -> Heard {
    let Some(name) = value.as_str() else { return Heard::wrong("a loss") };
    let chunked = name.ends_with("CEWithChunkedOutputLoss") || name.ends_with("LinearCrossEntropyLoss");
    draft.loss = Some(if chunked { LossImpl::Chunked } else { LossImpl::Full });
    Heard::Taken
}

/// The rows.
pub const RULES: &[Rule] = &[
    row("model._component_", By(component)),
    row("model.lora_rank", By(rank)),
    row("model.lora_attn_modules", By(attention_modules)),
    row("model.apply_lora_to_mlp", By(mlp)),
    row("model.apply_lora_to_output", Beyond("the output head is estimated without an adapter")),
    row("model.lora_dropout", Chance(|d| &mut d.dropout)),
    row("model.use_dora", Flag(|d| &mut d.dora)),
    row("model.quantize_base", Flag(|d| &mut d.four_bit)),
    row("model.*", Free),
    row("tokenizer.max_seq_len", Count(|d| &mut d.seq)),
    row("tokenizer.*", Free),
    row("dataset.packed", Flag(|d| &mut d.packing)),
    row("dataset.*", Free),
    row("batch_size", Count(|d| &mut d.batch)),
    row("gradient_accumulation_steps", Count(|d| &mut d.accumulation)),
    row("dtype", By(weights)),
    row("enable_activation_checkpointing", Flag(|d| &mut d.checkpointing)),
    row("ac_mode", By(selects)),
    row("ac_option", By(recomputed)),
    row("enable_activation_offloading", By(offloading)),
    row("optimizer._component_", By(optimizer_class)),
    row("optimizer.fused", By(fused)),
    row("optimizer.*", Free),
    row("optimizer_in_bwd", Flag(|d| &mut d.in_backward)),
    row("loss._component_", By(loss)),
    row("loss.*", Free),
    row("clip_grad_norm", By(clip)),
    row("compile", Flag(|d| &mut d.compile)),
    row("fsdp_cpu_offload", Flag(|d| &mut d.cpu_offload)),
    row("custom_sharded_layers", Free),
    row("tensor_parallel_dim", Count(|d| &mut d.tensor)),
    row("context_parallel_dim", Count(|d| &mut d.context)),
    row("data_parallel_replicate_dim", Count(|d| &mut d.replicate)),
    row("data_parallel_shard_dim", Free),
    row("quantizer.*", Beyond("quantization-aware training is not estimated")),
    row("nproc_per_node", Count(|d| &mut d.per_node)),
    row("nnodes", Count(|d| &mut d.nodes)),
    row("quant_type", By(quant_type)),
    row("checkpointer.*", Free),
    row("output_dir", Free),
    row("metric_logger.*", Free),
    row("profiler.*", Free),
    row("lr_scheduler.*", Free),
    row("resume_from_checkpoint", Free),
    row("save_*", Free),
    row("device", Free),
    row("seed", Free),
    row("shuffle", Free),
    row("epochs", Free),
    row("max_steps_per_epoch", Free),
    row("log_*", Free),
    row("config", Free),
];
