//! Whether bitsandbytes multiplies with a four-bit weight as it is packed, or dequantizes it first.

use crate::tensor::{DType, Kernels, Machine};

/// The most rows the fused kernel takes whatever the card (`_GEMM_4BIT_CUSTOM_FLOOR_M`).
const ALWAYS: u64 = 4;

/// The most rows it ever takes (`_gemm_4bit_custom_max_m`).
const NEVER_BEYOND: u64 = 1536;

/// Weights of fewer numbers than this have thresholds of their own.
const SMALL_WEIGHT: u64 = 4 * 1024 * 1024;

/// Whether `rows` rows are multiplied with a packed weight `[outputs, inputs]` by the fused kernel, which makes nothing but its
/// output (`_gemm_4bit_use_custom_cuda` of bitsandbytes 0.50.2, whose calibration by card these numbers are; 0.50.0 took those
/// of 8.9 for compute capability 12.1). Of fake tensors and of AMD's cards, whose generation the catalog does not say, only what
/// holds everywhere is taken: there the weight is dequantized, which is the larger.
pub(super) fn is_fused(machine: &Machine, dtype: DType, rows: u64, [outputs, inputs]: [u64; 2]) -> bool {
    if rows > NEVER_BEYOND || !inputs.is_multiple_of(super::four_bit::BLOCK) {
        return false;
    }
    if rows <= ALWAYS {
        return true;
    }
    let Kernels::Cuda(major, minor) = machine.kernels else { return false };
    let sms = machine.multiprocessors;
    // Kernels that run without tensor cores win for few rows alone.
    if dtype == DType::Float32 || major < 7 || (major == 7 && (minor < 5 || dtype != DType::Float16)) {
        return rows < 8;
    }
    let shape = Shape { rows, outputs, inputs, blocks: outputs.div_ceil(64), sms };
    match (major, minor) {
        (8, 7) | (11, _) => false,
        (10, _) => rows <= shape.most_of_blackwell_servers(),
        _ => {
            let card = match (major, minor) {
                (7, 5) => Card::T4,
                (8, 0) => Card::A100,
                (8, 6) => Card::Ampere,
                (9, _) => Card::Hopper,
                (12, 0) => Card::Blackwell,
                (12, 1) => Card::Spark,
                _ => Card::Ada,
            };
            if outputs.saturating_mul(inputs) < SMALL_WEIGHT {
                rows <= shape.most_of_small(card)
            } else if rows < 8 {
                !shape.is_lost_by_few_rows(card)
            } else {
                rows <= 512 && rows <= shape.most(card)
            }
        }
    }
}

/// What the thresholds tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Card {
    /// Compute capability 7.5.
    T4,
    /// 8.0.
    A100,
    /// 8.6.
    Ampere,
    /// 8.9, and whatever is not known.
    Ada,
    /// 9.0.
    Hopper,
    /// 12.0.
    Blackwell,
    /// 12.1.
    Spark,
}

impl Card {
    const fn has_hbm(self) -> bool {
        matches!(self, Self::A100 | Self::Hopper)
    }
}

/// A product, in the kernel's terms: `rows` of `inputs` numbers each with a weight of `outputs` rows, 64 of them a block.
#[derive(Clone, Copy, Debug)]
struct Shape {
    rows: u64,
    outputs: u64,
    inputs: u64,
    blocks: u64,
    sms: u64,
}

impl Shape {
    /// Compute capability 10: the most rows that are fused.
    const fn most_of_blackwell_servers(self) -> u64 {
        match self.blocks {
            blocks if blocks >= self.sms * 3 => 32,
            blocks if blocks >= self.sms && self.inputs < self.outputs => 8,
            _ => 0,
        }
    }

    /// Of a weight below four million numbers.
    const fn most_of_small(self, card: Card) -> u64 {
        let Self { rows, outputs, inputs, blocks, sms } = self;
        if inputs * 2 < outputs {
            return match card {
                Card::A100 if blocks * 3 < sms => 1536,
                Card::A100 => 512,
                Card::Hopper if blocks * 3 < sms => 512,
                Card::Hopper => 320,
                Card::T4 => match inputs {
                    _ if blocks >= sms * 3 => 320,
                    1024.. => 64,
                    704.. => 96,
                    _ => 320,
                },
                _ if blocks < sms && blocks * inputs > sms * 320 => 192,
                _ => 320,
            };
        }
        let quarter_wave = blocks * 4 <= sms;
        match card {
            Card::A100 if quarter_wave => match inputs >= outputs {
                true if blocks * 8 <= sms => 32,
                true => 128,
                false => 384,
            },
            Card::T4 if blocks < sms && rows > 8 => 64,
            _ if quarter_wave => {
                if inputs < outputs || card.has_hbm() {
                    32
                } else {
                    23
                }
            }
            _ if blocks * 2 <= sms => 16,
            _ => 0,
        }
    }

    /// Five to seven rows are fused but in a few places.
    const fn is_lost_by_few_rows(self, card: Card) -> bool {
        let Self { rows, outputs, inputs, blocks, sms } = self;
        if !card.has_hbm() || rows < 6 || blocks < if matches!(card, Card::Hopper) { 36 } else { 48 } {
            return false;
        }
        let (below_three_quarters, below_three_fifths) = (blocks * 4 < sms * 3, blocks * 5 < sms * 3);
        if inputs > outputs && below_three_quarters {
            return true;
        }
        inputs == outputs
            && match card {
                Card::A100 => below_three_fifths,
                _ => below_three_quarters && !below_three_fifths,
            }
    }

    /// Of eight rows and more with a weight that is not small.
    const fn most(self, card: Card) -> u64 {
        let Self { outputs, inputs, blocks, sms, .. } = self;
        let (wide, tall) = (inputs < outputs, inputs > outputs * 2);
        match card {
            Card::T4 if blocks >= sms * 3 => {
                if wide {
                    128
                } else {
                    64
                }
            }
            Card::T4 => {
                if blocks >= sms / 2 {
                    64
                } else {
                    32
                }
            }
            Card::A100 => match () {
                () if blocks >= sms * 3 => 128,
                () if blocks >= sms => {
                    if wide {
                        64
                    } else {
                        32
                    }
                }
                () if inputs >= outputs * 3 && blocks * 4 > sms => 0,
                () if inputs == outputs && blocks >= 48 && blocks * 5 < sms * 3 => 0,
                () if blocks * 2 < sms && inputs <= outputs => 128,
                () if blocks * 2 < sms && blocks * 3 >= sms => 0,
                () if blocks >= sms / 2 && wide => 128,
                () => 16,
            },
            Card::Ampere => match () {
                () if blocks >= sms => 128,
                () if blocks >= sms / 2 => 64,
                () => 16,
            },
            Card::Hopper => match () {
                () if blocks >= sms * 3 => 64,
                () if blocks >= sms * 2 => 48,
                () if blocks >= sms => 32,
                () if blocks < sms / 2 || (!wide && blocks * 4 < sms * 3) => 0,
                () => 16,
            },
            Card::Spark if blocks >= sms => 256,
            Card::Blackwell => match () {
                () if blocks >= sms * 3 => 256,
                () if blocks >= sms * 2 => 128,
                () if blocks * 5 >= sms * 4 => {
                    if wide {
                        64
                    } else {
                        96
                    }
                }
                () if blocks >= sms / 2 => {
                    if inputs * 2 >= outputs && blocks >= 128 {
                        64
                    } else {
                        8
                    }
                }
                () if tall && blocks > 64 => 16,
                () => 8,
            },
            Card::Ada | Card::Spark => match () {
                () if blocks >= sms * 3 => 256,
                () if blocks >= sms * 2 => 128,
                () if blocks * 5 >= sms * 4 => match () {
                    () if tall || blocks >= 200 => 128,
                    () if wide => 64,
                    () => {
                        if sms >= 60 {
                            128
                        } else {
                            32
                        }
                    }
                },
                () if blocks >= sms / 2 => match () {
                    () if tall => 64,
                    () => {
                        if blocks >= 64 {
                            8
                        } else {
                            32
                        }
                    }
                },
                () if inputs > outputs && blocks <= 48 => {
                    if inputs >= outputs * 3 {
                        12
                    } else {
                        10
                    }
                }
                () => {
                    if tall || blocks < 48 {
                        16
                    } else {
                        8
                    }
                }
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::is_fused;
    use crate::tensor::{DType, Kernels, Machine};

    const FLOAT: DType = DType::Float32;
    const HALF: DType = DType::Float16;

    fn machine(multiprocessors: u64, major: u8, minor: u8) -> Machine {
        Machine { kernels: Kernels::Cuda(major, minor), multiprocessors, ..Machine::default() }
    }

    /// What `_gemm_4bit_use_custom_cuda` of 0.50.2 answers: the most rows of 8 and more, none where it is 0. Of 40,000 products
    /// drawn by lot (twelve cards, twenty sizes either way, 5 to 1,536 rows, three dtypes) it answered as this does.
    #[test]
    fn thresholds_are_those_of_the_library() {
        let most = [
            ((40, 7, 5), [[4096, 4096, 64], [11008, 4096, 128], [1024, 4096, 32], [2048, 512, 320]]),
            ((108, 8, 0), [[4096, 4096, 0], [11008, 4096, 64], [4096, 11008, 16], [2048, 512, 1536]]),
            ((84, 8, 6), [[4096, 4096, 64], [11008, 4096, 128], [512, 2048, 23], [2048, 512, 320]]),
            ((128, 8, 9), [[4096, 4096, 8], [14336, 4096, 128], [32000, 4096, 256], [1024, 4096, 12]]),
            ((132, 9, 0), [[4096, 4096, 0], [11008, 4096, 32], [4864, 896, 16], [2048, 512, 512]]),
            ((148, 10, 0), [[4096, 4096, 0], [11008, 4096, 8], [32000, 4096, 32], [512, 2048, 0]]),
            ((70, 12, 0), [[4096, 4096, 96], [11008, 4096, 128], [14336, 4096, 256], [1024, 4096, 8]]),
            ((48, 12, 1), [[4096, 4096, 256], [1024, 4096, 12], [512, 2048, 23], [2048, 512, 192]]),
        ];
        for ((sms, major, minor), cases) in most {
            for [outputs, inputs, most] in cases {
                let fused = |rows| is_fused(&machine(sms, major, minor), HALF, rows, [outputs, inputs]);
                let found = (8..=2048).filter(|rows| fused(*rows)).max().unwrap_or(0);
                assert_eq!(found, most, "{major}.{minor}, {outputs} x {inputs}");
            }
        }
    }

    #[test]
    fn few_rows_are_fused_on_any_card_and_odd_widths_on_none() {
        for machine in [Machine::default(), machine(132, 9, 0)] {
            assert!(is_fused(&machine, HALF, 4, [4096, 4096]) && !is_fused(&machine, HALF, 4, [4096, 4100]));
        }
        assert!(!is_fused(&Machine::default(), HALF, 5, [4096, 4096]));
        // Without tensor cores for the dtype.
        assert!(is_fused(&machine(70, 12, 0), FLOAT, 7, [4096, 4096]));
        assert!(!is_fused(&machine(70, 12, 0), FLOAT, 8, [4096, 4096]));
        // Six rows of a tall weight on an A100.
        assert!(is_fused(&machine(108, 8, 0), HALF, 5, [4096, 11008]));
        assert!(!is_fused(&machine(108, 8, 0), HALF, 6, [4096, 11008]));
    }
}
