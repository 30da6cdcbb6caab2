//! What a stream takes from a card, and whether it may.

use plimsoll_allocator::{CachingAllocator, ConfiguredAllocator, Replay, Settings};
use plimsoll_catalog::Gpu;
use plimsoll_catalog::device;
use plimsoll_catalog::device::{DeviceLimits, Library};
use plimsoll_ground::Bytes;
use plimsoll_ledger::Ledger;
use plimsoll_scenario::{Allocator, Mode, Scenario};
use plimsoll_torch::Op;

use super::measure::{self, AllocatorPeaks};
use super::share::scaled;
use super::{Phase, Verdict};

/// A card as a run sees it.
#[derive(Clone, Debug)]
pub struct CardMemory {
    /// Capacity and load line.
    pub limits: DeviceLimits,
    /// What context and libraries take of it, as far as every run loads them: see [`CardMemory::running`].
    pub context: Bytes,
    /// What libraries take that only some runs load.
    pub libraries: [(Library, Bytes); 2],
    /// How PyTorch's allocator is set.
    pub settings: Settings,
}

/// The libraries that only some runs load.
const LIBRARIES: [Library; 2] = [Library::Cudnn, Library::EightBits];

/// Which of the libraries that only some runs load these two load alike: what pairs up by its events alone may still run other
/// kernels (attention over one token is not cuDNN's).
pub(crate) fn load_alike(a: &Ledger, b: &Ledger) -> bool {
    LIBRARIES.iter().all(|&library| loads(a, library) == loads(b, library))
}

/// Whether a run loads a library.
fn loads(ledger: &Ledger, library: Library) -> bool {
    let ran = |op: Op| ledger.ran.has(op.id());
    match library {
        Library::Cudnn => ran(Op::ScaledDotProductCudnnAttention) || ran(Op::CudnnConvolution),
        Library::EightBits => ran(Op::Int8LinearMatmul),
    }
}

/// What a run takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// What the allocator reports.
    pub peaks: AllocatorPeaks,
    /// Reserved, with the context.
    pub process: Bytes,
    /// Whether it fits.
    pub verdict: Verdict,
}

impl CardMemory {
    /// The card of a scenario.
    pub fn new(gpu: &Gpu, scenario: &Scenario) -> Self {
        let limits = device::limits(gpu, scenario.device.memory, scenario.device.load_line);
        let settings = settings(&scenario.allocator, limits.capacity);
        let context = device::context(gpu).bytes;
        let context = match scenario.training.mode {
            Mode::Train => context,
            Mode::Inference => context.saturating_sub(device::without_backward(gpu)),
        };
        let loads = |library| device::library(gpu, library, scenario.training.mode == Mode::Train);
        let libraries = LIBRARIES.map(|library| (library, loads(library)));
        Self { limits, context, libraries, settings }
    }

    /// The card as a run of these ops has it, with the libraries that they load.
    pub fn running(&self, ledger: &Ledger) -> Self {
        let counts = |&&(library, bytes): &&(Library, Bytes)| !bytes.is_zero() && loads(ledger, library);
        let more: Bytes = self.libraries.iter().filter(counts).map(|(_, bytes)| *bytes).sum();
        let libraries = self.libraries.map(|(library, _)| (library, Bytes::ZERO));
        Self { context: self.context + more, libraries, ..self.clone() }
    }

    /// The card whose driver lays every segment below the last.
    pub fn falling(&self) -> Self {
        Self { settings: Settings { falling: true, ..self.settings }, ..self.clone() }
    }

    /// What the allocator can have of the card.
    pub fn room(&self) -> Bytes {
        self.limits.capacity.saturating_sub(self.context)
    }

    /// Whether tensors that take `requested` at once cannot run, whatever the allocator does: it never reserves less
    /// than is alive.
    pub fn is_too_small_for(&self, requested: Bytes) -> bool {
        requested > self.room()
    }

    /// Replays a stream on this card; `requested` is its peak. Fills the phases' peaks and ends.
    ///
    /// Near its end the allocator gives cached segments back before it gives up. A run that does not fit is measured as
    /// it would be on a card without end, so that one sees how much is missing.
    pub fn outcome(
        &self,
        ledger: &Ledger,
        size: impl Fn(u32) -> Bytes,
        requested: Bytes,
        mut phases: Option<&mut [Phase]>,
    ) -> Outcome {
        let on_the_card =
            if self.is_too_small_for(requested) { None } else { self.within(ledger, &size, phases.as_deref_mut()) };
        on_the_card.unwrap_or_else(|| self.without_end(ledger, size, requested, phases))
    }

    /// What a stream takes of this card; `None` when it runs out of memory.
    pub fn within(
        &self,
        ledger: &Ledger,
        size: impl Fn(u32) -> Bytes,
        phases: Option<&mut [Phase]>,
    ) -> Option<Outcome> {
        let peaks = measure::replay(ledger, size, (Some(self.room()), &self.settings), phases).ok()?;
        let process = peaks.reserved + self.context;
        let verdict = if process <= self.limits.load_line { Verdict::Fits } else { Verdict::Tight };
        Some(Outcome { peaks, process, verdict })
    }

    /// What a stream that does not fit would take of a card without end.
    pub fn without_end(
        &self,
        ledger: &Ledger,
        size: impl Fn(u32) -> Bytes,
        requested: Bytes,
        phases: Option<&mut [Phase]>,
    ) -> Outcome {
        let nothing = AllocatorPeaks { allocated: requested, reserved: requested, retries: 0, apart: Vec::new() };
        let settings = Settings { allowed: None, card: None, ..self.settings };
        let peaks = measure::replay(ledger, size, (None, &settings), phases).unwrap_or(nothing);
        Outcome { process: peaks.reserved + self.context, peaks, verdict: Verdict::DoesNotFit }
    }

    /// Whether the verdict of [`CardMemory::outcome`] would be [`Verdict::Fits`]; stops where it cannot be any more.
    pub fn fits(&self, ledger: &Ledger, size: impl Fn(u32) -> Bytes) -> bool {
        let line = self.limits.load_line.saturating_sub(self.context);
        if self.limits.load_line < self.context {
            return false;
        }
        if self.settings.is_default() {
            let allocator = CachingAllocator::with_capacity(Some(self.room()), ledger.storages.len());
            return Self::stays_below(line, allocator, ledger, size);
        }
        Self::stays_below(line, ConfiguredAllocator::new(self.settings, Some(self.room())), ledger, size)
    }

    fn stays_below(line: Bytes, mut allocator: impl Replay, ledger: &Ledger, size: impl Fn(u32) -> Bytes) -> bool {
        for (emptied, range) in ledger.between_emptyings(0..ledger.events.len()) {
            if emptied {
                allocator.empty_cache();
            }
            for event in &ledger.events[range] {
                if allocator.apply(*event, &size).is_err() || allocator.reserved() > line {
                    return false;
                }
            }
        }
        true
    }
}

/// `PYTORCH_CUDA_ALLOC_CONF` as the allocator has it, on a card of `card` bytes.
fn settings(said: &Allocator, card: Bytes) -> Settings {
    let share = |of: f64| (of * Settings::WHOLE as f64).round() as u64;
    let part = |share: u64| scaled(card, share, Settings::WHOLE);
    let allowed = Some(share(said.per_process_memory_fraction)).filter(|share| *share > 0);
    Settings {
        expandable_segments: said.expandable_segments,
        max_split_size: (said.max_split_size_mb > 0).then(|| Bytes::from_mib(said.max_split_size_mb)),
        roundup_power2_divisions: said.roundup_power2_divisions,
        garbage_collection_threshold: share(said.garbage_collection_threshold),
        allowed: allowed.map(part),
        falling: false,
        card: Some(card),
    }
}
