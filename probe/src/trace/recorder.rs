//! The recorder: the user's own Python running the embedded script, asked for one recording after the other.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use plimsoll_core::Error;
use plimsoll_core::ledger::hull::{Reply, Trial, Variant};
use serde_json::{Value, json};

use super::input::Given;
use crate::exit::Failure;
use crate::worker::{Python, Quarters};

/// The version of the lines that are spoken.
const PROTOCOL: u32 = 1;

/// How many work side by side: each takes some hundred megabytes, and waits for no other.
const SIDE_BY_SIDE: usize = 2;

/// What is recorded.
#[derive(Clone, Debug)]
pub struct Job {
    /// Module or file.
    pub module: String,
    /// What makes the model in it. Without, it is a script with marked lines.
    pub callable: Option<String>,
    /// What a script is given.
    pub arguments: Vec<String>,
    /// Inputs by name.
    pub inputs: Value,
    /// The loss's expression.
    pub loss: String,
    /// What the model is told by the card, by who asks.
    pub answers: Value,
    /// Whether the loop lets go of the graph once it ran backward.
    pub detach_loss: bool,
    /// What is recorded beside the model as it is.
    pub variants: Vec<Variant>,
    /// Folders to import from, after all others.
    pub path: Vec<PathBuf>,
}

/// What is done about checkpointing in a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checkpoint {
    /// Nothing: the model runs as it is.
    None,
    /// What would be checkpointed is marked, and runs as it is.
    Marked,
    /// PyTorch checkpoints it.
    Real,
}

impl Checkpoint {
    const fn word(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Marked => "mark",
            Self::Real => "real",
        }
    }
}

/// What is wanted of a recording. One with checkpointing, or beyond the usual sizes, may be refused without ending the recorder.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// What is changed of the model before.
    pub variant: &'a Variant,
    /// The scenario's word for the precision.
    pub precision: &'a str,
    /// Compute capability.
    pub card: (u8, u8),
    /// Whether autograd holds what it saves itself.
    pub direct: bool,
    /// What is done about checkpointing.
    pub checkpoint: Checkpoint,
    /// Whether it is of sizes that the model may not take.
    pub beyond: bool,
    /// Whether modules that repeat are left out, which the model may not take either.
    pub shortened: bool,
}

impl Wanted<'_> {
    /// Whether the recorder goes on where it is refused.
    pub fn may_fail(&self) -> bool {
        self.beyond || self.shortened || self.checkpoint != Checkpoint::None
    }
}

/// A process that records. Dropping it ends it.
#[derive(Debug)]
pub struct Recorder {
    child: Child,
    stdin: ChildStdin,
    lines: BufReader<ChildStdout>,
    /// What it said first: versions, and what it found of a script.
    pub hello: Reply,
}

impl Recorder {
    /// Starts one, or where the machine has two cores and the model is made anew for each recording, two that work side by side. A
    /// script runs once.
    pub fn start_all(quarters: &Quarters, python: &Python, script: &str, job: &Job) -> Result<Vec<Self>, Failure> {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let wanted = if job.callable.is_some() { cores.min(SIDE_BY_SIDE) } else { 1 };
        let started: Result<Vec<Self>, Failure> =
            (0..wanted).map(|_| Self::start(quarters, python, script, job)).collect();
        let mut started = started?;
        started.iter_mut().try_for_each(Self::greet)?;
        Ok(started)
    }

    fn start(quarters: &Quarters, python: &Python, script: &str, job: &Job) -> Result<Self, Failure> {
        let text = json!({
            "module": job.module,
            "callable": job.callable,
            "script": job.callable.is_none(),
            "arguments": job.arguments,
            "inputs": job.inputs,
            "loss": job.loss,
            "answers": job.answers,
            "detach_loss": job.detach_loss,
            "variants": job.variants,
            "path": job.path,
        });
        let environment = |problem: String| Failure::Environment {
            problem,
            hint: "name a Python that has PyTorch with --python".to_owned(),
        };
        let mut command = quarters.rewritten(python, script)?;
        command.arg(text.to_string()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command
            .spawn()
            .map_err(|error| environment(format!("cannot run {}: {error}", python.program.display())))?;
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(environment("the recorder has no input or output".to_owned()));
        };
        Ok(Self { child, stdin, lines: BufReader::new(stdout), hello: Reply::default() })
    }

    /// Hears what it says first.
    fn greet(&mut self) -> Result<(), Failure> {
        self.hello = self.line()?;
        if self.hello.hello == Some(PROTOCOL) {
            return Ok(());
        }
        Err(Failure::Environment {
            problem: "the recorder did not say what it speaks".to_owned(),
            hint: "name a Python that has PyTorch with --python".to_owned(),
        })
    }

    /// Asks for a recording.
    pub fn ask(&mut self, given: &Given, at: &[u64], wanted: Wanted<'_>) {
        let asked = json!({
            "sizes": given.sizes(at),
            "variant": wanted.variant,
            "precision": wanted.precision,
            "capability": [wanted.card.0, wanted.card.1],
            "direct": wanted.direct,
            "checkpoint": wanted.checkpoint.word(),
            "shortened": wanted.shortened,
            "may_fail": wanted.may_fail(),
        });
        // One that ended has said why, and that is read below.
        let _ = writeln!(self.stdin, "{asked}").and_then(|()| self.stdin.flush());
    }

    /// Waits for the recording that was asked for.
    pub fn answer(&mut self, at: &[u64]) -> Result<Trial, Failure> {
        let reply = self.line()?;
        let Some(recording) = reply.recording else {
            return Err(Error::new("trace", "the recorder answered without a recording", "report it").into());
        };
        Ok(Trial { at: at.to_vec(), recording })
    }

    fn line(&mut self) -> Result<Reply, Failure> {
        let mut line = String::new();
        let read = self.lines.read_line(&mut line);
        let gone = |problem: &str| Failure::Environment {
            problem: problem.to_owned(),
            hint: "what it printed above says why".to_owned(),
        };
        if !matches!(read, Ok(count) if count > 0) {
            return Err(gone("the recorder ended before it answered"));
        }
        let reply: Reply = serde_json::from_str(&line).map_err(|error| gone(&format!("the recorder said: {error}")))?;
        match reply.refused {
            Some(problem) => {
                eprintln!();
                Err(Error::new("trace", problem, reply.hint).into())
            }
            None => Ok(reply),
        }
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        // It may be gone by now, which is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
