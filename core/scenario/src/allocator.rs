//! `[allocator]`: what of PyTorch's allocator can be set from outside.

use super::lever::{Near, Written, levers};
use super::{CublasWorkspace, Scenario};

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
    }
}
