# ---------------------------------------------------------------------------------------------------------------------
# Operators on fake tensors, and what they made before

# What calls on fake tensors have made, by what was told of them.
MADE = {}

# Operators whose results have more memory than their sizes say.
PADDED = set()


def from_within(shape, given):
    """Dimensions from that whose numbers lie closest, by the strides of operands; 0 where one is spread."""

    def later(one, other):
        """Above zero where the first of them goes further out."""
        for strides in given:
            a, b = strides[one], strides[other]
            if a and b and a != b:
                return 1 if a > b else -1
            if a and b and shape[one] > shape[other]:
                return 1
        return 0

    order = list(range(len(shape)))[::-1]
    for i in range(1, len(order)):
        at = i
        for before in range(i - 1, -1, -1):
            further = later(order[before], order[at])
            if further > 0:
                order[before], order[at] = order[at], order[before]
                at = before
            elif further < 0:
                break
    return order


def remembering(tape):
    """What runs operators for a tape, made when torch is there."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensor
    from torch.utils._pytree import tree_leaves

    aten = torch.ops.aten
    card, meta = torch.device("cuda", 0), torch.device("meta")
    plain_values = (int, float, bool, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format)

    # Of two operands, number by number.
    POINTWISE = (aten.add.Tensor, aten.sub.Tensor, aten.mul.Tensor, aten.div.Tensor)

    def told_apart(things, told):
        """Writes down what tells a call from others; whether that is all there is to it."""
        for thing in things:
            kind = type(thing)
            if kind is FakeTensor or kind is torch.nn.Parameter and isinstance(thing, FakeTensor):
                if thing.constant is not None or thing.dtype.is_complex:
                    return False
                told += (kind, thing.shape, thing.stride(), thing.dtype, thing.storage_offset(), thing.fake_device)
            elif kind in (list, tuple, torch.Size):
                told += (list, len(thing))
                if not told_apart(thing, told):
                    return False
            elif kind in plain_values:
                # 1 and 1.0 are as equal as the tensors they make are not.
                told += (kind, thing)
            else:
                return False
        return True

    class Remembered:
        """Runs operators on fake tensors, and makes what they made once more where a call is like another."""

        def __init__(self):
            # Whether calls of an operator are remembered, by operator.
            self.tape, self.remembered = tape, {}

        def run(self, func, args, kwargs):
            """Runs an operator on fake tensors. What they remember of a call like it has tensors end with their last element: of one that
            makes rows longer than it says (the gradient of attention's mask), they are to remember nothing."""
            fake = self.tape.fake
            if func in PADDED:
                fake.cache_enabled, before = False, fake.cache_enabled
                try:
                    return func(*args, **kwargs)
                finally:
                    fake.cache_enabled = before
            known = self.call_of(func, args, kwargs)
            made = None if known is None else MADE.get(known)
            if made is not None:
                return self.made_again(made, args)
            out = func(*args, **kwargs)
            if func in POINTWISE:
                out = self.laid_out(args, out)
            for made in out if isinstance(out, (tuple, list)) else (out,):
                if isinstance(made, FakeTensor) and not func.is_view and not made.is_contiguous() and made.numel():
                    last = made.storage_offset() + sum((n - 1) * step for n, step in zip(made.shape, made.stride()))
                    if made.untyped_storage().nbytes() > (last + 1) * made.dtype.itemsize:
                        PADDED.add(func)
            if known is not None and func not in PADDED:
                made = self.described(func, args, out)
                if made is not None:
                    MADE[known] = made
            return out

        def laid_out(self, args, out):
            """What is made of numbers in 16 bits that are spread over a dimension lies as the other operand (`reorder_dimensions` in
            TensorIterator.cpp), where fake tensors first convert to 32 bits, and go by what comes of that."""
            if out.dtype.itemsize != 2 or out.dim() < 2:
                return out
            given = [arg.expand(out.shape).stride() for arg in args if isinstance(arg, torch.Tensor)]
            if not any(0 in strides for strides in given):
                return out
            strides, step = [0] * out.dim(), 1
            for dim in from_within(out.shape, given):
                strides[dim], step = step, step * out.shape[dim]
            if tuple(strides) == out.stride():
                return out
            plain = torch._C._DisableTorchDispatch()
            empty = torch.empty_strided(out.shape, strides, dtype=out.dtype, device=meta)
            del plain
            return self.tape.as_fake(empty)

        def call_of(self, func, args, kwargs):
            """A call as far as what it makes follows from that, or `None`. Fake tensors remember calls themselves, at several times the
            price."""
            remembered = self.remembered.get(func)
            if remembered is None:
                tags = (torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape, torch.Tag.inplace_view)
                remembered = self.remembered[func] = (
                    func.namespace == "aten" and not func._schema.is_mutable and not any(tag in func.tags for tag in tags)
                    and not (func.is_view and torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd"))
                )
            if not remembered:
                return None
            told = [func, torch.get_default_dtype()]
            if not (told_apart(args, told) and (not kwargs or told_apart(kwargs, told) and told_apart(kwargs.values(), told))):
                return None
            return tuple(told)

        def described(self, func, args, out):
            """What an operator made, as far as it can be made again: fresh tensors that end with their last element, or a view of the
            first that it was given."""
            whole = isinstance(out, (tuple, list))
            # The one that is a view and does not say so to autograd.
            viewed = func.is_view or func is aten._unsafe_view.default
            if whole and (viewed or type(out) is not tuple):
                return None
            parts = []
            for made in out if whole else (out,):
                if made is None:
                    parts.append(None)
                    continue
                if type(made) is not FakeTensor or made.constant is not None or made.fake_device != card or made.dtype.is_complex:
                    return None
                sizes, strides, offset = tuple(made.shape), tuple(made.stride()), made.storage_offset()
                storage = made.untyped_storage()
                if viewed:
                    if type(args[0]) is not FakeTensor or storage._cdata != args[0].untyped_storage()._cdata:
                        return None
                else:
                    last = 0 if made.numel() == 0 else 1 + sum((n - 1) * step for n, step in zip(sizes, strides))
                    held = [storage._cdata == one.untyped_storage()._cdata for one in tree_leaves(args) if isinstance(one, torch.Tensor)]
                    if offset or storage.nbytes() != last * made.dtype.itemsize or any(held):
                        return None
                parts.append((sizes, strides, made.dtype, offset, viewed))
            return parts, whole

        def made_again(self, made, args):
            parts, whole = made
            if not whole:
                return self.one_again(parts[0], args)
            return tuple([self.one_again(part, args) for part in parts])

        def one_again(self, part, args):
            if part is None:
                return None
            sizes, strides, dtype, offset, viewed = part
            # Below whatever looks on.
            plain = torch._C._DisableTorchDispatch()
            if viewed:
                empty = torch.empty(0, dtype=dtype, device=meta).set_(args[0].untyped_storage(), offset, sizes, strides)
            else:
                empty = torch.empty_strided(sizes, strides, dtype=dtype, device=meta)
            del plain
            return self.tape.as_fake(empty)

    return Remembered()
