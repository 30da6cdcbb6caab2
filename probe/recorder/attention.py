# ---------------------------------------------------------------------------------------------------------------------
# Attention


class Attention:
    """`scaled_dot_product_attention` as `attention.cu` and `sdp_utils.cpp` have it: which kernel it takes is asked of the
    driver. What it does around the kernel is `scaled_dot_product_attention` in `attention.cpp`."""

    # Cards that choose differently from one another.
    CLASSES = [(8, 0), (8, 6), (8, 9), (9, 0), (10, 0), (12, 0)]
    # Whether one is being computed that no fused kernel takes.
    written_out = False

    def __init__(self, capability):
        self.capability = capability
        self.same = set(self.CLASSES)
        self.taken = {}

    def select(self, capability, query, key, value, mask, dropout, gqa):
        import torch

        head, half = query.size(-1), query.dtype in (torch.float16, torch.bfloat16)
        heads = {head, value.size(-1)}
        trains = torch.is_grad_enabled() and any(t.requires_grad for t in (query, key, value))
        # check_batch_size_and_num_heads_dense: no fused kernel broadcasts heads that it was not told are grouped.
        same = query.size(1) == key.size(1) == value.size(1) if query.dim() == 4 else False
        if query.dim() != 4 or not (same or gqa):
            return "math"
        # check_last_dim_stride_equals_1_dense: none takes heads or a mask whose rows do not lie together.
        apart = head != 1 and any(t.stride(-1) != 1 for t in (query, key, value))
        if apart or mask is not None and mask.stride(-1) != 1:
            return "math"
        order = ["flash", "efficient"] if capability[0] >= 8 else ["efficient"]
        for kernel in (["cudnn"] if self.prefers_cudnn(release_of(torch), capability) else []) + order:
            if kernel == "cudnn":
                # DeepSeek's pair is allowed by name (check_cudnn_tensor_shapes).
                most = 256 if capability[0] == 9 else 192 if (head, value.size(-1)) == (192, 128) else 128
                gradient = mask is not None and mask.requires_grad
                fits = max(heads) <= most and all(size % 8 == 0 for size in heads)
                if half and fits and key.size(2) != 1 and not gradient:
                    return kernel
            elif kernel == "flash":
                small = capability in ((8, 6), (8, 7), (8, 9)) or capability[0] == 12
                fits = not (trains and small) or not (193 <= head <= 224 or (head > 224 and dropout > 0))
                # check_head_dim_size_flash: values are as wide as queries.
                if half and mask is None and head <= 256 and len(heads) == 1 and fits:
                    return kernel
            else:
                alignment = 8 if half else 4 if capability[0] >= 8 else 1
                aligned_heads = all(size % alignment == 0 for size in heads)
                if same and aligned_heads and (capability[0] >= 8 or query.dtype != torch.bfloat16):
                    return kernel
        return "math"

    @staticmethod
    def prefers_cudnn(release, capability):
        """`check_prefer_cudnn_attention`: before 2.9 it had to be asked for, and 2.10 wants a newer cuDNN than its wheels bring."""
        if release >= (2, 11):
            return capability[0] in (9, 10)
        return release == (2, 9) and capability in ((9, 0), (10, 0))

    def __call__(self, query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
        import torch

        aten = torch.ops.aten
        asked = (query, key, value, attn_mask, dropout_p, enable_gqa)
        kernel = self.select(self.capability, *asked)
        self.same -= {other for other in self.CLASSES if self.select(other, *asked) != kernel}
        self.taken[kernel] = self.taken.get(kernel, 0) + 1
        if attn_mask is not None and attn_mask.dtype == torch.bool:
            # convert_boolean_attn_mask
            made = torch.zeros_like(attn_mask, dtype=query.dtype)
            made.masked_fill_(attn_mask.logical_not(), -math.inf)
            attn_mask = made
            del made
        logsumexp = torch.is_grad_enabled() and any(t.requires_grad for t in (query, key, value))
        del asked
        if kernel == "cudnn":
            return aten._scaled_dot_product_cudnn_attention(
                query, key, value, attn_mask, logsumexp, dropout_p, is_causal, False, scale=scale
            )[0]
        if kernel == "flash":
            size = query.size(-1)
            missing = -size % 8
            if missing:
                query, key, value = (torch.nn.functional.pad(t, [0, missing]) for t in (query, key, value))
            scale = scale if scale is not None else size**-0.5
            out = aten._scaled_dot_product_flash_attention(
                query, key, value, dropout_p, is_causal, False, scale=scale
            )[0]
            return out[..., :size] if missing else out
        if kernel == "efficient":
            if attn_mask is not None:
                attn_mask = aligned(attn_mask).expand(query.size(0), query.size(1), query.size(2), key.size(2))
            return aten._scaled_dot_product_efficient_attention(
                query, key, value, attn_mask, logsumexp, dropout_p, is_causal, scale=scale
            )[0]
        Attention.written_out = True
        try:
            return aten._scaled_dot_product_attention_math(
                # Groups of heads are known to it since 2.5.
                query, key, value, attn_mask, dropout_p, is_causal, None, scale=scale,
                **({"enable_gqa": True} if enable_gqa else {})
            )[0]
        finally:
            Attention.written_out = False


# Operators of which not all is made on the card, or in the order in which it is returned.
FLASH, EFFICIENT, CUDNN = (
    "aten::" + name for name in (
        "_scaled_dot_product_flash_attention", "_scaled_dot_product_efficient_attention",
        "_scaled_dot_product_cudnn_attention",
    )
)


# Those that make what they return last before the rest: `dropout_cuda` (Dropout.cu) its mask, the cells (RNN.cu) what they keep.
LATER_FIRST = ("aten::native_dropout", "aten::_thnn_fused_gru_cell", "aten::_thnn_fused_lstm_cell")


def is_own_depthwise(input, weight, stride, transposed, groups):
    """Whether PyTorch's own kernel runs a convolution of each channel, which makes the gradient of the weight first
    (`conv_depthwise2d_backward_out` in DepthwiseConv2d.cu): of images and lines that lie row by row. cuDNN has those of 32 channels or more
    in float16 whose filters have one, three or five places and move by one, or from 512 channels on by two
    (`check_cudnn_depthwise_workload_with_filter` in Convolution.cpp; what hangs on the image's size or the batch there is left out)."""
    import torch

    channels = input.size(1)
    each = groups > 1 and groups == channels and weight.size(0) % groups == 0
    last = any(not x.is_contiguous() and x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last) for x in (input, weight))
    small = weight.size(-1) in (1, 3, 5) and (stride[-1] == 1 or stride[-1] == 2 and channels >= 512 and weight.size(-1) > 1)
    cudnns = input.dtype == torch.float16 and channels >= 32 and (small or input.dim() == 3 and stride[-1] == 1)
    return each and not transposed and weight.dim() < 5 and not last and not cudnns


def as_made(tape, func, args, made):
    """What an operator made on the card, in the order in which C++ makes it. cuDNN's attention (attention.cu) makes the state of its random
    numbers first; that of the other two, by version, lies on the host."""
    name = func._schema.name
    if name in LATER_FIRST:
        return made[::-1]
    if name == "aten::convolution_backward" and all(args[10][:2]) and is_own_depthwise(*args[1:3], args[4], args[7], args[9]):
        return [made[1], made[0], *made[2:]]
    if name not in (FLASH, EFFICIENT, CUDNN):
        return made
    import torch

    release = release_of(torch)
    state = [tensor for tensor in made if not tensor.dtype.is_floating_point]
    rest = [tensor for tensor in made if tensor.dtype.is_floating_point]
    if name == CUDNN:
        return state + rest
    place = 5 if name == EFFICIENT else 3
    drops = len(args) > place and args[place] > 0
    if drops and name == EFFICIENT or release < ((2, 7) if name == FLASH else (2, 14)):
        for tensor in state:
            tape.lies_on_host(tensor)
        return rest
    if drops:
        # The state of random numbers is made once more, and the first goes (`mha_fwd` in flash_api.cpp).
        drawn = max(state, key=torch.Tensor.numel)
        return [*rest, drawn.new_empty(drawn.shape), *(tensor for tensor in state if tensor is not drawn), drawn]
    return made


def aligned(mask):
    """`preprocess_mask`, `pad_bias`: strides in multiples of 8 elements, else rows are made longer."""
    import torch

    if all(stride % 8 == 0 for stride in mask.stride()[:-1]):
        return mask
    size = mask.size(-1)
    return torch.nn.functional.pad(mask, [0, 8 - size % 8])[..., :size]
