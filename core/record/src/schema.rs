//! The JSON Schema of a record, made from its types.

use serde_json::Value;

use super::Measurement;

/// The JSON Schema of a record: its shape, not the rules of [`Measurement::validate`].
pub fn schema() -> Value {
    schemars::schema_for!(Measurement).to_value()
}
