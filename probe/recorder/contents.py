# ---------------------------------------------------------------------------------------------------------------------
# What is in tensors that follow from sizes alone

# Larger ones are not computed.
MOST_COMPUTED = 4_000_000

# Operators that leave what they make as it was.
UNWRITTEN = ("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "resize_", "set_")

# Operators by which a whole tensor becomes one number, whatever it was.
OVERWRITES = ("fill_", "zero_")


class Unknown(Exception):
    """What is in a tensor does not follow from sizes."""


class Given:
    """A tensor that an operator was given: its storage, how often that had been written to, and where it lies there."""

    __slots__ = ("storage", "writes", "sizes", "strides", "offset", "dtype")

    def __init__(self, storage, writes, tensor):
        self.storage, self.writes = storage, writes
        self.sizes, self.strides = tuple(tensor.shape), tuple(tensor.stride())
        self.offset, self.dtype = tensor.storage_offset(), tensor.dtype


class Contents:
    """How each storage on the card was written, where that is known: masks of `eye`, `triu`, `arange` and the like are computed on the
    host once somebody asks how many of their elements hold. What is fed to the model is not known, nor what chance says."""

    def __init__(self):
        # By storage, each of its writes: the operator, its arguments, and where its result lies.
        self.written = {}
        # Storages of a model that is made on no device.
        self.built, self.counted = {}, 0

    def number_built(self, tensor):
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key not in self.built:
            self.counted += 1
            self.built[key] = "built", self.counted
            weakref.finalize(storage, self.built.pop, key).atexit = False
        return self.built[key]

    def building(self):
        """Looks on while a model is made on no device."""
        import torch
        from torch.utils._python_dispatch import TorchDispatchMode

        class Building(TorchDispatchMode):
            def __torch_dispatch__(mode, func, types, args=(), kwargs=None):
                out = func(*args, **(kwargs or {}))
                made = [out] if isinstance(out, torch.Tensor) else []
                self.note(func, args, kwargs or {}, made, self.number_built)
                return out

        return Building()

    def load(self, storage, tensor):
        """A buffer as the module was made with it; of the host's own, whole numbers and truth values, which are no weights."""
        if tensor.is_meta:
            number = self.built.get(tensor.untyped_storage()._cdata)
            if number not in self.written:
                return
            given = Given(number, len(self.written[number]), tensor)
        elif tensor.dtype.is_floating_point or tensor.dtype.is_complex or tensor.numel() > MOST_COMPUTED:
            return
        else:
            given = tensor
        self.written[storage] = [(None, (given,), {}, Given(storage, 0, tensor))]

    def note(self, func, args, kwargs, made, number):
        """An operator has run, and made these; `number` says a tensor's storage."""
        import torch

        name = func._schema.name.split("::")[-1]
        if func._schema.is_mutable:
            for tensor in made:
                self.write(func, name, args, kwargs, tensor, number)
            return
        if func.is_view or len(made) != 1 or name in UNWRITTEN or name == "_unsafe_view" or torch.Tag.nondeterministic_seeded in func.tags:
            return
        storage = number(made[0])
        if storage is None or self.written.pop(storage, None) is not None:
            return
        try:
            args, kwargs = self.held((args, kwargs), number)
        except Unknown:
            return
        self.written[storage] = [(func, args, kwargs, Given(storage, 0, made[0]))]

    def write(self, func, name, args, kwargs, tensor, number):
        import torch

        storage = number(tensor)
        whole = tensor.numel() * tensor.dtype.itemsize == tensor.untyped_storage().nbytes()
        before = self.written.pop(storage, None)
        if storage is None or before is None and not (name in OVERWRITES and whole):
            return
        if not args or args[0] is not tensor or name in UNWRITTEN or torch.Tag.nondeterministic_seeded in func.tags:
            return
        try:
            held = self.held((args[1:], kwargs), number)
        except Unknown:
            return
        before = [] if name in OVERWRITES and whole else before
        self.written[storage] = [*before, (func, *held, Given(storage, len(before), tensor))]

    def held(self, things, number):
        """The same, with what says which tensor in a tensor's place."""
        import torch
        from torch._subclasses.fake_tensor import FakeTensor

        if isinstance(things, torch.Tensor):
            if not (things.is_meta or isinstance(things, FakeTensor)):
                # What the host holds may be data.
                if things.dim() == 0:
                    return things.clone()
                raise Unknown
            storage = number(things)
            writes = self.written.get(storage)
            if writes is None:
                raise Unknown
            return Given(storage, len(writes), things)
        if isinstance(things, (list, tuple)):
            return tuple(self.held(thing, number) for thing in things)
        if isinstance(things, dict):
            return {name: self.held(thing, number) for name, thing in things.items()}
        return torch.device("cpu") if isinstance(things, torch.device) else things

    def value(self, tensor, number, of):
        """What `of` says of what is in a tensor, computed on the host; `None` where that is not known."""
        import torch
        from torch._subclasses.fake_tensor import unset_fake_temporarily

        if tensor.numel() > MOST_COMPUTED:
            return None
        plain = torch._C._DisableTorchDispatch()
        try:
            with unset_fake_temporarily(), torch.no_grad():
                return of(self.read(self.held(tensor, number), {}))
        except (Unknown, RuntimeError, NotImplementedError, RecursionError):
            return None
        finally:
            del plain

    def read(self, given, known):
        """A tensor as it was when it was given; `known` are storages that were computed on the way."""
        import torch

        place = given.storage, given.writes
        if place not in known:
            flat = None
            for func, args, kwargs, out in self.written.get(given.storage, ())[:given.writes]:
                if flat is None:
                    size = 1 + out.offset + sum((n - 1) * step for n, step in zip(out.sizes, out.strides)) if math.prod(out.sizes) else 0
                    if size > MOST_COMPUTED:
                        raise Unknown
                    flat = torch.empty(size, dtype=out.dtype)
                if out.dtype != flat.dtype:
                    raise Unknown
                target = flat.as_strided(out.sizes, out.strides, out.offset)
                args, kwargs = self.values(args, known), self.values(kwargs, known)
                if func is None:
                    target.copy_(args[0])
                elif func._schema.is_mutable:
                    func(target, *args, **kwargs)
                else:
                    target.copy_(func(*args, **kwargs))
            if flat is None:
                raise Unknown
            known[place] = flat
        flat = known[place]
        if flat.dtype != given.dtype:
            raise Unknown
        return flat.as_strided(given.sizes, given.strides, given.offset)

    def values(self, things, known):
        if isinstance(things, Given):
            return self.read(things, known)
        if isinstance(things, tuple):
            return tuple(self.values(thing, known) for thing in things)
        return {name: self.values(thing, known) for name, thing in things.items()} if isinstance(things, dict) else things
