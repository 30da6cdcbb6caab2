"""The card's way, where fake tensors or a machine without a card would go another.

Everything here replaces a question that only a driver, or numbers in a tensor, could answer. Each replacement says what
a real card does.
"""

import contextlib
import math
import pathlib
import sys
import tomllib
import warnings

import torch
from torch._meta_registrations import calc_conv_nd_return_shape

from scripts import load

aten = torch.ops.aten
ROOT = pathlib.Path(__file__).resolve().parents[3]


def compute_capability(gpu):
    with open(ROOT / "data" / "gpus.toml", "rb") as file:
        for series in tomllib.load(file)["series"]:
            if "compute_capability" in series and any(card["id"] == gpu for card in series["cards"]):
                return tuple(int(part) for part in series["compute_capability"].split("."))
    raise SystemExit("data/gpus.toml has no card %r with a compute capability" % gpu)


# Which attention kernel runs, and what C++ does around it, is the recorder's to know too (`plimsoll trace`).
recorder = load("recorder")
Attention, dropout = recorder.Attention, recorder.dropout


def convolution(watch, func, input, weight, bias, stride, padding, dilation, transposed, output_padding, groups):
    """Which convolution runs is asked of cuDNN; whichever it is, it fills one tensor."""
    shape = calc_conv_nd_return_shape(
        input, weight, list(stride), list(padding), list(dilation), transposed, groups,
        list(output_padding) if transposed else None,
    )
    channels_last = weight.dim() == 4 and (last(input) or last(weight))
    with watch.quiet():
        made = input.new_empty(shape)
        return made.to(memory_format=torch.channels_last) if channels_last else made


def last(tensor):
    return tensor.is_contiguous(memory_format=torch.channels_last) and not tensor.is_contiguous()


def convolution_backward(watch, func, gradient, input, weight, bias_sizes, stride, padding, dilation, transposed,
                         output_padding, groups, mask):
    with watch.quiet():
        return (
            torch.empty_like(input) if mask[0] else None,
            torch.empty_like(weight) if mask[1] else None,
            gradient.new_empty(weight.size(0) if not transposed else weight.size(1) * groups) if mask[2] else None,
        )


def grouped_mm(watch, func, left, right, offsets=None, bias=None, out_dtype=None):
    """The fake one takes bfloat16 alone; the card multiplies other dtypes group by group into one result."""
    if left.dtype == torch.bfloat16:
        return NotImplemented
    with watch.quiet():
        if left.dim() == 2 and right.dim() == 2:
            return left.new_empty(offsets.size(0), left.size(0), right.size(1))
        return left.new_empty(*left.shape[:-1], right.size(-1))


def safe_softmax(watch, func, x, dim, dtype=None):
    """With a tensor of its own for the result, as the rows have had it from the first. (The C++ of 2.11 writes the rows
    of zeros into the softmax, and so makes one tensor of scores less.)"""
    with watch:
        out = torch.softmax(x, dim, dtype)
        masked = x.eq(-math.inf)
        rows = masked.all(dim, keepdim=True)
        zero = torch.zeros([], dtype=out.dtype, device=out.device)
        return torch.where(rows, zero, out)


# How many refer to a tensor, to its storage and to its Python object in `add` below where the engine's buffer alone holds
# it, with PyTorch 2.11 and Python 3.11.
SOLE = (4, 2, 5)


def add(watch, func, left, right, *, alpha=1):
    """A second gradient for the same tensor. The engine adds in place to one that nobody else holds
    (`can_accumulate_inplace` in input_buffer.cpp), but never to a tensor of a Python class, as fake ones are."""
    backward = watch.ledger.phases[-1]["name"] == "backward" and not torch.is_grad_enabled()
    if not backward or alpha != 1 or not isinstance(right, torch.Tensor):
        return NotImplemented
    held = (left._use_count(), torch._C._storage_Use_Count(left.untyped_storage()._cdata), sys.getrefcount(left))
    if (left.dtype, left.shape) != (right.dtype, right.shape) or held != SOLE:
        return NotImplemented
    with watch, torch.no_grad():
        return left.add_(right)


def into(watch, func, made, *args, **kwargs):
    """What picking and choosing do backwards: gradients are written into zeros made for them (`index_backward`,
    `value_selecting_reduction_backward`, `gather_backward` in FunctionsManual.cpp). To a tensor of a Python class a copy
    would be made."""
    backward = watch.ledger.phases[-1]["name"] == "backward" and not torch.is_grad_enabled()
    return made if backward else NotImplemented


def fused_sgd(watch, func, *args, **kwargs):
    """It writes into the lists it is given. Fake tensors do not know it."""


# Operators that are not run as they are; each is handed the watching mode and the operator before its arguments.
INSTEAD = {
    aten.add.Tensor: add,
    aten.index_put.default: into,
    aten.scatter.src: into,
    aten.scatter_add.default: into,
    aten.convolution.default: convolution,
    aten.convolution_backward.default: convolution_backward,
    aten._grouped_mm.default: grouped_mm,
    aten._safe_softmax.default: safe_softmax,
    aten._fused_sgd_.default: fused_sgd,
}


def apply(module, fn, recurse=True):
    """`nn.Module._apply` as ordinary parameters go through it: each keeps its identity (tied ones stay tied) and gets
    new data. Fake ones would be swapped, which parameters with weak references refuse."""
    if recurse:
        for child in module.children():
            child._apply(fn)
    with torch.no_grad():
        for parameter in module._parameters.values():
            if parameter is None:
                continue
            made = fn(parameter)
            if made is not parameter:
                parameter.data = made
                if hasattr(made, "fake_device"):
                    parameter.fake_device = made.fake_device
    for name, buffer in module._buffers.items():
        if buffer is not None:
            module._buffers[name] = fn(buffer)
    return module


def max_frames_and_seek(batch_size, attention_mask, total_input_frames, is_shortform):
    """`WhisperGenerationMixin._retrieve_max_frames_and_seek` where nothing is longer than a segment. These are the host's
    own numbers, and it asks for them: fake tensors know only those that were written down."""
    assert is_shortform
    return torch.tensor([total_input_frames] * batch_size), torch.tensor([0] * batch_size)


@contextlib.contextmanager
def replacing(replaced):
    """Each `(place, name, value)` stands in its place for a while."""
    before = [getattr(place, name) for place, name, _ in replaced]
    for place, name, value in replaced:
        setattr(place, name, value)
    try:
        yield
    finally:
        for (place, name, _), value in zip(replaced, before):
            setattr(place, name, value)


@contextlib.contextmanager
def put_in(attention):
    """Everything that is replaced while a scenario runs."""
    import torch.cuda.amp.common
    from torch._subclasses import fake_tensor
    from transformers import masking_utils, modeling_attn_mask_utils
    from transformers.models.whisper.generation_whisper import WhisperGenerationMixin

    library = torch.library.Library("aten", "IMPL")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        library.impl("scaled_dot_product_attention", attention, "CompositeImplicitAutograd", allow_override=True)
        library.impl("dropout", dropout, "CompositeImplicitAutograd", allow_override=True)
    replaced = [
        (torch.nn.Module, "_apply", apply),
        # Without a driver autocast and GradScaler would switch themselves off.
        (torch.cuda.amp.common, "amp_definitely_not_available", lambda: False),
        (torch.cuda, "is_bf16_supported", lambda *_, **__: True),
        (torch.cuda, "get_device_capability", lambda *_: attention.capability),
        # Fake tensors are taken for a graph being captured, and masks would then be made whether or not they are needed.
        (masking_utils, "is_tracing", lambda *_: False),
        (modeling_attn_mask_utils, "is_tracing", lambda *_: False),
        (WhisperGenerationMixin, "_retrieve_max_frames_and_seek", staticmethod(max_frames_and_seek)),
        (fake_tensor, "CONSTANT_NUMEL_LIMIT", 1024),
    ]
    try:
        with replacing(replaced):
            yield
    finally:
        library._destroy()
