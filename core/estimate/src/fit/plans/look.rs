//! One look at a point: whether it fits, what bounds it says of others, and what a step takes.

use plimsoll_ground::Bytes;
use plimsoll_ledger::{Ledger, PhaseName};
use plimsoll_scenario::{ParallelStrategy, Scenario};

use crate::work::StepWork;
use crate::{CardMemory, Category, Phase, execute, execute_for_memory, measure};

/// What a run says.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    /// Whether it keeps within the load line.
    pub fits: bool,
    /// Live bytes at the peak: the allocator reserves no less, and of as many micro-batches they do not fall as those grow.
    pub requested: Bytes,
    /// The same outside of the optimizer's step: what another kernel of the optimizer does not change.
    pub outside: Bytes,
    /// The same while the model is made, which nothing but the strategy changes.
    pub loading: Bytes,
    /// Weights, gradients and states where backward and step are over: there at every micro-batch, recomputed or not.
    pub states: Bytes,
}

impl Look {
    /// One micro-batch of one step of this point. A run of more takes no less: it has gradients there besides when its last one
    /// comes. Says bounds, and nothing of whether the point fits.
    pub fn begin(scenario: &Scenario, memory: &CardMemory) -> Option<Self> {
        Some(Self::of(&execute_for_memory(&beginning(scenario)).ok()?, memory, true))
    }

    /// A run of the point, and where it fits what a step takes: as many micro-batches as show what any number of them does.
    pub fn whole(scenario: &Scenario, memory: &CardMemory) -> Option<(Self, Option<StepWork>)> {
        let ledger = execute(&shown(scenario)).ok()?;
        let look = Self::of(&ledger, memory, false);
        let accumulation = scenario.training.accumulation;
        let work = look.fits.then(|| StepWork::of_longer(&ledger, &scenario.parallel, accumulation));
        Some((look, work))
    }

    /// Of this run alone: what its states are where they are asked for, and else whether it fits.
    pub(super) fn of(ledger: &Ledger, memory: &CardMemory, asks_states: bool) -> Self {
        let memory = &memory.running(ledger);
        let line = line(memory);
        let (phases, peak) = measure::requested(ledger);
        let size = |id: u32| Bytes::new(ledger.storages[id as usize].bytes);
        let highest = |keep: &dyn Fn(&Phase) -> bool| {
            phases.iter().filter(|phase| keep(phase)).map(|phase| phase.peak_requested).max().unwrap_or(Bytes::ZERO)
        };
        let fits = !asks_states && peak.bytes <= line && memory.fits(ledger, size);
        Self {
            fits,
            requested: peak.bytes,
            outside: highest(&|phase| phase.name != PhaseName::Optimizer),
            loading: highest(&|phase| phase.name == PhaseName::Load),
            states: if asks_states { states(ledger) } else { Bytes::ZERO },
        }
    }
}

/// The scenario with as many micro-batches as say what any number of them does: the first, the last, and one between; where
/// gradients are reduced after each of them, those between are like the last.
pub(super) fn shown(scenario: &Scenario) -> Scenario {
    let parallel = &scenario.parallel;
    let cut = matches!(parallel.strategy, ParallelStrategy::Fsdp1 | ParallelStrategy::Fsdp2);
    let most = if cut && parallel.fsdp.sync_every_micro_batch { 2 } else { 3 };
    let mut shown = scenario.clone();
    shown.training.accumulation = shown.training.accumulation.min(most);
    shown
}

/// One micro-batch of one step.
pub(super) fn beginning(scenario: &Scenario) -> Scenario {
    let mut beginning = scenario.clone();
    beginning.training.accumulation = 1;
    beginning.training.optimizer_steps = 1;
    beginning
}

/// What tensors may take of a card below its load line.
pub fn line(memory: &CardMemory) -> Bytes {
    memory.limits.load_line.saturating_sub(memory.context)
}

/// The larger of what backward and step leave behind, of the last step.
fn states(ledger: &Ledger) -> Bytes {
    let last = ledger.phases.iter().filter_map(|mark| mark.step).max();
    let at_end = |name: PhaseName| {
        let index = ledger.phases.iter().rposition(|mark| mark.name == name && mark.step == last)?;
        let live = measure::breakdown(ledger, ledger.phase(index).end);
        let kept = [Category::Weights, Category::Gradients, Category::OptimizerStates];
        Some(kept.iter().map(|category| live.get(*category)).sum())
    };
    let ends = [PhaseName::Backward, PhaseName::Optimizer].into_iter().filter_map(at_end);
    ends.max().unwrap_or(Bytes::ZERO)
}
