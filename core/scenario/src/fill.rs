//! From what is said to a whole scenario.

use plimsoll_ground::Result;
use serde_json::Value;

use super::lever::SECTIONS;
use super::model::{MODEL, Model, ModelSource, default_task};
use super::{Allocator, DEFAULT_MODEL, Device, Input, Lever, Parallel, Scenario, Software, Training, input, model};

/// The levers that something is said of.
#[derive(Debug, Default)]
pub struct Said(Vec<&'static str>);

impl Said {
    /// Gives a lever its value, and notes that it was said.
    ///
    /// # Errors
    /// A value the lever does not take.
    pub fn say(&mut self, scenario: &mut Scenario, lever: &'static Lever, value: &Value) -> Result<()> {
        lever.set(scenario, value)?;
        self.0.push(lever.path);
        Ok(())
    }
}

impl Scenario {
    /// A scenario of this model with every other key at its default.
    pub fn of(source: ModelSource) -> Self {
        let task = default_task(source.family());
        Self::constant(Model { source, task }).filled(&Said::default())
    }

    /// A scenario of this model with the defaults that are constants.
    pub(crate) fn constant(model: Model) -> Self {
        Self {
            model,
            input: Input::default(),
            training: Training::default(),
            parallel: Parallel::default(),
            device: Device::default(),
            allocator: Allocator::default(),
            software: Software::default(),
        }
    }

    /// The same with the defaults that go by what is said.
    ///
    /// A default may look at what was said in its own section, and at everything in the sections behind it.
    pub(crate) fn filled(mut self, said: &Said) -> Self {
        for section in SECTIONS.iter().rev() {
            let defaults: Vec<(&Lever, Option<Value>)> = section
                .levers()
                .into_iter()
                .filter(|lever| lever.follows.is_some() && lever.section() != MODEL.path)
                .filter(|lever| !said.0.contains(&lever.path))
                .map(|lever| (lever, lever.default(&self)))
                .collect();
            for (lever, value) in defaults {
                // A default lies within its lever's bounds.
                let _ = lever.set(&mut self, &value.unwrap_or(Value::Null));
            }
        }
        self.settle();
        self
    }

    /// Completes the model, and lets go of what says nothing for it.
    pub(crate) fn settle(&mut self) {
        model::settle(&mut self.model);
        input::settle(self);
    }
}

/// Llama 3.2 1B with every key at its default: what a link without parameters says.
impl Default for Scenario {
    fn default() -> Self {
        Self::of(ModelSource::Catalog(DEFAULT_MODEL.to_owned()))
    }
}
