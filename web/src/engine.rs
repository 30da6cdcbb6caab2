//! The one place where the planner asks the engine.

use plimsoll_core::catalog::families;
use plimsoll_core::scenario::{Change, Link, ModelSource, at, limits};
use plimsoll_core::{Error, Result, Scenario};
use serde_json::Value;

use crate::protocol::Peak;
use crate::reading::{Held, Reading};
use crate::window::{Stretch, Window};

pub use plimsoll_core::estimate::fit::{cards, fit};
pub use plimsoll_core::estimate::{Run, max_batch};

/// How many points the timeline is drawn with: more than most screens have columns to tell apart.
pub const POINTS: usize = 420;

/// How many holdings are listed.
pub const HOLDINGS: usize = 24;

/// The model the planner opens on.
const OPENING: &str = "gpt2";

/// Runs a scenario and reads it. The run is kept to answer [`alive`].
///
/// # Errors
/// As [`Run::new`].
pub fn read(scenario: &Scenario) -> Result<(Reading, Run)> {
    let run = Run::new(scenario)?.with_falling();
    let timeline = run.timeline(POINTS);
    let event = timeline.points.get(timeline.peak).map_or(0, |p| p.event);
    let reading = Reading::new(run.estimate(), &timeline, &run.alive_at(event));
    Ok((reading, run))
}

/// A part of a run, as closely as the timeline is drawn: where there are few enough, every allocation.
pub fn stretch(run: &Run, stretch: Stretch) -> Window {
    Window::new(stretch, &run.stretch(stretch.from, stretch.to, POINTS))
}

/// What is alive after `event` events, largest first.
pub fn alive(run: &Run, event: u32) -> Vec<Held> {
    run.alive_at(event).iter().take(HOLDINGS).map(Held::from).collect()
}

/// How deep a run sits, and no more.
///
/// # Errors
/// As [`Run::new`].
pub fn peak(scenario: &Scenario) -> Result<Peak> {
    let run = Run::new(scenario)?;
    let estimate = run.estimate();
    Ok(Peak { process: estimate.peak.process, standing: estimate.verdict.into() })
}

/// The scenario the planner opens on: a model that a laptop's card holds with the usual recipe, and some room left.
pub fn opening() -> Scenario {
    let mut scenario = Scenario::of(ModelSource::Catalog(OPENING.to_owned()));
    scenario.input.batch = 4;
    scenario.input.seq = Some(1024);
    scenario
}

/// The scenario with another model. What the new model has no use for takes its default.
///
/// # Errors
/// When the model is refused.
pub fn with_model(scenario: &Scenario, source: ModelSource) -> Result<Scenario> {
    Change::Model(source).apply(scenario)
}

/// The longest sequence the model can be given, in tokens.
pub fn longest(scenario: &Scenario) -> u64 {
    let source = &scenario.model.source;
    if source.family().positions.learned { source.positions().unwrap_or(limits::SEQ) } else { limits::SEQ }
}

/// The supported `model_type`s, as a list people read.
pub fn model_types() -> String {
    families::TRANSFORMERS.iter().map(|family| family.name).collect::<Vec<_>>().join(", ")
}

/// How many layers one forward runs through, encoder and decoder together; `None` where the model does not say.
pub fn layers(scenario: &Scenario) -> Option<u64> {
    scenario.model.source.layers()
}

/// The share link of a scenario, from its question mark on.
pub fn encode(scenario: &Scenario) -> String {
    Link::encode(scenario)
}

/// The same question in a terminal.
pub fn command(scenario: &Scenario) -> String {
    Link::command(scenario)
}

/// The content of a `config.json`.
///
/// # Errors
/// When it is not a JSON object; what its keys say is judged with the scenario.
pub fn config(text: &str) -> Result<serde_json::Map<String, Value>> {
    let hint = "paste the whole content of a model's config.json, from { to }";
    match serde_json::from_str(text) {
        Ok(Value::Object(map)) => Ok(map),
        Ok(_) => Err(Error::new(at::model::hf, "the config is not a JSON object", hint)),
        Err(error) => Err(Error::new(at::model::hf, format!("the config is not JSON: {error}"), hint)),
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_core::catalog::{self, families};
    use plimsoll_core::scenario::{Link, ModelSource};
    use plimsoll_core::{Bytes, Scenario};

    use super::{alive, command, config, layers, longest, opening, peak, read, with_model};
    use crate::reading::Standing;

    #[test]
    fn the_opening_scenario_is_a_valid_one() {
        let scenario = opening();
        assert_eq!(Scenario::from_value(&scenario.to_value()), Ok(scenario.clone()));
        assert_eq!(layers(&scenario), Some(12));
        assert_eq!(peak(&scenario).unwrap().standing, Standing::Fits, "nobody asked for anything red yet");
        assert_eq!(
            Link::decode(&Link::encode(&scenario)).scenario,
            scenario,
            "the address bar holds the opening scenario too"
        );
    }

    #[test]
    fn every_transformer_of_the_catalog_says_how_deep_it_is() {
        let of = |id: &str| layers(&Scenario::of(ModelSource::Catalog(id.to_owned())));
        assert_eq!((of("gpt2"), of("t5-base"), of("bart-base")), (Some(12), Some(24), Some(12)));
        for model in catalog::models() {
            assert!(of(model.id).is_some_and(|n| n > 1), "{}", model.id);
        }
    }

    #[test]
    fn every_model_can_follow_every_other() {
        let mut sources: Vec<ModelSource> =
            catalog::models().iter().map(|m| ModelSource::Catalog(m.id.to_owned())).collect();
        for family in families::OWN {
            sources.push(ModelSource::Family { name: family.name.to_owned(), keys: serde_json::Map::new() });
        }
        let mut scenario = opening();
        scenario.input.seq = Some(100_000);
        for source in &sources {
            let next = with_model(&scenario, source.clone()).unwrap();
            assert!(next.input.seq.is_none_or(|seq| seq <= longest(&next)));
            let back = with_model(&next, ModelSource::Catalog("llama-3.2-1b".to_owned())).unwrap();
            assert!(back.input.seq.is_some());
            scenario = next;
        }
    }

    #[test]
    fn a_reading_sums_to_its_process_peak() {
        let mut scenario = opening();
        for source in [
            ModelSource::Catalog("gpt2".to_owned()),
            ModelSource::Family { name: "mlp".to_owned(), keys: serde_json::Map::new() },
            ModelSource::Catalog("qwen3-0.6b".to_owned()),
        ] {
            scenario = with_model(&scenario, source).unwrap();
            let (reading, run) = read(&scenario).unwrap();
            assert_eq!(reading.parts.iter().map(|p| p.bytes).sum::<Bytes>(), reading.process);
            assert_eq!(reading.process, run.estimate().peak.process);
            let peak = &reading.points[reading.peak];
            assert_eq!(peak.total(), run.estimate().peak.requested, "the cursor starts at the peak");
            assert!(reading.points.iter().all(|p| p.total() <= peak.total()));
            assert_eq!(alive(&run, peak.event), reading.holdings);
        }
    }

    #[test]
    fn a_config_is_an_object() {
        assert!(config("{\"model_type\": \"llama\"}").is_ok());
        for bad in ["", "[]", "7", "{\"model_type\": ", "nonsense"] {
            assert_eq!(config(bad).unwrap_err().key, "model.hf");
        }
    }

    #[test]
    fn the_command_can_be_edited() {
        assert_eq!(command(&opening()), "plimsoll estimate --model gpt2 --batch 4");
    }
}
