//! What the page shows of one run: plain data, so that it can come from the page itself or from its worker.

use plimsoll_core::Bytes;
use plimsoll_core::estimate::{Estimate, Holding, PeakBreakdown, Timeline, TimelinePoint, Verdict};
use plimsoll_core::summary::{self, Hull, Kind, Part};
use serde::{Deserialize, Serialize};

use crate::engine::HOLDINGS;

/// One run, read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reading {
    /// How it sits.
    pub standing: Standing,
    /// Load line minus process peak: to spare, or over where negative.
    pub headroom: i64,
    /// What `nvidia-smi` would show at the peak.
    pub process: Bytes,
    /// `torch.cuda.max_memory_reserved`.
    pub reserved: Bytes,
    /// `torch.cuda.max_memory_allocated`.
    pub allocated: Bytes,
    /// What one process can have on the card.
    pub capacity: Bytes,
    /// How deep a run should sit at most.
    pub load_line: Bytes,
    /// Numbers in the model.
    pub parameters: u64,
    /// Those that are trained.
    pub trainable: u64,
    /// What the peak is made of, in the order of [`Kind::ALL`]; sums to `process`.
    pub parts: Vec<Part>,
    /// Every phase of both steps.
    pub phases: Vec<PhaseRow>,
    /// Live memory over both steps, in order; each point holds until the next.
    pub points: Vec<Point>,
    /// Index into `points` of the peak.
    pub peak: usize,
    /// What is alive there, largest first.
    pub holdings: Vec<Held>,
    /// Why the peak is so high, in a sentence without its full stop; empty where nothing is alive.
    pub cause: String,
    /// The cards of every role, where not all do the same.
    pub fleet: Vec<Hull>,
    /// What cards take that do other things than the first: what, and how much.
    pub roles: Vec<(String, String)>,
    /// Of several cards, what the machine's own memory holds: what, and how much.
    pub host: Vec<(String, String)>,
    /// Worth knowing.
    pub warnings: Vec<String>,
}

/// How a run sits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Standing {
    /// Its peak is at most the load line.
    Fits,
    /// It runs, but deeper than the load line.
    Tight,
    /// It runs out of memory.
    DoesNotFit,
}

/// One phase of one step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PhaseRow {
    /// `forward`, `zero_grad`, ...
    pub name: String,
    /// 1 or 2; `None` for `load`.
    pub step: Option<u32>,
    /// From 1; `None` where the phase is once per step.
    pub micro_batch: Option<u64>,
    /// Highest live bytes within it.
    pub peak: Bytes,
    /// Live bytes when it ended.
    pub end: Bytes,
    /// Reserved when it ended.
    pub end_reserved: Bytes,
}

/// One moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Point {
    /// Allocations and frees so far.
    pub event: u32,
    /// Index into [`Reading::phases`].
    pub phase: u32,
    /// Live bytes of the ledger's kinds, in the order of [`Kind::ALL`].
    pub live: [u64; Kind::LEDGER],
    /// The op of the latest allocation.
    pub op: String,
    /// The module it ran in.
    pub module: String,
}

/// One group of equal storages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// Why it is alive.
    pub kind: Kind,
    /// The module that made it, layers as `*`.
    pub module: String,
    /// The op that made it.
    pub op: String,
    /// `4 × 1024 × 2048 bfloat16`.
    pub form: String,
    /// How many such.
    pub count: u64,
    /// Together.
    pub bytes: Bytes,
}

impl From<Verdict> for Standing {
    fn from(verdict: Verdict) -> Self {
        match verdict {
            Verdict::Fits => Self::Fits,
            Verdict::Tight => Self::Tight,
            Verdict::DoesNotFit => Self::DoesNotFit,
        }
    }
}

impl Standing {
    /// Whether the run sits deeper than the load line.
    pub const fn below(self) -> bool {
        !matches!(self, Self::Fits)
    }

    /// The word people read.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Fits => "Fits",
            Self::Tight => "Tight",
            Self::DoesNotFit => "Does not fit",
        }
    }
}

impl Point {
    /// All live bytes.
    pub fn total(&self) -> Bytes {
        Bytes::new(self.live.iter().fold(0, |sum, &n| sum.saturating_add(n)))
    }
}

impl From<&TimelinePoint> for Point {
    fn from(point: &TimelinePoint) -> Self {
        Self {
            event: point.event,
            phase: point.phase,
            live: live(&point.live),
            op: point.op.clone(),
            module: point.module.clone(),
        }
    }
}

impl From<&Holding> for Held {
    fn from(holding: &Holding) -> Self {
        let shape: Vec<String> = holding.shape.iter().map(u64::to_string).collect();
        let shape = if shape.is_empty() { "scalar".to_owned() } else { shape.join(" × ") };
        Self {
            kind: holding.category.into(),
            module: holding.module.clone(),
            op: holding.op.clone(),
            form: format!("{shape} {}", holding.dtype),
            count: holding.count,
            bytes: holding.bytes,
        }
    }
}

impl Reading {
    /// Reads an estimate with its timeline and all that is alive at the timeline's peak, largest first.
    pub fn new(estimate: &Estimate, timeline: &Timeline, holdings: &[Holding]) -> Self {
        let peak = &estimate.peak;
        Self {
            standing: estimate.verdict.into(),
            headroom: estimate.headroom,
            process: peak.process,
            reserved: peak.reserved,
            allocated: peak.allocated,
            capacity: estimate.device.capacity,
            load_line: estimate.device.load_line,
            parameters: estimate.parameters.total,
            trainable: estimate.parameters.trainable,
            parts: summary::parts(estimate),
            phases: estimate
                .phases
                .iter()
                .map(|phase| PhaseRow {
                    name: phase.name.as_str().to_owned(),
                    step: phase.step,
                    micro_batch: phase.micro_batch,
                    peak: phase.peak_requested,
                    end: phase.end_requested,
                    end_reserved: phase.end_reserved,
                })
                .collect(),
            points: timeline.points.iter().map(Point::from).collect(),
            peak: timeline.peak,
            holdings: holdings.iter().take(HOLDINGS).map(Held::from).collect(),
            cause: summary::cause(estimate, holdings).unwrap_or_default(),
            fleet: summary::fleet(estimate),
            roles: summary::roles(estimate),
            host: summary::host(estimate),
            warnings: estimate.warnings.clone(),
        }
    }

    /// The bytes of one kind at the peak.
    pub fn part(&self, kind: Kind) -> Bytes {
        self.parts.iter().find(|p| p.kind == kind).map_or(Bytes::ZERO, |p| p.bytes)
    }
}

/// Live bytes of the ledger's kinds, in the order of [`Kind::ALL`].
fn live(breakdown: &PeakBreakdown) -> [u64; Kind::LEDGER] {
    let mut live = [0; Kind::LEDGER];
    for (slot, kind) in live.iter_mut().zip(Kind::ALL) {
        *slot = kind.category().map_or(0, |category| breakdown.get(category).get());
    }
    live
}
