//! Editing a model's sizes by hand: its row says which keys of a `config.json` set them.

use plimsoll_core::catalog::families::Size;
use serde_json::{Map, Value};

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

    use plimsoll_core::catalog::families::of_type;

    use super::{text, with};

    #[test]
    fn an_edit_changes_one_key() {
        let config = json!({ "model_type": "llama", "hidden_size": 2048, "rope_theta": 1e6 });
        let config = config.as_object().unwrap();
        let hidden = of_type("llama").unwrap().sizes[0];
        assert_eq!(text(config, hidden), "2048");
        let wider = with(config, hidden, Some(4096));
        assert_eq!(text(&wider, hidden), "4096");
        assert_eq!(wider.get("rope_theta"), config.get("rope_theta"));
        assert!(!with(config, hidden, None).contains_key("hidden_size"));
    }
}
