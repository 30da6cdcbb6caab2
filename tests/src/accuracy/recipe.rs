//! What a scenario says, in the words the scoreboard groups and lists by.

use serde_json::Value;

/// A scenario as JSON, complete or not.
#[derive(Clone, Copy, Debug)]
pub struct Recipe<'a>(pub &'a Value);

impl<'a> Recipe<'a> {
    fn value(self, section: &str, key: &str) -> Option<&'a Value> {
        self.0.get(section)?.get(key)
    }

    fn text(self, section: &str, key: &str) -> &'a str {
        self.value(section, key).and_then(Value::as_str).unwrap_or("")
    }

    /// `llama`, `gpt2`, `nbeats`, ...; the id of a catalog model.
    pub fn family(self) -> &'a str {
        let hugging_face = || self.value("model", "hf")?.get("model_type");
        self.value("model", "family")
            .or_else(hugging_face)
            .or_else(|| self.value("model", "catalog"))
            .and_then(Value::as_str)
            .unwrap_or("")
    }

    /// A word of `[training]`: `precision`, `optimizer`, ...
    pub fn training(self, key: &str) -> &'a str {
        self.text("training", key)
    }

    /// A word of `[input]`.
    pub fn input(self, key: &str) -> &'a str {
        self.text("input", key)
    }

    /// A number of `[input]`.
    pub fn input_number(self, key: &str) -> Option<u64> {
        self.value("input", key)?.as_u64()
    }

    /// Micro-batches per optimizer step.
    pub fn accumulation(self) -> u64 {
        self.value("training", "accumulation").and_then(Value::as_u64).unwrap_or(1)
    }

    /// The adapters, if there are any.
    pub fn lora(self) -> Option<&'a Value> {
        self.value("training", "lora")
    }

    /// What was run, in a few words: `batch 4 x 512, bf16-amp, adamw fused, checkpointing`.
    pub fn summary(self) -> String {
        let batch = self.input_number("batch").unwrap_or(0);
        let mut words = vec![match (self.input_number("seq"), self.input_number("image")) {
            (Some(seq), _) => format!("batch {batch} x {seq}"),
            (None, Some(side)) => format!("batch {batch} x {side} px"),
            (None, None) => format!("batch {batch}"),
        }];
        words.push(self.training("precision").to_owned());
        words.push(format!("{} {}", self.training("optimizer"), self.training("optimizer_impl")));
        if self.accumulation() > 1 {
            words.push(format!("accumulation {}", self.accumulation()));
        }
        if self.training("checkpointing") != "none" {
            words.push("checkpointing".to_owned());
        }
        if self.training("attention") != "sdpa" {
            words.push(self.training("attention").to_owned());
        }
        if !matches!(self.input("attention_mask"), "none" | "") {
            words.push(format!("mask {}", self.input("attention_mask")));
        }
        if let Some(lora) = self.lora() {
            let targets = match lora.get("targets") {
                Some(Value::String(all)) => all.clone(),
                Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).collect::<Vec<_>>().join("+"),
                _ => String::new(),
            };
            words.push(format!("LoRA r{} {targets}", lora.get("rank").and_then(Value::as_u64).unwrap_or(0)));
        }
        words.join(", ")
    }
}
