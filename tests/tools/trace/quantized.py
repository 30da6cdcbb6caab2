"""bitsandbytes on fake tensors: its Python is the real one, its kernels are the allocations that `backends/cuda/ops.py` of
0.50.2 makes around them.

Of an older version the Python is that of an unpacked wheel. Before 0.46 it makes every tensor itself and calls its library
through ctypes, which does nothing here.
"""

import contextlib
import sys
import types
import weakref

import torch
from torch.utils._pytree import tree_leaves

from card import replacing

# `_GEMM_4BIT_CUSTOM_FLOOR_M`: up to as many rows go through the fused kernel on every card. Between there and 1536 it is a
# matter of card and size; the rows have the weight unpacked.
FUSED_ROWS = 4


def made(watch, shape, dtype, like):
    return torch.empty(shape, dtype=dtype, device=like.device)


def quantize_4bit(watch, func, a, blocksize, quant_type, quant_storage):
    numbers = a.numel()
    with watch:
        return (
            made(watch, (-(-numbers // (quant_storage.itemsize * 2)), 1), quant_storage, a),
            made(watch, (-(-numbers // blocksize),), torch.float32, a),
        )


def quantize_blockwise(watch, func, a, code, blocksize):
    with watch:
        return made(watch, a.shape, torch.uint8, a), made(watch, (-(-a.numel() // blocksize),), torch.float32, a)


def dequantize_4bit(watch, func, a, absmax, blocksize, quant_type, shape, dtype):
    return torch.empty(shape, dtype=dtype, device=a.device)


def dequantize_blockwise(watch, func, a, absmax, code, blocksize, dtype):
    return torch.empty_like(a, dtype=dtype)


def gemm_4bit(watch, func, a, b, shape, absmax, blocksize, quant_type, bias=None, absmax_8bit=None, absmax_code=None,
              absmax_offset=None):
    inner = a.shape[-1]
    if a.numel() // inner <= FUSED_ROWS and inner % blocksize == 0:
        # `_gemm_4bit_kernel_impl`. A four-bit linear's input lies together but for what a transpose left.
        with watch:
            a = a.contiguous()
            return made(watch, (*a.shape[:-1], shape[0]), a.dtype, a)
    with watch:
        # `_dequant_linear_fallback`
        if absmax_8bit is not None:
            absmax_dq = torch.empty_like(absmax_8bit, dtype=torch.float32)
            absmax = absmax_dq + absmax_offset
        whole = made(watch, shape, a.dtype, a)
        return torch.nn.functional.linear(a, whole, bias)


def int8_vectorwise_quant(watch, func, a, threshold=0.0):
    with watch:
        row_stats = made(watch, (a.numel() // a.shape[-1],), torch.float32, a)
        out_row = made(watch, a.shape, torch.int8, a)
        outlier_cols = None
        if threshold > 0.0:
            outliers = a.abs() >= threshold
            # The host asks; none is.
            outliers.any()
            outlier_cols = torch.empty(0, device=a.device, dtype=torch.int64)
            del outliers
        # `out_row[:, outlier_cols] = 0` writes nothing.
        return out_row, row_stats, outlier_cols


def int8_linear_matmul(watch, func, a, b):
    return torch.empty((*a.shape[:-1], b.shape[0]), device=a.device, dtype=torch.int32)


def int8_mm_dequant(watch, func, a, row_stats, col_stats, dtype=None, bias=None):
    with watch:
        out = torch.empty_like(a, dtype=torch.float16)
        if bias is not None and bias.dtype != torch.float16:
            out.add_(bias)
        return out.to(dtype or torch.float16)


class Library:
    """Kernels that write into what they are given."""

    def __getattr__(self, name):
        return lambda *_: None


def take(folder):
    """Has the Python of an older bitsandbytes run, which lies unpacked in `folder`."""
    sys.path.insert(0, folder)
    # Of Triton before 3.0, and of scipy; only what nobody calls wants them.
    for name in ("triton.ops", "triton.ops.matmul_perf_model", "scipy", "scipy.stats"):
        sys.modules.setdefault(name, types.ModuleType(name))
    sys.modules["scipy.stats"].norm = None
    sys.modules["triton.ops.matmul_perf_model"].early_config_prune = None
    sys.modules["triton.ops.matmul_perf_model"].estimate_matmul_time = None
    # It tells where its library is not.
    with contextlib.redirect_stdout(sys.stderr):
        import bitsandbytes
    if not bitsandbytes.__file__.startswith(folder):
        raise SystemExit("there is no bitsandbytes in %s" % folder)
    functional = bitsandbytes.functional
    for name, value in {
        "lib": Library(), "get_ptr": lambda _: None, "is_on_gpu": lambda _: True, "pre_call": lambda _: None,
        "post_call": lambda _: None,
    }.items():
        setattr(functional, name, value)


def in_python(watch, func, *args, **kwargs):
    """What has no kernel of its own: Python made of other operators (`backends/default/ops.py`)."""
    with watch:
        return func._op_dk(torch._C.DispatchKey.CompositeExplicitAutograd, *args, **kwargs)


def instead():
    """The replacements, by operator; none without bitsandbytes."""
    try:
        import bitsandbytes  # noqa: F401
    except ImportError:
        return {}
    ops, found = torch.ops.bitsandbytes, {}
    for replacement in (
        quantize_4bit, quantize_blockwise, dequantize_4bit, dequantize_blockwise, gemm_4bit, int8_vectorwise_quant,
        int8_linear_matmul, int8_mm_dequant,
    ):
        if hasattr(ops, replacement.__name__):
            found[getattr(ops, replacement.__name__).default] = replacement
    for name in ("int8_mixed_scaled_mm", "int8_scaled_mm", "int8_vectorwise_dequant"):
        if hasattr(ops, name):
            found[getattr(ops, name).default] = in_python
    return found


class Quantized(type):
    """Says of a fake tensor that it is a `Params4bit` or an `Int8Params`, as `Parameter`'s own metaclass does."""

    def __instancecheck__(cls, instance):
        return getattr(instance, "_quantized_as", None) == cls.__name__


def parameter(kind, data, requires_grad, **attributes):
    """A fake tensor can be no instance of another class: it gets what the code asks of one."""
    made = torch.nn.Parameter(data, requires_grad=False)
    for name, value in {"_quantized_as": kind, **attributes}.items():
        setattr(made, name, value)
    return made


class Params4bit(metaclass=Quantized):
    def __new__(cls, data, requires_grad=False, quant_state=None, blocksize=None, compress_statistics=True,
                quant_type="fp4", quant_storage=torch.uint8, module=None, bnb_quantized=False, **_):
        return parameter(
            cls.__name__, data, requires_grad, blocksize=blocksize or 64, compress_statistics=compress_statistics,
            quant_type=quant_type, quant_state=quant_state, quant_storage=quant_storage, bnb_quantized=bnb_quantized,
            module=module,
        )


class Int8Params(metaclass=Quantized):
    def __new__(cls, data, requires_grad=True, has_fp16_weights=False, CB=None, SCB=None, **_):
        return parameter(cls.__name__, data, requires_grad, has_fp16_weights=has_fp16_weights, CB=CB, SCB=SCB)


def quantized_parameter(module, weight, options, bitsandbytes):
    """The worker's, whose `Params4bit.to` quantizes."""
    functional = bitsandbytes.functional
    if isinstance(module, bitsandbytes.nn.Linear8bitLt):
        numbers, scales, _ = functional.int8_vectorwise_quant(weight.to(torch.float16))
        return Int8Params(numbers, requires_grad=False, CB=numbers, SCB=scales)
    packed, state = functional.quantize_4bit(
        weight, blocksize=64, compress_statistics=options.bnb_4bit_use_double_quant,
        quant_type=options.bnb_4bit_quant_type, quant_storage=options.bnb_4bit_quant_storage,
    )
    module.quant_state = state
    return Params4bit(
        packed, quant_state=state, compress_statistics=options.bnb_4bit_use_double_quant,
        quant_type=options.bnb_4bit_quant_type, module=module, bnb_quantized=True,
    )


def dequantize_module_weight(module):
    """peft's, which tells what is quantized by the name of its class."""
    import bitsandbytes
    import peft

    weight = module.weight
    if isinstance(weight, Params4bit):
        return bitsandbytes.functional.dequantize_4bit(weight.data, weight.quant_state)
    if isinstance(weight, Int8Params):
        scales = weight.SCB if module.state.SCB is None else module.state.SCB
        return bitsandbytes.functional.int8_vectorwise_dequant(weight.data, scales)
    return peft.utils.integrations.dequantize_module_weight(module)


def on_the_card(watch, function):
    """An autograd function's `backward`, whose Python asks a tensor where it is and is to hear: on the card."""
    backward = function.backward

    def backward_there(ctx, *gradients):
        watch.ledger.modules.append("")
        try:
            return backward(ctx, *gradients)
        finally:
            watch.ledger.modules.pop()

    return staticmethod(backward_there)


def noted(watch, function):
    """An autograd function's `forward`, whose result gets a history afterwards as an operator's does."""
    forward = function.forward

    def forward_and_note(ctx, *arguments):
        out = forward(ctx, *arguments)
        watch.made, watch.rebased = [weakref.ref(out)], False
        return out

    return staticmethod(forward_and_note)


@contextlib.contextmanager
def put_in(worker, watch):
    """bitsandbytes' parameters as fake tensors. Of loading what it leaves is counted, not the way there."""
    import bitsandbytes
    import peft.tuners.lora.dora

    build = worker.build

    def counted(*arguments):
        watch.ledger.pause()
        made = build(*arguments)
        watch.ledger.resume(loaded(made[0]))
        return made

    modules = bitsandbytes.nn.modules
    functions = bitsandbytes.autograd._functions
    replaced = [
        (functions.MatMul4Bit, "forward", noted(watch, functions.MatMul4Bit)),
        (functions.MatMul8bitLt, "forward", noted(watch, functions.MatMul8bitLt)),
        (functions.MatMul4Bit, "backward", on_the_card(watch, functions.MatMul4Bit)),
        (functions.MatMul8bitLt, "backward", on_the_card(watch, functions.MatMul8bitLt)),
        (modules, "Params4bit", Params4bit), (bitsandbytes.nn, "Params4bit", Params4bit),
        (modules, "Int8Params", Int8Params), (bitsandbytes.nn, "Int8Params", Int8Params),
        (worker, "quantized_parameter", quantized_parameter), (worker, "build", counted),
        (peft.tuners.lora.dora, "dequantize_module_weight", dequantize_module_weight),
        # Whose numbers nobody reads.
        (bitsandbytes.functional, "create_dynamic_map", lambda *_, **__: torch.empty(256)),
    ]
    with replacing(replaced):
        yield


def loaded(model):
    """Every tensor of a quantized model, its states included: loading is counted by what it leaves."""
    for module in model.modules():
        state = getattr(module, "state", None)
        for held in (*module._parameters.values(), *module._buffers.values(), getattr(state, "CB", None),
                     getattr(state, "SCB", None)):
            if held is None:
                continue
            yield held
            yield from (getattr(held, name) for name in ("CB", "SCB") if getattr(held, name, None) is not None)
            quantized = getattr(held, "quant_state", None)
            if quantized is not None:
                yield from states(quantized)


def states(quantized):
    if isinstance(quantized, (list, tuple)):
        # Before 0.42.
        yield from (held for held in tree_leaves(quantized) if isinstance(held, torch.Tensor))
        return
    for held in (quantized.absmax, quantized.code, quantized.offset):
        if held is not None:
            yield held
    if quantized.state2 is not None:
        yield from states(quantized.state2)
