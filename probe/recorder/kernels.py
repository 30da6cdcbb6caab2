# ---------------------------------------------------------------------------------------------------------------------
# What kernels hold of their own


def operand(tensor):
    """Sizes, strides and dtype of what a kernel is given."""
    return list(tensor.shape), list(tensor.stride()), short(tensor.dtype)


def summation(dims):
    """As `reduction`, and how large the elements are that whole numbers are made before they are summed: truth values become int64."""

    def told(args, out):
        made, operands, numbers = reduction(dims)(args, out)
        other = not args[0].dtype.is_floating_point and args[0].dtype != out.dtype
        return made, operands, numbers + [out.dtype.itemsize] * other

    return told


def reduction(dims):
    """Over the dimensions that the argument of this number names, or over all: a bit each."""

    def told(args, out):
        rank = max(args[0].dim(), 1)
        over = args[dims] if len(args) > dims else None
        # An overload without dimensions has its dtype there.
        over = [over] if isinstance(over, int) else over if over and isinstance(over, (list, tuple)) else range(rank)
        return out[-1] if isinstance(out, tuple) else out, [args[0]], [sum({1 << dim % rank for dim in over})]

    return told


def along(number, of=lambda args, out: []):
    """What is sorted or picked from, what else `of` says is given, and the dimension that the argument of this number names."""

    def told(args, out):
        dim = args[number] if len(args) > number else -1
        return out[-1], [args[0], *of(args, out)], [dim % max(args[0].dim(), 1)]

    return told


def picked(args, out):
    made, operands, numbers = along(2, lambda args, out: [out[0]])(args, out)
    return made, operands, numbers + [int(args[4] if len(args) > 4 else True)]


def group_norm_backward(args, out):
    made = [tensor for tensor in out if tensor is not None]
    return (made[-1], [args[1]], [args[8], int(args[9][0]), int(args[4] is not None)]) if made else None


def layer_norm_backward(args, out):
    grad, x, weight, wanted = args[0], args[1], args[5], args[7]
    made = [tensor for tensor in out if tensor is not None]
    if weight is None or not made:
        return None
    return made[-1], [grad, x, weight], [sum(map(bool, wanted[1:])), int(wanted[0])]


def window(stride, padding, dilation, transposed):
    """How filters move along the last dimension: stride and padding; 1 where they make more of less, and 2 where they have gaps."""
    return [stride[-1], padding[-1], int(transposed) + 2 * any(gap > 1 for gap in dilation)]


def convolution(args, out):
    return out, list(args[:2]), window(*args[3:7])


def convolution_backward(args, out):
    """Of each gradient by itself: of input, weight and bias it is the number of one more."""
    moves = window(*args[4:8])
    return [(made, list(args[:3]), [which, *moves]) for which, made in enumerate(out, 1) if made is not None]


def compared(reduction):
    """A loss of an input and a target, where the argument of this number does not have it left element by element."""
    return lambda args, out: (out, list(args[:2]), []) if out.dim() == 0 and (len(args) <= reduction or args[reduction]) else None


def rows_added(args, out):
    """What is added, and the row numbers, of which there may be several; or a mask that selects them, and the dimension of what is added
    that has one for each."""
    import torch

    indices = [(at, index) for at, index in enumerate(args[1]) if index is not None]
    if not (len(args) > 3 and args[3]) or not indices:
        return None
    (at, first), *others = indices
    if is_mask(first):
        return None if others else (out, [args[2], first], [first.dim(), 1 + at])
    rows = first.expand(torch.broadcast_shapes(*(index.shape for _, index in indices)))
    return out, [args[2], rows], [len(indices)] * bool(others)


def indexed(args, out):
    """Row numbers that do not lie alike are copied row by row (`AdvancedIndex` in TensorAdvancedIndexing.cpp)."""
    import torch

    indices = [index for index in args[1] if index is not None]
    if len(indices) < 2 or any(map(is_mask, indices)):
        return None
    indices = torch.broadcast_tensors(*indices)
    copied = [index for index in indices if not index.is_contiguous()]
    alike = all(index.stride() == indices[0].stride() for index in indices)
    return None if alike or not copied else (out, copied, [0, 0])


def cumulated(args, out):
    """What runs along a dimension, and what comes out."""
    return out, [args[0], out], [args[1] % max(args[0].dim(), 1)]


def copied(*numbers, last=1, before=None):
    """The arguments of these numbers, the last of which says in what order the kernel wants them; whether it takes channels last, and how
    many results come before the last one, where copies are made before all of them."""

    def told(args, out):
        made = out[-1] if isinstance(out, (tuple, list)) else out
        given = [args[number] for number in numbers]
        if all(tensor.is_contiguous() for tensor in given):
            return None
        return made, given, [last] + [before] * (before is not None)

    return told


def rms_norm_backward(args, out):
    made = [tensor for tensor in out if tensor is not None]
    return (made[-1], list(args[:2]), [len(made) - 1]) if made else None


def rolled(args, out):
    dims = args[2] if len(args) > 2 else ()
    dims = len(dims) if isinstance(dims, (list, tuple)) else 1
    return None if dims < 2 and args[0].is_contiguous() else (out, [args[0]], [max(dims, 1)])


def chosen(args, out):
    """Numbers of another dtype than the result's, and the result."""
    other = [tensor for tensor in args[1:3] if hasattr(tensor, "dtype") and tensor.dtype != out.dtype]
    return (out, [*other, out], []) if other else None


def multiplied(first):
    """Matrices that cuBLAS cannot read as they lie (`prepare_matrix_for_cublas`, `prepare_batch_matrix_for_cublas` in Blas.cpp)."""

    def told(args, out):
        # As the result is written row by row, its second matrix is looked at first.
        copied = [matrix for matrix in args[first:first + 2][::-1] if not is_readable(matrix)]
        return (out, copied, []) if copied else None

    return told


# Matrix products, which ask the library for its workspace.
PRODUCTS = {"mm", "addmm", "bmm", "baddbmm", "addbmm", "addmv", "mv", "dot", "vdot", "_grouped_mm"}


def adds_bias(bias, left, right):
    """Whether a product adds it by itself (`isInputCompliesAddmmCudaLt` in `aten/src/ATen/native/cuda/Blas.cpp`)."""
    return bias.dim() == 1 and bias.is_contiguous() and bias.size(0) == right.size(1) and min(right.shape) > 1


def is_readable(matrix):
    rows, columns = matrix.shape[-2:]
    by_row, by_column = matrix.stride()[-2:]
    if by_row == 1 and by_column >= max(1, rows) or by_column == 1 and by_row >= max(1, columns):
        return True
    return matrix.is_contiguous() and (matrix.dim() == 2 or by_row != 0 and by_column != 0)


def batch_norm(args, out):
    return (out[2], [args[0]], []) if args[5] else None


def attention(other):
    """The queries, and the argument of this number."""

    def told(args, out):
        made = [tensor for tensor in out if hasattr(tensor, "untyped_storage") and tensor.device.type == "cuda"]
        return (made[-1], [args[0], args[other]], []) if made else None

    return told


def flash(args, out):
    # Keys are shared among blocks only where nothing is dropped, from before the state of random numbers is made.
    told = None if len(args) > 3 and args[3] else attention(1)(args, out)
    if told is None:
        return None
    import torch

    # Before 2.7 that state lies on the host (`as_made`).
    hosted = release_of(torch) < (2, 7)
    made = [tensor for tensor in out if hasattr(tensor, "untyped_storage") and tensor.device.type == "cuda"
            and not (hosted and not tensor.dtype.is_floating_point)]
    return made[-1], told[1], [len(made) - 3] if len(made) > 2 else []


def efficient_backward(args, out):
    made = [tensor for tensor in out if tensor is not None and tensor.numel()]
    return (made[-1], [args[0]], [len(made) - 1]) if made else None


# Operators whose kernels hold something of their own while they run, which follows from what they are given: how that is told,
# as the storage that is made last, the operands and numbers, or a list of those of each storage (docs/hull.md).
KERNELS = {
    "sum": summation(1), "mean": reduction(1), "linalg_vector_norm": reduction(2), "amax": reduction(1), "amin": reduction(1),
    "max": reduction(1), "min": reduction(1), "max.dim": reduction(1), "min.dim": reduction(1), "argmax": reduction(1), "argmin": reduction(1),
    "all": reduction(1), "all.dim": reduction(1), "any": reduction(1), "any.dim": reduction(1),
    "var.correction": reduction(1), "std.correction": reduction(1), "var_mean.correction": reduction(1),
    "nonzero": lambda args, out: (out, [args[0]], []), "sort.stable": along(2), "topk": picked,
    "mse_loss": compared(2), "smooth_l1_loss": compared(2), "huber_loss": compared(2), "binary_cross_entropy": compared(3),
    "native_group_norm": lambda args, out: (out[-1], [args[0]], [int(args[1] is not None or args[2] is not None)]),
    "native_group_norm_backward": group_norm_backward,
    "native_layer_norm": lambda args, out: (out[-1], [args[0]], []),
    "native_layer_norm_backward": layer_norm_backward,
    "_softmax": lambda args, out: (out, [args[0]], []), "_log_softmax": lambda args, out: (out, [args[0]], []),
    "_softmax_backward_data": lambda args, out: (out, [args[1], args[0]], []),
    "_log_softmax_backward_data": lambda args, out: (out, [args[1], args[0]], []),
    "cumsum": cumulated, "cumprod": cumulated, "median.dim_values": copied(0, last=0, before=1), "native_batch_norm": batch_norm,
    "max_pool2d_with_indices": copied(0), "max_pool2d_with_indices_backward": copied(0, 7, 1),
    "avg_pool2d": copied(0), "avg_pool2d_backward": copied(0, 1),
    "adaptive_max_pool2d": copied(0, last=0), "adaptive_max_pool2d_backward": copied(0, last=0),
    "_adaptive_avg_pool2d": copied(0, before=0),
    "upsample_nearest2d": copied(0), "upsample_nearest2d_backward": copied(0),
    "upsample_bilinear2d_backward": copied(0), "upsample_bicubic2d_backward": copied(0),
    "reflection_pad1d": copied(0, last=0), "reflection_pad1d_backward": copied(0, last=0),
    "reflection_pad2d": copied(0, last=0), "reflection_pad2d_backward": copied(0, last=0),
    "im2col": lambda args, out: (out, [args[0], out], []), "col2im": lambda args, out: (out, [args[0], out], []), "embedding": lambda args, out: None if args[1].dim() == 1 else copied(1, last=0, before=0)(args, out),
    "_fused_rms_norm": copied(0, last=0, before=1), "_fused_rms_norm_backward": rms_norm_backward,
    "index": indexed, "randperm": lambda args, out: (out, [out], []), "unfold_backward": lambda args, out: (out, [out], [args[2] % out.dim()]),
    "roll": rolled, "where": chosen,
    "mm": multiplied(0), "bmm": multiplied(0), "addmm": multiplied(1), "baddbmm": multiplied(1),
    "upsample_nearest1d": copied(0, last=0), "upsample_nearest1d_backward": copied(0, last=0),
    "upsample_linear1d_backward": copied(0, last=0),
    "embedding_dense_backward": lambda args, out: (out, [args[0], args[1]], []),
    "convolution": convolution, "convolution_backward": convolution_backward,
    "index_put": rows_added, "index_put_": rows_added, "_index_put_impl_": rows_added, "_unsafe_index_put": rows_added,
    "_scaled_dot_product_flash_attention": flash,
    "_scaled_dot_product_efficient_attention": attention(2),
    "_scaled_dot_product_efficient_attention_backward": efficient_backward,
    "masked_scatter": lambda args, out: (out, list(args[1:3]), []), "masked_scatter_": lambda args, out: (out, list(args[1:3]), []),
    "_scaled_dot_product_flash_attention_backward": lambda args, out: (out[2], [args[0], args[4]], []),
}

# The overloads of these that are told of, others of theirs being other operators (`max.other`).
OVERLOADS = {"all", "amax", "amin", "any", "argmax", "argmin", "max", "median", "min", "sort", "std", "var", "var_mean"}


def told_by(func):
    """How what this operator holds while it runs is told; `None` where it holds nothing."""
    base = func._schema.name.split("::")[-1]
    return KERNELS.get(name_of(func) if base in OVERLOADS else base)


def name_of(func):
    name = func._schema.name.split("::")[-1]
    return name if func._overloadname == "default" else name + "." + func._overloadname
