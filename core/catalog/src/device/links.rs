//! How fast a card can pass something on: what its links are rated at, each way. No link is faster than its rating, so what is
//! read off these is a bound, and not a time. Bridges that join two cards of many are not counted.

use crate::{Gpu, Vendor};

/// Ratings in GB/s (10^9), one way.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Links {
    /// To the other cards of its machine, all together.
    pub peers: f64,
    /// What the cards of a machine are joined by: `NVLink`, `PCIe`, `Infinity Fabric`.
    pub between: &'static str,
    /// To the machine's memory: PCIe.
    pub host: f64,
    /// To other machines: the network adapter that the vendor's own machine gives to each of these cards.
    pub network: f64,
    /// Where that is from.
    pub source: &'static str,
}

/// PCIe with 16 lanes by generation, each way (PCI-SIG): 3, 4 and 5.
const PCIE: [f64; 3] = [15.8, 31.5, 63.0];

/// The links of a card.
pub fn links(gpu: &Gpu) -> Links {
    let [third, fourth, fifth] = PCIE;
    let joined = |peers: f64, between, host, network: f64, source| Links { peers, between, host, network, source };
    let plugged = |host: f64| Links {
        peers: host,
        between: "PCIe",
        host,
        network: host.min(GBITS_400),
        source: "PCIe x16 of its generation, and an adapter of 400 Gb/s where that is faster than one could be",
    };
    match (gpu.vendor, gpu.architecture, gpu.id) {
        (_, _, "b200" | "b300") => joined(
            900.0,
            "NVLink",
            fifth,
            GBITS_400,
            "NVIDIA DGX B200 datasheet: NVLink 1.8 TB/s both ways, ConnectX-7 of 400 Gb/s a GPU",
        ),
        (_, "hopper", "h100-sxm" | "h200") => joined(
            450.0,
            "NVLink",
            fifth,
            GBITS_400,
            "NVIDIA H100 datasheet: NVLink 900 GB/s both ways; DGX H100: ConnectX-7 of 400 Gb/s a GPU",
        ),
        (_, "ampere", "a100-80gb" | "a100-40gb") => joined(
            300.0,
            "NVLink",
            fourth,
            GBITS_200,
            "NVIDIA A100 datasheet: NVLink 600 GB/s both ways; DGX A100: ConnectX-6 of 200 Gb/s a GPU",
        ),
        (_, "volta", "v100-32gb" | "v100-16gb") => joined(
            150.0,
            "NVLink",
            third,
            GBITS_100,
            "NVIDIA V100 datasheet: NVLink 300 GB/s both ways; DGX-2: an adapter of 100 Gb/s for two GPUs, one is taken",
        ),
        (_, "hopper", "gh200-96gb") => joined(
            450.0,
            "NVLink",
            450.0,
            GBITS_400,
            "NVIDIA GH200 datasheet: NVLink and NVLink-C2C 900 GB/s both ways each; an adapter of 400 Gb/s a GPU is taken",
        ),
        (Vendor::Amd, "cdna4", _) => joined(
            537.6,
            "Infinity Fabric",
            fifth,
            GBITS_400,
            "AMD Instinct MI350 series data sheets: seven links of 153.6 GB/s both ways; an adapter of 400 Gb/s a GPU is taken",
        ),
        (Vendor::Amd, "cdna3", _) => joined(
            448.0,
            "Infinity Fabric",
            fifth,
            GBITS_400,
            "AMD Instinct MI300X platform data sheet: 896 GB/s both ways; an adapter of 400 Gb/s a GPU is taken",
        ),
        (_, "hopper" | "blackwell" | "rdna4", _) => plugged(fifth),
        (_, "turing" | "volta" | "cdna1", _) => plugged(third),
        _ => plugged(fourth),
    }
}

const GBITS_100: f64 = 12.5;
const GBITS_200: f64 = 25.0;
const GBITS_400: f64 = 50.0;

#[cfg(test)]
mod tests {
    use super::links;

    #[test]
    fn every_card_has_links_and_none_is_faster_outside_than_within_its_machine() {
        for gpu in crate::gpus() {
            let links = links(gpu);
            assert!(links.network > 0.0 && links.network <= links.peers && links.host <= links.peers, "{}", gpu.id);
            assert!(links.peers < gpu.bandwidth_gb_s, "{}: no link is faster than memory", gpu.id);
        }
    }
}
