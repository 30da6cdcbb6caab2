# ---------------------------------------------------------------------------------------------------------------------
# What torch.compile makes of a model

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
        import torch._dynamo.utils
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
            # It sorts the functions that break no graph, and says on the terminal that they have no order.
            (torch._dynamo.utils, "_get_dynamo_config_for_logging", lambda: None),
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
