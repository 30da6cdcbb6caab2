"""The first rank of several of any model, on a hollow card, beside what a recording of it comes out as.

    plimsoll rehearse --gpu h200 -- python tests/tools/trace/hull_fleet.py ROWS.jsonl [ID...] > traced.jsonl
    python tests/tools/trace/hull_fleet.py --program target/debug/plimsoll --hulls FOLDER [--agreeing OUT] traced.jsonl

A row is one of `hulls.py`'s with `parallel`, as a scenario has it. The wrappers are PyTorch's and DeepSpeed's own with the fake process
group, as in `fleet.py`; the second command estimates what the first has traced, of recordings made by it where they are missing.
"""

import argparse
import fnmatch
import hashlib
import json
import os
import pathlib
import sys
import tempfile
import time
import traceback

import torch

import fleet
import hulls

worker = fleet.worker


def wrapped(model, parallel):
    """The modules that are wrapped before the whole: by name, or those that repeat."""
    patterns = parallel["fsdp"].get("modules")
    if not patterns:
        return [] if parallel["fsdp"].get("wrap") == "root" else list(hulls.blocks(model))
    named = [(name, module) for name, module in model.named_modules() if name]
    hit = [m for n, m in named if any(fnmatch.fnmatchcase(n, p) and n.count(".") == p.count(".") for p in patterns)]
    # Those within others first, as PyTorch wants them.
    return hit[::-1]


def with_fsdp2(model, parallel):
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    keys = parallel["fsdp"]
    options = {"mesh": fleet.mesh(parallel), "mp_policy": MixedPrecisionPolicy(reduce_dtype=fleet.DTYPES[keys.get("reduce_dtype")])}
    reshard = {True: True, "true": True, False: False, "false": False}.get(keys.get("reshard_after_forward"))
    if reshard is not None:
        options["reshard_after_forward"] = reshard
    for module in wrapped(model, parallel):
        fully_shard(module, **options)
    fully_shard(model, **options)
    if next(model.parameters()).is_meta:
        model.to_empty(device="cuda")
    if not keys.get("reshard_after_backward", True):
        model.set_reshard_after_backward(False)
    return model


class Loop(fleet.Loop):
    """The probe's own loop around a model of any kind, spread as its row says."""

    def __init__(self, row):
        parallel = {**fleet.PARALLEL, **row["parallel"]}
        scenario = {"training": {**fleet.TRAINING, **row["training"]}, "input": {"batch": row["batch"]}, "parallel": parallel}
        self.begin({"scenario": scenario}, fleet.Card(), fleet.Silent())
        half = hulls.HALF.get(self.training["precision"])
        given = list(hulls.shapes(row, half))
        self.make_batch = lambda _: {name: torch.empty(shape, dtype=kind, device="cuda") for name, kind, shape in given}
        code = compile(row["trace"]["loss"], "the loss", "eval")
        fleet.MARKS.begin("load")
        fleet.with_scaler(scenario)
        model = hulls.varied(row["trace"], self.training, half, "cpu" if parallel["strategy"] == "fsdp1" else "meta")
        every = list(model.named_parameters(remove_duplicate=False))
        if parallel["strategy"] == "fsdp2" and len(every) > len(list(model.parameters())):
            # Parameters that are shared come apart on no device; loading is then not compared.
            model = hulls.varied(row["trace"], self.training, half, "cuda")
            torch.cuda.empty_cache()
            fleet.MARKS.begin("load")
        if self.training["checkpointing"] == "full":
            hulls.checkpoint(model, self.training.get("checkpoint_modules"))
        if parallel["strategy"] == "fsdp2":
            self.model = with_fsdp2(model, parallel)
        elif parallel["strategy"] == "fsdp1":
            self.model = fleet.with_fsdp1(model, parallel, "cpu", lambda model: wrapped(model, parallel))
        else:
            hulls.on_card(model)
            self.model = fleet.with_ddp(model, parallel)
        self.parameters = [p for p in self.model.parameters() if p.requires_grad]
        self.average = None
        self.optimizers = worker.make_optimizers(self.training, self.model, self.parameters, {}, fleet.Card(), None)
        self.scaler = worker.make_scaler("cuda") if self.training["precision"] == "fp16-amp" else None

        def compute_loss(model, batch, autocast):
            with autocast:
                names = {"torch": torch, "nn": torch.nn, "F": torch.nn.functional, "model": model, "batch": batch}
                return None, eval(code, {**names, **batch})

        self.compute_loss = compute_loss


def with_deepspeed(row):
    """DeepSpeed's own loop. What its names hold at the end lives on."""
    os.environ.update(DS_ACCELERATOR="cuda", DS_SKIP_CUDA_CHECK="1", LOCAL_RANK="0", RANK="0")
    parallel = {**fleet.PARALLEL, **row["parallel"]}
    os.environ["WORLD_SIZE"] = str(parallel["gpus"])
    import deepspeed

    worker.without_overflows()
    torch._tensor_str._str = lambda *_, **__: "tensor(...)"
    training = {**fleet.TRAINING, **row["training"]}
    scenario = {"training": training, "parallel": parallel, "input": {"batch": row["batch"]}}
    fleet.MARKS.begin("load")
    model = hulls.varied(row["trace"], training, None, "cpu")
    if training["checkpointing"] == "full":
        hulls.checkpoint(model, training.get("checkpoint_modules"))
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = worker.make_optimizers(training, model, trained, {}, fleet.Card(), fleet.Silent())[0]
    engine = deepspeed.initialize(model=model, optimizer=optimizer, config=worker.zero_config(scenario), dist_init_required=False)[0]
    given = list(hulls.shapes(row, hulls.HALF.get(training["precision"])))
    code = compile(row["trace"]["loss"], "the loss", "eval")
    for step in (1, 2):
        for number in range(1, training["accumulation"] + 1):
            fleet.MARKS.begin("input", step, number)
            batch = {name: torch.empty(shape, dtype=kind, device="cuda") for name, kind, shape in given}
            fleet.MARKS.begin("forward", step, number)
            loss = eval(code, {"torch": torch, "nn": torch.nn, "F": torch.nn.functional, "model": engine, "batch": batch, **batch})
            fleet.MARKS.begin("backward", step, number)
            engine.backward(loss)
            if number < training["accumulation"]:
                engine.step()
        fleet.MARKS.begin("optimizer", step)
        engine.step()
    return engine, batch, loss


def run(row, events):
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore

    torch.cuda.init()
    torch.cuda.memory._record_memory_history(enabled="all", context="all" if events else None, stacks="python", max_entries=10**7)
    dist.init_process_group("fake", rank=0, world_size=row["parallel"]["gpus"], store=FakeStore())
    if row["parallel"]["strategy"].startswith("zero"):
        held = with_deepspeed(row)
    else:
        held = Loop(row)
        for step in (1, 2):
            held.one_step(step, [row["batch"]] * held.training["accumulation"])
    fleet.MARKS.begin("end")
    torch.cuda.synchronize()
    phases, peak, seen = fleet.read(torch.cuda.memory._snapshot()["device_traces"][0])
    if events:
        with open(events, "w", encoding="utf-8") as file:
            file.writelines(json.dumps(event) + "\n" for event in seen)
    del held
    return {"peak": peak, "phases": [[p["name"], p["peak_requested"], p["end_requested"]] for p in phases]}


def child(row, path):
    """In a process of its own, which ends without Python's tidying up."""
    try:
        events = os.environ.get("EVENTS")
        answer = run(row, events and events + row["id"] + ".jsonl")
    except BaseException as error:
        traceback.print_exc()
        answer = {"error": "%s: %s" % (type(error).__name__, str(error)[:300])}
    with open(path, "w", encoding="utf-8") as file:
        json.dump(answer, file)
    os._exit(0)


def traced(options):
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    # Before the processes part, so that each finds it loaded.
    import transformers.modeling_utils  # noqa: F401

    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "answer.json")
        for row in map(json.loads, open(options.rows, encoding="utf-8")):
            if options.ids and row["id"] not in options.ids:
                continue
            pid = os.fork()
            if pid == 0:
                child(row, path)
            os.waitpid(pid, 0)
            with open(path, encoding="utf-8") as file:
                print(json.dumps({**row, "traced": json.load(file)}), file=answers, flush=True)


def compared(options):
    counted = {"exact": 0, "refused": 0, "differs": 0, "untraced": 0}
    options.hulls.mkdir(parents=True, exist_ok=True)
    for row in map(json.loads, open(options.rows, encoding="utf-8")):
        if options.ids and row["id"] not in options.ids:
            continue
        begun = time.monotonic()
        came, said = against(row, options)
        counted[came] += 1
        print("%-40s %-8s %s %.0f s" % (row["id"], came, said, time.monotonic() - begun), flush=True)
    print(", ".join("%s %d" % pair for pair in counted.items()))
    return 1 if counted["differs"] else 0


def against(row, options):
    path = hulls.recorded(row, options.program, options.hulls, options.limit)
    if path is None:
        text = (options.hulls / row["hull"]).with_suffix(".refused").read_text()
        return "refused", " | ".join(text.strip().splitlines()[-2:])[:400]
    peak, phases = hulls.estimated(row, options.program, path)
    if phases is None:
        return "refused", peak[:300]
    if "error" in row["traced"]:
        return "untraced", row["traced"]["error"]
    truth, wanted = row["traced"]["peak"], row["traced"]["phases"]
    if [p[0] for p in phases] != [p[0] for p in wanted]:
        return "differs", "phases %s, traced %s" % ([p[0] for p in phases], [p[0] for p in wanted])
    # A weight that is shared is made on the card first, and loading counted by what it left (`fleet.py`).
    if phases[0][2] == wanted[0][2]:
        phases[0][1] = wanted[0][1] = phases[0][2]
    off = [(i, mine, theirs) for i, (mine, theirs) in enumerate(zip(phases, wanted)) if mine != theirs]
    if off or peak != truth:
        first = "; ".join("%s(%d) %d/%d, traced %d/%d" % (m[0], i, m[1], m[2], t[1], t[2]) for i, m, t in off[:4])
        return "differs", "peak %d, traced %d (%+.4f %%); %d of %d phases off: %s" % (
            peak, truth, 100 * (peak - truth) / truth, len(off), len(phases), first)
    if options.agreeing:
        told = json.dumps([row["trace"], row["batch"], row["axes"], row["training"], row["parallel"]])
        kept = {
            "id": hashlib.sha256(told.encode()).hexdigest()[:10], "hull": row["hull"], "source": row["trace"]["model"],
            "torch": torch.__version__.split("+")[0], "batch": row["batch"], "axes": row["axes"],
            "training": row["training"], "parallel": row["parallel"], "peak_requested": truth, "phases": wanted,
        }
        with open(options.agreeing, "a", encoding="utf-8") as file:
            file.write(json.dumps(kept, separators=(",", ":")) + "\n")
    return "exact", "%d" % truth


def main():
    parser = argparse.ArgumentParser(prog="hull_fleet", description=__doc__.splitlines()[0])
    parser.add_argument("--program", help="a built plimsoll: compare what was traced with it")
    parser.add_argument("--hulls", type=pathlib.Path, help="a folder for the recordings")
    parser.add_argument("--agreeing", help="where the rows that agree are written")
    parser.add_argument("--limit", type=float, help="seconds that a recording may take")
    parser.add_argument("rows", help="rows, one a line")
    parser.add_argument("ids", nargs="*")
    options = parser.parse_args()
    return compared(options) if options.program else traced(options)


if __name__ == "__main__":
    sys.exit(main())
