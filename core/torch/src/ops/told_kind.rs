//! Which kernels a recording may tell of, by the names of their operators.

use crate::Op;

/// Which of them.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    /// A sum, mean or norm: the tensor; the dimensions that are summed, a bit each, and the bytes of an element of the copy that is
    /// made of numbers that are summed as others (`make_reduction` in `aten/src/ATen/native/ReduceOpsUtils.h`).
    Sum(Op),
    /// Another reduction, as a sum.
    Reduced(Op),
    /// The input; whether there is a weight or a bias.
    GroupNorm,
    /// The input; how many groups, whether it has a gradient, whether there is a weight.
    GroupNormBackward,
    /// The tensor; the dimension.
    Sort,
    /// The tensor, and the values that come out; the dimension, and whether they are sorted.
    Topk,
    /// The input.
    Normalized,
    /// The gradient that goes in, the input, the weight; how many gradients of weight and bias are made, and whether one of the input
    /// is (it is where that is not said).
    LayerNorm,
    /// The input of a softmax or its logarithm, which the kernel wants row-major (`host_softmax` in SoftMax.cu).
    Softmax(Op),
    /// The result, and the gradient that goes in, if that is said.
    SoftmaxBackward(Op),
    /// The gradient that goes in, the indices.
    Embedding,
    /// What is added, and row numbers, of which there may be so many tensors; or a mask that selects rows, of so many dimensions, and one
    /// more than the dimension of what is added that has one for each that it selects.
    Rows,
    /// Numbers, of which the places of those that are not zero come out.
    Counted,
    /// The input and the weight; how filters move.
    Convolution,
    /// The gradient that goes in, the input, the weight; which gradient is made, how filters move.
    ConvolutionBackward,
    /// The input and the target of a loss that is one number.
    Loss(Op, Full),
    /// Queries and keys; how many results lie between the two that are computed and the last, where there is another.
    Flash,
    /// Queries and values.
    Efficient,
    /// The gradient that goes in, and the output.
    FlashBackward,
    /// The gradient that goes in; how many gradients come before the last.
    EfficientBackward,
    /// What whole numbers in a random order are written to.
    Shuffled,
    /// The gradient of what windows were cut from; the dimension.
    UnfoldBackward,
    /// The mask and what is put where it says, into what has just been made.
    Scattered,
    /// What is summed or multiplied up, and what comes out; the dimension.
    Cumulated,
    /// The input, in training.
    BatchNorm,
    /// What is copied.
    Multiplied,
    /// What lies in another dtype than the result, and that.
    Chosen,
    /// What is rolled; along how many dimensions.
    Rolled,
    /// What is cut into patches, or the patches, and what comes out.
    Unfolded,
    /// The gradient that goes in, the input; how many gradients come before the last.
    RmsNorm,
    /// What its kernel wants in one order, that of the last or row-major, and makes copies of when its results are there; whether it
    /// takes channels last as well.
    Copied,
    /// The same, before its results are there, so many of them before the last one.
    CopiedBefore,
}

/// Where a loss writes what it is of every element, before they are summed up (seen with PyTorch 2.11 on a simulated H100).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Full {
    /// Into its result, which then has the sum at its beginning (`binary_cross_entropy_out_cuda` in Loss.cu).
    Kept,
    /// Into one beside that (`huber_loss` in Loss.cpp).
    Beside,
    /// Into one, and the result has as much memory (`mse_loss_out`, `smooth_l1_loss_out` in BinaryOps.cpp and Loss.cpp).
    Both,
}

/// What holds something while it runs, by the operator's name.
const KINDS: [(Op, Kind); 41] = [
    (Op::Sum, Kind::Sum(Op::Sum)),
    (Op::SumDimIntList, Kind::Sum(Op::SumDimIntList)),
    (Op::Mean, Kind::Sum(Op::Mean)),
    (Op::MeanDim, Kind::Sum(Op::MeanDim)),
    (Op::LinalgVectorNorm, Kind::Sum(Op::LinalgVectorNorm)),
    (Op::Amax, Kind::Reduced(Op::Amax)),
    (Op::Amin, Kind::Reduced(Op::Amin)),
    (Op::Max, Kind::Reduced(Op::Max)),
    (Op::Min, Kind::Reduced(Op::Min)),
    (Op::All, Kind::Reduced(Op::All)),
    (Op::AllDim, Kind::Reduced(Op::AllDim)),
    (Op::Any, Kind::Reduced(Op::Any)),
    (Op::AnyDim, Kind::Reduced(Op::AnyDim)),
    (Op::MaxDim, Kind::Reduced(Op::MaxDim)),
    (Op::MinDim, Kind::Reduced(Op::MinDim)),
    (Op::Argmax, Kind::Reduced(Op::Argmax)),
    (Op::Argmin, Kind::Reduced(Op::Argmin)),
    (Op::VarCorrection, Kind::Reduced(Op::VarCorrection)),
    (Op::StdCorrection, Kind::Reduced(Op::StdCorrection)),
    (Op::VarMeanCorrection, Kind::Reduced(Op::VarMeanCorrection)),
    (Op::NativeBatchNorm, Kind::BatchNorm),
    (Op::NativeGroupNorm, Kind::GroupNorm),
    (Op::NativeGroupNormBackward, Kind::GroupNormBackward),
    (Op::SortStable, Kind::Sort),
    (Op::Topk, Kind::Topk),
    (Op::NativeLayerNorm, Kind::Normalized),
    (Op::NativeLayerNormBackward, Kind::LayerNorm),
    (Op::Softmax, Kind::Softmax(Op::Softmax)),
    (Op::LogSoftmax, Kind::Softmax(Op::LogSoftmax)),
    (Op::SoftmaxBackwardData, Kind::SoftmaxBackward(Op::SoftmaxBackwardData)),
    (Op::LogSoftmaxBackwardData, Kind::SoftmaxBackward(Op::LogSoftmaxBackwardData)),
    (Op::EmbeddingDenseBackward, Kind::Embedding),
    (Op::MseLoss, Kind::Loss(Op::MseLoss, Full::Both)),
    (Op::SmoothL1Loss, Kind::Loss(Op::SmoothL1Loss, Full::Both)),
    (Op::HuberLoss, Kind::Loss(Op::HuberLoss, Full::Beside)),
    (Op::BinaryCrossEntropy, Kind::Loss(Op::BinaryCrossEntropy, Full::Kept)),
    (Op::Convolution, Kind::Convolution),
    (Op::ConvolutionBackward, Kind::ConvolutionBackward),
    (Op::ScaledDotProductFlashAttention, Kind::Flash),
    (Op::ScaledDotProductEfficientAttention, Kind::Efficient),
    (Op::ScaledDotProductFlashAttentionBackward, Kind::FlashBackward),
];

/// Operators by which rows are added to what has just been made for them.
const ROWS: [&str; 4] = ["index_put", "index_put_", "_index_put_impl_", "_unsafe_index_put"];

/// Operators that run along a dimension, in the dtype of their result (`cumsum_out` in ReduceOps.cpp, `scan_dim` in ScanUtils.cuh).
const CUMULATED: [&str; 2] = ["cumsum", "cumprod"];

/// Operators that copy what their kernels want in another order: pools (DilatedMaxPool2d.cu, AveragePool2d.cu, AdaptiveMaxPooling2d.cu),
/// what is resized (UpSample*.cu) or padded (ReflectionPad.cu).
const COPIED: [&str; 17] = [
    "upsample_nearest2d",
    "upsample_nearest2d_backward",
    "upsample_bilinear2d_backward",
    "upsample_bicubic2d_backward",
    "reflection_pad1d",
    "reflection_pad1d_backward",
    "reflection_pad2d",
    "reflection_pad2d_backward",
    "max_pool2d_with_indices",
    "max_pool2d_with_indices_backward",
    "avg_pool2d",
    "avg_pool2d_backward",
    "adaptive_max_pool2d",
    "adaptive_max_pool2d_backward",
    "upsample_nearest1d",
    "upsample_nearest1d_backward",
    "upsample_linear1d_backward",
];

/// Those that do so before their results are there (`median_with_indices_impl` in Sorting.cpp, `embedding` in Embedding.cpp, the
/// norms in layer_norm_kernel.cu, `AdvancedIndex` in TensorAdvancedIndexing.cpp).
const COPIED_BEFORE: [&str; 5] =
    ["index.Tensor", "median.dim_values", "embedding", "_adaptive_avg_pool2d", "_fused_rms_norm"];

/// Operators that cut an image into patches or put it together, whose result first has their input's size (Im2Col.cu, Col2Im.cu).
const UNFOLDED: [&str; 2] = ["im2col", "col2im"];

/// Matrix products, which are told of where one of their matrices has to be copied.
const PRODUCTS: [&str; 4] = ["mm", "bmm", "addmm", "baddbmm"];

impl Kind {
    /// Of the operator of this name, where its kernel holds something.
    pub fn of(name: &str) -> Option<Self> {
        let known = KINDS.iter().find(|(op, _)| op.name() == name).map(|(_, kind)| *kind);
        known.or_else(|| match name {
            "where.self" => Some(Self::Chosen),
            "nonzero" => Some(Self::Counted),
            "randperm" | "randperm.out" | "randperm.generator_out" => Some(Self::Shuffled),
            "unfold_backward" => Some(Self::UnfoldBackward),
            "masked_scatter" | "masked_scatter_" => Some(Self::Scattered),
            "_scaled_dot_product_efficient_attention_backward" => Some(Self::EfficientBackward),
            "roll" => Some(Self::Rolled),
            "_fused_rms_norm_backward" => Some(Self::RmsNorm),
            _ if UNFOLDED.contains(&name) => Some(Self::Unfolded),
            _ if ROWS.contains(&name) => Some(Self::Rows),
            _ if CUMULATED.contains(&name) => Some(Self::Cumulated),
            _ if COPIED.contains(&name) => Some(Self::Copied),
            _ if COPIED_BEFORE.contains(&name) => Some(Self::CopiedBefore),
            _ if PRODUCTS.contains(&name) => Some(Self::Multiplied),
            _ => None,
        })
    }
}
