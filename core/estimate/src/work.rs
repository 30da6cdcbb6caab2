//! What a step computes and moves, added up over its kernels.

use std::collections::BTreeMap;

use plimsoll_ground::Bytes;
use plimsoll_ledger::{DType, Ledger, PhaseName};
use plimsoll_scenario::Parallel;
use serde::Serialize;

use super::traffic::{Traffic, Transfers};

/// The work of one optimizer step in its steady state, all its micro-batches together; of inference, that of its forward.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct StepWork {
    /// Forward and loss.
    pub forward: PhaseWork,
    /// Backward, with what checkpoints compute once more. Absent from the JSON in inference.
    #[serde(skip_serializing_if = "PhaseWork::is_none")]
    pub backward: PhaseWork,
    /// Unscaling, clipping, the optimizer's step and `zero_grad`. Absent from the JSON in inference.
    #[serde(skip_serializing_if = "PhaseWork::is_none")]
    pub optimizer: PhaseWork,
    /// What leaves the card. Absent from the JSON on one card.
    #[serde(skip_serializing_if = "Traffic::is_none")]
    pub traffic: Traffic,
}

/// What the kernels of a phase do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PhaseWork {
    /// Floating-point operations of matrix products, convolutions and attention by the type of their operands, a
    /// multiplication and an addition counting as two, as `torch.utils.flop_counter` counts them.
    pub flops: BTreeMap<&'static str, u64>,
    /// Bytes read: every kernel's operands, once each. What a collective or a copy to the machine's memory moves is not among
    /// them, but in [`StepWork::traffic`].
    pub read: Bytes,
    /// Bytes written: every kernel's results, once each.
    pub written: Bytes,
}

impl PhaseWork {
    /// Whether nothing ran.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// Operations of all types.
    pub fn total_flops(&self) -> u64 {
        self.flops.values().fold(0, |sum, flops| sum.saturating_add(*flops))
    }
}

impl StepWork {
    /// Whether nothing was counted: a generation's tokens are not all executed.
    pub fn is_none(&self) -> bool {
        self.forward.is_none()
    }

    /// Of the last step that a ledger has, on cards that stand as `parallel` says.
    pub fn of(ledger: &Ledger, parallel: &Parallel) -> Self {
        let times = |index| ledger.phase_stands_for(index);
        Self::counted(ledger, parallel, times)
    }

    /// Of a step of `accumulation` micro-batches by a ledger that has the first, one of those between, and the last; where there are
    /// two, the second stands for those between as well.
    pub(crate) fn of_longer(ledger: &Ledger, parallel: &Parallel, accumulation: u64) -> Self {
        let last = ledger.phases.iter().filter_map(|mark| mark.micro_batch).max().unwrap_or(1);
        let between = |index: usize| ledger.phases.get(index).and_then(|mark| mark.micro_batch) == Some(2);
        let more = accumulation.saturating_sub(last);
        Self::counted(ledger, parallel, |index| if between(index) { 1 + more } else { 1 })
    }

    fn counted(ledger: &Ledger, parallel: &Parallel, times: impl Fn(usize) -> u64) -> Self {
        let mut work = Self::default();
        let transfers = Transfers::of(ledger, parallel);
        let last = ledger.phases.iter().filter_map(|mark| mark.step).max();
        for (index, mark) in ledger.phases.iter().enumerate().filter(|(_, mark)| mark.step == last) {
            let phase = match mark.name {
                PhaseName::Forward => &mut work.forward,
                PhaseName::Backward => &mut work.backward,
                PhaseName::Clip | PhaseName::Optimizer | PhaseName::ZeroGrad => &mut work.optimizer,
                PhaseName::Load | PhaseName::Input | PhaseName::Prefill | PhaseName::Decode => continue,
            };
            work.traffic.add(&phase.add(ledger, index, times(index), &transfers), times(index));
        }
        work
    }
}

impl PhaseWork {
    /// Adds the kernels of the ledger's `index`-th phase, which runs so many times; what leaves the card is answered, of once.
    fn add(&mut self, ledger: &Ledger, index: usize, times: u64, transfers: &Transfers) -> Traffic {
        let mut flops = [0u64; DType::ALL.len()];
        let (mut read, mut written) = (0u64, 0u64);
        let mut traffic = Traffic::default();
        for launch in ledger.phase_launches(index) {
            if let Some(sent) = transfers.get(launch.work) {
                traffic.add(sent, 1);
                continue;
            }
            let Some(work) = ledger.work(launch) else { continue };
            let sum = &mut flops[work.dtype as usize];
            *sum = sum.saturating_add(work.flops);
            read = read.saturating_add(work.read);
            written = written.saturating_add(work.written);
        }
        for (dtype, flops) in DType::ALL.iter().zip(flops).filter(|(_, flops)| *flops > 0) {
            let sum = self.flops.entry(short(*dtype)).or_default();
            *sum = sum.saturating_add(flops.saturating_mul(times));
        }
        self.read = Bytes::new(self.read.get().saturating_add(read.saturating_mul(times)));
        self.written = Bytes::new(self.written.get().saturating_add(written.saturating_mul(times)));
        traffic
    }
}

/// A dtype as scenarios name precisions.
const fn short(dtype: DType) -> &'static str {
    match dtype {
        DType::Float16 => "fp16",
        DType::BFloat16 => "bf16",
        DType::Float32 => "fp32",
        DType::Float64 => "fp64",
        other => other.name(),
    }
}
