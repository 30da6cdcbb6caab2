# ---------------------------------------------------------------------------------------------------------------------
# The card that is not there

# Operators made of others that only fill what they make, or copy into it: looking inside shows nothing more.
WHOLE = {
    "clone", "_to_copy", "zeros", "ones", "full", "zeros_like", "ones_like", "full_like", "new_zeros", "new_ones",
    "new_full", "new_empty", "new_empty_strided", "empty_like", "scalar_tensor", "arange", "rand", "randn", "randint",
    "rand_like", "randn_like", "cat", "stack", "copy", "detach", "alias", "lift_fresh", "repeat",
    "_unsafe_view", "logical_not", "embedding",
}

# Of operators, where a tensor is wanted that may be called with a number.
NUMBERS = {}


def with_tensors(func, args):
    """The same, with tensors for numbers. C++ makes tensors of the numbers in `x % 2`, which come here as numbers again, and of some
    operators no others are taken for tensors."""
    import torch

    places = NUMBERS.get(func)
    if places is None:
        takes = getattr(torch._C, "_should_allow_numbers_as_tensors", lambda name: True)(func._schema.name.split("::")[-1])
        wanted = [str(argument.type) == "Tensor" for argument in func._schema.arguments]
        places = NUMBERS[func] = () if takes else tuple(place for place, tensor in enumerate(wanted) if tensor)
    if not any(type(args[place]) in (int, float, bool) for place in places if place < len(args)):
        return args
    wraps = [place in places and type(given) in (int, float, bool) for place, given in enumerate(args)]
    return tuple(torch.tensor(given) if wrap else given for wrap, given in zip(wraps, args))


# Larger factories on the CPU stay fake: nobody reads that many numbers one by one.
MOST_ON_HOST = 4_000_000


def watch_class(compiling):
    """The dispatch mode, made when torch is there."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    aten = torch.ops.aten
    card, meta = torch.device("cuda", 0), torch.device("meta")

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

    def scattered(view):
        """`as_strided_backward` (FunctionsManual.cpp): the gradient is copied into zeros of the base's size."""
        size, place = view._base.numel(), (view.shape, view.stride(), view.storage_offset())

        def into(gradients):
            (gradient,) = gradients
            if gradient is None:
                return None
            base = gradient.new_zeros(size)
            base.as_strided(*place).copy_(gradient)
            return (base.as_strided(*place),)

        return into

    class Watch(TorchDispatchMode):
        """Sees every operator that reaches the card, and has those that are made of others run as them."""

        @classmethod
        def _should_skip_dynamo(cls):
            """Nothing is compiled while it looks on, but where a model is recorded so: PyTorch would otherwise switch its compiler off and on
            around every operator."""
            return compiling

        def __init__(self, tape, contents, answers):
            super().__init__()
            self.tape, self.contents, self.answers, self.asked = tape, contents, answers, {}
            self.composite = {}
            self.made, self.rebased, self.accumulating = (), False, False
            # From where that was called.
            self.asker = None
            # Leaves whose nodes are being made, those that have one, and nodes that no graph holds yet.
            self.leaves, self.begun, self.begin = [], [], []
            # Nodes of parameters that were made anew.
            self.nodes = []
            self.truths = []
            self.sole, self.samples = None, None
            self.in_python = False
            # How deep in modules a gradient is asked for within forward (`torch.autograd.grad`); 0 where none is.
            self.differentiating = 0
            self.instead = replacements(self)
            self.fake = None
            self.selecting, self.remembered = Selecting(self), remembering(tape)
            # Views of what wants a gradient, by storage, and those whose base was written to.
            self.views, self.written = {}, []

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            kwargs = kwargs or {}
            if func is torch.ops.prim.device.default:
                return self.device(args[0])
            args = with_tensors(func, args)
            if self.tape.mute:
                return func(*args, **kwargs)
            self.tape.reach()
            if self.written:
                self.remake([given for given in tree_leaves((args, kwargs)) if isinstance(given, torch.Tensor)])
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
            if func in (aten.unique_consecutive.default, aten._unique2.default):
                raise Refusal(
                    "%s asks how many elements there are (%s), which only data decides" % (asking(), func.name()),
                    "trace a part of the model whose sizes follow from its inputs' sizes",
                )
            selection = selects(func, args)
            if selection is not None:
                return getattr(self.selecting, selection)(func, *args)
            if func in (aten.masked_scatter.default, aten.masked_scatter_.default):
                self.selecting.masked_scatter(*args[1:3])
            self.tape.op = name_of(func)
            replacement = self.instead.get(func)
            if replacement is not None:
                out = replacement(func, *args, **kwargs)
                if out is not NotImplemented:
                    return self.seen(func, out, args, kwargs)
            if func._schema.is_mutable and func._schema.name.startswith("aten::_foreach_"):
                # The card writes into the list it is given; fake tensors would go through copies of each.
                return None
            key = self.composed(func)
            if key is not None:
                with self:
                    out = func._op_dk(key, *args, **kwargs)
                return self.seen(func, out, args, kwargs)
            out = self.seen(func, self.remembered.run(func, args, kwargs), args, kwargs)
            base = func._schema.name.split("::")[-1].removesuffix("_")
            if base in PRODUCTS and not self.tape.closed:
                # The library asks for its workspace when what it writes to is there.
                self.tape.emit("b", int(base == "addmm" and adds_bias(*args[:3])))
            return out

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
                value = self.contents.value(tensor, self.selecting.number, lambda known: known.item())
                if value is not None:
                    return value
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
            said = self.said(op, args)
            if said is None and isinstance(out, torch.Tensor) and out.numel() == 1:
                said = {"all": True, "any": False}.get(op)
            if said is not None and isinstance(out, torch.Tensor):
                self.truths = [known for known in self.truths if known[0]() is not None] + [(weakref.ref(out), said)]

        def said(self, op, args):
            """What follows for an operator's result: nothing is infinite or not a number, there are none of what is nowhere, and so on."""
            other = args[1] if len(args) > 1 else None
            # C++ asks of its numbers by comparing them, with themselves or with infinity.
            infinite = op == "eq" and isinstance(other, float) and math.isinf(other)
            if op in ("isnan", "isinf") or op == "ne" and other is args[0] or infinite:
                return False
            known = self.truth(args[0]) if args and isinstance(args[0], torch.Tensor) else None
            if known is None:
                return None
            if op in ("logical_not", "bitwise_not"):
                return not known
            if op in ("sum", "count_nonzero"):
                return None if known else 0
            compares = COMPARES.get(op)
            return compares(known, other) if compares and isinstance(other, (bool, int, float)) else None

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
            # Modules that run deeper run a forward once more.
            depth = self.differentiating or int(self.tape.in_backward())
            if depth == len(self.tape.modules) and not self.in_python:
                return meta
            if not isinstance(tensor, FakeTensor):
                return tensor.device
            if not torch.is_grad_enabled():
                return tensor.fake_device
            asked = (self.rebased or not tensor.requires_grad) and any(tensor is made() for made in self.made)
            if asked and self.asker == instruction():
                # `set_history` on an operator's result, `rebase_history` on what it wrote to. Of what is called next autocast asks.
                return meta
            if any(tensor is leaf() for leaf in self.leaves):
                return meta
            if not tensor.requires_grad and leaves_function():
                # The output of a `torch.autograd.Function`, whose operators had nothing that requires a gradient.
                return meta
            known = isinstance(tensor, torch.nn.Parameter) or any(tensor is leaf() for leaf in self.begun)
            if tensor.requires_grad and self.is_leaf(tensor) and (not known or self.accumulating):
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
            before = self.made, self.rebased, self.asker, self.tape.op
            with self:
                leaf = tensor.is_leaf
            self.made, self.rebased, self.asker, self.tape.op = before
            return leaf

        @contextlib.contextmanager
        def noting_leaves(self):
            """Knows what was made a leaf that wants a gradient, by the method or by the attribute, and what was given other contents."""
            plain, attribute, contents = torch.Tensor.requires_grad_, torch._C.TensorBase.requires_grad, torch._C.TensorBase.data

            def requires_grad_(tensor, requires_grad=True):
                wanted = tensor.requires_grad
                out = plain(tensor, requires_grad)
                if requires_grad and not wanted:
                    self.begin_leaf(tensor)
                return out

            def wants(tensor):
                return attribute.__get__(tensor)

            def want(tensor, requires_grad):
                wanted = wants(tensor)
                attribute.__set__(tensor, requires_grad)
                if requires_grad and not wanted:
                    self.begin_leaf(tensor)

            def replace(tensor, given):
                contents.__set__(tensor, given)
                if isinstance(tensor, torch.nn.Parameter) and tensor.requires_grad and given.device == card and not self.tape.closed:
                    # Its node goes, as it is on no device (`set_data` in variable.cpp), and is made anew.
                    self.nodes += self.accumulators([tensor])

            torch.Tensor.requires_grad_, torch.Tensor.requires_grad = requires_grad_, property(wants, want)
            torch.Tensor.data = property(lambda tensor: contents.__get__(tensor), replace)
            try:
                yield
            finally:
                torch.Tensor.requires_grad_ = plain
                del torch.Tensor.requires_grad, torch.Tensor.data

        def begin_leaf(self, tensor):
            """Makes the node that accumulates a leaf's gradient, as a parameter's, before anything else asks where the leaf is: autocast asks
            the same as that node. It is held until an operator has the leaf, whose graph holds it then."""
            counts = isinstance(tensor, FakeTensor) and tensor.fake_device == card and not self.tape.closed
            if not counts or isinstance(tensor, torch.nn.Parameter):
                return
            leaf = weakref.ref(tensor)
            self.leaves.append(leaf)
            before = self.made, self.rebased, self.asker, self.tape.op
            with torch.enable_grad():
                node = tensor.expand_as(tensor).grad_fn.next_functions[0][0]
            self.made, self.rebased, self.asker, self.tape.op = before
            self.leaves.remove(leaf)
            self.begun = [known for known in self.begun if known() is not None] + [leaf]
            self.begin.append((leaf, node))

        def seen(self, func, out, args, kwargs):
            leaves = [out] if isinstance(out, torch.Tensor) else [t for t in tree_leaves(out) if isinstance(t, torch.Tensor)]
            if self.begin:
                given = tree_leaves((args, kwargs))
                self.begin = [(leaf, node) for leaf, node in self.begin if not any(leaf() is one for one in given)]
            if func._schema.is_mutable:
                self.tape.filled(name_of(func), leaves)
            if wants_gradient(args):
                self.made = [weakref.ref(t) for t in leaves]
                self.rebased, self.asker = func._schema.is_mutable, instruction()
                if self.rebased:
                    # What is written to through a view has its base rebased (`CopySlices`).
                    self.made += [weakref.ref(t._base) for t in leaves if t._is_view()]
                    self.written += [view for t in leaves for view in self.views.get(self.selecting.number(t), ())]
                elif func.is_view:
                    for made in leaves:
                        number = self.selecting.number(made)
                        if number is not None:
                            self.views.setdefault(number, []).append(weakref.ref(made))
            self.tape.op = name_of(func)
            self.note_truth(func, out, args)
            for tensor in as_made(self.tape, func, args, leaves):
                if tensor.device.type == "cuda":
                    self.tape.see(tensor)
            self.contents.note(func, args, kwargs, leaves, self.selecting.number)
            self.tape.run(func, args, kwargs, out)
            return out

        def remake(self, given):
            """A view whose base was written to has its node made anew when it is next used, as `as_strided` of the base (`grad_fn` in
            variable.cpp); of a tensor of a Python class, as fake ones are, it is the view's own, whose backward copies nothing where
            the view shows the whole base."""
            for view in given:
                if any(view is known() for known in self.written):
                    self.written = [known for known in self.written if known() is not view]
                    node = view.grad_fn if view.requires_grad and view.numel() == view._base.numel() else None
                    if node is not None:
                        node.register_prehook(scattered(view))

        def composed(self, func):
            """Where the kernel is by which C++ makes an operator of others, whose temporaries are allocated like anything else
            (`_safe_softmax`, the `matmul` within `cdist`); `None` where the card has one of its own for it."""
            if func not in self.composite:
                name, has = func.name(), torch._C._dispatch_has_kernel_for_dispatch_key
                keys = ["CompositeExplicitAutograd", "CompositeImplicitAutograd"]
                if func is aten._trilinear.default:
                    keys = ["CompositeExplicitAutogradNonFunctional"]
                found = next((key for key in keys if has(name, key)), None)
                whole = func._schema.name.split("::")[-1] in WHOLE or func.namespace != "aten"
                if whole or func._schema.is_mutable or func.is_view or has(name, "CUDA"):
                    found = None
                self.composite[func] = found and getattr(torch._C.DispatchKey, found)
            return self.composite[func]

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
