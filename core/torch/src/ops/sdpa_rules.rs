//! Which kernel `scaled_dot_product_attention` picks.
//!
//! After `aten/src/ATen/native/transformers/cuda/sdp_utils.cpp`.

use plimsoll_catalog::software::{Rules, rules};

use crate::tensor::DType;

/// The kernels behind `scaled_dot_product_attention`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kernel {
    /// cuDNN's fused attention.
    Cudnn,
    /// FlashAttention-2.
    Flash,
    /// Memory-efficient attention (CUTLASS).
    Efficient,
    /// Matmuls and a softmax; every score is kept.
    Math,
}

/// What the choice depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// Of queries, keys and values.
    pub dtype: DType,
    /// Elements of a head of queries and keys.
    pub head: u64,
    /// Elements of a head of values.
    pub value_head: u64,
    /// How many keys there are.
    pub keys: u64,
    /// Fewer heads of keys than of queries.
    pub grouped: bool,
    /// There is a mask.
    pub mask: bool,
    /// The mask wants a gradient.
    pub mask_gradient: bool,
    /// The mask's rows do not lie together: every fused kernel of CUDA refuses it (`check_last_dim_stride_equals_1_dense` in
    /// `sdp_utils_cpp.h`).
    pub mask_strided: bool,
    /// Probabilities are dropped.
    pub dropout: bool,
    /// Whether query, key or value want a gradient: never in inference, nor before the first adapter.
    pub gradient: bool,
}

/// Which kernels a card has, in the order they are tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SdpaRules {
    /// Tried in this order; math always works.
    order: Vec<Kernel>,
    /// The largest head cuDNN takes.
    cudnn_head: u64,
    /// Whether cuDNN takes [`LATENT`] as well.
    cudnn_latent: bool,
    /// The largest head flash takes.
    flash_head: u64,
    /// The largest head flash trains; on some cards larger ones again.
    flash_training: FlashTraining,
    /// Compute capability 8.0 and up: the memory-efficient kernel takes bfloat16, and float32 goes through tensor cores,
    /// which want heads in multiples of 4 (`minimum_gemm_alignment`).
    tensor_cores: bool,
    /// Whether the memory-efficient kernel takes grouped heads.
    efficient_groups: bool,
    /// Whether the memory-efficient kernel wants values as wide as queries: it does where it shares flash's code
    /// (`check_head_dim_size_flash<caller_is_meff>`).
    equal_heads: bool,
}

/// DeepSeek's heads of queries and of values, which `check_cudnn_tensor_shapes` names.
const LATENT: (u64, u64) = (192, 128);

/// What a card's shared memory leaves of flash's backward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FlashTraining {
    /// All heads that its forward takes.
    All,
    /// None of 193 to 224, none above with dropout (`check_requires_grad_and_head_dim_gt192_constraints_on_sm86_89_or_120`).
    SmallMemory,
    /// None above 64 (`check_requires_grad_and_head_dim_gt64_and_sm_ge86_lt90`, before FlashAttention-2).
    UpTo64,
}

impl SdpaRules {
    /// The rules of a CUDA card (`priority_order` in `sdp_utils.cpp`; flash needs compute capability 8.0).
    pub fn cuda(compute_capability: (u8, u8), software: Rules) -> Self {
        let cudnn = software.has(&rules::CUDNN_BUNDLED) && matches!(compute_capability.0, 9 | 10);
        let order = match compute_capability.0 {
            _ if cudnn => vec![Kernel::Cudnn, Kernel::Flash, Kernel::Efficient],
            8.. => vec![Kernel::Flash, Kernel::Efficient],
            _ => vec![Kernel::Efficient],
        };
        let flash_2 = software.has(&rules::FLASH_2);
        Self {
            order,
            // check_cudnn_tensor_shapes(): 256 on Hopper, 128 elsewhere, asked of PyTorch 2.11 itself.
            cudnn_head: if compute_capability.0 == 9 { 256 } else { 128 },
            // Read in PyTorch 2.11, which brings the cuDNN it asks for.
            cudnn_latent: compute_capability.0 == 10 && software.has(&rules::CUDNN_BUNDLED),
            flash_head: if flash_2 { 256 } else { 128 },
            flash_training: match compute_capability {
                (8, 6..=9) if !flash_2 => FlashTraining::UpTo64,
                (8, 6..=9) | (12, _) => FlashTraining::SmallMemory,
                _ => FlashTraining::All,
            },
            tensor_cores: compute_capability.0 >= 8,
            efficient_groups: software.has(&rules::EFFICIENT_GROUPS),
            equal_heads: false,
        }
    }

    /// ROCm builds: flash and efficient attention come from AOTriton.
    pub fn rocm() -> Self {
        Self {
            order: vec![Kernel::Flash, Kernel::Efficient],
            cudnn_head: 0,
            cudnn_latent: false,
            flash_head: 256,
            flash_training: FlashTraining::All,
            tensor_cores: true,
            efficient_groups: false,
            equal_heads: true,
        }
    }

    /// Where no fused kernel is modelled.
    pub fn math_only() -> Self {
        Self {
            order: Vec::new(),
            cudnn_head: 0,
            cudnn_latent: false,
            flash_head: 0,
            flash_training: FlashTraining::All,
            tensor_cores: false,
            efficient_groups: false,
            equal_heads: false,
        }
    }

    /// The kernel of one call.
    pub fn select(&self, call: &Call) -> Kernel {
        let &Call { dtype, head, value_head, .. } = call;
        let wider = head.max(value_head);
        let trains = match self.flash_training {
            _ if !call.gradient => true,
            FlashTraining::All => true,
            FlashTraining::SmallMemory => !((193..=224).contains(&head) || (head > 224 && call.dropout)),
            FlashTraining::UpTo64 => head <= 64,
        };
        let fits = |kernel: &Kernel| match kernel {
            // check_for_attn_mask_cudnn() refuses a mask that requires grad.
            Kernel::Cudnn => {
                let aligned = head.is_multiple_of(8) && value_head.is_multiple_of(8);
                let head_fits =
                    aligned && (wider <= self.cudnn_head || (self.cudnn_latent && (head, value_head) == LATENT));
                dtype.is_half() && head_fits && call.keys != 1 && !call.mask_gradient
            }
            // check_head_dim_size_flash(): values are as wide as queries.
            Kernel::Flash => dtype.is_half() && !call.mask && head == value_head && head <= self.flash_head && trains,
            Kernel::Efficient => {
                let alignment = match (dtype.is_half(), self.tensor_cores) {
                    (true, _) => 8,
                    (false, true) => 4,
                    (false, false) => 1,
                };
                (!call.grouped || self.efficient_groups)
                    && head.is_multiple_of(alignment)
                    && value_head.is_multiple_of(alignment)
                    && (head == value_head || !self.equal_heads)
                    && (dtype != DType::BFloat16 || self.tensor_cores)
            }
            Kernel::Math => true,
        };
        if call.mask_strided {
            return Kernel::Math;
        }
        self.order.iter().copied().find(fits).unwrap_or(Kernel::Math)
    }
}
