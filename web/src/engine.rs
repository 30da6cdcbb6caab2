//! The one place where the planner asks the engine.

use plimsoll_core::{Error, Result, Scenario};
use serde_json::Value;

use crate::reading::{Held, Reading};

pub use crate::fake::{Run, decode, encode, from_value, max_batch, to_value};

/// How many points the timeline is drawn with: more than most screens have columns to tell apart.
pub const POINTS: usize = 420;

/// How many holdings are listed.
const HOLDINGS: usize = 24;

/// Runs a scenario and reads it. The run is kept to answer [`alive`].
///
/// # Errors
/// As [`Run::new`].
pub fn sound(scenario: &Scenario) -> Result<(Reading, Run)> {
    let run = Run::new(scenario)?;
    let timeline = run.timeline(POINTS);
    let event = timeline.points.get(timeline.peak).map_or(0, |p| p.event);
    let mut holdings = run.alive_at(event);
    holdings.truncate(HOLDINGS);
    let reading = Reading::new(run.estimate(), &timeline, &holdings);
    Ok((reading, run))
}

/// What is alive after `event` events, largest first.
pub fn alive(run: &Run, event: u32) -> Vec<Held> {
    run.alive_at(event).iter().take(HOLDINGS).map(Held::from).collect()
}

/// The process peak alone.
///
/// # Errors
/// As [`Run::new`].
pub fn process_peak(scenario: &Scenario) -> Result<plimsoll_core::Bytes> {
    Ok(Run::new(scenario)?.estimate().peak.process)
}

/// The scenario the planner opens on.
///
/// # Errors
/// When the catalog no longer has its model or its card, which a test rules out.
pub fn opening() -> Result<Scenario> {
    from_value(&serde_json::json!({
        "model": { "catalog": "llama-3.2-1b" },
        "input": { "batch": 4, "seq": 1024 },
        "training": { "precision": "bf16-amp", "optimizer": "adamw" },
        "device": { "gpu": "rtx-5070-ti-laptop" },
    }))
}

/// The content of a `config.json`.
///
/// # Errors
/// When it is not a JSON object; what its keys say is judged with the scenario.
pub fn config(text: &str) -> Result<serde_json::Map<String, Value>> {
    let hint = "paste the whole content of a model's config.json, from { to }";
    match serde_json::from_str(text) {
        Ok(Value::Object(map)) => Ok(map),
        Ok(_) => Err(Error::new("model.hf", "the config is not a JSON object", hint)),
        Err(error) => Err(Error::new("model.hf", format!("the config is not JSON: {error}"), hint)),
    }
}
