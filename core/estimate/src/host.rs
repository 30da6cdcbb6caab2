//! What a run takes of the machine's own memory: the ledger that the engine kept of it, read.

use plimsoll_allocator::HostAllocator;
use plimsoll_ground::Bytes;
use plimsoll_ledger::{Ledger, PhaseName};
use plimsoll_scenario::{BaseDtype, ParallelStrategy, Quantization, Scenario};
use plimsoll_torch::tensor::HostMemory;
use serde::Serialize;

use super::managed::Managed;
use super::{Verdict, notes};

/// What the processes of one machine take of its memory, beside what Python and its libraries take for themselves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Host {
    /// Page-locked by one process at its peak, in whole blocks: powers of two, which PyTorch keeps.
    pub pinned: Bytes,
    /// What else one process has there at its peak.
    pub pageable: Bytes,
    /// The most that one process has at a time.
    pub peak: Bytes,
    /// The same of all processes of a machine together: each card has one.
    pub per_node: Bytes,
    /// When that is.
    pub phase: PhaseName,
    /// In which step; 0 while loading.
    pub step: u32,
    /// The most of one process once the model is loaded.
    pub training: Bytes,
    /// What all processes of a machine take while a checkpoint is loaded, by the way to load it; the scenario's own first.
    pub loading: Vec<Loading>,
    /// The machine's memory, where the scenario says it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity: Option<Bytes>,
    /// Whether it fits; where the scenario says what there is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
    /// What optimizers keep in managed memory, where they do: in none of the figures above.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub managed: Option<Managed>,
}

/// One way to load a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Loading {
    /// How.
    pub way: String,
    /// What all processes of a machine hold of it at most.
    pub per_node: Bytes,
}

/// The machine's memory over a run, phase by phase.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HostPhase {
    /// Which part of the loop.
    pub name: PhaseName,
    /// Optimizer step; `None` for load.
    pub step: Option<u32>,
    /// Micro-batch within the step.
    pub micro_batch: Option<u64>,
    /// The most that is pageable in it.
    pub pageable_peak: Bytes,
    /// What is pageable when it ends.
    pub pageable_end: Bytes,
    /// What is page-locked when it ends, in whole blocks.
    pub pinned_end: Bytes,
    /// The most of both together.
    pub peak: Bytes,
    /// What of it is page-locked then.
    pub pinned_at_peak: Bytes,
}

/// How much of a machine's memory may be taken, in hundredths: as of a card's.
const LOAD_LINE: u64 = 92;

impl Host {
    /// Of a run on several cards, or of one whose optimizer is paged: the ledger that was kept of its machine's memory, and what there
    /// is. `room` is what the card has beside the run's peak.
    pub fn of(ledger: &Ledger, scenario: &Scenario, room: Bytes) -> Option<Self> {
        let parallel = &scenario.parallel;
        let managed = notes::paged(scenario, ledger);
        if parallel.gpus < 2 && managed.is_none() {
            return None;
        }
        let phases = phases(ledger, reserve(scenario));
        // The first of equals.
        let peak = phases.iter().rev().max_by_key(|phase| phase.peak);
        let later = phases.iter().filter(|phase| phase.name != PhaseName::Load).max_by_key(|phase| phase.peak);
        let all = |bytes: Bytes| Bytes::new(bytes.get().saturating_mul(parallel.local()));
        let of = |phase: Option<&HostPhase>| phase.map_or(Bytes::ZERO, |phase| phase.peak);
        let pinned = peak.map_or(Bytes::ZERO, |phase| phase.pinned_at_peak);
        let per_node = all(of(peak));
        let capacity = scenario.device.host_memory;
        let loading = phases.iter().find(|phase| phase.name == PhaseName::Load).map_or(Bytes::ZERO, |phase| phase.peak);
        Some(Self {
            pinned,
            pageable: of(peak).saturating_sub(pinned),
            peak: of(peak),
            per_node,
            phase: peak.map_or(PhaseName::Load, |phase| phase.name),
            step: peak.and_then(|phase| phase.step).unwrap_or(0),
            training: of(later),
            loading: if parallel.gpus < 2 { Vec::new() } else { ways(ledger, scenario, all(loading)) },
            capacity,
            verdict: capacity.map(|capacity| verdict(per_node, capacity)),
            managed: managed.map(|process| Managed::of(process, parallel.local(), room, (per_node, capacity))),
        })
    }

    /// What it should not be read without.
    pub(crate) fn notes(&self) -> Vec<String> {
        let mut notes: Vec<String> = self.managed.iter().flat_map(Managed::notes).collect();
        if self.peak.is_zero() {
            return notes;
        }
        if !self.pinned.is_zero() {
            notes.push(format!(
                "{} of the machine's memory are page-locked by each process: PyTorch rounds every such block up to a power of two and gives \
                 none back (CachingHostAllocator), and page-locked memory cannot be swapped out",
                self.pinned
            ));
        }
        match (self.verdict, self.capacity) {
            (Some(Verdict::DoesNotFit), Some(capacity)) => notes.push(format!(
                "the machine runs out of its own memory: {} of {capacity} are asked for, beside what Python and its libraries take in every \
                 process; the system then ends a process without a word of PyTorch's (exit code -9)",
                self.per_node
            )),
            (Some(Verdict::Tight), Some(capacity)) => notes.push(format!(
                "the machine's own memory is nearly full: {} of {capacity}, beside what Python and its libraries take in every process",
                self.per_node
            )),
            _ => {}
        }
        notes
    }
}

/// Bytes of a number.
const fn size(dtype: BaseDtype) -> u64 {
    match dtype {
        BaseDtype::Float16 | BaseDtype::Bfloat16 => 2,
        BaseDtype::Precision | BaseDtype::Float32 => 4,
    }
}

/// Whether so much of a machine's memory may be taken.
pub(super) fn verdict(taken: Bytes, capacity: Bytes) -> Verdict {
    let line = u128::from(capacity.get()) * u128::from(LOAD_LINE) / 100;
    match taken {
        taken if u128::from(taken.get()) <= line => Verdict::Fits,
        taken if taken <= capacity => Verdict::Tight,
        _ => Verdict::DoesNotFit,
    }
}

/// What loading takes of a machine, by the way: as the scenario has it, then the others that these libraries have. Of a quantized base
/// every weight is quantized as it comes, and the whole is never there.
fn ways(ledger: &Ledger, scenario: &Scenario, own: Bytes) -> Vec<Loading> {
    let Scenario { parallel, training, .. } = scenario;
    let way = |way: &str, per_node: Bytes| Loading { way: way.to_owned(), per_node };
    let mut ways = vec![way("as the scenario has it", own)];
    if training.quantization != Quantization::None {
        return ways;
    }
    let numel = u128::from(ledger.parameters.total);
    let bytes = numel * u128::from(size(training.loaded())) * u128::from(parallel.local());
    let every = Bytes::new(u64::try_from(bytes).unwrap_or(u64::MAX));
    // Measured with transformers 5.17 on a checkpoint of 485 MiB: what is not cast stays mapped from the file, 2 MiB of a process's own;
    // what is cast is there once, in its new dtype.
    ways.push(way(
        "from_pretrained in every process, in the file's dtype (mapped: the file's pages are shared)",
        Bytes::ZERO,
    ));
    ways.push(way("from_pretrained in every process, cast to another dtype", every));
    if matches!(parallel.strategy, ParallelStrategy::Fsdp1 | ParallelStrategy::Fsdp2) {
        let one = Bytes::new(every.get() / parallel.local().max(1));
        ways.push(way("the same in one process of a machine (accelerate's fsdp_cpu_ram_efficient_loading)", one));
    }
    ways
}

/// What is page-locked ahead.
pub const fn reserve(scenario: &Scenario) -> Bytes {
    Bytes::from_mib(scenario.allocator.pinned_reserve_segment_size_mb)
}

/// Reads the ledger of the machine's memory, `reserve` of which is locked ahead; nothing, where none was kept.
pub fn phases(ledger: &Ledger, reserve: Bytes) -> Vec<HostPhase> {
    let Some(host) = &ledger.host else { return Vec::new() };
    let locked = HostMemory::PageLocked.stream();
    let (mut pinned, mut pageable) = (HostAllocator::with_reserve(reserve), Bytes::ZERO);
    let mut phases = Vec::with_capacity(host.phases.len());
    for (index, mark) in host.phases.iter().enumerate() {
        let mut phase = HostPhase {
            name: mark.name,
            step: mark.step,
            micro_batch: mark.micro_batch,
            pageable_peak: pageable,
            pageable_end: pageable,
            pinned_end: pinned.allocated(),
            peak: pageable + pinned.allocated(),
            pinned_at_peak: pinned.allocated(),
        };
        for event in host.events.get(host.phase(index)).unwrap_or_default() {
            let size = Bytes::new(host.storages[event.id() as usize].bytes);
            match (event.is_free(), event.stream() == locked) {
                (false, true) => pinned.alloc(size),
                (true, true) => pinned.free(size),
                (false, false) => pageable += size,
                (true, false) => pageable -= size,
            }
            phase.pageable_peak = phase.pageable_peak.max(pageable);
            if pageable + pinned.allocated() > phase.peak {
                (phase.peak, phase.pinned_at_peak) = (pageable + pinned.allocated(), pinned.allocated());
            }
        }
        (phase.pageable_end, phase.pinned_end) = (pageable, pinned.allocated());
        phases.push(phase);
    }
    phases
}
