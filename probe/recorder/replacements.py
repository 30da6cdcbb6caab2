# ---------------------------------------------------------------------------------------------------------------------
# Operators that go another way


def release_of(torch):
    """`(2, 11)` of 2.11.0+cu130."""
    return tuple(int(number) for number in torch.__version__.split(".")[:2])


def replacements(watch):
    """Operators that are not run as they are, because a driver would be asked or fake tensors go another way."""
    import torch
    from torch._meta_registrations import calc_conv_nd_return_shape

    aten = torch.ops.aten
    release = release_of(torch)
    tape = watch.tape

    @contextlib.contextmanager
    def quiet():
        yield

    def last(tensor):
        return tensor.is_contiguous(memory_format=torch.channels_last) and not tensor.is_contiguous()

    def convolution(func, input, weight, bias, stride, padding, dilation, transposed, output_padding, groups):
        """Which convolution runs is asked of cuDNN; whichever it is, it fills one tensor."""
        shape = calc_conv_nd_return_shape(
            input, weight, list(stride), list(padding), list(dilation), transposed, groups,
            list(output_padding) if transposed else None,
        )
        channels_last = weight.dim() == 4 and (last(input) or last(weight))
        made = input.new_empty(shape)
        return made.to(memory_format=torch.channels_last) if channels_last else made

    def convolution_backward(func, gradient, input, weight, bias_sizes, stride, padding, dilation, transposed,
                             output_padding, groups, mask):
        """Gradients in the memory order that the forward ran in (`cudnn_convolution_backward` in ConvShared.cpp): where that is channels
        last, a parameter that is not takes a copy of its own."""
        channels_last = weight.dim() == 4 and (last(input) or last(weight))
        order = torch.channels_last if channels_last else torch.contiguous_format
        return (
            torch.empty_like(input, memory_format=order) if mask[0] else None,
            torch.empty_like(weight, memory_format=order) if mask[1] else None,
            gradient.new_empty(weight.size(0) if not transposed else weight.size(1) * groups) if mask[2] else None,
        )

    def grouped_mm(func, left, right, offsets=None, bias=None, out_dtype=None):
        """The fake one takes bfloat16 alone; the card multiplies other dtypes group by group into one result."""
        if left.dtype == torch.bfloat16:
            return NotImplemented
        if left.dim() == 2 and right.dim() == 2:
            return left.new_empty(offsets.size(0), left.size(0), right.size(1))
        return left.new_empty(*left.shape[:-1], right.size(-1))

    def softmax(func, x, dim, dtype=None):
        with watch:
            return safe_softmax(x, dim, dtype)

    def add(func, left, right, *, alpha=1):
        """A second gradient for the same tensor. The engine adds in place to one that nobody else holds, but never to a
        tensor of a Python class, as fake ones are. So does attention that is written out with its mask."""
        if Attention.written_out:
            return aten.alias.default(left)
        backward = tape.in_backward() and not torch.is_grad_enabled()
        if not backward or alpha != 1 or not isinstance(right, torch.Tensor):
            return NotImplemented
        if (left.dtype, left.shape) != (right.dtype, right.shape) or not watch.may_add_in_place(left):
            return NotImplemented
        if left.is_contiguous():
            # Nothing comes of that but what is there.
            return left
        with watch, torch.no_grad():
            return left.add_(right)

    def gru_cell(func, input, hidden, old, *biases):
        """`_thnn_fused_gru_cell_cuda` in RNN.cu: the new state, and five times as much for backward."""
        kept = old.new_empty(old.size(0), old.size(1) * 5)
        return torch.empty_like(old), kept

    def gru_cell_backward(func, gradient, kept, biased):
        gates = [kept.new_empty(kept.size(0), kept.size(1) // 5 * 3) for _ in range(2)]
        state = torch.empty_like(gradient)
        return (*gates, state, *(gate.sum(0) if biased else None for gate in gates))

    def ctc_loss(func, log_probs, targets, steps, signs, blank=0, zero_infinity=False):
        """`ctc_loss_gpu_template` in LossCTC.cu: both lists of lengths and where each target begins, and what backward is made of."""
        with watch:
            lists = [log_probs.new_empty(len(signs), dtype=torch.int64) for _ in range(3)]
            kept = log_probs.new_empty(log_probs.size(1), log_probs.size(0), 2 * max(signs) + 1)
            loss = log_probs.new_empty(log_probs.size(1))
            del lists
        return loss, kept

    def ctc_loss_backward(func, gradient, log_probs, targets, steps, signs, loss, kept, blank, zero_infinity=False):
        with watch:
            lists = [log_probs.new_empty(len(signs), dtype=torch.int64) for _ in range(3)]
            beside = torch.empty_like(kept)
            made = log_probs.new_empty(log_probs.shape)
            del lists, beside
        return made

    def logsumexp(func, x, dims, keepdim=False):
        """`logsumexp_out_impl` in ReduceOps.cpp: the largest, where it is finite, what each is apart from it, and their sum."""
        if not x.dtype.is_floating_point or x.numel() == 0:
            return NotImplemented
        with watch:
            most = x.amax(dims, keepdim=True)
            summed = {dim % x.dim() for dim in dims or range(x.dim())} if x.dim() else set()
            within = most if keepdim else most.view([n for dim, n in enumerate(x.shape) if dim not in summed])
            within.masked_fill_(within.abs() == math.inf, 0)
            apart = (x - most).exp_()
            made = apart.sum(dims, keepdim=keepdim)
            del apart
            made.log_().add_(within)
        return made

    def multinomial(func, x, samples, replacement=False, *, generator=None):
        """`multinomial_out` in Distributions.cpp, of one sample or where none comes twice: what is asked of the probabilities first, then
        they are divided by random numbers, and the largest taken."""
        if replacement and samples != 1:
            return NotImplemented
        with watch:
            most = x.max()
            finite = most < math.inf
            least = x.min()
            positive = least >= 0
            valid = finite & positive
            del most, least, finite, positive, valid
            none = x.sum(1) == 0 if x.dim() > 1 else x.sum() == 0
            if x.dim() > 1:
                none = none.sum()
            del none
            drawn = torch.empty_like(x).exponential_(1)
            torch.div(x, drawn, out=drawn)
            return drawn.argmax(-1, keepdim=True) if samples == 1 else drawn.topk(samples)[1]

    def input_gradient(func, gradient, input, *args, **kwargs):
        """One tensor as large as the input, of operators that have no fake backward."""
        return input.new_empty(input.shape)

    def batch_norm(func, input, weight, bias, mean, variance, training, momentum, eps):
        """`batch_norm_cuda` in Normalization.cu and `cudnn_batch_norm` in BatchNorm.cpp. Before 2.10 fake tensors ask a driver as they
        write the running statistics."""
        if not training or release >= (2, 10):
            return NotImplemented
        kind = torch.float32 if input.dtype in (torch.float16, torch.bfloat16) else input.dtype
        made = torch.empty_like(input), *(input.new_empty(input.size(1), dtype=kind) for _ in range(2))
        return (*made, input.new_empty(0, dtype=torch.uint8)) if func is aten.cudnn_batch_norm.default else made

    def batch_norm_backward(func, gradient, input, weight, *args):
        """`batch_norm_backward_cuda` in Normalization.cu: where channels are last, rows of a matrix among them, sums come first where there
        are any (`needs_reduction`), and the input's gradient behind those of weight and bias."""
        if not (last(input) or input.is_contiguous() and input.stride(1) == 1):
            return as_given(1)(func, gradient, input, weight, *args)
        channels, (trains, _, wanted) = input.size(1), args[-3:]
        with watch:
            sums = [input.new_zeros(channels, dtype=torch.float32) for _ in range(2 if trains or any(wanted[1:]) else 0)]
            made = [(weight if weight is not None else input).new_zeros(channels) if want else None for want in wanted[1:]]
            of_input = torch.empty_like(input) if wanted[0] else None
            del sums
        return (of_input, *made)

    def into(func, made, *args, **kwargs):
        """What picking and choosing do backwards: gradients are written into zeros made for them (`index_backward`,
        `value_selecting_reduction_backward`, `gather_backward`, `index_select_backward` in FunctionsManual.cpp)."""
        backward = tape.in_backward() and not torch.is_grad_enabled()
        # What values were put over has no gradient: zeros are put there into a copy.
        over = func is aten.index_put.default and not (len(args) > 2 and args[2])
        return made if backward and not over else NotImplemented

    def to_copy(func, x, *, dtype=None, **kwargs):
        """`CopyBackwards` gives on what it was given where that lies as the source did. Of fake tensors it is told that it does not,
        as their gradients are on no device (`Watch.device`)."""
        hands_on = tape.in_backward() and not torch.is_grad_enabled() and current_node() in ("CopySlices", "CopyBackwards")
        if hands_on and dtype in (None, x.dtype) and kwargs.get("memory_format") is None:
            return aten.alias.default(x)
        return NotImplemented

    def in_place(func, left, right, **kwargs):
        """`binary_cross_entropy_with_logits_backward` goes on with what it has just made, but for tensors of a Python class
        (FunctionsManual.cpp)."""
        if kwargs or not tape.in_backward() or current_node() != "BinaryCrossEntropyWithLogitsBackward0":
            return NotImplemented
        known = tape.alive.get(left.untyped_storage()._cdata)
        fresh = known is not None and known[0] >= len(tape.storages) - 2
        return aten.alias.default(left) if fresh and left.dtype == torch.result_type(left, right) else NotImplemented

    def absolute(func, x):
        """Lies as what it is of; the fake one is written row by row."""
        return NotImplemented if x.dtype.is_complex else torch.empty_like(x)

    def row_major(func, *args):
        """What kernels make row by row (`zeros_like` of a loss's backward in Loss.cpp, the structured ones of SoftMax.cpp, layer_norm_kernel.cu)
        and fake ones as their operands lie."""
        out = func(*args)
        return (out[0] if out[0] is None else out[0].contiguous(), *out[1:]) if isinstance(out, tuple) else out.contiguous()

    def as_given(number):
        """What lies as the argument of this number does (`empty_like`)."""
        def made(func, *args):
            out = func(*args)
            first = out[0] if isinstance(out, tuple) else out
            if first is None or first.shape != args[number].shape:
                return out
            first = torch.empty_like(args[number], dtype=first.dtype)
            return (first, *out[1:]) if isinstance(out, tuple) else first

        return made

    def elementwise(func, left, right, *args, **kwargs):
        """What an iterator over both makes (`TensorIterator`); the fake one is made of other operators."""
        out = func(left, right, *args, **kwargs)
        return torch.empty_like(left * right, dtype=out.dtype)

    def elu_backward(func, gradient, alpha, scale, input_scale, is_result, x):
        return torch.empty_like(gradient * x)

    def resized(func, x, *args, **kwargs):
        """In the order that its input suggests, however few channels there are."""
        out = func(x, *args, **kwargs)
        return out.contiguous(memory_format=torch.channels_last) if last(x) else out

    return {
        **four_and_eight_bits(watch),
        aten.abs.default: absolute,
        **dict.fromkeys((aten._log_softmax_backward_data.default, aten.mse_loss_backward.default, aten.smooth_l1_loss_backward.default,
                         aten.huber_loss_backward.default, aten.native_layer_norm_backward.default), row_major),
        **dict.fromkeys((aten.hardswish_backward.default, aten.hardsigmoid_backward.default, aten.softplus_backward.default,
                         aten.hardtanh_backward.default, aten.logit_backward.default, aten.xlogy.Tensor), elementwise),
        aten.elu_backward.default: elu_backward,
        aten.binary_cross_entropy.default: as_given(0),
        aten.binary_cross_entropy_backward.default: as_given(1),
        aten.native_batch_norm_backward.default: batch_norm_backward,
        aten.upsample_bilinear2d.default: resized,
        aten.sub.Tensor: in_place,
        aten.mul.Tensor: in_place,
        aten._to_copy.default: to_copy,
        aten.add.Tensor: add,
        **dict.fromkeys((aten.multi_margin_loss_backward.default, aten.multilabel_margin_loss_backward.default,
                         aten.fractional_max_pool3d_backward.default), input_gradient),
        aten.logsumexp.default: logsumexp,
        aten.multinomial.default: multinomial,
        aten._ctc_loss.default: ctc_loss,
        aten._ctc_loss_backward.default: ctc_loss_backward,
        aten.native_batch_norm.default: batch_norm,
        aten.cudnn_batch_norm.default: batch_norm,
        aten.index_put.default: into,
        aten.index_add.default: into,
        aten.masked_scatter.default: into,
        aten.scatter.src: into,
        aten.scatter_add.default: into,
        aten.convolution.default: convolution,
        aten.convolution_backward.default: convolution_backward,
        aten._thnn_fused_gru_cell.default: gru_cell,
        aten._thnn_fused_gru_cell_backward.default: gru_cell_backward,
        getattr(getattr(aten, "_grouped_mm", None), "default", "no grouped_mm"): grouped_mm,
        getattr(getattr(aten, "_safe_softmax", None), "default", "no safe_softmax"): softmax,
    }
