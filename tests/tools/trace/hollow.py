"""Scenarios run by the probe's own worker on hollow cards: the real PyTorch and its caching allocator, kernels that do nothing.

    python tests/tools/trace/hollow.py --program target/debug/plimsoll ROWS.jsonl [ID...] > rows.jsonl
    python tests/tools/trace/hollow.py --program target/debug/plimsoll --compare ROWS.jsonl [ID...]

A line a scenario or reference row: what `max_memory_allocated` and `max_memory_reserved` say of the whole run and of every
phase. With `--compare` they stand beside what the program estimates, and only what differs is written. The Python that runs
this must have PyTorch's CUDA build; its version is the scenario's `software.torch`, or ours is compared under a rule of
another. `--events FOLDER` writes every birth and death, out of PyTorch's memory history, with the Python it came from.
"""

import argparse
import json
import multiprocessing
import os
import pathlib
import subprocess
import sys
import tempfile
import traceback

import even
from scripts import load

HERE = pathlib.Path(__file__).resolve()
ROOT = HERE.parents[3]
BIRTHS, DEATHS = ("alloc",), ("free_completed",)
# With `--events`, an allocation of so many bytes says that a phase begins: no tensor has this size.
MARK = 100_003


def lines(path):
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file if line.strip()]


def answers(program, rows):
    """What the program estimates of each row, which says too how it understood the scenario."""
    asked = "".join(json.dumps(row["scenario"]) + "\n" for row in rows)
    done = subprocess.run([program, "estimate", "--jsonl"], input=asked, stdout=subprocess.PIPE, text=True, check=False)
    return [json.loads(line) for line in done.stdout.splitlines()]


class Told:
    """Keeps what the worker tells of its phases."""

    def __init__(self):
        self.phases, self.notes, self.stopped, self.skipped = [], [], None, []

    def emit(self, kind, /, **said):
        if kind == "phase":
            self.phases.append(said)
        elif kind == "step" and said["skipped"]:
            # The scaler found a gradient that is not finite: on a real card it may.
            self.skipped.append(said["step"])
        elif kind == "guard":
            # It ran out of memory: what was seen until then is no whole run.
            self.stopped = said["message"]

    def note(self, message):
        self.notes.append(message)

    progress = note


def history(torch):
    """Births and deaths in order: the block's address stands for what lives there."""
    events = []
    for event in torch.cuda.memory._snapshot()["device_traces"][0]:
        if event["action"] in BIRTHS + DEATHS:
            frames = ["%s:%d %s" % (f["filename"], f["line"], f["name"]) for f in event.get("frames", [])]
            frames = [frame for frame in frames if ".py:" in frame][:4]
            events.append([event["action"] in BIRTHS, event["addr"], event["size"], frames])
    return events


def marking(kind, torch):
    """The worker's loop, which leaves a mark in the history where a phase begins."""

    class Marked(kind):
        def enter(self, *where):
            super().enter(*where)
            torch.empty(MARK, dtype=torch.uint8, device="cuda")

    return Marked


def set_allocator(torch, said):
    """`[allocator]`, as `PYTORCH_CUDA_ALLOC_CONF` has it."""
    keys = ("expandable_segments", "max_split_size_mb", "roundup_power2_divisions", "garbage_collection_threshold")
    settings = ",".join("%s:%s" % (key, said[key]) for key in keys if said.get(key))
    if settings:
        torch.cuda.memory._set_allocator_settings(settings)
    if said.get("per_process_memory_fraction"):
        torch.cuda.set_per_process_memory_fraction(said["per_process_memory_fraction"])


def of_family(row, torch, told):
    """Runs the worker's loop of a scenario, and says what it ran."""
    worker = load("worker")
    worker.torch = torch
    scenario, config = row["full"], row["config"]
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    workspace = scenario.get("allocator", {}).get("cublas_workspace")
    if workspace is not None:
        os.environ["CUBLAS_WORKSPACE_CONFIG"] = workspace
    set_allocator(torch, scenario.get("allocator", {}))
    packages = worker.import_for(scenario, config)
    device = worker.DEVICES["cuda"](0)
    torch.manual_seed(0)
    if config is not None:
        config = worker.read_config(scenario, config, packages["transformers"])
    # On a real card its router sends tokens where its numbers say.
    if worker.is_hollow() and getattr(packages.get("transformers"), "__version__", "").startswith("4."):
        even.split()
    job = {"scenario": scenario, "phases": True}
    training = scenario["training"]
    kind = worker.MODES[training["mode"]]
    if row.get("events"):
        kind = marking(kind, torch)
    ran = kind(job, config, packages, device, told)
    ran.run_attempt(scenario["input"]["batch"], training["accumulation"], row["steps"], None)
    return ran


def measure(row, record=False):
    """What one scenario takes on the card there is, and PyTorch; an error alone where it does not fit. `record` keeps the allocator's
    history, and so does a row that names a file for its `events`."""
    import torch

    if record or row.get("events"):
        # Not who frees: looking for that clears an exception by which checkpointing ends what it computes again.
        torch.cuda.memory._record_memory_history(context="alloc", stacks="python", max_entries=2_000_000)
    told = Told()
    if "trace" in row:
        import own

        ran = own.measure(row, told)
    else:
        ran = of_family(row, torch, told)
    if told.stopped is not None:
        return {"error": "did not fit: %s" % told.stopped}, torch
    kept = ("name", "step", "peak_allocated", "end_allocated", "peak_reserved")
    phases = [{key: phase[key] for key in kept} for phase in told.phases]
    answer = {
        "allocated": max(phase["peak_allocated"] for phase in phases),
        "reserved": max(phase["peak_reserved"] for phase in phases),
        "phases": phases,
        "parameters": ran.counts(),
        "torch": str(torch.__version__),
    }
    offloads = "trace" not in row and row["full"]["training"].get("activation_offloading", "none") != "none"
    if offloads and hasattr(torch.cuda, "host_memory_stats"):
        # Whole blocks of the machine's memory, in use or not: PyTorch 2.7 calls that reserved, and allocated what is asked for.
        stats = torch.cuda.host_memory_stats()
        answer["pinned"] = stats.get("reserved_bytes.peak", stats["allocated_bytes.peak"])
    if told.skipped:
        answer["skipped"] = told.skipped
    if told.notes:
        answer["notes"] = told.notes
    return answer, torch


def run(row, results):
    """One scenario, in a process of its own, so that it leaves nothing to the next."""
    try:
        answer, torch = measure(row)
        if row.get("events") and "error" not in answer:
            with open(row["events"], "w", encoding="utf-8") as file:
                for event in history(torch):
                    file.write(json.dumps(event) + "\n")
        results.send(answer)
    except BaseException as error:
        traceback.print_exc()
        stop = getattr(error, "message", None)
        results.send({"error": "%s: %s" % (type(error).__name__, stop or error)})


def forks(torch):
    """Whether a fork of this process may use CUDA: none may once it was started here, or the devices were counted, as transformers
    5.2 and 5.3 do while they are imported, and an installed torchao. A fork alone can say so."""
    if torch.cuda.is_initialized():
        return False
    child = os.fork()
    if not child:
        os._exit(int(torch.cuda._is_in_bad_fork()))
    return os.waitpid(child, 0)[1] == 0


def each(path):
    """Inside, on the card: every row of the file in a child of its own."""
    import torch
    import transformers  # noqa: F401
    import transformers.modeling_utils  # noqa: F401

    context = multiprocessing.get_context("fork" if forks(torch) else "spawn")
    for row in lines(path):
        ours, theirs = context.Pipe(duplex=False)
        child = context.Process(target=run, args=(row, theirs))
        child.start()
        theirs.close()
        try:
            answer = ours.recv()
        except EOFError:
            answer = {"error": "it ended without an answer"}
        child.join(60)
        print("ROW " + json.dumps({"number": row["number"], "answer": answer}), flush=True)


def rehearsed(program, card, rows, more=()):
    """The rows of one card, in the order they were given."""
    gpu, memory, truth, tokens = card
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl", delete=False) as file:
        for row in rows:
            file.write(json.dumps(row) + "\n")
    command = [program, "rehearse", "--gpu", gpu, *more]
    if memory is not None:
        command += ["--memory", str(memory)]
    if truth is not None:
        command += ["--truth", truth]
    if tokens is not None:
        command += ["--stop-after", str(tokens)]
    command += ["--", sys.executable, str(HERE), "--inside", file.name]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        for line in running.stdout:
            if line.startswith("ROW "):
                said = json.loads(line[4:])
                yield said["number"], said["answer"]
    os.unlink(file.name)


def compare(row, got, ours):
    """By how much the estimate differs, where it does."""
    found = []
    for key in ("allocated", "reserved"):
        if ours["peak"][key] != got[key]:
            found.append("%s %+d of %d" % (key, ours["peak"][key] - got[key], got[key]))
    if "pinned" in got and ours["host"]["pinned"] != got["pinned"]:
        found.append("pinned %+d of %d" % (ours["host"]["pinned"] - got["pinned"], got["pinned"]))
    mine = [phase for phase in ours["phases"] if phase["name"] != "end"]
    for theirs, phase in zip(got["phases"], mine):
        for key in ("peak_allocated", "end_allocated", "peak_reserved"):
            if key in phase and phase[key] != theirs[key]:
                found.append("%s %s %s %+d" % (theirs["name"], theirs["step"], key, phase[key] - theirs[key]))
    return found


def main():
    parser = argparse.ArgumentParser(prog="hollow", description=__doc__.splitlines()[0])
    parser.add_argument("rows", nargs="*", help="a file of scenarios or reference rows, and ids")
    parser.add_argument("--program", default="target/debug/plimsoll", help="a built plimsoll")
    parser.add_argument("--compare", action="store_true", help="say what differs from the estimate")
    parser.add_argument("--steps", type=int, help="optimizer steps; else the scenario's own number, or two")
    parser.add_argument("--ask-cudnn", action="store_true", help="convolutions take what the Python's cuDNN plans (without --compare)")
    parser.add_argument("--events", metavar="FOLDER", help="write every birth and death, a file a row")
    parser.add_argument("--keep", metavar="FILE", help="write the rows with what they took, beside what is printed")
    parser.add_argument("--inside", metavar="FILE", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        each(options.inside)
        return
    rows = [row if "scenario" in row else {"scenario": row} for row in lines(options.rows[0])]
    ids = options.rows[1:]
    for number, row in enumerate(rows):
        row.setdefault("id", str(number))
    rows = [row for row in rows if not ids or any(row["id"].startswith(name) for name in ids)]
    ours, cards = answers(options.program, rows), {}
    for number, (row, answer) in enumerate(zip(rows, ours, strict=True)):
        if "error" in answer:
            print("%-28s not estimated: %s" % (row["id"], answer["error"]["problem"]), file=sys.stderr)
            continue
        full = answer["scenario"]
        catalogued = full["model"].get("hf") or answer.get("config")
        padded = full["input"].get("attention_mask") == "padded"
        # Asked whether all sequences are finished, a card whose kernels do nothing says so after as many tokens.
        tokens = full["input"].get("max_new_tokens")
        memory = row["scenario"].get("device", {}).get("memory")
        card = full["device"]["gpu"], memory, "false" if padded else None, tokens
        cards.setdefault(card, []).append({
            "number": number, "full": full, "config": catalogued or config_of(full["model"]),
            "steps": options.steps or full["training"].get("optimizer_steps", 2),
            "events": options.events and os.path.join(options.events, row["id"] + ".jsonl"),
        })
    exact, seen = {"allocated": 0, "reserved": 0}, 0
    # Row by row, so that what was run is there if the rest is not.
    kept = open(options.keep, "w", encoding="utf-8", buffering=1) if options.keep else None
    for card, of_it in cards.items():
        for number, got in rehearsed(options.program, card, of_it, ["--ask-cudnn"] * options.ask_cudnn):
            row, answer = rows[number], ours[number]
            if "error" in got:
                print("%-28s %s" % (row["id"], got["error"]), file=sys.stderr)
                continue
            seen += 1
            said = {"id": row["id"], "name": row.get("name", row["id"]), "scenario": row["scenario"], "expected": got}
            if kept:
                kept.write(json.dumps(said) + "\n")
            for key in exact:
                exact[key] += answer["peak"][key] == got[key]
            if not options.compare:
                print(json.dumps(said), flush=True)
                continue
            found = compare(row, got, answer)
            print("%-28s %s" % (row["id"], "; ".join(found[:7]) or "ok"), flush=True)
    if options.compare:
        print("%d rows: allocated exact in %d, reserved in %d" % (seen, exact["allocated"], exact["reserved"]))
    if kept:
        kept.close()


def config_of(model):
    """A catalog model's config.json; none for a family."""
    if "catalog" not in model:
        return None
    import tomllib

    for path in sorted((ROOT / "data" / "models").glob("*.toml")):
        with open(path, "rb") as file:
            for row in tomllib.load(file)["model"]:
                if row["id"] == model["catalog"]:
                    return json.loads(row["config"])
    raise SystemExit("data/models has no %r" % model["catalog"])


if __name__ == "__main__":
    main()
