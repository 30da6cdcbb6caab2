//! `[allocator]`: what of PyTorch's allocator can be set from outside.

use plimsoll_ground::{Error, Result};

use super::lever::{Kind, Near, Written, levers};
use super::{CublasWorkspace, Scenario, limits};

levers! {
    /// `[allocator]`: what goes through PyTorch's caching allocator beside tensors.
    pub struct Allocator = "allocator", allocator of Scenario {
        /// What stands in `CUBLAS_WORKSPACE_CONFIG`: the workspace that every handle of cuBLAS keeps. Of no effect on versions of
        /// PyTorch that take none from the allocator, or where `device.workspaces` is off.
        pub cublas_workspace: CublasWorkspace = CublasWorkspace::Default => {
            link: "cublas",
            label: "cuBLAS workspace",
            help: "CUBLAS_WORKSPACE_CONFIG, as it is set in the environment",
            written: Written::WhereItSays,
            near: Near::unlike(0.25),
        }
        /// Whether segments grow where they lie (`expandable_segments:True`).
        pub expandable_segments: bool = false => {
            link: "expandable",
            label: "Segments that grow",
            help: "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True: what is reserved stays closer to what is allocated",
            written: Written::WhereItSays,
            near: Near::unlike(0.25),
        }
        /// Blocks of so many MiB and more are not split (`max_split_size_mb`); 0: all may be.
        pub max_split_size_mb: u64 = 0 => {
            link: "max_split",
            kind: Kind::Amount { least: limits::SPLIT_LEAST, most: limits::SPLIT },
            label: "Not split from",
            help: "PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb, in MiB: larger blocks are not split; 0 where it is not set",
            written: Written::WhereItSays,
            near: Near::unlike(0.25),
        }
        /// In how many steps sizes between two powers of two are rounded up (`roundup_power2_divisions`), one number for all sizes; 0
        /// and 1: they are not.
        pub roundup_power2_divisions: u64 = 0 => {
            link: "roundup",
            kind: Kind::Power { most: limits::DIVISIONS },
            label: "Rounded up in steps",
            help: "PYTORCH_CUDA_ALLOC_CONF=roundup_power2_divisions: steps between two powers of two; 0 where it is not set",
            written: Written::WhereItSays,
            near: Near::unlike(0.25),
        }
        /// Above which share of what may be reserved blocks that were not used for long go back (`garbage_collection_threshold`); 0: never.
        /// PyTorch looks at it only beside `per_process_memory_fraction`.
        pub garbage_collection_threshold: f64 = 0.0 => {
            link: "gc_threshold",
            label: "Collected above",
            help: "PYTORCH_CUDA_ALLOC_CONF=garbage_collection_threshold, 0 to below 1; says nothing without a memory fraction",
            written: Written::WhereItSays,
            near: Near::unlike(0.25),
        }
        /// Page-locked memory of the machine that PyTorch takes with its first page-locked block, in MiB; blocks lie in it while there is room
        /// (`pinned_reserve_segment_size_mb`); 0: none. The other settings of page-locked memory (`pinned_use_cuda_host_register`,
        /// `pinned_num_register_threads`, `pinned_use_background_threads`) change the time that it takes, and no byte.
        pub pinned_reserve_segment_size_mb: u64 = 0 => {
            link: "pinned_reserve",
            kind: Kind::Amount { least: 1, most: limits::PINNED_RESERVE },
            label: "Page-locked ahead",
            help: "PYTORCH_CUDA_ALLOC_CONF=pinned_reserve_segment_size_mb, in MiB: page-locked with the first such block; 0 where it is not set",
            written: Written::WhereItSays,
            near: Near::unlike(0.25),
        }
        /// The share of the card that may be reserved (`torch.cuda.set_per_process_memory_fraction`, or the setting of that name); 0:
        /// all of it.
        pub per_process_memory_fraction: f64 = 0.0 => {
            link: "fraction",
            label: "Share of the card",
            help: "set_per_process_memory_fraction, 0 to below 1: what may be reserved; 0 where it is not set",
            written: Written::WhereItSays,
            near: Near::unlike(0.25),
        }
    }
}

/// Whether PyTorch takes these settings.
///
/// # Errors
/// What it refuses, in its own terms.
pub fn check(scenario: &Scenario) -> Result<()> {
    let said = &scenario.allocator;
    if said.garbage_collection_threshold > 0.0 && said.per_process_memory_fraction == 0.0 {
        return Err(Error::new(
            at::garbage_collection_threshold,
            "PyTorch does not look at it unless a share of the card is set",
            "set per_process_memory_fraction too, or leave it out",
        ));
    }
    Ok(())
}
