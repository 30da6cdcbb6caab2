//! The largest values a scenario may hold: far above anything trained, low enough that no product of them surprises.

use plimsoll_ground::Bytes;

/// Longest text read as a scenario, in bytes (1 MiB; a real one is a few hundred bytes, a big `config.json` 100 KiB).
pub const TEXT: usize = 1 << 20;

/// Longest pasted `config.json`, in bytes of JSON without white space. Incompressible, it still fits the fragment of
/// a share link: 4/3 of it is 64,000 characters.
pub const CONFIG: usize = 48_000;

/// Largest micro-batch, in samples.
pub const BATCH: u64 = 1 << 24;

/// Longest sequence, in tokens or nodes.
pub const SEQ: u64 = plimsoll_catalog::families::LONGEST;

/// Most tokens in one micro-batch (batch x seq).
pub const TOKENS: u64 = 1 << 32;

/// Most nodes of a graph: dense graph attention holds a matrix of nodes x nodes.
pub const NODES: u64 = 1 << 20;

/// Most pixels in one micro-batch (batch x image x image).
pub const PIXELS: u64 = 1 << 36;

/// Largest side of an image, in pixels.
pub const IMAGE: u64 = 1 << 14;

/// Most micro-batches in one optimizer step.
pub const ACCUMULATION: u64 = 1 << 20;

/// Most layers of a stack.
pub const LAYERS: u64 = 1 << 16;

/// Most cards that train together.
pub const CARDS: u64 = 1 << 16;

/// Most cards in one machine.
pub const CARDS_OF_A_NODE: u64 = 1 << 10;

/// Largest bucket of DeepSpeed's, in numbers.
pub const ZERO_BUCKET: u64 = 100_000_000_000;

/// Largest bucket of gradients, in MiB.
pub const BUCKET: u64 = 1 << 20;

/// Fewest optimizer steps that are run: the first makes lazy state, the second is the steady one.
pub const STEPS_LEAST: u64 = 2;

/// Most optimizer steps that are run.
pub const STEPS: u64 = 16;

/// Largest rank of an adapter.
pub const RANK: u64 = 1 << 16;

/// Most module names an adapter may target.
pub const TARGETS: usize = 64;

/// Longest module name an adapter may target, in characters.
pub const TARGET_NAME: usize = 128;

/// Least memory a device may be given: less is a forgotten unit (`memory = 12`).
pub const MEMORY_LEAST: Bytes = Bytes::from_mib(1);

/// Most memory a device may be given (1 PiB).
pub const MEMORY_MOST: Bytes = Bytes::from_gib(1 << 20);

/// Smallest size from which blocks are not split, in MiB: PyTorch wants it above `kLargeBuffer`, 20 MiB.
pub const SPLIT_LEAST: u64 = 21;

/// Largest size from which blocks are not split, in MiB.
pub const SPLIT: u64 = 1 << 20;

/// The most page-locked memory that is reserved at once, in MiB: a terabyte.
pub const PINNED_RESERVE: u64 = 1 << 20;

/// Most buffers that DeepSpeed swaps through, and most threads it swaps with.
pub const SWAP_BUFFERS: u64 = 1 << 10;

/// Most steps between two powers of two.
pub const DIVISIONS: u64 = 64;
