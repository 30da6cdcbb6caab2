# ---------------------------------------------------------------------------------------------------------------------
# Whose forward it is


def takes_gradient(*things):
    """Whether a tensor among them takes a gradient."""
    import torch
    from torch.utils._pytree import tree_leaves

    return torch.is_grad_enabled() and any(isinstance(t, torch.Tensor) and t.requires_grad for t in tree_leaves(things))


@contextlib.contextmanager
def naming(model, outermost, tape, checkpoints):
    """Has every module's name stand beside what is allocated in its forward."""
    import torch

    names = {id(module): tape.module(name) for name, module in model.named_modules()}
    names[id(outermost)] = 0
    # What is compiled is called as it was when that was done: of it the outermost call alone is named.
    place = type(outermost) if hasattr(outermost, "_orig_mod") else torch.nn.Module
    plain = place.__call__

    def call(module, *args, **kwargs):
        number = names.get(id(module), tape.modules[-1])
        if len(tape.modules) == 1 and id(module) not in names:
            # Somebody else's, as a loss that is a module: no call of the model.
            return plain(module, *args, **kwargs)
        tape.modules.append(number)
        if takes_gradient(args, kwargs):
            tape.emit("t")
        tape.turn("m", number)
        tape.given(args, kwargs)
        try:
            return plain(module, *args, **kwargs)
        finally:
            tape.modules.pop()
            tape.turn("e")

    def named(module, *args, **kwargs):
        if checkpoints is None:
            return call(module, *args, **kwargs)
        return checkpoints.call(call, module, args, kwargs)

    place.__call__ = named
    try:
        yield
    finally:
        place.__call__ = plain
