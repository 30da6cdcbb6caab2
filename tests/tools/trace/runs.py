"""Scenarios run on fake tensors: the probe's own worker builds the model, its inputs and the training loop."""

import contextlib
import json
import sys
import tomllib

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import quantized
from card import INSTEAD, ROOT, Attention, compute_capability, put_in
from ledger import Ledger, Watch
from scripts import load

worker = load("worker")
worker.torch = torch

# What a scenario has where it says nothing; core/scenario/src/recipe.rs.
TRAINING = {
    "mode": "train", "precision": "bf16-amp", "optimizer": "adamw", "optimizer_impl": "foreach", "accumulation": 1,
    "checkpointing": "none", "attention": "sdpa", "clip_grad_norm": True, "zero_grad": "set-to-none",
    "zero_grad_at": "after-step", "keep_outputs": False,
}


def filled(scenario):
    """The scenario with every key that the worker reads."""
    scenario = json.loads(json.dumps(scenario))
    scenario["training"] = {**TRAINING, **scenario.get("training", {})}
    lora = scenario["training"].get("lora")
    if lora is not None:
        lora.setdefault("dropout", 0.0)
    given, model = scenario.setdefault("input", {}), scenario["model"]
    given.setdefault("batch", 1)
    given.setdefault("attention_mask", "none")
    if "catalog" in model:
        model["hf"] = catalogued(model["catalog"])
    return scenario


def catalogued(name):
    for path in sorted((ROOT / "data" / "models").glob("*.toml")):
        with open(path, "rb") as file:
            for row in tomllib.load(file)["model"]:
                if row["id"] == name:
                    return json.loads(row["config"])
    raise SystemExit("data/models has no %r" % name)


def warm_up():
    """Loads what nearly every scenario needs."""
    import torch._decomp
    import torch._meta_registrations
    import torch._refs  # noqa: F401
    import transformers
    import transformers.generation.utils
    import transformers.masking_utils
    import transformers.modeling_utils

    return transformers.AutoModelForCausalLM


def with_real_numbers():
    """RegNet's constructor works its widths out with tensors and asks for their numbers: for those there are real ones."""
    from torch.utils._python_dispatch import _disable_current_modes
    from torchvision.models.regnet import BlockParams

    made = BlockParams.from_init_params.__func__

    def from_init_params(cls, *args, **kwargs):
        with _disable_current_modes(), torch.device("cpu"):
            return made(cls, *args, **kwargs)

    BlockParams.from_init_params = classmethod(from_init_params)


class Card:
    """What the worker asks of a device."""

    kind, name, limit, marks, ranks = "cuda", "cuda:0", None, False, None

    def synchronize(self):
        pass

    reset_peaks = check = synchronize

    def figures(self):
        return None, None, None, None, None

    def process(self):
        return None


class Silent:
    """A channel to nobody."""

    def emit(self, *_, **__):
        pass

    note = progress = emit


# Who looks whether anything in a mask is padded (transformers' masking_utils.py).
MASKS = {
    "fast_all", "_ignore_causal_mask_sdpa", "_ignore_bidirectional_mask_sdpa", "_preprocess_mask_arguments",
}
# What others see.
ANSWERS = {
    # No sample is made of several.
    "find_packed_sequence_indices": True,
    # A padding token at either end of a sample, without a mask: none.
    "PreTrainedModel.warn_if_padding_and_no_attention_mask": False,
    # No sequence is longer than the positions were made for.
    "dynamic_rope_update": False,
    # Nothing is infinite.
    "BartEncoderLayer.forward": True,
    # The loss, which the loop reports.
    "Run.micro_batch": 0.0,
    # Where an expert's rows end: the first has them all.
    "_grouped_mm_fallback_backward": 1 << 30,
    # The norms of weights and updates.
    "_single_tensor_adafactor": 1.0,
    "_multi_tensor_adafactor": 1.0,
    # Whether a gradient overflowed, and the scale.
    "GradScaler._maybe_opt_step": 0.0,
    "GradScaler.get_scale": 1.0,
}


def asking():
    """The function outside PyTorch's plumbing that the innermost call comes from. Only names are looked at: a frame's
    variables, once asked for, would keep its tensors alive."""
    frame = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        plumbing = ("/torch/_", "/torch/utils/", "/torch/library", "/trace/", "<frozen")
        if not any(part in code.co_filename for part in plumbing):
            return code.co_qualname.split(".<locals>")[0]
        frame = frame.f_back
    return "nobody"


class Finished(Exception):
    """The last token is known."""


class Traced:
    """One scenario and what came of it."""

    def __init__(self, scenario):
        self.scenario = filled(scenario)
        self.training = self.scenario["training"]
        self.ledger = Ledger()
        self.attention = Attention(compute_capability(self.scenario.get("device", {}).get("gpu", "a100-80gb")))
        self.parameters = None
        self.tokens = None
        # Whether a decoder's mask is about what it made itself, of which nothing is padded: what the scenario says is
        # about the encoder's tokens then.
        self.own_tokens = False

    def run(self, bitsandbytes=None):
        """`bitsandbytes`: a folder with an older one."""
        config = self.scenario["model"].get("hf")
        self.quantized = worker.quantized(self.training)
        if bitsandbytes is not None:
            quantized.take(bitsandbytes)
            # The probe's bound is about what it measures.
            worker.OLDEST_BITSANDBYTES = (0, 0)
        packages = worker.import_for(self.scenario, config)
        asked = self.scenario.get("software", {}).get("bitsandbytes")
        if self.quantized and asked not in (None, packages["bitsandbytes"].__version__):
            raise SystemExit("the scenario is of bitsandbytes %s: name its folder with --bitsandbytes" % asked)
        if packages["torchvision"] is not None:
            with_real_numbers()
        watch = Watch(self.ledger, self.answer, {**INSTEAD, **(quantized.instead() if self.quantized else {})})
        self.work = watch.work
        bitsandbytes = quantized.put_in(worker, watch) if self.quantized else contextlib.nullcontext()
        with put_in(self.attention), bitsandbytes, watch.noting_leaves(), FakeTensorMode(allow_non_fake_inputs=True), watch:
            if config is not None:
                config = worker.read_config(self.scenario, dict(config), packages["transformers"])
            if self.training["mode"] == "train":
                self.train(config, packages, watch)
            else:
                self.infer(config, packages)
        self.ledger.close()
        return self

    def answer(self, tensor):
        """A number that the host asks the card for, by who asks. Nothing overflows, nothing is packed, padded is what the
        scenario says, and a generation is over when it has its tokens."""
        asker = asking()
        if asker == "StopCheck.__call__":
            return self.another_token()
        if asker == "_ignore_causal_mask_sdpa" and self.own_tokens:
            return True
        if asker in MASKS:
            return self.scenario["input"]["attention_mask"] != "padded"
        if asker in ANSWERS:
            return ANSWERS[asker]
        if tensor.device.type == "cpu" and asker.endswith("coder.forward"):
            # Whether chance leaves this layer out (`layerdrop`).
            return False
        raise NotImplementedError("%s asks the card for a number: say in ANSWERS what it would see" % asker)

    def train(self, config, packages, watch):
        """Two optimizer steps of the worker's own loop."""
        ledger = self.ledger

        class Loop(worker.Run):
            @contextlib.contextmanager
            def phase(self, name, step=None, micro_batch=None):
                ledger.begin(name, step, micro_batch)
                yield

        run = Loop({"scenario": self.scenario}, config, packages, Card(), Silent())
        self.parameters = run.counts()
        accumulators = watch.accumulators(run.parameters)
        sizes = [self.scenario["input"]["batch"]] * self.training["accumulation"]
        with ledger.naming(run.model):
            for step in range(1, 1 + self.training.get("optimizer_steps", 2)):
                run.one_step(step, sizes)
        ledger.close()
        del accumulators

    def infer(self, config, packages):
        ledger, given = self.ledger, self.scenario["input"]
        ledger.begin("load")
        model, dtype = worker.build(self.scenario, config, packages, Card())
        model.eval()
        self.count(model)
        ledger.begin("input", 1, 1)
        # The worker's batch without the labels it makes for training.
        ledger.pause()
        batch = worker.make_inputs(self.scenario, config, dtype, Card())(given["batch"])
        for name in ("labels", "targets", "return_loss"):
            batch.pop(name, None)
        ledger.resume(batch.values())
        autocast = self.autocast()
        with ledger.naming(model), torch.no_grad():
            if given.get("max_new_tokens"):
                self.generate(model, batch, given["max_new_tokens"], autocast)
            else:
                ledger.begin("forward", 1, 1)
                with autocast:
                    output = model(**batch)
                ledger.close()
                del output

    def generate(self, model, batch, tokens, autocast):
        """`model.generate`, greedy, with the worker's settings: no token stops it."""
        import transformers

        ledger = self.ledger
        settings = worker.plain_generation(model, tokens, transformers)
        # Under adapters peft's model hands the call on.
        inner = model.get_base_model() if hasattr(model, "get_base_model") else model
        going_on, asked = inner._has_unfinished_sequences, 0

        def has_unfinished_sequences(*args, **kwargs):
            nonlocal asked
            asked += 1
            if asked == 2:
                ledger.begin("decode", 1)
            return going_on(*args, **kwargs)

        inner._has_unfinished_sequences = has_unfinished_sequences
        ledger.begin("prefill", 1)
        self.tokens, self.own_tokens = tokens, inner.config.is_encoder_decoder
        try:
            with autocast:
                model.generate(**batch, generation_config=settings)
        except Finished:
            pass

    def another_token(self):
        """`unfinished_sequences.max() == 0`, asked once a token. The run ends where the last one is known."""
        self.tokens -= 1
        if self.tokens == 0:
            self.ledger.close()
            raise Finished
        return False

    def autocast(self):
        named = {"fp16-amp": torch.float16, "bf16-amp": torch.bfloat16}.get(self.training["precision"])
        return torch.autocast("cuda", dtype=named) if named else contextlib.nullcontext()

    def count(self, model):
        self.parameters = {
            "total": sum(worker.numbers_in(p) for p in model.parameters()),
            "trainable": sum(p.numel() for p in model.parameters() if p.requires_grad),
        }
