//! What changed in PyTorch.

use super::{Rule, torch};

/// Fused attention.
pub const SDPA: Rule = torch(
    2,
    0,
    "there is scaled_dot_product_attention; before, attention is eager",
    "torch/nn/functional.py of the wheels 1.13.1 and 2.0.1",
);

/// The default implementation of optimizers.
pub const FOREACH: Rule = torch(
    2,
    0,
    "optimizers work on lists of tensors (foreach) when nothing is said; before, tensor by tensor",
    "torch/optim/adamw.py of the wheels 1.13.1 (foreach = False) and 2.0.1 (_default_to_fused_or_foreach)",
);

/// The default of `zero_grad`.
pub const SET_TO_NONE: Rule = torch(
    2,
    0,
    "zero_grad() lets go of the gradients when nothing is said; before, it kept them and wrote zeros",
    "torch/optim/optimizer.py of the wheels 1.13.1 and 2.0.1",
);

/// How gradients are clipped.
pub const FOREACH_CLIP: Rule = torch(
    2,
    0,
    "clip_grad_norm_ takes all norms in one foreach kernel, which has a buffer of its own",
    "torch/nn/utils/clip_grad.py of the wheels 1.13.1 and 2.0.1",
);

/// What foreach Adam allocates.
pub const ONE_ADAM_LIST: Rule = torch(
    2,
    1,
    "foreach Adam and AdamW make one temporary as large as the parameters; before, two (the roots, and the roots plus eps)",
    "torch/optim/adamw.py of the wheels 2.0.1 and 2.1.2",
);

/// What a mean keeps.
pub const MEAN_KEEPS_SIZES: Rule = torch(
    2,
    2,
    "a mean over dimensions keeps the sizes of what it was given for its backward; before, what it was given",
    "pytorch issue 109876 and pull request 109935 (September 2023); MeanBackward1._saved_self of PyTorch 2.1.2",
);

/// FlashAttention-2.
pub const FLASH_2: Rule = torch(
    2,
    2,
    "flash attention takes heads of up to 256, and trains heads above 64 on compute capability 8.6 and 8.9; before, 128 and 64",
    "aten/src/ATen/native/transformers/cuda/sdp_utils.cpp; release notes of PyTorch 2.2",
);

/// Where flash attention keeps its seed.
pub const FLASH_STATE: Rule = torch(
    2,
    7,
    "flash attention keeps the state of its random numbers on the card, 16 bytes and an empty tensor; before, on the host",
    "pytorch pull request 146372 (March 2025); none of it in PyTorch 2.6.0 on a hollow card, both in 2.11.0",
);

/// How many blocks flash attention counts on a multiprocessor when it decides among how many the keys of a head are shared.
pub const FLASH_TWICE: Rule = torch(
    2,
    5,
    "flash attention counts two blocks on every multiprocessor when it shares out keys; before, one",
    "set_params_splitkv in aten/src/ATen/native/transformers/cuda/flash_attn/flash_api.cpp; PyTorch 2.4.1, 2.5.1 and 2.11.0 on a hollow L4",
);

/// Hooks behind the accumulation of a gradient.
pub const POST_ACCUMULATE_HOOKS: Rule = torch(
    2,
    1,
    "there is Tensor.register_post_accumulate_grad_hook: a parameter can be stepped as soon as its gradient is there",
    "torch/_tensor.py of the wheels 2.0.1 and 2.1.0",
);

/// Selective checkpoints.
pub const SELECTIVE_CHECKPOINTS: Rule = torch(
    2,
    5,
    "there is create_selective_checkpoint_contexts: checkpoints can keep what some operators make",
    "torch/utils/checkpoint.py of the wheels 2.4.0 and 2.5.0",
);

/// A product of half numbers summed in float32.
pub const PRODUCTS_SUM_WIDER: Rule = torch(
    2,
    8,
    "torch.addmm(out_dtype=torch.float32) sums a product of half numbers in float32; before, TRL makes float32 copies of both",
    "_MM_OUT_DTYPE of trl/kernels/chunked_logprob.py in TRL 1.16; PyTorch 2.7.1 on a simulated card",
);

/// Where the memory-efficient kernel keeps its seed.
pub const EFFICIENT_STATE: Rule = torch(
    2,
    14,
    "without dropout the memory-efficient kernel keeps the state of its random numbers, which it does not draw, on the card, two \
     numbers; before, and with dropout, on the host",
    "none of it in PyTorch 2.13.0 on a hollow card, both in 2.14.1 and 2.15.0 and none with dropout",
);

/// cuDNN's attention first on Hopper and data-centre Blackwell.
pub const CUDNN_BUNDLED: Rule = torch(
    2,
    11,
    "cuDNN's attention is tried first on majors 9 and 10: the wheels bring cuDNN 9.19. Before, nobody is given it unasked, by 2.9 \
     neither, whose source names 9.0 and 10.0 (pull request 162073)",
    "asked of PyTorch 2.6.0, 2.9.0, 2.9.1 and 2.11.0 on a hollow H100, of 2.9 and 2.11 on a hollow B200 (torch._fused_sdp_choice)",
);

/// The backward of small embedding tables.
pub const EMBEDDING_ATOMICS: Rule = torch(
    2,
    11,
    "an embedding with many tokens for few rows adds up its gradient in place (half: in a float32 table)",
    "pytorch pull request 170589 (January 2026): aten/src/ATen/native/cuda/EmbeddingBackwardKernel.cu",
);

/// Attention without a kernel of its own.
pub const MATH_IN_FLOAT32: Rule = torch(
    2,
    5,
    "the math kernel of scaled_dot_product_attention computes half numbers in float32, by a softmax whose masked rows become zero; \
     before, in their own dtype and by the plain one",
    "aten/src/ATen/native/transformers/attention.cpp of 2.4.1 and 2.5.0 (_scaled_dot_product_attention_math)",
);

/// What the math kernel of attention takes for its masks.
pub const MATH_WRITES_OVER: Rule = torch(
    2,
    6,
    "the math kernel of scaled_dot_product_attention writes zeros over its softmax, and takes a causal mask as it is; in 2.5 it made a third \
     tensor of scores and inverted the mask first",
    "aten/src/ATen/native/transformers/attention.cpp of 2.5.1 and 2.6.0 (_safe_softmax, convert_boolean_attn_mask), births of 2.5.1+cu124 on a \
     hollow T4",
);

/// CUB's blocks on Ampere and Hopper.
pub const CUB_TUNED: Rule = torch(
    2,
    5,
    "CUB has blocks of their own for compute capability 8.0 in unique_by_key, and for 9.0: the wheels are built with CUDA 12.4",
    "cub/device/dispatch in CUB 2.0.1 (CUDA 12.1, PyTorch 2.1 to 2.4) and 2.3.2 (CUDA 12.4)",
);

/// How CUB counts what is unique.
pub const CUB_COUNTS_IN_64_BITS: Rule = torch(
    2,
    7,
    "CUB's unique_by_key counts in 64 bits: the wheels are built with CUDA 12.6",
    "cub/device/device_select.cuh in CUB 2.3.2 (CUDA 12.4) and 2.5.0 (CUDA 12.6)",
);

/// How CUB adds up what it takes for itself.
pub const CUB_ROUNDS_TWICE: Rule = torch(
    2,
    11,
    "CUB's scans round what they take up twice, and know compute capability 10.0: the wheels are built with CUDA 13.0",
    "cub/agent/single_pass_scan_operators.cuh in CUB 2.7.0 (CUDA 12.8) and 3.0.1 (CUDA 13.0)",
);

/// Grouped heads in the memory-efficient kernel.
pub const EFFICIENT_GROUPS: Rule = torch(
    2,
    14,
    "the memory-efficient kernel takes grouped heads on CUDA; before, float32 or masked ones went to the math kernel",
    "pytorch pull request 191085 (July 2026), in sdp_utils.cpp of 2.14.1",
);

/// Grouped products.
pub const GROUPED_MM_ON_HOPPER: Rule = torch(
    2,
    8,
    "the experts of a mixture are multiplied by one grouped product on compute capability 9.x; before, one after the other",
    "transformers 5.17, integrations/moe.py, _can_use_grouped_mm",
);

/// Grouped products on more cards.
pub const GROUPED_MM: Rule = torch(
    2,
    9,
    "the experts of a mixture are multiplied by one grouped product from compute capability 8.0 on",
    "transformers 5.17, integrations/moe.py, _can_use_grouped_mm",
);

/// PyTorch's own kernels of a filter for each channel, where cuDNN has none.
pub const DEPTHWISE_CHANNELS_LAST: Rule = torch(
    2,
    9,
    "PyTorch's own convolution of a filter for each channel takes and makes what lies with channels last; before, row-major copies",
    "conv2d of a channels-last input in bfloat16, groups = channels, on a hollow T4: row-major from PyTorch 2.7.1 and 2.8.0, channels last from 2.9.0 and 2.11.0",
);

/// How flash attention rounds large heads.
pub const FLASH_HEADS_IN_STEPS: Rule = torch(
    2,
    11,
    "flash attention rounds heads of more than 128 numbers up to multiples of 64; before, up to 192 to multiples of 32 and beyond to 256",
    "heads of 80 to 256 on hollow cards: an output in float32 of 160 numbers a head in PyTorch 2.7.1, 2.8.0, 2.9.0 and 2.10.0, of 192 in 2.11.0 (set_params_splitkv, mha_bwd)",
);

/// The products of one row with a bias.
pub const LT_WANTS_ROWS: Rule = torch(
    2,
    10,
    "cuBLASLt adds a bias to products of more than one row",
    "linear of 1 and 2 rows on hollow cards: its workspace of 1 MiB was made for one row by PyTorch 2.7.1, 2.8.0, 2.9.0 and 2.11.0, and not by 2.10.0",
);

/// The same again.
pub const LT_TAKES_A_ROW: Rule = torch(
    2,
    11,
    "cuBLASLt adds a bias to a product of one row, as it did before 2.10",
    "linear of 1 and 2 rows on hollow cards, PyTorch 2.10.0 and 2.11.0",
);

/// What an index leaves in the graph.
pub const WHOLE_SLICES_LEFT_OUT: Rule = torch(
    2,
    9,
    "an index of several dimensions makes a node for what it narrows; before, for every `:` as well, whose backward copies the \
     whole gradient into zeros",
    "x[:, 0].grad_fn and its next functions in PyTorch 2.4.1 (SelectBackward0, SliceBackward0) and 2.9.1 (SelectBackward0); the ViT of PyTorch 2.6 in the rows is of the older kind",
);

/// Whether a mask of packed sequences can be made at all.
pub const PACKED_MASKS: Rule = torch(
    2,
    6,
    "a causal mask is told where packed sequences begin; before, indexing within vmap could not",
    "transformers/masking_utils.py of 4.53.3, 4.57.3 and 5.0.0 (_is_torch_greater_or_equal_than_2_6)",
);

/// What FSDP2 does when a reentrant checkpoint calls a module once more in backward.
pub const RECOMPUTED_STAYS_WHOLE: Rule = torch(
    2,
    10,
    "what a reentrant checkpoint computes again under fully_shard stays whole for its backward; before, it was let go of and gathered again, \
     and what was gathered ahead was the layer that had just gone backward, which stayed to the end",
    "torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py of the wheels 2.9.1 and 2.10.0 (is_bw in post_forward)",
);
