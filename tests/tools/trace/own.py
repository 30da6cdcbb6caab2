"""One of `hulls.py`'s rows as it is, on the card there is: the model is built and moved, every number is one, nothing is fake.

`real.py` runs rows that have a `trace` by this; the recording that they are laid beside is the one `hulls.py` makes.
"""

import random

import hulls
import torch

worker = hulls.worker
# Tokens, steps of noise and classes that every model here knows: neither padding nor out of range.
TOKENS, CLASSES = (3, 100), (0, 2)


def input_of(name, kind, shape):
    """Numbers that a loss can be had of."""
    if kind.is_floating_point:
        return torch.randn(shape, dtype=kind, device="cuda")
    low, high = CLASSES if name == "y" or kind == torch.bool else TOKENS
    return torch.randint(low, high, shape, dtype=kind, device="cuda")


class Own(worker.Run):
    """The probe's loop around a model of any kind, on a card."""

    def __init__(self, row, training, device, channel):
        trace = row["trace"]
        scenario = {"training": training, "input": {"batch": row["batch"]}, "model": {"task": None}}
        self.begin({"scenario": scenario}, device, channel)
        half = hulls.HALF.get(training["precision"])
        shapes = list(hulls.shapes(row, half))
        self.make_batch = lambda _: {name: input_of(name, kind, shape) for name, kind, shape in shapes}
        code = compile(trace["loss"], "the loss", "eval")
        with self.phase("load"):
            self.model = hulls.varied(trace, training, half, "cpu")
            self.model.to("cuda")
            if training["checkpointing"] == "full":
                hulls.checkpoint(self.model, training.get("checkpoint_modules"))
            self.average = worker.make_average(self.model) if training.get("ema") else None
            self.parameters = [p for p in self.model.parameters() if p.requires_grad]
            import transformers

            packages = {"transformers": transformers}
            self.optimizers = worker.make_optimizers(training, self.model, self.parameters, packages, device, channel)
        self.scaler = worker.make_scaler("cuda") if training["precision"] == "fp16-amp" else None
        self.detached = trace.get("detach_loss", True)

        def compute_loss(model, batch, autocast):
            with autocast:
                names = {"torch": torch, "nn": torch.nn, "F": torch.nn.functional, "model": model, "batch": batch}
                return None, eval(code, {**hulls.own_names(trace), **names, **batch})

        self.compute_loss = compute_loss

    def leave(self):
        if self.where["phase"] == "backward" and self.detached:
            self.loss = self.loss.detach()
        super().leave()


def measure(row, channel):
    """What the worker's loop makes of a row."""
    worker.torch = torch
    random.seed(0)
    torch.manual_seed(0)
    training = {**hulls.runs.TRAINING, **row["training"]}
    ran = Own(row, training, worker.DEVICES["cuda"](0), channel)
    ran.run_attempt(row["batch"], training["accumulation"], row["steps"], None)
    return ran
