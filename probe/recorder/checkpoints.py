# ---------------------------------------------------------------------------------------------------------------------
# Checkpoints


class Checkpoints:
    """What is checkpointed in a model: what its library's own switch does, or else its blocks that repeat.

    `mark` has every such stretch run as it is, between two marks; `real` has PyTorch checkpoint it.
    """

    # What libraries call their switch, and what they are given.
    SWITCHES = (
        ("gradient_checkpointing_enable", {"gradient_checkpointing_kwargs": {"use_reentrant": False}}),
        ("enable_gradient_checkpointing", {}),
        ("set_grad_checkpointing", {}),
    )

    def __init__(self, model, tape, real):
        self.tape, self.real = tape, real
        self.regions = 0
        self.switched = self.switch(model)
        self.blocks = set() if self.switched else {id(block) for block in repeated(model)}
        self.within = False

    def switch(self, module):
        """Turns on whatever switches there are, the outermost ones."""
        for name, given in self.SWITCHES:
            turn_on = getattr(module, name, None)
            if callable(turn_on):
                try:
                    turn_on(**given)
                    return True
                except Exception:
                    # "... does not support gradient checkpointing", each in its own words.
                    continue
        return any([self.switch(child) for child in module.children()])

    def call(self, call, module, args, kwargs):
        """A module's call; that of a block is a stretch of its own."""
        if id(module) not in self.blocks or self.within:
            return call(module, *args, **kwargs)
        self.within = True
        try:
            if self.real:
                from torch.utils.checkpoint import checkpoint

                self.regions += 1
                return checkpoint(call, module, *args, use_reentrant=False, preserve_rng_state=False, **kwargs)
            with self.stretch(args, kwargs):
                return call(module, *args, **kwargs)
        finally:
            self.within = False

    @contextlib.contextmanager
    def stretch(self, *given):
        self.regions += 1
        self.tape.emit("c")
        self.tape.given(*given)
        del given
        try:
            yield
        finally:
            self.tape.emit("f")

    @contextlib.contextmanager
    def watching(self):
        """Has PyTorch's checkpointing do what is wanted of it."""
        import torch.utils.checkpoint as place

        name = "_checkpoint_without_reentrant_generator"
        plain = getattr(place, name, None)
        if not self.switched or plain is None:
            yield
            return

        def real(function, preserve_rng_state, *rest, **more):
            # The host's random state is no business of the card's.
            self.regions += 1
            return plain(function, False, *rest, **more)

        def marked(function, preserve_rng_state, context, check, debug, *args, **kwargs):
            if early_stop and args:
                args = args[1:]
            bound = [getattr(function, part, None) for part in ("args", "keywords")]
            with self.stretch(args, kwargs, bound):
                del bound
                yield

        early_stop = "early_stop" in plain.__code__.co_varnames[:plain.__code__.co_argcount]
        setattr(place, name, real if self.real else marked)
        try:
            yield
        finally:
            setattr(place, name, plain)
