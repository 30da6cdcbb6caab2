//! How much of a card one process can have, and how much of that it should take.

use plimsoll_ground::Bytes;
use serde::{Deserialize, Serialize};

use super::Sourced;
use crate::Gpu;
use crate::Vendor;

const RESERVE: &str = "fitted to torch's total_memory beside nvidia-smi's total on 13 cards, within 0.4 % of each \
     (core/catalog/src/device/tests.rs lists them)";
const NO_RESERVE_AMD: &str = "torch's total equals what rocm-smi reports: 23.98 GiB on a 24 GiB Radeon, 287.98 GiB on a \
     288 GiB Instinct (HIP out of memory messages)";
const WORKING_SET: &str = "the recommended working set is already what Metal leaves to one process";
const DESKTOP: &str =
    "298 to 1,621 MiB in nvidia-smi listings of 12 to 16 GiB cards with a desktop on them; the least is taken";
const NO_DESKTOP: &str = "no desktop runs on it";

/// What the card allows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceLimits {
    /// The card's id.
    pub gpu: String,
    /// What it really lets one process use.
    pub capacity: Bytes,
    /// How deep a run should sit at most.
    pub load_line: Bytes,
}

/// How much of a card its load line leaves: 92 of 100.
const LINE_PERCENT: u64 = 92;
/// The line is painted at a round number.
const LINE_STEP: Bytes = Bytes::from_mib(256);
/// Below this a step would be a large part of the card, and the line is left where it falls.
const LINE_STEP_FROM: Bytes = Bytes::from_gib(4);
/// Whatever else is taken off a card, the line stays under this share of its capacity.
const LINE_AT_MOST_PERCENT: u64 = 97;

/// What the driver keeps of the memory it reports, so that `torch.cuda.get_device_properties(0).total_memory` is less:
/// 144 MiB and 1 %, at most 768 MiB.
pub fn driver_reserve(gpu: &Gpu) -> Sourced {
    match gpu.vendor {
        Vendor::Nvidia => {
            let reserve = Bytes::from_mib(144) + percent(gpu.memory, 1);
            Sourced { bytes: reserve.min(Bytes::from_mib(768)), source: RESERVE, assumed: false }
        }
        Vendor::Amd => Sourced::read(Bytes::ZERO, NO_RESERVE_AMD),
        Vendor::Apple => Sourced::read(Bytes::ZERO, WORKING_SET),
    }
}

/// What a desktop on the same card holds at least. Nobody can know whether there is one: desktop and laptop cards are taken
/// to have it, others not. `device.memory` in the scenario says it exactly.
pub fn desktop(gpu: &Gpu) -> Sourced {
    match gpu.form {
        "desktop" | "laptop" => Sourced::assumed(Bytes::from_mib(298), DESKTOP),
        "unified" => Sourced::read(Bytes::ZERO, WORKING_SET),
        _ => Sourced::assumed(Bytes::ZERO, NO_DESKTOP),
    }
}

/// Capacity and load line of a card.
///
/// The capacity is what the driver reports less what driver and desktop hold, or `memory` as it is. The load line is 92 %
/// of what the driver reports (or of `memory`), painted at the nearest quarter of a GiB on cards from 4 GiB on, so 11 GiB
/// on every 12 GiB card, and never above 97 % of the capacity; or `load_line`, which cannot lie above the capacity either.
pub fn limits(gpu: &Gpu, memory: Option<Bytes>, load_line: Option<Bytes>) -> DeviceLimits {
    let held = driver_reserve(gpu).bytes + desktop(gpu).bytes;
    let capacity = memory.unwrap_or(gpu.memory.saturating_sub(held));
    let line = load_line.unwrap_or_else(|| {
        let line = round_line(percent(memory.unwrap_or(gpu.memory), LINE_PERCENT));
        line.min(percent(capacity, LINE_AT_MOST_PERCENT))
    });
    DeviceLimits { gpu: gpu.id.to_owned(), capacity, load_line: line.min(capacity) }
}

/// `share` hundredths, rounded down; no size overflows.
fn percent(bytes: Bytes, share: u64) -> Bytes {
    let n = bytes.get();
    Bytes::new(n / 100 * share + n % 100 * share / 100)
}

/// The nearest step, unless that would move it far.
fn round_line(line: Bytes) -> Bytes {
    if line < percent(LINE_STEP_FROM, LINE_PERCENT) {
        return line;
    }
    let step = LINE_STEP.get();
    Bytes::new((line.get() + step / 2) / step * step)
}
