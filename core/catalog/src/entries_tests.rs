//! The catalogs say what they claim to say.

use plimsoll_ground::Bytes;
use serde_json::Value;

use super::{Vendor, gpu, gpus, model, models};

#[test]
fn the_cards_people_ask_for_are_there() {
    assert!(gpus().len() >= 60, "{} cards", gpus().len());
    for id in [
        "rtx-5070-ti",
        "rtx-5070-ti-laptop",
        "rtx-2060",
        "t4",
        "v100-16gb",
        "v100-32gb",
        "l4",
        "l40s",
        "a10",
        "a100-40gb",
        "a100-80gb",
        "h100-sxm",
        "h100-pcie",
        "h200",
        "b200",
        "rx-6800-xt",
        "rx-7900-xtx",
        "rx-9070-xt",
        "mi300x",
        "apple-m1-16gb",
        "apple-m4-max-128gb",
    ] {
        assert!(gpu(id).is_some(), "{id} is missing");
    }
}

#[test]
fn memory_is_what_the_driver_reports() {
    let memory = |id| gpu(id).map(|g| (g.memory, g.memory_assumed));
    assert_eq!(memory("rtx-5070-ti-laptop"), Some((Bytes::from_mib(12_227), false)));
    assert_eq!(memory("rtx-5070-ti"), Some((Bytes::from_mib(16_303), false)));
    assert_eq!(memory("h200"), Some((Bytes::from_mib(143_771), false)));
    // Derived, and saying so: two thirds of 16 GiB, three quarters of 64 GiB, 16 MiB less than 12 GiB.
    assert_eq!(memory("apple-m1-16gb"), Some((Bytes::new(11_453_246_122), true)));
    assert_eq!(memory("apple-m4-max-64gb"), Some((Bytes::from_gib(48), true)));
    assert_eq!(memory("rx-6700-xt"), Some((Bytes::from_mib(12 * 1024 - 16), true)));
}

#[test]
fn compute_capability_is_nvidias_alone() {
    for g in gpus() {
        assert_eq!(g.compute_capability.is_some(), g.vendor == Vendor::Nvidia, "{}", g.id);
        if let Some(capability) = g.compute_capability {
            // bfloat16 came with Ampere.
            assert_eq!(g.tflops_bf16.is_some(), capability >= (8, 0), "{}", g.id);
        }
    }
}

/// GeForce cards accumulate in float32 at half rate: two times the float32 rate, four on Turing. Catches typing errors.
#[test]
fn tensor_rates_follow_from_the_architecture() {
    for g in gpus()
        .iter()
        .filter(|g| g.vendor == Vendor::Nvidia && g.id.starts_with("rtx-") && !g.source.contains("datasheet"))
    {
        let expected = if g.architecture == "turing" { 4.0 } else { 2.0 };
        let ratio = g.tflops_fp16 / g.tflops_fp32;
        assert!((ratio / expected - 1.0).abs() < 0.02, "{}: {ratio}", g.id);
    }
}

#[test]
fn the_models_people_ask_for_are_there() {
    assert!(models().len() >= 30, "{} models", models().len());
    for id in [
        "llama-3.2-1b",
        "llama-2-7b",
        "llama-3.1-8b",
        "llama-3.1-405b",
        "mistral-7b-v0.3",
        "qwen2.5-0.5b",
        "qwen3-0.6b",
        "gpt2",
        "gpt2-medium",
    ] {
        assert!(model(id).is_some(), "{id} is missing");
    }
}

#[test]
fn families_stand_together_small_to_large() {
    for pair in models().windows(2) {
        let [a, b] = pair else { unreachable!() };
        assert!((a.model_type, a.parameters) <= (b.model_type, b.parameters), "{} before {}", a.id, b.id);
    }
}

#[test]
fn parameters_are_what_the_config_adds_up_to() {
    for m in models() {
        let config: Value = serde_json::from_str(m.config).unwrap();
        assert_eq!(config["model_type"], m.model_type, "{}", m.id);
        let counted = match m.model_type {
            "gpt2" => gpt2(&config),
            "llama" | "mistral" | "qwen2" | "qwen3" => decoder(&config),
            // The engine itself counts the others in `tests/tests/catalog.rs`.
            _ => continue,
        };
        assert_eq!(counted, m.parameters, "{}", m.id);
    }
}

/// Counts other people printed: PyTorch's own sum over `parameters()` in traced runs, and the Hub's model pages.
#[test]
fn parameters_agree_with_counts_from_elsewhere() {
    for (id, parameters) in [
        ("gpt2", 124_439_808),
        ("gpt2-medium", 354_823_168),
        ("llama-2-7b", 6_738_415_616),
        ("llama-3.2-1b", 1_235_814_400),
        ("llama-3.1-8b", 8_030_261_248),
        ("mistral-7b-v0.1", 7_241_732_096),
        ("qwen2.5-0.5b", 494_032_768),
        ("qwen2.5-1.5b", 1_543_714_304),
        ("qwen3-0.6b", 596_049_920),
        ("pythia-160m", 162_322_944),
        ("pythia-12b", 11_846_072_320),
        ("gemma-2-2b", 2_614_341_888),
        ("gemma-3-1b", 999_885_952),
        ("opt-125m", 125_239_296),
        ("mixtral-8x7b-v0.1", 46_702_792_704),
        ("phi-2", 2_779_683_840),
        ("phi-3-mini-4k", 3_821_079_552),
        ("olmoe-1b-7b", 6_919_161_856),
        ("qwen3-30b-a3b", 30_532_122_624),
        ("bloom-560m", 559_214_592),
    ] {
        assert_eq!(model(id).unwrap().parameters, parameters, "{id}");
    }
}

fn number(config: &Value, key: &str) -> u64 {
    config[key].as_u64().unwrap_or_else(|| panic!("{key} in {config}"))
}

/// llama, mistral, qwen2, qwen3: embedding, layers, final norm, and a head unless it is tied.
fn decoder(config: &Value) -> u64 {
    let of = |key| number(config, key);
    let (hidden, heads, kv_heads) = (of("hidden_size"), of("num_attention_heads"), of("num_key_value_heads"));
    let head_dim = config.get("head_dim").map_or(hidden / heads, |_| of("head_dim"));
    let (q, kv) = (heads * head_dim, kv_heads * head_dim);
    let extra = match config["model_type"].as_str() {
        Some("qwen2") => q + 2 * kv,   // biases of q, k and v
        Some("qwen3") => 2 * head_dim, // q_norm, k_norm
        _ => 0,
    };
    let attention = hidden * (2 * q + 2 * kv) + extra;
    let layer = attention + 3 * hidden * of("intermediate_size") + 2 * hidden;
    let embedding = of("vocab_size") * hidden;
    let head = if config["tie_word_embeddings"] == Value::Bool(true) { 0 } else { embedding };
    embedding + of("num_hidden_layers") * layer + hidden + head
}

/// Token and position embeddings, layers with biases everywhere, final norm, tied head.
fn gpt2(config: &Value) -> u64 {
    let of = |key| number(config, key);
    let n = of("n_embd");
    let inner = config["n_inner"].as_u64().unwrap_or(4 * n);
    let layer = 4 * n + (3 * n * n + 3 * n) + (n * n + n) + (n * inner + inner) + (inner * n + n);
    (of("vocab_size") + of("n_positions")) * n + of("n_layer") * layer + 2 * n
}
