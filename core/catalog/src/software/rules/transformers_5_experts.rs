//! What changed in how transformers 5 runs the experts of a mixture (`integrations/moe.py`), and chooses them.
//!
//! Read off the packages of all releases, 5.0 to 5.24.

use super::{Rule, transformers};

/// How experts are counted, and whose they are.
pub const EXPERT_NUMBERS_CLAMPED: Rule = transformers(
    5,
    1,
    "tokens are counted by expert as int32, and for each token that is generated the numbers of experts are clamped and those beyond the last \
     masked; before, they were counted as float32, and nothing was masked",
    "transformers/integrations/moe.py of 5.0.0 and 5.1.0 (expert_ids_clamped, histc_input)",
);

/// When the second weights are picked.
pub const EXPERTS_PICKED_IN_TURN: Rule = transformers(
    5,
    3,
    "weights and biases of the second product are picked behind the first one's activation; before, ahead of the first product, and what \
     went into an activation was held",
    "transformers/integrations/moe.py of 5.2.0 (selected_down, gate_up_out) and 5.3.0",
);

/// How tokens are put back in order.
pub const EXPERTS_UNSORTED_BY_COUNT: Rule = transformers(
    5,
    4,
    "the inverse of the permutation is written by counting, and each of an expert's steps has the name of the one before; before, the \
     permutation was sorted, and what went into the second product was held",
    "transformers/integrations/moe.py of 5.3.0 (inv_perm = torch.argsort(perm), up_proj_out, down_proj_out) and 5.4.0",
);

/// How often rows are picked.
pub const EXPERT_ROWS_ONCE: Rule = transformers(
    5,
    5,
    "a token's row is picked for each of its experts in the order of these at once; before, in the tokens' order first",
    "transformers/integrations/moe.py of 5.4.0 (selected_hidden_states) and 5.5.4",
);

/// Masks of grouped experts.
pub const GROUPED_EXPERTS_MASKED: Rule = transformers(
    5,
    6,
    "grouped products mask what is beyond the last expert; before, nothing",
    "transformers/integrations/moe.py of 5.5.4 and 5.6.2 (invalid_mask)",
);

/// Which cards multiply by groups.
pub const GROUPED_MM_ASKS_CARD: Rule = transformers(
    5,
    6,
    "cards below compute capability 8.0 multiply one expert after the other; before, the grouped product was taken wherever PyTorch has it, \
     which has a way of its own there",
    "transformers/integrations/moe.py of 5.0.0, 5.5.4 (_can_use_grouped_mm) and 5.6.2 (get_device_capability)",
);

/// Sorting.
pub const EXPERTS_SORTED_ONCE: Rule = transformers(
    5,
    8,
    "a sort gives the experts' numbers in their order and the permutation, rows are those of its quotients, and biases are added in \
     their place; before, tokens' numbers were written out for each of their experts and everything was picked by argsort",
    "transformers/integrations/moe.py of 5.7.0 (token_idx) and 5.8.1 (torch.sort, repeat_interleave)",
);

/// The clamped numbers of experts.
pub const EXPERT_NUMBERS_APART: Rule = transformers(
    5,
    10,
    "for each token that is generated the numbers of experts are clamped in another tensor; before, where they stand",
    "transformers/integrations/moe.py of 5.9.0 (clamp_) and 5.10.4 (batched_mm_experts_forward)",
);

/// What of grouped products is masked.
pub const EXPERT_PRODUCTS_MASKED: Rule = transformers(
    5,
    17,
    "each of the grouped products is masked; before, what they come to once it is weighed, in its place",
    "transformers/integrations/moe.py of 5.16.1 (weighted_out.masked_fill_) and 5.17.0",
);

/// Whose experts are masked.
pub const MASKED_WHERE_SHARED_OUT: Rule = transformers(
    5,
    18,
    "nothing is clamped or masked where all experts are on one card; before, the numbers beyond the last expert were, which only a card that has \
     a part of them is given",
    "transformers/integrations/moe.py of 5.17.0 and 5.18.0 (_is_expert_parallel)",
);

/// What DeepSeek's router chooses by.
pub const ROUTER_HOLDS_CHOICE: Rule = transformers(
    5,
    0,
    "DeepSeek V3 and GLM-4.5 hold what they chose experts by until the weights are scaled; before, a function of its own chose and let go of it",
    "transformers/models/{deepseek_v3,glm4_moe}/modeling_*.py of 4.57.1 (get_topk_indices), 5.0.0 (route_tokens_to_experts) and 5.13.1",
);

/// In what DeepSeek's router is.
pub const GROUP_ROUTERS_STAY_WIDE: Rule = transformers(
    5,
    24,
    "the routers of DeepSeek V2 and V3, GLM-4.5 and GLM-4.7-Flash stay in float32; before, they were in what the other weights are",
    "transformers/models/{deepseek_v2,deepseek_v3,glm4_moe,glm4_moe_lite}/modeling_*.py of 5.23.0 and 5.24.0 \
     (_keep_in_fp32_modules_strict, TopkRouter)",
);

/// What a router returns.
pub const ROUTER_KEEPS_LOGITS: Rule = transformers(
    5,
    6,
    "a router holds its logits beside their softmax, and scores have the dtype of the logits; before, the softmax had their name, so that \
     scores stayed in float32, and so did what they weigh",
    "transformers/models/{mixtral,olmoe,qwen2_moe,qwen3_moe,qwen3_next,qwen3_5_moe,qwen3_vl_moe}/modeling_*.py of 5.5.4 and 5.6.2 (router_probs)",
);

/// The expert that every token goes to.
pub const SHARED_EXPERT_ADDED_APART: Rule = transformers(
    5,
    3,
    "what Qwen2-MoE's shared expert made is added to the others' in another tensor; before, in theirs",
    "transformers/models/{qwen2_moe,qwen3_next}/modeling_*.py of 5.2.0 (expert_output += shared_expert_output) and 5.3.0",
);

/// Whose experts adapters are put on.
pub const QWEN_MOE_LEFT_ALONE: Rule = transformers(
    5,
    5,
    "the table of conversions, by which peft takes targets of single experts for parameters, does not name Qwen2-MoE and Qwen3.5's mixture; \
     before, it named both",
    "transformers/conversion_mapping.py of 5.4.0 and 5.5.4 (_MODEL_TO_CONVERSION_PATTERN); peft 0.21.2, \
     utils/transformers_weight_conversion.py (_convert_peft_config_moe)",
);

/// Other names of how many experts there are.
pub const EXPERTS_HAVE_OTHER_NAMES: Rule = transformers(
    5,
    0,
    "the number of experts has another name in Mixtral's, DeepSeek V3's, GLM-4.5's and OLMoE's configurations, and by now in DeepSeek V2's and \
     Qwen3-MoE's; before, another name was a key that nobody read",
    "transformers/models/{mixtral,deepseek_v3,glm4_moe,olmoe,qwen3_moe}/configuration_*.py of 4.57.6, 5.0.0 and 5.2.0 (attribute_map)",
);
