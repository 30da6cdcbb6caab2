//! The recorder: the user's own Python running the embedded script, asked for one recording after the other.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::time::Instant;

use plimsoll_core::Error;
use plimsoll_core::ledger::hull::{Reply, Trial};
use serde_json::{Value, json};

use super::input::Given;
use crate::exit::Failure;
use crate::worker::{Python, Quarters};

/// The version of the lines that are spoken.
const PROTOCOL: u32 = 1;

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
    /// Starts it.
    pub fn start(quarters: &Quarters, python: &Python, script: &str, job: &Job) -> Result<Self, Failure> {
        let text = json!({
            "module": job.module,
            "callable": job.callable,
            "script": job.callable.is_none(),
            "arguments": job.arguments,
            "inputs": job.inputs,
            "loss": job.loss,
            "answers": job.answers,
            "detach_loss": job.detach_loss,
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
        let mut recorder = Self { child, stdin, lines: BufReader::new(stdout), hello: Reply::default() };
        recorder.hello = recorder.line()?;
        if recorder.hello.hello != Some(PROTOCOL) {
            return Err(environment("the recorder did not say what it speaks".to_owned()));
        }
        Ok(recorder)
    }

    /// One recording.
    pub fn record(&mut self, given: &Given, at: &[u64], wanted: Wanted<'_>) -> Result<Trial, Failure> {
        let begun = Instant::now();
        let asked = json!({
            "sizes": given.sizes(at),
            "precision": wanted.precision,
            "capability": [wanted.card.0, wanted.card.1],
            "direct": wanted.direct,
            "checkpoint": wanted.checkpoint.word(),
            "may_fail": wanted.beyond || wanted.checkpoint != Checkpoint::None,
        });
        // One that ended has said why, and that is read below.
        let _ = writeln!(self.stdin, "{asked}").and_then(|()| self.stdin.flush());
        let reply = self.line()?;
        let Some(recording) = reply.recording else {
            return Err(Error::new("trace", "the recorder answered without a recording", "report it").into());
        };
        eprintln!("{:.1} s", begun.elapsed().as_secs_f32());
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
