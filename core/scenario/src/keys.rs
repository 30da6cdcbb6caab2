//! Every key of a scenario: where it stands in a file, and its short name in a share link.

use serde_json::{Number, Value};

/// The sections of a scenario, in the order they are written.
pub const SECTIONS: &[&str] = &["model", "input", "training", "device", "software"];

/// What a key holds, as far as text from a link or a command line has to be turned into a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A number.
    Number,
    /// true or false.
    Flag,
    /// Text.
    Text,
    /// One word, or several with commas between.
    Names,
}

impl Kind {
    /// The value that `text` stands for. Text that is no such value stays text, so that [`super::Scenario::from_value`]
    /// says what is wrong with it.
    pub fn value(self, text: &str) -> Value {
        match self {
            Self::Number => serde_json::from_str::<Number>(text).map_or_else(|_| text.into(), Value::Number),
            Self::Flag => text.parse::<bool>().map_or_else(|_| text.into(), Value::Bool),
            Self::Text => text.into(),
            Self::Names if text == "all-linear" => text.into(),
            Self::Names => text.split(',').map(|name| Value::from(name.trim())).collect(),
        }
    }
}

/// One key of a scenario.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// The section it stands in.
    pub section: &'static str,
    /// Its path within the section: `batch`, `lora.rank`.
    pub name: &'static str,
    /// Its name in a share link. Never change one: links open for ever.
    pub link: &'static str,
    /// What it holds.
    pub kind: Kind,
}

impl Key {
    /// The whole path: `training.lora.rank`.
    pub fn path(&self) -> String {
        format!("{}.{}", self.section, self.name)
    }
}

const fn key(section: &'static str, name: &'static str, link: &'static str, kind: Kind) -> Key {
    Key { section, name, link, kind }
}

/// All keys but `model.hf` (a link carries it in the fragment) and a family's own, in the order links are written.
pub const KEYS: &[Key] = &[
    key("model", "catalog", "model", Kind::Text),
    key("model", "family", "family", Kind::Text),
    key("model", "task", "task", Kind::Text),
    key("device", "gpu", "gpu", Kind::Text),
    key("device", "memory", "memory", Kind::Text),
    key("device", "load_line", "load_line", Kind::Text),
    key("device", "workspaces", "workspaces", Kind::Flag),
    key("input", "batch", "batch", Kind::Number),
    key("input", "seq", "seq", Kind::Number),
    key("input", "target_seq", "target_seq", Kind::Number),
    key("input", "image", "image", Kind::Number),
    key("input", "max_new_tokens", "new_tokens", Kind::Number),
    key("input", "attention_mask", "mask", Kind::Text),
    key("training", "mode", "mode", Kind::Text),
    key("training", "precision", "precision", Kind::Text),
    key("training", "optimizer", "optimizer", Kind::Text),
    key("training", "optimizer_impl", "impl", Kind::Text),
    key("training", "accumulation", "accumulation", Kind::Number),
    key("training", "checkpointing", "checkpointing", Kind::Text),
    key("training", "attention", "attention", Kind::Text),
    key("training", "clip_grad_norm", "clip", Kind::Flag),
    key("training", "zero_grad", "zero_grad", Kind::Text),
    key("training", "zero_grad_at", "zero_grad_at", Kind::Text),
    key("training", "keep_outputs", "keep_outputs", Kind::Flag),
    key("training", "lora.rank", "lora", Kind::Number),
    key("training", "lora.targets", "lora_targets", Kind::Names),
    key("training", "lora.dropout", "lora_dropout", Kind::Number),
    key("training", "lora.dora", "dora", Kind::Flag),
    key("training", "lora.modules_to_save", "lora_save", Kind::Names),
    key("training", "quantization", "quantization", Kind::Text),
    key("training", "prepare_kbit", "prepare_kbit", Kind::Flag),
    key("training", "loss_impl", "loss", Kind::Text),
    key("training", "label_smoothing", "label_smoothing", Kind::Number),
    key("training", "ema", "ema", Kind::Flag),
    key("training", "compile", "compile", Kind::Flag),
    key("software", "torch", "torch", Kind::Text),
    key("software", "transformers", "transformers", Kind::Text),
    key("software", "bitsandbytes", "bitsandbytes", Kind::Text),
];

/// The keys that may stand directly in `section`; in `[model]` also `hf`.
pub fn names(section: &str) -> Vec<&'static str> {
    let mut names: Vec<&'static str> = Vec::new();
    for key in KEYS.iter().filter(|k| k.section == section) {
        let name = key.name.split('.').next().unwrap_or(key.name);
        if !names.contains(&name) {
            names.push(name);
        }
    }
    if section == "model" {
        names.insert(1, "hf");
    }
    names
}

/// The sections in which a key of this name exists.
pub fn sections_with(name: &str) -> Vec<&'static str> {
    SECTIONS.iter().copied().filter(|s| names(s).contains(&name)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::supported::{FAMILIES, FamilyKeyKind};
    use super::*;

    #[test]
    fn link_names_are_unique_even_beside_family_keys() {
        let mut links: Vec<&str> = KEYS.iter().map(|k| k.link).collect();
        links.extend(["v", "hf", "m"]);
        for family in FAMILIES {
            for key in family.keys {
                assert!(!links.contains(&key.name), "{} of {} would shadow a scenario key", key.name, family.name);
            }
        }
        let count = links.len();
        links.sort_unstable();
        links.dedup();
        assert_eq!(links.len(), count);
    }

    /// A link does not say whose key it names before it is read.
    #[test]
    fn a_name_means_the_same_kind_in_every_family() {
        let kind = |kind: FamilyKeyKind| match kind {
            FamilyKeyKind::Count { .. } | FamilyKeyKind::Fraction { .. } => Kind::Number,
            FamilyKeyKind::Flag { .. } => Kind::Flag,
            FamilyKeyKind::Word { .. } => Kind::Text,
        };
        let keys = || FAMILIES.iter().flat_map(|f| f.keys);
        for key in keys() {
            assert!(keys().all(|other| other.name != key.name || kind(other.kind) == kind(key.kind)), "{}", key.name);
        }
    }

    #[test]
    fn a_section_lists_nested_keys_once() {
        assert_eq!(names("training").iter().filter(|n| **n == "lora").count(), 1);
        assert_eq!(names("model"), ["catalog", "hf", "family", "task"]);
    }
}
