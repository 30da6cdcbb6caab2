# ---------------------------------------------------------------------------------------------------------------------
# What steps: optimizers, and what stands beside them


def make_offloader(model, training, device, channel):
    """TRL's OffloadActivations, as its trainers ask for it."""
    if training.get("trainer") == "transformers":
        # Its process has what the Trainer imports: where bitsandbytes is among it, the cache is emptied before each micro-batch.
        import transformers.trainer  # noqa: F401
    import_for_cuda("trl", "activation_offloading = \"offload-activations\"", device, channel)
    try:
        from trl.models.activation_offloading import get_act_offloading_ctx_manager
    except ImportError as error:
        message = "this TRL has no OffloadActivations: %s" % error
        raise Stop("unsupported", message, "python -m pip install --upgrade trl")
    # What it warns of it hands to accelerate's logger, which wants to know its process.
    from accelerate import PartialState

    PartialState()
    return get_act_offloading_ctx_manager(model=model, warn_if_no_head=False)


def make_optimizers(training, model, parameters, packages, device, channel):
    """The optimizers, in the order they step: one, but for Muon, which leaves a part of the parameters to AdamW."""
    name, implementation = training["optimizer"], training["optimizer_impl"]
    if name == "adafactor":
        transformers = packages["transformers"]
        if hasattr(transformers, "Adafactor"):
            Adafactor = transformers.Adafactor
        else:
            from transformers.optimization import Adafactor
        return [Adafactor(parameters, lr=1e-4, scale_parameter=False, relative_step=False)]
    if name in ("adamw-8bit", "paged-adamw", "paged-adamw-8bit"):
        bitsandbytes = import_for_cuda("bitsandbytes", "the optimizer %s" % name, device, channel)
        named = {"adamw-8bit": "AdamW8bit", "paged-adamw": "PagedAdamW", "paged-adamw-8bit": "PagedAdamW8bit"}[name]
        return [getattr(bitsandbytes.optim, named)(parameters, lr=1e-4)]
    if name == "adafactor-torch":
        if not hasattr(torch.optim, "Adafactor"):
            message = "PyTorch %s has no Adafactor: it came with 2.5" % torch.__version__
            raise Stop("unsupported", message, 'python -m pip install --upgrade "torch>=2.5", or use optimizer = "adafactor"')
    if name == "lion" and implementation == "fused":
        bitsandbytes = import_for_cuda("bitsandbytes", "the optimizer lion, fused,", device, channel)
        return [bitsandbytes.optim.Lion(parameters, lr=1e-4)]
    if name == "lion":
        import_package("lion_pytorch", "the optimizer lion")
        if implementation == "foreach":
            from lion_pytorch.foreach import Lion
        else:
            from lion_pytorch import Lion
        return [Lion(parameters, lr=1e-4, weight_decay=1e-2)]
    if name == "muon":
        if not hasattr(torch.optim, "Muon"):
            message = "PyTorch %s has no Muon: it came with 2.9" % torch.__version__
            raise Stop("unsupported", message, 'python -m pip install --upgrade "torch>=2.9", or use another optimizer')
        matrices = hidden_matrices(model, parameters)
        chosen = {id(p) for p in matrices}
        rest = [p for p in parameters if id(p) not in chosen]
        muon = [torch.optim.Muon(matrices, lr=1e-4)] if matrices else []
        # An optimizer without parameters is an error.
        return muon + ([classic_optimizer("adamw", training, rest)] if rest else [])
    return [classic_optimizer(name, training, parameters)]


def step_in_backward(training, model, parameters, packages, device, channel):
    """The optimizers, one for each parameter, which it steps with as soon as its gradient is there, and lets go of that."""
    if not hasattr(torch.Tensor, "register_post_accumulate_grad_hook"):
        message = "PyTorch %s has no register_post_accumulate_grad_hook: it came with 2.1" % torch.__version__
        raise Stop("unsupported", message, 'python -m pip install --upgrade "torch>=2.1", or leave optimizer_in_backward out')
    every = []
    for parameter in parameters:
        own = make_optimizers(training, model, [parameter], packages, device, channel)
        parameter.register_post_accumulate_grad_hook(lambda _, own=own: step_and_let_go(own))
        every += own
    return every


def step_and_let_go(optimizers):
    for optimizer in optimizers:
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


def hidden_matrices(model, parameters):
    """The parameters that are Muon's: matrices, but for tables of embeddings and the output head."""
    outer = {id(module.weight) for module in model.modules() if isinstance(module, torch.nn.Embedding)}
    for module in model.modules():
        head = module.get_output_embeddings() if hasattr(module, "get_output_embeddings") else None
        if head is not None:
            outer.add(id(head.weight))
    return [p for p in parameters if p.dim() == 2 and id(p) not in outer]


def classic_optimizer(name, training, parameters):
    implementation = training["optimizer_impl"]
    options = {"foreach": {"foreach": True}, "fused": {"fused": True}, "for-loop": {"foreach": False}}[implementation]
    classes = {"sgd": torch.optim.SGD, "sgd-momentum": torch.optim.SGD, "adam": torch.optim.Adam,
               "adamw": torch.optim.AdamW, "adagrad": torch.optim.Adagrad, "rmsprop": torch.optim.RMSprop,
               "nadam": torch.optim.NAdam, "adamax": torch.optim.Adamax,
               "rmsprop-momentum": torch.optim.RMSprop, "rmsprop-centered": torch.optim.RMSprop,
               "rmsprop-centered-momentum": torch.optim.RMSprop, "adafactor-torch": getattr(torch.optim, "Adafactor", None)}
    if name not in classes:
        known = ", ".join(list(classes) + ["adafactor", "adamw-8bit", "paged-adamw", "paged-adamw-8bit", "lion", "muon"])
        raise Stop("unsupported", "the optimizer %s cannot be measured" % clean(name), "use one of %s" % known)
    if name.endswith("-momentum"):
        options["momentum"] = 0.9
    if training.get("weight_decay"):
        options["weight_decay"] = training["weight_decay"]
    if training.get("amsgrad"):
        options["amsgrad"] = True
    if name.startswith("rmsprop-centered"):
        options["centered"] = True
    try:
        return classes[name](parameters, lr=1e-4, **options)
    except (RuntimeError, TypeError, ValueError) as error:
        message = "PyTorch %s has no %s %s here: %s" % (torch.__version__, implementation, name, clean(error))
        raise Stop("unsupported", message, 'use optimizer_impl = "foreach"') from error


def make_average(model):
    """The moving average of the weights: a copy of the whole model on its own device."""
    from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

    return AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.999))


def frozen_copy(model):
    """A reference: a copy of the whole model that nothing is trained of."""
    return copy.deepcopy(model).requires_grad_(False)


def make_scaler(kind, scale=None):
    """A GradScaler, which PyTorch has for every device since 2.3 and for CUDA before."""
    options = {} if scale is None else {"init_scale": scale}
    if hasattr(torch.amp, "GradScaler"):
        return torch.amp.GradScaler(kind, **options)
    if kind == "cuda":
        return torch.cuda.amp.GradScaler(**options)
    message = "PyTorch %s has no GradScaler for %s" % (torch.__version__, kind)
    raise Stop("unsupported", message, 'upgrade torch, or use precision = "bf16-amp"')
