# ---------------------------------------------------------------------------------------------------------------------
# A marked line in a script


class Found(BaseException):
    """The marked lines are reached: the script goes no further."""


def ashore():
    """The mode a script runs in up to its marked lines: what it would put on a card stays on the host."""
    import torch
    from torch.overrides import TorchFunctionMode

    def host(value):
        if isinstance(value, (str, torch.device)) and str(value).split(":")[0] == "cuda":
            return torch.device("cpu")
        return value

    class Ashore(TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            if getattr(function, "__name__", "") in ("cuda", "pin_memory") and args:
                return args[0]
            return function(*map(host, args), **{name: host(value) for name, value in (kwargs or {}).items()})

    return Ashore()


def reachable(value, kind, depth=2):
    """Values of this kind in a name's value: itself, in containers, or what a plain object holds."""
    if isinstance(value, kind):
        return [value]
    inner = ()
    if isinstance(value, dict) or hasattr(value, "items") and hasattr(value, "keys"):
        inner = value.values()
    elif isinstance(value, (list, tuple)):
        inner = value
    elif depth and hasattr(value, "__dict__") and not isinstance(value, type) and "module" not in type(value).__name__:
        inner = vars(value).values()
    return [found for part in list(inner) for found in reachable(part, kind, depth - 1)] if depth else []


class Marked:
    """`with plimsoll.trace("name", x="B,3,S,S"):` around what computes the loss, found by running the script up to there."""

    def __init__(self, frame, shapes):
        import torch

        self.path, self.line, self.shapes = frame.f_code.co_filename, frame.f_lineno, shapes
        self.names = {**frame.f_globals, **frame.f_locals}
        # What the script has put around them.
        on = torch.is_autocast_enabled("cuda")
        self.cast = torch.get_autocast_dtype("cuda") if on else None

    def read(self):
        """What stands in the block: up to backward, which is the loop's."""
        import ast

        import torch

        def calls(node, name):
            return any(name in (getattr(part, "attr", None), getattr(part, "id", None)) for part in ast.walk(node))

        with open(self.path, encoding="utf-8") as file:
            tree = ast.parse(file.read())
        blocks = [node for node in ast.walk(tree) if isinstance(node, ast.With) and calls(node.items[0], "trace")
                  and node.lineno <= self.line <= node.body[0].lineno]
        if not blocks:
            raise Refusal("the marked lines cannot be found at line %d of %s" % (self.line, self.path),
                          "write `with plimsoll.trace(...):` as a statement of its own")
        body = []
        for statement in blocks[-1].body:
            if calls(statement, "backward"):
                break
            if not calls(statement, "zero_grad"):
                body.append(statement)
        stored = [part.id for node in body for part in ast.walk(node)
                  if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)]
        if not stored:
            raise Refusal("the marked lines give nothing a name", "mark what computes the loss: loss = model(batch)")
        self.loss = "loss" if "loss" in stored else stored[-1]
        self.loaded = {part.id for node in body for part in ast.walk(node)
                       if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load)}
        # Autocast that they turn on themselves: which one is known before they run.
        items = [item.context_expr for node in body for part in ast.walk(node) if isinstance(part, ast.With)
                 for item in part.items]
        casts = [eval(compile(ast.Expression(item), self.path, "eval"), self.names) for item in items if calls(item, "autocast")]
        casts = {cast.fast_dtype for cast in casts if cast._enabled}
        self.casts = any(calls(node, "autocast") for node in body)
        if len(casts) > 1:
            raise Refusal("the marked lines cast to several types", "use one precision")
        self.cast = next(iter(casts), self.cast)
        self.code = compile(ast.Module(body=body, type_ignores=[]), self.path, "exec")
        self.text = "\n".join(ast.unparse(statement) for statement in body)
        return self

    def look(self):
        """The models, what they are given, and the precision, as they are where the marked lines begin."""
        import torch

        used = {name: self.names[name] for name in sorted(self.loaded) if name in self.names}
        models = [model for value in used.values() for model in reachable(value, torch.nn.Module)]
        models = list({id(model): model for model in models}.values())
        self.models = [model for model in models if not any(
            model is not other and any(model is part for part in other.modules()) for other in models)]
        if not any(parameter.requires_grad for model in self.models for parameter in model.parameters()):
            raise Refusal("the marked lines use no model that trains", "mark the lines that call it")
        self.given = self.inputs(used)
        types = {p.dtype for model in self.models for p in model.parameters() if p.is_floating_point()}
        half = {torch.float16: "fp16", torch.bfloat16: "bf16"}
        self.precision = "fp32"
        if self.cast is not None:
            self.precision = half[self.cast] + "-amp"
        elif len(types) == 1:
            self.precision = half.get(next(iter(types)), "fp32")
        return self

    def inputs(self, used):
        """Tensors that the marked lines are given: where each lies, its type, and its lengths with axes in them."""
        import torch

        found = []
        for name, value in used.items():
            if isinstance(value, torch.nn.Module):
                continue
            parts = [(None, value)] if isinstance(value, torch.Tensor) else (
                list(value.items()) if hasattr(value, "items") else list(enumerate(value))
                if isinstance(value, (list, tuple)) else [])
            found += [(name, key, part) for key, part in parts if isinstance(part, torch.Tensor)]
        firsts = [part.shape[0] for _, _, part in found if part.dim()]
        if not firsts:
            raise Refusal("the marked lines are given no tensor", "have the batch in a variable before them")
        batch, axes, inputs = max(set(firsts), key=firsts.count), {}, {}
        for name, key, part in found:
            label = str(name if key is None else key)
            lengths = self.shapes.get(label)
            lengths = lengths.split(",") if lengths is not None else ["B" if at == 0 and length == batch else str(length)
                                                                     for at, length in enumerate(part.shape)]
            lengths = [length.strip() for length in lengths if length.strip()]
            if len(lengths) != part.dim():
                raise Refusal("%s has %d dimensions, and %r names %d" % (label, part.dim(), self.shapes[label],
                                                                        len(lengths)), "name each, or give its length")
            for length, size in zip(lengths, part.shape):
                if length.isidentifier() and axes.setdefault(length, size) != size:
                    raise Refusal("the axis %s is %d here and %d there" % (length, axes[length], size),
                                  "give the two different names")
            label = label if label.isidentifier() and label not in inputs else "input_%d" % len(inputs)
            inputs[label] = {"dtype": short(part.dtype), "shape": lengths, "at": [name, key]}
        unknown = set(self.shapes) - {str(name if key is None else key) for name, key, _ in found}
        if unknown:
            raise Refusal("the marked lines are given no %s" % ", ".join(sorted(unknown)), "they are given %s" % ", ".join(inputs))
        self.axes = axes
        return inputs

    def model(self):
        """All its models as one."""
        import torch

        if len(self.models) == 1:
            return self.models[0]
        return torch.nn.ModuleList(self.models)

    def checked(self, precision):
        """Whether this precision is the script's, or can be put around it."""
        if self.precision not in ("fp32", precision) or (self.precision == "fp32" and precision in ("fp16", "bf16")):
            raise Refusal("the script trains in %s, not in %s" % (self.precision, precision),
                          "record that with --precision %s, or change the script" % self.precision)

    def namespace(self, batch):
        """The script's names that are others on the card: the batch's tensors, and what says where they go."""
        import torch

        names = {name: self.names[name] for name in {of["at"][0] for of in self.given.values()}}
        for label, tensor in batch.items():
            name, key = self.given[label]["at"]
            if key is None:
                names[name] = tensor
            elif isinstance(key, int):
                items = list(names[name])
                items[key] = tensor
                names[name] = type(names[name])(items)
            else:
                if names[name] is self.names[name]:
                    names[name] = type(names[name])(dict(names[name].items()))
                names[name][key] = tensor
        places = [name for name, value in self.names.items() if isinstance(value, torch.device)]
        return {**names, **dict.fromkeys(places, torch.device("cuda"))}


MARK_THEM = 'put `import plimsoll` and `with plimsoll.trace("name", x="B,3,S,S"):` around what computes the loss'


def marked(path, arguments):
    """Runs a script up to its marked lines."""
    import types

    import torch
    import torch.cuda.amp.common

    if not hasattr(os, "fork"):
        raise Refusal("a script can be traced where processes can be copied (Linux, macOS)", "use MODULE:CALLABLE here")

    def trace(name="model", **shapes):
        frame = sys._getframe(1)

        class Stop:
            def __enter__(self):
                raise Found(Marked(frame, shapes))

            def __exit__(self, *_):
                pass

        return Stop()

    stand_in = types.ModuleType("plimsoll")
    stand_in.trace = trace
    sys.modules["plimsoll"] = stand_in
    sys.argv = [path, *arguments]
    sys.path.insert(0, os.path.dirname(path))
    there = {"is_available": lambda: True, "device_count": lambda: 1, "current_device": lambda: 0,
             "set_device": lambda *_: None, "synchronize": lambda *_: None, "empty_cache": lambda: None,
             "is_bf16_supported": lambda *_, **__: True, "get_device_capability": lambda *_: (9, 0)}
    replaced = [(torch.cuda, name, value) for name, value in there.items()]
    # What is compiled is recorded as it was before.
    replaced += [(torch.nn.Module, "cuda", lambda module, *_: module),
                 (torch, "compile", lambda model=None, **_: model if model is not None else lambda model: model),
                 (torch.cuda.amp.common, "amp_definitely_not_available", lambda: False)]
    before = [(place, name, getattr(place, name)) for place, name, _ in replaced]
    for place, name, value in replaced:
        setattr(place, name, value)
    script = types.ModuleType("__main__")
    script.__file__ = path
    # This file is `__main__` too, and goes on being needed.
    sys.modules["__plimsoll__"], sys.modules["__main__"] = sys.modules["__main__"], script
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
        code = compile(text, path, "exec")
        if "plimsoll" not in text or not re.search(r"\btrace\s*\(", text):
            raise Refusal("no lines of %s are marked" % os.path.basename(path), MARK_THEM)
        with ashore():
            exec(code, script.__dict__)
    except Found as found:
        return found.args[0].read().look()
    finally:
        for place, name, value in before:
            setattr(place, name, value)
    raise Refusal("the script ended without coming to its marked lines", MARK_THEM)
