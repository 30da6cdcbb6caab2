"""Asks cuDNN what it takes for a convolution, without a card: the script behind `plimsoll estimate --ask-cudnn`.

Since 9.8 cuDNN plans for a card that is described to it instead of one that is there; its documentation calls that deviceless
ahead-of-time compilation. Each convolution is described as PyTorch describes it (`Conv_v8.cpp` in `aten/src/ATen/native/cudnn`), the
heuristics are asked for engines in the mode that PyTorch asks in, and the first that can be planned says its workspace.

The first line that comes in is the card, `{"capability": [8, 9], "multiprocessors": 24}`, and is answered with the library's
version. Each line after it is a list of questions, `[product, input, weight, output, stride, padding, channels_last, dtype]`, where
filters have gaps with their `dilation` behind, and is answered with as many workspaces in bytes, null where cuDNN has no plan. It needs nothing but Python and cuDNN, and sends nothing anywhere.
"""

import contextlib
import ctypes
import glob
import importlib.util
import itertools
import json
import os
import sys

# Numbers of `cudnn_graph.h`: kinds of descriptors ...
CONVOLUTION, CONFIGURATION, HEURISTICS, PLAN, GRAPH, TENSOR, DEVICE = 1, 3, 4, 5, 15, 17, 38
# ... their attributes ...
COMPUTED_IN, MODE_OF_CONVOLUTION, DILATIONS, STRIDES, PADDED_BEHIND, PADDED_BEFORE, PLACES = 100, 101, 102, 103, 104, 105, 106
MODE_OF_HEURISTICS, ASKED_GRAPH, FOUND, ASKED_DEVICE = 200, 201, 202, 204
PLANNED, WORKSPACE, PLANNED_FOR = 401, 402, 407
OPERATIONS = 801
ALIGNMENT, NUMBERS, SIZES, STEPS, NAME = 900, 901, 902, 903, 906
DESCRIPTION = 2702
# ... their types ...
DTYPE, INT64, FLOAT, MODE, HEURISTIC, DESCRIPTOR, CHAR = 1, 3, 4, 7, 8, 15, 24
# ... numbers, the one mode that PyTorch convolves in, and the two that it asks heuristics in, one after the other.
DTYPES = {"fp32": 0, "fp16": 2, "bf16": 9}
CROSS_CORRELATION = 1
INSTANT, FALLBACK = 0, 2

# Of each product: the kind of its operation, then alpha, beta, the convolution, and where weight, input and output go.
PRODUCTS = {
    "forward": (10, 700, 701, 702, 703, 704, 705),
    "input": (12, 706, 707, 708, 709, 710, 711),
    "weight": (11, 712, 713, 714, 715, 716, 717),
}

# `getAlignment` in Conv_v8.cpp says at most so much, and the allocator's blocks begin at more.
ALIGNED = 32
OLDEST = 90800

# What a block may share where it asks for it, threads and blocks of a multiprocessor: the CUDA programming guide's table of
# compute capabilities.
LIMITS = {
    (7, 0): (98304, 2048, 32),
    (7, 5): (65536, 1024, 16),
    (8, 0): (166912, 2048, 32),
    (8, 6): (101376, 1536, 16),
    (8, 7): (166912, 1536, 16),
    (8, 9): (101376, 1536, 24),
    (9, 0): (232448, 2048, 32),
    (10, 0): (232448, 2048, 32),
    (10, 3): (232448, 2048, 32),
    (12, 0): (101376, 1536, 24),
    (12, 1): (101376, 1536, 24),
}


class Refusal(Exception):
    def __init__(self, problem, hint):
        super().__init__(problem)
        self.problem, self.hint = problem, hint


class Failed(Exception):
    """What cuDNN does not do."""


def places():
    """Where packages that bring cuDNN and what it loads have their libraries."""
    for name in ("nvidia", "torch"):
        with contextlib.suppress(ImportError, ValueError):
            found = importlib.util.find_spec(name)
            for folder in (found.submodule_search_locations or []) if found else []:
                yield from (os.path.join(folder, "lib"), *glob.glob(os.path.join(folder, "*", "lib")), *glob.glob(os.path.join(folder, "*", "bin")))
    yield from (os.path.join(sys.prefix, "lib"), os.path.join(sys.prefix, "Library", "bin"))


def library():
    folders = [folder for folder in places() if os.path.isdir(folder)]
    if hasattr(os, "add_dll_directory"):
        for folder in folders:
            os.add_dll_directory(folder)
    # cuDNN looks for them by name, and 9.8 and 9.10 end the process where they find no cuBLASLt.
    for name in ("libcublasLt.so.*", "libnvrtc.so.*"):
        for path in itertools.chain.from_iterable(glob.glob(os.path.join(folder, name)) for folder in folders):
            with contextlib.suppress(OSError):
                ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
    names = ("libcudnn.so.9", "cudnn64_9.dll")
    paths = [os.path.join(folder, name) for folder in folders for name in names]
    for path in [path for path in paths if os.path.exists(path)] + ["libcudnn.so.9"]:
        with contextlib.suppress(OSError):
            return ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
    raise Refusal(
        "no cuDNN 9 was found beside this Python's PyTorch",
        "name the Python of an environment with a PyTorch for CUDA (it needs no card) with --python PATH",
    )


class Cudnn:
    def __init__(self):
        self.lib = library()
        self.lib.cudnnGetVersion.restype = ctypes.c_size_t
        self.version = self.lib.cudnnGetVersion()
        if self.version < OLDEST:
            raise Refusal(
                f"cuDNN {self.said()} plans for no card but one that is there",
                "name the Python of an environment with cuDNN 9.8 or later (PyTorch 2.8 brings one) with --python PATH",
            )
        self.made = []

    def said(self):
        return f"{self.version // 10000}.{self.version // 100 % 100}.{self.version % 100}"

    def check(self, status):
        if status:
            raise Failed(status)

    def new(self, kind):
        descriptor = ctypes.c_void_p()
        self.check(self.lib.cudnnBackendCreateDescriptor(kind, ctypes.byref(descriptor)))
        self.made.append(descriptor)
        return descriptor

    def set(self, descriptor, attribute, kind, count, values):
        self.check(self.lib.cudnnBackendSetAttribute(descriptor, attribute, kind, ctypes.c_int64(count), values))

    def number(self, descriptor, attribute, kind, value):
        self.set(descriptor, attribute, kind, 1, ctypes.byref(value))

    def integers(self, descriptor, attribute, values):
        self.set(descriptor, attribute, INT64, len(values), (ctypes.c_int64 * len(values))(*values))

    def get(self, descriptor, attribute, kind, count, values):
        got = ctypes.c_int64()
        self.check(self.lib.cudnnBackendGetAttribute(descriptor, attribute, kind, ctypes.c_int64(count), ctypes.byref(got), values))
        return got.value

    def done(self, descriptor):
        self.check(self.lib.cudnnBackendFinalize(descriptor))
        return descriptor

    def let_go(self):
        while self.made:
            self.lib.cudnnBackendDestroyDescriptor(self.made.pop())

    def device(self, capability, multiprocessors):
        """A card: its compute capability decides, and of 7.5 the number of multiprocessors. Of 384 convolutions on a 7.5, 8.0, 8.6, 8.9 and
        12.0 none was planned otherwise with other clocks, caches, memory or driver (cuDNN 9.19)."""
        shared, threads, blocks = LIMITS[capability]
        described = {
            "deviceName": "", "deviceVer": capability[0] * 100 + capability[1] * 10, "driverVer": 13000, "cudaDeviceId": 0,
            "pciDeviceId": 0, "multiProcessorCount": multiprocessors, "smClockRateKHz": 2000000, "memClockRateKHz": 8000000,
            "l2CacheSize": 48 << 20, "totalGlobalMem": 16 << 30, "maxSharedMemoryPerBlock": 49152,
            "maxSharedMemoryPerBlockOptin": shared, "reservedSharedMemoryPerBlock": 1024, "maxThreadsPerSM": threads,
            "maxCtasPerSM": blocks, "maxThreadsPerBlock": 1024, "regsPerBlock": 65536, "maxRegistersPerSM": 65536, "warpSize": 32,
            "maxBlockSize": [1024, 1024, 64], "maxGridSize": [2147483647, 65535, 65535], "isTccDriver": 0, "supportCoopLaunch": 1,
        }
        text = json.dumps(described).encode()
        device = self.new(DEVICE)
        self.set(device, DESCRIPTION, CHAR, len(text), ctypes.create_string_buffer(text))
        self.done(device)
        # Kept to the end.
        self.made.remove(device)
        return device

    def tensor(self, name, sizes, last, dtype):
        order = [0, *range(2, len(sizes)), 1] if last else range(len(sizes))
        steps, step = [0] * len(sizes), 1
        for axis in reversed(order):
            steps[axis] = step
            step *= sizes[axis]
        tensor = self.new(TENSOR)
        self.integers(tensor, NAME, [ord(name)])
        self.number(tensor, NUMBERS, DTYPE, ctypes.c_int(dtype))
        self.integers(tensor, SIZES, sizes)
        self.integers(tensor, STEPS, steps)
        self.integers(tensor, ALIGNMENT, [ALIGNED])
        return self.done(tensor)

    def graph(self, product, sizes, stride, padding, last, dtype, dilation):
        x, w, y = (self.tensor(name, of, last, dtype) for name, of in zip("xwy", sizes))
        how = self.new(CONVOLUTION)
        self.number(how, COMPUTED_IN, DTYPE, ctypes.c_int(DTYPES["fp32"]))
        self.number(how, MODE_OF_CONVOLUTION, MODE, ctypes.c_int(CROSS_CORRELATION))
        self.integers(how, DILATIONS, dilation)
        self.integers(how, STRIDES, stride)
        self.integers(how, PADDED_BEFORE, padding)
        self.integers(how, PADDED_BEHIND, padding)
        self.integers(how, PLACES, [len(stride)])
        self.done(how)
        kind, alpha, beta, convolution, *ends = PRODUCTS[product]
        operation = self.new(kind)
        self.number(operation, convolution, DESCRIPTOR, how)
        self.number(operation, alpha, FLOAT, ctypes.c_float(1))
        self.number(operation, beta, FLOAT, ctypes.c_float(0))
        for end, tensor in zip(ends, (w, x, y)):
            self.number(operation, end, DESCRIPTOR, tensor)
        self.done(operation)
        graph = self.new(GRAPH)
        self.number(graph, OPERATIONS, DESCRIPTOR, operation)
        return self.done(graph)

    def configurations(self, graph, device, mode):
        asked = self.new(HEURISTICS)
        self.number(asked, ASKED_GRAPH, DESCRIPTOR, graph)
        self.number(asked, MODE_OF_HEURISTICS, HEURISTIC, ctypes.c_int(mode))
        self.number(asked, ASKED_DEVICE, DESCRIPTOR, device)
        self.done(asked)
        count = self.get(asked, FOUND, DESCRIPTOR, 0, None)
        found = [self.new(CONFIGURATION) for _ in range(count)]
        there = self.get(asked, FOUND, DESCRIPTOR, count, (ctypes.c_void_p * count)(*(one.value for one in found))) if count else 0
        return found[:there]

    def workspace(self, device, product, sizes, stride, padding, last, dtype, dilation=None):
        try:
            graph = self.graph(product, sizes, stride, padding, last, DTYPES[dtype], dilation or [1] * len(stride))
            for mode in (INSTANT, FALLBACK):
                with contextlib.suppress(Failed):
                    for configuration in self.configurations(graph, device, mode):
                        with contextlib.suppress(Failed):
                            plan = self.new(PLAN)
                            self.number(plan, PLANNED, DESCRIPTOR, configuration)
                            self.number(plan, PLANNED_FOR, DESCRIPTOR, device)
                            self.done(plan)
                            held = ctypes.c_int64()
                            self.get(plan, WORKSPACE, INT64, 1, ctypes.byref(held))
                            return held.value
        except Failed:
            pass
        finally:
            self.let_go()
        return None


def main():
    # What a library prints is no answer.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def send(value):
        answers.write(json.dumps(value) + "\n")
        answers.flush()

    try:
        card = json.loads(sys.stdin.readline())
        cudnn = Cudnn()
        try:
            device = cudnn.device(tuple(card["capability"]), card["multiprocessors"])
        except (Failed, KeyError):
            capability = ".".join(map(str, card["capability"]))
            raise Refusal(
                f"cuDNN {cudnn.said()} plans nothing for a card of compute capability {capability}",
                "leave --ask-cudnn out",
            ) from None
        send({"version": cudnn.said()})
        for line in sys.stdin:
            send([
                cudnn.workspace(device, product, (x, w, y), *rest)
                for product, x, w, y, *rest in json.loads(line)
            ])
    except Refusal as refusal:
        send({"problem": refusal.problem, "hint": refusal.hint})


if __name__ == "__main__":
    main()
