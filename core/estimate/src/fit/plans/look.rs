//! One look at a point: whether it fits, and what bounds it says of others.

use plimsoll_ground::Bytes;
use plimsoll_ledger::{Ledger, PhaseName};
use plimsoll_scenario::Scenario;

use crate::{CardMemory, Category, Phase, execute_for_memory, measure};

/// What a run without launches says.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    /// Whether it keeps within the load line.
    pub fits: bool,
    /// Live bytes at the peak: the allocator reserves no less, and of as many micro-batches they do not fall as those grow.
    pub requested: Bytes,
    /// The same up to the end of the first forward, which does not know how many micro-batches follow.
    pub first: Bytes,
    /// The same outside of the optimizer's step: what another kernel of the optimizer does not change.
    pub outside: Bytes,
    /// The same while the model is made, which nothing but the strategy changes.
    pub loading: Bytes,
    /// Weights, gradients and states where backward and step are over: there at every micro-batch, recomputed or not.
    pub states: Bytes,
    /// The process' peak on a card without end; zero where it fits.
    pub process: Bytes,
}

impl Look {
    /// Of a run, on this card; `None` where the engine does not finish it.
    pub fn at(scenario: &Scenario, memory: &CardMemory) -> Option<Self> {
        let ledger = execute_for_memory(scenario).ok()?;
        let line = line(memory);
        let (phases, peak) = measure::requested(&ledger);
        let size = |id: u32| Bytes::new(ledger.storages[id as usize].bytes);
        let highest = |keep: &dyn Fn(&Phase) -> bool| {
            phases.iter().filter(|phase| keep(phase)).map(|phase| phase.peak_requested).max().unwrap_or(Bytes::ZERO)
        };
        let fits = peak.bytes <= line && memory.fits(&ledger, size);
        Some(Self {
            fits,
            requested: peak.bytes,
            first: highest(&|phase| {
                let early = matches!(phase.name, PhaseName::Load | PhaseName::Input | PhaseName::Forward);
                early && phase.step.is_none_or(|step| step == 1) && phase.micro_batch.is_none_or(|number| number == 1)
            }),
            outside: highest(&|phase| phase.name != PhaseName::Optimizer),
            loading: highest(&|phase| phase.name == PhaseName::Load),
            states: if fits { Bytes::ZERO } else { states(&ledger) },
            process: if fits { Bytes::ZERO } else { memory.without_end(&ledger, size, peak.bytes, None).process },
        })
    }
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
