//! Lightning: `Trainer(...)` in Python, and the YAML of its command line.

use plimsoll_scenario::ParallelStrategy;
use serde_json::Value;

use super::common::{clip, row};
use crate::draft::{Draft, Dtype};
use crate::rule::{Does, Heard, Rule, count};

use Does::{Beyond, By, Count, Free};

/// `Trainer()`: 32-true, no accumulation, the norm not clipped.
pub fn defaults(draft: &mut Draft) {
    draft.weights = Some(Dtype::Float32);
    draft.bf16 = Some(false);
    draft.accumulation = Some(1);
    draft.clip = Some(false);
}

fn precision(draft: &mut Draft, value: &Value) -> Heard {
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let (weights, bf16, fp16) = match text.as_str() {
        "32-true" | "32" => (Dtype::Float32, false, false),
        "bf16-mixed" | "bf16" => (Dtype::Float32, true, false),
        "16-mixed" | "16" => (Dtype::Float32, false, true),
        "bf16-true" => (Dtype::Bfloat16, false, false),
        "16-true" => (Dtype::Float16, false, false),
        _ => return Heard::wrong("32-true, bf16-mixed, 16-mixed, bf16-true or 16-true"),
    };
    draft.weights = Some(weights);
    draft.bf16 = Some(bf16);
    draft.fp16 = Some(fp16);
    Heard::Taken
}

fn strategy(draft: &mut Draft, value: &Value) -> Heard {
    use ParallelStrategy as S;
    let Some(word) = value.as_str() else { return Heard::wrong("the name of a strategy") };
    draft.strategy = Some(match word.trim_end_matches("_offload") {
        "ddp" | "ddp_spawn" | "ddp_notebook" => S::Ddp,
        "ddp_find_unused_parameters_true" => {
            draft.find_unused = Some(true);
            S::Ddp
        }
        "fsdp" => S::Fsdp1,
        "deepspeed_stage_1" => S::Zero1,
        "deepspeed" | "deepspeed_stage_2" => S::Zero2,
        "deepspeed_stage_3" => S::Zero3,
        _ => return Heard::Beyond(format!("{word} is not estimated")),
    });
    if word.ends_with("_offload") {
        return Heard::Beyond("what is offloaded is estimated on the card".to_owned());
    }
    Heard::Taken
}

fn devices(draft: &mut Draft, value: &Value) -> Heard {
    draft.per_node = match value {
        Value::Array(ids) => u64::try_from(ids.len()).ok(),
        other => match count(other) {
            Some(cards) => Some(cards),
            // -1: all that there are.
            None => return Heard::Silent,
        },
    };
    Heard::Taken
}

/// The rows, within `trainer` and as arguments.
pub const RULES: &[Rule] = &[
    row("trainer.precision", By(precision)),
    row("trainer.strategy", By(strategy)),
    row("trainer.devices", By(devices)),
    row("trainer.num_nodes", Count(|d| &mut d.nodes)),
    row("trainer.accumulate_grad_batches", Count(|d| &mut d.accumulation)),
    row("trainer.gradient_clip_val", By(clip)),
    row("trainer.plugins", Beyond("plugins are not estimated")),
    row("trainer.*", Free),
    row("precision", By(precision)),
    row("strategy", By(strategy)),
    row("devices", By(devices)),
    row("num_nodes", Count(|d| &mut d.nodes)),
    row("accumulate_grad_batches", Count(|d| &mut d.accumulation)),
    row("gradient_clip_val", By(clip)),
    row("max_epochs", Free),
    row("max_steps", Free),
    row("accelerator", Free),
    row("logger", Free),
    row("callbacks", Free),
    row("enable_*", Free),
    row("log_every_n_steps", Free),
    row("val_check_interval", Free),
    row("default_root_dir", Free),
    row("benchmark", Free),
    row("deterministic", Free),
    row("gradient_clip_algorithm", Free),
    row("data.batch_size", Count(|d| &mut d.batch)),
    row("data.init_args.batch_size", Count(|d| &mut d.batch)),
    row("data.*", Free),
    row("model.*", Free),
    row("optimizer.class_path", By(super::common::optimizer_class)),
    row("optimizer.*", Free),
    row("lr_scheduler.*", Free),
    row("seed_everything", Free),
    row("ckpt_path", Free),
];
