"""Storages on the card: when each comes, when it goes, and how high they stand together.

A storage is known by its identity. It comes with the operator that first returns a tensor of it, and goes when PyTorch
lets go of it, which its finalizer tells. Tensors are PyTorch's fake ones, which have storages like any other, only
nothing in them.
"""

import contextlib
import pathlib
import sys
import weakref

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from scripts import PROBE
from work import Work

aten = torch.ops.aten

# The caching allocator hands out multiples of this (`kMinBlockSize` in CUDACachingAllocator.cpp).
BLOCK = 512


# Code that stands between an operator and who calls it.
OWN = (str(pathlib.Path(__file__).resolve().parent), str(PROBE / "recorder"))

CARD = torch.device("cuda", 0)
META = torch.device("meta")


def rounded(size):
    return -(-size // BLOCK) * BLOCK


def on_card(tensors):
    return all(tensor.device.type == "cuda" for tensor in tensors)


def instruction():
    """The instruction of Python, but for these tools', that an operator is called from: the next one is called from another."""
    frame = sys._getframe(2)
    while frame is not None and frame.f_code.co_filename.startswith(OWN):
        frame = frame.f_back
    return frame and (id(frame), frame.f_lasti)


class Ledger:
    """What lives on the card, phase by phase."""

    def __init__(self):
        self.events = []
        self.phases = []
        self.peak = self.now = 0
        self.births = 0
        self.op = ""
        self.modules = []
        self.known = {}
        # Storages that are not the card's, though their tensors say so.
        self.hosted = set()
        self.closed = self.paused = False

    def begin(self, name, step=None, micro_batch=None):
        """A phase ends where the next begins."""
        self.end()
        self.phases.append({"name": name, "step": step, "micro_batch": micro_batch, "peak_requested": self.now})

    def end(self):
        if self.phases:
            self.phases[-1]["end_requested"] = self.now

    def close(self):
        """Nothing that comes or goes from here on counts."""
        if not self.closed:
            self.end()
            self.closed = True

    def in_backward(self):
        return bool(self.phases) and self.phases[-1]["name"] == "backward"

    def pause(self):
        """What comes from here on is not seen."""
        self.paused = True

    def resume(self, tensors):
        """From here on it is, and so are these."""
        self.paused = False
        self.op = "empty"
        for tensor in tensors:
            self.see(tensor)

    def lies_on_host(self, tensor):
        """Of a tensor that C++ makes there."""
        storage = tensor.untyped_storage()
        self.hosted.add(storage._cdata)
        weakref.finalize(storage, self.hosted.discard, storage._cdata).atexit = False

    def see(self, tensor):
        """Notes the storage of a tensor that an operator returned, if it is new and on the card."""
        if self.closed or self.paused or tensor.device.type != "cuda":
            return
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self.hosted:
            return
        size = rounded(storage.nbytes())
        if key in self.known:
            if self.known[key][1] != size:
                raise NotImplementedError("%s resized a storage, which the ledger does not follow" % self.op)
            return
        if size == 0:
            # The allocator hands out nothing for nothing.
            return
        number = self.births
        self.births += 1
        self.known[key] = number, size
        self.now += size
        self.peak = max(self.peak, self.now)
        phase = self.phases[-1]
        phase["peak_requested"] = max(phase["peak_requested"], self.now)
        module = self.modules[-1] if self.modules else ""
        dtype = str(tensor.dtype).replace("torch.", "")
        self.events.append(["a", number, size, phase["name"], self.op, module, list(tensor.shape), dtype])
        weakref.finalize(storage, self.gone, key, number, size).atexit = False

    @contextlib.contextmanager
    def naming(self, model):
        """Has every module's name stand beside what is allocated in its forward."""
        names = {id(module): name for name, module in model.named_modules()}
        call = torch.nn.Module.__call__

        # A wrapper, not hooks: with hooks modules take another way through `_call_impl`. It holds the arguments as
        # long as `_wrapped_call_impl`, which it stands around, does itself.
        def named(module, *args, **kwargs):
            self.modules.append(names.get(id(module), ""))
            try:
                return call(module, *args, **kwargs)
            finally:
                self.modules.pop()

        torch.nn.Module.__call__ = named
        try:
            yield
        finally:
            torch.nn.Module.__call__ = call

    def gone(self, key, number, size):
        if self.known.get(key) == (number, size):
            del self.known[key]
        if not self.closed:
            self.now -= size
            self.events.append(["f", number])


class Watch(TorchDispatchMode):
    """Sees every operator that reaches the card, and has those that are made of others run as them."""

    # Operators made of others that only fill what they make, or copy into it: looking inside shows nothing more.
    WHOLE = {
        "clone", "_to_copy", "zeros", "ones", "full", "zeros_like", "ones_like", "full_like", "new_zeros", "new_ones",
        "new_full", "new_empty", "new_empty_strided", "empty_like", "scalar_tensor", "arange", "rand", "randn", "randint",
        "rand_like", "randn_like", "cat", "stack", "copy", "detach", "alias", "lift_fresh", "repeat",
        "_unsafe_view", "logical_not",
        # Of ids that do not lie together it makes a flat copy, 8 bytes a token, gone when it returns; the rows have none.
        "embedding",
    }

    def __init__(self, ledger, answer, instead):
        super().__init__()
        self.ledger, self.answer, self.instead = ledger, answer, instead
        self.work = Work(ledger)
        self.composite = {}
        self.made, self.rebased, self.accumulating = (), False, False
        # From where that was called.
        self.asker = None
        # Leaves whose nodes are being made, those that have one, and nodes that no graph holds yet.
        self.leaves, self.begun, self.begin = [], [], []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func is torch.ops.prim.device.default:
            return self.device(args[0])
        if kwargs.get("device") == META:
            kwargs = {**kwargs, "device": CARD}
        if func is aten._local_scalar_dense.default and getattr(args[0], "constant", None) is None:
            if args[0].device.type == "cuda" or args[0].dtype == torch.bool:
                return self.answer(args[0])
        replacement = self.instead.get(func)
        if replacement is not None:
            out = replacement(self, func, *args, **kwargs)
            if out is not NotImplemented:
                return self.seen(func, out, args, kwargs)
        if func._schema.is_mutable and func._schema.name.startswith("aten::_foreach_") and on_card(args[0]):
            # The card writes into the list it is given; fake tensors would go through copies of each.
            return None
        if self.is_composite(func):
            with self:
                out = func._op_dk(torch._C.DispatchKey.CompositeExplicitAutograd, *args, **kwargs)
            return self.seen(func, out, args, kwargs)
        return self.seen(func, func(*args, **kwargs), args, kwargs)

    def accumulators(self, parameters):
        """The nodes that accumulate the parameters' gradients, which live as long as this list."""
        self.accumulating = True
        nodes = [parameter.expand_as(parameter).grad_fn.next_functions[0][0] for parameter in parameters]
        self.accumulating = False
        return nodes

    def device(self, tensor):
        """Where C++ takes a tensor to be: on the card, but for autograd. Its engine would send what belongs to a card
        to that card's own thread, and there is none; with nodes on no device it runs them in the caller's, in the same
        order. What backward formulas then make where a gradient is (on `META`) is put on the card above."""
        if self.ledger.in_backward() and not self.ledger.modules:
            return META
        if not torch.is_grad_enabled():
            return tensor.fake_device
        asked = (self.rebased or not tensor.requires_grad) and any(tensor is made() for made in self.made)
        if asked and self.asker == instruction():
            # `set_history` on an operator's result, `rebase_history` on what it wrote to. Of what is called next autocast asks.
            return META
        if any(tensor is leaf() for leaf in self.leaves):
            # `AccumulateGrad` of a view. It must not be asked whether it is a leaf: that takes the lock which is held here.
            return META
        if not tensor.requires_grad and self.leaves_function():
            # The output of a `torch.autograd.Function`, whose operators had nothing that requires a gradient.
            return META
        known = isinstance(tensor, torch.nn.Parameter) or any(tensor is leaf() for leaf in self.begun)
        if tensor.requires_grad and self.is_leaf(tensor) and (not known or self.accumulating):
            # `AccumulateGrad`. Of parameters they are made beforehand: autocast asks the same question of them.
            return META
        return tensor.fake_device

    @staticmethod
    def leaves_function():
        """Whether the innermost call is of `torch.autograd.Function.apply` itself, behind its forward."""
        frame = sys._getframe(2)
        while frame is not None:
            code = frame.f_code
            if code.co_name == "apply" and code.co_filename.endswith("torch/autograd/function.py"):
                return True
            own = code.co_filename == __file__ or code.co_filename.endswith("hulls.py")
            if not own and not any(part in code.co_filename for part in ("/torch/_", "/torch/utils/")):
                return False
            frame = frame.f_back
        return False

    def is_leaf(self, tensor):
        """Whether nothing made it. A view whose base was written to has its node made anew when that is asked (`grad_fn`
        in variable.cpp), of views that must be seen to be made like any other."""
        if not tensor._is_view():
            return tensor.is_leaf
        if not tensor._base.requires_grad:
            # Made to want a gradient itself; asking for its node would wait for a lock that is held while this is asked.
            return True
        before = self.made, self.rebased, self.asker, self.ledger.op
        with self:
            leaf = tensor.is_leaf
        self.made, self.rebased, self.asker, self.ledger.op = before
        return leaf

    @contextlib.contextmanager
    def noting_leaves(self):
        """Knows what was made a leaf that wants a gradient, by the method, as peft has the embeddings' output be, or by the attribute."""
        plain, attribute = torch.Tensor.requires_grad_, torch._C.TensorBase.requires_grad

        def requires_grad_(tensor, requires_grad=True):
            wanted = tensor.requires_grad
            out = plain(tensor, requires_grad)
            if requires_grad and not wanted:
                self.begin_leaf(tensor)
            return out

        def want(tensor, requires_grad):
            wanted = attribute.__get__(tensor)
            attribute.__set__(tensor, requires_grad)
            if requires_grad and not wanted:
                self.begin_leaf(tensor)

        torch.Tensor.requires_grad_ = requires_grad_
        torch.Tensor.requires_grad = property(attribute.__get__, want)
        try:
            yield
        finally:
            torch.Tensor.requires_grad_ = plain
            del torch.Tensor.requires_grad

    def begin_leaf(self, tensor):
        """Makes its `AccumulateGrad` before autocast asks where it is; held until an operator has the leaf."""
        if not isinstance(tensor, FakeTensor) or isinstance(tensor, torch.nn.Parameter) or self.ledger.closed:
            return
        leaf = weakref.ref(tensor)
        self.leaves.append(leaf)
        before = self.made, self.rebased, self.asker, self.ledger.op
        with torch.enable_grad():
            node = tensor.expand_as(tensor).grad_fn.next_functions[0][0]
        self.made, self.rebased, self.asker, self.ledger.op = before
        self.leaves.remove(leaf)
        self.begun = [known for known in self.begun if known() is not None] + [leaf]
        self.begin.append((leaf, node))

    @contextlib.contextmanager
    def quiet(self):
        """What is made in here is seen only if it is returned."""
        yield

    def seen(self, func, out, args, kwargs):
        self.work.see(func, args, kwargs, out)
        leaves = [t for t in tree_leaves(out) if isinstance(t, torch.Tensor)]
        if self.begin:
            given = tree_leaves((args, kwargs))
            self.begin = [(leaf, node) for leaf, node in self.begin if not any(leaf() is one for one in given)]
        if any(isinstance(t, torch.Tensor) and t.requires_grad for t in tree_leaves(args)):
            self.made = [weakref.ref(t) for t in leaves]
            self.rebased, self.asker = func._schema.is_mutable, instruction()
        self.ledger.op = func._schema.name.split("::")[-1]
        if func._overloadname != "default":
            self.ledger.op += "." + func._overloadname
        for tensor in leaves:
            self.ledger.see(tensor)
        return out

    def is_composite(self, func):
        """Whether the card has no kernel of its own for it: C++ then makes it of other operators, whose temporaries are
        allocated like anything else (`_safe_softmax`)."""
        known = self.composite.get(func)
        if known is None:
            name, has = func.name(), torch._C._dispatch_has_kernel_for_dispatch_key
            base = func._schema.name.split("::")[-1]
            known = (
                base not in self.WHOLE
                and func.namespace == "aten"
                and not func._schema.is_mutable
                and not func.is_view
                and has(name, "CompositeExplicitAutograd")
                and not has(name, "CUDA")
            )
            self.composite[func] = known
        return known
