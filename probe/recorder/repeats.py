# ---------------------------------------------------------------------------------------------------------------------
# Modules that repeat


class Repeats:
    """Lists of modules that are alike but for their weights: of each kind the first two and the last are enough to learn how
    sizes grow from. Whoever asks for that holds what comes out against a recording of the whole."""

    def __init__(self, model):
        # Path, how many there are, and which are kept.
        self.lists = []
        counted = {}
        for module in model.modules():
            for parameter in module._parameters.values():
                counted[id(parameter)] = counted.get(id(parameter), 0) + 1
        self.shared = {key for key, count in counted.items() if count > 1}
        self.find(model, "")

    def find(self, module, path):
        import torch

        children = [(name, child) for name, child in module._modules.items() if child is not None]
        if type(module) in (torch.nn.Sequential, torch.nn.ModuleList):
            described = [dict(self.described(child)) for _, child in children]
            names = {name for one in described for name in one}
            numbers = [name for name in names if self.counts(one.get(name) for one in described)]
            kinds = {}
            for index, one in enumerate(described):
                kind = tuple(sorted((name, repr(said)) for name, said in one.items() if name not in numbers))
                kinds.setdefault(kind, []).append(index)
            kept = sorted({index for kind in kinds.values() for index in (*kind[:2], kind[-1])})
            once = len({id(child) for _, child in children}) == len(children)
            tied = any(id(p) in self.shared for p in module.parameters())
            if once and not tied and len(kept) < len(children):
                self.lists.append([path, len(children), kept])
                return
        for name, child in children:
            self.find(child, path + "." + name if path else name)

    def described(self, module, path=""):
        """What a module is made of, name by name."""
        def said(value):
            if isinstance(value, float):
                # Rates rise from layer to layer; whether there is one is another matter.
                return value != 0
            if isinstance(value, (tuple, list)):
                return tuple(map(said, value))
            return value if isinstance(value, (int, str, type(None))) else type(value).__name__

        yield path, type(module).__name__
        for name, value in vars(module).items():
            if not name.startswith("_"):
                yield path + "." + name, said(value)
        for table in (module._parameters, module._buffers):
            for name, tensor in table.items():
                if tensor is not None:
                    yield path + "." + name, (tuple(tensor.shape), short(tensor.dtype), tensor.requires_grad)
        for name, child in module._modules.items():
            if child is not None:
                yield from self.described(child, path + "." + name)

    @staticmethod
    def counts(values):
        """Whether it is a module's place in the list (`layer_idx`)."""
        values = list(values)
        whole = all(isinstance(value, int) and not isinstance(value, bool) for value in values)
        return len(values) > 1 and whole and all(value == values[0] + at for at, value in enumerate(values))

    def shorten(self, model):
        for path, _, kept in self.lists:
            place = model.get_submodule(path)
            children = list(place._modules.values())
            place._modules.clear()
            place._modules.update((str(at), children[index]) for at, index in enumerate(kept))


def repeated(module):
    """Elements of lists of which several are of one class and have modules of their own, the outermost ones."""
    import torch

    containers = (torch.nn.Sequential, torch.nn.ModuleList)
    found = []
    children = list(module.children())
    for child in children:
        alike = sum(type(other) is type(child) for other in children)
        plain = type(child) in (torch.nn.Sequential, torch.nn.ModuleList, torch.nn.ModuleDict)
        if type(module) in containers and alike > 1 and not plain and next(child.children(), None) is not None:
            found.append(child)
        else:
            found += repeated(child)
    return found
