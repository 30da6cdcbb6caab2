"""Records what a training step of a model allocates, without a card: the script behind `plimsoll trace`.

The model's own forward and backward run once for each size on PyTorch's fake tensors, which have storages like any
other, only nothing in them. What autograd saves is handed to it as a handle that does not hold the tensor
(`torch.autograd.graph.saved_tensors_hooks`): a storage then goes when Python lets go of it, and what autograd keeps is
written down apart. The program `plimsoll` turns several such recordings into one file whose sizes are expressions.

What is written, one list for an instruction:

    ["a", s]        storage s comes             ["d", s]        Python lets go of it
    ["s", h, s]     autograd keeps it as h      ["r", h]        ... and lets go of it
    ["u", k, h]     backward takes it out as k  ["x", k]        ... and lets go of that
    ["t"]           what is called next is given something that takes a gradient
    ["m", n]        module n is called          ["e"]           ... and returns
    ["c"]           a checkpointed stretch      ["f"]           ... and ends
    ["g", s]        s is given to the module that was just called, or the stretch that just began
    ["b", bias]     a matrix product runs; 1 where it adds a bias as it goes
    ["n", i]        backward comes to what the forward made behind its i-th call or return
    ["i", p]        parameter p has its gradient
    ["p", name]     a phase begins: load, then four times input, forward and backward, "zero" before the last two

It needs nothing but torch, runs nobody's kernels, and sends nothing anywhere: one job is read from the first argument,
and the answer is written as lines of JSON to the descriptor that the job names.
"""

import bisect
import contextlib
import gc
import importlib
import importlib.util
import json
import logging
import math
import os
import re
import sys
import time
import traceback
import warnings
import weakref

PROTOCOL = 1


class Refusal(Exception):
    """What cannot be traced, and what to do."""

    def __init__(self, problem, hint):
        super().__init__(problem)
        self.problem, self.hint = problem, hint


class Channel:
    """Lines of JSON to whoever started this. What the model prints goes to standard error."""

    def __init__(self, descriptor):
        self.file = os.fdopen(descriptor, "w", encoding="utf-8")

    def send(self, **fields):
        self.file.write(json.dumps(fields, separators=(",", ":")) + "\n")
        self.file.flush()


# ---------------------------------------------------------------------------------------------------------------------
# The tape
# ---------------------------------------------------------------------------------------------------------------------


class Handle:
    """What autograd holds instead of a tensor."""

    __slots__ = ("number", "storage", "sizes", "strides", "dtype", "offset", "bytes", "module", "__weakref__")


class Tape:
    """Every storage on the card, who holds it, and until when."""

    def __init__(self):
        self.code, self.storages, self.kernels = [], [], {}
        self.alive = {}
        self.handles = self.taken = 0
        self.phase, self.begun = "", 0
        self.op = ""
        self.modules = [0]
        self.module_names, self.module_numbers = [""], {"": 0}
        self.backward_module = 0
        # The number of the first node behind every call and return of the forward, and where backward is among them.
        self.turns, self.place, self.after = [0], None, 0
        self.mute = self.closed = False
        self.fake = self.like = None

    def emit(self, *instruction):
        if not self.closed:
            self.code.append(instruction)

    def begin(self, phase):
        self.phase = phase
        self.begun = len(self.storages)
        self.backward_module = 0
        if phase == "forward":
            self.turns = [next_node()]
        self.place, self.after = None, next_node()
        self.emit("p", phase)

    def turn(self, *instruction):
        """A module is called, or returns."""
        self.emit(*instruction)
        if self.phase == "forward":
            self.turns.append(next_node())

    def reach(self):
        """Notes where backward is, before it does anything there."""
        if self.closed or not self.in_backward() or len(self.modules) > 1:
            return
        number = node_number()
        # What accumulates a gradient belongs nowhere, and what is made while a stretch is run again is new.
        if number is None or number >= self.after:
            return
        place = max(bisect.bisect_right(self.turns, number) - 1, 0)
        if place != self.place:
            self.place = place
            self.emit("n", place)

    def in_backward(self):
        return self.phase == "backward"

    def module(self, name):
        if name not in self.module_numbers:
            self.module_numbers[name] = len(self.module_names)
            self.module_names.append(name)
        return self.module_numbers[name]

    def see(self, tensor):
        """Notes the storage of a tensor on the card; its number."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        known = self.alive.get(key)
        if known is not None:
            if known[1] == 0 and storage.nbytes() > 0:
                # Made empty for an operator that writes its result there (`abs`), which takes the memory it needs.
                self.alive[key] = (known[0], storage.nbytes())
                self.storages[known[0]][:4] = storage.nbytes(), list(tensor.shape), short(tensor.dtype), self.op
            elif known[1] != storage.nbytes():
                raise Refusal("%s resizes a storage" % self.op, "leave it out of what is traced")
            return known[0]
        if self.mute or self.closed:
            return None
        number = len(self.storages)
        size = storage.nbytes()
        self.alive[key] = (number, size)
        module = self.modules[-1] if len(self.modules) > 1 or not self.in_backward() else self.backward_module
        node = ""
        if self.in_backward() and len(self.modules) == 1:
            node = current_node()
        self.storages.append([size, list(tensor.shape), short(tensor.dtype), self.op, module, node])
        self.emit("a", number)

        def gone():
            if self.alive.get(key, (None,))[0] == number:
                del self.alive[key]
            self.emit("d", number)

        weakref.finalize(storage, gone).atexit = False
        return number

    def filled(self, name, given):
        """What an allocation without a name of its own is written by."""
        import torch

        for tensor in given:
            if isinstance(tensor, torch.Tensor) and not self.closed:
                known = self.alive.get(tensor.untyped_storage()._cdata)
                if known is not None and self.storages[known[0]][3] == BUFFER:
                    self.storages[known[0]][3] = name

    def run(self, func, args, kwargs, out):
        """Notes what a kernel was given that holds something of its own while it runs, beside what it has just made."""
        told = told_by(func)
        if told is None or self.closed:
            return
        if kwargs:
            # As the schema has them: what was named, then what is usual.
            rest = func._schema.arguments[len(args):]
            args = (*args, *(kwargs.get(one.name, one.default_value) for one in rest))
        told = told(args, out)
        if told is None:
            return
        made, operands, numbers = told
        known = self.alive.get(made.untyped_storage()._cdata)
        if known is not None and known[0] == len(self.storages) - 1:
            self.kernels[known[0]] = name_of(func), [operand(tensor) for tensor in operands], numbers

    def given(self, *things):
        """Notes what a call is given. Lists made here go at once: a tensor in one would live on."""
        from torch._subclasses.fake_tensor import FakeTensor
        from torch.utils._pytree import tree_leaves

        numbers = []
        for tensor in tree_leaves(things):
            if isinstance(tensor, FakeTensor) and tensor.device.type == "cuda":
                known = self.alive.get(tensor.untyped_storage()._cdata)
                if known is not None and known[0] not in numbers:
                    numbers.append(known[0])
        for number in numbers:
            self.emit("g", number)

    def pack(self, tensor):
        """What autograd keeps in a tensor's place."""
        from torch._subclasses.fake_tensor import FakeTensor

        if not (isinstance(tensor, FakeTensor) and tensor.device.type == "cuda"):
            return tensor
        number = self.see(tensor)
        if number is None:
            return tensor
        handle = Handle()
        handle.number, handle.storage = self.handles, number
        handle.sizes, handle.strides = tuple(tensor.shape), tuple(tensor.stride())
        handle.dtype, handle.offset = tensor.dtype, tensor.storage_offset()
        handle.bytes = tensor.untyped_storage().nbytes()
        handle.module = self.modules[-1] if len(self.modules) > 1 else self.backward_module
        self.handles += 1
        self.emit("s", handle.number, number)
        released = handle.number
        weakref.finalize(handle, lambda: self.emit("r", released)).atexit = False
        return handle

    def fresh(self, handle):
        """A tensor over storage of its own, as the one that was kept is over its own; made below whatever looks on."""
        import torch
        from torch._subclasses.fake_tensor import FakeTensor

        plain = torch._C._DisableTorchDispatch()
        with torch.no_grad():
            if handle.bytes == 0 or math.prod(handle.sizes) == 0:
                made = torch.empty_strided(handle.sizes, handle.strides, dtype=handle.dtype, device="meta")
            else:
                flat = torch.empty(handle.bytes // handle.dtype.itemsize, dtype=handle.dtype, device="meta")
                made = flat.new_empty(0).set_(flat.untyped_storage(), handle.offset, handle.sizes, handle.strides)
        del plain
        return self.as_fake(made)

    def as_fake(self, made):
        """`FakeTensor(fake, made, card)`, whose attributes are those of any other: they are worked out once."""
        import torch
        from torch._subclasses.fake_tensor import FakeTensor

        card = torch.device("cuda", 0)
        if self.like is None:
            tensor = FakeTensor(self.fake, made, card)
            self.like = dict(tensor.__dict__)
            return tensor
        tensor = torch.Tensor._make_subclass(FakeTensor, made, False, dispatch_device=True, device_for_backend_keys=card)
        # What asks where the numbers are (`nn.LSTM` does, before it runs) is warned or ended, as PyTorch has it.
        warns = getattr(self.fake, "_allow_unsafe_data_ptr_access", False)
        said = "_set_warn_deprecated_on_mutable_data_ptr" if warns else "_set_throw_on_mutable_data_ptr"
        getattr(torch._C, said, lambda tensor: None)(tensor)
        tensor.__dict__.update(self.like)
        return tensor

    def unpack(self, handle):
        """A tensor over fresh storage of the same size, which stands for the one that was kept."""
        if not isinstance(handle, Handle):
            return handle
        tensor = self.fresh(handle)
        storage = tensor.untyped_storage()
        self.reach()
        key, number, taken = storage._cdata, handle.storage, self.taken
        self.taken += 1
        self.alive[key] = (number, storage.nbytes())
        self.backward_module = handle.module
        self.emit("u", taken, handle.number)

        def gone():
            if self.alive.get(key, (None,))[0] == number:
                del self.alive[key]
            self.emit("x", taken)

        weakref.finalize(storage, gone).atexit = False
        return tensor


# What inductor's code calls where it allocates.
BUFFER = "empty_strided_cuda"


def next_node():
    """The number that the next node of the graph gets."""
    import torch

    return torch.autograd._get_sequence_nr()


def node_number():
    """The number of the node that backward runs."""
    import torch

    node = torch._C._current_autograd_node()
    return None if node is None else node._sequence_nr()


def current_node():
    import torch

    try:
        node = torch._C._current_autograd_node()
        return "" if node is None else node.name().rsplit("::", 1)[-1]
    except (AttributeError, RuntimeError):
        return ""


def short(dtype):
    return str(dtype).replace("torch.", "")


def in_order(code):
    """Releases with nothing between them in one order: autocast's cache is a table by address, and lets go in any."""
    out, run = [], []
    for instruction in code:
        if instruction[0] in "drx":
            run.append(instruction)
        else:
            out += sorted(run)
            run = []
            out.append(instruction)
    return out + sorted(run)


# ---------------------------------------------------------------------------------------------------------------------
# The card that is not there
# ---------------------------------------------------------------------------------------------------------------------

# What the host sees when it asks the card for a number, by who asks. Anything else is seen as it is below, and every
# question is reported.
ANSWERS = {
    # Is anything in a mask padded? Nothing is.
    "fast_all": True,
    "_ignore_causal_mask_sdpa": True,
    "_ignore_bidirectional_mask_sdpa": True,
    "_preprocess_mask_arguments": True,
    # No sample is made of several.
    "find_packed_sequence_indices": True,
    "PreTrainedModel.warn_if_padding_and_no_attention_mask": False,
    # No sequence is longer than the positions were made for.
    "dynamic_rope_update": False,
    # Where an expert's rows end: the first has them all.
    "_grouped_mm_fallback_backward": 1 << 30,
}

# Operators made of others that only fill what they make, or copy into it: looking inside shows nothing more.
WHOLE = {
    "clone", "_to_copy", "zeros", "ones", "full", "zeros_like", "ones_like", "full_like", "new_zeros", "new_ones",
    "new_full", "new_empty", "new_empty_strided", "empty_like", "scalar_tensor", "arange", "rand", "randn", "randint",
    "rand_like", "randn_like", "cat", "stack", "copy", "detach", "alias", "lift_fresh", "repeat",
    "_unsafe_view", "logical_not", "embedding",
}

PRODUCTS = {"mm", "addmm", "bmm", "baddbmm", "addmv", "mv", "_grouped_mm"}


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
    return made[-1], [grad, x, weight], [sum(map(bool, wanted[1:]))]


def convolution_backward(args, out):
    made = [tensor for tensor in out if tensor is not None]
    return (made[-1], list(args[:3]), [int(out[2] is not None)]) if made else None


def compared(reduction):
    """A loss of an input and a target, where the argument of this number does not have it left element by element."""
    return lambda args, out: (out, list(args[:2]), []) if out.dim() == 0 and (len(args) <= reduction or args[reduction]) else None


def rows_added(args, out):
    indices = [index for index in args[1] if index is not None]
    if not (len(args) > 3 and args[3]) or not indices:
        return None
    return out, [args[2], indices[0]], []


def attention(other):
    """The queries, and the argument of this number."""

    def told(args, out):
        made = [tensor for tensor in out if hasattr(tensor, "untyped_storage") and tensor.device.type == "cuda"]
        return (made[-1], [args[0], args[other]], []) if made else None

    return told


def flash(args, out):
    # Keys are shared among blocks only where nothing is dropped.
    return None if len(args) > 3 and args[3] else attention(1)(args, out)


# Operators whose kernels hold something of their own while they run, which follows from what they are given: how that is told,
# as the storage that is made last, the operands and numbers (docs/hull.md).
KERNELS = {
    "sum": summation(1), "mean": reduction(1), "linalg_vector_norm": reduction(2), "amax": reduction(1), "amin": reduction(1),
    "max": reduction(1), "min": reduction(1), "max.dim": reduction(1), "min.dim": reduction(1), "argmax": reduction(1), "argmin": reduction(1),
    "all": reduction(1), "all.dim": reduction(1), "any": reduction(1), "any.dim": reduction(1),
    "var.correction": reduction(1), "std.correction": reduction(1), "var_mean.correction": reduction(1),
    "sort.stable": along(2), "topk": picked,
    "mse_loss": compared(2), "smooth_l1_loss": compared(2), "huber_loss": compared(2), "binary_cross_entropy": compared(3),
    "native_group_norm": lambda args, out: (out[-1], [args[0]], [int(args[1] is not None or args[2] is not None)]),
    "native_group_norm_backward": group_norm_backward,
    "native_layer_norm": lambda args, out: (out[-1], [args[0]], []),
    "native_layer_norm_backward": layer_norm_backward,
    "_softmax_backward_data": lambda args, out: (out, [args[1]], []),
    "embedding_dense_backward": lambda args, out: (out, [args[0], args[1]], []),
    "convolution": lambda args, out: (out, list(args[:2]), []), "convolution_backward": convolution_backward,
    "index_put": rows_added, "index_put_": rows_added, "_index_put_impl_": rows_added, "_unsafe_index_put": rows_added,
    "_scaled_dot_product_flash_attention": flash,
    "_scaled_dot_product_efficient_attention": attention(2),
    "_scaled_dot_product_flash_attention_backward": lambda args, out: (out[2], [args[0], args[4]], []),
}

# What calls on fake tensors have made, by what was told of them.
MADE = {}

# The overloads of these that are told of, others of theirs being other operators (`max.other`).
OVERLOADS = {"all", "amax", "amin", "any", "argmax", "argmin", "max", "min", "sort", "std", "var", "var_mean"}


def told_by(func):
    """How what this operator holds while it runs is told; `None` where it holds nothing."""
    base = func._schema.name.split("::")[-1]
    return KERNELS.get(name_of(func) if base in OVERLOADS else base)


# Operators whose results have more memory than their sizes say.
PADDED = set()

# What chance says: the largest that `torch.rand` draws.
NOTHING_LEFT_OUT = 1 - 2**-24

# Larger factories on the CPU stay fake: nobody reads that many numbers one by one.
MOST_ON_HOST = 4_000_000


def asking():
    """The function outside PyTorch's plumbing that the innermost call comes from. Only names are looked at: a frame's
    variables, once asked for, would keep its tensors alive."""
    frame = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        plumbing = ("/torch/_", "/torch/utils/", "/torch/library", "<frozen", __file__)
        if not any(part in code.co_filename for part in plumbing):
            return getattr(code, "co_qualname", code.co_name).split(".<locals>")[0]
        frame = frame.f_back
    return "nobody"


def leaves_function():
    """Whether the innermost call is of `torch.autograd.Function.apply` itself, behind its forward."""
    frame = sys._getframe(2)
    while frame is not None:
        code = frame.f_code
        if code.co_name == "apply" and code.co_filename.endswith("torch/autograd/function.py"):
            return True
        if not any(part in code.co_filename for part in ("/torch/_", "/torch/utils/", __file__)):
            return False
        frame = frame.f_back
    return False


def watch_class(compiling):
    """The dispatch mode, made when torch is there."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    aten = torch.ops.aten
    card, meta = torch.device("cuda", 0), torch.device("meta")
    plain_values = (int, float, bool, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format)

    def counted(things):
        """How many fake tensors there are, and how many of the host."""
        fake = host = 0
        for thing in things:
            if isinstance(thing, torch.Tensor):
                if isinstance(thing, FakeTensor):
                    fake += 1
                else:
                    host += 1
            elif isinstance(thing, (list, tuple)):
                more = counted(thing)
                fake, host = fake + more[0], host + more[1]
        return fake, host

    def wants_gradient(things):
        """Whether one of them wants a gradient."""
        for thing in things:
            if isinstance(thing, torch.Tensor):
                if thing.requires_grad:
                    return True
            elif isinstance(thing, (list, tuple)) and wants_gradient(thing):
                return True
        return False

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

    class Watch(TorchDispatchMode):
        """Sees every operator that reaches the card, and has those that are made of others run as them."""

        @classmethod
        def _should_skip_dynamo(cls):
            """Nothing is compiled while it looks on, but where a model is recorded so: PyTorch would otherwise switch its compiler off and on
            around every operator."""
            return compiling

        def __init__(self, tape, answers):
            super().__init__()
            self.tape, self.answers, self.asked = tape, answers, {}
            self.composite = {}
            self.made, self.rebased, self.accumulating = (), False, False
            self.leaves = []
            self.truths = []
            self.sole, self.samples = None, None
            self.in_python = False
            self.instead = replacements(self)
            self.fake, self.remembered = None, {}

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            kwargs = kwargs or {}
            if func is torch.ops.prim.device.default:
                return self.device(args[0])
            if self.tape.mute:
                return func(*args, **kwargs)
            self.tape.reach()
            if kwargs.get("device") == meta:
                kwargs = {**kwargs, "device": card}
            fake, host = counted(args)
            if kwargs:
                more = counted(kwargs.values())
                fake, host = fake + more[0], host + more[1]
            place = kwargs.get("device")
            if fake == 0 and (place is None or torch.device(place).type == "cpu"):
                # Numbers of the host are computed, and can be asked for.
                sizes = args[0] if args else ()
                large = (
                    not host
                    and isinstance(sizes, (list, tuple))
                    and math.prod(int(n) for n in sizes if not isinstance(n, (bool, str))) > MOST_ON_HOST
                )
                if not large:
                    with unset_fake_temporarily():
                        out = func(*args, **kwargs)
                        return self.chance(out) if func is aten.rand.default and out.numel() == 1 else out
            if func is aten._local_scalar_dense.default and getattr(args[0], "constant", None) is None:
                return self.answer(args[0])
            if func is aten.equal.default:
                return True
            if func in (aten.nonzero.default, aten.masked_select.default, aten.unique_consecutive.default,
                        aten._unique2.default) or (func is aten.index.Tensor and any(
                            i is not None and i.dtype in (torch.bool, torch.uint8) for i in args[1])):
                raise Refusal(
                    "%s asks how many elements there are (%s), which only data decides" % (asking(), func.name()),
                    "trace a part of the model whose sizes follow from its inputs' sizes",
                )
            self.tape.op = name_of(func)
            replacement = self.instead.get(func)
            if replacement is not None:
                out = replacement(func, *args, **kwargs)
                if out is not NotImplemented:
                    return self.seen(func, out, args, kwargs)
            if func._schema.is_mutable and func._schema.name.startswith("aten::_foreach_"):
                # The card writes into the list it is given; fake tensors would go through copies of each.
                return None
            if self.is_composite(func):
                with self:
                    out = func._op_dk(torch._C.DispatchKey.CompositeExplicitAutograd, *args, **kwargs)
                return self.seen(func, out, args, kwargs)
            base = func._schema.name.split("::")[-1]
            if base in PRODUCTS and not self.tape.closed:
                bias = base in ("addmm", "addmv") and args[0].dim() == 1
                self.tape.emit("b", int(bias))
            return self.seen(func, self.run(func, args, kwargs), args, kwargs)

        def run(self, func, args, kwargs):
            """Runs an operator on fake tensors. What they remember of a call like it has tensors end with their last element: of one that
            makes rows longer than it says (the gradient of attention's mask), they are to remember nothing."""
            if func in PADDED:
                self.fake.cache_enabled, before = False, self.fake.cache_enabled
                try:
                    return func(*args, **kwargs)
                finally:
                    self.fake.cache_enabled = before
            known = self.call_of(func, args, kwargs)
            made = None if known is None else MADE.get(known)
            if made is not None:
                return self.made_again(made, args)
            out = func(*args, **kwargs)
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

        def chance(self, drawn):
            """A number that the host draws to decide by, as whether a layer is left out (`layerdrop`): the same each
            time, so that every micro-batch goes the same way, and near 1, so that nothing is left out."""
            who = asking()
            given = self.answers.get(who, NOTHING_LEFT_OUT)
            self.asked[who] = [short(drawn.dtype), given]
            return drawn.fill_(given)

        def answer(self, tensor):
            who = asking()
            # Gradients that overflow: none does.
            given = self.answers.get(who, ANSWERS.get(who))
            if given is None:
                given = self.truth(tensor)
            if given is None:
                given = False if tensor.dtype == torch.bool else 0.0 if tensor.dtype.is_floating_point else 1
            self.asked[who] = [short(tensor.dtype), given]
            return given

        def truth(self, tensor):
            """What a tensor says that asks about all or any, if it does: everything is as it should be (`isfinite(x).all()`,
            `(mask == 1).all()`), and nothing is otherwise (`isinf(x).any()`)."""
            return next((said for known, said in self.truths if known() is tensor), None)

        def note_truth(self, func, out, args):
            op = func._schema.name.split("::")[-1]
            said = {"all": True, "any": False}.get(op)
            if op in ("logical_not", "bitwise_not"):
                said = self.truth(args[0])
                said = None if said is None else not said
            if said is not None and isinstance(out, torch.Tensor) and out.numel() == 1:
                self.truths = [known for known in self.truths if known[0]() is not None] + [(weakref.ref(out), said)]

        def accumulators(self, parameters):
            """The nodes that accumulate the parameters' gradients, which live as long as this list."""
            self.accumulating = True
            nodes = [parameter.expand_as(parameter).grad_fn.next_functions[0][0] for parameter in parameters]
            self.accumulating = False
            return nodes

        def device(self, tensor):
            """Where C++ takes a tensor to be: on the card, but for autograd. Its engine would send what belongs to a card
            to that card's own thread, and there is none; with nodes on no device it runs them in the caller's, in the
            same order. What backward formulas then make where a gradient is (on `meta`) is put on the card above."""
            if self.tape.in_backward() and len(self.tape.modules) == 1 and not self.in_python:
                return meta
            if not isinstance(tensor, FakeTensor):
                return tensor.device
            if not torch.is_grad_enabled():
                return tensor.fake_device
            if (self.rebased or not tensor.requires_grad) and any(tensor is made() for made in self.made):
                # `set_history` on an operator's result, `rebase_history` on what it wrote to.
                return meta
            if any(tensor is leaf() for leaf in self.leaves):
                return meta
            if not tensor.requires_grad and leaves_function():
                # The output of a `torch.autograd.Function`, whose operators had nothing that requires a gradient.
                return meta
            parameter = isinstance(tensor, torch.nn.Parameter)
            if tensor.requires_grad and self.is_leaf(tensor) and (not parameter or self.accumulating):
                # `AccumulateGrad`. Of parameters they are made beforehand: autocast asks the same question of them.
                return meta
            return tensor.fake_device

        def is_leaf(self, tensor):
            """Whether nothing made it. A view whose base was written to has its node made anew when that is asked (`grad_fn`
            in variable.cpp), of views that must be seen to be made like any other."""
            if not tensor._is_view():
                return tensor.is_leaf
            if not tensor._base.requires_grad:
                # Made to want a gradient itself (`x[:, None].requires_grad = True`). C++ may be making its `AccumulateGrad` as it asks,
                # under a lock that asking for its node would wait for.
                return True
            before = self.made, self.rebased, self.tape.op
            with self:
                leaf = tensor.is_leaf
            self.made, self.rebased, self.tape.op = before
            return leaf

        @contextlib.contextmanager
        def noting_leaves(self):
            """Knows which views were made leaves that want a gradient."""
            plain = torch.Tensor.requires_grad_

            def requires_grad_(tensor, requires_grad=True):
                if requires_grad and not tensor.requires_grad and tensor._is_view():
                    self.leaves = [leaf for leaf in self.leaves if leaf() is not None] + [weakref.ref(tensor)]
                return plain(tensor, requires_grad)

            torch.Tensor.requires_grad_ = requires_grad_
            try:
                yield
            finally:
                torch.Tensor.requires_grad_ = plain

        def seen(self, func, out, args, kwargs):
            leaves = [out] if isinstance(out, torch.Tensor) else [t for t in tree_leaves(out) if isinstance(t, torch.Tensor)]
            if func._schema.is_mutable:
                self.tape.filled(name_of(func), leaves)
            if wants_gradient(args):
                self.made = [weakref.ref(t) for t in leaves]
                self.rebased = func._schema.is_mutable
                if self.rebased:
                    # What is written to through a view has its base rebased (`CopySlices`).
                    self.made += [weakref.ref(t._base) for t in leaves if t._is_view()]
            self.tape.op = name_of(func)
            self.note_truth(func, out, args)
            for tensor in leaves:
                if tensor.device.type == "cuda":
                    self.tape.see(tensor)
            self.tape.run(func, args, kwargs, out)
            return out

        def is_composite(self, func):
            """Whether the card has no kernel of its own for it: C++ then makes it of other operators, whose temporaries
            are allocated like anything else (`_safe_softmax`)."""
            known = self.composite.get(func)
            if known is None:
                name, has = func.name(), torch._C._dispatch_has_kernel_for_dispatch_key
                known = (
                    func._schema.name.split("::")[-1] not in WHOLE
                    and func.namespace == "aten"
                    and not func._schema.is_mutable
                    and not func.is_view
                    and has(name, "CompositeExplicitAutograd")
                    and not has(name, "CUDA")
                )
                self.composite[func] = known
            return known

        def may_add_in_place(self, left):
            """Whether the engine's buffer alone holds a gradient (`can_accumulate_inplace` in input_buffer.cpp): by how
            many refer to the tensor, to its storage and to its Python object, which is learnt from a graph where it is
            known (`calibrate`)."""
            held = (
                left._use_count(),
                torch._C._storage_Use_Count(left.untyped_storage()._cdata),
                sys.getrefcount(left),
            )
            if self.samples is not None:
                self.samples.append(held)
                return False
            # The loss's own gradient, behind the one that backward begins with: its caller holds that one.
            return held == self.sole and self.tape.see(left) != self.tape.begun + 1

        def calibrate(self):
            """A leaf that two products use: the first gradient is fresh, and the buffer alone holds it when the second
            one comes. Where the first is the incoming gradient itself, somebody else holds it too."""
            if not hasattr(torch.Tensor, "_use_count"):
                raise Refusal(
                    "PyTorch %s does not say who else holds a gradient, by which it is added to in place or not" % torch.__version__,
                    "record with PyTorch 2.4 or later: plimsoll trace --python PATH",
                )

            def run(body):
                self.samples = []
                leaf = torch.empty(4, device="cuda").requires_grad_()
                keep = self.accumulators([leaf])
                loss = body(leaf * 1.0).sum()
                self.tape.phase = "backward"
                loss.backward()
                self.tape.phase = ""
                samples, self.samples = self.samples, None
                del keep
                return samples

            self.tape.closed = True
            fresh = run(lambda x: x * 2.0 + x * 3.0)
            self.tape.closed = False
            self.tape.alive.clear()
            if len(fresh) != 1:
                raise Refusal(
                    "this PyTorch (%s) adds gradients in a way that is not known here" % torch.__version__,
                    "use PyTorch 2.11, or report it with the version",
                )
            self.sole = fresh[0]

    return Watch


def name_of(func):
    name = func._schema.name.split("::")[-1]
    return name if func._overloadname == "default" else name + "." + func._overloadname


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

    def safe_softmax(func, x, dim, dtype=None):
        with watch:
            out = torch.softmax(x, dim, dtype)
            masked = x.eq(-math.inf)
            rows = masked.all(dim, keepdim=True)
            zero = torch.zeros([], dtype=out.dtype, device=out.device)
            return torch.where(rows, zero, out)

    def add(func, left, right, *, alpha=1):
        """A second gradient for the same tensor. The engine adds in place to one that nobody else holds, but never to a
        tensor of a Python class, as fake ones are."""
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
        return torch.empty_like(old), old.new_empty(old.size(0), old.size(1) * 5)

    def gru_cell_backward(func, gradient, kept, biased):
        gates = [kept.new_empty(kept.size(0), kept.size(1) // 5 * 3) for _ in range(2)]
        state = torch.empty_like(gradient)
        return (*gates, state, *(gate.sum(0) if biased else None for gate in gates))

    def batch_norm(func, input, weight, bias, mean, variance, training, momentum, eps):
        """`batch_norm_cuda` in Normalization.cu and `cudnn_batch_norm` in BatchNorm.cpp. Before 2.10 fake tensors ask a driver as they
        write the running statistics."""
        if not training or release >= (2, 10):
            return NotImplemented
        kind = torch.float32 if input.dtype in (torch.float16, torch.bfloat16) else input.dtype
        made = torch.empty_like(input), *(input.new_empty(input.size(1), dtype=kind) for _ in range(2))
        return (*made, input.new_empty(0, dtype=torch.uint8)) if func is aten.cudnn_batch_norm.default else made

    def into(func, made, *args, **kwargs):
        """What picking and choosing do backwards: gradients are written into zeros made for them (`index_backward`,
        `value_selecting_reduction_backward`, `gather_backward` in FunctionsManual.cpp)."""
        backward = tape.in_backward() and not torch.is_grad_enabled()
        return made if backward else NotImplemented

    return {
        **four_and_eight_bits(watch),
        aten.add.Tensor: add,
        aten.native_batch_norm.default: batch_norm,
        aten.cudnn_batch_norm.default: batch_norm,
        aten.index_put.default: into,
        aten.scatter.src: into,
        aten.scatter_add.default: into,
        aten.convolution.default: convolution,
        aten.convolution_backward.default: convolution_backward,
        aten._thnn_fused_gru_cell.default: gru_cell,
        aten._thnn_fused_gru_cell_backward.default: gru_cell_backward,
        getattr(getattr(aten, "_grouped_mm", None), "default", "no grouped_mm"): grouped_mm,
        getattr(getattr(aten, "_safe_softmax", None), "default", "no safe_softmax"): safe_softmax,
    }


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


class Attention:
    """`scaled_dot_product_attention` as `attention.cu` and `sdp_utils.cpp` have it: which kernel it takes is asked of the
    driver. What it does around the kernel is `scaled_dot_product_attention` in `attention.cpp`."""

    # Cards that choose differently from one another.
    CLASSES = [(8, 0), (8, 6), (8, 9), (9, 0), (10, 0), (12, 0)]

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
        # check_last_dim_stride_equals_1_dense: none takes a mask whose rows do not lie together.
        if mask is not None and mask.stride(-1) != 1:
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
        return aten._scaled_dot_product_attention_math(
            # Groups of heads are known to it since 2.5.
            query, key, value, attn_mask, dropout_p, is_causal, None, scale=scale,
            **({"enable_gqa": True} if enable_gqa else {})
        )[0]


def aligned(mask):
    """`preprocess_mask`, `pad_bias`: strides in multiples of 8 elements, else rows are made longer."""
    import torch

    if all(stride % 8 == 0 for stride in mask.stride()[:-1]):
        return mask
    size = mask.size(-1)
    return torch.nn.functional.pad(mask, [0, 8 - size % 8])[..., :size]


def dropout(x, p, train):
    """`dropout` in `Dropout.cpp`: on a card one kernel makes result and mask (`is_fused_kernel_acceptable`)."""
    import torch

    if not train or p == 0 or x.numel() == 0:
        return x
    if p == 1:
        return x * torch.zeros([], dtype=x.dtype, device=x.device)
    return torch.ops.aten.native_dropout(x, p, train)[0]


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
    replaced = [
        # Without a driver autocast and GradScaler would switch themselves off.
        (torch.cuda.amp.common, "amp_definitely_not_available", lambda: False),
        (torch.cuda, "is_bf16_supported", lambda *_, **__: True),
        (torch.cuda, "get_device_capability", lambda *_: attention.capability),
        (fake_tensor, "CONSTANT_NUMEL_LIMIT", 1024),
    ]
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


# ---------------------------------------------------------------------------------------------------------------------
# The model, its inputs, one recording
# ---------------------------------------------------------------------------------------------------------------------


class Names(dict):
    """The names an expression may use: a module's own, looked up when they are asked for."""

    def __init__(self, module, **more):
        super().__init__(more)
        self.module = module

    def __missing__(self, name):
        try:
            return getattr(self.module, name)
        except AttributeError:
            raise KeyError(name) from None


def imported(name):
    """The module of this name, or in this file."""
    if name.endswith(".py"):
        spec = importlib.util.spec_from_file_location(os.path.basename(name)[:-3], name)
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
        return module
    return importlib.import_module(name)


def build(job, module):
    """The model, on no device: shapes are all that is wanted of it."""
    import torch

    def made():
        found = eval(job["callable"], {"torch": torch, "nn": torch.nn}, Names(module))
        if not isinstance(found, torch.nn.Module):
            found = found() if callable(found) else found
        if not isinstance(found, torch.nn.Module):
            raise Refusal(
                "%s is no torch.nn.Module and makes none" % job["callable"],
                "name a function or a class that gives the model",
            )
        return found

    try:
        with torch.device("meta"):
            return made(), "meta"
    except Refusal:
        raise
    except Exception:
        # It looks at numbers while it is built.
        return made(), "cpu"


def varied(model, variant, built, precision):
    """The model with other attention, with quantized layers, or with adapters beside its frozen layers, and what its modules are named
    by."""
    import torch

    if variant.get("attention") is not None:
        attend(model, variant["attention"])
    if variant.get("base_dtype") is not None:
        model = model.to(getattr(torch, variant["base_dtype"]))
    if variant.get("quantization") is not None:
        quantize(model, variant["quantization"], precision, not variant.get("unprepared"))
    if variant.get("lora") is None:
        return model, model
    try:
        import peft
    except ImportError as error:
        raise Refusal("LoRA is added by peft, which this Python does not have (%s)" % error,
                      "install it (pip install peft), or leave --also lora out")
    lora = variant["lora"]
    options = peft.LoraConfig(r=lora["rank"], lora_alpha=2 * lora["rank"], lora_dropout=float(lora.get("dropout") or 0),
                              target_modules=lora.get("targets") or "all-linear")
    try:
        with torch.device("meta") if built == "meta" else contextlib.nullcontext(), warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            return peft.get_peft_model(model, options), model
    except (ValueError, TypeError, RuntimeError) as error:
        layers = sorted({name.rsplit(".", 1)[-1] for name, module in model.named_modules()
                         if isinstance(module, torch.nn.Linear)})
        raise Refusal("peft %s does not add these adapters: %s" % (peft.__version__, str(error).split("\n")[0][:300]),
                      "name layers that it adapts, as lora=16:q_proj,v_proj; linear ones are called here %s"
                      % (", ".join(layers[:20]) or "nothing at all"))


def quantize(model, word, precision, prepares):
    """The layers of a model as `from_pretrained` with a `BitsAndBytesConfig` leaves them, ready for adapters. bitsandbytes' own Python makes
    what a weight holds, of tensors that have no contents."""
    import torch

    try:
        import bitsandbytes
        import peft
    except ImportError as error:
        raise Refusal("layers are quantized by bitsandbytes and adapted by peft, of which this Python lacks one (%s)" % error,
                      "install both (pip install bitsandbytes peft), or leave quantization out")
    if not hasattr(torch.ops.bitsandbytes, "gemm_4bit"):
        raise Refusal("quantized layers are recorded with bitsandbytes 0.50 or later, and this is %s" % bitsandbytes.__version__,
                      "pip install -U bitsandbytes, or leave quantization out")
    # What the weights are loaded in, which four-bit layers compute in as well.
    loaded = {"fp16": torch.float16, "bf16": torch.bfloat16}.get(precision.split("-")[0], torch.float32)
    for parameter in model.parameters():
        if parameter.is_floating_point():
            parameter.data = parameter.data.to(loaded)
    if not replace_linears(model, word, loaded, bitsandbytes):
        raise Refusal("bitsandbytes quantizes nn.Linear, and nothing else of this model: there is none that it would",
                      "leave quantization out")
    # By which peft knows how its adapters stand beside such layers.
    setattr(model, "is_loaded_in_8bit" if word == "int8" else "is_loaded_in_4bit", True)
    if prepares:
        # Checkpointing is the estimate's to say.
        peft.prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)


def replace_linears(model, word, loaded, bitsandbytes):
    """bitsandbytes' layers in the place of linear ones; how many."""
    import torch

    double = word == "nf4-double"
    transformers = sys.modules.get("transformers")
    known, before = transformers is not None and isinstance(model, transformers.PreTrainedModel), dict(model.named_modules())
    if known:
        # transformers says itself which ones.
        from transformers.quantizers import AutoHfQuantizer

        options = transformers.BitsAndBytesConfig(load_in_8bit=True) if word == "int8" else transformers.BitsAndBytesConfig(
            load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=double, bnb_4bit_compute_dtype=loaded)
        AutoHfQuantizer.from_config(options).preprocess_model(model=model, device_map=None)
        replaced = [(before[name], module) for name, module in model.named_modules() if module is not before.get(name)]
    else:
        replaced = [(before[name], replaced_by(before[name], word, loaded, bitsandbytes)) for name in plain_linears(model)]
        for name, module in before.items():
            for child, old in module._modules.items():
                module._modules[child] = next((new for other, new in replaced if other is old), old)
    kinds = bitsandbytes.nn.Linear4bit, bitsandbytes.nn.Linear8bitLt
    replaced = [(old, module) for old, module in replaced if isinstance(module, kinds)]
    for old, module in replaced:
        with torch.no_grad():
            weight = old.weight.detach().to("meta")
            # transformers' Conv1D has its weight the other way around.
            weight = weight if isinstance(old, torch.nn.Linear) else weight.t().contiguous()
            module.weight = packed(module, weight, double, bitsandbytes)
        module.bias = old.bias
        module.requires_grad_(False)
    return len(replaced)


def plain_linears(model):
    """Names of the linear layers that are quantized in a model that is not of transformers: as diffusers has it of its own, all but what
    it keeps in float32; else all but the one that has the last parameters, which transformers leaves of its models too."""
    import torch

    diffusers = sys.modules.get("diffusers")
    whole = ()
    if diffusers is not None and isinstance(model, diffusers.ModelMixin):
        whole = tuple(model._keep_in_fp32_modules or ())
    else:
        whole = (next((name for name, _ in reversed(list(model.named_parameters()))), "").rpartition(".")[0],)
    return [name for name, module in model.named_modules() if type(module) is torch.nn.Linear
            and not any(part == name or part in name.split(".") for part in whole)]


def replaced_by(old, word, loaded, bitsandbytes):
    """bitsandbytes' layer in the place of this one, as transformers and diffusers make it."""
    import torch

    with torch.device("meta"):
        if word == "int8":
            # LLM.int8's own threshold (`llm_int8_threshold`).
            return bitsandbytes.nn.Linear8bitLt(old.in_features, old.out_features, old.bias is not None, has_fp16_weights=False, threshold=6.0)
        return bitsandbytes.nn.Linear4bit(old.in_features, old.out_features, old.bias is not None, loaded,
                                          compress_statistics=word == "nf4-double", quant_type="nf4")


def packed(module, weight, double, bitsandbytes):
    """The parameter that `Params4bit.to` and `Int8Params.to` make of a weight as they bring it to a card."""
    import torch

    if isinstance(module, bitsandbytes.nn.Linear8bitLt):
        numbers, scales, _ = bitsandbytes.functional.int8_vectorwise_quant(weight.to(torch.float16))
        return bitsandbytes.nn.Int8Params(numbers, requires_grad=False, has_fp16_weights=False, CB=numbers, SCB=scales)
    numbers, module.quant_state = bitsandbytes.functional.quantize_4bit(weight, blocksize=64, compress_statistics=double, quant_type="nf4")
    return bitsandbytes.nn.Params4bit(numbers, requires_grad=False, quant_state=module.quant_state, blocksize=64, compress_statistics=double,
                                      quant_type="nf4", module=module, bnb_quantized=True)


# What stands beside a quantized weight, and is no buffer of its module.
STATE = "quant_state"


def beside(parameter, made, module, fresh):
    """Gives what stands on the card for a quantized weight what its layer asks of one, the scales among it: a fake tensor can be of no
    other class."""
    import copy

    def moved(state):
        state = copy.copy(state)
        for name in ("absmax", "code", "offset"):
            if getattr(state, name, None) is not None:
                setattr(state, name, fresh(getattr(state, name), STATE))
        if state.state2 is not None:
            state.state2 = moved(state.state2)
        return state

    for name, value in vars(parameter).items():
        if name == "quant_state" and value is not None:
            value = module.quant_state = moved(value)
        elif name == "SCB" and value is not None:
            value = fresh(value, STATE)
        elif name == "CB" and value is not None:
            value = made.detach()
        setattr(made, name, value)


def attend(module, word):
    """Has the outermost models of transformers in it compute attention so."""
    import torch

    def put(module):
        turn = getattr(module, "set_attn_implementation", None)
        if callable(turn):
            try:
                turn(word)
            except (ValueError, TypeError) as error:
                raise Refusal("the model does not take %s attention: %s" % (word, str(error).split("\n")[0][:300]),
                              "leave --also attention out")
            return 1
        return sum([put(child) for child in module.children()])

    if not put(module):
        raise Refusal("nothing in it is a model of transformers (4.48 or later) whose attention could be chosen",
                      "choose it where the model is made, in MODULE:CALLABLE, and record that into a file of its own")


class Repeats:
    """Lists of modules that are alike but for their weights: of each kind the first two and the last are enough to learn how
    sizes grow from. Whoever asks for that holds what comes out against a recording of the whole."""

    def __init__(self, model):
        # Path, how many there are, and which are kept.
        self.lists = []
        counted = {}
        for module in model.modules():
            for parameter in module._parameters.values():
                counted[id(parameter)] = counted.get(id(parameter), 0) + 1
        self.shared = {key for key, count in counted.items() if count > 1}
        self.find(model, "")

    def find(self, module, path):
        import torch

        children = [(name, child) for name, child in module._modules.items() if child is not None]
        if type(module) in (torch.nn.Sequential, torch.nn.ModuleList):
            described = [dict(self.described(child)) for _, child in children]
            names = {name for one in described for name in one}
            numbers = [name for name in names if self.counts(one.get(name) for one in described)]
            kinds = {}
            for index, one in enumerate(described):
                kind = tuple(sorted((name, repr(said)) for name, said in one.items() if name not in numbers))
                kinds.setdefault(kind, []).append(index)
            kept = sorted({index for kind in kinds.values() for index in (*kind[:2], kind[-1])})
            once = len({id(child) for _, child in children}) == len(children)
            tied = any(id(p) in self.shared for p in module.parameters())
            if once and not tied and len(kept) < len(children):
                self.lists.append([path, len(children), kept])
                return
        for name, child in children:
            self.find(child, path + "." + name if path else name)

    def described(self, module, path=""):
        """What a module is made of, name by name."""
        def said(value):
            if isinstance(value, float):
                # Rates rise from layer to layer; whether there is one is another matter.
                return value != 0
            if isinstance(value, (tuple, list)):
                return tuple(map(said, value))
            return value if isinstance(value, (int, str, type(None))) else type(value).__name__

        yield path, type(module).__name__
        for name, value in vars(module).items():
            if not name.startswith("_"):
                yield path + "." + name, said(value)
        for table in (module._parameters, module._buffers):
            for name, tensor in table.items():
                if tensor is not None:
                    yield path + "." + name, (tuple(tensor.shape), short(tensor.dtype), tensor.requires_grad)
        for name, child in module._modules.items():
            if child is not None:
                yield from self.described(child, path + "." + name)

    @staticmethod
    def counts(values):
        """Whether it is a module's place in the list (`layer_idx`)."""
        values = list(values)
        whole = all(isinstance(value, int) and not isinstance(value, bool) for value in values)
        return len(values) > 1 and whole and all(value == values[0] + at for at, value in enumerate(values))

    def shorten(self, model):
        for path, _, kept in self.lists:
            place = model.get_submodule(path)
            children = list(place._modules.values())
            place._modules.clear()
            place._modules.update((str(at), children[index]) for at, index in enumerate(kept))


def on_card(model, dtype, tape):
    """`model.to("cuda")`, in its order: children first, then own parameters and buffers; tied ones stay tied."""
    import torch

    moved = {}

    def fresh(tensor, name=None):
        made = torch.empty_strided(tensor.shape, tensor.stride(), device="cuda",
                                   dtype=dtype if dtype is not None and tensor.is_floating_point() else tensor.dtype)
        tape.storages[tape.see(made)][3] = name or ("parameter" if isinstance(tensor, torch.nn.Parameter) else "buffer")
        return made

    def move(module, path):
        for name, child in module._modules.items():
            if child is not None:
                move(child, path + "." + name if path else name)
        tape.modules.append(tape.module(path))
        for name, parameter in module._parameters.items():
            if parameter is not None:
                if id(parameter) not in moved:
                    made = torch.nn.Parameter(fresh(parameter), requires_grad=parameter.requires_grad)
                    if type(parameter).__name__ in ("Params4bit", "Int8Params"):
                        beside(parameter, made, module, fresh)
                    moved[id(parameter)] = parameter, made
                module._parameters[name] = moved[id(parameter)][1]
        for name, buffer in module._buffers.items():
            if buffer is not None:
                if id(buffer) not in moved:
                    moved[id(buffer)] = buffer, fresh(buffer)
                module._buffers[name] = moved[id(buffer)][1]
        tape.modules.pop()

    move(model, "")
    # `move` knows itself, so what it has in hand would stay until the collector comes by: a buffer that the model puts another in
    # place of is gone at once.
    moved.clear()


def repeated(module):
    """Elements of lists of which several are of one class and have modules of their own, the outermost ones."""
    import torch

    containers = (torch.nn.Sequential, torch.nn.ModuleList)
    found = []
    children = list(module.children())
    for child in children:
        alike = sum(type(other) is type(child) for other in children)
        plain = type(child) in (torch.nn.Sequential, torch.nn.ModuleList, torch.nn.ModuleDict)
        if type(module) in containers and alike > 1 and not plain and next(child.children(), None) is not None:
            found.append(child)
        else:
            found += repeated(child)
    return found


class Checkpoints:
    """What is checkpointed in a model: what its library's own switch does, or else its blocks that repeat.

    `mark` has every such stretch run as it is, between two marks; `real` has PyTorch checkpoint it.
    """

    # What libraries call their switch, and what they are given.
    SWITCHES = (
        ("gradient_checkpointing_enable", {"gradient_checkpointing_kwargs": {"use_reentrant": False}}),
        ("enable_gradient_checkpointing", {}),
        ("set_grad_checkpointing", {}),
    )

    def __init__(self, model, tape, real):
        self.tape, self.real = tape, real
        self.regions = 0
        self.switched = self.switch(model)
        self.blocks = set() if self.switched else {id(block) for block in repeated(model)}
        self.within = False

    def switch(self, module):
        """Turns on whatever switches there are, the outermost ones."""
        for name, given in self.SWITCHES:
            turn_on = getattr(module, name, None)
            if callable(turn_on):
                try:
                    turn_on(**given)
                    return True
                except Exception:
                    # "... does not support gradient checkpointing", each in its own words.
                    continue
        return any([self.switch(child) for child in module.children()])

    def call(self, call, module, args, kwargs):
        """A module's call; that of a block is a stretch of its own."""
        if id(module) not in self.blocks or self.within:
            return call(module, *args, **kwargs)
        self.within = True
        try:
            if self.real:
                from torch.utils.checkpoint import checkpoint

                self.regions += 1
                return checkpoint(call, module, *args, use_reentrant=False, preserve_rng_state=False, **kwargs)
            with self.stretch(args, kwargs):
                return call(module, *args, **kwargs)
        finally:
            self.within = False

    @contextlib.contextmanager
    def stretch(self, *given):
        self.regions += 1
        self.tape.emit("c")
        self.tape.given(*given)
        del given
        try:
            yield
        finally:
            self.tape.emit("f")

    @contextlib.contextmanager
    def watching(self):
        """Has PyTorch's checkpointing do what is wanted of it."""
        import torch.utils.checkpoint as place

        name = "_checkpoint_without_reentrant_generator"
        plain = getattr(place, name, None)
        if not self.switched or plain is None:
            yield
            return

        def real(function, preserve_rng_state, *rest, **more):
            # The host's random state is no business of the card's.
            self.regions += 1
            return plain(function, False, *rest, **more)

        def marked(function, preserve_rng_state, context, check, debug, *args, **kwargs):
            if early_stop and args:
                args = args[1:]
            bound = [getattr(function, part, None) for part in ("args", "keywords")]
            with self.stretch(args, kwargs, bound):
                del bound
                yield

        early_stop = "early_stop" in plain.__code__.co_varnames[:plain.__code__.co_argcount]
        setattr(place, name, real if self.real else marked)
        try:
            yield
        finally:
            setattr(place, name, plain)


def takes_gradient(*things):
    """Whether a tensor among them takes a gradient."""
    import torch
    from torch.utils._pytree import tree_leaves

    return torch.is_grad_enabled() and any(isinstance(t, torch.Tensor) and t.requires_grad for t in tree_leaves(things))


@contextlib.contextmanager
def naming(model, outermost, tape, checkpoints):
    """Has every module's name stand beside what is allocated in its forward."""
    import torch

    names = {id(module): tape.module(name) for name, module in model.named_modules()}
    names[id(outermost)] = 0
    # What is compiled is called as it was when that was done: of it the outermost call alone is named.
    place = type(outermost) if hasattr(outermost, "_orig_mod") else torch.nn.Module
    plain = place.__call__

    def call(module, *args, **kwargs):
        number = names.get(id(module), tape.modules[-1])
        if len(tape.modules) == 1 and id(module) not in names:
            # Somebody else's, as a loss that is a module: no call of the model.
            return plain(module, *args, **kwargs)
        tape.modules.append(number)
        if takes_gradient(args, kwargs):
            tape.emit("t")
        tape.turn("m", number)
        tape.given(args, kwargs)
        try:
            return plain(module, *args, **kwargs)
        finally:
            tape.modules.pop()
            tape.turn("e")

    def named(module, *args, **kwargs):
        if checkpoints is None:
            return call(module, *args, **kwargs)
        return checkpoints.call(call, module, args, kwargs)

    place.__call__ = named
    try:
        yield
    finally:
        place.__call__ = plain


# ---------------------------------------------------------------------------------------------------------------------
# What torch.compile makes of a model
# ---------------------------------------------------------------------------------------------------------------------

# What inductor is to choose the same at every size. Padding and cutting sums into parts follow from divisors of sizes and from
# measurements on a card; loops over so few elements that they are written out, from the size of the batch; which of several orders
# is estimated to hold least, and which buffers are as large as one another by chance, from all of them.
SETTINGS = {
    "reorder_for_peak_memory": False, "allow_buffer_reuse": False,
    "shape_padding": False, "comprehensive_padding": False, "split_reductions": False, "unroll_reductions_threshold": 1,
    # Checks of data that is not there, and caches that would hand out what was made with other settings.
    "size_asserts": False, "alignment_asserts": False, "force_disable_caches": True, "compile_threads": 1,
}


class Properties:
    """What inductor asks of a card but for its capability: an H100's. Nothing of it decides what is allocated."""

    name, warp_size, multi_processor_count, regs_per_multiprocessor = "card", 32, 132, 65536
    max_threads_per_multi_processor, max_threads_per_block = 2048, 1024
    shared_memory_per_block, shared_memory_per_block_optin, total_memory = 49152, 232448, 80 << 30


class Kernel:
    """A kernel that inductor wrote: what it writes into was made before it runs."""

    def __init__(self, name, tape):
        # Its number counts kernels, of which another size may have more.
        self.name, self.tape = re.sub(r"_\d+$", "", name), tape

    def run(self, *given, **_):
        self.tape.filled(self.name, given)


class Compiler:
    """`torch.compile` with inductor, whose own code then allocates, reuses and frees, and launches nothing.

    Dynamo and AOTAutograd trace on fake tensors anyway; what would ask a driver is answered. The code that inductor writes for
    forward and backward runs as it is: its buffers come by `empty_strided_cuda` and go by `del`."""

    def __init__(self, tape, capability):
        self.tape = tape
        self.major, self.minor = capability
        self.made, self.keep, self.backward, self.wrapping = [], [], False, False

    def device(self, tensor, frame):
        """As `Watch.device`, of tensors that are traced: on the card, but for autograd."""
        import dis

        import torch
        from torch._subclasses.fake_tensor import FakeTensor

        inner = tensor if isinstance(tensor, FakeTensor) else torch._from_functional_tensor(tensor.elem)
        place = inner.fake_device if isinstance(inner, FakeTensor) else inner.device
        # C++ that a Python function called asks behind a call; Python itself asks for an attribute.
        while frame.f_code.co_name in ("__torch_dispatch__", "dispatched", "wrapper", "_fn"):
            frame = frame.f_back
        if dis.opname[frame.f_code.co_code[frame.f_lasti]] in ("LOAD_ATTR", "LOAD_METHOD") or place.type != "cuda":
            return place
        # A tensor that is traced stands for one that something made: its node is made as it is wrapped.
        if self.backward or self.wrapping and tensor is not inner:
            return torch.device("meta")
        if not torch.is_grad_enabled():
            return place
        # Autocast asks the same of a leaf as `AccumulateGrad` does, which is made beforehand (`leaf`).
        # A view's node would be made as that is asked, under a lock that is held already.
        made_by_none = not tensor._base.requires_grad if tensor._is_view() else tensor.is_leaf
        leaf = tensor.requires_grad and made_by_none and not torch.is_autocast_enabled("cuda")
        return torch.device("meta") if leaf or any(tensor is made() for made in self.made) else place

    def dispatching(self, plain):
        """A mode's dispatch that knows what autograd will ask about."""
        import torch
        from torch.utils._pytree import tree_leaves

        def dispatched(mode, func, types, args=(), kwargs=None):
            kwargs = kwargs or {}
            if func is torch.ops.prim.device.default:
                return self.device(args[0], sys._getframe(1))
            if kwargs.get("device") == torch.device("meta"):
                kwargs = {**kwargs, "device": torch.device("cuda", 0)}
            out = plain(mode, func, types, args, kwargs)
            if takes_gradient(args, kwargs):
                made = [t for t in tree_leaves(out) if isinstance(t, torch.Tensor)]
                # What is written to through a view has its base rebased (`CopySlices`).
                made += [t._base for t in made if func._schema.is_mutable and t._is_view()]
                self.made = [weakref.ref(t) for t in made]
            return out

        return dispatched

    def leaf(self, tensor):
        """Has a traced leaf's `AccumulateGrad` made, under no autocast."""
        import torch

        if isinstance(tensor, torch.Tensor) and tensor.requires_grad and tensor.is_leaf:
            before, self.backward = self.backward, True
            with torch.enable_grad(), torch.autocast("cuda", enabled=False):
                self.keep.append(tensor.view_as(tensor).grad_fn.next_functions[0][0])
            self.backward = before
        return tensor

    def tracing(self):
        """What is replaced while it compiles."""
        import torch
        from torch._subclasses import fake_tensor
        from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
        from torch._subclasses.functional_tensor import FunctionalTensor, FunctionalTensorMode
        from torch._inductor.fx_passes import joint_graph
        from torch.fx.experimental import proxy_tensor
        from torch.utils._python_dispatch import TorchDispatchMode

        wrapper, faked, functional = torch.Tensor._make_wrapper_subclass, FakeTensorMode.from_tensor, FunctionalTensor.to_functional
        plain, gradient = FakeTensor.__dict__["__torch_dispatch__"].__func__, torch.autograd.grad
        fold, state = joint_graph.UniformValueConstantFolder.run, torch.zeros(16, dtype=torch.uint8)

        def made(cls, *args, **kwargs):
            if cls is FunctionalTensor:
                # `dispatch_device`: it asks where it is, as fake tensors do.
                args = (*args[:10], True, *args[11:])
            return wrapper(cls, *args, **kwargs)

        def asked(cls, func, types, args=(), kwargs=None):
            if func is torch.ops.prim.device.default and not args[0].fake_mode.in_kernel_invocation:
                return self.device(args[0], sys._getframe(1))
            return plain(cls, func, types, args, kwargs or {})

        def from_tensor(mode, tensor, **more):
            out = faked(mode, tensor, **more)
            with mode:
                return self.leaf(out)

        def to_functional(tensor):
            self.wrapping = True
            try:
                out = functional(tensor)
            finally:
                self.wrapping = False
            return self.leaf(out)

        class OnHost(TorchDispatchMode):
            def __torch_dispatch__(self, func, types, args=(), kwargs=None):
                def host(value):
                    return torch.device("cpu") if isinstance(value, torch.device) and value.type == "cuda" else value

                return func(*map(host, args), **{name: host(value) for name, value in (kwargs or {}).items()})

        def folded(folder):
            with OnHost():
                return fold(folder)

        def grad(*args, **kwargs):
            self.backward = True
            try:
                return gradient(*args, **kwargs)
            finally:
                self.backward = False

        return [
            (torch.Tensor, "_make_wrapper_subclass", staticmethod(made)),
            (FakeTensor, "__torch_dispatch__", classmethod(asked)),
            (FakeTensorMode, "dispatch", self.dispatching(FakeTensorMode.dispatch)),
            (FakeTensorMode, "from_tensor", from_tensor),
            (FakeTensorMode, "avoid_device_init", property(lambda _: True)),
            (FunctionalTensor, "to_functional", staticmethod(to_functional)),
            (FunctionalTensorMode, "__torch_dispatch__", self.dispatching(FunctionalTensorMode.__torch_dispatch__)),
            (torch.autograd, "grad", grad),
            (torch.cuda, "get_rng_state", lambda *_: state),
            (torch.cuda, "set_rng_state", lambda *_: None),
            (torch.cuda, "is_available", lambda: True),
            (torch.accelerator, "is_available", lambda: False),
            (fake_tensor, "init_gpu_context", lambda *_: None),
            # Constants would be put on the card for real; those that are folded are computed on the host.
            (joint_graph.UniformValueConstantFolder, "run", folded),
            (proxy_tensor, "CONSTANT_NUMEL_LIMIT", -1),
        ]

    def running(self):
        """What is replaced as long as its code runs."""
        import torch
        import torch._dynamo.device_interface as interfaces
        import torch.utils._triton
        from torch._inductor.async_compile import AsyncCompile

        known = type("Properties", (Properties,), {"major": self.major, "minor": self.minor})

        class Card(interfaces.CudaInterface):
            get_device_properties = staticmethod(lambda *_: known)
            get_compute_capability = staticmethod(lambda *_: self.major * 10 + self.minor)
            current_device = exchange_device = maybe_exchange_device = get_raw_stream = staticmethod(lambda *_: 0)
            device_count, set_device, synchronize = staticmethod(lambda: 1), staticmethod(lambda *_: None), staticmethod(lambda *_: None)
            is_available = staticmethod(lambda: True)
            is_bf16_supported = staticmethod(lambda *_, **__: True)

            class Worker(interfaces.CudaInterface.Worker):
                get_device_properties, current_device = staticmethod(lambda *_: known), staticmethod(lambda: 0)

        def buffer(sizes, strides, dtype):
            made = torch.empty_strided(sizes, strides, dtype=dtype, device="cuda")
            number = self.tape.see(made)
            if number is not None:
                self.tape.storages[number][3] = BUFFER
            return made

        def view(tensor, sizes, strides, offset=0):
            return torch.as_strided(tensor, sizes, strides, tensor.storage_offset() + offset)

        # It fills the table that is then changed.
        interfaces.get_interface_for_device("cuda")
        guards = torch._C._dynamo.guards
        return [
            (interfaces.device_interfaces, "cuda", Card),
            (guards, "_empty_strided_cuda", buffer),
            (guards, "_reinterpret_tensor", view),
            (AsyncCompile, "triton", lambda _, name, *__, **___: Kernel(name, self.tape)),
            (torch.utils._triton, "triton_hash_with_backend", lambda: "none"),
            (torch.cuda, "device_count", lambda: 1),
            (torch.cuda, "current_device", lambda: 0),
            (torch.cuda, "set_device", lambda *_: None),
            (torch.cuda, "_exchange_device", lambda *_: 0),
            (torch.cuda, "_maybe_exchange_device", lambda *_: 0),
            (torch.cuda, "get_device_properties", lambda *_: known),
            (torch._C, "_cuda_getCurrentRawStream", lambda *_: 0),
        ]

    @contextlib.contextmanager
    def around(self, fake):
        """Around a recording."""
        import torch
        from torch._dynamo.utils import counters
        from torch._inductor import config

        if release_of(torch) != (2, 11):
            raise Refusal("torch.compile is recorded with PyTorch 2.11 alone, and this is %s" % torch.__version__,
                          "name a Python that has that with --python, or leave --also compile out")
        try:
            import triton  # noqa: F401
        except ImportError as error:
            raise Refusal("torch.compile writes kernels for Triton, which this Python does not have (%s)" % error,
                          "use a PyTorch for CUDA on Linux, which brings it, or leave --also compile out")
        torch._dynamo.reset()
        counters.clear()
        self.fake = fake
        # A line for people is no reason to break the graph: transformers writes some where it computes a loss.
        words = ("debug", "info", "warning", "warning_once", "warning_advice", "error")
        lines = {vars(logging.Logger)[word] for word in words if word in vars(logging.Logger)}
        quiet = torch._dynamo.config.patch(ignore_logging_functions=torch._dynamo.config.ignore_logging_functions | lines)
        with quiet, put_in(self.running()), config.patch({name: value for name, value in SETTINGS.items() if hasattr(config, name)}):
            try:
                yield
            except Refusal:
                raise
            except Exception as error:
                said = "%s: %s" % (type(error).__name__, next((line for line in str(error).split("\n") if line.strip()), "")[:300])
                broken = next((str(why).split("\n")[0] for why in counters["graph_break"]), None)
                if broken is not None:
                    said = "its forward is broken into parts (%s), and then %s" % (broken[:300], said)
                raise Refusal("torch.compile's program of the model cannot be recorded: " + said,
                              "see what torch.compile(model, fullgraph=True) says of it, or leave --also compile out")
            finally:
                torch.compiler.set_stance("default")
                torch._dynamo.reset()

    def compile(self, model, run):
        """The compiled model, which `run` has called once, where nothing of that is written down."""
        import torch
        import torch._functorch.config as functorch
        from torch.utils._python_dispatch import _disable_current_modes

        compiled = torch.compile(model, dynamic=False)
        with _disable_current_modes(), put_in(self.tracing()), functorch.patch(force_non_lazy_backward_lowering=True), self.fake, \
                warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.tape.mute = True
            try:
                run(compiled)
            finally:
                self.tape.mute = False
        # What was not compiled by then would run as it is, unseen.
        torch.compiler.set_stance("fail_on_recompile")
        self.keep.clear()
        return compiled


@contextlib.contextmanager
def put_in(parts):
    """With these attributes, or values in tables, in the place of what was there."""
    def put(place, name, value):
        if isinstance(place, dict):
            place[name] = value
        else:
            setattr(place, name, value)

    def get(place, name):
        # As a class has it: static methods, properties.
        return place[name] if isinstance(place, dict) else vars(place)[name] if name in vars(place) else getattr(place, name)

    before = [(place, name, get(place, name)) for place, name, _ in parts]
    for part in parts:
        put(*part)
    try:
        yield
    finally:
        for part in before:
            put(*part)


# ---------------------------------------------------------------------------------------------------------------------
# A marked line in a script
# ---------------------------------------------------------------------------------------------------------------------


class Found(BaseException):
    """The marked lines are reached: the script goes no further."""


def ashore():
    """The mode a script runs in up to its marked lines: what it would put on a card stays on the host."""
    import torch
    from torch.overrides import TorchFunctionMode

    def host(value):
        if isinstance(value, (str, torch.device)) and str(value).split(":")[0] == "cuda":
            return torch.device("cpu")
        return value

    class Ashore(TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            if getattr(function, "__name__", "") in ("cuda", "pin_memory") and args:
                return args[0]
            return function(*map(host, args), **{name: host(value) for name, value in (kwargs or {}).items()})

    return Ashore()


def reachable(value, kind, depth=2):
    """Values of this kind in a name's value: itself, in containers, or what a plain object holds."""
    if isinstance(value, kind):
        return [value]
    inner = ()
    if isinstance(value, dict) or hasattr(value, "items") and hasattr(value, "keys"):
        inner = value.values()
    elif isinstance(value, (list, tuple)):
        inner = value
    elif depth and hasattr(value, "__dict__") and not isinstance(value, type) and "module" not in type(value).__name__:
        inner = vars(value).values()
    return [found for part in list(inner) for found in reachable(part, kind, depth - 1)] if depth else []


class Marked:
    """`with plimsoll.trace("name", x="B,3,S,S"):` around what computes the loss, found by running the script up to there."""

    def __init__(self, frame, shapes):
        import torch

        self.path, self.line, self.shapes = frame.f_code.co_filename, frame.f_lineno, shapes
        self.names = {**frame.f_globals, **frame.f_locals}
        # What the script has put around them.
        on = torch.is_autocast_enabled("cuda")
        self.cast = torch.get_autocast_dtype("cuda") if on else None

    def read(self):
        """What stands in the block: up to backward, which is the loop's."""
        import ast

        import torch

        def calls(node, name):
            return any(name in (getattr(part, "attr", None), getattr(part, "id", None)) for part in ast.walk(node))

        with open(self.path, encoding="utf-8") as file:
            tree = ast.parse(file.read())
        blocks = [node for node in ast.walk(tree) if isinstance(node, ast.With) and calls(node.items[0], "trace")
                  and node.lineno <= self.line <= node.body[0].lineno]
        if not blocks:
            raise Refusal("the marked lines cannot be found at line %d of %s" % (self.line, self.path),
                          "write `with plimsoll.trace(...):` as a statement of its own")
        body = []
        for statement in blocks[-1].body:
            if calls(statement, "backward"):
                break
            if not calls(statement, "zero_grad"):
                body.append(statement)
        stored = [part.id for node in body for part in ast.walk(node)
                  if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)]
        if not stored:
            raise Refusal("the marked lines give nothing a name", "mark what computes the loss: loss = model(batch)")
        self.loss = "loss" if "loss" in stored else stored[-1]
        self.loaded = {part.id for node in body for part in ast.walk(node)
                       if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load)}
        # Autocast that they turn on themselves: which one is known before they run.
        items = [item.context_expr for node in body for part in ast.walk(node) if isinstance(part, ast.With)
                 for item in part.items]
        casts = [eval(compile(ast.Expression(item), self.path, "eval"), self.names) for item in items if calls(item, "autocast")]
        casts = {cast.fast_dtype for cast in casts if cast._enabled}
        self.casts = any(calls(node, "autocast") for node in body)
        if len(casts) > 1:
            raise Refusal("the marked lines cast to several types", "use one precision")
        self.cast = next(iter(casts), self.cast)
        self.code = compile(ast.Module(body=body, type_ignores=[]), self.path, "exec")
        self.text = "\n".join(ast.unparse(statement) for statement in body)
        return self

    def look(self):
        """The models, what they are given, and the precision, as they are where the marked lines begin."""
        import torch

        used = {name: self.names[name] for name in sorted(self.loaded) if name in self.names}
        models = [model for value in used.values() for model in reachable(value, torch.nn.Module)]
        models = list({id(model): model for model in models}.values())
        self.models = [model for model in models if not any(
            model is not other and any(model is part for part in other.modules()) for other in models)]
        if not any(parameter.requires_grad for model in self.models for parameter in model.parameters()):
            raise Refusal("the marked lines use no model that trains", "mark the lines that call it")
        self.given = self.inputs(used)
        types = {p.dtype for model in self.models for p in model.parameters() if p.is_floating_point()}
        half = {torch.float16: "fp16", torch.bfloat16: "bf16"}
        self.precision = "fp32"
        if self.cast is not None:
            self.precision = half[self.cast] + "-amp"
        elif len(types) == 1:
            self.precision = half.get(next(iter(types)), "fp32")
        return self

    def inputs(self, used):
        """Tensors that the marked lines are given: where each lies, its type, and its lengths with axes in them."""
        import torch

        found = []
        for name, value in used.items():
            if isinstance(value, torch.nn.Module):
                continue
            parts = [(None, value)] if isinstance(value, torch.Tensor) else (
                list(value.items()) if hasattr(value, "items") else list(enumerate(value))
                if isinstance(value, (list, tuple)) else [])
            found += [(name, key, part) for key, part in parts if isinstance(part, torch.Tensor)]
        firsts = [part.shape[0] for _, _, part in found if part.dim()]
        if not firsts:
            raise Refusal("the marked lines are given no tensor", "have the batch in a variable before them")
        batch, axes, inputs = max(set(firsts), key=firsts.count), {}, {}
        for name, key, part in found:
            label = str(name if key is None else key)
            lengths = self.shapes.get(label)
            lengths = lengths.split(",") if lengths is not None else ["B" if at == 0 and length == batch else str(length)
                                                                     for at, length in enumerate(part.shape)]
            lengths = [length.strip() for length in lengths if length.strip()]
            if len(lengths) != part.dim():
                raise Refusal("%s has %d dimensions, and %r names %d" % (label, part.dim(), self.shapes[label],
                                                                        len(lengths)), "name each, or give its length")
            for length, size in zip(lengths, part.shape):
                if length.isidentifier() and axes.setdefault(length, size) != size:
                    raise Refusal("the axis %s is %d here and %d there" % (length, axes[length], size),
                                  "give the two different names")
            label = label if label.isidentifier() and label not in inputs else "input_%d" % len(inputs)
            inputs[label] = {"dtype": short(part.dtype), "shape": lengths, "at": [name, key]}
        unknown = set(self.shapes) - {str(name if key is None else key) for name, key, _ in found}
        if unknown:
            raise Refusal("the marked lines are given no %s" % ", ".join(sorted(unknown)), "they are given %s" % ", ".join(inputs))
        self.axes = axes
        return inputs

    def model(self):
        """All its models as one."""
        import torch

        if len(self.models) == 1:
            return self.models[0]
        return torch.nn.ModuleList(self.models)

    def checked(self, precision):
        """Whether this precision is the script's, or can be put around it."""
        if self.precision not in ("fp32", precision) or (self.precision == "fp32" and precision in ("fp16", "bf16")):
            raise Refusal("the script trains in %s, not in %s" % (self.precision, precision),
                          "record that with --precision %s, or change the script" % self.precision)

    def namespace(self, batch):
        """The script's names that are others on the card: the batch's tensors, and what says where they go."""
        import torch

        names = {name: self.names[name] for name in {of["at"][0] for of in self.given.values()}}
        for label, tensor in batch.items():
            name, key = self.given[label]["at"]
            if key is None:
                names[name] = tensor
            elif isinstance(key, int):
                items = list(names[name])
                items[key] = tensor
                names[name] = type(names[name])(items)
            else:
                if names[name] is self.names[name]:
                    names[name] = type(names[name])(dict(names[name].items()))
                names[name][key] = tensor
        places = [name for name, value in self.names.items() if isinstance(value, torch.device)]
        return {**names, **dict.fromkeys(places, torch.device("cuda"))}


MARK_THEM = 'put `import plimsoll` and `with plimsoll.trace("name", x="B,3,S,S"):` around what computes the loss'


def marked(path, arguments):
    """Runs a script up to its marked lines."""
    import types

    import torch
    import torch.cuda.amp.common

    if not hasattr(os, "fork"):
        raise Refusal("a script can be traced where processes can be copied (Linux, macOS)", "use MODULE:CALLABLE here")

    def trace(name="model", **shapes):
        frame = sys._getframe(1)

        class Stop:
            def __enter__(self):
                raise Found(Marked(frame, shapes))

            def __exit__(self, *_):
                pass

        return Stop()

    stand_in = types.ModuleType("plimsoll")
    stand_in.trace = trace
    sys.modules["plimsoll"] = stand_in
    sys.argv = [path, *arguments]
    sys.path.insert(0, os.path.dirname(path))
    there = {"is_available": lambda: True, "device_count": lambda: 1, "current_device": lambda: 0,
             "set_device": lambda *_: None, "synchronize": lambda *_: None, "empty_cache": lambda: None,
             "is_bf16_supported": lambda *_, **__: True, "get_device_capability": lambda *_: (9, 0)}
    replaced = [(torch.cuda, name, value) for name, value in there.items()]
    # What is compiled is recorded as it was before.
    replaced += [(torch.nn.Module, "cuda", lambda module, *_: module),
                 (torch, "compile", lambda model=None, **_: model if model is not None else lambda model: model),
                 (torch.cuda.amp.common, "amp_definitely_not_available", lambda: False)]
    before = [(place, name, getattr(place, name)) for place, name, _ in replaced]
    for place, name, value in replaced:
        setattr(place, name, value)
    script = types.ModuleType("__main__")
    script.__file__ = path
    # This file is `__main__` too, and goes on being needed.
    sys.modules["__plimsoll__"], sys.modules["__main__"] = sys.modules["__main__"], script
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
        code = compile(text, path, "exec")
        if "plimsoll" not in text or not re.search(r"\btrace\s*\(", text):
            raise Refusal("no lines of %s are marked" % os.path.basename(path), MARK_THEM)
        with ashore():
            exec(code, script.__dict__)
    except Found as found:
        return found.args[0].read().look()
    finally:
        for place, name, value in before:
            setattr(place, name, value)
    raise Refusal("the script ended without coming to its marked lines", MARK_THEM)


def same_chances():
    """What the model draws on the host, by whichever generator, comes out the same in every micro-batch."""
    import random

    import torch

    torch.default_generator.manual_seed(0)
    random.seed(0)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(0)


def record(job, module, sizes, precision, capability, direct, checkpoint, variant, shortened=False):
    """One recording: four micro-batches, the first without gradients there, the second with them, then again without."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    half = {"fp16": torch.float16, "bf16": torch.bfloat16}.get(precision)
    cast = {"fp16-amp": torch.float16, "bf16-amp": torch.bfloat16}.get(precision)
    attention = Attention(tuple(capability))
    tape = Tape()
    script = isinstance(module, Marked)
    if script:
        module.checked(precision)
        model, built = module.model(), "script"
        named = model
    else:
        model, built = build(job, module)
        if half is not None:
            model = model.to(half)
        model, named = varied(model, variant, built, precision)
        model.train()
    repeats = Repeats(named)
    if shortened:
        repeats.shorten(named)
    checkpoints = Checkpoints(model, tape, checkpoint == "real") if checkpoint != "none" else None
    paths = {id(part): path for path, part in named.named_modules()}
    blocks = [paths[id(block)] for block in repeated(named)]
    loss_code = None if script else compile(job["loss"], "the loss", "eval")
    given = module.given if script else job["inputs"]
    # Lengths are written as expressions of the axes' names.
    lengths = [(name, of["dtype"], [compile(str(n), "the input " + name, "eval") for n in of["shape"]])
               for name, of in given.items()]

    def inputs():
        made = {}
        for name, dtype, shape in lengths:
            kind = half if dtype == "float32" and half is not None and not script else getattr(torch, dtype)
            made[name] = torch.empty([int(eval(n, {}, dict(sizes))) for n in shape], dtype=kind, device="cuda")
        return made

    def casting(dtype):
        return torch.autocast("cuda", dtype=dtype) if dtype else contextlib.nullcontext()

    def computed(model, batch):
        with casting(cast):
            return eval(loss_code, {"torch": torch, "nn": torch.nn, "F": torch.nn.functional},
                        Names(module, model=model, batch=batch, **batch))

    watch = watch_class(bool(variant.get("compile")))(tape, job.get("answers") or {})
    watch.fake = tape.fake = FakeTensorMode(allow_non_fake_inputs=True)
    compiler = Compiler(tape, attention.capability) if variant.get("compile") else None
    # It is called through this, and is otherwise the model itself.
    called = model
    compiling = compiler.around(watch.fake) if compiler else contextlib.nullcontext()
    with no_card_needed(attention, watch, compiler is not None), compiling, watch.noting_leaves(), watch.fake, watch:
        watch.calibrate()
        tape.begin("load")
        on_card(named, None if script or variant else half, tape)
        parameters = list(named.parameters())
        storages = [tape.see(p) for p in parameters]
        names = [name for name, _ in named.named_parameters()]
        described = [
            [names[i], list(p.shape), short(p.dtype), p.requires_grad, storages[i]] for i, p in enumerate(parameters)
        ]
        loaded = len(tape.storages)
        keep = watch.accumulators([p for p in parameters if p.requires_grad])
        if compiler:
            called = compiler.compile(model, lambda model: computed(model, inputs()))
        if not direct:
            for number, parameter in enumerate(parameters):
                if parameter.requires_grad:
                    parameter.register_post_accumulate_grad_hook(lambda _, number=number: tape.emit("i", number))
        batch = loss = held = None
        gradients, losses, roots = {}, {}, {}
        with naming(named, called, tape, checkpoints), checkpoints.watching() if checkpoints else contextlib.nullcontext():
            # What a direct one is a witness of are the first three; the fourth is there to be compared.
            for segment in "ABC" if direct else "ABCD":
                if segment in "CD":
                    tape.begin("zero")
                    for parameter in parameters:
                        parameter.grad = None
                tape.begin("input")
                batch = inputs()
                if script:
                    # Names that the lines gave last time are theirs until they give them again.
                    held = {**(held or module.names), **module.namespace(batch)}
                tape.begin("forward")
                same_chances()
                hooks = torch.autograd.graph.saved_tensors_hooks(tape.pack, tape.unpack)
                # A direct recording has autograd hold what it saves itself: what a tape must come out as.
                with contextlib.nullcontext() if direct else hooks:
                    if script:
                        with casting(None if module.casts else cast):
                            exec(module.code, held)
                        loss = held[module.loss]
                    else:
                        loss = computed(called, batch)
                if not isinstance(loss, torch.Tensor) or loss.numel() != 1 or not loss.requires_grad:
                    adapted = "; or the model goes past what is adapted (F.linear on a layer's weight): name other layers" if variant.get("lora") else ""
                    raise Refusal("the loss is no single number with a gradient", "check --loss" + adapted)
                losses[segment] = [tape.see(loss), short(loss.dtype)]
                # One function more, as where the loss is divided or scaled: backward on the loss itself is given a number that
                # its caller holds to the end, so that who else would hold one, and until when, did not show. An estimate leaves
                # both numbers out where the loop does not make them.
                root = torch.neg(loss)
                roots[segment] = tape.see(root)
                tape.begin("backward")
                root.backward()
                del root
                if job.get("detach_loss"):
                    loss = loss.detach()
                    if script:
                        held[module.loss] = loss
                gradients[segment] = [tape.see(p.grad) if p.grad is not None else None for p in parameters]
            tape.begin("end")
            tape.closed = True
        del batch, loss, held, keep, parameters, model, called
    return {
        "sizes": sizes,
        "regions": checkpoints.regions if checkpoints else 0,
        "repeats": repeats.lists,
        "blocks": blocks,
        "precision": precision,
        "capability": list(capability),
        "same": sorted(list(c) for c in attention.same),
        "built": built,
        "code": in_order(tape.code),
        "storages": tape.storages,
        "ran": tape.kernels,
        "modules": tape.module_names,
        "loaded": loaded,
        "parameters": described,
        "gradients": gradients,
        "losses": losses,
        "roots": roots,
        "asked": watch.asked,
    }


def answered(channel, job, module, asked):
    """One recording, told; or why there is none. Answers whether that is the end."""
    begun = time.time()
    try:
        recorded = record(job, module, asked["sizes"], asked["precision"], asked["capability"],
                          asked.get("direct", False), asked.get("checkpoint", "none"), asked.get("variant") or {},
                          asked.get("shortened", False))
    except Exception as error:
        if not asked.get("may_fail"):
            return refused(channel, error)
        known = isinstance(error, Refusal)
        channel.send(refused=error.problem if known else "%s: %s" % (type(error).__name__, str(error)[:500]),
                     hint=error.hint if known else "call torch.utils.checkpoint in the model itself")
        return 0
    channel.send(recording=recorded, seconds=round(time.time() - begun, 2))
    return 0


def set_aside():
    """What is there by now stays; the garbage collector need not look through it in every recording."""
    gc.collect()
    gc.freeze()


def packages():
    """Libraries of models that were imported, and their versions."""
    names = ("accelerate", "bitsandbytes", "diffusers", "peft", "timm", "torchvision", "transformers")
    found = [(name, getattr(sys.modules.get(name), "__version__", None)) for name in names]
    return [[name, str(version)] for name, version in found if version is not None]


def refused(channel, error):
    if isinstance(error, Refusal):
        channel.send(refused=error.problem, hint=error.hint)
        return 2
    last = traceback.extract_tb(error.__traceback__)[-1]
    traceback.print_exception(type(error), error, error.__traceback__)
    hint = "what was printed above says where it stopped"
    if "driver" in str(error):
        hint = "it needs a card's driver there: while it is traced, put what allocates the same in its place"
    channel.send(refused="%s: %s (%s:%s)" % (type(error).__name__, str(error).split("\n")[0][:500], last.filename,
                                             last.lineno), hint=hint)
    return 2


def main():
    out = os.dup(1)
    os.dup2(2, 1)
    channel = Channel(out)
    try:
        job = json.loads(sys.argv[1])
        for folder in job.get("path", []):
            sys.path.append(folder)
        try:
            import torch
        except ImportError as error:
            raise Refusal("PyTorch cannot be imported: %s" % error, "name a Python that has it with --python")
        torch.set_num_threads(1)
        try:
            module = marked(job["module"], job["arguments"]) if job.get("script") else imported(job["module"])
        except ImportError as error:
            raise Refusal("%s cannot be imported: %s" % (job["module"], error),
                          "run it where the module is, or name its folder with --path")
        for variant in job.get("variants", []):
            # What cannot be done to the model is said before anything is recorded.
            model, built = build(job, module)
            varied(model, variant, built, "fp32")
            del model
        about = {}
        if job.get("script"):
            # As `--input` and `--axis` would say it.
            inputs = ["%s=%s[%s]" % (name, of["dtype"], ",".join(of["shape"])) for name, of in module.given.items()]
            axes = ["%s=%d" % axis for axis in module.axes.items()]
            about = {"inputs": inputs, "axes": axes, "precision": module.precision, "lines": module.text}
        set_aside()
        channel.send(hello=PROTOCOL, torch=torch.__version__, python=sys.version.split()[0], packages=packages(), **about)
        first = True
        for line in sys.stdin:
            asked = json.loads(line)
            # A script's models are as it made them, and each recording begins with them so.
            child = os.fork() if job.get("script") else None
            if child:
                code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
                if code:
                    return 2
                continue
            status = answered(channel, job, module, asked)
            if child == 0:
                os._exit(status)
            if status:
                return status
            if first:
                # Much is imported only when the model is made.
                set_aside()
            first = False
    except BaseException as error:
        return refused(channel, error)
    return 0


if __name__ == "__main__":
    sys.exit(main())
