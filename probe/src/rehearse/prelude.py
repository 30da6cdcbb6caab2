"""Runs before the command's own code, in every Python it starts: leaves PyTorch's peaks where `plimsoll rehearse` finds them,
and where in the loop they were; ends the command after as many optimizer steps as were asked for.

The command's own figures stay its own: nothing here resets a count or allocates on a card.
"""

import atexit
import functools
import importlib.machinery
import importlib.util
import json
import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))
# What was asked for: `steps`, after how many to end; `snapshot`, where the allocator's history goes; `ledger`, whether it is wanted
# beside the figures too; `live`, whether somebody looks on.
with open(os.path.join(_HERE, "asked.json")) as _file:
    _ASKED = json.load(_file)
_peaks = {}
# Where the loop is; `trains` once a backward or an optimizer was seen. `closure`: a step of the optimizer has begun, and calls
# forward and backward itself before it does its own work. `over`: what comes now is no longer counted.
_loop = {"phase": "forward", "step": 1, "trains": False, "closure": False, "over": False}
_steps = {}
# Where phases began, by card: after how many allocations and frees, which, and of which step.
_marks = {}


def _note(torch, device):
    """The peaks of one card since they were last reset, added to those before."""
    stats = torch.cuda.memory_stats(device)
    if _ASKED.get("live"):
        _show(device, stats)
    row = _peaks.setdefault(device, {"allocated": 0, "reserved": 0, "out_of_memory": 0, "retries": 0})
    for name in ("allocated", "reserved"):
        peak = stats.get(name + "_bytes.all.peak", 0)
        if peak > row[name]:
            row[name], row[name + "_in"] = peak, (_loop["phase"], _loop["step"])
    row["out_of_memory"] = stats.get("num_ooms", 0)
    row["retries"] = stats.get("num_alloc_retries", 0)
    return stats


def _show(device, stats):
    """What is held now, for those who look on: never half of it."""
    now = {name: stats.get(name + "_bytes.all.current", 0) for name in ("allocated", "reserved")}
    now.update(device=device, at=(_loop["phase"], _loop["step"]))
    path = os.path.join(_HERE, f"{os.getpid()}-{device}.now")
    with open(path + ".part", "w") as file:
        json.dump(now, file)
    os.replace(path + ".part", path)


def _note_all():
    torch = sys.modules.get("torch")
    if torch is None or _loop["over"] or not torch.cuda.is_initialized():
        return
    for device in range(torch.cuda.device_count()):
        _note(torch, device)


def _enter(phase, step=None):
    """What was reached until now was reached in the phase that ends here."""
    _note_all()
    _loop["phase"], _loop["step"], _loop["trains"] = phase, step or _loop["step"], True
    torch = sys.modules["torch"]
    if not _ASKED.get("ledger") or _loop["over"] or not torch.cuda.is_initialized():
        return
    for device in range(torch.cuda.device_count()):
        stats = torch.cuda.memory_stats(device)
        counts = [stats.get("allocation.all." + name, 0) for name in ("allocated", "freed")]
        _marks.setdefault(device, []).append((*counts, phase, _loop["step"]))


def _done():
    """Optimizer steps that are through: where several optimizers step in turn, of the one that is behind."""
    return min(_steps.values()) if _steps else 0


def _leave(pid=os.getpid(), stopped=False):
    torch = sys.modules.get("torch")
    if os.getpid() != pid or torch is None or _loop["over"] or not torch.cuda.is_initialized():
        return
    _note_all()
    # Not every allocator counts how often memory ran out; the exception that ended the process says it too.
    if isinstance(getattr(sys, "last_value", None), torch.cuda.OutOfMemoryError):
        row = _peaks[torch.cuda.current_device()]
        row["out_of_memory"] = max(row["out_of_memory"], 1)
    rows = [{"device": device, **row} for device, row in sorted(_peaks.items()) if row["reserved"]]
    if not _loop["trains"]:
        for row in rows:
            row.pop("allocated_in", None), row.pop("reserved_in", None)
    told = {"pid": pid, "cards": rows, "steps": _done(), "stopped": stopped}
    for row in rows:
        row["marks"] = _marks.get(row["device"], [])
    if _loop["trains"]:
        told["at"] = (_loop["phase"], _loop["step"])
    with open(os.path.join(_HERE, f"{pid}.json"), "w") as file:
        json.dump(told, file)
    if _ASKED.get("snapshot"):
        _dump(torch, _path(pid))
    if _ASKED.get("ledger"):
        _dump(torch, os.path.join(_HERE, f"{pid}.pickle"))


def _path(pid):
    """Where the history goes; of a process beside the first, under its own name."""
    path = _ASKED["snapshot"]
    claim = os.path.join(_HERE, "snapshot")
    try:
        os.close(os.open(claim, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        root, ending = os.path.splitext(path)
        path = f"{root}-{pid}{ending}"
    return path


def _dump(torch, path):
    """The allocator's history."""
    try:
        torch.cuda.memory._dump_snapshot(path)
    except Exception as error:
        print(f"plimsoll: the snapshot could not be written: {error}", file=sys.stderr)


def _exit(code, leave=os._exit):
    """A process that ends without its farewells leaves its peaks too."""
    try:
        _leave()
    finally:
        leave(code)


def _stop():
    """Enough steps: the command ends as if by sys.exit(). What it still does on its way out is not counted."""
    _leave(stopped=True)
    _loop["over"] = True
    raise SystemExit(0)


# ---- what is watched of PyTorch, each once its module stands


def _in_cuda(module):
    """A script that resets its peaks would hide the highest: they are noted first."""
    import torch

    reset = getattr(torch._C, "_cuda_resetPeakMemoryStats", None)
    if reset is not None:

        def noting(device):
            if not _loop["over"]:
                _note(torch, device)
            return reset(device)

        torch._C._cuda_resetPeakMemoryStats = noting
    if _ASKED.get("snapshot") or _ASKED.get("ledger"):
        # Not who frees: looking for that clears an exception that is on its way, such as the one by which checkpointing ends
        # what it computes again, and the backward fails with "returned NULL without setting an exception".
        record = {"context": "alloc", "stacks": "python", "max_entries": 1000000}
        module._lazy_call(lambda: module.memory._record_memory_history(**record))


def _in_autograd(module):
    backward = module.backward

    @functools.wraps(backward)
    def watched(*args, **kwargs):
        # Checkpointing may call it from within.
        if _loop["phase"] == "backward":
            return backward(*args, **kwargs)
        _enter("backward")
        # Where it fails, that is where it failed.
        result = backward(*args, **kwargs)
        _enter("optimizer" if _loop["closure"] else "forward")
        return result

    module.backward = watched


def _in_optimizer(module):
    begins = getattr(module, "register_optimizer_step_pre_hook", None)
    ends = getattr(module, "register_optimizer_step_post_hook", None)
    if begins is None or ends is None:
        return

    def before(optimizer, args, kwargs):
        # The first is the optimizer itself.
        _loop["closure"] = any(callable(given) for given in (*args[1:], *kwargs.values()))
        if not _loop["closure"]:
            _enter("optimizer")

    def after(optimizer, args, kwargs):
        _loop["closure"] = False
        _steps[id(optimizer)] = _steps.get(id(optimizer), 0) + 1
        _enter("forward", _done() + 1)
        if _ASKED.get("steps") and _done() >= _ASKED["steps"]:
            _stop()

    begins(before)
    ends(after)


class _Watch:
    """Lets a module be what it is, and then looks at it."""

    modules = {"torch.cuda": _in_cuda, "torch.autograd": _in_autograd, "torch.optim.optimizer": _in_optimizer}

    def find_spec(self, name, path=None, target=None):
        look = self.modules.pop(name, None)
        if look is None:
            return None
        spec = importlib.util.find_spec(name)
        run = spec.loader.exec_module

        def exec_module(module):
            run(module)
            look(module)

        spec.loader.exec_module = exec_module
        return spec


def _others():
    """Another sitecustomize that stands behind this one keeps its say."""
    path = [entry for entry in sys.path if os.path.abspath(entry or ".") != _HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", path)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


sys.meta_path.insert(0, _Watch())
atexit.register(_leave)
os._exit = _exit
_others()
