//! The matrix libraries' workspaces, which PyTorch takes from its own allocator.

use plimsoll_ground::Bytes;

use crate::Gpu;
use crate::Vendor;
use crate::software::Version;

/// `:4096:2:16:8`, cuBLAS' own default written out by PyTorch: two pools of 4 MiB and eight of 16 KiB.
const CUBLAS_DEFAULT: Bytes = Bytes::from_kib(2 * 4096 + 8 * 16);
/// What NVIDIA recommends from Hopper on, and hipBLAS' default.
const LARGE: Bytes = Bytes::from_mib(32);
/// hipBLAS on gfx94x and gfx95x.
const HIP_INSTINCT: Bytes = Bytes::from_mib(128);

/// What one workspace takes with this version of PyTorch. Where it is kept there is one per handle and stream: one for the forward's
/// thread, one for the backward's.
///
/// From `parseChosenWorkspaceSize` in `aten/src/ATen/cuda/CublasHandlePool.cpp`, as it changed:
///
/// * PyTorch hands cuBLAS its workspace since 2.0 (86167, 89027); before, the library had its own, outside the allocator;
/// * compute capability 9.0 has 32 MiB, everything else 8,519,680 bytes (pytorch pull request 91564, PyTorch 2.0);
/// * majors 10 and 12, Blackwell, have 32 MiB too from 2.12 on (175344, opened when the branch of 2.11 was already cut);
/// * from 2.15 on every product takes one as large and gives it back (`getCurrentCUDABlasHandleWithWorkspace`; seen in PyTorch
///   2.15.0 on a hollow card), unless `TORCH_CUBLAS_WORKSPACE_CACHE=1`; the library's own, outside the allocator, is for
///   handles that others ask for;
/// * ROCm takes it from the allocator since 2.6 (138791): 32 MiB, 128 MiB on MI300 and later. hipBLASLt's own 76 MiB are
///   not counted.
///
/// Apple's libraries have none. `CUBLAS_WORKSPACE_CONFIG` and its siblings override all this.
pub fn cublas_workspace(gpu: &Gpu, torch: Version) -> Workspace {
    let kept = gpu.vendor != Vendor::Nvidia || torch < EACH;
    let bytes = match gpu.vendor {
        Vendor::Nvidia if torch < Version::new(2, 0) => Bytes::ZERO,
        Vendor::Nvidia => match gpu.compute_capability {
            Some((9, 0)) => LARGE,
            Some((10 | 12, _)) if torch >= Version::new(2, 12) => LARGE,
            _ => CUBLAS_DEFAULT,
        },
        Vendor::Amd if torch < Version::new(2, 6) => Bytes::ZERO,
        Vendor::Amd if matches!(gpu.architecture, "cdna3" | "cdna4") => HIP_INSTINCT,
        Vendor::Amd => LARGE,
        Vendor::Apple => Bytes::ZERO,
    };
    Workspace { bytes, kept }
}

/// The first version whose products take a workspace each and give it back.
const EACH: Version = Version::new(2, 15);

/// What a matrix library works in; by default nothing is counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Workspace {
    /// How much; 0 where there is none, or none is counted.
    pub bytes: Bytes,
    /// Whether the first product's stays, one for each handle; else every product takes one and gives it back.
    pub kept: bool,
}

impl Workspace {
    /// None is counted.
    pub const NONE: Self = Self { bytes: Bytes::ZERO, kept: true };

    /// cuBLASLt's beside cuBLAS's of this size: where it is kept it is no larger (`getCUDABlasLtWorkspaceSize` in
    /// `CublasHandlePool.cpp`; seen in PyTorch 2.11 on a hollow card with `CUBLAS_WORKSPACE_CONFIG` set to `:16:8` and `:0:0`).
    #[must_use]
    pub fn beside(self, blas: Bytes) -> Self {
        if self.kept { Self { bytes: self.bytes.min(blas), ..self } } else { self }
    }
}

/// What cuBLASLt takes beside it for a product that adds a bias.
///
/// 1 MiB since 1.12 (73439; `CUBLASLT_WORKSPACE_SIZE`). Since 2.9 one for every handle and stream is kept (156495:
/// `getCUDABlasLtWorkspace` in `CublasHandlePool.cpp`); before, each product took one and gave it back (`gemm_and_bias` in
/// `CUDABlas.cpp`; seen in PyTorch 2.6 on a hollow card). 2.11.0 still has it beside cuBLAS's own, which
/// `TORCH_CUBLASLT_UNIFIED_WORKSPACE=1` makes it share; from 2.12 on sharing is the default (168175, whose reading of the
/// variable 175879 mended in March 2026). Since 2.15 nothing is shared unless it is kept, so each product takes one again and gives
/// it back (`unified_cublas_and_lt_workspaces`). hipBLASLt's is not counted.
pub fn cublaslt_workspace(gpu: &Gpu, torch: Version) -> Workspace {
    let shared = torch >= Version::new(2, 12) && torch < EACH;
    let bytes = if gpu.vendor == Vendor::Nvidia && !shared { Bytes::from_mib(1) } else { Bytes::ZERO };
    Workspace { bytes, kept: torch >= Version::new(2, 9) && torch < EACH }
}
