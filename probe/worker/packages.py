# ---------------------------------------------------------------------------------------------------------------------
# Packages

OLDEST_TORCH = (2, 2)
OLDEST_TRANSFORMERS = (4, 36)  # the first with `attn_implementation`
OLDEST_BITSANDBYTES = (0, 45)  # the first with `int8_vectorwise_quant`


def version_of(text):
    """The first two numbers of a version: (2, 11) of 2.11.0+cu128."""
    numbers = re.match(r"(\d+)\.(\d+)", text)
    return (int(numbers.group(1)), int(numbers.group(2))) if numbers else (0, 0)


def import_torch():
    try:
        import torch
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise broken("torch", "missing-torch", error)
        raise Stop("missing-torch", "this Python has no PyTorch", "python -m pip install torch")
    except Exception as error:
        raise broken("torch", "missing-torch", error)
    if version_of(torch.__version__) < OLDEST_TORCH:
        needed = "%d.%d" % OLDEST_TORCH
        message = "PyTorch %s is too old: the probe needs %s or newer" % (torch.__version__, needed)
        raise Stop("old-torch", message, 'python -m pip install --upgrade "torch>=%s"' % needed)
    return torch


def import_package(name, needed_for):
    try:
        return __import__(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise broken(name, "missing-package", error)
        message = "this Python has no %s, which %s needs" % (name, needed_for)
        raise Stop("missing-package", message, "python -m pip install %s" % name)
    except Exception as error:
        raise broken(name, "missing-package", error)


def broken(name, kind, error):
    message = "%s is installed but cannot be imported: %s" % (name, clean(error))
    stop = Stop(kind, message, "python -m pip install --upgrade --force-reinstall %s" % name)
    stop.__cause__ = error
    return stop


def installed(name):
    """The version of a package that is not imported yet; None where it is not there."""
    import importlib.metadata

    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def import_for(scenario, config):
    """The packages that the scenario needs, by name; the others are not touched."""
    found = {"transformers": None, "peft": None, "torchvision": None, "bitsandbytes": None}
    training, family = scenario["training"], scenario["model"].get("family")
    if config is not None or training["optimizer"] == "adafactor":
        what = "a Hugging Face model" if config is not None else "the optimizer adafactor"
        transformers = found["transformers"] = import_package("transformers", what)
        if version_of(transformers.__version__) < OLDEST_TRANSFORMERS:
            needed = "%d.%d" % OLDEST_TRANSFORMERS
            message = "transformers %s is too old: the probe needs %s or newer" % (transformers.__version__, needed)
            raise Stop("missing-package", message, 'python -m pip install --upgrade "transformers>=%s"' % needed)
        if not transformers.utils.is_torch_available():
            message = "transformers %s does not work with PyTorch %s" % (transformers.__version__, torch.__version__)
            hint = 'python -m pip install --upgrade torch, or an older transformers ("transformers<5")'
            raise Stop("missing-package", message, hint)
    if training.get("lora") is not None:
        found["peft"] = import_package("peft", "LoRA")
    if quantized(training):
        bitsandbytes = found["bitsandbytes"] = import_package("bitsandbytes", "quantization = \"%s\"" % training["quantization"])
        if version_of(bitsandbytes.__version__) < OLDEST_BITSANDBYTES:
            needed = "%d.%d" % OLDEST_BITSANDBYTES
            message = "bitsandbytes %s is too old: the probe needs %s or newer" % (bitsandbytes.__version__, needed)
            raise Stop("missing-package", message, 'python -m pip install --upgrade "bitsandbytes>=%s"' % needed)
    if family in TORCHVISION:
        found["torchvision"] = import_package("torchvision", "the family %s" % family)
    return found


def import_for_cuda(name, needed_for, device, channel=None):
    """A package whose kernels run on CUDA only. The channel is told its version."""
    if device.kind != "cuda":
        message = "%s needs %s, which runs on CUDA only" % (needed_for, name)
        raise Stop("unsupported", message, "use --device cuda, or another recipe")
    package = import_package(name, needed_for)
    if channel is not None:
        channel.note("%s %s" % (name, getattr(package, "__version__", "of unknown version")))
    return package
