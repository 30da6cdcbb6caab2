//! The worker's protocol, version 1: one JSON object a line, in both directions.

use plimsoll_core::estimate::{Parameters, PhaseName};
use plimsoll_core::measurement::{DeviceKind, MeasuredBuffer, Outcome};
use plimsoll_core::{Bytes, Scenario, is_hidden, shown};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The version both sides must speak.
pub const PROTOCOL: u32 = 1;

/// The first line the worker reads: what to run, and where.
#[derive(Clone, Debug, Serialize)]
pub struct Job {
    /// [`PROTOCOL`].
    pub protocol: u32,
    /// The scenario, every default filled in.
    pub scenario: Value,
    /// The Hugging Face config, where the model has one.
    pub config: Option<Map<String, Value>>,
    /// Where.
    pub device: DeviceKind,
    /// Whether to take something better than `device` where PyTorch has it.
    pub best: bool,
    /// Which of the devices the worker sees.
    pub index: u32,
    /// Optimizer steps of an attempt.
    pub steps: u64,
    /// Hard cap of the process.
    pub limit: Option<Bytes>,
    /// Where to write a memory snapshot.
    pub snapshot: Option<String>,
    /// Where to write a profiler trace.
    pub trace: Option<String>,
    /// Seed of weights and data.
    pub seed: u64,
    /// Whether phases are told apart, which waits for the device around each.
    pub phases: bool,
}

impl Job {
    /// A job for `scenario` on the first device of a kind.
    pub fn new(scenario: &Scenario, device: DeviceKind) -> Self {
        Self {
            protocol: PROTOCOL,
            scenario: scenario.to_value(),
            config: scenario.model.source.config(),
            device,
            best: false,
            index: 0,
            steps: 3,
            limit: None,
            snapshot: None,
            trace: None,
            seed: 0,
            phases: true,
        }
    }
}

/// What the worker is told after the job.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(tag = "command", rename_all = "snake_case")]
pub enum Command {
    /// Run steps of this shape.
    Attempt {
        /// Samples in a micro-batch.
        batch: u64,
        /// Micro-batches in a step.
        accumulation: u64,
        /// Samples in a step: the last micro-batch is smaller where they do not divide.
        samples: u64,
        /// Optimizer steps.
        steps: u64,
    },
    /// Say goodbye.
    Finish,
}

/// A line of the worker that could be read.
#[derive(Debug)]
pub struct Parsed {
    /// Microseconds since the worker started, by its own clock.
    pub at: u64,
    /// Which of several processes says it; 0 where there is one.
    pub rank: u32,
    /// What it says.
    pub event: Event,
}

impl Parsed {
    /// Reads one line; what is wrong with it, in words, when it is none of the protocol.
    pub fn read(line: &[u8]) -> Result<Self, String> {
        let mut value: Value = serde_json::from_slice(line).map_err(|_| "it is not JSON".to_owned())?;
        visible(&mut value);
        let at = value.get("at").and_then(Value::as_u64).ok_or_else(|| "it has no time".to_owned())?;
        let rank = value.get("rank").and_then(Value::as_u64).and_then(|rank| u32::try_from(rank).ok());
        let event = serde_json::from_value(value).map_err(|error| error.to_string())?;
        Ok(Self { at, rank: rank.unwrap_or_default(), event })
    }
}

/// Writes hidden characters out in all texts: they go to terminals and into records.
fn visible(value: &mut Value) {
    match value {
        Value::String(text) if text.chars().any(is_hidden) => *text = shown(text),
        Value::Array(items) => items.iter_mut().for_each(visible),
        Value::Object(map) => map.values_mut().for_each(visible),
        _ => {}
    }
}

/// What the worker says.
#[derive(Debug, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// Who it is and where it runs.
    Hello(Box<Hello>),
    /// What it is about, while it imports and builds.
    Progress {
        /// In words.
        message: String,
    },
    /// Model and optimizer stand.
    Ready {
        /// Numbers in the model.
        parameters: Parameters,
    },
    /// A phase ended.
    Phase(Phase),
    /// An optimizer step ended.
    Step(Step),
    /// There was no memory left.
    Guard {
        /// Whose memory.
        kind: GuardKind,
        /// Optimizer step, from 1.
        step: Option<u64>,
        /// Micro-batch, from 1.
        micro_batch: Option<u64>,
        /// In which phase.
        phase: Option<PhaseName>,
        /// As PyTorch words it.
        message: String,
    },
    /// What was exchanged with the other ranks in the last step of an attempt.
    Buffers {
        /// By kind and size.
        buffers: Vec<MeasuredBuffer>,
    },
    /// An attempt is over.
    AttemptEnd {
        /// How.
        outcome: AttemptOutcome,
        /// `max_memory_allocated` over the attempt.
        peak_allocated: Option<Bytes>,
        /// `max_memory_reserved` over the attempt.
        peak_reserved: Option<Bytes>,
        /// How often the allocator gave cached memory back to make room.
        retries: Option<u64>,
    },
    /// Worth knowing.
    Note {
        /// In words.
        message: String,
    },
    /// It cannot go on.
    Error {
        /// What kind of thing.
        kind: ErrorKind,
        /// What happened.
        message: String,
        /// What to do.
        #[serde(default)]
        hint: Option<String>,
        /// Where in the script, for those who look into it.
        #[serde(default)]
        traceback: Option<String>,
    },
    /// It is done.
    Bye,
}

/// Who the worker is.
#[derive(Clone, Debug, Deserialize)]
#[allow(missing_docs, reason = "the record's `MeasuredSoftware` and `MeasuredDevice` document the same fields")]
pub struct Hello {
    pub protocol: u32,
    /// Its process, which of several cards' is not the one that was started.
    #[serde(default)]
    pub pid: Option<u32>,
    pub python: String,
    pub torch: String,
    #[serde(default)]
    pub transformers: Option<String>,
    #[serde(default)]
    pub peft: Option<String>,
    #[serde(default)]
    pub torchvision: Option<String>,
    #[serde(default)]
    pub bitsandbytes: Option<String>,
    #[serde(default)]
    pub cuda: Option<String>,
    #[serde(default)]
    pub hip: Option<String>,
    #[serde(default)]
    pub cudnn: Option<u64>,
    pub os: String,
    #[serde(default)]
    pub wsl: bool,
    #[serde(default)]
    pub container: bool,
    #[serde(default)]
    pub alloc_conf: Option<String>,
    pub device: HelloDevice,
}

/// The device the worker took.
#[derive(Clone, Debug, Deserialize)]
pub struct HelloDevice {
    /// What it is.
    pub kind: DeviceKind,
    /// As PyTorch names it.
    pub name: String,
    /// Its memory, as PyTorch counts it.
    pub total: Bytes,
    /// CUDA compute capability, `12.0`.
    #[serde(default)]
    pub capability: Option<String>,
    /// Only to find the card; never kept.
    #[serde(default)]
    pub uuid: Option<String>,
    /// Only to find the card; never kept.
    #[serde(default)]
    pub pci: Option<String>,
    /// Whether a library stands in for the card.
    #[serde(default)]
    pub hollow: bool,
}

/// A phase that ended.
#[derive(Clone, Debug, Deserialize)]
#[allow(missing_docs, reason = "as the record's `MeasuredPhase`")]
pub struct Phase {
    pub name: PhaseName,
    pub step: Option<u64>,
    pub micro_batch: Option<u64>,
    pub peak_allocated: Option<Bytes>,
    pub peak_reserved: Option<Bytes>,
    pub end_allocated: Option<Bytes>,
    pub end_reserved: Option<Bytes>,
    pub micros: u64,
    /// The process's memory, where only the worker knows it (`mps`).
    #[serde(default)]
    pub process: Option<Bytes>,
}

/// A step that ended.
#[derive(Clone, Debug, Deserialize)]
#[allow(missing_docs, reason = "as the record's `MeasuredStep`")]
pub struct Step {
    pub step: u64,
    pub micros: u64,
    pub loss: Option<f64>,
    pub scale: Option<f64>,
    pub skipped: bool,
    pub samples: u64,
    #[serde(default)]
    pub tokens: Option<u64>,
    #[serde(default)]
    pub peak_allocated: Option<Bytes>,
    #[serde(default)]
    pub peak_reserved: Option<Bytes>,
    #[serde(default)]
    pub process: Option<Bytes>,
}

/// Whose memory was at its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GuardKind {
    /// The card's.
    OutOfMemory,
    /// The hard cap's.
    Limit,
}

/// How an attempt ended, as the worker says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AttemptOutcome {
    /// Every step ran.
    Finished,
    /// The device had no more memory.
    OutOfMemory,
    /// The hard cap was hit.
    Limit,
}

impl From<AttemptOutcome> for Outcome {
    fn from(outcome: AttemptOutcome) -> Self {
        match outcome {
            AttemptOutcome::Finished => Self::Finished,
            AttemptOutcome::OutOfMemory => Self::OutOfMemory,
            AttemptOutcome::Limit => Self::Limit,
        }
    }
}

/// Why the worker cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ErrorKind {
    /// PyTorch is not installed.
    MissingTorch,
    /// PyTorch is too old.
    OldTorch,
    /// transformers, peft or torchvision is not installed, or too old.
    MissingPackage,
    /// The scenario asks for something the worker cannot build.
    Unsupported,
    /// PyTorch does not see the device.
    NoDevice,
    /// There are fewer devices than the scenario has cards.
    FewDevices,
    /// One of several processes is gone.
    Lost,
    /// The job could not be read.
    BadJob,
    /// A command could not be read.
    Protocol,
    /// The model itself does not fit.
    OutOfMemory,
    /// No loss was finite.
    NotFinite,
    /// A bug.
    Internal,
    /// A kind of a newer script.
    #[serde(other)]
    Other,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_as_the_worker_writes_them() {
        let hello = br#"{"event":"hello","at":5,"protocol":1,"pid":7,"python":"3.11.7","torch":"2.11.0","transformers":null,
            "peft":null,"torchvision":null,"cuda":"12.8","hip":null,"cudnn":91002,"os":"linux","wsl":false,
            "container":false,"alloc_conf":null,"device":{"kind":"cuda","name":"NVIDIA GeForce RTX 5070","total":12000000000,
            "free":null,"capability":"12.0","uuid":"GPU-1","pci":null}}"#;
        let Parsed { at: 5, rank: 0, event: Event::Hello(hello) } = Parsed::read(hello).unwrap() else {
            panic!("no hello")
        };
        assert_eq!((hello.torch.as_str(), hello.device.kind), ("2.11.0", DeviceKind::Cuda));

        let note = br#"{"event":"note","at":5,"message":"a\u001b[31mb\u202e"}"#;
        let Event::Note { message } = Parsed::read(note).unwrap().event else { panic!("no note") };
        assert_eq!(message, "a\\u{1b}[31mb\\u{202e}");

        let phase = br#"{"event":"phase","at":9,"attempt":0,"name":"zero_grad","step":1,"micro_batch":null,
            "peak_allocated":10,"peak_reserved":20,"end_allocated":5,"end_reserved":20,"micros":3,"process":null}"#;
        let Event::Phase(phase) = Parsed::read(phase).unwrap().event else { panic!("no phase") };
        assert_eq!((phase.name, phase.peak_reserved), (PhaseName::ZeroGrad, Some(Bytes::new(20))));

        let guard = br#"{"event":"guard","at":9,"attempt":0,"kind":"limit","step":1,"micro_batch":2,"phase":"forward",
            "message":"x","allocated_after":1,"reserved_after":2}"#;
        assert!(matches!(Parsed::read(guard).unwrap().event, Event::Guard { kind: GuardKind::Limit, .. }));
        assert!(matches!(Parsed::read(b"{\"event\":\"bye\",\"at\":1}").unwrap().event, Event::Bye));
    }

    #[test]
    fn lines_that_are_none_of_the_protocol() {
        for (line, problem) in [
            (&b"Some weights were not initialised"[..], "not JSON"),
            (b"[1, 2]", "no time"),
            (b"{\"at\": 1}", "event"),
            (b"{\"at\": 1, \"event\": \"sing\"}", "unknown variant `sing`"),
            (b"{\"at\": 1, \"event\": \"step\", \"step\": -1}", "-1"),
            (b"{\"at\": NaN, \"event\": \"bye\"}", "not JSON"),
            (b"\xff\xfe", "not JSON"),
        ] {
            let error = Parsed::read(line).unwrap_err();
            assert!(error.contains(problem), "{error}");
        }
    }
}
