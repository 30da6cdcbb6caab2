"""What the configurations that `configs.py` saves are set to, by model type.

`SETTINGS` has small sizes, so that each can be traced, and what is changed in them one after the other. Keys are those of
any release that had them: today's classes read the names of yesterday.
"""

DECODER = {
    "vocab_size": 500, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4, "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
NO_GROUPS = {key: value for key, value in DECODER.items() if key != "num_key_value_heads"}
ENCODER = {**NO_GROUPS, "max_position_embeddings": 64}

# What any class may be set to.
ANY = [
    {},
    {"num_labels": 5},
    {"id2label": {"0": "no", "1": "perhaps", "2": "yes"}, "label2id": {"no": 0, "perhaps": 1, "yes": 2}},
    {"problem_type": "single_label_classification", "num_labels": 3},
    {"dtype": "bfloat16"},
    {"torch_dtype": "float16"},
    {"output_attentions": False, "output_hidden_states": False, "return_dict": True, "gradient_checkpointing": False},
]
DECODES = [*ANY, {"use_cache": False}, {"pad_token_id": 3}, {"pad_token_id": None}, {"attention_dropout": 0.1}, {"attention_dropout": 0}]
TIES = [{"tie_word_embeddings": True}, {"tie_word_embeddings": False}]
GROUPS = [{"num_key_value_heads": None}, {"num_key_value_heads": 4}, {"num_key_value_heads": 1}]
ROPES = [
    {"rope_theta": 50000.0},
    {"rope_scaling": None},
    {"rope_scaling": {"rope_type": "linear", "factor": 2.0}},
    {"rope_scaling": {"type": "dynamic", "factor": 2.0}},
    {"rope_parameters": {"rope_type": "default", "rope_theta": 50000.0}},
    {"rope_parameters": {"rope_type": "yarn", "rope_theta": 50000.0, "factor": 4.0, "original_max_position_embeddings": 512}},
    {
        "rope_theta": 500000.0,
        "rope_scaling": {
            "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 512,
        },
    },
]
ROTATES = [*DECODES, *TIES, *GROUPS, *ROPES]
HEADS = [{"head_dim": 32}, {"head_dim": None}]
BIAS = [{"attention_bias": True}]
PARTIAL = [{"partial_rotary_factor": 0.25}, {"rope_parameters": {"rope_theta": 10000.0, "partial_rotary_factor": 1.0, "rope_type": "default"}}]
FULL, SLIDES = "full_attention", "sliding_attention"
WINDOWS = [{"sliding_window": 8}, {"sliding_window": None}]
QWEN_WINDOWS = [
    {"use_sliding_window": False, "sliding_window": 8},
    {"use_sliding_window": False, "sliding_window": None},
    {"use_sliding_window": True, "sliding_window": 8},
    {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 2},
    {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 0},
    {"use_sliding_window": True, "sliding_window": None, "max_window_layers": 0},
    {"use_sliding_window": True, "sliding_window": 8, "layer_types": [FULL, SLIDES, FULL, SLIDES]},
]
# Of a model that sees: the tower for images.
TOWER = {"depth": 2, "hidden_size": 32, "intermediate_size": 48, "num_heads": 4, "patch_size": 4, "out_hidden_size": 64}
TOWERS = [{"vision_config": {"spatial_merge_size": 1}}, {"vision_config": {"in_channels": 1, "temporal_patch_size": 1}},
          {"vision_config": {"num_attention_heads": 2}}]
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
LINEAR = {"head_dim": 16, "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 16, "linear_value_head_dim": 16,
          "shared_expert_intermediate_size": 48}
ROUTES = [{"norm_topk_prob": True}, {"num_experts_per_tok": 1}, {"router_aux_loss_coef": 0.1}]
ENCODES = [*ANY, *TIES, {"classifier_dropout": 0.2}, {"classifier_dropout": None}, {"hidden_act": "relu"}, {"type_vocab_size": 1},
           {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}, {"hidden_dropout_prob": 0}, {"pad_token_id": None}]
# As long as ImageNet's.
NAMED = {str(i): "tench, Tinca tinca, or another that has a name as long %d" % i for i in range(1000)}
IMAGES = [*ANY[1:], {"hidden_act": "relu"}, {"id2label": NAMED, "label2id": {name: int(i) for i, name in NAMED.items()}}]
STAGES = {"depths": [1, 1, 2, 1], "image_size": 128}

SETTINGS = {
    "llama": (DECODER, [*ROTATES, *HEADS, *BIAS, {"mlp_bias": True}, {"pretraining_tp": 2}]),
    "mistral": (DECODER, [*ROTATES, *HEADS, *WINDOWS]),
    "qwen2": (DECODER, [*ROTATES, *QWEN_WINDOWS]),
    "qwen3": (DECODER, [*ROTATES, *HEADS, *BIAS, *QWEN_WINDOWS]),
    "gpt2": (
        {"vocab_size": 500, "n_positions": 64, "n_embd": 64, "n_layer": 3, "n_head": 4},
        [
            *ANY, *TIES, {"use_cache": False}, {"pad_token_id": 3}, {"n_inner": 96}, {"n_inner": None}, {"n_ctx": 64},
            {"hidden_size": 128}, {"num_attention_heads": 2, "num_hidden_layers": 2, "max_position_embeddings": 32},
            {"activation_function": "relu"}, {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}, {"resid_pdrop": 0},
            {"scale_attn_weights": False}, {"scale_attn_by_inverse_layer_idx": False}, {"summary_first_dropout": 0.0},
            {"task_specific_params": {"text-generation": {"do_sample": True, "max_length": 50}}},
        ],
    ),
    "bert": (ENCODER, [*ENCODES, {"position_embedding_type": "absolute"}, {"is_decoder": False}]),
    "roberta": ({**ENCODER, "max_position_embeddings": 66}, [*ENCODES[:-1], {"position_embedding_type": "absolute"}]),
    "distilbert": (
        {"vocab_size": 500, "max_position_embeddings": 64, "n_layers": 3, "n_heads": 4, "dim": 64, "hidden_dim": 96},
        [
            *ANY, *TIES, {"dropout": 0.0, "attention_dropout": 0.0, "seq_classif_dropout": 0.0}, {"activation": "relu"},
            {"tie_weights_": True}, {"sinusoidal_pos_embds": True}, {"hidden_size": 128, "num_attention_heads": 2, "num_hidden_layers": 2},
        ],
    ),
    "electra": (ENCODER, [*ENCODES, {"embedding_size": 32}, {"embedding_size": 64}, {"summary_type": "first"}]),
    "deberta-v2": (
        ENCODER,
        [
            *ENCODES, {"type_vocab_size": 2}, {"relative_attention": True}, {"relative_attention": True, "pos_att_type": ["c2p", "p2c"]},
            {"relative_attention": True, "pos_att_type": "p2c|c2p", "position_buckets": 16, "share_att_key": True,
             "norm_rel_ebd": "layer_norm", "position_biased_input": False},
            {"relative_attention": True, "max_relative_positions": 32, "pos_att_type": "c2p"}, {"legacy": False},
            {"conv_kernel_size": 3, "conv_act": "gelu"}, {"pooler_dropout": 0}, {"cls_dropout": 0.15}, {"embedding_size": 32},
            {"pooler_hidden_size": 64}, {"pooler_dropout": 0.1},
            {"relative_attention": True, "pos_att_type": None}, {"attention_head_size": 16},
        ],
    ),
    "vit": (
        {**NO_GROUPS, "image_size": 64},
        [
            *IMAGES[1:], {"num_labels": 5, "hidden_act": "relu"}, {"num_labels": 5, "qkv_bias": False},
            {"num_labels": 5, "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1},
            {"num_labels": 5, "image_size": [64, 64]}, {"num_labels": 5, "patch_size": 8}, {"num_labels": 5, "patch_size": [16, 16]},
            {"num_labels": 5, "num_channels": 1}, {"num_labels": 5, "pooler_output_size": None}, {"num_labels": 5, "encoder_stride": 8},
        ],
    ),
    "falcon": (
        {"vocab_size": 500, "hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4},
        [
            *DECODES, *TIES, *ROPES, {"alibi": True}, {"alibi": True, "bias": True, "multi_query": False, "parallel_attn": False},
            {"multi_query": False}, {"parallel_attn": False}, {"new_decoder_architecture": True, "num_kv_heads": 2},
            {"new_decoder_architecture": True, "num_kv_heads": 2, "num_ln_in_parallel_attn": 1},
            {"new_decoder_architecture": True, "num_kv_heads": None}, {"num_kv_heads": None}, {"num_kv_heads": 1},
            {"ffn_hidden_size": 96}, {"ffn_hidden_size": None}, {"activation": "relu"}, {"hidden_dropout": 0.1},
            {"num_ln_in_parallel_attn": None}, {"new_decoder_architecture": True, "num_ln_in_parallel_attn": None},
        ],
    ),
    "gpt_neox": (
        NO_GROUPS,
        [
            *DECODES, *TIES, *ROPES, {"rotary_pct": 0.5}, {"rotary_pct": 1.0, "rotary_emb_base": 20000},
            {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5}},
            {"use_parallel_residual": False}, {"hidden_dropout": 0.1}, *BIAS, {"attention_bias": False},
            {"classifier_dropout": 0.2}, {"hidden_act": "gelu_new"},
        ],
    ),
    "gemma": (DECODER, [*ROTATES, *HEADS, *BIAS, {"hidden_activation": "gelu_pytorch_tanh"}, {"hidden_activation": None}, {"hidden_act": "gelu"}]),
    "gemma2": (
        DECODER,
        [
            *ROTATES, {"head_dim": 32}, *BIAS, {"sliding_window": 8}, {"final_logit_softcapping": None},
            {"attn_logit_softcapping": None}, {"query_pre_attn_scalar": 16}, {"cache_implementation": "hybrid"},
            {"layer_types": [FULL, SLIDES, FULL, SLIDES]}, {"layer_types": [FULL] * 4}, {"hidden_act": "gelu_pytorch_tanh"},
        ],
    ),
    "gemma3_text": (
        {**DECODER, "num_hidden_layers": 7},
        [
            *DECODES, *TIES, *GROUPS, {"head_dim": 32}, *BIAS, {"sliding_window": 8}, {"final_logit_softcapping": 30.0},
            {"attn_logit_softcapping": 50.0}, {"sliding_window_pattern": 3}, {"_sliding_window_pattern": 3},
            {"layer_types": [FULL, SLIDES] * 3 + [FULL]}, {"rope_theta": 1e6, "rope_local_base_freq": 1e4},
            {"rope_scaling": {"rope_type": "linear", "factor": 8.0}}, {"rope_scaling": None},
        ],
    ),
    "gemma4_text": (
        {
            **DECODER, "num_hidden_layers": 8, "head_dim": 16, "global_head_dim": 32, "hidden_size_per_layer_input": 8,
            "vocab_size_per_layer_input": 500,
        },
        [
            *[changes for changes in DECODES if "output_attentions" not in changes], *TIES, *BIAS, {"head_dim": 32}, {"sliding_window": 8},
            {"final_logit_softcapping": 30.0}, {"attention_k_eq_v": True}, {"attention_k_eq_v": True, "num_global_key_value_heads": 1},
            {"num_global_key_value_heads": 1}, {"layer_types": [FULL, SLIDES] * 4}, {"layer_types": [FULL] * 8}, {"layer_types": [SLIDES] * 8},
            {"num_kv_shared_layers": 2}, {"num_kv_shared_layers": 2, "use_double_wide_mlp": True}, {"num_kv_shared_layers": 1},
            {"hidden_size_per_layer_input": 0}, {"hidden_size_per_layer_input": 0, "num_kv_shared_layers": 2},
            {"enable_moe_block": True, "num_experts": 4, "top_k_experts": 2, "moe_intermediate_size": 32},
            {"use_bidirectional_attention": "vision"}, {"global_head_dim": 16}, {"hidden_activation": "silu"},
        ],
    ),
    "gemma4_unified_text": (
        {**DECODER, "num_hidden_layers": 8, "head_dim": 16, "global_head_dim": 32},
        [
            *[changes for changes in DECODES if "output_attentions" not in changes], *TIES, *BIAS, {"head_dim": 32}, {"sliding_window": 8},
            {"attention_k_eq_v": True, "num_global_key_value_heads": 1}, {"layer_types": [FULL, SLIDES] * 4}, {"num_kv_shared_layers": 2},
            {"num_kv_shared_layers": 2, "use_double_wide_mlp": True}, {"use_bidirectional_attention": None}, {"global_head_dim": 16},
        ],
    ),
    "phi": (DECODER, [*ROTATES, *PARTIAL, {"resid_pdrop": 0.1, "embd_pdrop": 0.1}, {"qk_layernorm": True}]),
    "phi3": (
        {**DECODER, "pad_token_id": 0},
        [
            *[changes for changes in ROTATES if "pad_token_id" not in changes], *WINDOWS, *PARTIAL[1:],
            {"partial_rotary_factor": 0.5}, {"resid_pdrop": 0.1}, {"embd_pdrop": 0.1},
            {
                "original_max_position_embeddings": 512, "max_position_embeddings": 4096,
                "rope_scaling": {"type": "longrope", "short_factor": [1.0] * 8, "long_factor": [2.0] * 8},
            },
        ],
    ),
    "starcoder2": (
        DECODER,
        [
            *ROTATES, *WINDOWS, {"use_bias": False}, {"residual_dropout": 0.1, "embedding_dropout": 0.1},
            {"norm_type": "layer_norm", "mlp_type": "default"}, {"hidden_act": "gelu"},
        ],
    ),
    "stablelm": (
        DECODER,
        [
            *ROTATES, *PARTIAL, {"use_qkv_bias": True}, {"qk_layernorm": True}, {"use_parallel_residual": True},
            {"hidden_dropout": 0.1}, {"rope_pct": 0.5},
        ],
    ),
    "granite": (
        DECODER,
        [
            *ROTATES, *BIAS, {"mlp_bias": True}, {"embedding_multiplier": 12.0, "logits_scaling": 8.0},
            {"residual_multiplier": 0.22, "attention_multiplier": 0.015625},
        ],
    ),
    "glm": (
        {**DECODER, "head_dim": 16, "pad_token_id": 0},
        [*[changes for changes in ROTATES if "pad_token_id" not in changes], *HEADS, {"attention_bias": False}, *PARTIAL],
    ),
    "glm4": (
        {**DECODER, "head_dim": 16, "pad_token_id": 0},
        [
            *[changes for changes in ROTATES if "pad_token_id" not in changes], {"head_dim": 32}, {"attention_bias": False},
            *PARTIAL,
        ],
    ),
    "ministral3": (
        {**DECODER, "head_dim": 16},
        [
            *DECODES, *TIES, *GROUPS, *HEADS, *WINDOWS,
            {"rope_parameters": {
                "rope_type": "yarn", "rope_theta": 1000000.0, "factor": 16.0, "original_max_position_embeddings": 512,
                "beta_fast": 32.0, "beta_slow": 1.0, "mscale_all_dim": 1.0, "mscale": 1.0, "llama_4_scaling_beta": 0.1,
            }},
        ],
    ),
    "glm4_moe": (
        {
            **DECODER, "head_dim": 16, "n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32,
            "first_k_dense_replace": 1,
        },
        [
            *[changes for changes in DECODES if "output_attentions" not in changes], *TIES, *BIAS, {"num_key_value_heads": 4},
            {"head_dim": 32}, {"use_qk_norm": True}, {"partial_rotary_factor": 1.0}, {"num_local_experts": 4},
            {"first_k_dense_replace": 0}, {"n_shared_experts": 2}, {"n_group": 2, "topk_group": 1}, {"norm_topk_prob": False},
            {"routed_scaling_factor": 2.5}, {"num_nextn_predict_layers": 1},
        ],
    ),
    "deepseek_v3": (
        {
            **DECODER, "num_key_value_heads": DECODER["num_attention_heads"], "n_routed_experts": 8, "num_experts_per_tok": 2,
            "moe_intermediate_size": 32, "first_k_dense_replace": 1, "n_group": 2, "topk_group": 1, "q_lora_rank": 24,
            "kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 16, "v_head_dim": 16,
        },
        [
            *[changes for changes in DECODES if "output_attentions" not in changes], *TIES, *BIAS, {"q_lora_rank": None},
            {"v_head_dim": 32}, {"qk_rope_head_dim": 16}, {"num_local_experts": 4}, {"first_k_dense_replace": 0},
            {"n_shared_experts": 2}, {"n_group": 4, "topk_group": 2}, {"norm_topk_prob": False}, {"rope_interleave": False},
            {"num_nextn_predict_layers": 1},
        ],
    ),
    "glm4_moe_lite": (
        {
            **DECODER, "num_key_value_heads": DECODER["num_attention_heads"], "n_routed_experts": 8, "num_experts_per_tok": 2,
            "moe_intermediate_size": 32, "q_lora_rank": 24, "kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 16,
            "v_head_dim": 16,
        },
        [
            *[changes for changes in DECODES if "output_attentions" not in changes], *TIES, *BIAS, {"q_lora_rank": None},
            {"v_head_dim": 32}, {"qk_rope_head_dim": 16}, {"num_local_experts": 4}, {"mlp_layer_types": ["sparse"] * 4},
            {"mlp_layer_types": ["dense", "dense", "sparse", "dense"]}, {"n_shared_experts": 2}, {"n_group": 2, "topk_group": 1},
            {"norm_topk_prob": False}, {"rope_interleave": False},
        ],
    ),
    "llama4_text": (
        {**DECODER, "head_dim": 16, "intermediate_size_mlp": 128, "num_local_experts": 4},
        [
            *[changes for changes in DECODES if "output_attentions" not in changes], *TIES, {"num_key_value_heads": 4}, *HEADS, *BIAS,
            {"interleave_moe_layer_step": 2}, {"moe_layers": [1]}, {"moe_layers": []}, {"num_experts_per_tok": 2},
            {"use_qk_norm": False}, {"no_rope_layers": [1, 0, 1, 0]}, {"no_rope_layers": []}, {"no_rope_layer_interval": 2},
            {"attn_temperature_tuning": False}, {"attention_chunk_size": 8}, {"floor_scale": 4, "attn_scale": 0.2},
            {"layer_types": ["chunked_attention", "full_attention"] * 2}, {"router_jitter_noise": 0.0}, {"router_aux_loss_coef": 0.1},
            {"rope_scaling": {
                "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                "original_max_position_embeddings": 8192,
            }},
        ],
    ),
    "deepseek_v2": (
        {
            **DECODER, "num_key_value_heads": DECODER["num_attention_heads"], "n_routed_experts": 8, "num_experts_per_tok": 2,
            "moe_intermediate_size": 32, "first_k_dense_replace": 1, "q_lora_rank": 24, "kv_lora_rank": 16,
            "qk_rope_head_dim": 8, "qk_nope_head_dim": 16, "v_head_dim": 16,
        },
        [
            *[changes for changes in DECODES if "output_attentions" not in changes], *TIES, *BIAS, {"q_lora_rank": None},
            {"num_key_value_heads": None}, {"v_head_dim": 32}, {"qk_rope_head_dim": 16}, {"num_experts": 4}, {"mlp_bias": True},
            {"first_k_dense_replace": 0}, {"n_shared_experts": 1}, {"norm_topk_prob": True}, {"routed_scaling_factor": 16.0},
            {"topk_method": "group_limited_greedy", "n_group": 4, "topk_group": 2},
            {"topk_method": "greedy", "n_group": 1, "topk_group": 1},
            {"rope_scaling": {
                "rope_type": "yarn", "factor": 40, "beta_fast": 32, "beta_slow": 1, "mscale": 0.707, "mscale_all_dim": 0.707,
                "original_max_position_embeddings": 4096,
            }},
        ],
    ),
    "gpt_oss": (
        {**DECODER, "head_dim": 16, "num_local_experts": 4, "num_experts_per_tok": 2},
        [
            *[changes for changes in DECODES if "output_attentions" not in changes], *TIES, {"num_key_value_heads": 4}, {"head_dim": 32},
            {"attention_bias": False}, {"sliding_window": 8}, {"sliding_window": None}, {"num_experts_per_tok": 1}, {"router_aux_loss_coef": 0.1},
            {"layer_types": [FULL, SLIDES, FULL, SLIDES]}, {"layer_types": [FULL] * 4}, {"experts_per_token": 2},
            {"rope_scaling": {
                "rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False,
                "original_max_position_embeddings": 4096,
            }, "rope_theta": 150000},
        ],
    ),
    "smollm3": (
        {**DECODER, "pad_token_id": 0},
        [
            *[changes for changes in ROTATES if "pad_token_id" not in changes], *BIAS, {"mlp_bias": True},
            {"no_rope_layers": [1, 0, 1, 0]}, {"no_rope_layer_interval": 2}, {"no_rope_layers": None},
            {"use_sliding_window": True, "sliding_window": 8}, {"use_sliding_window": False, "sliding_window": 8},
            {"use_sliding_window": True, "sliding_window": 8, "layer_types": [SLIDES, FULL] * 2},
            {"use_sliding_window": True, "sliding_window": None},
        ],
    ),
    "olmo": (DECODER, [*ROTATES, *BIAS, {"clip_qkv": 8.0}, {"clip_qkv": None}]),
    "olmo2": (DECODER, [*ROTATES, *BIAS]),
    "olmo3": (DECODER, [
        *ROTATES, *BIAS, {"sliding_window": 8}, {"sliding_window": None}, {"layer_types": [FULL, SLIDES, FULL, SLIDES]},
        {"layer_types": [FULL] * 4}, {"layer_types": [SLIDES] * 4},
    ]),
    "mixtral": (
        {**DECODER, "num_local_experts": 4},
        [*ROTATES, *HEADS, *WINDOWS, *ROUTES[1:], {"num_experts": 8}, {"router_jitter_noise": 0.0}],
    ),
    "olmoe": ({**DECODER, "num_experts": 4, "num_experts_per_tok": 2}, [*ROTATES, *BIAS, *ROUTES, {"clip_qkv": 8.0}, {"num_local_experts": 8}]),
    "qwen2_moe": (
        {
            **DECODER, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32,
            "shared_expert_intermediate_size": 48,
        },
        [
            *ROTATES, *QWEN_WINDOWS, *ROUTES, {"mlp_only_layers": [1]}, {"mlp_only_layers": None}, {"decoder_sparse_step": 2},
            {"qkv_bias": False}, {"num_local_experts": 8}, {"use_sliding_window": False, "sliding_window": 0},
        ],
    ),
    "qwen3_moe": (
        {**DECODER, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32},
        [
            *ROTATES, *HEADS, *BIAS, *ROUTES, {"mlp_only_layers": [1]}, {"mlp_only_layers": None}, {"decoder_sparse_step": 2},
            {"num_local_experts": 8}, {"use_sliding_window": True, "sliding_window": 8}, {"sliding_window": 8},
            {"use_sliding_window": False, "sliding_window": None, "max_window_layers": 2},
        ],
    ),
    "qwen3_next": (
        {**DECODER, **EXPERTS, **LINEAR},
        [
            *[changes for changes in ROTATES if "output_attentions" not in changes], {"head_dim": 32}, *BIAS, *ROUTES, *PARTIAL,
            {"mlp_only_layers": [1]}, {"mlp_only_layers": None}, {"decoder_sparse_step": 2}, {"full_attention_interval": 2},
            {"layer_types": ["linear_attention", FULL, "linear_attention", FULL]}, {"linear_num_value_heads": 2},
            {"linear_conv_kernel_dim": 3}, {"norm_topk_prob": False},
        ],
    ),
    **dict.fromkeys(("qwen3_5_text", "qwen3_5_moe_text"), (
        {**DECODER, **EXPERTS, **LINEAR},
        [
            *[changes for changes in ROTATES if "output_attentions" not in changes], {"head_dim": 32}, *BIAS, *PARTIAL,
            {"full_attention_interval": 2}, {"layer_types": ["linear_attention", FULL, "linear_attention", FULL]}, {"linear_num_value_heads": 2},
            {"linear_conv_kernel_dim": 3}, {"rope_parameters": {"rope_type": "default", "rope_theta": 50000.0, "mrope_section": [2, 1, 1]}},
        ],
    )),
    **dict.fromkeys(("qwen3_5", "qwen3_5_moe"), (
        {"text_config": {**DECODER, **EXPERTS, **LINEAR}, "vision_config": {**TOWER, "num_position_embeddings": 16}},
        [
            {}, *TIES, {"dtype": "bfloat16"}, *({"text_config": changed} for changed in [*GROUPS, *HEADS[:1], *BIAS, *PARTIAL]),
            {"text_config": {"rope_parameters": {"rope_type": "default", "rope_theta": 50000.0, "mrope_section": [2, 1, 1]}}}, *TOWERS,
        ],
    )),
    "bloom": (
        {"vocab_size": 500, "hidden_size": 64, "n_layer": 3, "n_head": 4},
        [
            *ANY, *TIES, {"use_cache": False}, {"pad_token_id": 3}, {"hidden_dropout": 0.1, "attention_dropout": 0.1},
            {"apply_residual_connection_post_layernorm": True}, {"pretraining_tp": 2}, {"n_embed": 128}, {"seq_length": 64},
            {"num_attention_heads": 2, "num_hidden_layers": 2},
            {"attention_softmax_in_fp32": True, "masked_softmax_fusion": True, "offset_alibi": 100, "skip_bias_add": True},
        ],
    ),
    "opt": (
        {
            "vocab_size": 500, "hidden_size": 64, "ffn_dim": 96, "num_hidden_layers": 3, "num_attention_heads": 4,
            "max_position_embeddings": 64,
        },
        [
            *DECODES, *TIES, {"word_embed_proj_dim": 64}, {"word_embed_proj_dim": 32}, {"word_embed_proj_dim": None},
            {"do_layer_norm_before": False, "word_embed_proj_dim": 32}, {"_remove_final_layer_norm": True}, {"enable_bias": False},
            {"dropout": 0.0}, {"activation_function": "gelu"}, {"layerdrop": 0}, {"prefix": "</s>"},
        ],
    ),
    "gptj": (
        {"vocab_size": 500, "n_positions": 64, "n_embd": 64, "n_layer": 3, "n_head": 4, "rotary_dim": 8},
        [
            *ANY, *TIES, {"use_cache": False}, {"pad_token_id": 3}, {"n_inner": 96}, {"rotary_dim": None},
            {"resid_pdrop": 0.1, "embd_pdrop": 0.1, "attn_pdrop": 0.1}, {"activation_function": "relu"}, {"rotary": True},
            {"scale_attn_weights": True}, {"num_attention_heads": 2, "num_hidden_layers": 2},
        ],
    ),
    "t5": (
        {"vocab_size": 500, "d_model": 64, "d_kv": 16, "d_ff": 96, "num_layers": 2, "num_heads": 4},
        [
            *ANY, *TIES, {"num_decoder_layers": 3}, {"num_decoder_layers": None}, {"feed_forward_proj": "gated-gelu"},
            {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}, {"feed_forward_proj": "gelu"},
            {"dropout_rate": 0.0}, {"dropout_rate": 0}, {"d_kv": 32}, {"relative_attention_num_buckets": 16}, {"use_cache": False},
            {"feed_forward_proj": "gated-silu"}, {"is_gated_act": False, "dense_act_fn": "relu"}, {"n_positions": 512},
            {"scale_decoder_outputs": False}, {"num_attention_heads": 2, "head_dim": 8, "hidden_size": 48},
        ],
    ),
    "bart": (
        {
            "vocab_size": 500, "max_position_embeddings": 64, "d_model": 64, "encoder_layers": 2, "decoder_layers": 2,
            "encoder_ffn_dim": 96, "decoder_ffn_dim": 96, "encoder_attention_heads": 4, "decoder_attention_heads": 4,
        },
        [
            *ANY, *TIES, {"decoder_layers": 3}, {"dropout": 0.0}, {"attention_dropout": 0.1}, {"activation_dropout": 0.1},
            {"scale_embedding": True}, {"activation_function": "relu"}, {"use_cache": False}, {"forced_bos_token_id": 0},
            {"num_hidden_layers": 3}, {"hidden_size": 96, "num_attention_heads": 2}, {"normalize_before": False, "add_final_layer_norm": False, "normalize_embedding": True},
            {"encoder_layerdrop": 0, "decoder_layerdrop": 0}, {"num_beams": 4, "max_length": 20, "early_stopping": True},
        ],
    ),
    "whisper": (
        {
            "vocab_size": 500, "d_model": 64, "encoder_layers": 2, "decoder_layers": 2, "encoder_ffn_dim": 96,
            "decoder_ffn_dim": 96, "encoder_attention_heads": 4, "decoder_attention_heads": 4, "max_source_positions": 50,
            "max_target_positions": 32, "pad_token_id": 0, "bos_token_id": 0, "eos_token_id": 0, "decoder_start_token_id": 1,
            "begin_suppress_tokens": None,
        },
        [
            *ANY, *TIES, {"dropout": 0.1}, {"attention_dropout": 0.1, "activation_dropout": 0.1}, {"num_mel_bins": 16},
            {"use_cache": False}, {"scale_embedding": True}, {"num_hidden_layers": 3}, {"hidden_size": 96, "num_attention_heads": 2}, {"suppress_tokens": [1, 2, 3]},
            {"forced_decoder_ids": None}, {"apply_spec_augment": False}, {"activation_function": "relu"},
        ],
    ),
    "clip": (
        {
            "projection_dim": 48,
            "text_config": {
                "vocab_size": 500, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
                "num_attention_heads": 4, "max_position_embeddings": 16,
            },
            "vision_config": {
                "hidden_size": 96, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
                "image_size": 64, "patch_size": 16,
            },
        },
        [
            {}, {"projection_dim": 32}, {"dtype": "bfloat16"},
            {"text_config": {"eos_token_id": 2}}, {"text_config": {"hidden_act": "gelu", "attention_dropout": 0.1}},
            {"vision_config": {"hidden_act": "gelu"}}, {"vision_config": {"num_channels": 1}},
            {"text_config": {"projection_dim": 48}, "vision_config": {"projection_dim": 48}},
            {"text_config": {"dropout": 0.0}, "vision_config": {"dropout": 0.0}},
        ],
    ),
    "qwen2_5_vl": (
        {**DECODER, "rope_scaling": {"type": "mrope", "mrope_section": [2, 2, 4]}, "vision_config": TOWER},
        [
            {}, *TIES, *GROUPS, *QWEN_WINDOWS, {"dtype": "bfloat16"}, {"hidden_size": 128, "rope_scaling": {"type": "mrope", "mrope_section": [4, 4, 8]}},
            {"rope_parameters": {"rope_type": "default", "rope_theta": 50000.0, "mrope_section": [1, 1, 6]}, "rope_scaling": None},
            {"text_config": {**DECODER, "rope_scaling": {"type": "mrope", "mrope_section": [2, 2, 4]}, "tie_word_embeddings": True}},
            {"text_config": {**DECODER, "rope_parameters": {"rope_type": "default", "mrope_section": [4, 2, 2]}}}, *TOWERS,
        ],
    ),
    **dict.fromkeys(("qwen3_vl", "qwen3_vl_moe"), (
        {"text_config": {**DECODER, **EXPERTS}, "vision_config": {**TOWER, "num_position_embeddings": 16, "deepstack_visual_indexes": [0]}},
        [
            {}, *TIES, {"dtype": "bfloat16"}, *({"text_config": changed} for changed in [*GROUPS, *HEADS[:1], *BIAS, {"rope_scaling": None}]),
            {"text_config": {"rope_parameters": {"rope_type": "default", "rope_theta": 50000.0, "mrope_section": [12, 10, 10]}}},
            {"text_config": {"mlp_only_layers": [0], "decoder_sparse_step": 2}}, {"vision_config": {"deepstack_visual_indexes": []}}, *TOWERS,
        ],
    )),
    "dinov2": (
        {
            "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "mlp_ratio": 2, "image_size": 56,
            "num_labels": 5,
        },
        [
            *IMAGES, {"mlp_ratio": 2.0}, {"qkv_bias": False}, {"drop_path_rate": 0.1}, {"use_swiglu_ffn": True},
            {"use_mask_token": False}, {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1},
            {"layerscale_value": 0.5}, {"out_indices": [1, 2]}, {"out_features": ["stage1"]}, {"apply_layernorm": False},
            {"reshape_hidden_states": False}, {"image_size": [56, 56]},
        ],
    ),
    "resnet": (
        {"embedding_size": 16, "hidden_sizes": [32, 48, 64, 96], "depths": [1, 1, 2, 1], "num_labels": 5},
        [
            *IMAGES, {"layer_type": "basic"}, {"downsample_in_first_stage": True}, {"downsample_in_bottleneck": True},
            {"num_channels": 1}, {"out_features": ["stage2", "stage4"]}, {"out_indices": [1]},
        ],
    ),
    "convnext": (
        {"hidden_sizes": [16, 32, 48, 64], "num_labels": 5, **STAGES},
        [
            *IMAGES, {"hidden_sizes": None, "depths": None}, {"layer_scale_init_value": 0.0}, {"drop_path_rate": 0.1}, {"num_channels": 1},
            {"num_stages": 4}, {"out_features": ["stage2"]}, {"patch_size": 2},
        ],
    ),
    "swin": (
        {"embed_dim": 24, "num_heads": [1, 2, 3, 4], "window_size": 4, "num_labels": 5, **STAGES},
        [
            *IMAGES, {"window_size": 2}, {"mlp_ratio": 2.0}, {"mlp_ratio": 2}, {"qkv_bias": False}, {"drop_path_rate": 0.0}, {"drop_path_rate": 0},
            {"use_absolute_embeddings": True}, {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1},
            {"path_norm": True}, {"out_features": ["stage2"]}, {"num_channels": 1}, {"image_size": [128, 128]},
        ],
    ),
    "modernbert": (
        {**NO_GROUPS, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "cls_token_id": 1, "sep_token_id": 2},
        [
            *ANY, *TIES, {"global_attn_every_n_layers": 2}, {"global_attn_every_n_layers": 1},
            {"layer_types": [FULL, SLIDES, SLIDES, FULL]}, {"local_attention": 16}, {"attention_bias": True}, {"mlp_bias": True},
            {"norm_bias": True}, {"decoder_bias": False}, {"classifier_bias": True}, {"classifier_pooling": "mean"},
            {"classifier_dropout": 0.1}, {"mlp_dropout": 0.1, "embedding_dropout": 0.1, "attention_dropout": 0.1},
            {"global_rope_theta": 1e5, "local_rope_theta": None}, {"hidden_activation": "silu"}, {"classifier_activation": "relu"},
            {"sparse_prediction": False}, {"deterministic_flash_attn": True}, {"reference_compile": False}, {"repad_logits_with_grad": False},
            {"position_embedding_type": "absolute"}, {"sparse_prediction": True},
        ],
    ),
}
