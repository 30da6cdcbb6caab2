# ---------------------------------------------------------------------------------------------------------------------
# Kernels of quantized layers


def four_and_eight_bits(watch):
    """bitsandbytes' kernels by what `backends/cuda/ops.py` and `backends/default/ops.py` of 0.50 allocate around them; none where it was
    not imported. A product with up to four rows goes through a kernel that reads the packed weight, and up to 1536 it may, by card and
    size: all are taken to unpack it, which is more."""
    import torch

    if "bitsandbytes" not in sys.modules or not hasattr(torch.ops.bitsandbytes, "gemm_4bit"):
        return {}
    tape, ops = watch.tape, torch.ops.bitsandbytes

    def fresh(name, like, shape, dtype):
        """What a kernel of this name writes."""
        made = like.new_empty(shape, dtype=dtype)
        before, tape.op = tape.op, name
        tape.see(made)
        tape.op = before
        return made

    def gemm_4bit(func, x, weight, shape, absmax, blocksize, kind, bias=None, absmax_8bit=None, absmax_code=None, absmax_offset=None):
        """`_dequant_linear_fallback`"""
        if absmax_8bit is not None:
            scales = fresh("dequantize_blockwise", absmax_8bit, absmax_8bit.shape, torch.float32)
            with watch:
                absmax = scales + absmax_offset
        whole = fresh("dequantize_4bit", x, shape, x.dtype)
        with watch:
            return torch.ops.aten.linear.default._op_dk(torch._C.DispatchKey.CompositeImplicitAutograd, x, whole, bias)

    def dequantize_4bit(func, weight, absmax, blocksize, kind, shape, dtype):
        return weight.new_empty(shape, dtype=dtype)

    def dequantize_blockwise(func, numbers, absmax, code, blocksize, dtype):
        return numbers.new_empty(numbers.shape, dtype=dtype)

    def int8_vectorwise_quant(func, x, threshold=0.0):
        scales = fresh("int8_vectorwise_quant", x, (x.numel() // x.shape[-1],), torch.float32)
        rows = fresh("int8_vectorwise_quant", x, x.shape, torch.int8)
        with watch:
            if threshold > 0:
                # Which columns stand out only data says: none does.
                outliers = x.abs() >= threshold
                outliers.any()
                del outliers
            return rows, scales, torch.empty(0, dtype=torch.int64, device=x.fake_device) if threshold > 0 else None

    def int8_linear_matmul(func, x, weight):
        made = fresh("int8_linear_matmul", x, (*x.shape[:-1], weight.shape[0]), torch.int32)
        if weight.shape[-1] % 4:
            # cuBLASLt takes no such width.
            with watch:
                return made.copy_(torch.mm(x.float(), weight.float().t()).to(torch.int32))
        if not tape.closed:
            tape.emit("b", 0)
        return made

    def int8_mm_dequant(func, product, rows, columns, dtype=None, bias=None):
        made = fresh("int8_mm_dequant", product, product.shape, torch.float16)
        with watch:
            if bias is not None and bias.dtype != torch.float16:
                made.add_(bias)
            return made.to(dtype or torch.float16)

    def in_python(func, *args, **kwargs):
        """What no card has a kernel of."""
        with watch:
            return func._op_dk(torch._C.DispatchKey.CompositeExplicitAutograd, *args, **kwargs)

    kernels = (gemm_4bit, dequantize_4bit, dequantize_blockwise, int8_vectorwise_quant, int8_linear_matmul, int8_mm_dequant)
    found = {getattr(ops, kernel.__name__).default: kernel for kernel in kernels}
    return {**found, ops.int8_mixed_scaled_mm.default: in_python, ops.int8_scaled_mm.default: in_python}


def in_backward(watch, function):
    """Backward of an `autograd.Function` whose Python asks a tensor where it is, and then brings others there: on the card."""
    backward = function.backward

    def there(ctx, *gradients):
        watch.in_python = True
        try:
            return backward(ctx, *gradients)
        finally:
            watch.in_python = False

    return staticmethod(there)
