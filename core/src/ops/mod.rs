//! PyTorch ops: what each allocates, what it saves for backward, what its backward allocates.
//!
//! One function an op, named as in PyTorch. The formulas follow `tools/autograd/derivatives.yaml` and
//! `FunctionsManual.cpp`; a node computes its gradients in the order of the generated `Functions.cpp`, which sorts
//! them by argument name.

mod activation;
mod attention;
mod cast;
mod conv1d;
mod creation;
mod elementwise;
mod embedding;
mod loss;
mod matmul;
mod norm;
mod reduce;
mod select;
mod similarity;
mod softmax;
mod view;

#[cfg(test)]
mod matmul_tests;

pub use activation::{dropout, gelu, relu, sigmoid, silu, tanh};
pub use attention::{SdpaRules, scaled_dot_product_attention};
pub use cast::to;
pub use conv1d::conv_nd;
pub use creation::{arange, empty, fresh};
pub use elementwise::{add, add_scalar, div_scalar, mul, mul_scalar, neg, pow, rsqrt, sub};
pub use embedding::embedding;
pub use loss::{cross_entropy, mse_loss};
pub use matmul::{addmm, linear, matmul};
pub use norm::layer_norm;
pub use reduce::mean_last;
pub use select::{clamp, clamp_numbers, index, unbind, where_scalar};
pub use similarity::{div, exp, sum_last};
pub use softmax::{softmax, softmax_fp32};
pub use view::{cat, contiguous, expand, narrow, permute, reshape, select, split, transpose, unsqueeze, view};
