//! What the page asks of its worker, and what comes back: JSON text both ways.

use plimsoll_core::estimate::fit::{Allowed, Cards, Fit};
use plimsoll_core::solve::Grid;
use plimsoll_core::{Bytes, Error, Result, Scenario};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::engine::{self, Run};
use crate::heatmap;
use crate::reading::{Held, Reading, Standing};

/// A question for the worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Request {
    /// Comes back with the answer.
    pub id: u64,
    /// What is asked.
    pub question: Question,
}

/// What can be asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Question {
    /// The whole reading; the run is kept for [`Question::Alive`].
    Reading(Value),
    /// The whole reading of another scenario than the page's; its run is not kept.
    Beside(Value),
    /// The process peak only.
    Peak(Value),
    /// The largest micro-batch that fits.
    Largest(Value),
    /// What fits around it.
    Grid(Value),
    /// Which recipes bring it onto its card.
    Fit(Value, Allowed),
    /// Which cards hold it as it is.
    Cards(Value),
    /// What is alive after so many events of the kept run.
    Alive(u32),
}

/// The worker's response.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Response {
    /// The request's.
    pub id: u64,
    /// What was found, or why nothing was.
    pub answer: Result<Answer>,
}

/// What was found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Answer {
    /// To [`Question::Reading`].
    Reading(Box<Reading>),
    /// To [`Question::Beside`].
    Beside(Box<Reading>),
    /// To [`Question::Peak`].
    Peak(Peak),
    /// To [`Question::Largest`].
    Largest(u64),
    /// To [`Question::Grid`].
    Grid(Box<Grid>),
    /// To [`Question::Fit`].
    Fit(Box<Fit>),
    /// To [`Question::Cards`].
    Cards(Box<Cards>),
    /// To [`Question::Alive`].
    Alive(Vec<Held>),
}

/// The peak of a run, and no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peak {
    /// Its process peak.
    pub process: Bytes,
    /// Its verdict.
    pub standing: Standing,
}

/// Answers requests, one after the other, and keeps the last run.
#[derive(Debug, Default)]
pub struct Responder {
    run: Option<Run>,
}

impl Responder {
    /// Answers one question.
    ///
    /// # Errors
    /// As the engine's.
    pub fn answer(&mut self, question: &Question) -> Result<Answer> {
        match question {
            Question::Reading(value) => Ok(Answer::Reading(Box::new(self.read(&Scenario::from_value(value)?)?))),
            Question::Beside(value) => Ok(Answer::Beside(Box::new(engine::read(&Scenario::from_value(value)?)?.0))),
            Question::Peak(value) => Ok(Answer::Peak(engine::peak(&Scenario::from_value(value)?)?)),
            Question::Largest(value) => Ok(Answer::Largest(engine::max_batch(&Scenario::from_value(value)?)?)),
            Question::Grid(value) => Ok(Answer::Grid(Box::new(heatmap::grid(&Scenario::from_value(value)?)?))),
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
    pub fn read(&mut self, scenario: &Scenario) -> Result<Reading> {
        let (reading, run) = engine::read(scenario)?;
        self.run = Some(run);
        Ok(reading)
    }

    /// Answers a request written as JSON.
    pub fn respond(&mut self, request: &str) -> String {
        let response = match serde_json::from_str::<Request>(request) {
            Ok(request) => Response { id: request.id, answer: self.answer(&request.question) },
            Err(error) => Response {
                id: 0,
                answer: Err(Error::new("worker", format!("a request could not be read: {error}"), "reload the page")),
            },
        };
        serde_json::to_string(&response).unwrap_or_default()
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
    use super::{Answer, Question, Request, Responder, Response, weight};
    use crate::engine::opening;

    #[test]
    fn a_request_comes_back_answered() {
        let mut responder = Responder::default();
        let ask = |question| serde_json::to_string(&Request { id: 7, question }).unwrap();
        let value = opening().to_value();
        let response: Response =
            serde_json::from_str(&responder.respond(&ask(Question::Reading(value.clone())))).unwrap();
        let Ok(Answer::Reading(reading)) = response.answer else { panic!("no reading") };
        assert_eq!(response.id, 7);
        assert_eq!(*reading, Responder::default().read(&opening()).unwrap(), "a reading survives the journey");

        let response: Response = serde_json::from_str(&responder.respond(&ask(Question::Peak(value)))).unwrap();
        let Ok(Answer::Peak(peak)) = response.answer else { panic!("no peak") };
        assert_eq!((peak.process, peak.standing), (reading.process, reading.standing));

        let event = reading.points[reading.peak].event;
        let response: Response = serde_json::from_str(&responder.respond(&ask(Question::Alive(event)))).unwrap();
        assert_eq!(response.answer, Ok(Answer::Alive(reading.holdings.clone())));
    }

    #[test]
    fn garbage_is_answered_with_a_fault() {
        let mut responder = Responder::default();
        for text in ["", "{}", "null", "\u{0}", r#"{"id":1,"question":{"Reading":7}}"#] {
            let response: Response = serde_json::from_str(&responder.respond(text)).unwrap();
            assert!(response.answer.is_err(), "{text}");
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
