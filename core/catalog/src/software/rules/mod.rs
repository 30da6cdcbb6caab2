//! The rules that changed, each with the version it came with and where that was read.

mod bitsandbytes;
mod torch;
mod transformers_4;
mod transformers_5;
mod transformers_5_experts;
mod transformers_5_generation;

pub use self::bitsandbytes::*;
pub use self::torch::*;
pub use self::transformers_4::*;
pub use self::transformers_5::*;
pub use self::transformers_5_experts::*;
pub use self::transformers_5_generation::*;

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
    PRODUCTS_SUM_WIDER,
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
    DEPTHWISE_CHANNELS_LAST,
    FLASH_HEADS_IN_STEPS,
    LT_WANTS_ROWS,
    LT_TAKES_A_ROW,
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
    COPIES_LAST_LOGITS,
    COPIES_LOGITS_ONCE,
    DINOV2_PATCHES_OF_14,
    GPT_NEOX_BY_FUNCTION,
    GPT2_HAS_BOOLEAN_MASKS,
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
    STARCODER2_SHARES_LOSS,
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
    DINOV2_LIKE_VIT,
    PHI3_TURNS_PARTS,
    GEMMA2_BY_FUNCTION,
    DORA_IS_VARIANT,
    DORA_WEIGHTS_CAST,
    FALCON_LETS_GO_OF_FREQUENCIES,
    LAST_FREQUENCIES_LET_GO,
    STOP_IS_CHECKED,
    FULL_MASKS_DROPPED,
    PROMPT_IS_ASKED_FOR_DUMMIES,
    SINGLE_QUERIES_PACKED,
    VALUES_KEEP_THEIR_DTYPE,
    ALIBI_WITHOUT_MASK,
    POSITIONS_BEFORE_LOOP,
    CACHE_POSITION_GROWS,
    NO_CACHE_POSITION,
    PROMPT_READ_APART,
    BOOLEAN_MASKS,
    PACKED_MASKS,
    PACKED_IS_ASKED,
    ENCODERS_SPLIT_QUERIES_FIRST,
    SDPA_GROUPS,
    SDPA_AS_GIVEN,
    CACHE_COPIES,
    SWIN_SHARES_ATTENTION,
    DROP_PATH_FLOORS_APART,
    NO_BIAS_BUFFERS,
    GPT2_SCALES_BY_NUMBER,
    NEIGHBOURS_IN_PLACE,
    NO_MASKED_BIAS,
    FREQUENCIES_TWICE,
    ANGLES_MULTIPLIED,
    DELTA_RULE_SOLVED,
    DELTA_RULE_MASKED_ONCE,
    HEADS_REPEATED_IN_RULE,
    CONVOLVED_BY_FUNCTION,
    LINEAR_STATES_COPIED,
    LINEAR_STATES_AS_GIVEN,
    LATENTS_CACHED,
    POSITIONS_SHIFTED,
    T5_COUNTS_POSITIONS,
    T5_SHARES_MASK,
    T5_ASKS_CACHE,
    T5_SHARES_ATTENTION,
    GPTJ_SHARES_ATTENTION,
    POSITION_BIAS_CONTIGUOUS,
    GEMMA2_IS_EAGER,
    DEBERTA_IS_NO_SCRIPT,
    FALCON_ATTENDS_AS_GIVEN,
    OPT_RETURNS_PROBABILITIES,
    CLIP_RETURNS_PROBABILITIES,
    OPTIMIZERS_BRING_PEFT,
    GPT_NEO_LEAVES_LOGITS,
    LAST_DECODERS_SHARE_MASK,
    MIXTURES_SHARE_MASK,
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
    VL_COUNTS_FOR_IMAGES,
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
    EXPERT_NUMBERS_CLAMPED,
    EXPERTS_PICKED_IN_TURN,
    EXPERTS_UNSORTED_BY_COUNT,
    EXPERT_ROWS_ONCE,
    GROUPED_EXPERTS_MASKED,
    GROUPED_MM_ASKS_CARD,
    EXPERTS_SORTED_ONCE,
    EXPERT_NUMBERS_APART,
    EXPERT_PRODUCTS_MASKED,
    MASKED_WHERE_SHARED_OUT,
    GROUP_ROUTERS_STAY_WIDE,
    ROUTER_KEEPS_LOGITS,
    ROUTER_HOLDS_CHOICE,
    SHARED_EXPERT_ADDED_APART,
    QWEN_MOE_LEFT_ALONE,
    VISION_FREQUENCIES_TWICE,
    SCALED_EMBEDDINGS,
    TRAINER_AVERAGES,
    TRAINER_TAKES_NORMS,
    TRAINER_SHIFTS_LABELS,
    LAST_ENCODERS_CALL_SDPA,
    MODERNBERT_RUNS_AS_WRITTEN,
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
