"""What the first rank of several takes of the machine's own memory, beside a hollow card.

    plimsoll rehearse --gpu h200 -- python tests/tools/trace/host.py ROWS.jsonl [ID...] > host.jsonl

The same rows and the same loop as `fleet.py`. A line a row: its phases with what PyTorch's host allocator had page-locked at their end
(`torch.cuda.host_memory_stats`: whole blocks, in use or not), and the highest and the last sum of what its CPU allocator gave out, out of
the profiler's memory events. What Python itself and libraries allocate is in neither.
"""

import importlib.util
import json
import os
import pathlib
import sys
import tempfile
import time
import traceback

import torch

spec = importlib.util.spec_from_file_location("fleet", pathlib.Path(__file__).with_name("fleet.py"))
fleet = importlib.util.module_from_spec(spec)
spec.loader.exec_module(fleet)


class Marks(fleet.Marks):
    """When phases began, and what was page-locked then."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def begin(self, name, step=None, micro_batch=None):
        super().begin(name, step, micro_batch)
        stats = torch.cuda.host_memory_stats()
        self.seen.append({
            "name": name, "step": step, "micro_batch": micro_batch, "at": time.time_ns(),
            "pinned": stats["allocated_bytes.current"], "active": stats["active_bytes.current"],
        })


def deepspeed_adam(scenario):
    """DeepSpeed's own optimizer on the processor keeps what PyTorch's fused one does."""
    training = scenario["training"]
    if training.get("optimizer", "adamw") in ("adam", "adamw"):
        training["optimizer_impl"] = "fused"


def run(scenario):
    marks, fleet.AS_COMPUTED = Marks(), True
    fleet.MARKS = marks
    torch.cuda.init()
    scenario = fleet.filled(scenario)
    offloads = scenario["parallel"]["zero"].get("offload_optimizer", "none") != "none"
    if scenario["parallel"]["strategy"].startswith("zero") and offloads:
        deepspeed_adam(scenario)
    elif scenario["parallel"]["fsdp"].get("cpu_offload") and scenario["training"]["optimizer_impl"] == "foreach":
        # PyTorch's own choice for parameters in the machine's memory.
        scenario["training"]["optimizer_impl"] = "for-loop"
    with torch.autograd.profiler.profile(profile_memory=True, use_cpu=True, use_kineto=True) as profile:
        fleet.run(scenario, None)
    now, events = 0, []
    for event in profile.kineto_results.events():
        if event.name() == "[memory]" and event.device_type() == torch.autograd.DeviceType.CPU:
            events.append((event.start_ns(), event.nbytes()))
    events.sort(key=lambda event: event[0])
    phases, place = [], 0
    for mark, after in zip(marks.seen, marks.seen[1:]):
        highest = now
        while place < len(events) and events[place][0] < after["at"]:
            now += events[place][1]
            highest = max(highest, now)
            place += 1
        phases.append({
            "name": mark["name"], "step": mark["step"], "micro_batch": mark["micro_batch"], "pageable_peak": highest,
            "pageable_end": now, "pinned_end": after["pinned"], "pinned_in_use": after["active"],
        })
    return {"phases": phases}


def child(row, path):
    try:
        answer = run(row["scenario"])
    except BaseException as error:
        traceback.print_exc()
        answer = {"error": "%s: %s" % (type(error).__name__, error)}
    with open(path, "w", encoding="utf-8") as file:
        json.dump(answer, file)
    os._exit(0)


def main():
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    import transformers.modeling_utils  # noqa: F401

    with open(sys.argv[1], encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "answer.json")
        for row in rows:
            if sys.argv[2:] and row["id"] not in sys.argv[2:]:
                continue
            pid = os.fork()
            if pid == 0:
                child(row, path)
            os.waitpid(pid, 0)
            with open(path, encoding="utf-8") as file:
                print(json.dumps({"id": row["id"], "scenario": row["scenario"], **json.load(file)}), file=answers, flush=True)


if __name__ == "__main__":
    main()
