//! A scenario that has been run, and everything one may ask about any moment of it.

use crate::allocator::OutOfMemory;
use crate::catalog::{Gpu, Vendor};
use crate::tensor::Ledger;
use crate::{Bytes, Result, Scenario, device, ops};

use super::explain;
use super::measure::{self, AllocatorPeaks};
use super::trace::{Trace, card};
use super::{Estimate, Holding, Peak, Timeline, Verdict};

/// A scenario that has been run: its estimate, and everything one may ask about any moment of it.
#[derive(Debug)]
pub struct Run {
    estimate: Estimate,
    trace: Trace,
    peak_event: usize,
}

/// What the run takes from the card, and whether it may.
struct Outcome {
    peaks: AllocatorPeaks,
    process: Bytes,
    verdict: Verdict,
}

impl Run {
    /// Executes two optimizer steps. `estimate().max_batch` stays `None`: see [`super::max_batch`].
    ///
    /// # Errors
    /// A key the engine does not estimate yet, an unsupported `model_type`, sizes that contradict one another.
    pub fn new(scenario: &Scenario) -> Result<Self> {
        scenario.estimated()?;
        let gpu = card(scenario)?;
        let trace = Trace::new(scenario)?;
        let limits = device::limits(gpu, scenario.device.memory, scenario.device.load_line);
        let context = device::context(gpu).bytes;
        let ledger = &trace.ledger;
        let (mut phases, peak) = measure::requested(ledger);
        let size = |id: u32| Bytes::new(ledger.storages[id as usize].bytes);

        // On the card itself first: near its end the allocator gives cached segments back before it gives up. A run
        // that does not fit is shown as it would be on a card without end, so that one sees how much is missing.
        let room = limits.capacity.saturating_sub(context);
        let outcome = match measure::replay(ledger, size, Some(room), Some(&mut phases)) {
            Ok(peaks) => {
                let process = peaks.reserved + context;
                let verdict = if process <= limits.load_line { Verdict::Fits } else { Verdict::Tight };
                Outcome { peaks, process, verdict }
            }
            Err(OutOfMemory { .. }) => {
                let peaks = measure::replay(ledger, size, None, Some(&mut phases)).unwrap_or(AllocatorPeaks {
                    allocated: peak.bytes,
                    reserved: peak.bytes,
                    retries: 0,
                });
                Outcome { peaks, process: peaks.reserved + context, verdict: Verdict::DoesNotFit }
            }
        };

        let mut warnings = scenario.software.other_rules();
        warnings.extend(scenario.model.source.stand_in().map(|near| {
            format!(
                "model_type {:?} is not one of those that are modelled; it is estimated as the nearest, {}, from the sizes \
                 in its config",
                scenario.model.source.model_type().unwrap_or_default(),
                near.name
            )
        }));
        if outcome.peaks.retries > 0 && outcome.verdict != Verdict::DoesNotFit {
            warnings.push(format!(
                "the allocator has to give cached memory back to the driver {} time(s) in two steps to make room; \
                 each time the GPU waits",
                outcome.peaks.retries
            ));
        }
        if scenario.training.compile {
            warnings.push(
                "torch.compile is not modelled: this is the estimate of the same run without it. Compiled, kernels are \
                 fused and other activations are kept or recomputed, so the run may take less or more"
                    .to_owned(),
            );
        }
        if scenario.device.workspaces {
            warnings.extend(uncounted(gpu, ledger));
        }
        let maker = ledger.events.get(peak.event).map(|e| &ledger.storages[e.id() as usize]);
        let phase = phases_at(ledger, peak.event);
        let estimate = Estimate {
            schema: 1,
            scenario: scenario.to_value(),
            parameters: trace.parameters,
            peak: Peak {
                allocated: outcome.peaks.allocated,
                requested: peak.bytes,
                reserved: outcome.peaks.reserved,
                process: outcome.process,
                phase: phases[phase].name,
                step: phases[phase].step.unwrap_or(0),
                op: maker.map(explain::op_name).unwrap_or_default(),
                module: maker.map(|s| trace.modules[s.module.index()].clone()).unwrap_or_default(),
            },
            at_peak: measure::breakdown(ledger, peak.event + 1),
            phases,
            headroom: limits.load_line.get() as i64 - outcome.process.get() as i64,
            device: limits,
            verdict: outcome.verdict,
            max_batch: None,
            warnings,
        };
        Ok(Self { estimate, trace, peak_event: peak.event })
    }

    /// The estimate, without `max_batch`.
    pub fn estimate(&self) -> &Estimate {
        &self.estimate
    }

    /// Takes the estimate out.
    pub fn into_estimate(self) -> Estimate {
        self.estimate
    }

    /// The event stream itself, for those who compare it with PyTorch's.
    pub fn trace(&self) -> &Trace {
        &self.trace
    }

    /// The position in the stream right after the allocation that made the peak.
    pub fn peak_event(&self) -> u32 {
        self.peak_event as u32 + 1
    }

    /// Live memory over both steps in at most `max_points` points (the peak of every phase is always among them).
    pub fn timeline(&self, max_points: usize) -> Timeline {
        explain::timeline(&self.trace, self.peak_event, max_points)
    }

    /// What is alive after `event` events of the stream, largest group first. The index of a
    /// [`super::TimelinePoint::event`]; layers are grouped (`model.layers.*.mlp`).
    pub fn alive_at(&self, event: u32) -> Vec<Holding> {
        explain::alive_at(&self.trace, event as usize)
    }
}

/// What kernels take for themselves and nobody can know, a sentence each.
fn uncounted(gpu: &Gpu, ledger: &Ledger) -> Vec<String> {
    const CONVOLUTION: &str = "what cuDNN takes while a convolution runs is not counted: it depends on the algorithm it \
         picks, and on torch.backends.cudnn.benchmark";
    const CUDNN: &str = "of what cuDNN's attention takes in its backward only what its front end asks for is counted, not \
         what its own plan may ask for on top";
    const AMD: &str = "what AMD's attention kernels take in their backward is not counted: it is not known";
    let ran = |name: &str| ledger.storages.iter().any(|s| s.op == name);
    let mut sentences = Vec::new();
    if ran(ops::CONVOLUTION) {
        sentences.push(CONVOLUTION.to_owned());
    }
    if ran(ops::CUDNN_ATTENTION) {
        sentences.push(CUDNN.to_owned());
    }
    if gpu.vendor == Vendor::Amd && (ran(ops::FLASH_ATTENTION) || ran(ops::EFFICIENT_ATTENTION)) {
        sentences.push(AMD.to_owned());
    }
    sentences
}

/// Index of the phase that event belongs to.
fn phases_at(ledger: &Ledger, event: usize) -> usize {
    ledger.phases.partition_point(|mark| mark.at <= event).saturating_sub(1)
}
