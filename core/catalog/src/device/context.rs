//! The CUDA context and the kernels a process loads: what `nvidia-smi` shows beyond PyTorch's reserved memory.

use plimsoll_ground::Bytes;

use super::Sourced;
use crate::Gpu;
use crate::Vendor;

const FITTED: &str = "fitted to 17 published readings of 14 cards (Turing, Ampere, Ada, Blackwell; PyTorch 2.0 to 2.10, lazy \
     module loading), within 65 MiB of every full process (core/catalog/src/device/tests.rs lists them)";
const MEASURED_HOPPER: &str = "measured on an H100 80GB HBM3 and an H200 (driver 580.159, PyTorch 2.11.0+cu130, 647 processes, NVML's figure of \
     each): 742 MiB in training, 678 in inference, with cuDNN 16 and 8 more, with eight-bit products 64 (tests/corpus/card.jsonl)";
const FITTED_ELSEWHERE: &str =
    "no reading of this architecture; the fit to Turing, Ampere, Ada and Blackwell cards is used";
const HIP_RDNA: &str = "365 MiB on a 24 GiB Radeon: total less free, allocated and cached in a HIP out of memory message \
     (github.com/Tongyi-MAI/Z-Image issue 103), so anything else on the card is in it";
const HIP_CDNA: &str = "952 MiB on a 288 GiB Instinct: total less free, allocated and cached in a HIP out of memory message \
     (github.com/pytorch/pytorch issue 175431), so anything else on the card is in it";
const METAL: &str = "not measured; Metal has no context of its own outside the recommended working set";

/// The architecture of H100 and H200, as the catalog writes it.
const HOPPER: &str = "hopper";
/// What driver and libraries take however large the chip is.
const BASE: Bytes = Bytes::from_mib(50);
/// What the driver sets aside for each thread the chip can hold at once (stack and local memory), in bytes.
const PER_THREAD: u64 = 2200;

/// What cuBLAS takes on Hopper beyond that, forward and backward: of 585 processes that trained (`tests/corpus/card.jsonl`) 188 took
/// 742 MiB, as the H100's 617 MiB make with it, and 38 one granule of 2 MiB more; all but two of the others took 750 and more.
const LIBRARIES_HOPPER: Bytes = Bytes::from_mib(125);
/// What of it a process without a backward does not take: cuBLAS has a handle for each thread, and the backward runs in one of its
/// own.
const BACKWARD_HOPPER: Bytes = Bytes::from_mib(64);
/// What cuDNN's kernels take there besides, attention's and convolutions', of which the backward brings half.
const CUDNN_HOPPER: [Bytes; 2] = [Bytes::from_mib(8), Bytes::from_mib(16)];
/// What cuBLASLt's eight-bit products take there besides, with a backward and without.
const EIGHT_BITS_HOPPER: Bytes = Bytes::from_mib(64);

/// Libraries that a process loads for some runs alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Library {
    /// cuDNN, for attention or convolutions.
    Cudnn,
    /// cuBLASLt's products of eight-bit integers.
    EightBits,
}

/// What the context and the loaded libraries of one process take on this card when it trains.
///
/// With lazy module loading, the default since PyTorch 1.13 on CUDA 11.7, this is mostly memory for every thread the chip
/// can hold, so it grows with the chip: 120 MiB on a laptop RTX 4050, 620 MiB on an RTX 5090. Two constants fit what was
/// read. Older versions, or `CUDA_MODULE_LOADING=EAGER`, take up to 1.8 GiB (stas00/ml-engineering, A100).
pub fn context(gpu: &Gpu) -> Sourced {
    match gpu.vendor {
        Vendor::Nvidia => {
            let bytes = BASE + Bytes::new(by_rate(gpu) * resident_threads(gpu) * PER_THREAD);
            match gpu.architecture {
                "turing" | "ampere" | "ada" | "blackwell" => Sourced::read(bytes, FITTED),
                HOPPER => Sourced::read(bytes + LIBRARIES_HOPPER, MEASURED_HOPPER),
                _ => Sourced::assumed(bytes, FITTED_ELSEWHERE),
            }
        }
        Vendor::Amd if gpu.architecture.starts_with("cdna") => Sourced::assumed(Bytes::from_mib(952), HIP_CDNA),
        Vendor::Amd => Sourced::assumed(Bytes::from_mib(365), HIP_RDNA),
        Vendor::Apple => Sourced::assumed(Bytes::ZERO, METAL),
    }
}

/// What a library takes beyond [`context`] in a process that trains (`backward`) or does not; known of Hopper alone, elsewhere the fit
/// has it in.
pub fn library(gpu: &Gpu, library: Library, backward: bool) -> Bytes {
    match library {
        _ if gpu.architecture != HOPPER => Bytes::ZERO,
        Library::Cudnn => CUDNN_HOPPER[usize::from(backward)],
        Library::EightBits => EIGHT_BITS_HOPPER,
    }
}

/// How much less that is in a process that does not train; known of Hopper alone.
pub fn without_backward(gpu: &Gpu) -> Bytes {
    if gpu.architecture == HOPPER { BACKWARD_HOPPER } else { Bytes::ZERO }
}

/// The most threads one multiprocessor holds at once: CUDA C++ Programming Guide, technical specifications per compute
/// capability.
pub fn resident_threads(gpu: &Gpu) -> u64 {
    match gpu.compute_capability {
        Some((7, 5)) => 1024,
        Some((8, 6..) | (12, _)) => 1536,
        _ => 2048,
    }
}

/// How many streaming multiprocessors an NVIDIA card has: as listed, else within 15 %.
pub fn multiprocessors(gpu: &Gpu) -> u64 {
    gpu.multiprocessors.unwrap_or_else(|| by_rate(gpu))
}

/// How many they are within 15 %: the float32 rate divided by what one does. What the context takes was fitted with it.
///
/// One does two operations per lane and cycle. Lanes are those of NVIDIA's architecture whitepapers, the clock is the
/// boost clock at which the whitepapers quote the rate of each architecture's largest card.
fn by_rate(gpu: &Gpu) -> u64 {
    let (lanes, mhz): (u64, u64) = match (gpu.architecture, gpu.compute_capability) {
        ("volta", _) => (64, 1530),
        ("turing", _) => (64, 1590),
        ("ampere", Some((8, 0))) => (64, 1410),
        ("ampere", _) => (128, 1700),
        ("hopper", _) | (_, Some((10, _))) => (128, 1980),
        ("ada", _) => (128, 2520),
        _ => (128, 2410),
    };
    // One exact multiplication, rounded: the same on every target.
    let mflops = (gpu.tflops_fp32.max(0.0) * 1e6).round() as u64;
    let each = 2 * lanes * mhz;
    (mflops + each / 2) / each
}
