//! The architectures of Hugging Face's transformers. Defaults of `positions`: the config classes of 5.17.

use super::liger::{GEMMA, GEMMA2, GEMMA3, GLM4, GPT_OSS, LLAMA, OLMO2, QWEN3, QWEN3_5, QWEN3_VL};
use super::sizes::{COMMON, GPT_NEO, GPT2};
use super::{
    Architecture, BatchNorms, Came, Checkpoints, ExpertNames, Experts, Family, Inputs, Once, OneToOne, Origin,
    Positions, Rescales, Task, WideTables,
};
use crate::software::rules;

/// What decoders are trained for.
const DECODER: &[Task] = &[Task::CausalLm, Task::SequenceClassification];

/// What encoders are trained for.
const ENCODER: &[Task] = &[Task::MaskedLm, Task::SequenceClassification];

/// The key of most configs.
const POSITIONS: &[&str] = &["max_position_embeddings"];

/// A causal language model that reads tokens and a mask, and knows positions by rotation.
const fn decoder(name: &'static str, architecture: Architecture, positions: u64) -> Family {
    Family {
        name,
        architecture: Some(architecture),
        origin: Origin::Transformers,
        came: Came::LONG_AGO,
        tasks: DECODER,
        inputs: Inputs::Tokens,
        has_mask: true,
        positions: Positions::computed(POSITIONS, positions),
        layers: &[&["num_hidden_layers"]],
        checkpointing: Checkpoints::Always,
        one_to_one: OneToOne::Always,
        eager: true,
        only_eager: false,
        sdpa: None,
        sdpa_until: None,
        caches: true,
        loss_in_parts: true,
        loss_in_tiles: true,
        liger: None,
        wide_tables: WideTables::Never,
        tower: false,
        adapters: true,
        unquantized: Some(&[]),
        batch_norms: BatchNorms::Never,
        wide_linears: false,
        scalar: None,
        experts: None,
        sizes: COMMON,
    }
}

/// A mixture of experts, whose router makes other weights of those that `topk` chose.
const fn mixture(
    name: &'static str,
    architecture: Architecture,
    positions: u64,
    adapted: Option<ExpertNames>,
) -> Family {
    Family {
        experts: Some(Experts { once: Once::Listed, ..experts(adapted, Rescales::Never) }),
        ..decoder(name, architecture, positions)
    }
}

/// Experts in two tensors of which peft translates the names, if any.
const fn experts(adapted: Option<ExpertNames>, rescales: Rescales) -> Experts {
    Experts { adapted, adapted_once: adapted, unadaptable: None, once: Once::Stacked, rescales }
}

/// A mixture of experts, whose router writes over the weights that `topk` chose, always or where it is asked to.
const fn rescaled(
    name: &'static str,
    architecture: Architecture,
    positions: u64,
    adapted: Option<ExpertNames>,
    rescales: Rescales,
) -> Family {
    let experts = Experts { once: Once::Listed, ..experts(adapted, rescales) };
    Family { experts: Some(experts), ..decoder(name, architecture, positions) }
}

/// Where `norm_topk_prob` says so.
const fn asked(default: bool) -> Rescales {
    Rescales::Asked { default }
}

/// A causal language model that has a tower for images, which its text does without. Where the text's configuration is one of its
/// own no size is edited by hand: the fields change a file's outermost keys.
const fn with_images(name: &'static str, positions: &'static [&'static str], default: u64) -> Family {
    Family {
        tasks: &[Task::CausalLm],
        positions: Positions::computed(positions, default),
        layers: &[&["text_config.num_hidden_layers", "num_hidden_layers"]],
        tower: true,
        ..decoder(name, Architecture::QwenVl, default)
    }
}

/// An encoder of text with a table of positions.
const fn encoder(name: &'static str, architecture: Architecture) -> Family {
    Family {
        tasks: ENCODER,
        positions: Positions::learned(POSITIONS, 512),
        caches: false,
        ..decoder(name, architecture, 512)
    }
}

/// A classifier of images.
const fn classifier(name: &'static str, architecture: Architecture, inputs: Inputs) -> Family {
    Family {
        tasks: &[Task::ImageClassification],
        inputs,
        has_mask: false,
        positions: Positions::NONE,
        caches: false,
        ..decoder(name, architecture, 0)
    }
}

/// Images of the config's own side unless another is said; any can run.
const fn image(key: &'static str) -> Inputs {
    Inputs::Image { key, side: 224, fixed: false }
}

const MIXTRAL: ExpertNames = ExpertNames { gate_up: ["w1", "w3"], down: "w2", router: "gate" };
const QWEN: ExpertNames = ExpertNames { gate_up: ["gate_proj", "up_proj"], down: "down_proj", router: "gate" };

/// Every `model_type` that is estimated.
pub const TRANSFORMERS: &[Family] = &[
    decoder("llama", Architecture::Llama, 2048).liger(&LLAMA),
    decoder("mistral", Architecture::Llama, 131_072).liger(&LLAMA),
    decoder("ministral3", Architecture::Llama, 262_144).came(5, 0),
    decoder("qwen2", Architecture::Llama, 32_768).came(4, 37).liger(&LLAMA),
    decoder("qwen3", Architecture::Llama, 32_768).came(4, 51).liger(&QWEN3),
    Family { tasks: &[Task::CausalLm], loss_in_parts: false, ..decoder("granite", Architecture::Llama, 2048) }
        .came(4, 45),
    Family {
        positions: Positions::learned(&["max_position_embeddings", "n_positions"], 1024),
        layers: &[&["n_layer", "num_hidden_layers"]],
        sdpa: Some(&rules::FIRST_ENCODERS_CALL_SDPA),
        sizes: GPT2,
        one_to_one: OneToOne::Since(&rules::GPT2_RETURNS_HIDDEN_STATES),
        ..decoder("gpt2", Architecture::Gpt2, 1024)
    },
    Family { sdpa: Some(&rules::FIRST_ENCODERS_CALL_SDPA), ..encoder("bert", Architecture::Bert) },
    Family {
        // 512 less the two that stand for no token.
        positions: Positions { behind_padding: true, ..Positions::learned(POSITIONS, 510) },
        sdpa: Some(&rules::NEXT_ENCODERS_CALL_SDPA),
        ..encoder("roberta", Architecture::Roberta)
    },
    Family {
        layers: &[&["n_layers", "num_hidden_layers"]],
        sdpa: Some(&rules::OPT_CALLS_SDPA),
        ..encoder("distilbert", Architecture::Distilbert)
    },
    Family { sdpa: Some(&rules::LAST_ENCODERS_CALL_SDPA), ..encoder("electra", Architecture::Electra) },
    // Positions are a table only where `position_biased_input` adds one; the forward looks for itself.
    Family {
        only_eager: true,
        positions: Positions::computed(POSITIONS, 512),
        one_to_one: OneToOne::Never,
        ..encoder("deberta-v2", Architecture::DebertaV2)
    },
    Family {
        sdpa: Some(&rules::FIRST_ENCODERS_CALL_SDPA),
        one_to_one: OneToOne::SinceUnderSdpa(&rules::VIT_RETURNS_HIDDEN_STATES),
        ..classifier("vit", Architecture::Vit, Inputs::Image { key: "image_size", side: 224, fixed: true })
    },
    Family { one_to_one: OneToOne::Never, ..decoder("falcon", Architecture::Falcon, 2048) },
    Family { sdpa: Some(&rules::FIRST_ENCODERS_CALL_SDPA), ..decoder("gpt_neox", Architecture::GptNeox, 2048) },
    decoder("gemma", Architecture::Gemma, 8192).came(4, 38).liger(&GEMMA),
    Family { sdpa_until: Some(&rules::GEMMA2_IS_EAGER), ..decoder("gemma2", Architecture::Gemma2, 8192) }
        .came(4, 42)
        .liger(&GEMMA2),
    decoder("gemma3_text", Architecture::Gemma2, 131_072)
        .came(4, 50)
        .later(Task::SequenceClassification, 4, 57)
        .liger(&GEMMA3),
    // peft leaves its experts alone: no conversion of theirs is known by its name.
    Family {
        tasks: &[Task::CausalLm],
        // Each layer's own input comes out of one embedding.
        one_to_one: OneToOne::Without("hidden_size_per_layer_input"),
        ..rescaled("gemma4_text", Architecture::Gemma4, 131_072, None, Rescales::Always)
    }
    .came(5, 5),
    Family { tasks: &[Task::CausalLm], ..decoder("gemma4_unified_text", Architecture::Gemma4, 262_144) }.came(5, 10),
    decoder("glm", Architecture::Glm, 131_072).came(4, 46),
    decoder("glm4", Architecture::Glm, 131_072).came(4, 51).liger(&GLM4),
    decoder("phi", Architecture::Phi, 2048),
    Family { sdpa: Some(&rules::NEXT_ENCODERS_CALL_SDPA), ..decoder("phi3", Architecture::Phi3, 4096) }
        .came(4, 41)
        .liger(&LLAMA),
    decoder("starcoder2", Architecture::Starcoder2, 4096).came(4, 39),
    decoder("stablelm", Architecture::StableLm, 4096).came(4, 38),
    decoder("smollm3", Architecture::SmolLm3, 32_768).came(4, 53).liger(&LLAMA),
    Family { wide_tables: WideTables::Always, ..decoder("olmo", Architecture::Olmo, 2048) }.came(4, 40).later(
        Task::SequenceClassification,
        5,
        6,
    ),
    Family { wide_tables: WideTables::Always, ..decoder("olmo2", Architecture::Olmo2, 2048) }
        .came(4, 47)
        .later(Task::SequenceClassification, 5, 6)
        .liger(&OLMO2),
    Family { wide_tables: WideTables::Always, ..decoder("olmo3", Architecture::Olmo2, 2048) }
        .came(4, 57)
        .later(Task::SequenceClassification, 5, 6)
        .liger(&OLMO2),
    rescaled("mixtral", Architecture::Mixtral, 131_072, Some(MIXTRAL), Rescales::Always),
    Family { tasks: &[Task::CausalLm], ..rescaled("olmoe", Architecture::Olmoe, 4096, Some(QWEN), asked(false)) }
        .came(4, 45),
    Family {
        only_eager: true,
        // Its experts are no linears: peft leaves them alone.
        experts: Some(Experts { once: Once::Looped, ..experts(None, Rescales::Never) }),
        ..decoder("gpt_oss", Architecture::GptOss, 131_072)
    }
    .came(4, 55)
    .later(Task::SequenceClassification, 4, 56)
    .liger(&GPT_OSS),
    Family { tasks: &[Task::CausalLm], ..mixture("glm4_moe", Architecture::Glm4Moe, 131_072, Some(QWEN)) }.came(4, 54),
    Family {
        tasks: &[Task::CausalLm],
        // Its class is its own `base_model`, which returns no hidden states.
        loss_in_tiles: false,
        // bitsandbytes is given a list of linears in the place of its experts (`SequentialLlama4TextExperts`).
        unquantized: None,
        experts: Some(Experts { unadaptable: Some("router"), ..experts(None, Rescales::Never) }),
        ..decoder("llama4_text", Architecture::Llama4, 131_072)
    }
    .came(4, 51),
    // Keys and values come out of their latents as if those were a head.
    Family {
        wide_linears: true,
        experts: Some(Experts { once: Once::Sorted, ..experts(Some(QWEN), Rescales::Never) }),
        ..decoder("deepseek_v2", Architecture::DeepseekV2, 2048)
    }
    .came(4, 54),
    Family { wide_linears: true, ..mixture("deepseek_v3", Architecture::Deepseek, 4096, Some(QWEN)) }
        .came(4, 51)
        .later(Task::SequenceClassification, 4, 56),
    Family {
        wide_linears: true,
        tasks: &[Task::CausalLm],
        ..mixture("glm4_moe_lite", Architecture::Glm4MoeLite, 202_752, Some(QWEN))
    }
    .came(5, 0),
    // peft leaves Qwen2-MoE alone: its conversion has another name than its pattern (`_convert_peft_config_moe`).
    Family {
        experts: Some(Experts { adapted_once: Some(QWEN), once: Once::Listed, ..experts(None, asked(false)) }),
        ..decoder("qwen2_moe", Architecture::QwenMoe, 32_768)
    }
    .came(4, 40),
    rescaled("qwen3_moe", Architecture::QwenMoe, 32_768, Some(QWEN), asked(false)).came(4, 51),
    // What its linear layers remember in training holds a part of the graph, which is not followed.
    Family { caches: false, ..rescaled("qwen3_next", Architecture::Qwen3Next, 32_768, Some(QWEN), asked(true)) }
        .came(4, 57),
    Family { caches: false, ..decoder("qwen3_5_text", Architecture::Qwen35, 32_768) }
        .came(5, 2)
        .later(Task::SequenceClassification, 5, 3)
        .liger(&QWEN3_5),
    // peft leaves these experts and their router alone: no conversion of either is known by their names.
    Family {
        caches: false,
        tasks: &[Task::CausalLm],
        ..rescaled("qwen3_5_moe_text", Architecture::Qwen35, 32_768, None, Rescales::Always)
    }
    .came(5, 2),
    Family {
        architecture: Some(Architecture::Qwen35),
        caches: false,
        sizes: &[],
        ..with_images("qwen3_5", &["text_config.max_position_embeddings"], 32_768)
    }
    .came(5, 2),
    Family {
        architecture: Some(Architecture::Qwen35),
        caches: false,
        experts: Some(Experts { adapted_once: Some(QWEN), ..experts(None, Rescales::Always) }),
        sizes: &[],
        ..with_images("qwen3_5_moe", &["text_config.max_position_embeddings"], 32_768)
    }
    .came(5, 2),
    with_images("qwen2_5_vl", &["text_config.max_position_embeddings", "max_position_embeddings"], 32_768).came(4, 49),
    Family { sizes: &[], ..with_images("qwen3_vl", &["text_config.max_position_embeddings"], 128_000) }
        .came(4, 57)
        .liger(&QWEN3_VL),
    Family {
        // peft leaves its experts and its router alone: no conversion of either is known by its name.
        experts: Some(Experts { once: Once::Looped, ..experts(None, Rescales::Always) }),
        sizes: &[],
        ..with_images("qwen3_vl_moe", &["text_config.max_position_embeddings"], 128_000)
    }
    .came(4, 57),
    Family {
        only_eager: true,
        // Biases instead of positions: nothing ends at 2048, the length it was trained with.
        positions: Positions::computed(&["seq_length"], 2048),
        layers: &[&["n_layer", "num_hidden_layers"]],
        one_to_one: OneToOne::Never,
        ..decoder("bloom", Architecture::Bloom, 2048)
    },
    Family {
        positions: Positions::learned(POSITIONS, 2048),
        sdpa: Some(&rules::OPT_CALLS_SDPA),
        ..decoder("opt", Architecture::Opt, 2048)
    },
    Family {
        only_eager: true,
        positions: Positions::learned(POSITIONS, 2048),
        layers: &[&["num_layers", "num_hidden_layers"]],
        sizes: GPT_NEO,
        one_to_one: OneToOne::Never,
        ..decoder("gpt_neo", Architecture::GptNeo, 2048)
    },
    Family {
        only_eager: true,
        sdpa: Some(&rules::GPTJ_SHARES_ATTENTION),
        // Its positions are rotary, but looked up in a table.
        positions: Positions::learned(&["max_position_embeddings", "n_positions"], 2048),
        layers: &[&["n_layer", "num_hidden_layers"]],
        one_to_one: OneToOne::Never,
        ..decoder("gptj", Architecture::Gptj, 2048)
    },
    Family {
        tasks: &[Task::Seq2SeqLm],
        inputs: Inputs::EncoderDecoder,
        positions: Positions::computed(&["n_positions"], 512),
        // The decoder is as deep as the encoder unless it says otherwise.
        layers: &[&["num_layers"], &["num_decoder_layers", "num_layers"]],
        // `_keep_in_fp32_modules`
        unquantized: Some(&["wo"]),
        sdpa: Some(&rules::T5_SHARES_ATTENTION),
        one_to_one: OneToOne::Never,
        ..decoder("t5", Architecture::T5, 512)
    },
    Family {
        tasks: &[Task::Seq2SeqLm],
        inputs: Inputs::EncoderDecoder,
        positions: Positions::learned(POSITIONS, 1024),
        layers: &[&["encoder_layers"], &["decoder_layers"]],
        // "`use_cache` argument is changed to `False` since `labels` is provided"
        caches: false,
        one_to_one: OneToOne::Never,
        ..decoder("bart", Architecture::Bart, 1024)
    },
    Family {
        tasks: &[Task::SpeechSeq2Seq],
        inputs: Inputs::Speech,
        has_mask: false,
        positions: Positions::learned(&["max_target_positions"], 448),
        layers: &[&["encoder_layers"], &["decoder_layers"]],
        one_to_one: OneToOne::Never,
        ..decoder("whisper", Architecture::Whisper, 448)
    },
    Family {
        tasks: &[Task::Contrastive],
        inputs: Inputs::TextAndImage { key: "vision_config.image_size", side: 224 },
        has_mask: false,
        positions: Positions::learned(&["text_config.max_position_embeddings"], 77),
        layers: &[&["text_config.num_hidden_layers"], &["vision_config.num_hidden_layers"]],
        // The module of the last parameter.
        unquantized: Some(&["text_projection"]),
        sdpa: Some(&rules::FIRST_ENCODERS_CALL_SDPA),
        caches: false,
        scalar: Some("logit_scale"),
        ..decoder("clip", Architecture::Clip, 77)
    },
    Family {
        sdpa: Some(&rules::NEXT_ENCODERS_CALL_SDPA),
        one_to_one: OneToOne::SinceUnderSdpa(&rules::VIT_RETURNS_HIDDEN_STATES),
        ..classifier("dinov2", Architecture::Dinov2, image("image_size"))
    },
    Family {
        layers: &[&["depths"]],
        checkpointing: Checkpoints::Never,
        batch_norms: BatchNorms::Always,
        ..classifier("resnet", Architecture::Resnet, image(""))
    },
    Family {
        layers: &[&["depths"]],
        checkpointing: Checkpoints::Never,
        wide_linears: true,
        ..classifier("convnext", Architecture::Convnext, image("image_size"))
    },
    Family {
        layers: &[&["depths"]],
        checkpointing: Checkpoints::WithoutAdapters,
        sdpa: Some(&rules::SWIN_SHARES_ATTENTION),
        one_to_one: OneToOne::Never,
        ..classifier("swin", Architecture::Swin, image("image_size"))
    },
    Family {
        positions: Positions::computed(POSITIONS, 8192),
        wide_tables: WideTables::UnderAutocast,
        ..encoder("modernbert", Architecture::ModernBert)
    }
    .came(4, 48),
];
