//! What changed in how transformers 5 hides what is padded or to come, and in what it remembers of it.
//!
//! Read off the packages of all releases, 5.0 to 5.24.

use super::{Rule, transformers};

/// Where neither a mask nor a cache is given, what is done for sequences that may be packed.
pub const PACKED_IS_ASKED: Rule = transformers(
    5,
    0,
    "the card is asked whether sequences are packed, and where they are not no mask is made; before, one was made for them, \
     packed or not",
    "transformers/masking_utils.py of 4.53.3, 4.57.3 and 5.0.0 (find_packed_sequence_indices)",
);

/// Masks of all positions as buffers.
pub const NO_BIAS_BUFFERS: Rule = transformers(
    5,
    2,
    "GPT-2's attention has no buffers; before, each layer had its mask of all positions",
    "transformers/models/gpt2/modeling_gpt2.py of 4.51.3, 4.57.1, 5.1.0 (bias) and 5.2.0",
);

/// What a layer of GPT-2 and of GPT-Neo puts where its mask hides.
pub const NO_MASKED_BIAS: Rule = transformers(
    5,
    0,
    "attention of GPT-2 and GPT-Neo takes the number it puts in from its dtype; before, each layer held one",
    "transformers/models/gpt2/modeling_gpt2.py and gpt_neo/modeling_gpt_neo.py of 4.51.3, 4.57.1 (masked_bias) and 5.0.0",
);

/// Masks of the gated delta rule.
pub const DELTA_RULE_MASKED_ONCE: Rule = transformers(
    5,
    6,
    "scores within a chunk are not masked, which their decays already are; before, each chunk's were, by a mask that is kept",
    "transformers/models/{qwen3_next,qwen3_5}/modeling_*.py of 5.5.4 (masked_fill_) and 5.6.2 (torch_chunk_gated_delta_rule)",
);

/// What a cache holds of linear layers.
pub const LINEAR_STATES_COPIED: Rule = transformers(
    5,
    5,
    "a cache copies what layers of Qwen3-Next and Qwen3.5 remember into tensors of its own; before, it held what it was given",
    "transformers/models/qwen3_5/modeling_qwen3_5.py of 5.4.0 (Qwen3_5DynamicCache) and cache_utils.py of 5.5.4 (LinearAttentionLayer)",
);

/// The dtype of it.
pub const LINEAR_STATES_AS_GIVEN: Rule = transformers(
    5,
    14,
    "a cache holds the state of the delta rule in the dtype that it has; before, in that of what was convolved",
    "transformers/cache_utils.py of 5.13.1 (zeros_like(recurrent_states, dtype=self.dtype)) and 5.14.1",
);

/// What DeepSeek remembers.
pub const LATENTS_CACHED: Rule = transformers(
    5,
    15,
    "a cache remembers DeepSeek's latents; before, the keys and values that every head has of them, and keys were put together by cat",
    "transformers/models/{deepseek_v2,deepseek_v3}/modeling_*.py of 4.51.3, 4.57.1 and 5.17.0 (expand_kv)",
);

/// T5's masks.
pub const T5_SHARES_MASK: Rule = transformers(
    5,
    0,
    "T5's masks are those that all models share, and none where nothing is hidden; before, one of ones was made where none was given",
    "transformers/models/t5/modeling_t5.py of 4.57.1 (_update_causal_mask, invert_attention_mask) and 5.0.0",
);

/// T5's positions, once more.
pub const T5_ASKS_CACHE: Rule = transformers(
    5,
    4,
    "T5 asks its cache how many tokens it has seen; before, it counted positions in a tensor",
    "transformers/models/t5/modeling_t5.py of 5.3.0 (cache_position) and 5.4.0 (past_seen_tokens)",
);

/// The caches of Gemma 2 and 3 that came before `DynamicCache`.
pub const GEMMA_CACHES_IN_TRAINING: Rule = transformers(
    5,
    0,
    "Gemma 2 and 3 make a cache of keys and values in training where use_cache asks for it; before, never",
    "transformers/models/{gemma2,gemma3}/modeling_*.py of 4.51.3, 4.57.6 (and not self.training) and 5.0.0; gemma2's of 4.44.2",
);

/// The last decoders with masks of their own.
pub const LAST_DECODERS_SHARE_MASK: Rule = transformers(
    5,
    2,
    "BLOOM, Falcon, GPT-Neo, GPT-J, OPT and StableLM make causal masks by masking_utils.py; before, each made one of numbers that \
     are added to the scores, as Llama did once",
    "transformers/models/{bloom,falcon,gpt_neo,gptj,opt,stablelm}/modeling_*.py of 4.57.1, 5.1.0 (_update_causal_mask) and 5.2.0",
);

/// The masks of OLMoE and Qwen2-MoE.
pub const MIXTURES_SHARE_MASK: Rule = transformers(
    5,
    0,
    "OLMoE and Qwen2-MoE make causal masks by masking_utils.py; before, of numbers, as the last decoders did",
    "transformers/models/{olmoe,qwen2_moe}/modeling_*.py of 4.57.1 (_update_causal_mask) and 5.0.0",
);

/// The masks of BART.
pub const LAST_DECODER_STACKS_SHARE_MASK: Rule = transformers(
    5,
    0,
    "BART makes its masks by masking_utils.py; before, of numbers that are added to the scores",
    "transformers/models/bart/modeling_bart.py of 4.57.1 (_update_causal_mask, _update_full_mask, _update_cross_attn_mask) and 5.17.0",
);

/// How masks are put together.
pub const MASKS_BROADCAST: Rule = transformers(
    5,
    0,
    "a mask's indices are broadcast, and its keys counted and shifted; before, it was mapped over the positions that the model had counted (vmap)",
    "transformers/masking_utils.py of 4.53.3, 4.57.1 (_vmap_for_bhqkv) and 5.0.0 (_non_vmap_expansion_sdpa)",
);

/// Of which queries a mask is made.
pub const MASKS_COUNT_QUERIES: Rule = transformers(
    5,
    4,
    "a mask counts its queries and adds what was before them; before, it took the positions that the model had counted",
    "transformers/masking_utils.py of 5.3.0 (cache_position) and 5.4.0 (q_length, q_offset)",
);

/// How it is asked whether padding hides anything.
pub const PADDING_IS_SUMMED: Rule = transformers(
    5,
    14,
    "a sum says whether padding hides anything, at the beginning twice; before, all() did, once",
    "transformers/masking_utils.py of 5.13.1 (padding_mask.all()) and 5.14.1 (fast_all)",
);

/// What a cache knows of a window.
pub const WINDOW_ON_CARD: Rule = transformers(
    5,
    0,
    "a cache of a layer with a window holds its length on the card; before, it was a number of the host",
    "transformers/cache_utils.py of 4.57.1 (DynamicSlidingWindowLayer) and 5.17.0 (_sliding_window_tensor)",
);

/// The causal mask of CLIP's text, and what its outputs hold.
pub const CLIP_SHARES_MASK: Rule = transformers(
    5,
    0,
    "CLIP's text makes its causal mask by masking_utils.py, and what the towers return is projected at once; before, it made one of \
     numbers (modeling_attn_mask_utils.py), and both towers' outputs kept what they were pooled to",
    "transformers/models/clip/modeling_clip.py of 4.51.3, 4.57.1 (_create_4d_causal_attention_mask, CLIPModel.forward) and 5.17.0",
);

/// Masks of encoders.
pub const ENCODERS_SHARE_MASK: Rule = transformers(
    5,
    0,
    "BERT, RoBERTa, ELECTRA and DistilBERT hide padding as all models do, by a boolean mask, and have none where nothing is \
     hidden; before, by numbers that are added to the scores, and where no mask was given they made one of ones",
    "transformers/models/{bert,roberta,electra,distilbert}/modeling_*.py of 4.51.3, 4.57.3 and 5.17.0; modeling_attn_mask_utils.py \
     of 4.51.3 (_prepare_4d_attention_mask_for_sdpa)",
);

/// When checkpointing switches Whisper's cache off.
pub const WHISPER_SWITCHES_FIRST: Rule = transformers(
    5,
    4,
    "Whisper's decoder has no cache under checkpointing when its mask is made, and so looks at its positions for packed sequences; before, the \
     cache was switched off behind the mask, which nobody looked at positions for",
    "transformers/models/whisper/modeling_whisper.py of 4.53.3, 4.57.6, 5.3.0 (use_cache = False behind create_causal_mask) and 5.4.0 \
     (merge_with_config_defaults)",
);
