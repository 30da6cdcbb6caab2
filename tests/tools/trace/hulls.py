"""Any model's training step, traced directly, beside what a recording of it comes out as.

    python tests/tools/trace/hulls.py --program target/debug/plimsoll --hulls FOLDER [--agreeing OUT] LOT.jsonl [ID...]

A line of the lot says how the model is recorded (`trace`: `model`, `input`, `loss`, `axis`, `precision`, as `plimsoll trace`
takes them) and what is asked of it (`batch`, `axes`, `training`). Each model is recorded once into the folder, and its
row then traced here at the sizes that are asked for, by the program that traced the corpus (`ledger.py`, `card.py`) and the
probe's own loop. It says which phases differ; `--agreeing` writes the rows that do not, as `tests/corpus/hulls.jsonl` has them.
"""

import argparse
import contextlib
import fnmatch
import hashlib
import importlib
import json
import math
import multiprocessing
import pathlib
import random
import subprocess
import sys
import time
import traceback
import weakref

import numpy
import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, unset_fake_temporarily
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_leaves

import card
import runs
from card import Attention, compute_capability, put_in
from ledger import Ledger, Watch

worker = runs.worker
HALF = {"fp16": torch.float16, "bf16": torch.bfloat16}
# Nobody reads that many of the host's numbers one by one.
MOST_ON_HOST = 4_000_000


class AnyWatch(Watch):
    """For models of all kinds: the host's own numbers are computed, and an operator in place on a view moves its base."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func is not torch.ops.prim.device.default and self.on_host(args, kwargs):
            with unset_fake_temporarily():
                out = func(*args, **kwargs)
                # Chance leaves nothing out.
                return out.fill_(1 - 2**-24) if func is torch.ops.aten.rand.default and out.numel() == 1 else out
        return super().__torch_dispatch__(func, types, args, kwargs)

    def on_host(self, args, kwargs):
        """In a frame that is gone when the operator runs: whoever holds a gradient is counted then."""
        place = kwargs.get("device")
        leaves = [t for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
        host = (place is None or torch.device(place).type == "cpu") and not any(isinstance(t, FakeTensor) for t in leaves)
        return host and (bool(leaves) or not self.large(args))

    def device(self, tensor):
        return super().device(tensor) if isinstance(tensor, FakeTensor) else tensor.device

    @staticmethod
    def large(args):
        sizes = args[0] if args and isinstance(args[0], (list, tuple)) else ()
        return math.prod(n for n in sizes if isinstance(n, int)) > MOST_ON_HOST

    said = ()

    def seen(self, func, out, args, kwargs):
        op = func._schema.name.split("::")[-1]
        if op in ("all", "any") and out.numel() == 1:
            # All numbers are finite, all masks whole, and nothing is otherwise.
            self.said = [known for known in self.said if known[0]() is not None] + [(weakref.ref(out), op == "all")]
        if func is torch.ops.aten._scaled_dot_product_efficient_attention.default:
            # The state of its random numbers lies on the host (before 2.14, and with dropout).
            for state in out[2:]:
                self.ledger.lies_on_host(state)
        out = super().seen(func, out, args, kwargs)
        if self.rebased:
            # `CopySlices`: what is written to through a view has its base rebased.
            views = [made() for made in self.made]
            self.made = list(self.made) + [weakref.ref(t._base) for t in views if t is not None and t._is_view()]
            del views
        return out


def safe_softmax(watch, func, x, dim, dtype=None):
    """With its rows of zeros written into it."""
    with watch:
        return card.recorder.safe_softmax(x, dim, dtype)


def add(watch, func, left, right, *, alpha=1):
    """Attention that is written out adds its mask in place, but to a tensor of a Python class."""
    if Attention.written_out:
        return torch.ops.aten.alias.default(left)
    return card.add(watch, func, left, right, alpha=alpha)


@contextlib.contextmanager
def adding_biases():
    """In place, as C++ does but to tensors of a Python class."""
    library = torch.library.Library("aten", "IMPL")
    library.impl("linear", card.recorder.linear, "CompositeImplicitAutograd", allow_override=True)
    try:
        yield
    finally:
        library._destroy()


# What other rows of the corpus have as it is for tensors of a Python class.
AS_WRITTEN = {torch.ops.aten._safe_softmax.default: safe_softmax, torch.ops.aten.add.Tensor: add}


def answer(tensor):
    """A number that the host asks the card for: nothing is padded, packed, infinite, or left out."""
    asker = runs.asking()
    if asker in runs.MASKS:
        return True
    if asker in runs.ANSWERS:
        return runs.ANSWERS[asker]
    return False if tensor.dtype == torch.bool else 0.0 if tensor.dtype.is_floating_point else 1


def reached(module):
    """What a module has. What it would have to load for that may not be there."""
    for key in dir(module):
        with contextlib.suppress(Exception):
            yield key, getattr(module, key)


def built(name, dtype, where="meta"):
    """What `plimsoll trace NAME` records, on no device, or where it is wanted."""
    module, _, what = name.partition(":")
    if module.endswith(".py"):
        spec = importlib.util.spec_from_file_location(pathlib.Path(module).stem, module)
        found = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = found
        spec.loader.exec_module(found)
    else:
        found = importlib.import_module(module)
    names = {**dict(reached(found)), "torch": torch, "nn": torch.nn}
    if module == "transformers":
        names = {**names, **{key: getattr(found, key) for key in what.replace("(", " ").split() if hasattr(found, key)}}

    def make():
        made = eval(what, names)
        return made if isinstance(made, torch.nn.Module) else made()

    try:
        with torch.device(where):
            model = make()
    except Exception:
        model = make()
    return model.to(dtype).train() if dtype is not None else model.train()


def varied(trace, training, half, where="meta"):
    """The model as this recipe has it, the way people write that: attention by the configuration, adapters by peft."""
    name = trace["model"]
    if training.get("attention", "sdpa") != "sdpa":
        name = name.replace("Config(", "Config(attn_implementation=%r," % training["attention"], 1)
    base = training.get("base_dtype")
    model = built(name, getattr(torch, base) if base else half, where)
    lora = training.get("lora")
    if lora is None:
        return model
    import peft

    targets = lora.get("targets", "all-linear")
    options = peft.LoraConfig(r=lora["rank"], lora_alpha=2 * lora["rank"], lora_dropout=lora.get("dropout", 0.0), target_modules=targets)
    # Where its layers are: some models are on the host and on no device at once.
    with next(part.weight.device for part in model.modules() if isinstance(part, torch.nn.Linear)):
        return peft.get_peft_model(model, options).train()


def checkpoint(model, patterns):
    """Turns on the model's own switch, or has the modules that are named checkpointed."""
    import torch.utils.checkpoint as place

    plain = place._checkpoint_without_reentrant_generator
    # The host's random state is no business of the card's.
    place._checkpoint_without_reentrant_generator = lambda fn, preserve, *rest, **more: plain(fn, False, *rest, **more)
    if patterns is None:
        if not switched(model):
            found = list(blocks(model))
            if not found:
                raise SystemExit("nothing in the model repeats")
            for block in found:
                block.forward = within(block.forward)
        return
    found = 0
    for name, module in model.named_modules():
        if any(fnmatch.fnmatchcase(name, pattern) and name.count(".") == pattern.count(".") for pattern in patterns):
            found += 1
            module.forward = within(module.forward)
    if not found:
        raise SystemExit("no module is called %s" % patterns)


SWITCHES = {
    "gradient_checkpointing_enable": {"gradient_checkpointing_kwargs": {"use_reentrant": False}},
    "enable_gradient_checkpointing": {},
    "set_grad_checkpointing": {},
}


def switched(module):
    """Turns on what switches of their own the outermost modules have that take to it."""
    for name in SWITCHES:
        if hasattr(module, name):
            try:
                getattr(module, name)(**SWITCHES[name])
                return True
            except Exception:
                continue
    return sum([switched(part) for part in module.children()]) > 0


def blocks(module):
    """Without a switch: what repeats in a list, the outermost, as docs/hull.md has it."""
    lists = (torch.nn.Sequential, torch.nn.ModuleList)
    parts = list(module.children())
    kinds = [type(part) for part in parts]
    for part in parts:
        repeats = type(module) in lists and kinds.count(type(part)) > 1
        if repeats and type(part) not in (*lists, torch.nn.ModuleDict) and any(True for _ in part.children()):
            yield part
        else:
            yield from blocks(part)


def within(forward):
    import torch.utils.checkpoint as place

    return lambda *args, **kwargs: place.checkpoint(forward, *args, use_reentrant=False, **kwargs)


def on_card(model):
    """`model.to("cuda")` in its order, tied parameters once."""
    known = {}

    def moved(tensor):
        return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="cuda")

    def move(module):
        for child in module.children():
            move(child)
        for table in (module._parameters, module._buffers):
            for name, tensor in table.items():
                if tensor is None:
                    continue
                if id(tensor) not in known:
                    made = moved(tensor)
                    if table is module._parameters:
                        made = torch.nn.Parameter(made, requires_grad=tensor.requires_grad)
                    known[id(tensor)] = tensor, made
                table[name] = known[id(tensor)][1]

    with torch.no_grad():
        move(model)


def shapes(row, half):
    """Name, type and lengths of every input."""
    axes = {"B": row["batch"], **row["axes"]}
    for given in row["trace"]["input"]:
        name, _, rest = given.partition("=")
        dtype, _, shape = rest[:-1].partition("[")
        kind = half if dtype == "float32" and half is not None else getattr(torch, dtype)
        yield name, kind, [int(eval(n, {}, dict(axes))) for n in shape.split(",") if n.strip()]


def own_names(trace):
    """A file's own functions, as of a loss."""
    file = trace["model"].partition(":")[0]
    return vars(sys.modules[pathlib.Path(file).stem]) if file.endswith(".py") else {}


class Loop(worker.Run):
    """The probe's loop around a model of any kind."""

    def __init__(self, row, ledger):
        self.ledger, trace = ledger, row["trace"]
        training = {**runs.TRAINING, **row["training"]}
        self.begin({"scenario": {"training": training, "input": {"batch": row["batch"]}}}, runs.Card(), runs.Silent())
        half = HALF.get(training["precision"])
        inputs = list(shapes(row, half))
        self.make_batch = lambda _: {n: torch.empty(shape, dtype=kind, device="cuda") for n, kind, shape in inputs}
        code = compile(trace["loss"], "the loss", "eval")
        ledger.begin("load")
        with unset_fake_temporarily(), _disable_current_modes():
            self.model = varied(trace, training, half)
        on_card(self.model)
        if training["checkpointing"] == "full":
            checkpoint(self.model, training.get("checkpoint_modules"))
        self.average = worker.make_average(self.model) if training.get("ema") else None
        self.parameters = [p for p in self.model.parameters() if p.requires_grad]
        import transformers

        packages = {"transformers": transformers}
        self.optimizers = worker.make_optimizers(training, self.model, self.parameters, packages, runs.Card(), None)
        self.scaler = worker.make_scaler("cuda") if training["precision"] == "fp16-amp" else None
        self.detached = trace.get("detach_loss", True)
        own = own_names(trace)

        def compute_loss(model, batch, autocast):
            with autocast:
                names = {"torch": torch, "nn": torch.nn, "F": torch.nn.functional, "model": model, "batch": batch}
                return None, eval(code, {**own, **names, **batch})

        self.compute_loss = compute_loss

    @contextlib.contextmanager
    def phase(self, name, step=None, micro_batch=None):
        self.ledger.begin(name, step, micro_batch)
        if name == "forward":
            torch.default_generator.manual_seed(0)
            random.seed(0)
            numpy.random.seed(0)
        yield
        if name == "backward" and self.detached:
            self.loss = self.loss.detach()


def traced(row, results):
    """Two steps, in a process of its own."""
    try:
        ledger = Ledger()
        watch = AnyWatch(ledger, None, {**card.INSTEAD, **AS_WRITTEN})
        watch.answer = lambda tensor: next((true for made, true in watch.said if made() is tensor), None) or answer(tensor)
        attention = Attention(compute_capability(row.get("gpu", "h200")))
        with put_in(attention), adding_biases(), watch.noting_leaves(), FakeTensorMode(allow_non_fake_inputs=True), watch:
            loop = Loop(row, ledger)
            accumulators = watch.accumulators(loop.parameters)
            sizes = [row["batch"]] * loop.training["accumulation"]
            with ledger.naming(loop.model):
                for step in (1, 2):
                    loop.one_step(step, sizes)
            ledger.close()
            del accumulators
        phases = [[p["name"], p["peak_requested"], p["end_requested"]] for p in ledger.phases]
        results.send((ledger.peak, phases))
    except BaseException as error:
        traceback.print_exc()
        results.send(("%s: %s" % (type(error).__name__, error), None))


def direct(row, limit):
    ours, theirs = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=traced, args=(row, theirs))
    process.start()
    theirs.close()
    try:
        return ours.recv() if ours.poll(limit) else ("it took more than %s s" % limit, None)
    except EOFError:
        return "it ended with %s" % process.exitcode, None
    finally:
        process.terminate()
        process.join()


def recorded(row, program, folder, limit):
    """The row's hull, made if it is not there; or why there is none."""
    trace = row["trace"]
    path = folder / row["hull"]
    refusal = path.with_suffix(".refused")
    if not path.exists() and not refusal.exists():
        asked = [program, "trace", trace["model"], "--loss", trace["loss"], "--precision", trace["precision"]]
        asked += ["--gpu", row.get("gpu", "h200"), "--python", sys.executable, "-o", str(path)]
        asked += [word for given in trace["input"] for word in ("--input", given)]
        asked += [word for given in trace.get("axis", []) for word in ("--axis", given)]
        asked += [word for given in trace.get("also", []) for word in ("--also", given)]
        asked += ["--detach-loss"] if trace.get("detach_loss", True) else []
        try:
            with open(path.with_suffix(".log"), "w", encoding="utf-8") as log:
                code = subprocess.run(asked, stdout=log, stderr=subprocess.STDOUT, timeout=limit).returncode
            said = path.with_suffix(".log").read_text()
        except subprocess.TimeoutExpired:
            code, said = 1, "it took more than %s s" % limit
        if code:
            refusal.write_text(said[-3000:])
    return path if path.exists() else None


def estimated(row, program, path):
    scenario = {
        "model": {"hull": str(path.resolve()), **row["axes"]},
        "input": {"batch": row["batch"]},
        "training": row["training"],
        "device": {"gpu": row.get("gpu", "h200"), "workspaces": "parallel" in row},
        **({"parallel": row["parallel"]} if "parallel" in row else {}),
    }
    asked = path.with_name(row["id"] + ".json")
    asked.write_text(json.dumps(scenario))
    done = subprocess.run([program, "estimate", "--format", "json", str(asked)], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True)
    if done.returncode > 1:
        return " ".join(done.stderr.split()), None
    answered = json.loads(done.stdout)
    phases = [[p["name"], p["peak_requested"], p["end_requested"]] for p in answered["phases"]]
    return answered["peak"]["requested"], phases


def main():
    parser = argparse.ArgumentParser(prog="hulls", description=__doc__.splitlines()[0])
    parser.add_argument("--program", required=True, help="a built plimsoll")
    parser.add_argument("--hulls", required=True, type=pathlib.Path, help="a folder for the recordings")
    parser.add_argument("--agreeing", help="where the rows that agree are written")
    parser.add_argument("--limit", type=float, help="seconds that a recording, or a trace, may take")
    parser.add_argument("lot", help="rows, one a line")
    parser.add_argument("ids", nargs="*")
    options = parser.parse_args()
    runs.warm_up()
    options.hulls.mkdir(parents=True, exist_ok=True)
    counted = {"exact": 0, "refused": 0, "differs": 0, "untraced": 0}
    for row in map(json.loads, open(options.lot, encoding="utf-8")):
        if options.ids and row["id"] not in options.ids:
            continue
        begun = time.monotonic()
        came, said = compared(row, options)
        counted[came] += 1
        print("%-40s %-8s %s %.0f s" % (row["id"], came, said, time.monotonic() - begun), flush=True)
    print(", ".join("%s %d" % pair for pair in counted.items()))
    return 1 if counted["differs"] else 0


def compared(row, options):
    path = recorded(row, options.program, options.hulls, options.limit)
    if path is None:
        text = (options.hulls / row["hull"]).with_suffix(".refused").read_text()
        return "refused", " | ".join(text.strip().splitlines()[-2:])[:400]
    peak, phases = estimated(row, options.program, path)
    if phases is None:
        return "refused", peak[:300]
    truth, wanted = direct(row, options.limit)
    if wanted is None:
        return "untraced", truth[:300]
    if [p[0] for p in phases] != [p[0] for p in wanted]:
        return "differs", "phases %s, traced %s" % ([p[0] for p in phases], [p[0] for p in wanted])
    off = [(i, mine, theirs) for i, (mine, theirs) in enumerate(zip(phases, wanted)) if mine != theirs]
    if off or peak != truth:
        first = "; ".join("%s(%d) %d/%d, traced %d/%d" % (m[0], i, m[1], m[2], t[1], t[2]) for i, m, t in off[:3])
        return "differs", "peak %d, traced %d (%+.4f %%); %d of %d phases off: %s" % (
            peak, truth, 100 * (peak - truth) / truth, len(off), len(phases), first)
    if options.agreeing:
        told = json.dumps([row["trace"], row["batch"], row["axes"], row["training"]])
        kept = {
            "id": hashlib.sha256(told.encode()).hexdigest()[:10], "hull": row["hull"], "source": row["trace"]["model"],
            "torch": torch.__version__.split("+")[0], "batch": row["batch"], "axes": row["axes"],
            "training": row["training"], **({"gpu": row["gpu"]} if row.get("gpu", "h200") != "h200" else {}),
            "peak_requested": truth, "phases": wanted,
        }
        with open(options.agreeing, "a", encoding="utf-8") as file:
            file.write(json.dumps(kept, separators=(",", ":")) + "\n")
    return "exact", "%d" % truth


if __name__ == "__main__":
    sys.exit(main())
