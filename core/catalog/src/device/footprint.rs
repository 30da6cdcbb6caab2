//! A card's memory before a run begins, figure by figure, each with where it comes from.

use super::{Sourced, context, desktop, driver_reserve};
use crate::Gpu;
use crate::Vendor;

const OF_NOMINAL_NVIDIA: &str = "99.5 % of the nominal size, the smallest share nvidia-smi shows of a card without in-line \
     ECC: no reading of this card was found";
const OF_NOMINAL_AMD: &str =
    "the nominal size less 16 MiB, as on every AMD card that was read: no reading of this card was found";
const WORKING_SET: &str = "Metal's recommended working set, two thirds of the memory below 36 GiB and three quarters from \
     there on, as llama.cpp prints it of other Macs; newer macOS recommends more. PyTorch itself stops only at 1.7 times that";

/// One figure of a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Which: a word for keys, `memory`, `driver`, `desktop`, `context`.
    pub key: &'static str,
    /// What it is, in words.
    pub what: &'static str,
    /// How much, and where that comes from.
    pub figure: Sourced,
}

/// Memory as the driver reports it; what driver and desktop hold of it; what one process takes outside PyTorch.
pub fn footprint(gpu: &Gpu) -> [Part; 4] {
    [
        Part { key: "memory", what: "memory as reported", figure: memory(gpu) },
        Part { key: "driver", what: "kept by the driver", figure: driver_reserve(gpu) },
        Part { key: "desktop", what: "held by a desktop", figure: desktop(gpu) },
        Part { key: "context", what: "context and libraries", figure: context(gpu) },
    ]
}

/// Memory as the driver reports it.
fn memory(gpu: &Gpu) -> Sourced {
    match gpu.vendor {
        _ if !gpu.memory_assumed => Sourced::read(gpu.memory, gpu.source),
        Vendor::Nvidia => Sourced::assumed(gpu.memory, OF_NOMINAL_NVIDIA),
        Vendor::Amd => Sourced::assumed(gpu.memory, OF_NOMINAL_AMD),
        Vendor::Apple => Sourced::assumed(gpu.memory, WORKING_SET),
    }
}
