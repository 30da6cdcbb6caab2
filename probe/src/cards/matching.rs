//! Which row of the catalog a card is, and which card an identity means.

use plimsoll_core::Bytes;
use plimsoll_core::catalog::{self, Gpu};

/// The id of the catalog's row with this name whose memory is nearest.
///
/// Rows of the same card in several sizes carry the size in their name, drivers mostly do not: sizes in names are passed
/// over, the memory decides. A row whose memory is off by more than a tenth is another card: in-line ECC takes a sixteenth.
pub fn catalog_id(name: &str, total: Bytes) -> Option<&'static str> {
    let wanted = words(name);
    let distance = |gpu: &&Gpu| gpu.memory.get().abs_diff(total.get());
    let same = catalog::gpus().iter().filter(|gpu| words(gpu.name) == wanted);
    let near = same.filter(|gpu| distance(gpu) <= gpu.memory.get() / 10);
    near.min_by_key(distance).map(|gpu| gpu.id)
}

/// The words of a name that tell cards apart: neither the maker nor the size.
fn words(name: &str) -> Vec<String> {
    let lower = name.to_lowercase();
    let words = lower.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let size = |word: &str| word.strip_suffix("gb").is_some_and(|n| n.parse::<u32>().is_ok());
    words.filter(|word| !matches!(*word, "nvidia" | "amd" | "apple") && !size(word)).map(str::to_owned).collect()
}

/// The hexadecimal digits of a UUID: `GPU-` and dashes are not everywhere.
pub fn plain_uuid(text: &str) -> Option<String> {
    let text = text.trim().to_lowercase();
    let digits: String = text.strip_prefix("gpu-").unwrap_or(&text).chars().filter(|c| *c != '-').collect();
    (digits.len() == 32 && digits.chars().all(|c| c.is_ascii_hexdigit())).then_some(digits)
}

/// `domain:bus:device` in the same digits: NVML writes `00000000:01:00.0`, sysfs `0000:01:00.0`, others `01:00.0`.
pub fn plain_pci(text: &str) -> Option<String> {
    let (address, _function) = text.trim().split_once('.').unwrap_or((text.trim(), ""));
    let parts: Option<Vec<u32>> = address.split(':').map(|part| u32::from_str_radix(part, 16).ok()).collect();
    match parts?.as_slice() {
        [bus, device] => Some(format!("0:{bus:x}:{device:x}")),
        [domain, bus, device] => Some(format!("{domain:x}:{bus:x}:{device:x}")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cards_as_their_drivers_name_them() {
        for (name, mib, id) in [
            ("NVIDIA GeForce RTX 5070 Ti Laptop GPU", 12_227, Some("rtx-5070-ti-laptop")),
            ("NVIDIA GeForce RTX 5070 Ti", 16_303, Some("rtx-5070-ti")),
            ("NVIDIA GeForce RTX 5060 Ti", 16_311, Some("rtx-5060-ti-16gb")),
            ("NVIDIA GeForce RTX 5060 Ti", 8_151, Some("rtx-5060-ti-8gb")),
            ("NVIDIA GeForce RTX 3080", 10_240, Some("rtx-3080")),
            ("NVIDIA GeForce RTX 3080", 12_288, Some("rtx-3080-12gb")),
            ("NVIDIA GeForce RTX 3080 Laptop GPU", 16_384, Some("rtx-3080-laptop-16gb")),
            ("NVIDIA H200", 143_771, Some("h200")),
            ("NVIDIA H100 80GB HBM3", 81_559, Some("h100-sxm")),
            ("NVIDIA H100 PCIe", 81_559, Some("h100-pcie")),
            ("NVIDIA A100-SXM4-40GB", 40_960, Some("a100-40gb")),
            ("NVIDIA A100-SXM4-80GB", 81_920, Some("a100-80gb")),
            ("A100-SXM4-80GB", 81_251, Some("a100-80gb")),
            // In-line ECC off.
            ("NVIDIA A10", 24_564, Some("a10")),
            ("Tesla T4", 15_360, Some("t4")),
            ("AMD Radeon RX 7900 XTX", 24_560, Some("rx-7900-xtx")),
            // Not in the catalog, or in another size.
            ("NVIDIA A100-PCIE-40GB", 40_960, None),
            ("NVIDIA H200", 71_000, None),
            ("Quadro M2000", 4_096, None),
            ("", 0, None),
        ] {
            assert_eq!(catalog_id(name, Bytes::from_mib(mib)), id, "{name}");
        }
    }

    #[test]
    fn every_row_finds_itself() {
        for gpu in catalog::gpus() {
            let found = catalog_id(gpu.name, gpu.memory).and_then(catalog::gpu);
            // Some cards cannot be told apart by name and memory; then any of them will do.
            assert!(found.is_some_and(|found| words(found.name) == words(gpu.name)), "{}", gpu.id);
        }
    }

    #[test]
    fn identities_in_any_spelling() {
        let plain = Some("b1c5e1c2d8a04d0db6ca0e3a2f1b4c5d".to_owned());
        assert_eq!(plain_uuid("GPU-b1c5e1c2-d8a0-4d0d-b6ca-0e3a2f1b4c5d"), plain);
        assert_eq!(plain_uuid("B1C5E1C2-D8A0-4D0D-B6CA-0E3A2F1B4C5D"), plain);
        assert_eq!(plain_uuid("MIG-1"), None);
        for text in ["00000000:01:00.0", "0000:01:00.0", "01:00.0", "0000:01:00"] {
            assert_eq!(plain_pci(text).as_deref(), Some("0:1:0"), "{text}");
        }
        assert_eq!(plain_pci("0001:C3:1F.0").as_deref(), Some("1:c3:1f"));
        assert_eq!(plain_pci("card0"), None);
        assert_eq!(plain_pci(""), None);
    }
}
