//! What a record's file is called: the day, the model, the card, and the beginning of the content's hash.

use plimsoll_core::Measurement;
use serde_json::Value;

/// `2026-11-20-llama-3.2-1b-rtx-5070-ti-laptop-1f8a03c2.json`. The same record always gets the same name.
pub fn file_name(measurement: &Measurement) -> String {
    let card = measurement.device.gpu.as_deref().unwrap_or(&measurement.device.name);
    let hash = measurement.content_id();
    let parts = [plain(&measurement.taken), plain(&model(&measurement.scenario)), plain(card)];
    let mut name: String = parts.into_iter().filter(|part| !part.is_empty()).map(|part| part + "-").collect();
    name.extend(hash.chars().take(8));
    name + ".json"
}

/// The model of a scenario: its id in the catalog, its type, or its family.
pub fn model(scenario: &Value) -> String {
    let model = &scenario["model"];
    let name = [&model["catalog"], &model["hf"]["model_type"], &model["family"]];
    name.into_iter().find_map(Value::as_str).unwrap_or("model").to_owned()
}

/// Longest part of a name, so that the whole stays far below the 255 bytes file systems take.
const LONGEST: usize = 48;

/// Lower-case letters, digits, `.` and `-` only: safe in every file system and on every command line.
fn plain(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars().flat_map(char::to_lowercase) {
        match c {
            'a'..='z' | '0'..='9' => out.push(c),
            // No name starts with a dot, and none has two: neither hidden nor a way up.
            '.' if !out.is_empty() && !out.ends_with(['.', '-']) => out.push('.'),
            _ if !out.is_empty() && !out.ends_with(['.', '-']) => out.push('-'),
            _ => {}
        }
        if out.len() >= LONGEST {
            break;
        }
    }
    out.trim_end_matches(['.', '-']).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::sample;

    #[test]
    fn a_name_says_what_is_in_the_file() {
        let record = sample::record();
        let name = file_name(&record);
        let hash = name.strip_prefix("2026-11-20-gpt2-rtx-5070-ti-laptop-").and_then(|rest| rest.strip_suffix(".json"));
        assert_eq!(hash, record.content_id().get(..8));
    }

    #[test]
    fn whatever_the_driver_says_the_name_is_a_file_name() {
        for (text, expected) in [
            ("NVIDIA GeForce RTX 5070 Ti (Laptop)", "nvidia-geforce-rtx-5070-ti-laptop"),
            ("../../etc/passwd", "etc-passwd"),
            ("..", ""),
            ("a\0b\u{202e}c\\d", "a-b-c-d"),
            ("Ä", ""),
        ] {
            assert_eq!(plain(text), expected);
        }
        assert_eq!(plain(&"x".repeat(1000)).len(), LONGEST);
    }
}
