//! The record while it grows.

use plimsoll_core::estimate::PhaseName;
use plimsoll_core::measurement::{
    Allocator, Attempt, DeviceKind, Event, EventKind, MeasuredDevice, MeasuredPeak, MeasuredPhase, MeasuredSoftware,
    MeasuredStep, Outcome, PHASE_ORDER, ProcessSource, SCHEMA, Speed, scrubbed,
};
use plimsoll_core::{Bytes, Measurement, Scenario};
use time::OffsetDateTime;

use super::sensors::Taken;
use super::worker_clock::WorkerClock;
use crate::cards::sampler::Sampled;
use crate::policy::Shape;
use crate::worker::{Hello, Phase, Step};

/// Of a longer accumulation only the first four micro-batches and the last are kept, as the estimate lists them.
const MICRO_BATCHES: u64 = 8;
const FIRST: u64 = 4;

/// What an attempt left besides what the record keeps of it.
#[derive(Clone, Debug, Default)]
pub struct Log {
    /// When it began and ended, in the worker's time.
    began: u64,
    ended: u64,
    /// When its first step ended, and its last.
    first_step: Option<u64>,
    last_step: Option<u64>,
    peak_allocated: Option<Bytes>,
    peak_reserved: Option<Bytes>,
    /// The process, where the worker tells.
    peak_process: Option<Bytes>,
    /// Samples and tokens of a step.
    samples: u64,
    tokens: Option<u64>,
    /// Phases of the first step, of the one before that which runs, and of that which runs.
    first: Vec<MeasuredPhase>,
    last: Vec<MeasuredPhase>,
    current: Vec<MeasuredPhase>,
}

/// The record while it grows.
#[derive(Debug)]
pub struct Builder {
    record: Measurement,
    logs: Vec<Log>,
    /// Phases of `load`.
    load: Vec<MeasuredPhase>,
}

impl Builder {
    pub fn new(scenario: &Scenario, hello: &Hello, taken: Option<&Taken>, limit: Option<Bytes>) -> Self {
        let device = match taken {
            Some(Taken { card, used_before, .. }) => MeasuredDevice {
                kind: hello.device.kind,
                name: card.name.clone(),
                gpu: card.gpu.map(str::to_owned),
                total: card.total,
                reserved: card.reserved,
                used_before: *used_before,
                capability: card.capability.clone().or_else(|| hello.device.capability.clone()),
                driver: card.driver.clone(),
                hollow: hello.device.hollow,
            },
            None => MeasuredDevice {
                kind: hello.device.kind,
                name: hello.device.name.clone(),
                gpu: None,
                total: hello.device.total,
                reserved: None,
                used_before: None,
                capability: hello.device.capability.clone(),
                driver: None,
                hollow: hello.device.hollow,
            },
        };
        let record = Measurement {
            schema: SCHEMA,
            plimsoll: env!("CARGO_PKG_VERSION").to_owned(),
            // The day, UTC: `2026-11-20`.
            taken: OffsetDateTime::now_utc().date().to_string(),
            scenario: scenario.to_value(),
            software: software(hello),
            device,
            allocator: Allocator { conf: hello.alloc_conf.clone(), limit },
            parameters: None,
            attempts: Vec::new(),
            peak: MeasuredPeak::default(),
            phases: Vec::new(),
            steps: Vec::new(),
            speed: None,
            utilization: None,
            power: None,
            samples: Vec::new(),
            events: Vec::new(),
            ranks: Vec::new(),
            estimate: None,
        };
        Self { record, logs: Vec::new(), load: Vec::new() }
    }

    pub const fn record(&self) -> &Measurement {
        &self.record
    }

    pub const fn record_mut(&mut self) -> &mut Measurement {
        &mut self.record
    }

    /// Keeps an event, and gives back how it is kept.
    pub fn event(&mut self, at: u64, kind: EventKind, message: &str) -> Event {
        let event = Event { at, kind, message: scrubbed(message) };
        self.record.events.push(event.clone());
        event
    }

    /// An attempt begins. Until it ends it counts as failed: whatever breaks it off says otherwise or is a failure.
    pub fn attempt(&mut self, at: u64, shape: Shape) {
        let attempt =
            Attempt { batch: shape.batch, accumulation: shape.accumulation, outcome: Outcome::Failed, steps: 0 };
        self.record.attempts.push(attempt);
        // The first one has loaded the model too.
        let began = if self.logs.is_empty() { 0 } else { at };
        self.logs.push(Log { began, ended: at, ..Log::default() });
    }

    pub fn phase(&mut self, at: u64, phase: &Phase) {
        let attempt = self.attempt_index();
        let measured = MeasuredPhase {
            attempt,
            name: phase.name,
            step: phase.step,
            micro_batch: phase.micro_batch,
            peak_allocated: phase.peak_allocated,
            peak_reserved: phase.peak_reserved,
            end_allocated: phase.end_allocated,
            end_reserved: phase.end_reserved,
            micros: phase.micros,
        };
        if phase.name == PhaseName::Load {
            self.load.push(measured);
            return;
        }
        let Some(log) = self.logs.last_mut() else { return };
        log.ended = at;
        log.peak_allocated = log.peak_allocated.max(phase.peak_allocated);
        log.peak_reserved = log.peak_reserved.max(phase.peak_reserved);
        log.peak_process = log.peak_process.max(phase.process);
        log.current.push(measured);
        thin(&mut log.current);
    }

    /// A step ended; gives back how it is kept.
    pub fn step(&mut self, at: u64, step: &Step) -> MeasuredStep {
        let attempt = self.attempt_index();
        let measured = MeasuredStep {
            attempt,
            step: step.step,
            micros: step.micros,
            loss: step.loss,
            scale: step.scale,
            skipped: step.skipped,
        };
        self.record.steps.push(measured.clone());
        if let Some(attempt) = self.record.attempts.last_mut() {
            attempt.steps = attempt.steps.max(step.step);
        }
        if let Some(log) = self.logs.last_mut() {
            log.ended = at;
            log.first_step.get_or_insert(at);
            log.last_step = Some(at);
            log.peak_allocated = log.peak_allocated.max(step.peak_allocated);
            log.peak_reserved = log.peak_reserved.max(step.peak_reserved);
            log.peak_process = log.peak_process.max(step.process);
            log.samples = step.samples;
            log.tokens = step.tokens;
            let phases = std::mem::take(&mut log.current);
            if step.step == 1 {
                log.first = phases;
            } else {
                log.last = phases;
            }
        }
        measured
    }

    /// The attempt is over.
    pub fn end_attempt(&mut self, at: u64, outcome: Outcome, allocated: Option<Bytes>, reserved: Option<Bytes>) {
        if let Some(attempt) = self.record.attempts.last_mut() {
            attempt.outcome = outcome;
        }
        if let Some(log) = self.logs.last_mut() {
            log.ended = at;
            log.peak_allocated = log.peak_allocated.max(allocated);
            log.peak_reserved = log.peak_reserved.max(reserved);
        }
    }

    /// How the attempt ended for all ranks together.
    pub fn set_outcome(&mut self, outcome: Outcome) {
        if let Some(attempt) = self.record.attempts.last_mut() {
            attempt.outcome = outcome;
        }
    }

    /// The highest that is known of the attempt that runs or ran last: the process, where the worker tells.
    pub fn worker_process(&self) -> Option<Bytes> {
        self.logs.last()?.peak_process
    }

    /// The highest that was reserved in the attempt that runs or ran last.
    pub fn reserved(&self) -> Option<Bytes> {
        self.logs.last()?.peak_reserved
    }

    /// Puts together what is known at the end.
    pub fn finish(mut self, sampled: Option<&Sampled>, clock: &WorkerClock) -> Measurement {
        let record = &mut self.record;
        record.phases = self.load;
        for log in &mut self.logs {
            record.phases.append(&mut log.first);
            // A step that did not end is the last one.
            let last = if log.current.is_empty() { &mut log.last } else { &mut log.current };
            record.phases.append(last);
        }
        let subject = record.subject();
        let finished = record.attempts.iter().any(|a| a.outcome == Outcome::Finished);
        // The whole run, when no attempt finished.
        let chosen: Vec<&Log> = match subject {
            Some(index) if finished => self.logs.get(index).into_iter().collect(),
            _ => self.logs.iter().collect(),
        };
        let load = record.phases.iter().filter(|p| p.name == PhaseName::Load);
        let (load_allocated, load_reserved) =
            load.fold((None, None), |(a, r), p| (p.peak_allocated.max(a), p.peak_reserved.max(r)));
        record.peak.allocated = chosen.iter().filter_map(|log| log.peak_allocated).max().max(load_allocated);
        record.peak.reserved = chosen.iter().filter_map(|log| log.peak_reserved).max().max(load_reserved);

        let worker = chosen.iter().filter_map(|log| log.peak_process).max();
        let from = chosen.iter().map(|log| log.began).min().unwrap_or_default();
        let to = if finished { chosen.iter().map(|log| log.ended).max().unwrap_or(u64::MAX) } else { u64::MAX };
        if let (Some(process), DeviceKind::Mps) = (worker, record.device.kind) {
            record.peak.process = Some(process);
            record.peak.process_source = Some(ProcessSource::Worker);
        } else if let Some(sampled) = sampled {
            // One attempt is the whole run.
            record.peak.process = match self.logs.len() {
                0 | 1 => sampled.peak_process,
                _ => sampled.peak_between(clock.to_ours(from), clock.to_ours(to)),
            };
            // What stood for less time than lies between two samples was not seen: no figure is better than one that is known
            // to be too low.
            let of_process = [ProcessSource::NvmlProcess, ProcessSource::AmdgpuProcess].map(Some);
            if of_process.contains(&sampled.process_source) && record.peak.process < record.peak.reserved && finished {
                record.peak.process = None;
            }
            record.peak.process_source = record.peak.process.and(sampled.process_source);
        }
        if let Some(sampled) = sampled {
            record.samples.clone_from(&sampled.samples);
            for sample in &mut record.samples {
                sample.at = clock.to_worker(sample.at);
            }
        }
        let Some((index, log)) = subject.and_then(|index| Some((index, self.logs.get(index)?))) else {
            return self.record;
        };
        record.speed = speed(&record.steps, index, log);
        if let (Some(sampled), Some((from, to))) = (sampled, steady(log)) {
            record.utilization = sampled.utilization(clock.to_ours(from), clock.to_ours(to));
            record.power = sampled.power(clock.to_ours(from), clock.to_ours(to));
        }
        self.record
    }

    fn attempt_index(&self) -> u32 {
        u32::try_from(self.logs.len().saturating_sub(1)).unwrap_or(u32::MAX)
    }
}

fn software(hello: &Hello) -> MeasuredSoftware {
    MeasuredSoftware {
        torch: hello.torch.clone(),
        python: hello.python.clone(),
        transformers: hello.transformers.clone(),
        peft: hello.peft.clone(),
        torchvision: hello.torchvision.clone(),
        bitsandbytes: hello.bitsandbytes.clone(),
        cuda: hello.cuda.clone(),
        hip: hello.hip.clone(),
        cudnn: hello.cudnn,
        os: hello.os.clone(),
        wsl: hello.wsl,
        container: hello.container,
    }
}

fn steady(log: &Log) -> Option<(u64, u64)> {
    let (first, last) = (log.first_step?, log.last_step?);
    (last > first).then_some((first, last))
}

/// Median of every step but the first; of an even number, the mean of the middle two.
fn speed(steps: &[MeasuredStep], attempt: usize, log: &Log) -> Option<Speed> {
    let of_it = |s: &&MeasuredStep| usize::try_from(s.attempt).is_ok_and(|a| a == attempt) && s.step > 1;
    let mut micros: Vec<u64> = steps.iter().filter(of_it).map(|s| s.micros).collect();
    micros.sort_unstable();
    let middle = micros.len() / 2;
    let upper = *micros.get(middle)?;
    let step_micros = if micros.len().is_multiple_of(2) {
        let lower = micros.get(middle.checked_sub(1)?)?;
        lower + (upper - lower) / 2
    } else {
        upper
    };
    let per_second = |count: u64| count as f64 * 1e6 / step_micros.max(1) as f64;
    Some(Speed {
        step_micros,
        samples_per_second: per_second(log.samples),
        tokens_per_second: log.tokens.map(per_second),
    })
}

/// Keeps of a long accumulation the first micro-batches, the one that runs, and any that went higher than all before it.
fn thin(phases: &mut Vec<MeasuredPhase>) {
    let Some(latest) = phases.last().and_then(|p| p.micro_batch) else { return };
    if latest <= MICRO_BATCHES {
        return;
    }
    let mut highest = [(None, None); PHASE_ORDER.len()];
    phases.retain(|phase| {
        let Some(high) = highest.get_mut(phase.name as usize) else { return true };
        let higher = phase.peak_allocated > high.0 || phase.peak_reserved > high.1;
        *high = (high.0.max(phase.peak_allocated), high.1.max(phase.peak_reserved));
        phase.micro_batch.is_none_or(|n| n <= FIRST || n == latest || higher)
    });
}
