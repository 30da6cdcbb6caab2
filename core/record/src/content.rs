//! A record's identity: the hash of what it says, however it is written.

use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use super::Measurement;

impl Measurement {
    /// The record as JSON with the keys of every table sorted and no white space: equal records give equal text.
    pub fn canonical(&self) -> String {
        // Plain structs of numbers, texts and lists always have a JSON form.
        sorted(serde_json::to_value(self).unwrap_or_default()).to_string()
    }

    /// SHA-256 of [`Measurement::canonical`] in hexadecimal: the record's address wherever it is kept, so that giving
    /// it twice is giving it once.
    pub fn content_id(&self) -> String {
        Sha256::digest(self.canonical().as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// The value with the keys of all its tables in order.
fn sorted(value: Value) -> Value {
    match value {
        Value::Array(items) => items.into_iter().map(sorted).collect(),
        Value::Object(map) => {
            let mut pairs: Vec<(String, Value)> = map.into_iter().map(|(key, value)| (key, sorted(value))).collect();
            pairs.sort_by(|(a, _), (b, _)| a.cmp(b));
            Value::Object(pairs.into_iter().collect::<Map<_, _>>())
        }
        other => other,
    }
}
