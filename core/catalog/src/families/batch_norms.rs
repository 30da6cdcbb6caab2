//! Where a model normalises over the batch.

use serde_json::{Map, Value};

use super::{Family, FamilyKeyKind};

/// Whether a model has batch norms: PyTorch has kernels for weights in float32, or in the dtype that they are given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchNorms {
    /// None.
    Never,
    /// Whatever its keys say.
    Always,
    /// Where the name of its variant ends so.
    Named(&'static str),
}

impl Family {
    /// Whether its model of these keys has batch norms.
    pub fn has_batch_norms(&self, keys: Option<&Map<String, Value>>) -> bool {
        let BatchNorms::Named(end) = self.batch_norms else { return self.batch_norms == BatchNorms::Always };
        let said = keys.and_then(|keys| keys.get("variant")).and_then(Value::as_str);
        let usual = self.keys().iter().find_map(|key| match key.kind {
            FamilyKeyKind::Word { default, .. } if key.name == "variant" => Some(default),
            _ => None,
        });
        said.or(usual).is_some_and(|name| name.ends_with(end))
    }
}
