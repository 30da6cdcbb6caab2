//! Words that several tools share.

use plimsoll_scenario::{
    ActivationOffloading, Attention, Optimizer, OptimizerImpl, ParallelStrategy, PolicyDtype, QuantStorage, Reshard,
};
use serde_json::Value;

use crate::draft::{Draft, Dtype, Recomputed, Targets};
use crate::rule::{Does, Heard, Rule, count, flag, names, number};

/// What is said of activations that a tool puts into the machine's memory with code of its own.
pub const OWN_OFFLOADING: &str = "its own offloading is not estimated; activation_offloading = \"offload-activations\" is, which is TRL's, \"save-on-cpu\", PyTorch's, and \"checkpoint-inputs\", LLaMA-Factory's";

/// A row.
pub const fn row(key: &'static str, does: Does) -> Rule {
    Rule { key, does }
}

/// Whether activations wait in the machine's memory under TRL's `OffloadActivations`.
pub fn offloads(draft: &mut Draft, value: &Value) -> Heard {
    match flag(value) {
        Some(on) => {
            draft.offloading =
                Some(if on { ActivationOffloading::OffloadActivations } else { ActivationOffloading::None });
            Heard::Taken
        }
        None => Heard::wrong("true or false"),
    }
}

/// The model's name.
pub fn model(draft: &mut Draft, value: &Value) -> Heard {
    match value.as_str() {
        Some(name) => {
            draft.model = Some(name.to_owned());
            Heard::Taken
        }
        None => Heard::wrong("a name"),
    }
}

/// What the weights are loaded in.
pub fn weights(draft: &mut Draft, value: &Value) -> Heard {
    match value.as_str().and_then(Dtype::named) {
        Some(dtype) => {
            draft.weights = Some(dtype);
            Heard::Taken
        }
        None => Heard::wrong("float32, float16 or bfloat16"),
    }
}

/// `attn_implementation`.
pub fn attention(draft: &mut Draft, value: &Value) -> Heard {
    draft.attention = Some(match value.as_str().unwrap_or_default() {
        "sdpa" => Attention::Sdpa,
        "eager" => Attention::Eager,
        // What flash_attn keeps is what PyTorch's own flash kernel keeps: the output and a logsumexp.
        "flash_attention_2" | "flash_attention_3" | "flash_attn" | "fa2" | "kernels-community/flash-attn" => {
            draft.remark("flash-attention is taken as sdpa, whose flash kernel keeps the same");
            Attention::Sdpa
        }
        _ => return Heard::wrong("sdpa, eager or flash_attention_2"),
    });
    Heard::Taken
}

/// `bnb_4bit_quant_type`: what is kept is the same for both.
pub fn quant_type(_: &mut Draft, value: &Value) -> Heard {
    match value.as_str() {
        Some("nf4" | "fp4") => Heard::Taken,
        _ => Heard::wrong("nf4 or fp4"),
    }
}

/// `bnb_4bit_quant_storage`.
pub fn quant_storage(draft: &mut Draft, value: &Value) -> Heard {
    draft.quant_storage = value.as_str().and_then(|word| match Dtype::named(word) {
        Some(Dtype::Float32) => Some(QuantStorage::Float32),
        Some(Dtype::Float16) => Some(QuantStorage::Float16),
        Some(Dtype::Bfloat16) => Some(QuantStorage::Bfloat16),
        None => (word.trim_start_matches("torch.") == "uint8").then_some(QuantStorage::Uint8),
    });
    match draft.quant_storage {
        Some(_) => Heard::Taken,
        None => Heard::wrong("uint8, float16, bfloat16 or float32"),
    }
}

/// `bnb_4bit_compute_dtype`.
pub fn compute_dtype(draft: &mut Draft, value: &Value) -> Heard {
    match value.as_str().and_then(Dtype::named) {
        Some(dtype) => {
            draft.weights = draft.weights.or(Some(dtype));
            Heard::Taken
        }
        None => Heard::wrong("float32, float16 or bfloat16"),
    }
}

/// Which modules carry adapters.
pub fn targets(draft: &mut Draft, value: &Value) -> Heard {
    let Some(names) = names(value) else { return Heard::wrong("names of modules") };
    let all = names.iter().any(|name| matches!(name.as_str(), "all-linear" | "all" | "all_linear"));
    draft.targets = Some(if all { Targets::All } else { Targets::Names(names) });
    Heard::Taken
}

/// `modules_to_save`.
pub fn save(draft: &mut Draft, value: &Value) -> Heard {
    match names(value) {
        Some(names) => {
            draft.save = Some(names);
            Heard::Taken
        }
        None => Heard::wrong("names of modules"),
    }
}

/// The rank of adapters, which is also what says that there are some.
pub fn rank(draft: &mut Draft, value: &Value) -> Heard {
    match count(value) {
        Some(rank) => {
            draft.rank = Some(rank);
            Heard::Taken
        }
        None => Heard::wrong("a whole number of 1 or more"),
    }
}

/// `max_grad_norm`: clipped unless it is 0.
pub fn clip(draft: &mut Draft, value: &Value) -> Heard {
    match number(value) {
        Some(norm) => {
            draft.clip = Some(norm > 0.0);
            Heard::Taken
        }
        None => Heard::wrong("a number"),
    }
}

/// `activation_checkpoint.mode` of torchtitan, `ac_mode` of torchtune. `selective` leaves it at [`recomputed`] which part.
pub fn recompute(draft: &mut Draft, value: &Value) -> Heard {
    match value.as_str() {
        Some(mode @ ("full" | "selective")) => (draft.checkpointing, draft.partly) = (Some(true), mode == "selective"),
        Some("none") => draft.checkpointing = Some(false),
        Some(other) => {
            draft.checkpointing = Some(false);
            return Heard::Beyond(format!(
                "{other} is not estimated: nothing is recomputed; say full, selective or none"
            ));
        }
        None => return Heard::wrong("full, none or selective"),
    }
    Heard::Taken
}

/// `selective_ac_option` of torchtitan, `ac_option` of torchtune: a number of layers, of which one is recomputed, or `op`.
pub fn recomputed(draft: &mut Draft, value: &Value) -> Heard {
    draft.recomputed = match (value.as_str(), count(value)) {
        (Some("op"), _) => Some(Recomputed::Cheap),
        (_, Some(every @ 1..)) => Some(Recomputed::Every(every)),
        _ => return Heard::wrong("op, or a number of layers"),
    };
    Heard::Taken
}

/// The name that we give to the policy of torchtitan where we write it down.
pub const KEEPS: &str = "keep_selected";

/// `context_fn` of a checkpoint: what it keeps is known of our own alone.
pub fn keeps(draft: &mut Draft, value: &Value) -> Heard {
    match value.as_str() {
        Some(KEEPS) => {
            (draft.partly, draft.recomputed) = (true, Some(Recomputed::Cheap));
            Heard::Taken
        }
        Some(_) => Heard::Beyond("which operators it keeps is not known: what is recomputed is estimated whole".into()),
        None => Heard::wrong("a function"),
    }
}

/// A way of training that is not estimated; of those in `paired` each sample is two sequences that run together.
pub fn beyond_fine_tuning(draft: &mut Draft, way: &str, paired: &[&str]) -> Heard {
    if paired.contains(&way) {
        draft.pairs = true;
        return Heard::Beyond(format!(
            "{way}: its pairs are estimated as two sequences that are fine-tuned, without a reference"
        ));
    }
    Heard::Beyond(format!("{way} is not estimated: fine-tuning with these arguments is"))
}

/// Liger's kernels, all that there are for the model; its loss too, but where trl computes one of its own.
pub fn liger(draft: &mut Draft, value: &Value) -> Heard {
    draft.liger = flag(value);
    if draft.liger.is_some() { Heard::Taken } else { Heard::wrong("true or false") }
}

/// `CUDA_VISIBLE_DEVICES=0,1`.
pub fn visible(draft: &mut Draft, value: &Value) -> Heard {
    let cards = match value {
        Value::String(text) => text.split(',').filter(|id| !id.trim().is_empty()).count(),
        _ => 1,
    };
    draft.per_node = draft.per_node.or(u64::try_from(cards).ok().filter(|cards| *cards > 0));
    Heard::Taken
}

/// An optimizer by the name that transformers' `optim` has for it, which most tools use too.
pub fn optim(draft: &mut Draft, value: &Value) -> Heard {
    use Optimizer as O;
    use OptimizerImpl as I;
    let Some(name) = value.as_str() else { return Heard::wrong("the name of an optimizer") };
    let (optimizer, implementation) = match name {
        "adamw_torch" => (O::AdamW, Some(I::Foreach)),
        "adamw_torch_fused" => (O::AdamW, Some(I::Fused)),
        "adamw_hf" => (O::AdamW, Some(I::ForLoop)),
        "adamw_bnb_8bit" | "adamw_8bit" => (O::AdamW8bit, None),
        "paged_adamw_32bit" | "paged_adamw" => (O::PagedAdamW, None),
        "paged_adamw_8bit" => (O::PagedAdamW8bit, None),
        "adafactor" => (O::Adafactor, None),
        "sgd" => (O::Sgd, Some(I::Foreach)),
        "adagrad" => (O::Adagrad, Some(I::Foreach)),
        "rmsprop" => (O::RmsProp, Some(I::Foreach)),
        "lion_32bit" => (O::Lion, Some(I::Fused)),
        "muon" => (O::Muon, None),
        other => return Heard::Beyond(format!("{other} is not estimated: AdamW stands for it")),
    };
    draft.optimizer = Some(optimizer);
    draft.implementation = implementation;
    Heard::Taken
}

/// A class of PyTorch's or bitsandbytes', by its dotted name.
pub fn optimizer_class(draft: &mut Draft, value: &Value) -> Heard {
    use Optimizer as O;
    let Some(name) = value.as_str() else { return Heard::wrong("the name of an optimizer") };
    let last = name.rsplit('.').next().unwrap_or(name).to_ascii_lowercase();
    draft.optimizer = Some(match last.as_str() {
        "sgd" => O::Sgd,
        "adam" | "fusedadam" => O::Adam,
        "adamw" | "deepspeedcpuadam" => O::AdamW,
        "adamw8bit" => O::AdamW8bit,
        "pagedadamw" | "pagedadamw32bit" => O::PagedAdamW,
        "pagedadamw8bit" => O::PagedAdamW8bit,
        "adafactor" if name.contains("transformers") => O::Adafactor,
        "adafactor" => O::AdafactorTorch,
        "adagrad" => O::Adagrad,
        "rmsprop" => O::RmsProp,
        "nadam" => O::NAdam,
        "adamax" => O::Adamax,
        "lion" => O::Lion,
        "muon" => O::Muon,
        other => return Heard::Beyond(format!("{other} is not estimated: AdamW stands for it")),
    });
    Heard::Taken
}

/// `fused=True`.
pub fn fused(draft: &mut Draft, value: &Value) -> Heard {
    match flag(value) {
        Some(on) => {
            if on {
                draft.implementation = Some(OptimizerImpl::Fused);
            }
            Heard::Taken
        }
        None => Heard::wrong("true or false"),
    }
}

/// `foreach=True`.
pub fn foreach(draft: &mut Draft, value: &Value) -> Heard {
    match flag(value) {
        Some(on) => {
            draft.implementation = Some(if on { OptimizerImpl::Foreach } else { OptimizerImpl::ForLoop });
            Heard::Taken
        }
        None => Heard::wrong("true or false"),
    }
}

/// A type of FSDP's policy.
pub fn policy(value: &Value) -> Option<PolicyDtype> {
    Some(match Dtype::named(value.as_str()?)? {
        Dtype::Float32 => PolicyDtype::Fp32,
        Dtype::Float16 => PolicyDtype::Fp16,
        Dtype::Bfloat16 => PolicyDtype::Bf16,
    })
}

/// `MixedPrecisionPolicy.param_dtype`.
pub fn param_dtype(draft: &mut Draft, value: &Value) -> Heard {
    draft.param_dtype = policy(value);
    if draft.param_dtype.is_some() { Heard::Taken } else { Heard::wrong("float32, float16 or bfloat16") }
}

/// `MixedPrecisionPolicy.reduce_dtype`.
pub fn reduce_dtype(draft: &mut Draft, value: &Value) -> Heard {
    draft.reduce_dtype = policy(value);
    if draft.reduce_dtype.is_some() { Heard::Taken } else { Heard::wrong("float32, float16 or bfloat16") }
}

/// FSDP's version, 1 or 2.
pub fn fsdp_version(draft: &mut Draft, value: &Value) -> Heard {
    draft.strategy = Some(match count(value) {
        Some(1) => ParallelStrategy::Fsdp1,
        Some(2) => ParallelStrategy::Fsdp2,
        _ => return Heard::wrong("1 or 2"),
    });
    Heard::Taken
}

/// `reshard_after_forward`, of either version.
pub fn reshard(draft: &mut Draft, value: &Value) -> Heard {
    draft.reshard = match (flag(value), value.as_str()) {
        (Some(true), _) | (_, Some("FULL_SHARD" | "always")) => Some(Reshard::True),
        (Some(false), _) | (_, Some("SHARD_GRAD_OP" | "never")) => Some(Reshard::False),
        (_, Some("default")) => Some(Reshard::Unset),
        _ => return Heard::wrong("true or false"),
    };
    Heard::Taken
}

/// Adapters and quantization of an `adapter` key: `lora`, `qlora`.
pub fn adapter(draft: &mut Draft, value: &Value) -> Heard {
    match value.as_str() {
        Some("lora") => draft.adapters = Some(true),
        Some("qlora") => {
            draft.adapters = Some(true);
            draft.four_bit = draft.four_bit.or(Some(true));
        }
        Some("full") => draft.adapters = Some(false),
        Some(other) => return Heard::Beyond(format!("{other} is not estimated")),
        None => return Heard::wrong("lora or qlora"),
    }
    Heard::Taken
}
