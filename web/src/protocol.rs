//! What the page asks of its worker, and what comes back: JSON text both ways.

use plimsoll_core::estimate::fit::{Allowed, Cards, Fit, Freedom, Plans, Search};
use plimsoll_core::scenario::{HullModel, ModelSource};
use plimsoll_core::solve::Grid;
use plimsoll_core::{Bytes, Error, Result, Scenario};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::engine::{self, Run};
use crate::heatmap;
use crate::reading::{Held, Reading, Standing};
use crate::window::{Stretch, Window};

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
    /// How it is spread over its cards so that it fits: a piece of the search, the next one where it is asked again.
    Plans(Value, Freedom),
    /// Which cards hold it as it is.
    Cards(Value),
    /// What is alive after so many events of the kept run.
    Alive(u32),
    /// A part of the kept run, closely.
    Stretch(Stretch),
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
    /// To [`Question::Plans`], where ways are left: how many were searched, and of how many.
    Planning(usize, usize),
    /// To [`Question::Plans`].
    Plans(Box<Plans>),
    /// To [`Question::Cards`].
    Cards(Box<Cards>),
    /// To [`Question::Alive`].
    Alive(Vec<Held>),
    /// To [`Question::Stretch`]; `None` where no run is kept.
    Stretch(Option<Box<Window>>),
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
    /// The hull that was asked about last, and the text that stood for it: reading one plays its witnesses.
    hull: Option<(String, HullModel)>,
    /// The search for plans that is under way, and what it was asked with.
    search: Option<((Value, Freedom), Search)>,
}

/// A scenario as the worker is asked about it: a hull's file goes along, as no hash of it does the worker any good.
pub fn asked(scenario: &Scenario) -> Value {
    let mut value = scenario.to_value();
    if let ModelSource::Hull(hull) = &scenario.model.source
        && let Some(content) = hull.whole()
        && let Some(place) = value.pointer_mut("/model/hull")
    {
        *place = content.into();
    }
    value
}

impl Responder {
    /// Answers one question.
    ///
    /// # Errors
    /// As the engine's.
    pub fn answer(&mut self, question: &Question) -> Result<Answer> {
        match question {
            Question::Reading(value) => {
                let scenario = self.scenario(value)?;
                Ok(Answer::Reading(Box::new(self.read(&scenario)?)))
            }
            Question::Beside(value) => Ok(Answer::Beside(Box::new(engine::read(&self.scenario(value)?)?.0))),
            Question::Peak(value) => Ok(Answer::Peak(engine::peak(&self.scenario(value)?)?)),
            Question::Largest(value) => Ok(Answer::Largest(engine::max_batch(&self.scenario(value)?)?)),
            Question::Grid(value) => Ok(Answer::Grid(Box::new(heatmap::grid(&self.scenario(value)?)?))),
            Question::Fit(value, allowed) => Ok(Answer::Fit(Box::new(engine::fit(&self.scenario(value)?, *allowed)?))),
            Question::Plans(value, freedom) => self.plans(value, *freedom),
            Question::Cards(value) => Ok(Answer::Cards(Box::new(engine::cards(&self.scenario(value)?)?))),
            Question::Stretch(stretch) => {
                let window = self.run.as_ref().map(|run| Box::new(engine::stretch(run, *stretch)));
                Ok(Answer::Stretch(window))
            }
            Question::Alive(event) => {
                Ok(Answer::Alive(self.run.as_ref().map(|run| engine::alive(run, *event)).unwrap_or_default()))
            }
        }
    }

    /// The next piece of a search for plans: one way, or the answer.
    fn plans(&mut self, value: &Value, freedom: Freedom) -> Result<Answer> {
        let known = self.search.take().filter(|(asked, _)| *asked == (value.clone(), freedom));
        let (asked, mut search) = match known {
            Some(known) => known,
            None => ((value.clone(), freedom), Search::new(&self.scenario(value)?, freedom)?),
        };
        if !search.step() {
            return Ok(Answer::Plans(Box::new(search.finish()?)));
        }
        let (done, of) = search.progress();
        self.search = Some((asked, search));
        Ok(Answer::Planning(done, of))
    }

    /// The scenario of a question.
    fn scenario(&mut self, value: &Value) -> Result<Scenario> {
        let Some(content) = value.pointer("/model/hull").and_then(Value::as_str) else {
            return Scenario::from_value(value);
        };
        let known = self.hull.as_ref().filter(|(text, _)| text == content);
        let Some((_, hull)) = known else {
            let scenario = Scenario::from_value(value)?;
            if let ModelSource::Hull(hull) = &scenario.model.source {
                self.hull = Some((content.to_owned(), hull.clone()));
            }
            return Ok(scenario);
        };
        let mut named = value.clone();
        if let Some(place) = named.pointer_mut("/model/hull") {
            *place = hull.hash().into();
        }
        Scenario::from_value(&named)?.with_hull(hull)
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
    use plimsoll_core::Scenario;
    use plimsoll_core::estimate::fit::Freedom;
    use plimsoll_core::scenario::{Change, HullModel, ModelSource};

    use super::{Answer, Question, Request, Responder, Response, asked, weight};
    use crate::engine::opening;

    #[test]
    fn a_hull_goes_along_with_what_is_asked_of_it() {
        let hull = HullModel::of(include_bytes!("../../tests/corpus/hulls/gcn.hull")).unwrap();
        let source = ModelSource::Hull(hull.with_axis("S", 5000));
        let scenario = Change::Model(source).apply(&opening()).unwrap();
        assert!(Scenario::from_value(&scenario.to_value()).is_ok_and(|named| asked(&named) == named.to_value()));
        let mut responder = Responder::default();
        let mut peaks = Vec::new();
        // The second time it is known by its text.
        for _ in 0..2 {
            match responder.answer(&Question::Peak(asked(&scenario))) {
                Ok(Answer::Peak(peak)) => peaks.push(peak),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(peaks[0], peaks[1]);
        let other = Change::Sizes { batch: scenario.input.batch + 1, seq: None }.apply(&scenario).unwrap();
        assert!(matches!(responder.answer(&Question::Largest(asked(&other))), Ok(Answer::Largest(batch)) if batch > 0));
        assert!(matches!(responder.answer(&Question::Grid(asked(&other))), Ok(Answer::Grid(_))));
    }

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
    fn plans_come_piece_by_piece() {
        let scenario = Scenario::from_value(&serde_json::json!({
            "model": {"catalog": "gpt2"}, "input": {"batch": 8}, "device": {"gpu": "rtx-4090", "memory": "3 GiB"},
            "parallel": {"gpus": 4}
        }))
        .unwrap();
        let mut responder = Responder::default();
        let question = Question::Plans(asked(&scenario), Freedom::default());
        let mut pieces = Vec::new();
        loop {
            match responder.answer(&question) {
                Ok(Answer::Planning(done, of)) => pieces.push((done, of)),
                Ok(Answer::Plans(plans)) => {
                    assert_eq!(*plans, plimsoll_core::estimate::fit::plans(&scenario, Freedom::default()).unwrap());
                    break;
                }
                other => panic!("{other:?}"),
            }
        }
        let of = pieces.first().unwrap().1;
        assert_eq!(pieces, (1..=of).map(|done| (done, of)).collect::<Vec<_>>());
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
