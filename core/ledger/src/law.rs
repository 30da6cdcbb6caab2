//! Storages whose size is no line over the micro-batch, and what it is instead.
//!
//! Nearly every storage grows evenly with the micro-batch: a fixed part, and one for each sample. Where a kernel rounds, or
//! where it makes no more rows than there are, whoever makes the storage says so.

use serde::{Deserialize, Serialize};

use crate::cub::{Scan, Sort};

/// How a storage's size follows from a number that grows evenly: tokens, or rows that are summed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Law {
    /// The storage it is about.
    pub storage: u32,
    /// The number, as it was in this run.
    pub count: u64,
    /// What follows from it.
    pub rule: Rule,
}

/// What follows from the number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rule {
    /// An embedding's backward over so many tokens, or a buffer that has a row for each of them but no more than so many.
    Rows(Rows),
    /// A sum of so many numbers for every output.
    Sum(Sum),
    /// Work for so many heads of all samples, each of which is split.
    Split(Split),
    /// Parts of an output for so many heads of all samples, where there are too few of them to fill the card.
    Parts(Parts),
    /// A sort of so many numbers.
    Sort(Sort),
    /// A running sum of so many numbers.
    Scan(Scan),
}

/// An embedding's backward over many tokens sums rows of its gradient in parts: one part for every ten tokens and one for
/// every row that occurs. A tenth of the tokens is rounded down, and no more rows occur than the table has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rows {
    /// Rows of the table.
    pub rows: u64,
    /// Bytes of a row or part.
    pub unit: u64,
    /// Tokens for which there is one part more; 0 where there is none.
    pub tokens_per_part: u64,
}

/// A sum over so many numbers that several blocks share each output: what they hand to one another
/// (`setReduceConfig` and `ReduceConfig::global_memory_size` in `aten/src/ATen/native/cuda/Reduce.cuh`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sum {
    /// Numbers that come out.
    pub outputs: u64,
    /// Bytes of a partial sum.
    pub unit: u64,
    /// Outputs that a thread sums at a time (`output_vec_size`).
    pub vector: u64,
    /// What is summed lies together: threads of a row share an output (`reduction_on_fastest_striding_dimension`).
    pub along: bool,
    /// Numbers that a thread reads at a time.
    pub read: u64,
    /// Multiprocessors of the card.
    pub multiprocessors: u64,
    /// Threads that each of them holds.
    pub threads: u64,
}

/// What every head has, and tiles that it has for each split: as many as the keys have blocks, but of all heads together no
/// more than a number, and one at least.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Split {
    /// Bytes that every head has anyway.
    pub own: u64,
    /// Bytes of a split's tiles.
    pub tile: u64,
    /// The most splits a head has.
    pub splits: u64,
    /// The most that all heads have together.
    pub most: u64,
}

impl Split {
    /// Bytes for so many heads.
    pub const fn bytes(&self, heads: u64) -> u64 {
        let shared = match self.most.checked_div(heads) {
            Some(shared) => shared,
            None => 0,
        };
        let splits = if shared < self.splits { shared } else { self.splits };
        let splits = if splits == 0 { 1 } else { splits };
        heads.saturating_mul(self.own.saturating_add(self.tile.saturating_mul(splits)))
    }
}

/// Flash attention's forward shares the keys of a head among several blocks where the queries alone give the card too little
/// to do: every share writes a part of the output (`num_splits_heuristic` in
/// `aten/src/ATen/native/transformers/cuda/flash_attn/flash_api.cpp`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parts {
    /// Bytes of a share's part for one head.
    pub unit: u64,
    /// Blocks of queries that a head has.
    pub blocks: u64,
    /// Blocks of keys: no more shares than these.
    pub keys: u64,
    /// How many blocks the card takes at a time.
    pub slots: u64,
}

impl Parts {
    /// Among how many the keys are shared, of so many heads.
    pub fn shares(&self, heads: u64) -> u64 {
        /// `max_splits`
        const MOST: u64 = 128;
        let work = heads.saturating_mul(self.blocks);
        // `batch_nheads_mblocks >= 0.8f * num_SMs`: enough to almost fill the card.
        if work as f32 >= 0.8 * self.slots as f32 {
            return 1;
        }
        let most = MOST.min(self.slots).min(self.keys);
        let of_a_share = |shares: u64| self.keys.div_ceil(shares);
        let is_another = |shares: &u64| *shares == 1 || of_a_share(*shares) != of_a_share(*shares - 1);
        // How full the card is, over the waves that it takes.
        let efficiency = |shares: u64| {
            let waves = (work * shares) as f32 / self.slots as f32;
            waves / waves.ceil()
        };
        let best = (1..=most).filter(is_another).map(efficiency).fold(0.0, f32::max);
        let good = |shares: &u64| f64::from(efficiency(*shares)) >= 0.85 * f64::from(best);
        (1..=most).filter(is_another).find(good).unwrap_or(1)
    }

    /// Bytes of all parts; 0 where nothing is shared.
    pub fn bytes(&self, heads: u64) -> u64 {
        match self.shares(heads) {
            0 | 1 => 0,
            shares => self.unit.saturating_mul(heads).saturating_mul(shares),
        }
    }
}

impl Law {
    /// The storage's bytes if the number were `count`.
    pub fn bytes(&self, count: u64) -> u64 {
        self.rule.bytes(count)
    }

    /// Whether both say the same of the same storage, whatever the number.
    pub fn says_as(&self, other: &Self) -> bool {
        (self.storage, self.rule) == (other.storage, other.rule)
    }
}

impl Rule {
    /// Bytes that follow from `count`.
    pub fn bytes(&self, count: u64) -> u64 {
        match self {
            Self::Rows(rows) => rows.bytes(count),
            Self::Sum(sum) => sum.bytes(count),
            Self::Split(split) => split.bytes(count),
            Self::Parts(parts) => parts.bytes(count),
            Self::Sort(sort) => sort.bytes(count),
            Self::Scan(scan) => scan.bytes(count),
        }
    }

    /// Whether a run can have written it: what a file says is divided by.
    pub(crate) fn is_possible(&self) -> bool {
        match self {
            Self::Rows(_) | Self::Split(_) => true,
            Self::Sort(sort) => sort.is_possible(),
            Self::Scan(scan) => scan.is_possible(),
            Self::Parts(parts) => {
                let counts = [parts.blocks, parts.keys, parts.slots];
                counts.iter().all(|count| (1..=MANY_BLOCKS).contains(count))
            }
            Self::Sum(sum) => {
                let vector = sum.vector.is_power_of_two() && sum.vector <= WARP / 4;
                let read = sum.read > 0 && sum.outputs >= sum.vector;
                vector && read && sum.multiprocessors <= CARD && sum.threads <= CARD
            }
        }
    }
}

impl Rows {
    /// Bytes for so many tokens.
    pub const fn bytes(&self, tokens: u64) -> u64 {
        let rows = if tokens < self.rows { tokens } else { self.rows };
        let parts = match tokens.checked_div(self.tokens_per_part) {
            Some(parts) => parts,
            None => 0,
        };
        self.unit.saturating_mul(parts.saturating_add(rows))
    }
}

/// The most threads of a block (`mnt_wrapper::MAX_NUM_THREADS`), and of a warp.
const BLOCK: u64 = 512;
const WARP: u64 = 32;
/// How few and how many numbers a thread should sum (`min_values_per_thread`, `max_values_per_thread`).
const FEW: u64 = 16;
const MANY: u64 = 256;

/// More multiprocessors, and more threads in one, than any card has.
const CARD: u64 = 1 << 16;

/// More blocks than the longest sequence has.
const MANY_BLOCKS: u64 = 1 << 24;

impl Sum {
    /// How many blocks share an output of so many numbers, how many columns of blocks there are, and threads in a row.
    const fn blocks(&self, inputs: u64) -> (u64, u64, u64) {
        let most = BLOCK / self.vector;
        let (fastest, slower) =
            if self.along { (inputs / self.read, self.outputs) } else { (self.outputs / self.vector, inputs) };
        let (fastest, slower) = (power(fastest, most), power(slower, most));
        let width = if fastest < WARP { fastest } else { WARP };
        let height = if slower < most / width { slower } else { most / width };
        let width = if fastest < most / height { fastest } else { most / height };
        let values = if self.along { inputs.div_ceil(width) } else { inputs };
        let shared = values >= if height * FEW < MANY { height * FEW } else { MANY };
        if !shared {
            return (1, 0, width);
        }
        let values = values.div_ceil(height);
        let columns = if self.along { self.outputs } else { (self.outputs / self.vector).div_ceil(width) };
        let wanted = self.multiprocessors * (self.threads / (width * height));
        if values < MANY || columns > wanted {
            return (1, columns, width);
        }
        let (most, few, many) = (wanted.div_ceil(columns), values.div_ceil(FEW), values.div_ceil(MANY));
        let blocks = if most < few { most } else { few };
        (if blocks < many { many } else { blocks }, columns, width)
    }

    /// Bytes of what the blocks hand to one another; 0 where each output has a block to itself.
    pub const fn bytes(&self, inputs: u64) -> u64 {
        let (blocks, _, width) = self.blocks(inputs);
        if blocks < 2 {
            return 0;
        }
        let copies = if self.along { 1 } else { width * self.vector };
        self.unit.saturating_mul(self.outputs).saturating_mul(blocks).saturating_mul(copies)
    }

    /// How many counters they wait for one another with: one for every column of blocks.
    pub const fn counters(&self, inputs: u64) -> u64 {
        let (blocks, columns, _) = self.blocks(inputs);
        if blocks < 2 { 0 } else { columns }
    }
}

/// The largest power of two that is no larger than `n` and `most`, at least 1.
const fn power(n: u64, most: u64) -> u64 {
    if n >= most {
        most
    } else if n == 0 {
        1
    } else {
        1 << n.ilog2()
    }
}

#[cfg(test)]
mod tests {
    use super::{Law, Parts, Rows, Rule, Split, Sum};

    /// What PyTorch 2.11's host code asked for: gemma 3's heads of 256 with 1024 tokens on a simulated L4 (58 multiprocessors)
    /// in eight parts.
    #[test]
    fn keys_are_shared_where_queries_leave_the_card_idle() {
        let l4 = Parts { unit: 4 * 1024 * 256, blocks: 16, keys: 16, slots: 116 };
        assert_eq!((l4.shares(4), l4.bytes(4)), (8, 33_554_432));
        assert_eq!((l4.shares(6), l4.bytes(6)), (1, 0), "96 of 116 blocks");
        // Heads of 64, of which PyTorch 2.4 counts one block on a multiprocessor.
        let narrow = Parts { unit: 4 * 1024, blocks: 16, keys: 4, slots: 116 };
        assert_eq!([1, 3, 4].map(|heads| narrow.bytes(heads)), [16_384, 24_576, 65_536]);
        let before = Parts { slots: 58, ..narrow };
        assert_eq!([1, 2, 3, 4].map(|heads| before.bytes(heads)), [8_192, 32_768, 0, 0]);
        let short = Parts { keys: 1, ..l4 };
        assert_eq!(short.bytes(1), 0, "one block of keys");
    }

    /// Gemma 3 270M's attention with a window, 2 x 1024 tokens, 4 heads of 256, on a simulated A100: 25,169,920 bytes.
    #[test]
    fn splits_are_as_many_as_all_heads_may_have() {
        let split = Split { own: 4 * 262_272, tile: 4 * 32_768, splits: 16, most: 200 };
        assert_eq!(split.bytes(8), 25_169_920);
        assert_eq!(split.bytes(20), 20 * 4 * (262_272 + 10 * 32_768));
        assert_eq!(split.bytes(400), 400 * 4 * (262_272 + 32_768));
    }

    #[test]
    fn rows_end_where_the_table_does_and_parts_are_whole() {
        let rows = Rows { rows: 100, unit: 8, tokens_per_part: 10 };
        assert_eq!(rows.bytes(59), 8 * (5 + 59));
        assert_eq!(rows.bytes(1005), 8 * (100 + 100));
        let plain = Rows { tokens_per_part: 0, ..rows };
        assert_eq!((plain.bytes(59), plain.bytes(1005)), (8 * 59, 8 * 100));
        let law = Law { storage: 3, count: 59, rule: Rule::Rows(rows) };
        assert_eq!(law.bytes(1005), rows.bytes(1005));
        assert!(law.says_as(&Law { count: 7, ..law }) && !law.says_as(&Law { storage: 4, ..law }));
    }

    /// What PyTorch 2.11's host code asked for on a simulated H200 (132 multiprocessors, 2048 threads each) and RTX 3060
    /// (28, 1536): bytes handed on, and counters, for `x.sum(0)` of float32 rows.
    #[test]
    fn sums_of_rows_take_what_the_host_code_asks_for() {
        let rows = |outputs: u64, vector, card: (u64, u64)| Sum {
            outputs,
            unit: 4,
            vector,
            along: false,
            read: 1,
            multiprocessors: card.0,
            threads: card.1,
        };
        let (h200, rtx_3060) = ((132, 2048), (28, 1536));
        let taken = |sum: Sum, inputs| (sum.bytes(inputs), sum.counters(inputs));
        assert_eq!(taken(rows(3072, 4, h200), 6304), (138_412_032, 24));
        assert_eq!(taken(rows(3072, 4, h200), 3152), (78_643_200, 24));
        assert_eq!(taken(rows(768, 4, h200), 4096), (25_165_824, 6));
        assert_eq!(taken(rows(50_257, 1, h200), 4096), (0, 0), "columns enough");
        assert_eq!(taken(rows(768, 4, h200), 512), (0, 0), "rows too few");
        assert_eq!(taken(rows(770, 2, h200), 8192), (12_615_680, 13));
        assert_eq!(taken(rows(7, 1, h200), 8192), (0, 0));
        assert_eq!(taken(rows(48, 4, h200), 65_536), (1_572_864, 2));
        assert_eq!(taken(rows(96, 4, h200), 200_704), (25_952_256, 2), "channels last");
        assert_eq!(taken(rows(768, 4, h200), 1024), (6_291_456, 6));
        assert_eq!(taken(rows(3072, 4, rtx_3060), 6304), (22_020_096, 24));
        assert_eq!(taken(rows(768, 4, rtx_3060), 4096), (22_020_096, 6));
        assert_eq!(taken(rows(770, 2, rtx_3060), 8192), (2_562_560, 13));
        assert_eq!(taken(rows(48, 4, rtx_3060), 65_536), (1_032_192, 2));
        assert_eq!(taken(rows(96, 4, rtx_3060), 200_704), (4_128_768, 2));
    }

    /// As above: images summed over samples and sides, and everything together.
    #[test]
    fn sums_of_neighbours_take_little() {
        let along = |outputs: u64, read, card: (u64, u64)| Sum {
            outputs,
            unit: 4,
            vector: 1,
            along: true,
            read,
            multiprocessors: card.0,
            threads: card.1,
        };
        let (h200, rtx_3060) = ((132, 2048), (28, 1536));
        let taken = |sum: Sum, inputs| (sum.bytes(inputs), sum.counters(inputs));
        assert_eq!(taken(along(12, 1, h200), 32 * 197 * 197), (2112, 12));
        assert_eq!(taken(along(96, 1, h200), 64 * 56 * 56), (2304, 96));
        assert_eq!(taken(along(1, 4, h200), 4096 * 768), (1536, 1));
        assert_eq!(taken(along(1, 4, h200), 1_000_000), (492, 1));
        assert_eq!(taken(along(16, 1, h200), 1_000_000), (2112, 16));
        assert_eq!(taken(along(4096, 1, h200), 50_257), (0, 0));
        assert_eq!(taken(along(12, 1, rtx_3060), 32 * 197 * 197), (480, 12));
        assert_eq!(taken(along(96, 1, rtx_3060), 64 * 56 * 56), (0, 0));
        assert_eq!(taken(along(16, 1, rtx_3060), 1_000_000), (512, 16));
    }
}
