//! What changed in Hugging Face transformers until its fifth major version.

use super::{Rule, transformers};

/// Llama's rotary tables.
pub const LLAMA_COMPUTES_ANGLES: Rule = transformers(
    4,
    40,
    "a layer of Llama computes cosines and sines; before, it had tables of all positions",
    "transformers/models/llama/modeling_llama.py of 4.36.2 (cos_cached) and 4.40.2",
);

/// Rotary positions once for all layers, in Llama first.
pub const FIRST_ANGLES_ONCE: Rule = transformers(
    4,
    44,
    "Llama computes cosines and sines once for all layers, which keep frequencies that nobody reads; before, every layer \
     computed its own. A layer of Mistral computes them; before, it had tables of all positions",
    "transformers/models/{llama,mistral}/modeling_*.py of 4.40.2 and 4.44.2",
);

/// Rotary positions once for all layers, in most others.
pub const MOST_ANGLES_ONCE: Rule = transformers(
    4,
    45,
    "Qwen2, Qwen2-MoE, GPT-NeoX, Phi, StarCoder2, StableLM and Falcon compute cosines and sines once for all layers; before, \
     every layer had tables of all positions and picked its own out of them",
    "transformers/models/{qwen2,qwen2_moe,gpt_neox,phi,starcoder2,stablelm,falcon}/modeling_*.py of 4.44.2 and 4.45.2",
);

/// Positions of Whisper's decoder.
pub const WHISPER_REPEATS_POSITIONS: Rule = transformers(
    4,
    49,
    "Whisper's decoder looks up positions for every sample; before, once for all",
    "transformers/models/whisper/modeling_whisper.py (position_ids = cache_position.unsqueeze(0).repeat)",
);

/// Rotary positions once for all layers, everywhere.
pub const ANGLES_ONCE: Rule = transformers(
    4,
    48,
    "no layer has anything rotary: cosines and sines are computed once; before, Mistral, Gemma, Gemma 2, OLMo and Phi-3 computed \
     them in every layer, Mixtral had tables in every layer, and layers of the others kept frequencies that nobody read",
    "transformers/models/*/modeling_*.py of 4.47.1 and 4.48.3 (self.rotary_emb)",
);

/// Decoders that cached nothing in training for a while.
pub const NO_CACHE_IN_TRAINING: Rule = transformers(
    4,
    44,
    "Llama, Mistral, Mixtral, Qwen2, Qwen2-MoE, Gemma, OLMo, Phi, Phi-3, StableLM, StarCoder2 and BLOOM make no cache of keys \
     and values in training, whatever use_cache says",
    "transformers/models/*/modeling_*.py of 4.40.2 and 4.44.2 (if use_cache and ... and not self.training)",
);

/// Until they did again.
pub const CACHE_IN_TRAINING: Rule = transformers(
    4,
    45,
    "those decoders make a cache in training again where use_cache is on",
    "transformers/models/*/modeling_*.py of 4.44.2 and 4.45.2 (past_key_values = DynamicCache())",
);

/// The first encoders' and others' attention.
pub const FIRST_ENCODERS_CALL_SDPA: Rule = transformers(
    4,
    44,
    "BERT, ViT, CLIP, GPT-2 and GPT-NeoX have scaled_dot_product_attention; before, eager attention alone",
    "transformers/models/{bert,vit,clip,gpt2,gpt_neox}/modeling_*.py of 4.40.2 and 4.44.2 (_supports_sdpa)",
);

/// More of them.
pub const NEXT_ENCODERS_CALL_SDPA: Rule = transformers(
    4,
    45,
    "RoBERTa, DINOv2 and Phi-3 have scaled_dot_product_attention; before, eager attention alone",
    "transformers/models/{roberta,dinov2,phi3}/modeling_*.py of 4.44.2 and 4.45.2 (_supports_sdpa)",
);

/// T5's positions.
pub const T5_COUNTS_POSITIONS: Rule = transformers(
    4,
    46,
    "T5 counts positions in a tensor, cuts its position bias to the queries and hides what comes later as Llama does; before, \
     numbers of Python counted, and its decoder's mask was made of ones and zeros",
    "transformers/models/t5/modeling_t5.py of 4.45.2 (real_seq_length), 4.46.3 (cache_position); modeling_utils.py of 4.45.2 \
     (create_extended_attention_mask_for_decoder)",
);

/// Masks of GPT-Neo and GPT-NeoX.
pub const GPT_NEO_UPDATES_MASK: Rule = transformers(
    4,
    45,
    "GPT-Neo and GPT-NeoX make their masks as Llama does; before, as modeling_attn_mask_utils.py has them",
    "transformers/models/{gpt_neo,gpt_neox}/modeling_*.py of 4.44.2 (_prepare_4d_causal_attention_mask) and 4.45.2",
);

/// OPT's and DistilBERT's attention.
pub const OPT_CALLS_SDPA: Rule = transformers(
    4,
    46,
    "OPT and DistilBERT have scaled_dot_product_attention; before, eager attention alone, and OPT counted positions and made \
     its mask by itself",
    "transformers/models/{opt,distilbert}/modeling_*.py of 4.45.2 and 4.46.3 (_supports_sdpa)",
);

/// GPT-NeoX' own attention classes.
pub const GPT_NEOX_SHARES_ATTENTION: Rule = transformers(
    4,
    49,
    "GPT-NeoX calls the attention that all models share; before, classes of its own: each layer had its mask of all positions \
     and the number it puts in, and eager attention added its product to a tensor of zeros",
    "transformers/models/gpt_neox/modeling_gpt_neox.py of 4.44.2, 4.48.3 (_init_bias, masked_bias) and 4.49.0",
);

/// What a generation begins with.
pub const EXPANDS_NOTHING_ONCE: Rule = transformers(
    4,
    45,
    "a generation of one answer a prompt goes on with the prompt and mask it was given; before, it repeated them once, the encoder's \
     output too",
    "transformers/generation/utils.py of 4.44.2 and 4.45.2 (_expand_inputs_for_generation)",
);

/// What tokens are chosen by.
pub const CHOOSES_IN_FLOAT32: Rule = transformers(
    4,
    45,
    "a generation makes the last position's logits float32 before it chooses; before, it copied them as they were",
    "transformers/generation/utils.py of 4.44.2 (outputs.logits[:, -1, :].clone()) and 4.45.2 (.float())",
);

/// GPT-J's own mask.
pub const GPTJ_SHARES_MASK: Rule = transformers(
    4,
    45,
    "GPT-J makes a causal mask as Llama does; before, each of its layers had a buffer of all positions and the number it puts in, \
     and padding was hidden by a second one",
    "transformers/models/gptj/modeling_gptj.py of 4.44.2 (bias, masked_bias) and 4.45.2 (_update_causal_mask)",
);

/// The first models whose tuples became caches.
pub const GPT_NEOX_HAS_CACHE_CLASS: Rule = transformers(
    4,
    45,
    "a generation of GPT-NeoX, GPT-Neo, GPT-J or Falcon puts keys and values into a cache; before, every forward returned tuples of \
     all of them",
    "transformers/models/{gpt_neox,gpt_neo,gptj,falcon}/modeling_*.py of 4.44.2 (presents) and 4.45.2 (DynamicCache)",
);

/// What comes first behind a forward.
pub const CHOOSES_LAST: Rule = transformers(
    4,
    46,
    "a generation makes what the next forward is given before it chooses the token; before, after it",
    "transformers/generation/utils.py of 4.45.2 and 4.46.3 (_sample: _update_model_kwargs_for_generation)",
);

/// One attention call for all models.
pub const SHARED_SDPA: Rule = transformers(
    4,
    48,
    "queries, keys and values are made contiguous before scaled_dot_product_attention",
    "transformers/integrations/sdpa_attention.py of 4.48.3",
);

/// StarCoder2's checkpoints, for a while.
pub const STARCODER2_FORGETS_CHECKPOINTS: Rule = transformers(
    4,
    48,
    "StarCoder2 takes the request for gradient checkpointing and runs its layers as without; before, it checkpointed them",
    "transformers/models/starcoder2/modeling_starcoder2.py of 4.47.1 (_gradient_checkpointing_func), 4.48.3 and 4.51.3",
);

/// OPT's tuples.
pub const OPT_HAS_CACHE_CLASS: Rule = transformers(
    4,
    49,
    "a generation of OPT puts keys and values into a cache; before, every forward returned tuples of all of them",
    "transformers/models/opt/modeling_opt.py of 4.48.3 and 4.49.0 (DynamicCache)",
);

/// ViT's and DINOv2's own attention classes.
pub const VISION_SHARES_SDPA: Rule = transformers(
    4,
    50,
    "ViT and DINOv2 call the attention that all models share; before, classes of their own",
    "transformers/models/{vit,dinov2}/modeling_*.py of 4.49.0 and 4.50.3 (ALL_ATTENTION_FUNCTIONS)",
);

/// StarCoder2's checkpoints again.
pub const STARCODER2_CHECKPOINTS: Rule = transformers(
    4,
    52,
    "StarCoder2 checkpoints its layers again",
    "transformers/models/starcoder2/modeling_starcoder2.py of 4.51.3 and 4.52.4 (_gradient_checkpointing_func)",
);

/// CLIP's own attention classes.
pub const CLIP_SHARES_SDPA: Rule = transformers(
    4,
    52,
    "CLIP calls the attention that all models share; before, classes of its own",
    "transformers/models/clip/modeling_clip.py of 4.51.3 and 4.52.4 (ALL_ATTENTION_FUNCTIONS)",
);

/// What a layer of GPT-2 returns.
pub const GPT2_RETURNS_HIDDEN_STATES: Rule = transformers(
    4,
    52,
    "a block of GPT-2 returns what it made alone where nothing else is asked for; before, None beside it for keys and values that it did \
     not cache, which a checkpoint of one output fails on",
    "transformers/models/gpt2/modeling_gpt2.py of 4.51.3 and 4.52.4 (outputs = (hidden_states,) + outputs[1:])",
);

/// What a layer of ViT and DINOv2 returns.
pub const VIT_RETURNS_HIDDEN_STATES: Rule = transformers(
    4,
    50,
    "a layer of ViT and DINOv2 returns what it made alone where nothing else is asked for; before, None beside it for the probabilities that \
     scaled_dot_product_attention does not make",
    "transformers/models/{vit,dinov2}/modeling_*.py of 4.49.0 and 4.50.3 (return context_layer, None)",
);

/// BART's and Whisper's own attention classes.
pub const BART_SHARES_SDPA: Rule = transformers(
    4,
    53,
    "BART and Whisper call the attention that all models share; before, classes of their own, where BART too copies \
     queries, keys and values (_shape)",
    "transformers/models/{bart,whisper}/modeling_*.py of 4.51.3, 4.52.4 and 4.53.3 (ALL_ATTENTION_FUNCTIONS)",
);

/// What layers of Whisper's encoder return.
pub const WHISPER_RETURNS_PROBABILITIES: Rule = transformers(
    4,
    54,
    "a layer of Whisper's encoder returns the probabilities of eager attention, asked or not, and the encoder holds them until the next \
     layer has run, up to 5.4; before, nobody did who did not ask",
    "transformers/models/whisper/modeling_whisper.py of 4.53.3, 4.54.1 (return hidden_states, attn_weights) and 5.4.0",
);

/// OPT's own attention classes.
pub const OPT_SHARES_SDPA: Rule = transformers(
    4,
    52,
    "OPT calls the attention that all models share; before, classes of its own, which copied nothing before the kernel",
    "transformers/models/opt/modeling_opt.py of 4.51.3 (OPTSdpaAttention) and 4.52.4",
);

/// GPT-2's own masks.
pub const GPT2_SHARES_MASK: Rule = transformers(
    4,
    52,
    "GPT-2 makes its causal mask as Llama does; before, out of a causal and a padding mask (attn_mask_utils.py)",
    "transformers/models/gpt2/modeling_gpt2.py of 4.51.3 (_prepare_4d_causal_attention_mask_for_sdpa) and 4.52.4",
);

/// What GPT-2 and BART remember in a generation.
pub const GPT2_HAS_CACHE_CLASS: Rule = transformers(
    4,
    52,
    "a generation of GPT-2 or BART puts keys and values into a cache, which lets go of the old ones layer by layer; before, \
     every forward returned tuples of all of them, beside those it was given",
    "transformers/models/{gpt2,bart}/modeling_*.py of 4.51.3 (presents, next_decoder_cache) and 4.52.4 (_supports_cache_class)",
);

/// What OLMo computes in float32.
pub const OLMO_IN_FLOAT32: Rule = transformers(
    4,
    52,
    "OLMo and OLMo 2 turn queries and keys in float32, by tables in it, and OLMo 2's norm multiplies by its weight there; before, as Llama",
    "transformers/models/{olmo,olmo2}/modeling_*.py of 4.51.3 and 4.52.4",
);

/// What eager attention of GPT-2 returns.
pub const GPT2_RETURNS_PROBABILITIES: Rule = transformers(
    4,
    52,
    "eager attention of GPT-2 returns its probabilities, which the layer has a name for; before, they went with it unless they were asked for",
    "transformers/models/gpt2/modeling_gpt2.py of 4.51.3 (if output_attentions) and 4.52.4",
);

/// What eager attention of the oldest decoders returns.
pub const PROBABILITIES_RETURNED: Rule = transformers(
    4,
    54,
    "eager attention of GPT-Neo, BLOOM, GPT-J and Falcon returns its probabilities, which layers and model have names for; before, they \
     went with it unless they were asked for",
    "transformers/models/{gpt_neo,bloom,gptj,falcon}/modeling_*.py of 4.51.3, 4.53.3 (if output_attentions) and 4.54.1",
);

/// Falcon's unread frequencies.
pub const FALCON_LETS_GO_OF_FREQUENCIES: Rule = transformers(
    4,
    54,
    "layers of Falcon hold no frequencies; before, each had some that nobody read",
    "transformers/models/falcon/modeling_falcon.py of 4.51.3, 4.53.3 (FalconAttention.rotary_emb) and 4.54.1",
);

/// What a causal mask is made of.
pub const BOOLEAN_MASKS: Rule = transformers(
    4,
    53,
    "a causal mask for scaled_dot_product_attention is boolean, made by masking_utils.py; before, each model made one of numbers \
     that are added to the scores, once for all layers, and Gemma 2 and 3 another in every layer with a window, whatever was given",
    "transformers/models/llama/modeling_llama.py of 4.51.3 (_update_causal_mask) and 4.52.4; masking_utils.py of 4.53.3",
);

/// When encoders split their queries into heads.
pub const ENCODERS_SPLIT_QUERIES_FIRST: Rule = transformers(
    4,
    54,
    "eager attention of BERT, RoBERTa and ELECTRA splits queries into heads before it projects keys, and its layers return its \
     probabilities, which live until the next layer has returned; before, queries are split at last, and nothing is returned beside the output",
    "transformers/models/{bert,roberta,electra}/modeling_*.py of 4.53.3 (mixed_query_layer) and 4.54.1",
);

/// Grouped heads go to the kernel.
pub const SDPA_GROUPS: Rule = transformers(
    4,
    54,
    "without a mask, grouped heads go to the kernel as they are (PyTorch 2.5 and later); before, keys and values were repeated",
    "transformers/integrations/sdpa_attention.py of 4.53.3 and 4.54.1 (pull request 39412)",
);

/// No copies for the kernel any more.
pub const SDPA_AS_GIVEN: Rule = transformers(
    4,
    56,
    "queries, keys and values go to the kernel in the memory order they have",
    "transformers/integrations/sdpa_attention.py of 4.55.4 and 4.56.2",
);

/// What a cache of keys and values is made of.
pub const CACHE_COPIES: Rule = transformers(
    4,
    56,
    "the cache puts a prompt's keys and values behind nothing, which copies them; before, it kept what it was given",
    "transformers/cache_utils.py of 4.51.3 (DynamicCache.update), 4.55.4 and 4.56.2 (DynamicLayer.lazy_initialization)",
);

/// Which experts of a list run.
pub const EXPERTS_HIT: Rule = transformers(
    4,
    53,
    "Mixtral, Qwen2-MoE and Qwen3-MoE look for the experts that a token chose, and run those; before, all of them run",
    "transformers/models/mixtral/modeling_mixtral.py and qwen3_moe of 4.52.4 and 4.53.3 (expert_hitted)",
);

/// ConvNeXt's norm over channels that come first.
pub const CONVNEXT_NORMS_AT_ONCE: Rule = transformers(
    4,
    56,
    "ConvNeXt goes through its layers one by one, and norms channels that come first by layer_norm, on a view that has them last; \
     before, by mean, variance and division in float32",
    "transformers/models/convnext/modeling_convnext.py of 4.44.2, 4.53.3 and 4.56.2 (ConvNextLayerNorm)",
);

/// The dtype of GPT-J's angles.
pub const GPTJ_CASTS_ANGLES: Rule = transformers(
    4,
    56,
    "GPT-J makes sines and cosines the keys' dtype; before, they were float32, and with them what they turned",
    "transformers/models/gptj/modeling_gptj.py of 4.53.3 and 4.56.2 (sincos)",
);

/// How long ViT and DeiT hold what their attention is given.
pub const VIT_NAMES_NORM: Rule = transformers(
    4,
    56,
    "a layer of ViT has a name for what its attention is given, until it returns",
    "transformers/models/vit/modeling_vit.py of 4.55.4 and 4.56.2 (hidden_states_norm)",
);

/// DINOv2's patches.
pub const DINOV2_PATCHES_OF_14: Rule = transformers(
    4,
    47,
    "a config of DINOv2 that does not say how large patches are means 14; before, 16",
    "transformers/models/dinov2/configuration_dinov2.py of 4.46.3 and 4.47.1",
);

/// GPT-NeoX's attention between its classes and the one that all models share.
pub const GPT_NEOX_BY_FUNCTION: Rule = transformers(
    4,
    47,
    "GPT-NeoX attends by functions: the eager one leaves what is to come to the mask that it is given, that of the kernel copies queries, keys \
     and values; before, its buffer hid what is to come as well, and nothing was copied",
    "transformers/models/gpt_neox/modeling_gpt_neox.py of 4.46.3 (mask_value) and 4.47.1 (sdpa_attention_forward)",
);

/// The masks of GPT-2.
pub const GPT2_HAS_BOOLEAN_MASKS: Rule = transformers(
    4,
    54,
    "GPT-2 makes its causal mask by masking_utils.py; before, of numbers that are added to the scores, as Llama had done",
    "transformers/models/gpt2/modeling_gpt2.py of 4.52.4, 4.53.3 (_update_causal_mask) and 4.54.1",
);

/// DoRA, whose peft nobody names: that of transformers' time is taken.
pub const DORA_IS_VARIANT: Rule = transformers(
    4,
    53,
    "DoRA is a function that is given a layer's input and result, whose sum is brought back to the result's dtype; before, what dropout left \
     took the input's name, and on quantized layers what is added was brought to that dtype",
    "peft/tuners/lora/{layer,bnb}.py of 0.12.0, 0.15.2 and 0.17.1 (lora_variant)",
);

/// Phi-3's turned dimensions.
pub const PHI3_TURNS_PARTS: Rule = transformers(
    4,
    49,
    "Phi-3 turns a part of each head and puts the rest behind it, where there is none too; before, it turned all as Llama does",
    "transformers/models/phi3/modeling_phi3.py of 4.44.2, 4.48.3 and 4.49.0 (q_rot, q_pass)",
);

/// Gemma 2's attention between its classes and the one that all models share.
pub const GEMMA2_BY_FUNCTION: Rule = transformers(
    4,
    47,
    "Gemma 2 attends by functions of its own, which leave queries, keys and values to the layer that holds them; before, what is made of them took \
     their names",
    "transformers/models/gemma2/modeling_gemma2.py of 4.46.3 and 4.47.1 (sdpa_attention_forward)",
);
