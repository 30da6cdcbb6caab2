//! A model of every row that is small enough to be run a thousand times.

use plimsoll_core::catalog::families::Family;
use serde_json::{Map, Value, json};

/// The side of an image that a small model is asked with.
pub fn side(family: &Family) -> u64 {
    match family.name {
        // The least its second classifier takes.
        "inception" => 299,
        _ => 64,
    }
}

/// `[model]` of a small model of this row; `None` where nobody wrote one yet.
pub fn model(family: &Family) -> Option<Value> {
    if family.is_own() { own(family.name) } else { Some(json!({ "hf": config(family.name)? })) }
}

fn own(name: &str) -> Option<Value> {
    Some(match name {
        "mlp" => json!({ "family": name, "d_in": 6, "hidden": 10, "layers": 3, "d_out": 4 }),
        "nanogpt" => json!({
            "family": name, "n_layer": 2, "n_head": 4, "n_embd": 32, "vocab_size": 100, "block_size": 64,
        }),
        "nbeats" => json!({
            "family": name, "stacks": 2, "layers": 2, "width": 8, "theta": 3, "backcast": 5, "horizon": 4,
        }),
        "gat" => json!({ "family": name, "n_feat": 8, "n_hid": 4, "n_heads": 2, "n_class": 3 }),
        "resnet" => json!({ "family": name, "variant": "resnet18", "num_classes": 4 }),
        "convnext" => json!({ "family": name, "variant": "convnext_tiny", "num_classes": 4 }),
        "swin" => json!({ "family": name, "variant": "swin_t", "num_classes": 4 }),
        "vgg" => json!({ "family": name, "variant": "vgg11", "num_classes": 4 }),
        "mobilenetv2" => json!({ "family": name, "variant": "mobilenet_v2", "num_classes": 4 }),
        "mobilenetv3" => json!({ "family": name, "variant": "mobilenet_v3_small", "num_classes": 4 }),
        "efficientnet" => json!({ "family": name, "variant": "efficientnet_b0", "num_classes": 4 }),
        "inception" => json!({ "family": name, "num_classes": 4 }),
        "densenet" => json!({ "family": name, "variant": "densenet121", "num_classes": 4 }),
        "mnasnet" => json!({ "family": name, "variant": "mnasnet0_5", "num_classes": 4 }),
        "regnet" => json!({ "family": name, "variant": "regnet_y_400mf", "num_classes": 4 }),
        _ => return None,
    })
}

fn config(model_type: &str) -> Option<Value> {
    let text = |more: Value| merged(merged(sizes(), json!({ "model_type": model_type })), more);
    let two_stacks = || {
        json!({
            "model_type": model_type, "vocab_size": 100, "d_model": 32, "encoder_layers": 2, "decoder_layers": 2,
            "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48,
        })
    };
    Some(match model_type {
        "llama" | "mistral" | "ministral3" | "qwen2" | "qwen3" | "granite" | "gemma" | "gemma2" | "gemma3_text"
        | "phi" | "starcoder2" | "stablelm" | "smollm3" | "olmo" | "olmo2" | "olmo3" | "gpt_neox" | "falcon"
        | "glm" | "glm4" => text(json!({})),
        // Full layers with heads of their own, of which the last has nobody's keys and values but the one's before it; experts beside.
        "gemma4_text" => text(json!({
            "num_hidden_layers": 4, "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "full_attention"],
            "head_dim": 8, "global_head_dim": 16, "num_kv_shared_layers": 1, "hidden_size_per_layer_input": 8,
            "vocab_size_per_layer_input": 100, "enable_moe_block": true, "num_experts": 4, "top_k_experts": 2,
            "moe_intermediate_size": 16,
        })),
        "gemma4_unified_text" => text(json!({
            "layer_types": ["sliding_attention", "full_attention"], "head_dim": 8, "global_head_dim": 16,
            "num_global_key_value_heads": 1, "attention_k_eq_v": true,
        })),
        "phi3" => text(json!({ "pad_token_id": 0 })),
        "opt" => text(json!({ "ffn_dim": 48, "word_embed_proj_dim": 32 })),
        "mixtral" | "olmoe" | "gpt_oss" | "qwen2_moe" | "qwen3_moe" => text(json!({
            "num_local_experts": 4, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16,
            "shared_expert_intermediate_size": 16,
        })),
        // A linear layer with a dense one behind it, and an attending one with a mixture.
        "qwen3_next" => text(json!({
            "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "shared_expert_intermediate_size": 16,
            "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8, "linear_value_head_dim": 8,
            "full_attention_interval": 2, "mlp_only_layers": [0], "partial_rotary_factor": 0.5,
        })),
        "qwen3_5_text" | "qwen3_5_moe_text" => text(hybrid()),
        "qwen3_5" | "qwen3_5_moe" => json!({
            "model_type": model_type, "tie_word_embeddings": false,
            "text_config": merged(sizes(), hybrid()),
            "vision_config": merged(tower(), json!({ "intermediate_size": 48, "num_position_embeddings": 16 })),
        }),
        "glm4_moe" => text(json!({
            "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "first_k_dense_replace": 1,
        })),
        "deepseek_v3" => text(json!({
            "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "first_k_dense_replace": 1,
            "n_group": 2, "topk_group": 1, "q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 4,
            "qk_nope_head_dim": 8, "v_head_dim": 8, "num_key_value_heads": 4,
        })),
        "glm4_moe_lite" => text(json!({
            "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "q_lora_rank": 16, "kv_lora_rank": 16,
            "qk_rope_head_dim": 4, "qk_nope_head_dim": 8, "v_head_dim": 8, "num_key_value_heads": 4,
        })),
        "deepseek_v2" => text(json!({
            "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "first_k_dense_replace": 1,
            "q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 4, "qk_nope_head_dim": 8, "v_head_dim": 8,
            "num_key_value_heads": 4,
        })),
        // A layer of either kind: turned, chunked and dense, and neither.
        "llama4_text" => text(json!({
            "num_local_experts": 4, "intermediate_size_mlp": 48, "interleave_moe_layer_step": 2, "no_rope_layer_interval": 2,
            "head_dim": 8,
        })),
        "bert" | "roberta" | "electra" | "deberta-v2" | "modernbert" => {
            text(json!({ "max_position_embeddings": 64, "embedding_size": 32 }))
        }
        "gpt2" => json!({
            "model_type": model_type, "vocab_size": 100, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64,
        }),
        "gptj" => json!({
            "model_type": model_type, "vocab_size": 100, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64,
            "rotary_dim": 4,
        }),
        "gpt_neo" => json!({
            "model_type": model_type, "vocab_size": 100, "hidden_size": 32, "num_layers": 2, "num_heads": 4,
            "max_position_embeddings": 64, "attention_types": [[["global", "local"], 1]],
        }),
        "bloom" => {
            json!({ "model_type": model_type, "vocab_size": 100, "hidden_size": 32, "n_layer": 2, "n_head": 4 })
        }
        "distilbert" => json!({
            "model_type": model_type, "vocab_size": 100, "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48,
            "max_position_embeddings": 64,
        }),
        "t5" => json!({
            "model_type": model_type, "vocab_size": 100, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2,
            "num_heads": 4,
        }),
        "bart" => merged(two_stacks(), json!({ "max_position_embeddings": 64 })),
        "whisper" => {
            merged(two_stacks(), json!({ "max_source_positions": 50, "max_target_positions": 64, "num_mel_bins": 8 }))
        }
        "clip" => json!({
            "model_type": model_type, "projection_dim": 16,
            "text_config": merged(sizes(), json!({ "max_position_embeddings": 16 })),
            "vision_config": merged(sizes(), json!({ "image_size": 32, "patch_size": 8 })),
        }),
        // Its text beside `vision_config`, as published files have it.
        "qwen2_5_vl" => text(json!({
            "rope_scaling": { "type": "mrope", "mrope_section": [1, 1, 2] },
            "vision_config": merged(tower(), json!({ "intermediate_size": 48 })),
        })),
        "qwen3_vl" | "qwen3_vl_moe" => json!({
            "model_type": model_type, "tie_word_embeddings": false,
            "text_config": merged(sizes(), json!({
                "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16,
                "rope_scaling": { "rope_type": "default", "mrope_section": [2, 1, 1] },
            })),
            "vision_config": merged(tower(), json!({
                "intermediate_size": 48, "num_position_embeddings": 16, "deepstack_visual_indexes": [0],
            })),
        }),
        "vit" | "dinov2" => text(json!({ "image_size": 32, "patch_size": 8, "num_labels": 4 })),
        "resnet" => {
            json!({ "model_type": model_type, "embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1], "num_labels": 4 })
        }
        "convnext" => json!({
            "model_type": model_type, "hidden_sizes": [8, 16], "depths": [1, 1], "num_labels": 4, "image_size": 32,
        }),
        "swin" => json!({
            "model_type": model_type, "embed_dim": 8, "depths": [1, 1], "num_heads": [2, 2], "window_size": 2,
            "image_size": 32, "num_labels": 4,
        }),
        _ => return None,
    })
}

/// A tower for images beside a language model.
fn tower() -> Value {
    json!({ "depth": 2, "hidden_size": 16, "num_heads": 2, "patch_size": 4, "out_hidden_size": 32 })
}

/// A linear layer and an attending one, and the sizes of experts where there are some.
fn hybrid() -> Value {
    json!({
        "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "shared_expert_intermediate_size": 16,
        "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8, "linear_value_head_dim": 8,
        "full_attention_interval": 2, "rope_parameters": { "rope_type": "default", "partial_rotary_factor": 0.5 },
    })
}

/// As most configs call them.
fn sizes() -> Value {
    json!({
        "vocab_size": 100, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "tie_word_embeddings": false,
    })
}

fn merged(one: Value, more: Value) -> Value {
    let table = |value| match value {
        Value::Object(table) => table,
        _ => Map::new(),
    };
    Value::Object(table(one).into_iter().chain(table(more)).collect())
}
