//! The way out: a [`Scenario`] as JSON or TOML with every default filled in.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use super::read::SCHEMA;
use super::{Lora, LoraTargets, ModelSource, Scenario, Software, Training, memory};

impl Scenario {
    /// The canonical JSON: `schema` first, every default filled in, keys in the order of the format's documentation.
    /// `lora` and its `dora` and `modules_to_save`, `quantization`, `prepare_kbit`, `loss_impl`, `label_smoothing`, `ema`,
    /// `compile`, `memory`, `load_line`, `target_seq`, `image`, `max_new_tokens` and `seq` only when they are set, and
    /// `software.bitsandbytes` where it is not the newest that is known.
    pub fn to_value(&self) -> Value {
        json!({
            "schema": SCHEMA,
            "model": self.model_table(),
            "input": self.input_table(),
            "training": self.training_table(),
            "device": self.device_table(),
            "software": self.software_table(),
        })
    }

    /// The same as TOML. A Hugging Face config stands in it as the JSON it is, because TOML has no null.
    pub fn to_toml(&self) -> String {
        let mut out = String::new();
        let Value::Object(sections) = self.to_value() else { return out };
        for (name, section) in &sections {
            match section {
                Value::Object(table) => {
                    // Writing to a String cannot fail.
                    let _ = writeln!(out, "\n[{name}]");
                    for (key, value) in table {
                        match (key.as_str(), value) {
                            ("hf", Value::Object(_)) => {
                                let _ = writeln!(out, "hf = '''\n{}\n'''", literal_json(value));
                            }
                            _ => {
                                let _ = writeln!(out, "{key} = {}", toml_value(value));
                            }
                        }
                    }
                }
                value => {
                    let _ = writeln!(out, "{name} = {}", toml_value(value));
                }
            }
        }
        out
    }

    fn model_table(&self) -> Value {
        let mut table = Map::new();
        let mut own_keys = Map::new();
        match &self.model.source {
            ModelSource::Catalog(id) => table.insert("catalog".to_owned(), json!(id)),
            ModelSource::HuggingFace(config) => table.insert("hf".to_owned(), Value::Object(config.clone())),
            ModelSource::Family { name, keys } => {
                own_keys.clone_from(keys);
                table.insert("family".to_owned(), json!(name))
            }
        };
        table.insert("task".to_owned(), json!(self.model.task.as_str()));
        table.extend(own_keys);
        Value::Object(table)
    }

    fn input_table(&self) -> Value {
        let mut table = Map::new();
        table.insert("batch".to_owned(), json!(self.input.batch));
        for (name, value) in [
            ("seq", self.input.seq),
            ("target_seq", self.input.target_seq),
            ("image", self.input.image),
            ("max_new_tokens", self.input.max_new_tokens),
        ] {
            if let Some(value) = value {
                table.insert(name.to_owned(), json!(value));
            }
        }
        table.insert("attention_mask".to_owned(), json!(self.input.attention_mask.as_str()));
        Value::Object(table)
    }

    fn training_table(&self) -> Value {
        let training = &self.training;
        let mut table = json!({
            "mode": training.mode.as_str(),
            "precision": training.precision.as_str(),
            "optimizer": training.optimizer.as_str(),
            "optimizer_impl": training.optimizer_impl.as_str(),
            "accumulation": training.accumulation,
            "checkpointing": training.checkpointing.as_str(),
            "attention": training.attention.as_str(),
            "clip_grad_norm": training.clip_grad_norm,
            "zero_grad": training.zero_grad.as_str(),
            "zero_grad_at": training.zero_grad_at.as_str(),
            "keep_outputs": training.keep_outputs,
        });
        let Value::Object(members) = &mut table else { return table };
        if let Some(lora) = &training.lora {
            members.insert("lora".to_owned(), lora_table(lora));
        }
        // Written only where they say something: scenarios from before these keys stay as they were.
        let default = Training::default();
        if training.quantization != default.quantization {
            members.insert("quantization".to_owned(), json!(training.quantization.as_str()));
        }
        if training.prepare_kbit != default.prepare_kbit {
            members.insert("prepare_kbit".to_owned(), json!(training.prepare_kbit));
        }
        if training.loss_impl != default.loss_impl {
            members.insert("loss_impl".to_owned(), json!(training.loss_impl.as_str()));
        }
        if training.label_smoothing > 0.0 {
            members.insert("label_smoothing".to_owned(), json!(training.label_smoothing));
        }
        for (name, on) in [("ema", training.ema), ("compile", training.compile)] {
            if on {
                members.insert(name.to_owned(), json!(true));
            }
        }
        table
    }

    fn device_table(&self) -> Value {
        let mut table = Map::new();
        table.insert("gpu".to_owned(), json!(self.device.gpu));
        for (name, value) in [("memory", self.device.memory), ("load_line", self.device.load_line)] {
            if let Some(bytes) = value {
                table.insert(name.to_owned(), json!(memory::print(bytes)));
            }
        }
        table.insert("workspaces".to_owned(), json!(self.device.workspaces));
        Value::Object(table)
    }

    fn software_table(&self) -> Value {
        let software = &self.software;
        let mut table = json!({ "torch": software.torch, "transformers": software.transformers });
        // Written only where it says something, as above.
        if let Value::Object(members) = &mut table
            && software.bitsandbytes != Software::default().bitsandbytes
        {
            members.insert("bitsandbytes".to_owned(), json!(software.bitsandbytes));
        }
        table
    }
}

pub(super) fn lora_table(lora: &Lora) -> Value {
    let targets = match &lora.targets {
        LoraTargets::AllLinear => json!("all-linear"),
        LoraTargets::Names(names) => json!(names),
    };
    let mut table = json!({ "rank": lora.rank, "targets": targets, "dropout": lora.dropout });
    if let Value::Object(members) = &mut table {
        if lora.dora {
            members.insert("dora".to_owned(), json!(true));
        }
        if !lora.modules_to_save.is_empty() {
            members.insert("modules_to_save".to_owned(), json!(lora.modules_to_save));
        }
    }
    table
}

/// A value on one line of TOML.
fn toml_value(value: &Value) -> String {
    match value {
        // No key of ours holds null.
        Value::Null => "\"\"".to_owned(),
        Value::Bool(flag) => flag.to_string(),
        Value::Number(number) => number.to_string(),
        Value::String(text) => toml_string(text),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(toml_value).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Object(table) => {
            // Only `lora`, whose keys are bare.
            let items: Vec<String> =
                table.iter().map(|(key, value)| format!("{key} = {}", toml_value(value))).collect();
            format!("{{ {} }}", items.join(", "))
        }
    }
}

/// A basic string: JSON's escapes are TOML's, but for DEL, which TOML wants escaped too.
fn toml_string(text: &str) -> String {
    Value::from(text).to_string().replace('\u{7f}', "\\u007f")
}

/// JSON that can stand between `'''`: there, TOML allows neither `'''` nor DEL.
fn literal_json(value: &Value) -> String {
    format!("{value:#}").replace('\'', "\\u0027").replace('\u{7f}', "\\u007f")
}
