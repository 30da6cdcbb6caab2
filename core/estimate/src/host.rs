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
    /// Files that the processes of a machine keep on NVMe at most; absent where none are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nvme: Option<Nvme>,
    /// What optimizers keep in managed memory, where they do: in none of the figures above.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub managed: Option<Managed>,
}

/// What DeepSpeed swaps to NVMe: on a disk, in no figure of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Nvme {
    /// Of one process.
    pub of_process: Bytes,
    /// Of all processes of a machine: each card has one.
    pub per_node: Bytes,
    /// Of one process: buffers that it passes through, page-locked by DeepSpeed itself; they are part of what is page-locked.
    pub buffers: Bytes,
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
    /// What lies in files on NVMe when it ends.
    pub nvme_end: Bytes,
}

/// How much of a machine's memory may be taken, in hundredths: as of a card's.
const LOAD_LINE: u64 = 92;

impl Host {
    /// Of a run on several cards, of one whose optimizer is paged or whose activations are offloaded: the ledger that was kept of its
    /// machine's memory, and what there is. `room` is what the card has beside the run's peak.
    pub fn of(ledger: &Ledger, scenario: &Scenario, room: Bytes) -> Option<Self> {
        let parallel = &scenario.parallel;
        let managed = notes::paged(scenario, ledger);
        if parallel.gpus < 2 && managed.is_none() && ledger.host.is_none() {
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
            nvme: nvme(ledger, &phases, parallel.local()),
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
        if let Some(Nvme { per_node, buffers, .. }) = self.nvme {
            notes.push(format!(
                "{per_node} of files lie on each machine's NVMe (zero_stage_3 in nvme_path), which are read and written in every step; what is \
                 smaller than a request (1 MiB, or aio.block_size) stays in memory, or on the card while it is a gradient. They pass through \
                 {buffers} of buffers in each process, page-locked by DeepSpeed itself"
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

/// What lies on NVMe, where anything does: files are kept, so at the end of all.
fn nvme(ledger: &Ledger, phases: &[HostPhase], processes: u64) -> Option<Nvme> {
    let of_process = phases.last().map(|phase| phase.nvme_end).filter(|bytes| !bytes.is_zero())?;
    let storages = ledger.host.iter().flat_map(|host| host.events.iter().map(move |event| (event, host)));
    let locked = storages.filter(|(event, _)| !event.is_free() && event.stream() == HostMemory::Locked.stream());
    let buffers = locked.map(|(event, host)| Bytes::new(host.storages[event.id() as usize].bytes)).sum();
    Some(Nvme { of_process, per_node: Bytes::new(of_process.get().saturating_mul(processes)), buffers })
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
    let mut pinned = HostAllocator::with_reserve(reserve);
    let [mut pageable, mut locked, mut nvme] = [Bytes::ZERO; 3];
    let mut phases = Vec::with_capacity(host.phases.len());
    for (index, mark) in host.phases.iter().enumerate() {
        let mut phase = HostPhase {
            name: mark.name,
            step: mark.step,
            micro_batch: mark.micro_batch,
            pageable_peak: pageable,
            pageable_end: pageable,
            pinned_end: pinned.allocated() + locked,
            peak: pageable + pinned.allocated() + locked,
            pinned_at_peak: pinned.allocated() + locked,
            nvme_end: nvme,
        };
        for event in host.events.get(host.phase(index)).unwrap_or_default() {
            let size = Bytes::new(host.storages[event.id() as usize].bytes);
            let stream = event.stream();
            let place = match stream {
                stream if stream == HostMemory::PageLocked.stream() => None,
                stream if stream == HostMemory::Locked.stream() => Some(&mut locked),
                stream if stream == HostMemory::Nvme.stream() => Some(&mut nvme),
                _ => Some(&mut pageable),
            };
            match (event.is_free(), place) {
                (false, None) => pinned.alloc(size),
                (true, None) => pinned.free(size),
                (false, Some(place)) => *place += size,
                (true, Some(place)) => *place -= size,
            }
            phase.pageable_peak = phase.pageable_peak.max(pageable);
            let held = pinned.allocated() + locked;
            if pageable + held > phase.peak {
                (phase.peak, phase.pinned_at_peak) = (pageable + held, held);
            }
        }
        (phase.pageable_end, phase.pinned_end, phase.nvme_end) = (pageable, pinned.allocated() + locked, nvme);
        phases.push(phase);
    }
    phases
}
