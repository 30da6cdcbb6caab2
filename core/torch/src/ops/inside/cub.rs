//! Sorts and running sums of CUB, NVIDIA's library of parallel primitives: how many numbers its blocks take on which card
//! (`cub/device/dispatch/tuning`; the policy of the newest architecture that the card is no older than).

use plimsoll_catalog::software::rules;
use plimsoll_ledger::{Law, Rule, Scan, Sort, cub};

use super::Scratch;
use crate::tensor::{DType, Kernels, Machine};

/// What is sorted by: all bits of numbers of this type, or as many as row numbers take.
#[derive(Clone, Copy, Debug)]
pub(super) enum Keys {
    /// Numbers of this type.
    Numbers(DType),
    /// Row numbers below this one, which is the same whatever the batch.
    Rows(u64),
    /// Row numbers, so many for each row that there is.
    Repeated(u64),
    /// Random numbers of this type, by so many bits.
    Shuffled(DType, u64),
}

impl Keys {
    fn size(self) -> u64 {
        match self {
            Self::Numbers(dtype) | Self::Shuffled(dtype, _) => dtype.size(),
            Self::Rows(_) | Self::Repeated(_) => DType::Int64.size(),
        }
    }
}

/// The sort of `keys` with values of `value` bytes on NVIDIA's cards.
fn sort(machine: Machine, (major, minor): (u8, u8), (n, keys): (u64, Keys), value: u64) -> Sort {
    let key = keys.size();
    let major = if machine.rules.has(&rules::CUB_TUNED) { major } else { major.min(8) };
    // Threads of a block, and how many numbers of 4 bytes each has (`OnesweepPolicy` in `tuning_radix_sort.cuh`).
    let (threads, numbers) = match (major, key) {
        (9.., 8..) => (384, if value < 8 { 30 } else { 24 }),
        (9.., 4..) => (384, if value < 8 { 17 } else { 29 }),
        (9.., 2..) => (512, 23),
        (9.., _) => (384, 18),
        (8, 4) if value > 0 => (384, 17),
        (8, 4..) => (384, 21),
        (7, 4..) => (256, 23),
        (6, 4..) if minor == 0 => (256, 29),
        (6, 4..) => (256, 30),
        // Smaller ones are sorted by as many blocks as the card holds; what those count, some kilobytes, is left out.
        _ => (0, 0),
    };
    let (passes, repeats) = match keys {
        Keys::Numbers(_) => (key, 0),
        Keys::Rows(below) => (Sort::passes_for(below), 0),
        Keys::Repeated(repeats) => (0, repeats),
        Keys::Shuffled(_, bits) => (bits.div_ceil(8), 0),
    };
    let sort = Sort { tile: threads * each(numbers, key.max(value)), key, value, passes, repeats };
    match keys {
        // Where one block sorts all of them nothing hangs on it, and batches that differ in nothing else are alike.
        Keys::Rows(_) if n <= sort.alone() => Sort { passes: 2, ..sort },
        _ => sort,
    }
}

/// How many numbers of `size` bytes a thread has where it has so many of 4 bytes (`RegBoundScaling` in `util_arch.cuh`).
const fn each(numbers: u64, size: u64) -> u64 {
    numbers * 4 / if size > 4 { size } else { 4 }
}

/// A running sum of numbers of `size` bytes: 128 threads with 15 of 4 bytes each. What PyTorch adds with is none of the
/// operations that CUB has other blocks for (`select_agent_policy` in `tuning_scan.cuh`).
fn running_sum(machine: Machine, size: u64, most: u64) -> Scan {
    let each = (15 * 4 / size.max(1)).clamp(1, 30);
    let twice = machine.rules.has(&rules::CUB_ROUNDS_TWICE);
    Scan { tile: 128 * each, said: if size > 4 { 16 } else { 8 }, key: 0, twice, most }
}

/// Int64 without those that follow an equal one, with int32 positions (`tuning_unique_by_key.cuh`).
fn unique_by_key(machine: Machine, capability: (u8, u8)) -> Scan {
    let twice = machine.rules.has(&rules::CUB_ROUNDS_TWICE);
    let tile = match capability {
        (10.., _) if twice => 384 * 10,
        (9.., _) if machine.rules.has(&rules::CUB_TUNED) => 640 * 7,
        (8, 0) if machine.rules.has(&rules::CUB_TUNED) => 256 * 7,
        _ => 64 * (11 * 4 / 8),
    };
    let said = if machine.rules.has(&rules::CUB_COUNTS_IN_64_BITS) { 16 } else { 8 };
    Scan { tile, said, key: 0, twice, most: 0 }
}

/// The places of what is not zero, which are int64 (`tuning_select_if.cuh`).
fn select(machine: Machine, capability: (u8, u8)) -> Scan {
    let twice = machine.rules.has(&rules::CUB_ROUNDS_TWICE);
    let tile = match capability {
        (10.., _) if twice => 320 * 11,
        (9.., _) if machine.rules.has(&rules::CUB_TUNED) => 384 * 11,
        (8, 0) if machine.rules.has(&rules::CUB_TUNED) => 256 * 9,
        _ => 128 * 5,
    };
    Scan { tile, said: 8, key: 0, twice, most: 0 }
}

/// A running sum of int32 for every key of 32 bits (`tuning_scan_by_key.cuh`).
fn sum_by_key(machine: Machine, capability: (u8, u8)) -> Scan {
    let tile = match capability {
        (10.., _) if machine.rules.has(&rules::CUB_ROUNDS_TWICE) => 224 * 20,
        (9.., _) if machine.rules.has(&rules::CUB_TUNED) => 288 * 14,
        (8, 0) if machine.rules.has(&rules::CUB_TUNED) => 256 * 15,
        _ => 256 * 9,
    };
    Scan { tile, said: 16, key: 4, twice: false, most: 0 }
}

impl Scratch<'_> {
    /// `cub::DeviceRadixSort` of `n` numbers that are somewhere else afterwards, with values of `value` bytes: gone at once.
    pub(super) fn cub_sort(&mut self, n: u64, keys: Keys, value: u64) {
        let machine = self.cx.machine();
        let rule = match machine.kernels {
            Kernels::Cuda(major, minor) => sort(machine, (major, minor), (n, keys), value),
            // A copy of both is all that is known of rocPRIM's.
            _ => return self.copies(n, keys, value),
        };
        self.cub(n, Rule::Sort(rule));
    }

    /// `cub::DeviceSegmentedRadixSort`, which copies both: gone at once.
    pub(super) fn cub_sort_rows(&mut self, n: u64, keys: Keys, value: u64) {
        if !matches!(self.cx.machine().kernels, Kernels::Cuda(..)) {
            return self.copies(n, keys, value);
        }
        self.cub(n, Rule::Sort(Sort { tile: 0, key: keys.size(), value, passes: 0, repeats: 0 }));
    }

    /// `cub::DeviceScan` of `n` numbers of `size` bytes, of which there are no more than `most`, if that is not 0: gone at once.
    pub(super) fn cub_sum(&mut self, n: u64, size: u64, most: u64) {
        if let Kernels::Cuda(..) = self.cx.machine().kernels {
            self.cub(n, Rule::Scan(running_sum(self.cx.machine(), size, most)));
        }
    }

    /// `cub::DeviceReduce::Sum` of `n` numbers into one int32, gone at once: nothing but an address where one block does it, of 256
    /// threads with 16 numbers each; else a number of every block of five times as many as the card holds (`dispatch_reduce.cuh`,
    /// `CUB_SUBSCRIPTION_FACTOR`).
    pub(super) fn cub_count(&mut self, n: u64) {
        const THREADS: u64 = 256;
        const OVER: u64 = 5;
        let machine = self.cx.machine();
        let blocks = machine.multiprocessors.saturating_mul(machine.threads / THREADS).saturating_mul(OVER);
        let bytes = match machine.kernels {
            Kernels::Cuda(..) if n > 16 * THREADS => cub::aligned(&[blocks.saturating_mul(DType::Int32.size())]),
            _ => 1,
        };
        self.hold(&[bytes], DType::UInt8);
        self.release(1);
    }

    /// `cub::DeviceSelect::Flagged` of the places of `n` numbers: gone at once.
    pub(super) fn cub_select(&mut self, n: u64) {
        if let Kernels::Cuda(major, minor) = self.cx.machine().kernels {
            self.cub(n, Rule::Scan(select(self.cx.machine(), (major, minor))));
        }
    }

    /// `cub::DeviceSelect::UniqueByKey` of `n` numbers: gone at once.
    pub(super) fn cub_unique(&mut self, n: u64) {
        if let Kernels::Cuda(major, minor) = self.cx.machine().kernels {
            self.cub(n, Rule::Scan(unique_by_key(self.cx.machine(), (major, minor))));
        }
    }

    /// `cub::DeviceScan::InclusiveSumByKey` of `n` numbers: gone at once.
    pub(super) fn cub_sum_by_key(&mut self, n: u64) {
        if let Kernels::Cuda(major, minor) = self.cx.machine().kernels {
            self.cub(n, Rule::Scan(sum_by_key(self.cx.machine(), (major, minor))));
        }
    }

    fn cub(&mut self, count: u64, rule: Rule) {
        let storage = self.hold(&[Law { storage: 0, count, rule }.bytes(count)], DType::UInt8);
        self.cx.law(Law { storage, count, rule });
        self.release(1);
    }

    fn copies(&mut self, n: u64, keys: Keys, value: u64) {
        self.hold(&[n.saturating_mul(keys.size().saturating_add(value))], DType::UInt8);
        self.release(1);
    }
}
