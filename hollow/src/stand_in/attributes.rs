//! A card's attributes by their numbers (CUDA Driver API, `CUdevice_attribute`; the runtime's are the same).

use super::cards::Device;
use crate::capability::{REGISTERS, capability};

/// The first card's number on its bus; any would do.
pub(super) const BUS: usize = 0x17;

/// The value. What depends on the card depends on its figures; the limits of textures and surfaces are those of the
/// Programming Guide's table, where it has them; numbers that are not known are 0.
pub(super) fn attribute(device: &Device, number: i32) -> i32 {
    let card = &device.card;
    let limits = capability(card.capability);
    let (major, minor) = card.capability;
    let server = !card.name.contains("GeForce");
    let value = match number {
        1..=3 => 1024,          // threads of a block, and in x and y
        4 => 64,                // in z
        5 => i32::MAX as u32,   // blocks of a grid in x
        6 | 7 => 65535,         // in y and z
        8 => 48 << 10,          // shared memory of a block
        9 => 64 << 10,          // constant memory
        10 => 32,               // threads of a warp
        11 => i32::MAX as u32,  // pitch
        12 | 82 => REGISTERS,   // of a block, of a multiprocessor
        13 => 1_500_000,        // clock, kHz
        14 | 30 => 512,         // alignment of textures and surfaces
        15 | 19 | 31 | 41 => 1, // overlap, mapped memory, concurrency, one address space
        16 => card.multiprocessors,
        21 | 22 | 56 | 70 => 131_072, // textures and surfaces ...
        23 | 57 => 65_536,
        24..=26 | 47 | 48 | 58..=60 => 16_384,
        27 | 28 | 42 | 45 | 46 | 49 | 52 | 53 | 55 | 61 | 63 | 64 | 66 | 67 | 73 | 74 | 77 => 32_768,
        29 | 43 | 62 | 65 => 2048,
        54 | 68 => 2046,
        69 => 1 << 28,
        71 => 65_000,
        72 => 2_097_120,
        32 | 107 | 110 | 116 => u32::from(server), // ECC, and what GeForce cards lack
        33 => (BUS + device.physical) as u32,
        36 => 5_000_000, // memory clock, kHz
        37 => 256,       // bus width, bits
        38 => limits.cache,
        39 => limits.threads,
        40 => 2, // copies at once
        51 => 32,
        75 => major,
        76 => minor,
        78..=80 | 83 | 89..=91 | 95 | 99 | 102 | 103 | 112..=115 | 117 | 121..=123 | 125 | 129 => 1,
        81 => limits.shared,
        87 => {
            if server {
                2
            } else {
                64
            }
        } // single to double precision
        97 => limits.shared_opt_in,
        106 => limits.blocks,
        108 => limits.cache / 8 * 5, // cache that can persist
        109 => 128 << 20,            // window of such
        111 => limits.shared_reserved,
        118 => 100,
        119 => 9,                     // handles of pools: descriptors, and fabric
        120 => u32::from(major >= 9), // clusters
        126 => 1,
        127 => u32::from(major >= 9), // tensor maps
        131 => return -1,             // no node of its own
        _ => 0,
    };
    value as i32
}
