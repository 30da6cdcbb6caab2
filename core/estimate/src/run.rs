//! A scenario that has been run, and everything one may ask about any moment of it.

use std::rc::Rc;

use plimsoll_ground::{Bytes, Result};
use plimsoll_ledger::Ledger;
use plimsoll_run::{Libraries, card, execute_by, execute_replica};
use plimsoll_scenario::Scenario;
use plimsoll_torch::ops::Answers;

use super::attribution::{self, Beyond, Explanation};
use super::compiled::Compiled;
use super::convolutions::{AskedCudnn, Convolutions};
use super::explain;
use super::falling::Falling;
use super::followed::Followed;
use super::host::{self, Host, HostPhase};
use super::lag::{Lag, Undelayed};
use super::measure;
use super::notes;
use super::outcome::CardMemory;
use super::ranks;
use super::work::StepWork;
use super::{Estimate, Holding, Timeline, Verdict};

/// A scenario that has been run: its estimate, and everything one may ask about any moment of it.
#[derive(Debug)]
pub struct Run {
    estimate: Estimate,
    ledger: Ledger,
    peak_event: usize,
    /// What a card of the second role does, where there is one.
    replica: Option<Followed>,
    memory: CardMemory,
    /// Of the machine's memory, what is page-locked ahead.
    reserve: Bytes,
}

impl Run {
    /// Executes two optimizer steps. `estimate().max_batch` stays `None`: see [`super::max_batch`].
    ///
    /// # Errors
    /// A key the engine does not estimate yet, an unsupported `model_type`, sizes that contradict one another.
    pub fn new(scenario: &Scenario) -> Result<Self> {
        Self::by(scenario, &Libraries::Vendors)
    }

    /// As [`Run::new`], on a hollow card: what cuDNN takes for a convolution is nothing there.
    ///
    /// # Errors
    /// As [`Run::new`].
    pub fn on_hollow_card(scenario: &Scenario) -> Result<Self> {
        Self::by(scenario, &Libraries::Hollow)
    }

    /// As [`Run::new`], with what cuDNN answered of the scenario's convolutions; what it was not asked yet is open in `answers` afterwards.
    ///
    /// # Errors
    /// As [`Run::new`].
    pub fn asking(scenario: &Scenario, answers: &Rc<Answers>) -> Result<Self> {
        Self::by(scenario, &Libraries::Asked(Rc::clone(answers)))
    }

    fn by(scenario: &Scenario, libraries: &Libraries) -> Result<Self> {
        let gpu = card(scenario)?;
        let ledger = execute_by(scenario, libraries)?;
        let memory = CardMemory::new(gpu, scenario).running(&ledger);
        let first = Followed::of(ledger, &memory);
        let replica = execute_replica(scenario, libraries)?.map(|ledger| Followed::of(ledger, &memory));
        let roles = ranks::roles(scenario, &first, replica.as_ref());
        let Followed { ledger, peak_event, phases, peak, at_peak, verdict, retries, apart } = first;
        let limits = memory.limits.clone();
        let undelayed = Undelayed { phases: &phases, retries, apart: &apart };
        let lag = Lag::of(&ledger, scenario, &memory, (peak.reserved, verdict), undelayed);

        let cudnn = libraries.answers().map(AskedCudnn::of);
        let figures = [peak.reserved, peak.process, limits.load_line];
        let planned = cudnn.as_ref().filter(|cudnn| cudnn.was_asked());
        let convolutions = if planned.is_some() { None } else { Convolutions::of(gpu, scenario, &ledger, figures) };
        let compiled = Compiled::of(gpu, scenario, &ledger, &phases, &peak);
        let mut warnings = notes::lacking(gpu, scenario);
        warnings.extend(scenario.software.other_rules());
        warnings.extend(scenario.model.source.stand_in().map(|near| {
            format!(
                "model_type {:?} is not one of those that are modelled; it is estimated as the nearest, {}, from the sizes \
                 in its config",
                scenario.model.source.model_type().unwrap_or_default(),
                near.name
            )
        }));
        if retries > 0 && verdict != Verdict::DoesNotFit {
            warnings.push(format!(
                "the allocator has to give cached memory back to the driver {} time(s) in two steps to make room; \
                 each time the GPU waits",
                retries
            ));
        }
        warnings.extend(notes::compiled(scenario, compiled.as_ref()));
        warnings.extend(notes::compiles_itself(scenario));
        warnings.extend(notes::cached_whole(scenario));
        warnings.extend(notes::gathers_all(scenario));
        warnings.extend(notes::masked(scenario));
        if scenario.device.workspaces {
            let said = planned.map(AskedCudnn::note).or_else(|| convolutions.as_ref().map(Convolutions::note));
            warnings.extend(notes::uncounted(gpu, scenario, &ledger, said));
            if planned.is_none() {
                warnings.extend(cudnn.as_ref().map(AskedCudnn::note));
            }
        }
        warnings.extend(notes::assumed(gpu, scenario));
        warnings.extend(notes::quantized(scenario));
        warnings.extend(notes::listed_experts(scenario));
        warnings.extend(notes::without_cache(scenario));
        warnings.extend(notes::without_images(scenario));
        let headroom = limits.load_line.get() as i64 - peak.process.get() as i64;
        let communicators = ranks::communicators(gpu, scenario);
        warnings.extend(ranks::notes(scenario, &communicators, headroom));
        warnings.extend(lag.iter().map(Lag::note));
        let host = Host::of(&ledger, scenario, limits.capacity.saturating_sub(peak.process));
        warnings.extend(host.iter().flat_map(Host::notes));
        let estimate = Estimate {
            schema: 1,
            scenario: scenario.to_value(),
            parameters: ledger.parameters,
            roles,
            communicators,
            host,
            peak,
            at_peak,
            phases,
            headroom,
            device: limits,
            verdict,
            max_batch: None,
            work: StepWork::of(&ledger, &scenario.parallel),
            lag,
            falling: None,
            convolutions,
            compiled,
            cudnn,
            warnings,
        };
        Ok(Self { estimate, ledger, peak_event, replica, memory, reserve: host::reserve(scenario) })
    }

    /// With [`Estimate::falling`], and a warning where it makes a difference. It costs another replay of the stream.
    #[must_use]
    pub fn with_falling(mut self) -> Self {
        let Estimate { peak, verdict, .. } = &self.estimate;
        let of = (peak, *verdict);
        let falling = Falling::of(&self.ledger, &self.memory, of);
        let note = falling.as_ref().and_then(|falling| falling.note(of));
        self.estimate.falling = falling;
        self.estimate.warnings.extend(note);
        self
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
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// The machine's memory phase by phase, as this rank's process has it; nothing where none of it is followed.
    pub fn host_phases(&self) -> Vec<HostPhase> {
        host::phases(&self.ledger, self.reserve)
    }

    /// The position in the stream right after the allocation that made the peak.
    pub fn peak_event(&self) -> u32 {
        self.peak_event as u32 + 1
    }

    /// Live memory over both steps in at most `max_points` points (the peak of every phase is always among them).
    pub fn timeline(&self, max_points: usize) -> Timeline {
        explain::timeline(&self.ledger, self.peak_event, max_points)
    }

    /// As [`Run::timeline`], of the role of this place among [`Estimate::roles`].
    pub fn timeline_of(&self, role: usize, max_points: usize) -> Option<Timeline> {
        match (role, &self.replica) {
            (0, _) => Some(self.timeline(max_points)),
            (1, Some(replica)) => Some(explain::timeline(&replica.ledger, replica.peak_event, max_points)),
            _ => None,
        }
    }

    /// As [`Run::ledger`], of that role.
    pub fn ledger_of(&self, role: usize) -> Option<&Ledger> {
        match (role, &self.replica) {
            (0, _) => Some(&self.ledger),
            (1, Some(replica)) => Some(&replica.ledger),
            _ => None,
        }
    }

    /// Live memory while events `from` to `to` of the stream happen, in at most `max_points` points; where there are no
    /// more events than that, after each of them. Its peak is the highest of it.
    pub fn stretch(&self, from: u32, to: u32, max_points: usize) -> Timeline {
        let last = self.ledger.events.len();
        let to = (to as usize).min(last);
        explain::stretch(&self.ledger, (from as usize).min(to)..to, max_points)
    }

    /// Every byte at the peak of live memory, layer by layer, and what the process takes beyond.
    pub fn explain(&self) -> Explanation {
        let events = self.peak_event + 1;
        let ledger = &self.ledger;
        let peak = &self.estimate.peak;
        let limit = (self.estimate.verdict != Verdict::DoesNotFit).then(|| self.memory.room());
        let size = |id: u32| Bytes::new(ledger.storages[id as usize].bytes);
        let (allocated, reserved) = measure::at(ledger, size, (limit, &self.memory.settings), events)
            .unwrap_or((peak.allocated, peak.reserved));
        Explanation {
            requested: peak.requested,
            layers: attribution::layers(&self.ledger, events),
            beyond: Beyond {
                rounding: attribution::rounding(&self.ledger, events),
                unsplit: allocated.saturating_sub(peak.requested),
                cached: reserved.saturating_sub(allocated),
                reserved_elsewhere: peak.reserved.saturating_sub(reserved),
                context: self.memory.context,
                allocated_elsewhere: peak.allocated.saturating_sub(allocated),
            },
        }
    }

    /// What is alive after `event` events of the stream, largest group first. The index of a
    /// [`super::TimelinePoint::event`]; layers are grouped (`model.layers.*.mlp`).
    pub fn alive_at(&self, event: u32) -> Vec<Holding> {
        explain::alive_at(&self.ledger, event as usize)
    }
}
