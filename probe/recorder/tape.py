# ---------------------------------------------------------------------------------------------------------------------
# The tape


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
        # Storages that are not the card's, though their tensors say so.
        self.hosted = set()

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

    def lies_on_host(self, tensor):
        """Of a tensor that C++ makes there."""
        storage = tensor.untyped_storage()
        self.hosted.add(storage._cdata)
        weakref.finalize(storage, self.hosted.discard, storage._cdata).atexit = False

    def see(self, tensor):
        """Notes the storage of a tensor on the card; its number."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self.hosted:
            return None
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
        if not self.in_backward() or len(self.modules) == 1:
            # In forward there is one where a gradient is asked for.
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
        each = told if isinstance(told, list) else [told] if told is not None else []
        for made, operands, numbers in each:
            known = self.alive.get(made.untyped_storage()._cdata)
            if known is not None and known[0] >= len(self.storages) - len(each):
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
