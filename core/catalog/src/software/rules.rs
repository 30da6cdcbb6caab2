//! The rules that changed, each with the version it came with and where that was read.

use super::Version;

/// Whose version counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Package {
    /// PyTorch.
    Torch,
    /// Hugging Face transformers.
    Transformers,
    /// bitsandbytes.
    Bitsandbytes,
}

/// One rule that changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Whose version counts.
    pub package: Package,
    /// The first version it holds for.
    pub since: Version,
    /// What holds from then on.
    pub what: &'static str,
    /// Where it was read.
    pub source: &'static str,
}

/// Every rule, oldest first.
pub const ALL: &[Rule] = &[
    SDPA,
    FOREACH,
    SET_TO_NONE,
    FOREACH_CLIP,
    ONE_ADAM_LIST,
    MEAN_KEEPS_SIZES,
    FLASH_2,
    FLASH_STATE,
    FLASH_TWICE,
    SELECTIVE_CHECKPOINTS,
    EFFICIENT_STATE,
    CUDNN_BUNDLED,
    EMBEDDING_ATOMICS,
    MATH_IN_FLOAT32,
    CUB_TUNED,
    CUB_COUNTS_IN_64_BITS,
    CUB_ROUNDS_TWICE,
    EFFICIENT_GROUPS,
    GROUPED_MM_ON_HOPPER,
    GROUPED_MM,
    WHOLE_SLICES_LEFT_OUT,
    LLAMA_COMPUTES_ANGLES,
    FIRST_ANGLES_ONCE,
    MOST_ANGLES_ONCE,
    NO_CACHE_IN_TRAINING,
    CACHE_IN_TRAINING,
    FIRST_ENCODERS_CALL_SDPA,
    NEXT_ENCODERS_CALL_SDPA,
    GPT_NEO_UPDATES_MASK,
    OPT_CALLS_SDPA,
    LOGITS_TO_KEEP,
    EXPANDS_NOTHING_ONCE,
    CHOOSES_IN_FLOAT32,
    GPTJ_SHARES_MASK,
    GPT_NEOX_HAS_CACHE_CLASS,
    CHOOSES_LAST,
    LOSS_FUNCTION,
    FALCON_KEEPS_LOGITS,
    GRANITE_KEEPS_LOGITS,
    GPT_NEOX_KEEPS_LOGITS,
    GPT2_KEEPS_LOGITS,
    EVERY_MODEL_KEEPS_LOGITS,
    WHISPER_REPEATS_POSITIONS,
    ANGLES_ONCE,
    GPT_NEOX_SHARES_ATTENTION,
    SHARED_SDPA,
    STARCODER2_FORGETS_CHECKPOINTS,
    OLDEST_SHARE_LOSS,
    GPT_NEOX_SHARES_LOSS,
    PADDED_LABELS,
    OPT_HAS_CACHE_CLASS,
    VISION_SHARES_SDPA,
    STARCODER2_CHECKPOINTS,
    CLIP_SHARES_SDPA,
    BART_SHARES_SDPA,
    OPT_SHARES_SDPA,
    LAST_DECODERS_SHARE_SDPA,
    GPT2_SHARES_MASK,
    GPT2_HAS_CACHE_CLASS,
    PROBABILITIES_RETURNED,
    DINOV2_SOFTMAX_AS_GIVEN,
    FALCON_LETS_GO_OF_FREQUENCIES,
    LAST_FREQUENCIES_LET_GO,
    STOP_IS_CHECKED,
    POSITIONS_BEFORE_LOOP,
    BOOLEAN_MASKS,
    PACKED_MASKS,
    PACKED_IS_ASKED,
    ENCODERS_SPLIT_QUERIES_FIRST,
    SDPA_GROUPS,
    SDPA_AS_GIVEN,
    CACHE_COPIES,
    SWIN_SHARES_ATTENTION,
    NO_BIAS_BUFFERS,
    NO_MASKED_BIAS,
    FREQUENCIES_TWICE,
    DELTA_RULE_SOLVED,
    LATENTS_CACHED,
    POSITIONS_SHIFTED,
    T5_SHARES_ATTENTION,
    GPT_NEO_LEAVES_LOGITS,
    LAST_DECODERS_SHARE_MASK,
    LAST_DECODER_STACKS_SHARE_MASK,
    MASKS_BROADCAST,
    MASKS_COUNT_QUERIES,
    PADDING_IS_SUMMED,
    WINDOW_ON_CARD,
    CLIP_SHARES_MASK,
    ENCODER_LAYERS_ARE_LAYERS,
    WHISPER_SPLITS_AT_ONCE,
    BIASES_ARE_NO_MODULES,
    KINDS_HAVE_FREQUENCIES,
    OLMO3_KINDS_HAVE_FREQUENCIES,
    VL_TIES_AS_WHOLE,
    VL_AXES_JOINED,
    QWEN_VL_LAYERS_HOLD_NOTHING,
    LLAMA4_HAS_BIASES,
    CONVNEXT_NORMS_AT_ONCE,
    GPTJ_CASTS_ANGLES,
    VIT_NAMES_NORM,
    VIT_NAMES_MLP,
    ENCODERS_SHARE_MASK,
    PLAIN_LINEARS,
    STACKED_EXPERTS,
    EXPERTS_HIT,
    SCALED_EMBEDDINGS,
    TRAINER_AVERAGES,
    TRAINER_TAKES_NORMS,
    TRAINER_SHIFTS_LABELS,
    LAST_ENCODERS_CALL_SDPA,
    INPUT_LET_GO,
    SMALL_BLOCKS,
    EIGHT_BIT_ROWS,
    OWN_MAPS,
    COMPUTE_AS_SAID,
    FUSED_FOUR_BIT,
];

const fn torch(major: u16, minor: u16, what: &'static str, source: &'static str) -> Rule {
    Rule { package: Package::Torch, since: Version::new(major, minor), what, source }
}

const fn transformers(major: u16, minor: u16, what: &'static str, source: &'static str) -> Rule {
    Rule { package: Package::Transformers, since: Version::new(major, minor), what, source }
}

const fn bitsandbytes(since: Version, what: &'static str, source: &'static str) -> Rule {
    Rule { package: Package::Bitsandbytes, since, what, source }
}

/// Fused attention.
pub const SDPA: Rule = torch(
    2,
    0,
    "there is scaled_dot_product_attention; before, attention is eager",
    "torch/nn/functional.py of the wheels 1.13.1 and 2.0.1",
);

/// The default implementation of optimizers.
pub const FOREACH: Rule = torch(
    2,
    0,
    "optimizers work on lists of tensors (foreach) when nothing is said; before, tensor by tensor",
    "torch/optim/adamw.py of the wheels 1.13.1 (foreach = False) and 2.0.1 (_default_to_fused_or_foreach)",
);

/// The default of `zero_grad`.
pub const SET_TO_NONE: Rule = torch(
    2,
    0,
    "zero_grad() lets go of the gradients when nothing is said; before, it kept them and wrote zeros",
    "torch/optim/optimizer.py of the wheels 1.13.1 and 2.0.1",
);

/// How gradients are clipped.
pub const FOREACH_CLIP: Rule = torch(
    2,
    0,
    "clip_grad_norm_ takes all norms in one foreach kernel, which has a buffer of its own",
    "torch/nn/utils/clip_grad.py of the wheels 1.13.1 and 2.0.1",
);

/// What foreach Adam allocates.
pub const ONE_ADAM_LIST: Rule = torch(
    2,
    1,
    "foreach Adam and AdamW make one temporary as large as the parameters; before, two (the roots, and the roots plus eps)",
    "torch/optim/adamw.py of the wheels 2.0.1 and 2.1.2",
);

/// What a mean keeps.
pub const MEAN_KEEPS_SIZES: Rule = torch(
    2,
    2,
    "a mean over dimensions keeps the sizes of what it was given for its backward; before, what it was given",
    "pytorch issue 109876 and pull request 109935 (September 2023); MeanBackward1._saved_self of PyTorch 2.1.2",
);

/// FlashAttention-2.
pub const FLASH_2: Rule = torch(
    2,
    2,
    "flash attention takes heads of up to 256, and trains heads above 64 on compute capability 8.6 and 8.9; before, 128 and 64",
    "aten/src/ATen/native/transformers/cuda/sdp_utils.cpp; release notes of PyTorch 2.2",
);

/// Where flash attention keeps its seed.
pub const FLASH_STATE: Rule = torch(
    2,
    7,
    "flash attention keeps the state of its random numbers on the card, 16 bytes and an empty tensor; before, on the host",
    "pytorch pull request 146372 (March 2025); none of it in PyTorch 2.6.0 on a hollow card, both in 2.11.0",
);

/// How many blocks flash attention counts on a multiprocessor when it decides among how many the keys of a head are shared.
pub const FLASH_TWICE: Rule = torch(
    2,
    5,
    "flash attention counts two blocks on every multiprocessor when it shares out keys; before, one",
    "set_params_splitkv in aten/src/ATen/native/transformers/cuda/flash_attn/flash_api.cpp; PyTorch 2.4.1, 2.5.1 and 2.11.0 on a hollow L4",
);

/// Selective checkpoints.
pub const SELECTIVE_CHECKPOINTS: Rule = torch(
    2,
    5,
    "there is create_selective_checkpoint_contexts: checkpoints can keep what some operators make",
    "torch/utils/checkpoint.py of the wheels 2.4.0 and 2.5.0",
);

/// Where the memory-efficient kernel keeps its seed.
pub const EFFICIENT_STATE: Rule = torch(
    2,
    14,
    "without dropout the memory-efficient kernel keeps the state of its random numbers, which it does not draw, on the card, two \
     numbers; before, and with dropout, on the host",
    "none of it in PyTorch 2.13.0 on a hollow card, both in 2.14.1 and 2.15.0 and none with dropout",
);

/// cuDNN's attention first on Hopper and data-centre Blackwell.
pub const CUDNN_BUNDLED: Rule = torch(
    2,
    11,
    "cuDNN's attention is tried first on majors 9 and 10: the wheels bring cuDNN 9.19. Before, nobody is given it unasked, by 2.9 \
     neither, whose source names 9.0 and 10.0 (pull request 162073)",
    "asked of PyTorch 2.6.0, 2.9.0, 2.9.1 and 2.11.0 on a hollow H100, of 2.9 and 2.11 on a hollow B200 (torch._fused_sdp_choice)",
);

/// The backward of small embedding tables.
pub const EMBEDDING_ATOMICS: Rule = torch(
    2,
    11,
    "an embedding with many tokens for few rows adds up its gradient in place (half: in a float32 table)",
    "pytorch pull request 170589 (January 2026): aten/src/ATen/native/cuda/EmbeddingBackwardKernel.cu",
);

/// Attention without a kernel of its own.
pub const MATH_IN_FLOAT32: Rule = torch(
    2,
    5,
    "the math kernel of scaled_dot_product_attention computes half numbers in float32, by a softmax whose masked rows become zero; \
     before, in their own dtype and by the plain one",
    "aten/src/ATen/native/transformers/attention.cpp of 2.4.1 and 2.5.0 (_scaled_dot_product_attention_math)",
);

/// CUB's blocks on Ampere and Hopper.
pub const CUB_TUNED: Rule = torch(
    2,
    5,
    "CUB has blocks of their own for compute capability 8.0 in unique_by_key, and for 9.0: the wheels are built with CUDA 12.4",
    "cub/device/dispatch in CUB 2.0.1 (CUDA 12.1, PyTorch 2.1 to 2.4) and 2.3.2 (CUDA 12.4)",
);

/// How CUB counts what is unique.
pub const CUB_COUNTS_IN_64_BITS: Rule = torch(
    2,
    7,
    "CUB's unique_by_key counts in 64 bits: the wheels are built with CUDA 12.6",
    "cub/device/device_select.cuh in CUB 2.3.2 (CUDA 12.4) and 2.5.0 (CUDA 12.6)",
);

/// How CUB adds up what it takes for itself.
pub const CUB_ROUNDS_TWICE: Rule = torch(
    2,
    11,
    "CUB's scans round what they take up twice, and know compute capability 10.0: the wheels are built with CUDA 13.0",
    "cub/agent/single_pass_scan_operators.cuh in CUB 2.7.0 (CUDA 12.8) and 3.0.1 (CUDA 13.0)",
);

/// Grouped heads in the memory-efficient kernel.
pub const EFFICIENT_GROUPS: Rule = torch(
    2,
    14,
    "the memory-efficient kernel takes grouped heads on CUDA; before, float32 or masked ones went to the math kernel",
    "pytorch pull request 191085 (July 2026), in sdp_utils.cpp of 2.14.1",
);

/// Grouped products.
pub const GROUPED_MM_ON_HOPPER: Rule = torch(
    2,
    8,
    "the experts of a mixture are multiplied by one grouped product on compute capability 9.x; before, one after the other",
    "transformers 5.17, integrations/moe.py, _can_use_grouped_mm",
);

/// Grouped products on more cards.
pub const GROUPED_MM: Rule = torch(
    2,
    9,
    "the experts of a mixture are multiplied by one grouped product from compute capability 8.0 on",
    "transformers 5.17, integrations/moe.py, _can_use_grouped_mm",
);

/// What an index leaves in the graph.
pub const WHOLE_SLICES_LEFT_OUT: Rule = torch(
    2,
    9,
    "an index of several dimensions makes a node for what it narrows; before, for every `:` as well, whose backward copies the \
     whole gradient into zeros",
    "x[:, 0].grad_fn and its next functions in PyTorch 2.4.1 (SelectBackward0, SliceBackward0) and 2.9.1 (SelectBackward0); the ViT of PyTorch 2.6 in the rows is of the older kind",
);

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

/// The last encoders' attention.
pub const LAST_ENCODERS_CALL_SDPA: Rule = transformers(
    5,
    0,
    "ELECTRA has scaled_dot_product_attention; before, eager attention alone",
    "transformers/models/electra/modeling_electra.py of 4.57.3 and 5.0.0 (_supports_sdpa)",
);

/// What the Trainer does with a loss of a single process.
pub const TRAINER_AVERAGES: Rule = transformers(
    4,
    57,
    "the Trainer multiplies a loss by the number of processes, of which one is enough (average_tokens_across_devices)",
    "transformers/trainer.py and training_args.py of 4.51.3 and 4.57.3",
);

/// The norm of the gradients in the Trainer.
pub const TRAINER_TAKES_NORMS: Rule = transformers(
    5,
    3,
    "the Trainer lets go of the last step's norm before it takes the next, and clips to infinity where nothing is clipped; before, it \
     took none there",
    "transformers/trainer.py of 4.57.3, 5.0.0, 5.8.0 (which has it) and 5.17.0 (_get_grad_norm)",
);

/// Which labels the Trainer counts.
pub const TRAINER_SHIFTS_LABELS: Rule = transformers(
    5,
    10,
    "the Trainer leaves each row's first label out when it counts them",
    "transformers/trainer.py of 5.8.0 and 5.17.0 (_loss_shifts_labels)",
);

/// Which logits a generation makes.
pub const LOGITS_TO_KEEP: Rule = transformers(
    4,
    45,
    "a generation asks for the logits of the last position alone; before, for those of the whole prompt",
    "transformers/generation/utils.py and models/llama/modeling_llama.py of 4.44.2 and 4.45.2 (num_logits_to_keep)",
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

/// Which Falcon makes.
pub const FALCON_KEEPS_LOGITS: Rule = transformers(
    4,
    47,
    "a generation asks Falcon for the logits of the last position alone; before, for all",
    "transformers/models/falcon/modeling_falcon.py of 4.46.3 and 4.47.1",
);

/// Which Granite makes.
pub const GRANITE_KEEPS_LOGITS: Rule = transformers(
    4,
    48,
    "a generation asks Granite for the logits of the last position alone; before, for all",
    "transformers/models/granite/modeling_granite.py of 4.47.1 and 4.48.3",
);

/// Which GPT-NeoX makes.
pub const GPT_NEOX_KEEPS_LOGITS: Rule = transformers(
    4,
    49,
    "a generation asks GPT-NeoX for the logits of the last position alone; before, for all",
    "transformers/models/gpt_neox/modeling_gpt_neox.py of 4.48.3 and 4.49.0",
);

/// Which GPT-2 makes.
pub const GPT2_KEEPS_LOGITS: Rule = transformers(
    4,
    53,
    "a generation asks GPT-2 for the logits of the last position alone; before, for all",
    "transformers/models/gpt2/modeling_gpt2.py of 4.52.4 and 4.53.3",
);

/// Which the others make.
pub const EVERY_MODEL_KEEPS_LOGITS: Rule = transformers(
    5,
    0,
    "a generation asks GPT-Neo, GPT-J, OPT and BLOOM for the logits of the last position alone; before, for all",
    "transformers/models/{gpt_neo,gptj,opt,bloom}/modeling_*.py of 4.57.1 and 5.17 (5.0.0 has it too)",
);

/// Where the loss is computed.
pub const LOSS_FUNCTION: Rule = transformers(
    4,
    46,
    "logits are made float32 in the loss function, beside the model's own; before, in the model, in their place",
    "transformers/loss/loss_utils.py of 4.46.3, models/llama/modeling_llama.py of 4.45.2",
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

/// The oldest models' own losses.
pub const OLDEST_SHARE_LOSS: Rule = transformers(
    4,
    48,
    "GPT-2, OPT, BLOOM, Falcon and StableLM compute their loss as all models do; before, on the logits in the dtype \
     they have",
    "transformers/models/{gpt2,opt,bloom,falcon,stablelm}/modeling_*.py of 4.44.2, 4.47.1 and 4.48.3 (loss_function)",
);

/// GPT-NeoX' own loss.
pub const GPT_NEOX_SHARES_LOSS: Rule = transformers(
    4,
    49,
    "GPT-NeoX computes its loss as all models do; before, on the logits in the dtype they have",
    "transformers/models/gpt_neox/modeling_gpt_neox.py of 4.44.2, 4.48.3 and 4.49.0 (loss_function)",
);

/// How the loss shifts by one token.
pub const PADDED_LABELS: Rule = transformers(
    4,
    49,
    "the loss shifts the labels; before, it made a shifted copy of all logits",
    "transformers/loss/loss_utils.py of 4.48.3 and 4.49.0",
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

/// BART's and Whisper's own attention classes.
pub const BART_SHARES_SDPA: Rule = transformers(
    4,
    53,
    "BART and Whisper call the attention that all models share; before, classes of their own, where BART too copies \
     queries, keys and values (_shape)",
    "transformers/models/{bart,whisper}/modeling_*.py of 4.51.3, 4.52.4 and 4.53.3 (ALL_ATTENTION_FUNCTIONS)",
);

/// OPT's own attention classes.
pub const OPT_SHARES_SDPA: Rule = transformers(
    4,
    52,
    "OPT calls the attention that all models share; before, classes of its own, which copied nothing before the kernel",
    "transformers/models/opt/modeling_opt.py of 4.51.3 (OPTSdpaAttention) and 4.52.4",
);

/// The last own attention classes of decoders.
pub const LAST_DECODERS_SHARE_SDPA: Rule = transformers(
    5,
    0,
    "OLMoE, Qwen2-MoE and StableLM call the attention that all models share; before, classes of their own, which repeat grouped \
     heads and copy queries, keys and values beside a mask only",
    "transformers/models/{olmoe,qwen2_moe,stablelm}/modeling_*.py of 4.51.3, 4.57.1 (...SdpaAttention) and 5.17.0",
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

/// What eager attention of the oldest decoders returns.
pub const PROBABILITIES_RETURNED: Rule = transformers(
    4,
    54,
    "eager attention of GPT-Neo, BLOOM and GPT-J returns its probabilities, which layers and model have names for; before, they \
     went with it unless they were asked for",
    "transformers/models/{gpt_neo,bloom,gptj}/modeling_*.py of 4.51.3, 4.53.3 (if output_attentions) and 4.54.1",
);

/// The softmax of DINOv2.
pub const DINOV2_SOFTMAX_AS_GIVEN: Rule = transformers(
    5,
    0,
    "eager attention of DINOv2 computes its softmax in the dtype of the scores; before, in float32",
    "transformers/models/dinov2/modeling_dinov2.py of 4.51.3, 4.57.3 (dtype=torch.float32) and 5.17.0",
);

/// Falcon's unread frequencies.
pub const FALCON_LETS_GO_OF_FREQUENCIES: Rule = transformers(
    4,
    54,
    "layers of Falcon hold no frequencies; before, each had some that nobody read",
    "transformers/models/falcon/modeling_falcon.py of 4.51.3, 4.53.3 (FalconAttention.rotary_emb) and 4.54.1",
);

/// Those of the last models that had them.
pub const LAST_FREQUENCIES_LET_GO: Rule = transformers(
    5,
    0,
    "layers of Qwen2-MoE and StableLM hold no frequencies; before, each had some that nobody read",
    "transformers/models/{qwen2_moe,stablelm}/modeling_*.py of 4.51.3, 4.57.3 (rotary_emb of attention) and 5.17.0",
);

/// What asks whether a generation is over.
pub const STOP_IS_CHECKED: Rule = transformers(
    5,
    17,
    "a generation hands what says whether it is over to a check that lets go of it; before, it held the tensor until the next token",
    "transformers/generation/utils.py of 5.16.1 (this_peer_finished) and 5.17.0 (StopCheck)",
);

/// When a generation counts positions.
pub const POSITIONS_BEFORE_LOOP: Rule = transformers(
    5,
    4,
    "a generation counts its positions once and puts one behind them for each token; before, it counted them out of the mask \
     for every forward, and held cache_position and what the latest forward was given",
    "transformers/generation/utils.py of 4.51.3, 4.57.3 (_get_initial_cache_position, prepare_inputs_for_generation) and 5.17.0",
);

/// What a causal mask is made of.
pub const BOOLEAN_MASKS: Rule = transformers(
    4,
    53,
    "a causal mask for scaled_dot_product_attention is boolean, made by masking_utils.py; before, each model made one of numbers \
     that are added to the scores, once for all layers, and Gemma 2 and 3 another in every layer with a window, whatever was given",
    "transformers/models/llama/modeling_llama.py of 4.51.3 (_update_causal_mask) and 4.52.4; masking_utils.py of 4.53.3",
);

/// Whether a mask of packed sequences can be made at all.
pub const PACKED_MASKS: Rule = torch(
    2,
    6,
    "a causal mask is told where packed sequences begin; before, indexing within vmap could not",
    "transformers/masking_utils.py of 4.53.3, 4.57.3 and 5.0.0 (_is_torch_greater_or_equal_than_2_6)",
);

/// Where neither a mask nor a cache is given, what is done for sequences that may be packed.
pub const PACKED_IS_ASKED: Rule = transformers(
    5,
    0,
    "the card is asked whether sequences are packed, and where they are not no mask is made; before, one was made for them, \
     packed or not",
    "transformers/masking_utils.py of 4.53.3, 4.57.3 and 5.0.0 (find_packed_sequence_indices)",
);

/// When encoders split their queries into heads.
pub const ENCODERS_SPLIT_QUERIES_FIRST: Rule = transformers(
    4,
    54,
    "eager attention of BERT, RoBERTa and ELECTRA splits queries into heads before it projects keys; before, at last",
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

/// Swin's own attention.
pub const SWIN_SHARES_ATTENTION: Rule = transformers(
    5,
    9,
    "Swin hands distances and mask to the attention that all models share; before, it had its own alone, which adds them to the \
     scores one after the other and makes probabilities in the dtype the scores have",
    "transformers/models/swin/modeling_swin.py of 4.44.2, 4.57.1 (SwinSelfAttention) and 5.17.0 (SwinAttention)",
);

/// Masks of all positions as buffers.
pub const NO_BIAS_BUFFERS: Rule = transformers(
    5,
    2,
    "GPT-2's attention has no buffers; before, each layer had its mask of all positions",
    "transformers/models/gpt2/modeling_gpt2.py of 4.51.3, 4.57.1, 5.1.0 (bias) and 5.2.0",
);

/// What a layer of GPT-2 and GPT-Neo puts where its mask hides.
pub const NO_MASKED_BIAS: Rule = transformers(
    5,
    0,
    "attention of GPT-2 and GPT-Neo takes the number it puts in from its dtype; before, each layer held one",
    "transformers/models/gpt2/modeling_gpt2.py and gpt_neo/modeling_gpt_neo.py of 4.51.3, 4.57.1 (masked_bias) and 5.0.0",
);

/// The frequencies of rotary positions.
pub const FREQUENCIES_TWICE: Rule = transformers(
    5,
    0,
    "rotary positions hold their frequencies twice on the card; before, the unchanged ones stayed on the host",
    "transformers/models/llama/modeling_llama.py of 4.51.3, 4.57.1 (original_inv_freq is no buffer) and 5.17.0",
);

/// Which linears bitsandbytes replaces.
pub const PLAIN_LINEARS: Rule = transformers(
    5,
    5,
    "only linears that are nn.Linear itself are quantized, so that none of Falcon's is; before, those of classes made of it as well",
    "transformers/integrations/bitsandbytes.py of 4.44.2 (isinstance) and 5.17.0 (type(module) is nn.Linear)",
);

/// What Gemma's words are multiplied by.
pub const SCALED_EMBEDDINGS: Rule = transformers(
    5,
    4,
    "Gemma's and Gemma 2's embedding holds the number that words are multiplied by; before, it came from the host",
    "transformers/models/gemma2/modeling_gemma2.py of 4.51.3 (normalizer) and 5.17.0 (Gemma2TextScaledWordEmbedding)",
);

/// What a mixture's experts are made of.
pub const STACKED_EXPERTS: Rule = transformers(
    5,
    0,
    "the experts of a mixture are two tensors a layer; before, linears of their own, one expert after the other",
    "transformers/models/mixtral/modeling_mixtral.py of 4.51.3 (MixtralBlockSparseTop2MLP) and 5.17.0 (MixtralExperts)",
);

/// Which experts of a list run.
pub const EXPERTS_HIT: Rule = transformers(
    4,
    53,
    "Mixtral, Qwen2-MoE and Qwen3-MoE look for the experts that a token chose, and run those; before, all of them run",
    "transformers/models/mixtral/modeling_mixtral.py and qwen3_moe of 4.52.4 and 4.53.3 (expert_hitted)",
);

/// The gated delta rule without flash-linear-attention.
pub const DELTA_RULE_SOLVED: Rule = transformers(
    5,
    17,
    "a chunk's triangular system is solved at once; before, row by row, each of which was written into the whole",
    "transformers/models/qwen3_next/modeling_qwen3_next.py of 4.57.1 and 5.17.0 (torch_chunk_gated_delta_rule)",
);

/// What DeepSeek remembers.
pub const LATENTS_CACHED: Rule = transformers(
    5,
    15,
    "a cache remembers DeepSeek's latents; before, the keys and values that every head has of them, and keys were put together by cat",
    "transformers/models/{deepseek_v2,deepseek_v3}/modeling_*.py of 4.51.3, 4.57.1 and 5.17.0 (expand_kv)",
);

/// How positions are counted.
pub const POSITIONS_SHIFTED: Rule = transformers(
    5,
    4,
    "a decoder counts from 0 and adds how many tokens it has seen; before, it counted from there",
    "transformers/models/llama/modeling_llama.py of 4.51.3, 4.57.1 (cache_position) and 5.17.0",
);

/// T5's attention.
pub const T5_SHARES_ATTENTION: Rule = transformers(
    5,
    15,
    "T5 calls the attention that all models share, SDPA too; before, it had its own alone: mask and position bias are added up      once, and to the scores in their place",
    "transformers/models/t5/modeling_t5.py of 4.51.3, 4.57.1 (T5Attention.forward) and 5.17.0",
);

/// The dtype of GPT-Neo's logits.
pub const GPT_NEO_LEAVES_LOGITS: Rule = transformers(
    5,
    0,
    "GPT-Neo returns its logits as they are; before, they were made float32 for the loss and then the hidden states' dtype",
    "transformers/models/gpt_neo/modeling_gpt_neo.py of 4.44.2, 4.51.3, 4.57.3 (lm_logits.to(hidden_states.dtype)) and 5.17.0",
);

/// The last decoders with masks of their own.
pub const LAST_DECODERS_SHARE_MASK: Rule = transformers(
    5,
    2,
    "BLOOM, Falcon, GPT-Neo, GPT-J, OLMoE, OPT, Qwen2-MoE and StableLM make causal masks by masking_utils.py; before, each made one of numbers that \
     are added to the scores, as Llama did once",
    "transformers/models/{bloom,falcon,gpt_neo,gptj,olmoe,opt,qwen2_moe,stablelm}/modeling_*.py of 4.57.1 (_update_causal_mask) and 5.17.0",
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

/// Other names for how many layers an encoder has.
pub const ENCODER_LAYERS_ARE_LAYERS: Rule = transformers(
    5,
    4,
    "num_hidden_layers of BART and Whisper is another name of encoder_layers; before, a number that no layer was counted by",
    "transformers/models/{bart,whisper}/configuration_*.py of 4.51.3, 4.57.1 and 5.17.0 (attribute_map)",
);

/// Whose word on tying holds where a model of images has a text's configuration.
pub const VL_TIES_AS_WHOLE: Rule = transformers(
    5,
    0,
    "the whole configuration of Qwen2.5-VL and Qwen3-VL says whether words are tied; before, that of the text, which says no where it \
     says nothing",
    "transformers/modeling_utils.py of 4.57.1 (get_text_config(decoder=True).tie_word_embeddings); models/qwen3_vl of 5.17.0",
);

/// Positions along three axes.
pub const VL_AXES_JOINED: Rule = transformers(
    5,
    17,
    "Qwen2.5-VL and Qwen3-VL put the tables of their three axes together once, in halves, and count text's positions once; before, \
     layers of Qwen2.5-VL each picked sections out of tables of all axes, Qwen3-VL wrote angles over one another, and both \
     counted positions, and what they differ by, before the text counted its own",
    "transformers/models/{qwen2_5_vl,qwen3_vl}/modeling_*.py of 4.57.1 (get_rope_index, apply_multimodal_rotary_pos_emb, \
     apply_interleaved_mrope) and 5.17.0 (recomposition_frequencies, compute_3d_position_ids)",
);

/// When Whisper splits keys into heads.
pub const WHISPER_SPLITS_AT_ONCE: Rule = transformers(
    5,
    5,
    "Whisper splits keys into heads before it projects values, as classes of its own had done; before, it projected both first",
    "transformers/models/whisper/modeling_whisper.py of 4.51.3 (_shape), 4.57.1 and 5.17.0 (WhisperAttention.forward)",
);

/// Which linears a bias keeps from being quantized.
pub const BIASES_ARE_NO_MODULES: Rule = transformers(
    5,
    0,
    "a parameter that names no weight keeps no linear from being quantized; before, a bias stood for its module: a classifier, whose \
     bias is the last parameter, was left as it was, and so was all of `cls.predictions` (BERT, DeBERTa) and `lm_head` (RoBERTa), \
     whose bias is tied",
    "transformers/integrations/bitsandbytes.py of 4.51.3, 4.57.1 (get_keys_to_not_convert, names_to_remove) and quantizers/base.py of \
     5.17.0",
);

/// Frequencies of Gemma 3 and OLMo 3.
pub const KINDS_HAVE_FREQUENCIES: Rule = transformers(
    5,
    0,
    "Gemma 3 has frequencies, cosines and sines for each kind of layer that it has, OLMo 3 one for all; before, both had them for layers with a \
     window and without always",
    "transformers/models/{gemma3,olmo3}/modeling_*.py of 4.51.3, 4.57.1 (rotary_emb_local, rotary_embs) and 5.0.0",
);

/// Frequencies of OLMo 3.
pub const OLMO3_KINDS_HAVE_FREQUENCIES: Rule = transformers(
    5,
    13,
    "OLMo 3 has frequencies, cosines and sines for each kind of layer that it has",
    "transformers/models/olmo3/modeling_olmo3.py of 5.12.1 (one rotary_emb for all) and 5.13.1 (layer_type)",
);

/// Frequencies of the layers of Qwen2.5-VL.
pub const QWEN_VL_LAYERS_HOLD_NOTHING: Rule = transformers(
    5,
    0,
    "layers of Qwen2.5-VL hold no frequencies; before, each had some that nobody read",
    "transformers/models/qwen2_5_vl/modeling_qwen2_5_vl.py of 4.57.1 (Qwen2_5_VLAttention.rotary_emb) and 5.17.0",
);

/// Biases of Llama 4.
pub const LLAMA4_HAS_BIASES: Rule = transformers(
    5,
    4,
    "attention_bias of Llama 4's text is read; before, its class said no whatever was given",
    "transformers/models/llama4/configuration_llama4.py of 4.57.1 (self.attention_bias = False) and 5.17.0",
);

/// The order of ViT's layers.
pub const VIT_NAMES_MLP: Rule = transformers(
    5,
    9,
    "a layer of ViT has its norms before its two linears; before, they came last",
    "transformers/models/vit/modeling_vit.py of 4.44.2, 4.57.3 (intermediate, output, layernorm_before) and 5.17.0 (mlp)",
);

/// ConvNeXt's norm over channels that come first.
pub const CONVNEXT_NORMS_AT_ONCE: Rule = transformers(
    4,
    56,
    "ConvNeXt norms channels that come first by layer_norm, on a view that has them last; before, by mean, variance and division \
     in float32",
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

/// Masks of encoders.
pub const ENCODERS_SHARE_MASK: Rule = transformers(
    5,
    0,
    "BERT, RoBERTa, ELECTRA and DistilBERT hide padding as all models do, by a boolean mask, and have none where nothing is \
     hidden; before, by numbers that are added to the scores, and where no mask was given they made one of ones",
    "transformers/models/{bert,roberta,electra,distilbert}/modeling_*.py of 4.51.3, 4.57.3 and 5.17.0; modeling_attn_mask_utils.py \
     of 4.51.3 (_prepare_4d_attention_mask_for_sdpa)",
);

/// What a four-bit product keeps.
pub const INPUT_LET_GO: Rule = bitsandbytes(
    Version::patch(0, 43, 2),
    "a four-bit product keeps nothing of its input; before, wherever a gradient was asked for, its node held the input, a \
     frozen weight or not, where no checkpoint saw it, until the graph went",
    "bitsandbytes/autograd/_functions.py of the wheels 0.43.1 (MatMul4Bit: ctx.tensors = (A, B)) and 0.43.2 ((None, B)); \
     commit 9e753741 (pull request 1270)",
);

/// The scales of eight-bit optimizers.
pub const SMALL_BLOCKS: Rule = bitsandbytes(
    Version::new(0, 44),
    "an eight-bit moment has a scale for every 256 numbers; before, for every 2048",
    "bitsandbytes/optim/optimizer.py of 0.43.3 and 0.44.0 (commit aa57bd89, pull request 1365)",
);

/// The eight-bit product. What it did before is not followed.
pub const EIGHT_BIT_ROWS: Rule = bitsandbytes(
    Version::new(0, 45),
    "an eight-bit weight stays in rows, and a product keeps its input; before, the weight was turned into a layout of the \
     card's, and a product kept its input's int8 copy too, turned, and without a gradient the input all the same",
    "bitsandbytes/autograd/_functions.py of 0.44.1 (MatMul8bitLt: CxB, ctx.tensors = (CAt, subA, A) or [None, None, A]) and \
     0.45.0 (commit 81e6345d, pull request 1401)",
);

/// The map of scales that are quantized.
pub const OWN_MAPS: Rule = bitsandbytes(
    Version::new(0, 46),
    "every weight with double quantization has a copy of the map of eight-bit numbers; before, all had one",
    "bitsandbytes/functional.py of 0.45.5 and 0.46.0 (quantize_blockwise: code.to(A.device, copy=True)); commit 9f858294",
);

/// What a four-bit linear computes in.
pub const COMPUTE_AS_SAID: Rule = bitsandbytes(
    Version::new(0, 47),
    "a four-bit linear computes in bnb_4bit_compute_dtype where that is given; before, a first input in float32 or bfloat16 \
     made it compute in that dtype ever after",
    "bitsandbytes/nn/modules.py of 0.46.1 and 0.47.0 (Linear4bit: compute_type_is_set)",
);

/// How a four-bit product is made.
pub const FUSED_FOUR_BIT: Rule = bitsandbytes(
    Version::new(0, 50),
    "one operator makes a four-bit product: a kernel of its own for a few rows, else from the weight unpacked in the input's \
     dtype; before, one row without a gradient had a kernel, and anything else the weight unpacked in the dtype it was \
     quantized from, then cast, and a bias was cast to the dtype of the layer's input for good and then to the computed one",
    "bitsandbytes/autograd/_functions.py and nn/modules.py of 0.49.2 and 0.50.0 (commit 5453368b, pull request 1949)",
);
