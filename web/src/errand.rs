//! What the page asks of its worker, and what comes back: JSON text both ways.

use plimsoll_core::{Bytes, Error, Scenario};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::engine::{self, Run};
use crate::reading::{Held, Reading};

/// A question for the worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Errand {
    /// Comes back with the answer.
    pub id: u64,
    /// What is asked.
    pub question: Question,
}

/// What can be asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Question {
    /// The whole reading; the run is kept for [`Question::Alive`].
    Sound(Value),
    /// The process peak only.
    Peak(Value),
    /// The largest micro-batch that fits.
    Largest(Value),
    /// What is alive after so many events of the kept run.
    Alive(u32),
}

/// The worker's reply.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reply {
    /// The errand's.
    pub id: u64,
    /// What was found, or why nothing was.
    pub answer: Result<Answer, Fault>,
}

/// What was found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Answer {
    /// To [`Question::Sound`].
    Reading(Box<Reading>),
    /// To [`Question::Peak`].
    Peak(Bytes),
    /// To [`Question::Largest`].
    Largest(u64),
    /// To [`Question::Alive`].
    Alive(Vec<Held>),
}

/// An [`Error`] that travels.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// The key it is about.
    pub key: String,
    /// What is wrong there.
    pub problem: String,
    /// What to do.
    pub hint: String,
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self { key: error.key, problem: error.problem, hint: error.hint }
    }
}

/// Answers errands, one after the other, and keeps the last run.
#[derive(Debug, Default)]
pub struct Clerk {
    run: Option<Run>,
}

impl Clerk {
    /// Answers one question.
    ///
    /// # Errors
    /// As the engine's.
    pub fn answer(&mut self, question: &Question) -> Result<Answer, Fault> {
        match question {
            Question::Sound(value) => Ok(Answer::Reading(Box::new(self.sound(&Scenario::from_value(value)?)?))),
            Question::Peak(value) => Ok(Answer::Peak(engine::process_peak(&Scenario::from_value(value)?)?)),
            Question::Largest(value) => Ok(Answer::Largest(engine::max_batch(&Scenario::from_value(value)?)?)),
            Question::Alive(event) => {
                Ok(Answer::Alive(self.run.as_ref().map(|run| engine::alive(run, *event)).unwrap_or_default()))
            }
        }
    }

    /// Runs a scenario and keeps the run.
    ///
    /// # Errors
    /// As the engine's.
    pub fn sound(&mut self, scenario: &Scenario) -> Result<Reading, Fault> {
        let (reading, run) = engine::sound(scenario)?;
        self.run = Some(run);
        Ok(reading)
    }

    /// Answers an errand written as JSON.
    pub fn reply(&mut self, errand: &str) -> String {
        let reply = match serde_json::from_str::<Errand>(errand) {
            Ok(errand) => Reply { id: errand.id, answer: self.answer(&errand.question) },
            Err(error) => Reply {
                id: 0,
                answer: Err(Fault {
                    key: "worker".to_owned(),
                    problem: format!("an errand could not be read: {error}"),
                    hint: "reload the page".to_owned(),
                }),
            },
        };
        serde_json::to_string(&reply).unwrap_or_default()
    }
}

/// How much work a scenario's run is, in layer passes: what decides whether it may hold up a frame.
pub fn weight(layers: u64, accumulation: u64) -> u64 {
    layers.max(1).saturating_mul(accumulation.max(1))
}
