# ---------------------------------------------------------------------------------------------------------------------
# Random weights

# Where the random filling of a weight is worth leaving to the device: a model of a billion weights is filled in
# seconds there, and in a minute on the host.
LARGE = 1 << 20


def without_large_randomness():
    """Leaves large weights unfilled while the model is built on the host: they are filled on the device."""
    from torch.overrides import TorchFunctionMode

    random = {"normal_", "uniform_", "trunc_normal_", "kaiming_normal_", "kaiming_uniform_", "xavier_normal_",
              "xavier_uniform_", "erfinv_", "orthogonal_"}

    class WithoutLargeRandomness(TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            kwargs = kwargs or {}
            if getattr(function, "__name__", None) in random:
                tensor = args[0] if args else kwargs.get("tensor")
                if isinstance(tensor, torch.Tensor) and is_large(tensor):
                    return tensor
            return function(*args, **kwargs)

    return WithoutLargeRandomness()


def is_large(tensor):
    return tensor.dim() >= 2 and tensor.numel() >= LARGE


def fill(weight):
    weight.normal_(0.0, min(0.02, weight[0].numel() ** -0.5))


def fill_large(model):
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if is_large(parameter) and parameter.is_floating_point() and "lora_" not in name:
                fill(parameter)


def fill_shard(name, part):
    """What was made on the meta device holds nothing at all."""
    if part.dim() >= 2:
        part.normal_(0.0, 0.02)
    else:
        part.fill_(1.0 if name.endswith("weight") else 0.0)
