//! What CUB, NVIDIA's library of parallel primitives, asks for before it runs: its host code computes it of how many numbers
//! there are (`cub/device/dispatch`, the same formulas from CUB 2.0 to 3.0).

use serde::{Deserialize, Serialize};

/// More than a block of any card takes at a time.
const TILE: u64 = 1 << 20;

/// Bytes of parts that follow one another, each from a multiple of 256 on, wherever the first one lies (`AliasTemporaries`
/// in `cub/util_temporary_storage.cuh`).
pub fn aligned(parts: &[u64]) -> u64 {
    const ALIGN: u64 = 256;
    let whole = |part: &u64| part.div_ceil(ALIGN).saturating_mul(ALIGN);
    parts.iter().map(whole).fold(ALIGN - 1, u64::saturating_add)
}

/// A radix sort of so many numbers (`dispatch_radix_sort.cuh`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sort {
    /// Numbers that a block takes at a time; 0 where each row has a block of its own, which needs no more than the copies.
    pub tile: u64,
    /// Bytes of a number.
    pub key: u64,
    /// Bytes of what goes with it.
    pub value: u64,
    /// How often all of them are gone over: once for every 8 bits in which they differ.
    pub passes: u64,
    /// How many there are of each that they may be, where that says in which bits they differ; 0 where `passes` does.
    pub repeats: u64,
}

impl Sort {
    /// So many are sorted by one block, in its own memory (`SingleTilePolicy`: 256 threads with 19 numbers of 4 bytes, the
    /// larger of a number and what goes with it counting).
    pub const fn alone(&self) -> u64 {
        let widest = if self.key > self.value { self.key } else { self.value };
        let each = 19 * 4 / if widest > 4 { widest } else { 4 };
        256 * if each == 0 { 1 } else { each }
    }

    /// Bytes for so many numbers.
    pub fn bytes(&self, numbers: u64) -> u64 {
        /// Digits of 8 bits, which are counted in 64 bits, and each block's in 32.
        const DIGITS: u64 = 256;
        const COUNTER: u64 = 8;
        const OF_A_BLOCK: u64 = 4;
        // No more than this at once (`PORTION_SIZE`).
        const PORTION: u64 = (1 << 28) - 1;
        let copies = |bytes: u64| numbers.saturating_mul(bytes);
        if self.tile == 0 {
            return aligned(&[copies(self.key), copies(self.value)]);
        }
        if numbers <= self.alone() {
            // Nothing, but not without an address.
            return 1;
        }
        let passes = self.passes_of(numbers);
        let portion = (PORTION / self.tile).saturating_mul(self.tile).max(1);
        let counters = numbers.div_ceil(portion).saturating_mul(passes);
        let blocks = numbers.min(portion).div_ceil(self.tile);
        // Gone over once, they go straight to where they belong.
        let copies = |bytes: u64| if passes > 1 { copies(bytes) } else { 0 };
        aligned(&[
            counters.saturating_mul(DIGITS * COUNTER),
            blocks.saturating_mul(DIGITS * OF_A_BLOCK),
            copies(self.key),
            copies(self.value),
            counters.saturating_mul(OF_A_BLOCK),
        ])
    }

    fn passes_of(&self, numbers: u64) -> u64 {
        match numbers.checked_div(self.repeats) {
            Some(different) => Self::passes_for(different),
            None => self.passes,
        }
    }

    /// How often numbers below this one are gone over (`get_num_bits` in `aten/src/ATen/cuda/cub.h` of the largest).
    pub fn passes_for(below: u64) -> u64 {
        let bits = below.saturating_sub(1).checked_ilog2().map_or(1, |log| u64::from(log) + 1);
        bits.div_ceil(8)
    }

    /// Whether a card runs it.
    pub(crate) const fn is_possible(&self) -> bool {
        self.tile <= TILE
    }
}

/// A running sum, or what goes by one: every block says how far it has come (`dispatch_scan.cuh`,
/// `dispatch_unique_by_key.cuh`, `dispatch_scan_by_key.cuh`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scan {
    /// Numbers that a block takes at a time.
    pub tile: u64,
    /// Bytes of what a block says.
    pub said: u64,
    /// Bytes of a key that each block begins with; 0 where there are none.
    pub key: u64,
    /// Whether what blocks say is rounded up by itself first: since CUB 3.
    pub twice: bool,
    /// No more numbers than these; 0 where there is no limit.
    pub most: u64,
}

impl Scan {
    /// Bytes for so many numbers.
    pub fn bytes(&self, numbers: u64) -> u64 {
        /// `TILE_STATUS_PADDING`: a warp looks back at as many blocks at a time.
        const BEFORE: u64 = 32;
        let numbers = if self.most == 0 { numbers } else { numbers.min(self.most) };
        let blocks = numbers.div_ceil(self.tile.max(1));
        let said = blocks.saturating_add(BEFORE).saturating_mul(self.said);
        let said = if self.twice { aligned(&[said]) } else { said };
        aligned(&[said, if self.key == 0 { 0 } else { blocks.saturating_add(1).saturating_mul(self.key) }])
    }

    /// Whether a card runs it.
    pub(crate) const fn is_possible(&self) -> bool {
        self.tile > 0 && self.tile <= TILE
    }
}

#[cfg(test)]
mod tests {
    use super::{Scan, Sort};

    /// Positions with their order, as PyTorch 2.11 sorts them: measured on an H100 80GB HBM3, PyTorch 2.11.0+cu130,
    /// 2026-11-26.
    #[test]
    fn a_sort_takes_what_was_measured() {
        let h100 = Sort { tile: 4608, key: 8, value: 8, passes: 8, repeats: 0 };
        for (tokens, bytes) in [
            (3900, 80_383),
            (4096, 83_455),
            (8192, 150_015),
            (16_384, 283_135),
            (65_536, 1_080_831),
            (603_729, 9_811_967),
        ] {
            assert_eq!(h100.bytes(tokens), bytes, "{tokens} tokens");
        }
        let of = |passes, numbers| Sort { passes, ..h100 }.bytes(numbers);
        assert_eq!([2304, 40].map(|numbers| of(2, numbers)), [1, 1], "by one block");
        assert_eq!((of(1, 2432), of(1, 5376)), (3583, 4607), "once, without copies");
        assert_eq!((of(2, 2400), of(2, 3072), of(2, 17_120)), (44_031, 54_783, 282_623));
    }

    /// What PyTorch 2.11's host code asks for on a simulated H100: numbers of 4 and 2 bytes, and rows that have a block each.
    #[test]
    fn numbers_that_are_smaller_take_less() {
        let float = Sort { tile: 5376, key: 4, value: 8, passes: 4, repeats: 0 };
        assert_eq!(float.bytes(100_000), 2_028_287 - 800_000);
        let half = Sort { tile: 5632, key: 2, value: 8, passes: 2, repeats: 0 };
        assert_eq!(half.bytes(4 * 8192), 928_255 - 2 * 262_144 - 65_536);
        assert_eq!(Sort { tile: 0, ..half }.bytes(200 * 8192), 29_491_455 - 13_107_200);
    }

    #[test]
    fn rows_that_may_be_picked_say_how_often_they_are_gone_over() {
        assert_eq!([1, 2, 256, 257, 65_536, 65_537].map(Sort::passes_for), [1, 1, 1, 2, 2, 3]);
        let experts = Sort { tile: 4608, key: 8, value: 8, passes: 0, repeats: 10 };
        let (few, many) = (Sort { passes: 1, repeats: 0, ..experts }, Sort { passes: 2, repeats: 0, ..experts });
        assert_eq!((experts.bytes(2560), experts.bytes(2570)), (few.bytes(2560), many.bytes(2570)));
    }

    /// As above, measured: a running sum of int64, and of int32, and equal neighbours left out.
    #[test]
    fn a_running_sum_takes_what_was_measured() {
        let sum = Scan { tile: 896, said: 16, key: 0, twice: true, most: 0 };
        assert_eq!([500, 5439, 32_768].map(|n| sum.bytes(n)), [1279, 1279, 1791]);
        assert_eq!(Scan { tile: 1920, said: 8, ..sum }.bytes(64), 1023);
        assert_eq!(Scan { most: 32, ..sum }.bytes(4_194_304), 1279);
        let unique = Scan { tile: 4480, ..sum };
        let measured = [(65_536, 1279), (147_456, 1791), (262_144, 2047), (603_729, 3327), (4_194_304, 16_127)];
        for (tokens, bytes) in measured {
            assert_eq!(unique.bytes(tokens), bytes, "{tokens} tokens");
        }
        // On a simulated H100: what `topk` sums for each row.
        let by_row = Scan { tile: 4032, key: 4, twice: false, ..sum };
        assert_eq!(by_row.bytes(1000), 1279);
    }
}
