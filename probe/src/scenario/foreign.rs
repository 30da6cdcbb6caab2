//! `--from`: configurations of other tools in the place of a scenario.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;

use plimsoll_core::exchange::{Imported, Outcome, Part, Source, merge, read_for};
use plimsoll_core::scenario::{at, lever, levers};
use plimsoll_core::{Error, Scenario};
use serde_json::Value;

use super::flags::Overlay;
use super::source;
use crate::exit::Failure;
use crate::view::{Paint, WIDTH, wrapped};

/// The keys of a scenario that the files say, laid over what there is; what came of each of theirs is told on standard error.
pub fn lay(files: &[PathBuf], overlay: &Overlay, scenario: &mut Value) -> Result<(), Failure> {
    let mut sources = Vec::new();
    for path in files {
        let name = path.display().to_string();
        let text = if name == "-" { source::stdin()? } else { source::file(path)? };
        sources.push(Source { name: if name == "-" { String::new() } else { name }, text });
    }
    let gpus = overlay.value(at::parallel::gpus).and_then(Value::as_u64);
    let known = overlay.model().or_else(|| scenario.get("model"));
    let imported = read_for(&sources, gpus, known)?;
    // Nobody is left to read it when standard error is closed.
    let _ = anstream::stderr().write_all(told(&imported, Paint::for_stderr()).as_bytes());
    if !overlay.names_model() && !imported.scenario.contains_key("model") && scenario.get("model").is_none() {
        let hint = "name it: --model qwen3-8b (see `plimsoll models`), or --hf-config with its config.json";
        let problem = "the files do not say which model, or one that is in no catalog";
        return Err(Error::new("model", problem, hint).into());
    }
    if let Value::Object(table) = scenario {
        merge(table, &imported.scenario);
    }
    Ok(())
}

/// What the files say gives way to flags where both have no place, as in the planner it gives way to what is changed: the Trainer's loop to a
/// loss that it is not followed with, offloading to several cards. What did is told on standard error.
pub fn give_way(overlay: &Overlay, value: &mut Value) {
    let mut told = String::new();
    for _ in levers() {
        let Err(Error { key, problem, .. }) = Scenario::from_value(value) else { break };
        let gives = lever(&key).is_some_and(|lever| lever.row.yields) && !overlay.says(&key);
        let Some((section, name)) = key.split_once('.').filter(|_| gives) else { break };
        let Some(said) = value.get_mut(section).and_then(|table| table.as_object_mut()?.remove(name)) else { break };
        let said = said.as_str().map_or_else(|| said.to_string(), str::to_owned);
        notes(&mut told, &format!("{key} = {said} gives way to what was asked for: {problem}"));
    }
    let _ = anstream::stderr().write_all(told.as_bytes());
}

/// A remark, in the terminal's width.
fn notes(out: &mut String, remark: &str) {
    for line in wrapped(&format!("note: {remark}"), WIDTH) {
        let _ = writeln!(out, "{line}");
    }
}

/// What came of each key, in the terminal's width.
fn told(imported: &Imported, paint: Paint) -> String {
    let mut out = String::new();
    for part in &imported.parts {
        let file = if part.file.is_empty() { "what was given" } else { &part.file };
        let _ = writeln!(out, "{}: {}", paint.strong(&plimsoll_core::shown(file)), part.tool);
        for (outcome, label) in [
            (Outcome::Taken, "taken"),
            (Outcome::NoMemory, "no memory"),
            (Outcome::NotEstimated, "not estimated"),
            (Outcome::Wrong, "wrong"),
            (Outcome::Unknown, "not known"),
        ] {
            list(&mut out, part, outcome, label, paint);
        }
    }
    imported.remarks.iter().for_each(|remark| notes(&mut out, remark));
    out
}

fn list(out: &mut String, part: &Part, outcome: Outcome, label: &str, paint: Paint) {
    let texts: Vec<String> = part
        .keys
        .iter()
        .filter(|key| key.outcome == outcome && !key.key.is_empty())
        .map(|key| match outcome {
            Outcome::Taken => format!("{} = {}", key.key, key.value),
            Outcome::NotEstimated | Outcome::Wrong => format!("{} = {} ({})", key.key, key.value, key.why),
            Outcome::NoMemory | Outcome::Unknown => key.key.clone(),
        })
        .collect();
    let mut label = label.to_owned();
    for line in wrapped(&texts.join(", "), WIDTH - 17) {
        let padded = format!("{label:<13}");
        let padded = if outcome == Outcome::Wrong { paint.signal(&padded) } else { paint.quiet(&padded) };
        let _ = writeln!(out, "  {padded}  {line}");
        label.clear();
    }
}
