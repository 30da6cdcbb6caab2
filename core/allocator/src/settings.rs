//! What `PYTORCH_CUDA_ALLOC_CONF` sets of the caching allocator.

use plimsoll_ground::Bytes;

/// Settings of the caching allocator, as `c10/core/AllocatorConfig.h` and `c10/cuda/CUDAAllocatorConfig.h` have them; each default is
/// PyTorch's.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Settings {
    /// `expandable_segments`: segments that grow where they lie, a page of 2 or 20 MiB at a time.
    pub expandable_segments: bool,
    /// `max_split_size_mb`: blocks of this size and above are not split.
    pub max_split_size: Option<Bytes>,
    /// `roundup_power2_divisions`: between two powers of two, requests are rounded up to one of so many steps; 0 and 1: they are not.
    pub roundup_power2_divisions: u64,
    /// `garbage_collection_threshold`, in parts of [`Settings::WHOLE`] of what may be reserved: above it, blocks that were not used for long go back to
    /// the driver. PyTorch looks at it only where a fraction is set.
    pub garbage_collection_threshold: u64,
    /// `per_process_memory_fraction` (or `torch.cuda.set_per_process_memory_fraction`): what may be reserved.
    pub allowed: Option<Bytes>,
    /// Whether the driver lays every segment below the last instead of above it. PyTorch has no say in it: of equal blocks it takes the
    /// one that lies lowest.
    pub falling: bool,
    /// The memory of the card: 1 1/8 of it are the addresses of a segment that grows. None: without end.
    pub card: Option<Bytes>,
}

impl Settings {
    /// A share of one.
    pub const WHOLE: u64 = 1_000_000_000;

    /// Whether the allocator does what it does where nothing is set.
    pub fn is_default(&self) -> bool {
        let Self { expandable_segments, max_split_size, roundup_power2_divisions, allowed, .. } = self;
        !expandable_segments && max_split_size.is_none() && *roundup_power2_divisions < 2 && allowed.is_none()
    }

    /// `round_size`: what a request is rounded up to, in bytes.
    pub(crate) fn round(&self, size: u64) -> u64 {
        const STEP: u64 = 512;
        let divisions = self.roundup_power2_divisions;
        if divisions < 2 || size <= STEP * divisions || size.is_power_of_two() {
            return size.max(1).next_multiple_of(STEP);
        }
        // `roundup_power2_next_division`
        let floor = 1u64 << size.ilog2();
        match floor >> divisions.ilog2() {
            0 => floor << 1,
            step => size.next_multiple_of(step),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of PyTorch's notes on CUDA (`roundup_power2_divisions`): 1200 with four divisions goes to 1280.
    #[test]
    fn requests_go_up_to_a_division_of_the_next_power_of_two() {
        let four = Settings { roundup_power2_divisions: 4, ..Settings::default() };
        // Up to 512 times the divisions nothing but the least block counts.
        assert_eq!(four.round(1200), 1536);
        assert_eq!(four.round(1200 << 10), 1280 << 10);
        assert_eq!(four.round(1 << 20), 1 << 20);
        assert_eq!(four.round((1 << 20) + 1), (1 << 20) + (1 << 18));
        assert_eq!(Settings::default().round(1200 << 10), 1200 << 10);
        assert_eq!(Settings::default().round(1), 512);
    }
}
