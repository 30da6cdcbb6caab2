//! `data/models/*.toml` to a `static` of models.

use std::collections::BTreeSet;
use std::fmt::Write;

use serde_json::{Map, Value};
use toml::Table;

use crate::rows::{Row, check_id, tables};

const KEYS: &[&str] = &["id", "name", "publisher", "source", "parameters", "config"];

/// The Rust source of `static MODELS`: families in the order of `files`, small to large within each.
///
/// `files` are `(model_type, file name, content)`.
///
/// # Errors
/// Every problem found, each naming the file and the row.
pub fn generate(files: &[(String, String, String)]) -> Result<String, Vec<String>> {
    let mut problems = Vec::new();
    let mut ids = BTreeSet::new();
    let mut out = String::from("static MODELS: &[Model] = &[\n");
    for (family, file, text) in files {
        match read_file(family, file, text) {
            Ok(models) => {
                for model in models {
                    if !ids.insert(model.id.clone()) {
                        problems.push(format!("{file}: model \"{}\": the id is used twice", model.id));
                    }
                    model.print(&mut out);
                }
            }
            Err(found) => problems.extend(found),
        }
    }
    out.push_str("];\n");
    if problems.is_empty() { Ok(out) } else { Err(problems) }
}

struct Model {
    id: String,
    name: String,
    publisher: String,
    source: String,
    parameters: u64,
    model_type: String,
    config: String,
}

fn read_file(family: &str, file: &str, text: &str) -> Result<Vec<Model>, Vec<String>> {
    let document: Table = toml::from_str(text).map_err(|e| vec![format!("{file}: {e}")])?;
    let mut problems = Vec::new();
    let mut models = Vec::new();
    for table in tables(file, &document, "model").map_err(|e| vec![e])? {
        match read(family, &Row::new(file, "model", table, None)) {
            Ok(model) => models.push(model),
            Err(problem) => problems.push(problem),
        }
    }
    models.sort_by(|a, b| (a.parameters, &a.id).cmp(&(b.parameters, &b.id)));
    if problems.is_empty() { Ok(models) } else { Err(problems) }
}

fn read(family: &str, row: &Row) -> Result<Model, String> {
    row.only(KEYS)?;
    let id = row.text("id")?;
    check_id(id).map_err(|e| row.problem(&e))?;
    let config: Map<String, Value> = serde_json::from_str(row.text("config")?)
        .map_err(|e| row.problem(&format!("config must be the JSON object of a config.json: {e}")))?;
    let model_type = config.get("model_type").and_then(Value::as_str).unwrap_or("nothing");
    if model_type != family {
        return Err(row.problem(&format!("config says model_type {model_type}; this file holds {family}")));
    }
    Ok(Model {
        id: id.to_owned(),
        name: row.text("name")?.to_owned(),
        publisher: row.text("publisher")?.to_owned(),
        source: row.text("source")?.to_owned(),
        parameters: row.whole("parameters")?.ok_or_else(|| row.problem("parameters is missing"))?,
        model_type: family.to_owned(),
        config: Value::Object(config).to_string(),
    })
}

impl Model {
    fn print(&self, out: &mut String) {
        let Self { id, name, publisher, source, parameters, model_type, config } = self;
        let written = writeln!(
            out,
            "    Model {{ id: {id:?}, name: {name:?}, publisher: {publisher:?}, config: {config:?}, \
             model_type: {model_type:?}, parameters: {parameters}, source: {source:?} }},"
        );
        debug_assert!(written.is_ok(), "writing to a String cannot fail");
    }
}
