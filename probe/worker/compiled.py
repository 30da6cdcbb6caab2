# ---------------------------------------------------------------------------------------------------------------------
# torch.compile


def compile_in_place(model, training):
    """Has what the loop calls compiled, as `Module.compile` does: the model keeps its name and its attributes."""
    # A loss that is computed outside calls the model without its head.
    called = model if training.get("loss_impl", "full") == "full" else body_and_head(model)[0]
    if not hasattr(called, "compile"):
        message = "this PyTorch (%s) cannot compile a module in place" % torch.__version__
        raise Stop("unsupported", message, "upgrade torch, or leave compile out")
    called.compile()


class Patience:
    """Says that the worker is there while a phase goes on in which something may be compiled. One that takes longer than a model
    of any size has itself compiled is taken for dead."""

    EVERY, LONGEST = 5.0, 3600.0

    def __init__(self, channel):
        self.channel, self.over = channel, None

    def __enter__(self):
        self.over = threading.Event()
        threading.Thread(target=self.tell, args=(self.over,), name="patience", daemon=True).start()

    def __exit__(self, *_):
        self.over.set()

    def tell(self, over):
        begun = time.monotonic()
        while not over.wait(self.EVERY) and time.monotonic() - begun < self.LONGEST:
            self.channel.progress("torch.compile may be at work, %.0f s" % (time.monotonic() - begun))
