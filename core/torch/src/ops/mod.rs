//! PyTorch ops: what each allocates, what it saves for backward, what its backward allocates.
//!
//! One function an op, named as in PyTorch. The formulas follow `tools/autograd/derivatives.yaml` and
//! `FunctionsManual.cpp`; a node computes its gradients in the order of the generated `Functions.cpp`, which sorts
//! them by argument name.

mod activation;
mod alternate;
mod attention;
mod attention_mask;
mod batch_norm;
mod bloom_gelu;
mod cast;
mod clamp;
mod collectives;
mod complex;
mod conv;
mod conv1d;
mod count;
mod creation;
mod dora_load;
mod eight_bit;
mod elementwise;
mod embedding;
mod four_bit;
mod four_bit_kernel;
mod fused_linear_loss;
mod fused_lm_head;
mod gather;
mod inplace;
pub(crate) mod inside;
mod label_smoothing;
mod liger;
mod linear_function;
mod loss;
mod masked;
mod masked_fill;
mod matmul;
mod mobile;
mod nll_loss;
mod norm;
mod pad;
mod plain;
mod pool;
mod quantized_load;
mod reduce;
mod resize;
mod roll;
mod routing;
mod sdpa_rules;
mod select;
mod similarity;
mod slices;
mod slow_conv;
mod softmax;
mod stable;
mod told;
mod told_conv;
mod told_kind;
mod triangular;
mod view;

#[cfg(test)]
mod matmul_tests;

pub use activation::{dropout, elu, gelu, leaky_relu, relu, sigmoid, silu, softplus, tanh};
pub use alternate::{every_second, every_second_of, halves_by_turns, stack_last};
pub use attention::{attention_backward_told, scaled_dot_product_attention, ungrouped_dot_product_attention};
pub use batch_norm::batch_norm;
pub use bloom_gelu::bloom_gelu;
pub use cast::{to, to_row_major};
pub use clamp::{clamp_in_place, layer_norm_plain};
pub use collectives::{Transfer, chunk_cat, split_with_sizes_copy, transfer};
pub use complex::{mul_complex, polar, view_as_complex, view_as_real};
pub use conv::{Window, conv2d};
pub use conv1d::conv1d;
pub use count::{accuracies, clamped_count, count_labels, is_a_number};
pub(crate) use creation::unallocated;
pub use creation::{arange, elsewhere, empty, empty_of, labels, loaded, sent_away, zeros_like};
pub use eight_bit::{EightBit, matmul_8bit};
pub use elementwise::{add, add_scalar, div_host_number, div_scalar, mul, mul_scalar, neg, pow, rsqrt, sub};
pub use embedding::embedding;
pub use four_bit::{FourBit, SharedMap, matmul_4bit};
pub use fused_linear_loss::{FusedRules, fused_linear_cross_entropy};
pub use fused_lm_head::{LogProbs, chunked_log_probs};
pub use gather::{gather, repeat_batch};
pub use inplace::{accumulate, add_in_place, copy_over, mul_in_place, relu_in_place, scale_in_place};
pub use inside::{Answers, Product, Question, Scratch, Shape};
pub use label_smoothing::{converted, label_smoother};
pub use liger::{liger_gated, liger_rms_norm, liger_rope};
pub use loss::{cross_entropy, cross_entropy_sum, mse_loss, no_loss};
pub use masked::{scatter_masked, select_masked};
pub use masked_fill::{masked_fill, masked_fill_in_place};
pub use matmul::{addmm, baddbmm, bmm, linear, matmul, t};
pub use mobile::{
    adaptive_avg_pool2d, dropout_in_place, hardsigmoid, hardswish_in_place, relu6_in_place, silu_in_place,
};
pub use norm::layer_norm;
pub use pad::pad;
pub use plain::{
    Fill, Pointwise, Rearrangement, Reduction, each, fill, picked, pointwise, rearrangement, reduction, sort_flat,
};
pub use pool::{avg_pool2d, global_avg_pool2d, max_pool2d};
pub use quantized_load::{QuantizedBase, load_quantized};
pub use reduce::{cumsum_last, mean, mean_image, mean_last, norm, sum_all};
pub use resize::upsample_bicubic2d;
pub use roll::roll;
pub use routing::{
    div_in_place, grouped_linear, grouped_mm, index_add_in_place, index_rows, max_last, scatter_in_place, sum_first,
    sum_middle, topk,
};
pub use sdpa_rules::{Kernel, SdpaRules};
pub use select::{clamp, clamp_max, clamp_numbers, index, index_one, maximum, unbind, where_scalar, where_tensor};
pub use similarity::{div, exp, sqrt, sum_last, sum_rows};
pub use slices::{copied_into, copied_into_row, filled};
pub use softmax::{softmax, softmax_fp32, softmax_to};
pub use stable::{masked_softmax, stable_dropout};
pub use told::{Given, ToldKernel};
pub use triangular::{solve_triangular, tril};
pub use view::{
    CHANNELS_FIRST, CHANNELS_LAST, cat, clone, contiguous, expand, first, first_of_last, narrow, narrow_from, permute,
    reshape, select, select_at, sliced, split, split_in_two, split_sizes, transpose, unsqueeze, view, whole,
};
