//! A run whose convolutions cuDNN itself was asked for: the library plans for a card that is described to it, so one that is installed
//! says what each convolution takes on a card that is not here.

use std::path::Path;
use std::rc::Rc;

use plimsoll_core::catalog::{Gpu, Vendor};
use plimsoll_core::estimate::{Answers, Question, Run, Verdict, card};
use plimsoll_core::scenario::limits;
use plimsoll_core::{Error, Scenario, device};
use serde_json::{Value, json};

use crate::cudnn::Cudnn;
use crate::exit::Failure;
use crate::worker;

/// The run, with what cuDNN says, and the largest micro-batch of such; `None` where no convolution is cuDNN's, and nothing was asked.
pub fn run(scenario: &Scenario, python: Option<&Path>) -> Result<(Run, Option<u64>), Failure> {
    let gpu = card(scenario)?;
    if gpu.vendor != Vendor::Nvidia || !scenario.device.workspaces {
        let problem = format!("{} has no cuDNN, or device.workspaces leaves out what it takes", gpu.name);
        return Err(Error::new("ask-cudnn", problem, "leave --ask-cudnn out").into());
    }
    let answers = Rc::new(Answers::default());
    let run = Run::asking(scenario, &answers)?;
    let open = answers.take_open();
    if open.is_empty() {
        return Ok((run, None));
    }
    let mut planned = Planned::start(gpu, python, answers)?;
    planned.ask(&open)?;
    let run = planned.run(scenario)?;
    let largest = planned.largest(scenario)?;
    Ok((run, Some(largest)))
}

/// cuDNN, and what it answered so far.
struct Planned {
    cudnn: Cudnn,
    answers: Rc<Answers>,
}

impl Planned {
    fn start(gpu: &Gpu, python: Option<&Path>, answers: Rc<Answers>) -> Result<Self, Failure> {
        let (major, minor) = gpu.compute_capability.unwrap_or_default();
        let of = (u32::from(major), u32::from(minor));
        let multiprocessors = u32::try_from(device::multiprocessors(gpu)).unwrap_or(u32::MAX);
        let cudnn = Cudnn::start(&worker::find(python)?, of, multiprocessors)?;
        answers.name(cudnn.version.clone());
        Ok(Self { cudnn, answers })
    }

    /// Asks, and notes the answers.
    fn ask(&mut self, open: &[Question]) -> Result<(), Failure> {
        let questions: Vec<Value> = open.iter().map(described).collect();
        let said = self.cudnn.ask(&questions)?;
        for (&question, bytes) in open.iter().zip(said) {
            self.answers.tell(question, bytes);
        }
        Ok(())
    }

    /// A run all of whose questions are answered.
    fn run(&mut self, scenario: &Scenario) -> Result<Run, Failure> {
        loop {
            let run = Run::asking(scenario, &self.answers)?;
            let open = self.answers.take_open();
            if open.is_empty() {
                return Ok(run);
            }
            self.ask(&open)?;
        }
    }

    /// A micro-batch whose verdict is `fits` where that of one sample more is not, looked for by doubling and halving: workspaces follow no
    /// law of the batch. A larger one may fit.
    fn largest(&mut self, scenario: &Scenario) -> Result<u64, Failure> {
        let mut scenario = scenario.clone();
        let mut fits = |batch: u64| {
            scenario.input.batch = batch;
            match self.run(&scenario) {
                Ok(run) => Ok(run.estimate().verdict == Verdict::Fits),
                // Sizes beyond what a run may have.
                Err(Failure::Scenario { .. }) => Ok(false),
                Err(other) => Err(other),
            }
        };
        let (mut below, mut above) = (0, 1);
        while above <= limits::BATCH && fits(above)? {
            (below, above) = (above, above * 2);
        }
        above = above.min(limits::BATCH + 1);
        while above - below > 1 {
            let middle = below + (above - below) / 2;
            if fits(middle)? {
                below = middle;
            } else {
                above = middle;
            }
        }
        Ok(below)
    }
}

/// A question, as the script reads it.
fn described(question: &Question) -> Value {
    let [product, dtype] = question.names();
    let shape = &question.shape;
    let [x, weight, made] = shape.tensors();
    json!([product, x, weight, made, shape.stride(), shape.padding(), question.last, dtype])
}
