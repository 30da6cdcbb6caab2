//! Other names of a config's keys (`attribute_map` of transformers' config classes).

use plimsoll_catalog::software::{Rules, rules};

/// A name that is taken for a class's own, and that own name.
pub type Alias = (&'static str, &'static str);

const GPT2: &[Alias] = &[
    ("hidden_size", "n_embd"),
    ("max_position_embeddings", "n_positions"),
    ("num_attention_heads", "n_head"),
    ("num_hidden_layers", "n_layer"),
];
const DISTILBERT: &[Alias] =
    &[("hidden_size", "dim"), ("num_attention_heads", "n_heads"), ("num_hidden_layers", "n_layers")];
const BLOOM: &[Alias] = &[("num_hidden_layers", "n_layer"), ("num_attention_heads", "n_head")];
const T5: &[Alias] = &[
    ("hidden_size", "d_model"),
    ("num_attention_heads", "num_heads"),
    ("num_hidden_layers", "num_layers"),
    ("head_dim", "d_kv"),
];
const BART: &[Alias] = &[
    ("hidden_size", "d_model"),
    ("num_attention_heads", "encoder_attention_heads"),
    ("num_hidden_layers", "encoder_layers"),
];
const OLDER_BART: &[Alias] = &[("hidden_size", "d_model"), ("num_attention_heads", "encoder_attention_heads")];
const GPT_NEO: &[Alias] = &[("num_attention_heads", "num_heads"), ("num_hidden_layers", "num_layers")];
const SWIN: &[Alias] = &[("num_attention_heads", "num_heads")];
const LOCAL_EXPERTS: &[Alias] = &[("num_experts", "num_local_experts")];
const ROUTED_EXPERTS: &[Alias] = &[("num_local_experts", "n_routed_experts")];
const EXPERTS_ROUTED: &[Alias] = &[("num_experts", "n_routed_experts")];
const EXPERTS: &[Alias] = &[("num_local_experts", "num_experts")];

/// The other names of a model type's keys, as its version of transformers has them. Where both are there the other name's value
/// holds: it is set last.
pub fn aliases(model_type: &str, software: Rules) -> &'static [Alias] {
    match model_type {
        "gpt2" | "gptj" => GPT2,
        "distilbert" => DISTILBERT,
        "bloom" => BLOOM,
        "t5" => T5,
        "bart" | "whisper" if !software.has(&rules::ENCODER_LAYERS_ARE_LAYERS) => OLDER_BART,
        "bart" | "whisper" => BART,
        "gpt_neo" => GPT_NEO,
        "swin" => SWIN,
        _ if !software.has(&rules::EXPERTS_HAVE_OTHER_NAMES) => &[],
        "deepseek_v2" => EXPERTS_ROUTED,
        "mixtral" => LOCAL_EXPERTS,
        "glm4_moe" | "glm4_moe_lite" | "deepseek_v3" => ROUTED_EXPERTS,
        "olmoe" => EXPERTS,
        // Its map has it the other way round, but `num_experts` is the field, and the attribute it is mapped to is set last.
        "qwen3_moe" => EXPERTS,
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_catalog::software::{Software, Version};

    use super::*;

    /// `configuration_deepseek_v3.py` of 4.57.6 has no `attribute_map`.
    #[test]
    fn numbers_of_experts_have_other_names_since_the_last_version() {
        let of = |transformers| {
            let software = Software { transformers, ..Software::default() };
            aliases("deepseek_v3", Rules::of(&software)).len()
        };
        assert_eq!([of(Version::new(4, 57)), of(Version::new(5, 0))], [0, 1]);
    }

    /// `attribute_map` in `configuration_bart.py` of 4.57.1 and 5.17.0.
    #[test]
    fn an_encoders_layers_are_the_models_since_the_last_version() {
        let of = |transformers| {
            let software = Software { transformers, ..Software::default() };
            aliases("bart", Rules::of(&software)).iter().any(|(alias, _)| *alias == "num_hidden_layers")
        };
        assert!(!of(Version::new(4, 57)) && of(Version::new(5, 17)));
    }
}
