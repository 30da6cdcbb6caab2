# ---------------------------------------------------------------------------------------------------------------------
# Start to end

MODES = {"train": Run, "inference": Inference}


def check_job(job):
    """Refuses what this worker does not speak or cannot read."""
    if job.get("protocol") != PROTOCOL:
        message = "the job speaks protocol %s, this worker %d" % (clean(job.get("protocol")), PROTOCOL)
        raise Stop("protocol", message, "use the worker of the same plimsoll")
    try:
        scenario = job["scenario"]
        for key in ("optimizer", "optimizer_impl", "precision", "accumulation", "checkpointing", "attention", "mode",
                    "clip_grad_norm", "zero_grad", "zero_grad_at", "keep_outputs"):
            scenario["training"][key]
        scenario["input"]["batch"], scenario["model"]["task"]
        # Models without one leave it out.
        scenario["input"].setdefault("attention_mask", "none")
        if job.get("config") is None and "family" not in scenario["model"]:
            raise KeyError("config")
        if job.get("device") not in DEVICES:
            raise KeyError("device")
        if scenario["training"]["mode"] not in MODES:
            raise KeyError("training.mode")
    except (KeyError, TypeError) as error:
        raise Stop("bad-job", "the job lacks %s" % clean(error), "this is a bug of plimsoll: report it")


def say_hello(packages, training, device, channel):
    system, wsl, container = surroundings()
    names = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF")
    settings = [os.environ[name] for name in names if os.environ.get(name)]
    described = {"kind": device.kind}
    described.update(device.describe())
    versions = {name: getattr(package, "__version__", None) for name, package in packages.items()}
    if training["optimizer"] == "adamw-8bit" or (training["optimizer"], training["optimizer_impl"]) == ("lion", "fused"):
        # Imported only when the optimizer is made.
        versions["bitsandbytes"] = versions["bitsandbytes"] or installed("bitsandbytes")
    channel.emit(
        "hello", protocol=PROTOCOL, pid=os.getpid(), python=platform.python_version(), torch=str(torch.__version__),
        cuda=torch.version.cuda, hip=torch.version.hip, os=system, wsl=wsl, container=container,
        cudnn=torch.backends.cudnn.version() if torch.backends.cudnn.is_available() else None,
        alloc_conf=settings[0] if settings else None, device=described, **versions
    )


def work(channel, is_rank=False):
    global torch, STARTED
    job = channel.receive("bad-job")
    check_job(job)
    scenario, config = job["scenario"], job.get("config")
    if cards(scenario) > 1 and not is_rank:
        Leader(channel, job).run()
        return
    STARTED = job.get("started", STARTED)
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

    channel.progress("importing PyTorch")
    torch = import_torch()
    packages = import_for(scenario, config)
    kind = best_device(job["device"]) if job.get("best") else job["device"]
    if is_rank:
        check_cards(kind)
    device = DEVICES[kind](int(os.environ["LOCAL_RANK"]) if is_rank else job.get("index") or 0)
    say_hello(packages, scenario["training"], device, channel)
    if is_rank:
        device.ranks = Ranks(scenario, device)
        for name in ("snapshot", "trace"):
            job[name] = device.ranks.own_path(job.get(name))

    torch.manual_seed(job.get("seed") or 0)
    if job.get("snapshot"):
        if device.kind != "cuda":
            raise Stop("unsupported", "PyTorch records memory snapshots on CUDA only", "leave the snapshot out")
        # Not who frees: looking for that clears an exception that is on its way, such as the one by which checkpointing ends
        # what it computes again, and the backward fails with "returned NULL without setting an exception".
        torch.cuda.memory._record_memory_history(context="alloc", stacks="python", max_entries=1000000)
    if job.get("limit") is not None:
        device.cap(job["limit"], channel, scenario["training"]["mode"] == "train")
    if config is not None:
        config = read_config(scenario, config, packages["transformers"])
    channel.progress("building the model")
    try:
        kind = MODES[scenario["training"]["mode"]]
        if device.ranks is not None and device.ranks.strategy.startswith("zero"):
            kind = Zero
        run = kind(job, config, packages, device, channel)
    except Exception as error:
        kind = device.out_of_memory(error)
        if kind is None:
            raise
        what = "the limit is too low for the model's weights" if kind == "limit" else "the weights alone do not fit"
        raise Stop("out-of-memory", "%s: %s" % (what, clean(error)), "take a smaller model, or a precision with smaller weights") from error
    channel.emit("ready", parameters=run.counts(), batch=scenario["input"]["batch"], accumulation=scenario["training"]["accumulation"])

    while True:
        command = channel.receive("protocol")
        if command.get("command") == "finish":
            channel.emit("bye")
            return
        if command.get("command") != "attempt":
            raise Stop("protocol", "an unknown command", "use the worker of the same plimsoll")
        asked = [command.get(name) for name in ("batch", "accumulation", "steps")]
        if not all(isinstance(number, int) and number > 0 for number in asked):
            raise Stop("protocol", "an attempt without batch, accumulation and steps", "use the worker of the same plimsoll")
        run.run_attempt(*asked, samples=command.get("samples"))


# Errors of PyTorch that say it cannot do this here, and what to do about each.
REFUSALS = (
    ("driver version is insufficient", "update the card's driver, or install a build of torch for an older one"),
    ("Failed to find C compiler", "torch.compile needs a C compiler (gcc) on this machine: install one, or leave compile out"),
    ("Cannot find a working triton installation", "torch.compile needs Triton, which PyTorch for CUDA on Linux brings: install it, or leave compile out"),
    ("Unable to JIT load", "DeepSpeed builds a part of itself here: python -m pip install ninja, and a C++ compiler"),
    ("no kernel image is available", "this PyTorch has no kernels for this card: install a newer build of torch"),
    ("not implemented for", "use another precision: this PyTorch has no kernel for this one on this device"),
    ("is not currently implemented", "this PyTorch lacks an operator on this device: upgrade torch"),
    ("does not support bfloat16", "use another precision"),
    ("User specified an unsupported autocast", "upgrade torch, or use another precision"),
)


def main():
    is_rank = sys.argv[1:2] == ["--rank"]
    channel = Channel(join(sys.argv[2]) if is_rank else None)
    faulthandler.enable()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    die_with_parent()
    code = 0
    try:
        work(channel, is_rank)
    except Stop as stop:
        traceback.print_exc()
        cause = traceback.format_exc() if stop.__cause__ is not None else None
        whose = {} if stop.rank is None else {"rank": stop.rank}
        channel.emit("error", kind=stop.kind, message=stop.message, hint=stop.hint, traceback=cause, **whose)
        code = 3
    except Exception as error:
        traceback.print_exc()
        hint = next((hint for words, hint in REFUSALS if words in str(error)), None)
        kind, code = ("internal", 1) if hint is None else ("unsupported", 3)
        message = "%s: %s" % (type(error).__name__, clean(error))
        hint = hint or "run it again with the traceback at hand and report it"
        channel.emit("error", kind=kind, message=message, hint=hint, traceback=traceback.format_exc())
    # The interpreter's own ending would wait for the device and for threads.
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    if sys.argv[1:] == ["--libraries"]:
        libraries()
    else:
        main()
