# ---------------------------------------------------------------------------------------------------------------------
# One recording


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
    tape, contents = Tape(), Contents()
    script = isinstance(module, Marked)
    if script:
        module.checked(precision)
        model, built = module.model(), "script"
        named = model
    else:
        model, built = build(job, module, contents)
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

    watch = watch_class(bool(variant.get("compile")))(tape, contents, job.get("answers") or {})
    watch.fake = tape.fake = FakeTensorMode(allow_non_fake_inputs=True)
    compiler = Compiler(tape, attention.capability) if variant.get("compile") else None
    # It is called through this, and is otherwise the model itself.
    called = model
    compiling = compiler.around(watch.fake) if compiler else contextlib.nullcontext()
    with no_card_needed(attention, watch, compiler is not None), compiling, watch.noting_leaves(), watch.fake, watch:
        watch.calibrate()
        tape.begin("load")
        on_card(named, None if script or variant else half, tape, contents)
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
