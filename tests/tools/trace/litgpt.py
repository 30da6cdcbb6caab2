"""Traces published finetuning runs of litgpt with litgpt's own model code.

    python tests/tools/trace/litgpt.py CHECKOUT [ID...] [--bitsandbytes FOLDER] [--peak]

CHECKOUT is a clone of Lightning-AI/litgpt with its history. Rows of `tests/corpus/published.jsonl` that say which code they
ran (`litgpt`) are run: model, adapters and loss are what stands at that commit, and around them `finetune/lora.py` and
Lightning's precision plugins are followed by hand (`Precision`, `quantized_linear`, `Paged`). With `--peak` it tells what
stood on the card at the peak.
"""

import argparse
import collections
import contextlib
import importlib
import importlib.abc
import importlib.machinery
import io
import json
import multiprocessing
import pathlib
import re
import subprocess
import sys
import tarfile
import tempfile
import types

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import quantized
import runs
from card import INSTEAD, ROOT, Attention, compute_capability, put_in
from ledger import Ledger, Watch

ROWS = ROOT / "tests" / "corpus" / "published.jsonl"
# cuBLAS takes it once from PyTorch's allocator: `:4096:2:16:8` (`parseChosenWorkspaceSize` in CUDABlas.cpp).
WORKSPACE = (4096 * 2 + 16 * 8) * 1024
HALF = {"bf16": torch.bfloat16, "fp16": torch.float16}
MIXED = {"bf16-amp": torch.bfloat16, "fp16-amp": torch.float16}
# What litgpt imports for its training script and its data, none of which is run.
ABSENT = ("lightning", "lightning_utilities", "jsonargparse", "torchmetrics", "litdata", "litserve", "sentencepiece")


class Nothing(type):
    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything


class Anything(metaclass=Nothing):
    def __init__(self, *_, **__):
        pass

    def __call__(self, *given, **_):
        return given[0] if given and callable(given[0]) else Anything


class Stand(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds modules with anything in them for those that are absent."""

    def find_spec(self, name, path, target=None):
        if name.split(".")[0] in ABSENT:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        module = types.ModuleType(spec.name)
        module.__path__ = []
        module.__getattr__ = lambda name: getattr(Anything, name)
        return module

    def exec_module(self, module):
        pass


def unpack(checkout, commit, folder):
    """Has that commit's modules found; returns the package's name, which was another before March 2024."""
    archive = subprocess.run(["git", "-C", checkout, "archive", commit], check=True, capture_output=True).stdout
    tarfile.open(fileobj=io.BytesIO(archive)).extractall(folder, filter="data")
    sys.path.insert(0, folder)
    sys.meta_path.insert(0, Stand())
    return "litgpt" if (pathlib.Path(folder) / "litgpt").is_dir() else "lit_gpt"


class Precision:
    """`fabric.setup_module` around a model: what HalfPrecision, MixedPrecision and BitsandbytesPrecision do about its
    forward. All three make what it returns float32 (`convert_output`)."""

    def __init__(self, model, named):
        self.model, self.half, self.mixed = model, HALF.get(named), MIXED.get(named)

    def __call__(self, *given, **named):
        with torch.autocast("cuda", dtype=self.mixed) if self.mixed else default(self.half):
            out = self.model(*given, **named)
        return [chunk.float() for chunk in out] if isinstance(out, list) else out.float()


@contextlib.contextmanager
def default(dtype):
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype or before)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def quantized_linear(bitsandbytes, double, dtype):
    """`_Linear4bit` of Lightning's `plugins/precision/bitsandbytes.py`, which stands for *every* linear while a model is
    built, the head included, and quantizes float16: what is unpacked is float16 too."""

    class Linear(bitsandbytes.nn.Linear4bit):
        def __init__(self, *given, **named):
            super().__init__(*given, quant_type="nf4", compress_statistics=double, **named)
            self.compute_dtype, self.compute_type_is_set = dtype, False
            packed, state = bitsandbytes.functional.quantize_4bit(
                self.weight.data.to(torch.half), blocksize=64, quant_type="nf4", compress_statistics=double
            )
            self.weight = quantized.Params4bit(packed, quant_state=state, module=self, bnb_quantized=True)

    return Linear


class Paged:
    """`bitsandbytes.optim.PagedAdamW`: states of 100,000 numbers and more lie in memory that is not PyTorch's
    (`get_state_buffer` in optim/optimizer.py)."""

    def __init__(self, parameters):
        self.parameters, self.states = parameters, []

    def step(self):
        if not self.states:
            small = [p for p in self.parameters if p.numel() < 1e5]
            self.states = [torch.zeros_like(p, dtype=torch.float32) for p in small for _ in range(2)]

    def zero_grad(self):
        for parameter in self.parameters:
            parameter.grad = None


class Finetuning:
    """The card's part of `finetune/lora.py`, on samples as long as the longest."""

    def __init__(self, row, package, bitsandbytes):
        self.row, self.package = row, package
        # Names of one function's loop, which keep what a micro-batch made until the next one's takes its place.
        self.logits = self.loss = None
        self.scenario = row["scenario"]
        self.training, self.given = self.scenario["training"], self.scenario["input"]
        self.ledger = Ledger()
        self.attention = Attention(compute_capability(self.scenario["device"]["gpu"]))
        self.four = "quantization" in self.training
        asked = self.scenario.get("software", {}).get("bitsandbytes")
        if self.four and asked is not None:
            quantized.take("%s/%s" % (bitsandbytes, asked))

    def run(self):
        watch = Watch(self.ledger, lambda _: 1.0, {**INSTEAD, **(quantized.instead() if self.four else {})})
        with contextlib.ExitStack() as stack:
            stack.enter_context(put_in(self.attention))
            if self.four:
                stack.enter_context(quantized.put_in(types.SimpleNamespace(build=None, quantized_parameter=None), watch))
            stack.enter_context(FakeTensorMode(allow_non_fake_inputs=True))
            stack.enter_context(watch)
            self.train(watch)
        return self.ledger

    def build(self):
        lora = importlib.import_module(self.package + ".lora")
        code, adapters = self.row["litgpt"], self.training["lora"]
        places = ("query", "key", "value", "projection", "mlp", "head")
        options = {"r": adapters["rank"], "alpha": 16, "dropout": adapters["dropout"]}
        options.update({place: place in code["lora"] for place in places})
        if self.package == "litgpt":
            options = {"lora_" + name: value for name, value in options.items()}
        else:
            options = {("to_" + name if name in places else name): value for name, value in options.items()}
        model = importlib.import_module(self.package + ".model")
        # The publishers list what was installed, and flash-attn is not among it.
        model.FlashAttention2Available = False
        linear, dtype = torch.nn.Linear, HALF.get(self.training["precision"])
        if self.four:
            import bitsandbytes

            torch.nn.Linear = quantized_linear(bitsandbytes, self.training["quantization"] == "nf4-double", dtype)
        try:
            with default(dtype), torch.device("cuda"):
                model = lora.GPT(lora.Config.from_name(code["config"], **options))
        finally:
            torch.nn.Linear = linear
        lora.mark_only_lora_as_trainable(model)
        # Makes the rotary tables anew, in float32.
        model.max_seq_length = self.given["seq"]
        return model

    def train(self, watch):
        ledger = self.ledger
        ledger.begin("load")
        ledger.pause()
        model = self.build()
        ledger.resume(quantized.loaded(model))
        module = Precision(model, self.training["precision"])
        parameters = [p for p in model.parameters() if p.requires_grad]
        optimizer = Paged(parameters) if self.four else torch.optim.AdamW(parameters)
        accumulators = watch.accumulators(parameters)
        loss_of = importlib.import_module(self.package + ".utils").chunked_cross_entropy
        with ledger.naming(model):
            ledger.begin("validate")
            self.validate(model, module, loss_of)
            # In 2023 the longest sample was the first, and the only one of that length.
            micro_batches = 1 if self.package == "lit_gpt" else 2
            for step in range(1, micro_batches + 1):
                for micro in range(1, micro_batches + 1):
                    self.micro_batch(module, loss_of, step, micro)
                ledger.begin("optimizer_step", step)
                optimizer.step()
                ledger.begin("zero_grad", step)
                optimizer.zero_grad()
        ledger.close()
        del accumulators

    def batch(self):
        shape = self.given["batch"], self.given["seq"]
        return [torch.zeros(shape, dtype=torch.int64, device="cuda") for _ in range(2)]

    @torch.no_grad()
    def validate(self, model, module, loss_of):
        model.eval()
        inputs, targets = self.batch()
        logits = module(inputs)
        loss_of(logits[..., :-1, :], targets[..., 1:], chunk_size=0)
        model.train()

    def micro_batch(self, module, loss_of, step, micro):
        ledger = self.ledger
        ledger.begin("input", step, micro)
        inputs, targets = self.batch()
        ledger.begin("forward", step, micro)
        self.logits = module(inputs, lm_head_chunk_size=128)
        self.logits[-1] = self.logits[-1][..., :-1, :]
        ledger.begin("loss", step, micro)
        self.loss = loss_of(self.logits, targets[..., 1:])
        ledger.begin("backward", step, micro)
        (self.loss / 2).backward()


def at_the_peak(events):
    """What stood there then, like with like, largest first."""
    now = most = where = 0
    sizes = {}
    for number, event in enumerate(events):
        if event[0] == "a":
            sizes[event[1]] = event[2]
            now += event[2]
            if now > most:
                most, where = now, number
        else:
            now -= sizes.get(event[1], 0)
    live = {}
    for event in events[: where + 1]:
        if event[0] == "a":
            live[event[1]] = event
        else:
            live.pop(event[1], None)
    kinds = collections.Counter()
    counts = collections.Counter()
    for _, _, size, phase, op, module, shape, dtype in live.values():
        kind = "%s %s %s %s %s" % (phase, op, re.sub(r"\.\d+\.", ".*.", module), "x".join(map(str, shape)), dtype)
        kinds[kind] += size
        counts[kind] += 1
    yield "in %s, by %s" % (events[where][3], events[where][4])
    for kind, size in kinds.most_common(25):
        yield "%9.1f MB in %d: %s" % (size / 1e6, counts[kind], kind)


def trace(row, options, results):
    with tempfile.TemporaryDirectory() as folder:
        package = unpack(options.checkout, row["litgpt"]["commit"], folder)
        ledger = Finetuning(row, package, options.bitsandbytes).run()
        results.send((ledger.peak + WORKSPACE, list(at_the_peak(ledger.events)) if options.peak else []))


def main():
    parser = argparse.ArgumentParser(prog="litgpt.py", description=__doc__.splitlines()[0])
    parser.add_argument("checkout", help="a clone of Lightning-AI/litgpt, with its history")
    parser.add_argument("ids", nargs="*", help="rows; without any, all that say which code they ran")
    parser.add_argument("--bitsandbytes", metavar="FOLDER", help="where older ones lie unpacked, by version")
    parser.add_argument("--peak", action="store_true", help="tell what stood on the card at the peak")
    options = parser.parse_args()
    runs.warm_up()
    wrong = 0
    with open(ROWS, encoding="utf-8") as file:
        rows = [row for row in map(json.loads, file) if "litgpt" in row and (not options.ids or row["id"] in options.ids)]
    for row in rows:
        ours, theirs = multiprocessing.Pipe(duplex=False)
        process = multiprocessing.get_context("fork").Process(target=trace, args=(row, options, theirs))
        process.start()
        theirs.close()
        try:
            traced, peak = ours.recv()
        except EOFError:
            process.join()
            print("%s failed" % row["id"])
            wrong += 1
            continue
        process.join()
        agrees = traced == row["litgpt"].get("traced", traced)
        wrong += not agrees
        print("%s traced %d, published %d, %+.2f %%%s" % (
            row["id"], traced, row["bytes"], (traced / row["bytes"] - 1) * 100, "" if agrees else "; the row says otherwise"
        ), flush=True)
        for line in peak:
            print("    " + line)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
