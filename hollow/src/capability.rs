//! What follows from a compute capability: the CUDA C++ Programming Guide, "Technical Specifications per Compute Capability".

/// Figures of one compute capability.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Capability {
    /// Threads that one multiprocessor holds at once.
    pub threads: u32,
    /// Blocks that one multiprocessor holds at once.
    pub blocks: u32,
    /// Shared memory of one multiprocessor, bytes.
    pub shared: u32,
    /// Shared memory that a block can ask for, bytes.
    pub shared_opt_in: u32,
    /// Shared memory that the system keeps of each block, bytes.
    pub shared_reserved: u32,
    /// Level-2 cache, bytes: of a typical card; nothing in PyTorch's memory depends on it.
    pub cache: u32,
}

/// 32-bit registers of a multiprocessor; the same for all of them.
pub(crate) const REGISTERS: u32 = 65536;

const KIB: u32 = 1024;

/// The figures. An unknown capability takes those of the nearest earlier one.
pub(crate) fn capability((major, minor): (u32, u32)) -> Capability {
    let (threads, blocks, shared, cache) = match (major, minor) {
        (..=6, _) => (2048, 32, 64, 4096),
        (7, 5) => (1024, 16, 64, 4096),
        (7, _) => (2048, 32, 96, 6144),
        (8, 0) => (2048, 32, 164, 40960),
        (8, 7) => (1536, 16, 164, 4096),
        (8, 6) => (1536, 16, 100, 4096),
        (8, _) => (1536, 24, 100, 49152),
        (9..=11, _) => (2048, 32, 228, 51200),
        (12.., _) => (1536, 24, 100, 65536),
    };
    // From 8.0 on the system keeps 1 KiB of shared memory per block, and a block can ask for what is left.
    let reserved = if major >= 8 { 1 } else { 0 };
    let opt_in = if major <= 6 { 48 } else { shared - reserved };
    Capability {
        threads,
        blocks,
        shared: shared * KIB,
        shared_opt_in: opt_in * KIB,
        shared_reserved: reserved * KIB,
        cache: cache * KIB,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_guides_table() {
        let ampere = capability((8, 0));
        assert_eq!((ampere.threads, ampere.blocks), (2048, 32));
        assert_eq!((ampere.shared, ampere.shared_opt_in), (167_936, 166_912));
        assert_eq!(capability((9, 0)).shared_opt_in, 232_448);
        assert_eq!(capability((8, 6)).threads, 1536);
        assert_eq!(capability((12, 0)).shared_opt_in, 101_376);
        assert_eq!(capability((7, 5)).shared_opt_in, 65_536);
    }
}
