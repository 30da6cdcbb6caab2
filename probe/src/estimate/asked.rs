//! A run whose convolutions cuDNN itself was asked for: the library plans for a card that is described to it, so one that is installed
//! says what each convolution takes on a card that is not here.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, Stdio};
use std::rc::Rc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use plimsoll_core::catalog::{Gpu, Vendor};
use plimsoll_core::estimate::{Answers, Product, Question, Run, Verdict, card};
use plimsoll_core::ledger::DType;
use plimsoll_core::scenario::limits;
use plimsoll_core::{Error, Scenario, device};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::exit::Failure;
use crate::interrupt;
use crate::scripts::CUDNN;
use crate::worker::{self, Quarters};

/// How long cuDNN may take to load, or to answer what a run asks for at once. It plans some thousand convolutions a second.
const PATIENCE: Duration = Duration::from_secs(120);
/// How often Ctrl-C is looked for.
const TICK: Duration = Duration::from_millis(200);

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
    let mut library = Library::start(gpu, python, answers)?;
    library.ask(&open)?;
    let run = library.run(scenario)?;
    let largest = library.largest(scenario)?;
    Ok((run, Some(largest)))
}

/// A Python that has loaded cuDNN, and what it answered so far. Dropping it ends it. What it has to complain about goes where our own
/// complaints go.
struct Library {
    process: Child,
    stdin: ChildStdin,
    lines: Receiver<String>,
    answers: Rc<Answers>,
    /// Where it runs, as long as it does.
    _quarters: Quarters,
}

impl Drop for Library {
    fn drop(&mut self) {
        // It may have ended by itself, which is as good.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Greeting {
    Ready { version: String },
    Refused { problem: String, hint: String },
}

impl Library {
    fn start(gpu: &Gpu, python: Option<&Path>, answers: Rc<Answers>) -> Result<Self, Failure> {
        let python = worker::find(python)?;
        let quarters = Quarters::new()?;
        let mut command = quarters.script(&python, CUDNN)?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let not_started = |why: String| Failure::Environment {
            problem: format!("cannot start {}: {why}", python.program.display()),
            hint: "name another Python with --python PATH".to_owned(),
        };
        let mut process = command.spawn().map_err(|error| not_started(error.to_string()))?;
        let (Some(stdin), Some(stdout)) = (process.stdin.take(), process.stdout.take()) else {
            return Err(not_started("it has no standard streams".to_owned()));
        };
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            // The end of either side is an end.
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        let mut library = Self { process, stdin, lines, answers, _quarters: quarters };
        let (major, minor) = gpu.compute_capability.unwrap_or_default();
        let described = json!({ "capability": [major, minor], "multiprocessors": device::multiprocessors(gpu) });
        match library.answer::<Greeting>(&described)? {
            Greeting::Ready { version } => library.answers.name(version),
            Greeting::Refused { problem, hint } => return Err(Failure::Environment { problem, hint }),
        }
        Ok(library)
    }

    /// Sends a line and waits for the one that answers it.
    fn answer<T: for<'de> Deserialize<'de>>(&mut self, line: &Value) -> Result<T, Failure> {
        if writeln!(self.stdin, "{line}").and_then(|()| self.stdin.flush()).is_err() {
            return Err(failed("it ended"));
        }
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            if interrupt::asked() {
                return Err(Failure::Interrupted);
            }
            match self.lines.recv_timeout(TICK) {
                Ok(text) => return serde_json::from_str(&text).map_err(|_| failed("it said something else")),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(failed("it ended")),
            }
        }
        Err(failed("it does not answer"))
    }

    /// Asks, and notes the answers.
    fn ask(&mut self, open: &[Question]) -> Result<(), Failure> {
        let said: Vec<Option<u64>> = self.answer(&open.iter().map(described).collect())?;
        if said.len() != open.len() {
            return Err(failed("it answered something else"));
        }
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

    /// The largest micro-batch whose verdict is `fits`, looked for by doubling and halving: workspaces follow no law of the batch.
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

fn failed(what: &str) -> Failure {
    Failure::Environment {
        problem: format!("asking cuDNN failed: {what}"),
        hint: "name another Python with --python PATH, or leave --ask-cudnn out".to_owned(),
    }
}

/// A question, as the script reads it.
fn described(question: &Question) -> Value {
    let product = match question.product {
        Product::Forward => "forward",
        Product::Input => "input",
        Product::Weight => "weight",
    };
    let dtype = match question.dtype {
        DType::Float16 => "fp16",
        DType::BFloat16 => "bf16",
        _ => "fp32",
    };
    let shape = &question.shape;
    let [x, weight, made] = shape.tensors();
    json!([product, x, weight, made, shape.stride(), shape.padding(), question.last, dtype])
}
