//! Editing a model's sizes by hand: which keys of a `config.json` set them.

use serde_json::{Map, Value};

/// One size that can be edited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// The key in the config, as this `model_type` spells it.
    pub key: &'static str,
    /// What people call it.
    pub label: &'static str,
    /// One line on what it is.
    pub help: &'static str,
    /// The largest the field takes; whether the sizes agree with one another the engine says.
    pub most: u64,
    /// Whether the config may leave it out.
    pub optional: bool,
}

const fn size(key: &'static str, label: &'static str, help: &'static str, most: u64, optional: bool) -> Size {
    Size { key, label, help, most, optional }
}

/// Most numbers in a row or a vocabulary: 2^24.
const WIDE: u64 = 1 << 24;

const LLAMA_LIKE: [Size; 6] = [
    size("hidden_size", "Hidden size", "Width of the residual stream.", WIDE, false),
    size("num_hidden_layers", "Layers", "Transformer blocks.", 4096, false),
    size("num_attention_heads", "Heads", "Query heads; must divide the hidden size.", WIDE, false),
    size("num_key_value_heads", "KV heads", "Key and value heads; must divide the heads.", WIDE, true),
    size("intermediate_size", "Intermediate", "Width inside the MLP.", WIDE, false),
    size("vocab_size", "Vocabulary", "Tokens; sets the size of the logits.", WIDE, false),
];

const GPT2: [Size; 6] = [
    size("n_embd", "Hidden size", "Width of the residual stream.", WIDE, false),
    size("n_layer", "Layers", "Transformer blocks.", 4096, false),
    size("n_head", "Heads", "Attention heads; must divide the hidden size.", WIDE, false),
    size("n_inner", "Intermediate", "Width inside the MLP; empty is four times the hidden size.", WIDE, true),
    size("n_positions", "Positions", "Longest sequence.", WIDE, false),
    size("vocab_size", "Vocabulary", "Tokens; sets the size of the logits.", WIDE, false),
];

/// The sizes of a config that can be edited, by its `model_type`.
pub fn of(config: &Map<String, Value>) -> &'static [Size] {
    match config.get("model_type").and_then(Value::as_str) {
        Some("gpt2") => &GPT2,
        _ => &LLAMA_LIKE,
    }
}

/// What the config says, as text for a field; empty when it does not.
pub fn text(config: &Map<String, Value>, size: Size) -> String {
    config.get(size.key).and_then(Value::as_u64).map(|n| n.to_string()).unwrap_or_default()
}

/// The config with one size changed. A head size given by the config stays, as transformers would have it.
pub fn with(config: &Map<String, Value>, size: Size, value: Option<u64>) -> Map<String, Value> {
    let mut config = config.clone();
    match value {
        Some(n) => config.insert(size.key.to_owned(), n.into()),
        None => config.remove(size.key),
    };
    config
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{of, text, with};

    #[test]
    fn an_edit_changes_one_key() {
        let config = json!({ "model_type": "llama", "hidden_size": 2048, "rope_theta": 1e6 });
        let config = config.as_object().unwrap();
        let hidden = of(config)[0];
        assert_eq!(text(config, hidden), "2048");
        let wider = with(config, hidden, Some(4096));
        assert_eq!(text(&wider, hidden), "4096");
        assert_eq!(wider.get("rope_theta"), config.get("rope_theta"));
        assert!(!with(config, hidden, None).contains_key("hidden_size"));
    }

    #[test]
    fn gpt2_spells_its_own() {
        let config = json!({ "model_type": "gpt2" });
        assert_eq!(of(config.as_object().unwrap())[0].key, "n_embd");
    }
}
