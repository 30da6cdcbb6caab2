//! What the page asks of its worker, and what comes back: JSON text both ways.

use plimsoll_core::estimate::fit::{Allowed, Cards, Fit};
use plimsoll_core::{Bytes, Error, Result, Scenario};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::engine::{self, Run};
use crate::heatmap::{self, Sheet};
use crate::reading::{Held, Reading, Standing};

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
    /// What fits around it.
    Sheet(Value),
    /// Which recipes bring it onto its card.
    Fit(Value, Allowed),
    /// Which cards hold it as it is.
    Cards(Value),
    /// What is alive after so many events of the kept run.
    Alive(u32),
}

/// The worker's reply.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reply {
    /// The errand's.
    pub id: u64,
    /// What was found, or why nothing was.
    pub answer: Result<Answer>,
}

/// What was found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Answer {
    /// To [`Question::Sound`].
    Reading(Box<Reading>),
    /// To [`Question::Peak`].
    Peak(Depth),
    /// To [`Question::Largest`].
    Largest(u64),
    /// To [`Question::Sheet`].
    Sheet(Box<Sheet>),
    /// To [`Question::Fit`].
    Fit(Box<Fit>),
    /// To [`Question::Cards`].
    Cards(Box<Cards>),
    /// To [`Question::Alive`].
    Alive(Vec<Held>),
}

/// How deep a run sits, and no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Depth {
    /// Its process peak.
    pub process: Bytes,
    /// Its verdict.
    pub standing: Standing,
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
    pub fn answer(&mut self, question: &Question) -> Result<Answer> {
        match question {
            Question::Sound(value) => Ok(Answer::Reading(Box::new(self.sound(&Scenario::from_value(value)?)?))),
            Question::Peak(value) => Ok(Answer::Peak(engine::depth(&Scenario::from_value(value)?)?)),
            Question::Largest(value) => Ok(Answer::Largest(engine::max_batch(&Scenario::from_value(value)?)?)),
            Question::Sheet(value) => Ok(Answer::Sheet(Box::new(heatmap::sheet(&Scenario::from_value(value)?)?))),
            Question::Fit(value, allowed) => {
                Ok(Answer::Fit(Box::new(engine::fit(&Scenario::from_value(value)?, *allowed)?)))
            }
            Question::Cards(value) => Ok(Answer::Cards(Box::new(engine::cards(&Scenario::from_value(value)?)?))),
            Question::Alive(event) => {
                Ok(Answer::Alive(self.run.as_ref().map(|run| engine::alive(run, *event)).unwrap_or_default()))
            }
        }
    }

    /// Runs a scenario and keeps the run.
    ///
    /// # Errors
    /// As the engine's.
    pub fn sound(&mut self, scenario: &Scenario) -> Result<Reading> {
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
                answer: Err(Error::new("worker", format!("an errand could not be read: {error}"), "reload the page")),
            },
        };
        serde_json::to_string(&reply).unwrap_or_default()
    }
}

/// How many micro-batches of a step cost time: the engine does not execute all of a long accumulation.
const EXECUTED: u64 = 8;

/// Layers of a model that does not say how many it has: a deep convolutional network's.
const UNKNOWN: u64 = 48;

/// How much work a scenario's run is, in layer passes: what decides whether it may hold up a frame.
pub fn weight(layers: Option<u64>, accumulation: u64) -> u64 {
    layers.unwrap_or(UNKNOWN).max(1).saturating_mul(accumulation.clamp(1, EXECUTED))
}

#[cfg(test)]
mod tests {
    use super::{Answer, Clerk, Errand, Question, Reply, weight};
    use crate::engine::opening;

    #[test]
    fn an_errand_comes_back_answered() {
        let mut clerk = Clerk::default();
        let ask = |question| serde_json::to_string(&Errand { id: 7, question }).unwrap();
        let value = opening().to_value();
        let reply: Reply = serde_json::from_str(&clerk.reply(&ask(Question::Sound(value.clone())))).unwrap();
        let Ok(Answer::Reading(reading)) = reply.answer else { panic!("no reading") };
        assert_eq!(reply.id, 7);
        assert_eq!(*reading, Clerk::default().sound(&opening()).unwrap(), "a reading survives the journey");

        let reply: Reply = serde_json::from_str(&clerk.reply(&ask(Question::Peak(value)))).unwrap();
        let Ok(Answer::Peak(depth)) = reply.answer else { panic!("no peak") };
        assert_eq!((depth.process, depth.standing), (reading.process, reading.standing));

        let event = reading.points[reading.peak].event;
        let reply: Reply = serde_json::from_str(&clerk.reply(&ask(Question::Alive(event)))).unwrap();
        assert_eq!(reply.answer, Ok(Answer::Alive(reading.holdings.clone())));
    }

    #[test]
    fn garbage_is_answered_with_a_fault() {
        let mut clerk = Clerk::default();
        for text in ["", "{}", "null", "\u{0}", r#"{"id":1,"question":{"Sound":7}}"#] {
            let reply: Reply = serde_json::from_str(&clerk.reply(text)).unwrap();
            assert!(reply.answer.is_err(), "{text}");
        }
    }

    #[test]
    fn a_long_accumulation_is_not_more_work_than_the_engine_does() {
        assert_eq!(weight(Some(16), 1), 16);
        assert_eq!(weight(Some(16), 1 << 20), 128);
        assert_eq!(weight(Some(0), 0), 1);
        assert_eq!(weight(None, 1), 48);
    }
}
