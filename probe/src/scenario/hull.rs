//! A hull that a scenario or a flag names: its content takes the place of its name.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use plimsoll_core::Error;
use plimsoll_core::ledger::hull::MOST_BYTES;
use plimsoll_core::scenario::{CONTENT, HullModel};
use serde_json::Value;

use crate::exit::Failure;

/// The text that stands for a file in `model.hull`.
pub fn content(path: &Path) -> Result<String, Failure> {
    let unreadable = |error: std::io::Error| Failure::Environment {
        problem: format!("cannot read {}: {error}", path.display()),
        hint: "name a file that plimsoll trace wrote".to_owned(),
    };
    let file = File::open(path).map_err(unreadable)?;
    let mut bytes = Vec::new();
    // One byte more than is allowed, to tell "too long" from "just fits".
    file.take(MOST_BYTES as u64 + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() > MOST_BYTES {
        let problem = format!("{} is longer than any hull", path.display());
        return Err(Error::new("model.hull", problem, "name a file that plimsoll trace wrote").into());
    }
    Ok(HullModel::content(&bytes))
}

/// A scenario's table with the content of the hull it names, which lies beside the scenario's own file.
pub fn opened(mut value: Value, source: &str) -> Result<Value, Failure> {
    let Some(named) = value.get("model").and_then(|model| model.get("hull")).and_then(Value::as_str) else {
        return Ok(value);
    };
    if named.starts_with(CONTENT) || named.starts_with("sha256:") {
        return Ok(value);
    }
    let beside = Path::new(source).parent().map_or_else(|| named.into(), |folder| folder.join(named));
    let content = content(&beside)?;
    if let Some(model) = value.get_mut("model").and_then(Value::as_object_mut) {
        model.insert("hull".to_owned(), content.into());
    }
    Ok(value)
}
