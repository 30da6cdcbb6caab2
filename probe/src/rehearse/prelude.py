"""Runs before the command's own code, in every Python it starts: leaves PyTorch's peaks where `plimsoll rehearse` finds them."""

import atexit
import importlib.machinery
import importlib.util
import json
import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))
_peaks = {}


def _note(torch, device):
    """The peaks of one card since they were last reset, added to those before."""
    stats = torch.cuda.memory_stats(device)
    row = _peaks.setdefault(device, {"allocated": 0, "reserved": 0, "out_of_memory": 0, "retries": 0})
    row["allocated"] = max(row["allocated"], stats.get("allocated_bytes.all.peak", 0))
    row["reserved"] = max(row["reserved"], stats.get("reserved_bytes.all.peak", 0))
    row["out_of_memory"] = stats.get("num_ooms", 0)
    row["retries"] = stats.get("num_alloc_retries", 0)


def _leave(pid=os.getpid()):
    torch = sys.modules.get("torch")
    if os.getpid() != pid or torch is None or not torch.cuda.is_initialized():
        return
    for device in range(torch.cuda.device_count()):
        _note(torch, device)
    # Not every allocator counts how often memory ran out; the exception that ended the process says it too.
    if isinstance(getattr(sys, "last_value", None), torch.cuda.OutOfMemoryError):
        row = _peaks[torch.cuda.current_device()]
        row["out_of_memory"] = max(row["out_of_memory"], 1)
    rows = [{"device": device, **row} for device, row in sorted(_peaks.items()) if row["reserved"]]
    with open(os.path.join(_HERE, f"{pid}.json"), "w") as file:
        json.dump({"pid": pid, "cards": rows}, file)


def _exit(code, leave=os._exit):
    """A process that ends without its farewells leaves its peaks too."""
    try:
        _leave()
    finally:
        leave(code)


class _Watch:
    """A script that resets its peaks would hide the highest: they are noted first."""

    def find_spec(self, name, path=None, target=None):
        if name != "torch.cuda":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        run = spec.loader.exec_module

        def exec_module(module):
            run(module)
            import torch

            reset = getattr(torch._C, "_cuda_resetPeakMemoryStats", None)
            if reset is None:
                return

            def noting(device):
                _note(torch, device)
                return reset(device)

            torch._C._cuda_resetPeakMemoryStats = noting

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
