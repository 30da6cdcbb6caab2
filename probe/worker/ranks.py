# ---------------------------------------------------------------------------------------------------------------------
# One of several ranks: how a model is spread over them, as core/parallel has it


def check_cards(kind):
    """A rank has a card of its own."""
    here = int(os.environ["LOCAL_WORLD_SIZE"])
    if kind == "mps":
        raise Stop("few-devices", "Metal has one device, and the scenario %d" % here, "use --device cpu, or one card")
    if kind == "cuda" and torch.cuda.is_available() and torch.cuda.device_count() < here:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        among = "" if visible is None else " (CUDA_VISIBLE_DEVICES is %s)" % clean(visible)
        message = "the scenario has %d cards, PyTorch sees %d%s" % (here, torch.cuda.device_count(), among)
        raise Stop("few-devices", message, "take as many --gpus as there are, or --device cpu")


class Ranks:
    """This process among those that train together."""

    def __init__(self, scenario, device):
        import torch.distributed as distributed

        if not distributed.is_available():
            message = "this PyTorch was built without torch.distributed"
            raise Stop("unsupported", message, "install a build of PyTorch that has it, or use one card")
        self.scenario, self.device, self.distributed = scenario, device, distributed
        self.parallel = scenario["parallel"]
        self.strategy = self.parallel.get("strategy", "ddp")
        if self.strategy not in SPREAD:
            message = "the strategy %s cannot be measured" % clean(self.strategy)
            raise Stop("unsupported", message, "use one of %s" % ", ".join(SPREAD))
        if scenario["training"].get("loss_impl", "full") != "full":
            message = "a loss of another kind goes past what spreads the model: it is measured on one card only"
            raise Stop("unsupported", message, 'use loss_impl = "full"')
        # NCCL has no part on a card that is not there.
        self.hollow = device.kind == "cuda" and is_hollow()
        distributed.init_process_group("cpu:gloo,cuda:nccl" if device.kind == "cuda" and not self.hollow else "gloo")
        self.rank, self.counts = distributed.get_rank(), None
        self.sent = {}
        self.watch("all_gather_into_tensor", "gathered", lambda output, _: output)
        self.watch("reduce_scatter_tensor", "reduced", lambda _, given: given)

    def own_path(self, path):
        """Of a file that every rank writes: the first takes the name itself."""
        if not path or self.rank == 0:
            return path
        root, ending = os.path.splitext(path)
        return "%s-rank%d%s" % (root, self.rank, ending)

    # ---- what is sent

    def watch(self, name, kind, whole):
        """Counts the buffers that a collective is called with: the larger one of both, which holds every rank's part."""
        call = getattr(self.distributed, name)

        @functools.wraps(call)
        def counted(output, given, *args, **kwargs):
            buffer = whole(output, given)
            key = kind, buffer.numel() * buffer.element_size()
            self.sent[key] = self.sent.get(key, 0) + 1
            if self.hollow:
                # gloo copies what it reduces on the card, and holds on to what it gathers: NCCL does neither. Nothing is computed
                # there, so nothing is missed.
                return Done() if kwargs.get("async_op") else None
            return call(output, given, *args, **kwargs)

        # Wrappers give both by name, or in this order.
        setattr(self.distributed, name, lambda *args, **kwargs: counted(*args, **named(kwargs)))

    def count_anew(self):
        self.sent = {}

    def buffers(self, model):
        """What the last step sent through, by size: the buckets of DDP's reducer, what FSDP gathered and reduced."""
        sent = dict(self.sent)
        if self.strategy == "ddp":
            told = model._get_ddp_logging_data()
            sizes = told.get("rebuilt_bucket_sizes") or told.get("bucket_sizes") or ""
            for size in str(sizes).split(","):
                if size.strip():
                    key = "bucket", int(size)
                    sent[key] = sent.get(key, 0) + 1
        return [{"kind": kind, "bytes": size, "count": count} for (kind, size), count in sorted(sent.items())]

    # ---- the model

    def place(self, config):
        """Where the model is made: on the `meta` device, on the `host`, or whole on the `device`."""
        if self.strategy == "fsdp1" or self.strategy.startswith("zero"):
            return "host"
        if self.strategy != "fsdp2":
            return "device"
        on_card = quantized(self.scenario["training"])
        place = self.fsdp().get("load", "cuda" if on_card else "meta")
        # Parameters that are shared come apart on the meta device.
        if place == "meta" and (getattr(config, "tie_word_embeddings", False) or on_card):
            return "device"
        return {"meta": "meta", "cpu": "host", "cuda": "device"}[place]

    def fsdp(self):
        return self.parallel.get("fsdp") or {}

    def spread(self, model):
        total = sum(numbers_in(p) for p in model.parameters())
        trainable = sum(p.numel() for p in model.parameters() if p.requires_grad)
        self.counts = {"total": total, "trainable": trainable}
        try:
            return getattr(self, SPREAD[self.strategy])(model)
        except (ValueError, TypeError, AttributeError, ImportError, NotImplementedError) as error:
            message = "PyTorch %s does not spread this model with %s: %s" % (torch.__version__, self.strategy, clean(error))
            raise Stop("unsupported", message, "use another strategy") from error

    def alone(self, model):
        return model

    def with_ddp(self, model):
        options = {name: value for name, value in (self.parallel.get("ddp") or {}).items() if name != "no_sync"}
        own = [self.device.index] if self.device.kind == "cuda" else None
        return torch.nn.parallel.DistributedDataParallel(model, device_ids=own, **options)

    def mesh(self):
        from torch.distributed.device_mesh import init_device_mesh

        copies, count = self.parallel.get("replicate", 1), cards(self.scenario)
        if copies == 1:
            return init_device_mesh(self.device.kind, (count,))
        return init_device_mesh(self.device.kind, (copies, count // copies), mesh_dim_names=("replicate", "shard"))

    def dtype(self, key):
        return {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}.get(self.fsdp().get(key))

    def with_fsdp2(self, model):
        try:
            from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard
        except ImportError as error:
            message = "PyTorch %s has no torch.distributed.fsdp.fully_shard: it came with 2.6" % torch.__version__
            raise Stop("unsupported", message, 'python -m pip install --upgrade "torch>=2.6"') from error
        keys = self.fsdp()
        policy = MixedPrecisionPolicy(param_dtype=self.dtype("param_dtype"), reduce_dtype=self.dtype("reduce_dtype"))
        options = {"mp_policy": policy, "mesh": self.mesh()}
        if keys.get("cpu_offload"):
            pinned = self.device.kind == "cuda" and not self.hollow and keys.get("pin_memory", True)
            options["offload_policy"] = CPUOffloadPolicy(pin_memory=pinned)
        reshard = {True: True, "true": True, False: False, "false": False}.get(keys.get("reshard_after_forward"))
        if reshard is not None:
            options["reshard_after_forward"] = reshard
        on_meta = next(model.parameters()).is_meta
        wrap = keys.get("wrap", "layer")
        if wrap == "torchtitan":
            fully_shard(model.model.embed_tokens, **options)
        if wrap != "root":
            for block in blocks(model):
                fully_shard(block, **options)
        if wrap == "torchtitan":
            fully_shard([model.model.norm, model.lm_head], **{"reshard_after_forward": False, **options})
        fully_shard(model, **options)
        if on_meta:
            model.to_empty(device="cpu" if keys.get("cpu_offload") else self.device.name)
        for module in model.modules():
            for name, buffer in list(module._buffers.items()):
                if buffer is None:
                    continue
                if keys.get("cpu_offload"):
                    module._buffers[name] = buffer = buffer.to(self.device.name)
                if on_meta:
                    # Positions of zero are as good as any.
                    buffer.zero_()
        if not keys.get("reshard_after_backward", True):
            model.set_reshard_after_backward(False)
        return model

    def with_fsdp1(self, model):
        from torch.distributed import fsdp
        from torch.distributed.fsdp.wrap import lambda_auto_wrap_policy

        if self.device.kind == "cpu":
            message = "FullyShardedDataParallel needs a card: PyTorch runs it on no processor"
            raise Stop("unsupported", message, "use strategy = fsdp2, or a card")
        keys = self.fsdp()
        wrapped = {id(block) for block in blocks(model)} if keys.get("wrap", "layer") != "root" else set()
        if keys.get("wrap") == "peft":
            # `fsdp_auto_wrap_policy` of peft: every leaf that is trained besides.
            leaves = (module for module in model.modules() if not list(module.children()))
            weights = ((module, getattr(module, "weight", None)) for module in leaves)
            wrapped |= {id(module) for module, weight in weights if weight is not None and weight.requires_grad}
        precision = None
        if keys.get("param_dtype") or keys.get("reduce_dtype"):
            precision = fsdp.MixedPrecision(param_dtype=self.dtype("param_dtype"), reduce_dtype=self.dtype("reduce_dtype"))
        ahead = {"pre": fsdp.BackwardPrefetch.BACKWARD_PRE, "post": fsdp.BackwardPrefetch.BACKWARD_POST, "none": None}
        sharding = keys.get("sharding_strategy", "full-shard").upper().replace("-", "_")
        return fsdp.FullyShardedDataParallel(
            model, auto_wrap_policy=functools.partial(lambda_auto_wrap_policy, lambda_fn=lambda module: id(module) in wrapped),
            mixed_precision=precision, use_orig_params=keys.get("use_orig_params", False), device_id=self.device.index,
            sharding_strategy=fsdp.ShardingStrategy[sharding],
            cpu_offload=fsdp.CPUOffload(offload_params=True) if keys.get("cpu_offload") else None,
            backward_prefetch=ahead[keys.get("backward_prefetch", "pre")],
        )

    # ---- the loop

    def micro_batch(self, model, last):
        """What a micro-batch is run in: of an accumulation only the last one may have its gradients summed."""
        every = self.fsdp().get("sync_every_micro_batch", True)
        if self.strategy == "fsdp2":
            if not every:
                model.set_requires_gradient_sync(last)
            return contextlib.nullcontext()
        if self.strategy.startswith("zero"):
            return contextlib.nullcontext()
        quiet = not every if self.strategy == "fsdp1" else (self.parallel.get("ddp") or {}).get("no_sync", True)
        return model.no_sync() if quiet and not last else contextlib.nullcontext()


# DeepSpeed's engine spreads the model itself, with its optimizer: `Zero`.
SPREAD = {"ddp": "with_ddp", "fsdp2": "with_fsdp2", "fsdp1": "with_fsdp1", "zero-0": "alone", "zero-1": "alone",
          "zero-2": "alone", "zero-3": "alone"}


class Done:
    """A collective that was to run beside the step, and is over. FSDP holds what it gathers for longer where there is none."""

    def wait(self, timeout=None):
        return True

    def is_completed(self):
        return True


def named(kwargs):
    """The two tensors of a collective by the names that `counted` has for them."""
    names = {"output_tensor": "output", "input_tensor": "given", "input": "given"}
    return {names.get(name, name): value for name, value in kwargs.items()}


def blocks(model):
    """The outermost entries of lists of modules: what FSDP cuts one by one."""
    found = []

    def walk(module):
        for child in module.children():
            if isinstance(child, (torch.nn.ModuleList, torch.nn.Sequential)):
                found.extend(child)
            else:
                walk(child)

    walk(model)
    return [block for block in found if any(True for _ in block.parameters())]
