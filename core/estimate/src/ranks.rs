//! Several cards: for which ranks an answer stands, and what they take to talk to one another.

use std::ops::Range;

use plimsoll_catalog::{Gpu, Vendor};
use plimsoll_ground::Bytes;
use plimsoll_scenario::{LoadFrom, ParallelStrategy, Precision, Scenario};
use serde::Serialize;

use super::followed::Followed;

use super::{Peak, PeakBreakdown, Phase, Verdict};

/// Ranks that do the same.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Role {
    /// What they are.
    pub name: String,
    /// Which.
    pub ranks: Vec<u64>,
    /// Their highest point.
    pub peak: Peak,
    /// What is alive there.
    pub at_peak: PeakBreakdown,
    /// Whether they fit.
    pub verdict: Verdict,
    /// Every phase of both steps, where they are not the estimate's own: it is the first role's.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub phases: Vec<Phase>,
}

/// What a group of ranks takes on each card to talk to one another: outside of PyTorch's allocator, in no other figure of the
/// estimate. It depends on the machine, so it is a band.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Communicator {
    /// Which ranks.
    pub group: String,
    /// The least.
    pub low: Bytes,
    /// The most that was published.
    pub high: Bytes,
    /// Where both come from.
    pub source: String,
}

/// A pair of connections to one neighbour in one channel: what both sides of NCCL's P2P transport allocate on a card
/// (`p2pSendSetup` and `p2pRecvSetup` in `src/transport/p2p.cc` of 2.30.7: 10 and 2 MiB).
const CONNECTION: Bytes = Bytes::from_mib(12);
/// The fewest channels that was printed at initialisation (`8 coll channels`, NVIDIA/nccl issue 1189).
const CHANNELS: u64 = 8;
/// Neighbours in a ring.
const RING: u64 = 2;
/// The most that was measured for one communicator after an all-reduce (NVIDIA/nccl issue 864).
const MOST: Bytes = Bytes::new(1_600_000_000);
/// All that two desktop cards held outside of PyTorch, their contexts among it (vllm issue 14452).
const MOST_WITHOUT_PEERS: Bytes = Bytes::from_mib(338);

/// The communicators of a scenario; none on one card.
pub fn communicators(gpu: &Gpu, scenario: &Scenario) -> Vec<Communicator> {
    let gpus = scenario.parallel.gpus;
    if gpus < 2 {
        return Vec::new();
    }
    let group = format!("all {gpus} ranks");
    let alone = matches!(gpu.form, "desktop" | "laptop");
    let (low, high, source) = match gpu.vendor {
        Vendor::Nvidia if alone => (
            Bytes::ZERO,
            MOST_WITHOUT_PEERS,
            "without peer access NCCL keeps its buffers in the host's memory; two RTX 5090 held 0.33 GiB outside of PyTorch, their \
             contexts among it (vllm issue 14452)",
        ),
        Vendor::Nvidia => (
            Bytes::new(CONNECTION.get().saturating_mul(CHANNELS).saturating_mul((gpus - 1).min(RING))),
            MOST,
            "a ring of 8 channels with 12 MiB for each neighbour (NCCL 2.30.7, src/transport/p2p.cc) up to the most that was \
             measured for one communicator (NVIDIA/nccl issue 864)",
        ),
        _ => (Bytes::ZERO, MOST, "no figure was found for RCCL; the most that was measured for one of NCCL's is taken"),
    };
    vec![Communicator { group, low, high, source: source.to_owned() }]
}

/// Where FSDP cuts the model. FSDP1 knows no meta device: there it comes from the machine's memory.
fn made(scenario: &Scenario) -> &'static str {
    let whole = scenario.parallel.strategy == ParallelStrategy::Fsdp2;
    match scenario.parallel.fsdp.load {
        LoadFrom::Meta if whole => "cut on the meta device",
        LoadFrom::Cuda => "whole on the card before it is cut",
        LoadFrom::Meta | LoadFrom::Cpu => "loaded into the machine's memory and comes to the card block by block",
    }
}

/// What an estimate of several cards should not be read without.
pub fn notes(scenario: &Scenario, communicators: &[Communicator], headroom: i64) -> Vec<String> {
    let gpus = scenario.parallel.gpus;
    let ranks = match scenario.parallel.strategy {
        ParallelStrategy::None => return Vec::new(),
        ParallelStrategy::Fsdp2 => format!(
            "this is the first of {gpus} cards under FSDP2: no other holds a larger part. The model is {}, and batch is what one \
             card takes at a time",
            made(scenario)
        ),
        ParallelStrategy::Fsdp1 => format!(
            "this is the first of {gpus} cards under FSDP1: no other holds a larger part, though with use_orig_params \
             another has taken up to 8 KiB more. The model is {}, and batch is what one card takes at a time",
            made(scenario)
        ),
        ParallelStrategy::DataParallel => format!(
            "this is the first of {gpus} cards under DataParallel: it alone holds summed gradients, the optimizer's states and what all cards \
             put out; what the others take, a copy of the model from each forward into its backward and their share of activations, is said \
             beside it. All cards are one process's, and batch is what one card takes at a time. DistributedDataParallel spreads the same more \
             evenly"
        ),
        ParallelStrategy::Zero0 => format!(
            "this is each of {gpus} cards under DeepSpeed without ZeRO: all hold the same, and batch is what one card takes at a time"
        ),
        ParallelStrategy::Zero1 | ParallelStrategy::Zero2 => format!(
            "this is the first of {gpus} cards under DeepSpeed's {}: its part of gradients ends within a parameter, and all of that \
             parameter's gradient is kept: a card whose part ends in a larger one takes more. Buckets are of DeepSpeed's own sizes whatever the model's. \
             batch is what one card takes at a time",
            scenario.parallel.strategy.in_words().label
        ),
        ParallelStrategy::Zero3 => format!(
            "this is the first of {gpus} cards under DeepSpeed's ZeRO-3: no other holds a larger part. From the second forward on parameters \
             are gathered ahead and kept up to max_live_parameters, so a first step takes less than the later ones. batch is what one card \
             takes at a time"
        ),
        strategy => format!(
            "this is each of {gpus} cards under {}: all hold the same, and batch is what one card takes at a time",
            strategy.in_words().label
        ),
    };
    let mut notes = vec![ranks];
    let autocast = matches!(scenario.training.precision, Precision::Bf16Amp | Precision::Fp16Amp);
    if scenario.parallel.strategy == ParallelStrategy::Fsdp2 && autocast {
        notes.push(
            "autocast keeps its copy of every weight that was gathered until the forward is over: under FSDP2 that is the whole model in 16 \
             bits. A mixed-precision policy does not (training.precision = \"fp32\" with parallel.fsdp.param_dtype = \"bf16\", and \
             reduce_dtype = \"fp32\"): weights are gathered in 16 bits, block by block"
                .to_owned(),
        );
    }
    for communicator in communicators {
        let over = i64::try_from(communicator.high.get()).is_ok_and(|high| headroom >= 0 && headroom < high);
        notes.push(format!(
            "communicators (NCCL) take {} to {} more on each card, outside of PyTorch and not counted here: {}{}",
            communicator.low,
            communicator.high,
            communicator.source,
            if over { ". At the upper end the run would be over its load line" } else { "" },
        ));
    }
    notes
}

/// All ranks do the same, or no rank more than the first; but under DataParallel the others, each the same, hold other things.
pub fn roles(scenario: &Scenario, first: &Followed, replica: Option<&Followed>) -> Vec<Role> {
    let gpus = scenario.parallel.gpus;
    if gpus < 2 {
        return Vec::new();
    }
    let role = |name: &str, ranks: Range<u64>, of: &Followed, phases: Vec<Phase>| Role {
        name: name.to_owned(),
        ranks: ranks.collect(),
        peak: of.peak.clone(),
        at_peak: of.at_peak,
        verdict: of.verdict,
        phases,
    };
    if scenario.parallel.strategy != ParallelStrategy::DataParallel {
        return vec![role("every rank", 0..gpus, first, Vec::new())];
    }
    let mut roles = vec![role("the card that holds the model", 0..1, first, Vec::new())];
    roles.extend(replica.map(|replica| role("a card that copies go to", 1..gpus, replica, replica.phases.clone())));
    roles
}
