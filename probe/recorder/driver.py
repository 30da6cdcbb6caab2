# ---------------------------------------------------------------------------------------------------------------------
# What a driver would be asked


def dropout(x, p, train):
    """`dropout` in `Dropout.cpp`: on a card one kernel makes result and mask (`is_fused_kernel_acceptable`)."""
    import torch

    if not train or p == 0 or x.numel() == 0:
        return x
    if p == 1:
        return x * torch.zeros([], dtype=x.dtype, device=x.device)
    return torch.ops.aten.native_dropout(x, p, train)[0]


def linear(input, weight, bias=None):
    """`linear` in `Linear.cpp`, which adds the bias in place, but to a tensor of a Python class, as fake ones are."""
    import torch

    if bias is not None and (input.dim() == 2 or input.is_contiguous()):
        rows = input if input.dim() == 2 else input.reshape(-1, input.size(-1))
        out = torch.addmm(bias, rows, weight.t())
        return out if input.dim() == 2 else out.view(*input.shape[:-1], weight.size(0))
    out = torch.matmul(input, weight.t())
    return out if bias is None else out.add_(bias)


def one_hot(x, classes=-1):
    """`one_hot` in `Onehot.cpp`, which compares with every class instead where it is given a tensor of a Python class."""
    import torch

    made = torch.zeros(*x.shape, classes if classes > 0 else int(x.max().item()) + 1, dtype=torch.int64, device=x.device)
    return made.scatter_(-1, x.unsqueeze(-1), 1)


def ctc_loss(log_probs, targets, input_lengths, target_lengths, blank=0, reduction=1, zero_infinity=False):
    """`ctc_loss` in `LossCTC.cpp`, which takes lengths for lists of numbers, but where it is given tensors of a Python class. Lengths that only
    data decides are as long as they may be."""
    import torch

    if targets.dim() == 1 and targets.dtype == torch.int32 and blank == 0 and log_probs.dtype == torch.float32:
        # `_use_cudnn_ctc_loss` in LossCTC.cpp
        raise Refusal(
            "%s may run cuDNN's CTC (int32 targets in one row), and what that takes only a card's driver knows" % asking(),
            "give it targets in int64 or of two dimensions, and train it so, or measure it on the card with plimsoll probe",
        )
    batched = log_probs.dim() == 3
    log_probs = log_probs if batched else log_probs.unsqueeze(1)
    count = log_probs.size(1)

    def listed(lengths, most):
        if isinstance(lengths, torch._subclasses.FakeTensor):
            if most is None:
                raise Refusal(
                    "%s is given all targets in one row, and how long the longest is only data decides" % asking(),
                    "trace it with targets of two dimensions, as long as your longest: --input 'targets=int64[B,40]'",
                )
            return [most] * count
        return [int(length) for length in lengths]

    steps = listed(input_lengths, log_probs.size(0))
    # Of a single sample the row is its target.
    signs = listed(target_lengths, targets.size(-1) if targets.dim() == 2 or count == 1 else None)
    targets = targets.to(log_probs.device, torch.int64)
    loss = torch.ops.aten._ctc_loss.default(log_probs, targets, steps, signs, blank, zero_infinity)[0]
    if zero_infinity:
        nothing = torch.zeros([], dtype=loss.dtype, device=loss.device)
        loss = torch.where(loss == math.inf, nothing, loss)
        del nothing
    if reduction == 1:
        return (loss / loss.new_empty(count).clamp_min(1)).mean()
    return loss.sum() if reduction == 2 else loss if batched else loss.squeeze(0)


def safe_softmax(x, dim, dtype=None):
    """`_safe_softmax` in `SoftMax.cpp`, which writes the rows of zeros into the softmax, but makes a tensor of its own for them where it is
    given one of a Python class."""
    import torch

    out = torch.softmax(x, dim, dtype)
    masked = x.eq(-math.inf)
    rows = masked.all(dim, keepdim=True)
    zero = torch.zeros([], dtype=out.dtype, device=out.device)
    del zero, rows, masked
    return out


def recurrent(plain, name):
    """What stands for cuDNN's recurrent layers: its driver lays out their weights and what they keep for backward."""
    def run(*args, **kwargs):
        import torch

        if not torch.backends.cudnn.enabled:
            # PyTorch's own loop over the sequence, cell by cell.
            return plain(*args, **kwargs)
        raise Refusal(
            "nn.%s runs in cuDNN, and how much that keeps for backward only a card's driver knows" % name.upper(),
            "record it as it trains without cuDNN (torch.backends.cudnn.enabled = False in your module, nn.%sCell's loop, a "
            "number for the length), or measure it on the card with plimsoll probe" % name.upper(),
        )

    return run


def differentiated(watch, plain):
    """A run of autograd's engine, of which forward may want one as well (a penalty on a gradient, a step of MAML)."""

    def run(*args, **kwargs):
        if watch.tape.in_backward():
            return plain(*args, **kwargs)
        outer, watch.differentiating = watch.differentiating, len(watch.tape.modules)
        try:
            return plain(*args, **kwargs)
        finally:
            watch.differentiating = outer

    return run


@contextlib.contextmanager
def no_card_needed(attention, watch, compiling=False):
    """Questions that only a driver could answer are answered for this card."""
    import torch
    import torch.cuda.amp.common
    from torch._subclasses import fake_tensor

    library = torch.library.Library("aten", "IMPL")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        # Older versions override without being asked whether they may (since 2.8).
        may = {"allow_override": True} if "allow_override" in library.impl.__code__.co_varnames else {}
        library.impl("scaled_dot_product_attention", attention, "CompositeImplicitAutograd", **may)
        library.impl("dropout", dropout, "CompositeImplicitAutograd", **may)
        library.impl("one_hot", one_hot, "CompositeImplicitAutograd", **may)
        for lengths in ("IntList", "Tensor"):
            library.impl("ctc_loss.%s" % lengths, ctc_loss, "CompositeImplicitAutograd", **may)
        if not compiling:
            library.impl("linear", linear, "CompositeImplicitAutograd", **may)
    replaced = [
        # Without a driver autocast and GradScaler would switch themselves off.
        (torch.cuda.amp.common, "amp_definitely_not_available", lambda: False),
        (torch.cuda, "is_bf16_supported", lambda *_, **__: True),
        (torch.cuda, "get_device_capability", lambda *_: attention.capability),
        (fake_tensor, "CONSTANT_NUMEL_LIMIT", 1024),
    ]
    if hasattr(torch.autograd, "_engine_run_backward"):
        replaced.append((torch.autograd, "_engine_run_backward", differentiated(watch, torch.autograd._engine_run_backward)))
    replaced += [(torch._VF, called, recurrent(getattr(torch._VF, called), name)) for called, name in
                 (("lstm", "lstm"), ("gru", "gru"), ("rnn_tanh", "rnn"), ("rnn_relu", "rnn"))]
    # Fake tensors are taken for a graph being captured, and masks would then be made whether or not they are needed; as they are where
    # one is (`torch.compile`).
    for name in () if compiling else ("transformers.masking_utils", "transformers.modeling_attn_mask_utils"):
        if name in sys.modules and hasattr(sys.modules[name], "is_tracing"):
            replaced.append((sys.modules[name], "is_tracing", lambda *_: False))
    if "bitsandbytes" in sys.modules:
        functions = sys.modules["bitsandbytes"].autograd._functions
        replaced += [(kind, "backward", in_backward(watch, kind)) for kind in (functions.MatMul4Bit, functions.MatMul8bitLt)]
    before = [(place, name, getattr(place, name)) for place, name, _ in replaced]
    for place, name, value in replaced:
        setattr(place, name, value)
    try:
        yield
    finally:
        for place, name, value in before:
            setattr(place, name, value)
        library._destroy()
