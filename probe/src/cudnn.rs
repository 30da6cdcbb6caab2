//! A cuDNN that is installed, in a Python of its own: it plans convolutions for a card that is described to it.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::{Value, json};

use crate::exit::Failure;
use crate::interrupt;
use crate::scripts::CUDNN;
use crate::worker::{Python, Quarters};

/// How long cuDNN may take to load, or to answer what a run asks for at once. It plans some hundred convolutions a second (2289 in 3.8 s).
const PATIENCE: Duration = Duration::from_secs(120);
/// How often Ctrl-C is looked for.
const TICK: Duration = Duration::from_millis(200);

/// The library, for one kind of card. Dropping it ends its process. What Python has to complain about goes where our own complaints
/// go.
#[derive(Debug)]
pub struct Cudnn {
    /// Its version, as `9.19.0`.
    pub version: String,
    process: Child,
    stdin: ChildStdin,
    lines: Receiver<String>,
    /// Where it runs, as long as it does.
    _quarters: Quarters,
}

impl Drop for Cudnn {
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

impl Cudnn {
    /// That of `python`, for cards of this compute capability and so many multiprocessors.
    ///
    /// # Errors
    /// A Python that cannot be started, has no cuDNN of 9.8 or later, or one that plans nothing for such a card.
    pub fn start(python: &Python, capability: (u32, u32), multiprocessors: u32) -> Result<Self, Failure> {
        let quarters = Quarters::new()?;
        let mut command = quarters.script(python, CUDNN)?;
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
        let mut cudnn = Self { version: String::new(), process, stdin, lines, _quarters: quarters };
        let card = json!({ "capability": [capability.0, capability.1], "multiprocessors": multiprocessors });
        match cudnn.say(&card)? {
            Greeting::Ready { version } => cudnn.version = version,
            Greeting::Refused { problem, hint } => return Err(Failure::Environment { problem, hint }),
        }
        Ok(cudnn)
    }

    /// The workspaces that a list of questions is about, in bytes; nothing of what cuDNN has no plan for. A question is a list as
    /// `cudnn/ask.py` reads it.
    ///
    /// # Errors
    /// A process that ends, says something else or nothing; Ctrl-C.
    pub fn ask(&mut self, questions: &[Value]) -> Result<Vec<Option<u64>>, Failure> {
        let answers: Vec<Option<u64>> = self.say(&Value::from(questions))?;
        if answers.len() == questions.len() { Ok(answers) } else { Err(failed("it answered something else")) }
    }

    /// Sends a line and waits for the one that answers it.
    fn say<T: for<'de> Deserialize<'de>>(&mut self, line: &Value) -> Result<T, Failure> {
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
}

fn failed(what: &str) -> Failure {
    Failure::Environment {
        problem: format!("asking cuDNN failed: {what}"),
        hint: "name another Python with --python PATH, or leave --ask-cudnn out".to_owned(),
    }
}
