# ---------------------------------------------------------------------------------------------------------------------
# The model


class Names(dict):
    """The names an expression may use: a module's own, looked up when they are asked for."""

    def __init__(self, module, **more):
        super().__init__(more)
        self.module = module

    def __missing__(self, name):
        try:
            return getattr(self.module, name)
        except AttributeError:
            raise KeyError(name) from None


def imported(name):
    """The module of this name, or in this file."""
    if name.endswith(".py"):
        spec = importlib.util.spec_from_file_location(os.path.basename(name)[:-3], name)
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
        return module
    return importlib.import_module(name)


def build(job, module, contents=None):
    """The model, on no device: shapes are all that is wanted of it."""
    import torch

    def made():
        found = eval(job["callable"], {"torch": torch, "nn": torch.nn}, Names(module))
        if not isinstance(found, torch.nn.Module):
            found = found() if callable(found) else found
        if not isinstance(found, torch.nn.Module):
            raise Refusal(
                "%s is no torch.nn.Module and makes none" % job["callable"],
                "name a function or a class that gives the model",
            )
        return found

    try:
        with torch.device("meta"), contents.building() if contents else contextlib.nullcontext():
            return made(), "meta"
    except Refusal:
        raise
    except Exception:
        # It looks at numbers while it is built.
        return made(), "cpu"
