#!/usr/bin/env python3
"""The worker of `plimsoll probe`: trains one model the way a training script does, or has it answer, and tells what it took.

It reads a job and then commands as JSON lines from standard input, and writes events as JSON lines to what was its
standard output. Whatever else prints lands on standard error. With `--libraries` it trains nothing and tells what the CUDA
context and libraries take. Python 3.9 and PyTorch 2.2 or newer; transformers for
Hugging Face models, peft for LoRA, bitsandbytes for quantized weights and 8-bit AdamW, torchvision for ResNet, ConvNeXt and
Swin, lion-pytorch for Lion, liger-kernel for the fused linear cross-entropy, deepspeed for ZeRO.

A job for several cards it gives to torchrun, which starts this script once a rank (`--rank`): see `Leader`.

The model and the loop are those that `plimsoll estimate` executes without a GPU. Which Python name holds a tensor for
how long decides the peak, so the loop at `Run.micro_batch` is written out with care: every `del` in it is there for a
reason, and every name that outlives a line does so in an ordinary training script too. Inference is at `Inference`.
"""

import contextlib
import ctypes
import faulthandler
import functools
import gc
import importlib.util
import json
import math
import os
import platform
import queue
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback

STARTED = time.monotonic()
PROTOCOL = 1
OLDEST_TORCH = (2, 2)
OLDEST_TRANSFORMERS = (4, 36)  # the first with `attn_implementation`
OLDEST_BITSANDBYTES = (0, 45)  # the first with `int8_vectorwise_quant`

# Where the random filling of a weight is worth leaving to the device: a model of a billion weights is filled in
# seconds there, and in a minute on the host.
LARGE = 1 << 20

# Events that may wait for the next one, and for how many seconds since the last was sent: what is drawn ten times a
# second needs no more.
QUICK = ("phase", "step")
TOGETHER = 0.1
# A generation is told of from time to time: who hears nothing for long takes the worker for dead. In seconds.
STILL_THERE = 5.0


# ---------------------------------------------------------------------------------------------------------------------
# Talking to the orchestrator


class Stop(Exception):
    """Ends the worker with an `error` event that says what is wrong and what to do."""

    def __init__(self, kind, message, hint, rank=None):
        super().__init__(message)
        self.kind, self.message, self.hint, self.rank = kind, message, hint, rank


class Channel:
    """Events out, commands in: through the standard streams, or through a connection to the leader."""

    def __init__(self, connection=None):
        # Standard output is ours alone from here on: what a library prints goes to standard error.
        self.source, self.out = (0, os.dup(1)) if connection is None else (connection, connection)
        os.dup2(2, 1)
        self.lock = threading.Lock()
        self.waiting, self.sent_at = b"", 0.0
        self.lines = queue.Queue()
        threading.Thread(target=self.read, name="commands", daemon=True).start()

    def read(self):
        """Hands on complete lines; ends the process when nobody is left who could send one."""
        rest = b""
        while True:
            try:
                chunk = os.read(self.source, 65536)
            except OSError:
                chunk = b""
            if not chunk:
                os._exit(0)
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                if line.strip():
                    self.lines.put(line)

    def receive(self, kind):
        """The next line as a dictionary."""
        return read_line(self.lines.get(), kind)

    def emit(self, event, **fields):
        line = {"event": event, "at": int((time.monotonic() - STARTED) * 1e6)}
        line.update(fields)
        data = json.dumps(line, separators=(",", ":"), allow_nan=False).encode() + b"\n"
        with self.lock:
            data, now = self.waiting + data, time.monotonic()
            # Every line wakes the orchestrator, which on a CPU takes the time from the loop: quick phases go together.
            if event in QUICK and now - self.sent_at < TOGETHER:
                self.waiting = data
                return
            self.waiting, self.sent_at = b"", now
            self.send(data)

    def send(self, data):
        """Whole lines, as they are."""
        try:
            while data:
                data = data[os.write(self.out, data) :]
        except OSError:
            os._exit(0)

    def progress(self, message):
        self.emit("progress", message=message)

    def note(self, message):
        self.emit("note", message=message)


def read_line(line, kind):
    """A line as a dictionary."""
    try:
        value = json.loads(line)
        if not isinstance(value, dict):
            raise ValueError("it is not an object")
        return value
    except ValueError as error:
        raise Stop(kind, "a line that is not a JSON object: %s" % error, "this is a bug of plimsoll: report it")


PATHS = re.compile(r"(?<![\w/.])/[\w.~+-]+(?:/[^\s'\",:;)\]]*)+|\b[A-Za-z]:\\[^\s'\",:;)\]]*")


def clean(error):
    """An error's words without paths and names of people or machines, and not too many of them."""
    text = str(error).strip() or type(error).__name__
    for known in (os.path.expanduser("~"), os.getcwd(), tempfile.gettempdir(), sys.prefix, sys.base_prefix):
        if len(known) > 3:
            text = text.replace(known, "<path>")
    text = PATHS.sub("<path>", text)
    text = re.sub(r"<path>(?:[/\\][^\s'\",:;)\]]*)+", "<path>", text)
    for name in (os.environ.get("USER"), os.environ.get("USERNAME"), platform.node()):
        if name and len(name) > 2 and name != "root":
            text = re.sub(r"\b%s\b" % re.escape(name), "<name>", text)
    text = " ".join(text.split())
    return text if len(text) <= 400 else text[:400] + " ..."


def die_with_parent():
    """Linux: the kernel ends this process when the one that started it is gone, whatever this one is doing."""
    if sys.platform != "linux":
        return
    parent = os.getppid()
    with contextlib.suppress(OSError, AttributeError):
        PR_SET_PDEATHSIG = 1
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(0)


# ---------------------------------------------------------------------------------------------------------------------
# Several cards: the leader, and what each rank knows of the others


def cards(scenario):
    """How many processes train together."""
    return (scenario.get("parallel") or {}).get("gpus", 1)


class Leader:
    """Has torchrun start a process a rank, gives each of them the job and the commands, and hands on what they say with
    the rank that it came from. It imports nothing of PyTorch."""

    # How long torchrun may take to say how a rank ended, and how long a rank's error is kept back: that of one whose neighbour
    # is gone comes before the neighbour is missed. In seconds.
    LAST_WORDS = 5.0
    SECOND_THOUGHT = 1.0

    def __init__(self, channel, job):
        self.channel, self.job, self.count = channel, job, cards(job["scenario"])
        self.connections, self.done, self.failed = {}, set(), []
        self.news, self.errors = queue.Queue(), b""

    def run(self):
        self.find_torchrun()
        self.channel.progress("starting torchrun with %d processes" % self.count)
        with tempfile.TemporaryDirectory(prefix="ranks-", dir=os.path.dirname(os.path.abspath(__file__))) as folder:
            # Named from where we stand: the name of a socket is short.
            door = os.path.relpath(os.path.join(folder, "door"))
            with socket.socket(socket.AF_UNIX) as listener:
                listener.bind(door)
                listener.listen(self.count)
                self.start(self.welcome, listener)
                self.torchrun = self.launch(door)
                try:
                    self.start(self.copy_errors)
                    self.start(self.forward_commands)
                    self.listen()
                finally:
                    # The ranks end with it.
                    self.torchrun.kill()
        self.channel.emit("bye")

    def find_torchrun(self):
        if not hasattr(socket, "AF_UNIX"):
            message = "several cards are measured on Linux and macOS only"
            raise Stop("unsupported", message, "leave parallel out, or estimate it")
        found = importlib.util.find_spec("torch")
        if found is None or not found.submodule_search_locations:
            raise Stop("missing-torch", "this Python has no PyTorch", "python -m pip install torch")
        places = [os.path.join(place, "distributed", "run.py") for place in found.submodule_search_locations]
        if not any(os.path.exists(place) for place in places):
            message = "this PyTorch has no torchrun (torch.distributed.run)"
            raise Stop("unsupported", message, "python -m pip install --upgrade torch")

    def launch(self, door):
        command = [sys.executable, "-u", "-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1",
                   "--nproc-per-node", str(self.count), "--max-restarts", "0", os.path.abspath(__file__), "--rank", door]
        # torchrun would say that it sets this, and set it.
        environment = dict(os.environ, OMP_NUM_THREADS=os.environ.get("OMP_NUM_THREADS", "1"))
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                env=environment, preexec_fn=die_with_parent)

    @staticmethod
    def start(target, *args):
        threading.Thread(target=target, args=args, daemon=True).start()

    def forward_commands(self):
        while True:
            self.news.put(("command", self.channel.lines.get()))

    def copy_errors(self):
        """What torchrun and the ranks print goes where it would have gone; the end of it says how a rank ended."""
        while True:
            chunk = os.read(self.torchrun.stdout.fileno(), 65536)
            if not chunk:
                break
            os.write(2, chunk)
            self.errors = (self.errors + chunk)[-65536:]
        self.torchrun.wait()
        self.news.put(("ended", None))

    def welcome(self, listener):
        for _ in range(self.count):
            connection, _ = listener.accept()
            self.start(self.hear, connection)

    def hear(self, connection):
        with connection, connection.makefile("rb") as lines:
            rank = json.loads(lines.readline() or b"null")
            if rank is None:
                return
            self.news.put(("joined", rank, connection))
            with contextlib.suppress(OSError):
                for line in lines:
                    self.news.put(("said", rank, line))
            self.news.put(("left", rank))

    def listen(self):
        """Until every rank has said goodbye and is gone, and torchrun with them."""
        # All clocks begin with ours.
        job = json.dumps(dict(self.job, started=STARTED)).encode() + b"\n"
        while True:
            try:
                what, *about = self.news.get(timeout=self.SECOND_THOUGHT if self.failed else None)
            except queue.Empty:
                self.give_up()
            if what == "joined":
                rank, connection = about
                self.connections[rank] = connection
                connection.sendall(job)
            elif what == "command":
                for connection in self.connections.values():
                    with contextlib.suppress(OSError):
                        connection.sendall(about[0] + b"\n")
            elif what == "said":
                self.hand_on(*about)
            elif what == "left":
                if about[0] not in self.done and about[0] not in [rank for rank, _ in self.failed]:
                    self.lost(about[0])
            elif len(self.done) == self.count:
                return
            elif len(self.connections) < self.count and not self.failed:
                self.never_began()

    def hand_on(self, rank, line):
        if line.startswith(b'{"event":"bye"'):
            self.done.add(rank)
            return
        if not (line.startswith(b"{") and line.endswith(b"\n")):
            return
        whose = b'{"rank":%d,' % rank + line[1:]
        if line.startswith(b'{"event":"error"'):
            self.failed.append((rank, whose))
        else:
            self.channel.send(whose)

    def give_up(self):
        """Hands on the errors that were kept back, and ends."""
        self.channel.send(b"".join(line for _, line in self.failed))
        raise SystemExit(3)

    def lost(self, rank):
        """A rank is gone without a word. torchrun tells how, a moment later: where it ended the rank itself, because of another."""
        until = time.monotonic() + self.LAST_WORDS
        code = None
        while code is None and time.monotonic() < until:
            time.sleep(0.05)
            code = self.code_of(b"%d" % rank)
        if code == -signal.SIGTERM:
            if self.failed:
                self.give_up()
            first = re.search(rb"Root Cause.*?\(local_rank: (\d+)\)", self.errors, re.DOTALL)
            if first is not None:
                rank, code = int(first.group(1)), self.code_of(first.group(1))
        if code is None:
            how = "is gone"
        elif code < 0:
            names = {int(known): known.name for known in signal.Signals}
            how = "was ended by %s (signal %d)" % (names.get(-code, "a signal"), -code)
        else:
            how = "ended with code %d" % code
        hint = "the end of its standard error may say why"
        if code == -signal.SIGKILL:
            hint = "most often that is the kernel's out-of-memory killer: the machine's own memory ran out"
        raise Stop("lost", "the process %s" % how, hint, rank)

    def code_of(self, rank):
        told = re.search(rb"\(local_rank: %b\)\s+exitcode\s*: (-?\d+)" % rank, self.errors)
        return told and int(told.group(1))

    def never_began(self):
        code = self.torchrun.returncode
        last = [line for line in self.errors.decode(errors="replace").splitlines() if line.strip()]
        message = "torchrun ended with code %s before every rank had begun%s" % (code, ": " + clean(last[-1]) if last else "")
        raise Stop("unsupported", message, "see whether python -m torch.distributed.run --help answers: a PyTorch that was "
                   "built without torch.distributed has no torchrun")


def join(door):
    """The connection to the leader."""
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(door)
    connection.sendall(os.environ["RANK"].encode() + b"\n")
    return connection.detach()


# ---------------------------------------------------------------------------------------------------------------------
# Packages


def version_of(text):
    """The first two numbers of a version: (2, 11) of 2.11.0+cu128."""
    numbers = re.match(r"(\d+)\.(\d+)", text)
    return (int(numbers.group(1)), int(numbers.group(2))) if numbers else (0, 0)


def import_torch():
    try:
        import torch
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise broken("torch", "missing-torch", error)
        raise Stop("missing-torch", "this Python has no PyTorch", "python -m pip install torch")
    except Exception as error:
        raise broken("torch", "missing-torch", error)
    if version_of(torch.__version__) < OLDEST_TORCH:
        needed = "%d.%d" % OLDEST_TORCH
        message = "PyTorch %s is too old: the probe needs %s or newer" % (torch.__version__, needed)
        raise Stop("old-torch", message, 'python -m pip install --upgrade "torch>=%s"' % needed)
    return torch


def import_package(name, needed_for):
    try:
        return __import__(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise broken(name, "missing-package", error)
        message = "this Python has no %s, which %s needs" % (name, needed_for)
        raise Stop("missing-package", message, "python -m pip install %s" % name)
    except Exception as error:
        raise broken(name, "missing-package", error)


def broken(name, kind, error):
    message = "%s is installed but cannot be imported: %s" % (name, clean(error))
    stop = Stop(kind, message, "python -m pip install --upgrade --force-reinstall %s" % name)
    stop.__cause__ = error
    return stop


def installed(name):
    """The version of a package that is not imported yet; None where it is not there."""
    import importlib.metadata

    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def import_for(scenario, config):
    """The packages that the scenario needs, by name; the others are not touched."""
    found = {"transformers": None, "peft": None, "torchvision": None, "bitsandbytes": None}
    training, family = scenario["training"], scenario["model"].get("family")
    if config is not None or training["optimizer"] == "adafactor":
        what = "a Hugging Face model" if config is not None else "the optimizer adafactor"
        transformers = found["transformers"] = import_package("transformers", what)
        if version_of(transformers.__version__) < OLDEST_TRANSFORMERS:
            needed = "%d.%d" % OLDEST_TRANSFORMERS
            message = "transformers %s is too old: the probe needs %s or newer" % (transformers.__version__, needed)
            raise Stop("missing-package", message, 'python -m pip install --upgrade "transformers>=%s"' % needed)
        if not transformers.utils.is_torch_available():
            message = "transformers %s does not work with PyTorch %s" % (transformers.__version__, torch.__version__)
            hint = 'python -m pip install --upgrade torch, or an older transformers ("transformers<5")'
            raise Stop("missing-package", message, hint)
    if training.get("lora") is not None:
        found["peft"] = import_package("peft", "LoRA")
    if quantized(training):
        bitsandbytes = found["bitsandbytes"] = import_package("bitsandbytes", "quantization = \"%s\"" % training["quantization"])
        if version_of(bitsandbytes.__version__) < OLDEST_BITSANDBYTES:
            needed = "%d.%d" % OLDEST_BITSANDBYTES
            message = "bitsandbytes %s is too old: the probe needs %s or newer" % (bitsandbytes.__version__, needed)
            raise Stop("missing-package", message, 'python -m pip install --upgrade "bitsandbytes>=%s"' % needed)
    if family in TORCHVISION:
        found["torchvision"] = import_package("torchvision", "the family %s" % family)
    return found


# ---------------------------------------------------------------------------------------------------------------------
# Devices


class LimitReached(Exception):
    """Our own cap was hit, where the device knows none."""


class Cpu:
    """No accelerator: the allocator keeps no count, only the operating system does."""

    kind = "cpu"
    # What this process is among several.
    ranks = None

    def __init__(self, index):
        self.name, self.limit, self.marks = "cpu", None, False

    def describe(self):
        total, free = machine_memory()
        return {"name": processor_name(), "total": total, "free": free, "capability": None, "uuid": None, "pci": None}

    def synchronize(self):
        pass

    def reset_peaks(self):
        # Linux keeps a high-water mark of resident memory, which 5 sets back (proc_pid_clear_refs(5)).
        if self.limit is not None:
            self.marks = False
            with contextlib.suppress(OSError):
                with open("/proc/self/clear_refs", "w") as file:
                    file.write("5")
                self.marks = True

    def figures(self):
        """Peak allocated and reserved since the reset; allocated and reserved now; times the cache was emptied."""
        return None, None, None, None, None

    def process(self):
        """What the process holds, where only this device's own runtime can tell."""
        return None

    def cap(self, limit, channel):
        if resident() is None:
            raise Stop("unsupported", "a limit on the CPU needs Linux or macOS", "leave the limit out")
        self.limit = limit

    def tighten(self, channel):
        """Called when the first step is through, and with it every library that is loaded on first use."""

    def check(self):
        if self.limit is None:
            return
        held = high_water() if self.marks else resident()
        if held is not None and held > self.limit:
            raise LimitReached("the process held %s, the limit is %s" % (gib(held), gib(self.limit)))

    def out_of_memory(self, error):
        """`limit`, `out_of_memory`, or None when the error is about something else."""
        if isinstance(error, LimitReached):
            return "limit"
        words = ("DefaultCPUAllocator", "not enough memory", "can't allocate memory", "Cannot allocate memory")
        hit = isinstance(error, MemoryError) or any(word in str(error) for word in words)
        return "out_of_memory" if hit else None

    def empty_cache(self):
        # glibc keeps freed pages; the limit is about what the process holds.
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).malloc_trim(0)


class Cuda(Cpu):
    """NVIDIA's CUDA, and AMD's ROCm, which PyTorch calls by the same name."""

    kind = "cuda"

    def __init__(self, index):
        if not torch.cuda.is_available():
            if torch.version.cuda is None and torch.version.hip is None:
                message = "this PyTorch (%s) was built for the CPU only" % torch.__version__
                raise Stop("no-device", message, "install a CUDA or ROCm build of PyTorch, or use --device cpu")
            visible = os.environ.get("CUDA_VISIBLE_DEVICES")
            what = "no card" if visible is None else "no card numbered %s (CUDA_VISIBLE_DEVICES)" % clean(visible)
            message = "PyTorch %s sees no GPU: no driver, a driver too old for it, or %s" % (torch.__version__, what)
            raise Stop("no-device", message, "see whether nvidia-smi (or rocm-smi) lists the card, or use --device cpu")
        count = torch.cuda.device_count()
        if not 0 <= index < count:
            raise Stop("no-device", "there is no GPU %d: PyTorch sees %d" % (index, count), "choose one below %d" % count)
        self.used_before = nvml_used()
        self.index, self.name, self.limit, self.context = index, "cuda:%d" % index, None, 0
        torch.cuda.set_device(index)
        self.free = torch.cuda.mem_get_info(index)[0]  # this creates the context
        self.properties = torch.cuda.get_device_properties(index)

    def describe(self):
        properties = self.properties
        capability = None if torch.version.hip else "%d.%d" % (properties.major, properties.minor)
        pci = None
        if hasattr(properties, "pci_bus_id"):
            place = (getattr(properties, "pci_domain_id", 0), properties.pci_bus_id, properties.pci_device_id)
            pci = "%08x:%02x:%02x.0" % place
        uuid = str(properties.uuid) if hasattr(properties, "uuid") else None
        name, total = torch.cuda.get_device_name(self.index), properties.total_memory
        return {"name": name, "total": total, "free": self.free, "capability": capability, "uuid": uuid, "pci": pci,
                "hollow": is_hollow()}

    def synchronize(self):
        torch.cuda.synchronize(self.index)

    def reset_peaks(self):
        torch.cuda.reset_peak_memory_stats(self.index)

    def figures(self):
        stats = torch.cuda.memory_stats_as_nested_dict(self.index)
        allocated, reserved = stats["allocated_bytes"]["all"], stats["reserved_bytes"]["all"]
        retries = stats["num_alloc_retries"]
        return allocated["peak"], reserved["peak"], allocated["current"], reserved["current"], retries

    def cap(self, limit, channel):
        """PyTorch may take of the limit what the context and the libraries leave."""
        self.limit = limit
        self.context = self.beside_pytorch()
        if self.context is None:
            channel.note("what the CUDA context takes could not be read: the limit holds for PyTorch's own memory")
        else:
            channel.note("of the limit of %s, the context takes %s" % (gib(limit), gib(self.context)))
        self.set_fraction()

    def tighten(self, channel):
        if self.limit is None or self.context is None:
            return
        now = self.beside_pytorch()
        if now is not None and now > self.context:
            grown = now - self.context
            self.context = now
            self.set_fraction()
            channel.note("libraries loaded in the first step take %s more of the limit" % gib(grown))

    def set_fraction(self):
        left = self.limit - (self.context or 0)
        if left <= 0:
            message = "the limit of %s is below what the context alone takes" % gib(self.limit)
            raise Stop("out-of-memory", message, "raise the limit")
        torch.cuda.set_per_process_memory_fraction(min(1.0, left / self.properties.total_memory), self.index)

    def beside_pytorch(self):
        """What this process holds on the card beside PyTorch's own memory: the card's use now, less that before."""
        uuid = str(getattr(self.properties, "uuid", "")).lower()
        now = nvml_used()
        names = [name for name in now if uuid and name.lower().endswith(uuid)] or (list(now) if len(now) == 1 else [])
        if not names or names[0] not in self.used_before:
            return None
        return max(0, now[names[0]] - self.used_before[names[0]] - torch.cuda.memory_reserved(self.index))

    def out_of_memory(self, error):
        text = str(error)
        known = isinstance(error, torch.cuda.OutOfMemoryError)
        words = ("out of memory", "CUBLAS_STATUS_ALLOC_FAILED", "CUDNN_STATUS_ALLOC_FAILED", "HIP out of memory")
        if not known and not (isinstance(error, RuntimeError) and any(word in text for word in words)):
            return super().out_of_memory(error)
        if self.limit is None:
            return "out_of_memory"
        wanted = re.search(r"Tried to allocate ([\d.]+) (bytes|KiB|MiB|GiB)", text)
        units = {"bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
        wanted = float(wanted.group(1)) * units[wanted.group(2)] if wanted else 0
        return "limit" if torch.cuda.mem_get_info(self.index)[0] >= wanted else "out_of_memory"

    def check(self):
        pass

    def empty_cache(self):
        torch.cuda.empty_cache()


class Mps(Cpu):
    """Apple's Metal."""

    kind = "mps"

    def __init__(self, index):
        if not torch.backends.mps.is_available():
            raise Stop("no-device", "PyTorch sees no Metal device", "use --device cpu")
        self.name, self.limit = "mps", None

    def most(self):
        return torch.mps.recommended_max_memory() if hasattr(torch.mps, "recommended_max_memory") else None

    def describe(self):
        total, free = machine_memory()
        return {"name": processor_name(), "total": self.most() or total, "free": free, "capability": None,
                "uuid": None, "pci": None}

    def synchronize(self):
        torch.mps.synchronize()

    def figures(self):
        return None, None, torch.mps.current_allocated_memory(), None, None

    def process(self):
        return torch.mps.driver_allocated_memory()

    def cap(self, limit, channel):
        most = self.most()
        if not most:
            raise Stop("unsupported", "this PyTorch cannot cap memory on Metal", "upgrade torch, or leave the limit out")
        self.limit = limit
        torch.mps.set_per_process_memory_fraction(min(1.0, limit / most))

    def out_of_memory(self, error):
        if isinstance(error, RuntimeError) and "out of memory" in str(error):
            return "out_of_memory" if self.limit is None else "limit"
        return super().out_of_memory(error)

    def check(self):
        pass

    def empty_cache(self):
        torch.mps.empty_cache()


DEVICES = {"cuda": Cuda, "mps": Mps, "cpu": Cpu}


def best_device(otherwise):
    """What PyTorch itself would run on: it may see a card that nobody else on this machine can read."""
    if torch.cuda.is_available():
        return "cuda"
    if getattr(torch.backends, "mps", None) and torch.backends.mps.is_available():
        return "mps"
    return otherwise


def is_hollow():
    """Whether `plimsoll rehearse` stands in for the card: its library is loaded, and kernels do nothing."""
    with contextlib.suppress(OSError, TypeError):
        return hasattr(ctypes.CDLL(None), "plimsoll_hollow_absent")
    return False


def nvml_used():
    """Bytes in use on every NVIDIA card, by the card's UUID; empty where NVML does not answer."""

    class Memory(ctypes.Structure):
        _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]

    used = {}
    try:
        nvml = ctypes.CDLL("nvml.dll" if sys.platform == "win32" else "libnvidia-ml.so.1")
        if nvml.nvmlInit_v2() != 0:
            return used
        count = ctypes.c_uint()
        if nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)) == 0:
            for index in range(count.value):
                card, memory, uuid = ctypes.c_void_p(), Memory(), ctypes.create_string_buffer(96)
                if (
                    nvml.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(index), ctypes.byref(card)) == 0
                    and nvml.nvmlDeviceGetMemoryInfo(card, ctypes.byref(memory)) == 0
                    and nvml.nvmlDeviceGetUUID(card, uuid, ctypes.c_uint(96)) == 0
                ):
                    used[uuid.value.decode()] = memory.used
        nvml.nvmlShutdown()
    except (OSError, AttributeError):
        pass
    return used


def resident():
    """Bytes of memory this process holds; None where the operating system does not tell."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError, AttributeError):
        pass
    try:
        out = subprocess.run(["ps", "-o", "rss=", "-p", str(os.getpid())], stdout=subprocess.PIPE, check=True)
        return int(out.stdout) * 1024
    except (OSError, ValueError, subprocess.SubprocessError):
        return None


def high_water():
    """The most bytes of memory this process has held since the mark was set back; None where Linux does not tell."""
    with contextlib.suppress(OSError, ValueError, StopIteration, IndexError):
        with open("/proc/self/status") as file:
            line = next(line for line in file if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024
    return resident()


def machine_memory():
    """Total and available memory of the machine; 0 and None where it cannot be told."""
    with contextlib.suppress(OSError, ValueError, KeyError):
        with open("/proc/meminfo") as file:
            lines = dict(line.split(":", 1) for line in file if ":" in line)
        kib = {name: int(lines[name].split()[0]) for name in ("MemTotal", "MemAvailable")}
        return kib["MemTotal"] * 1024, kib["MemAvailable"] * 1024
    with contextlib.suppress(OSError, ValueError, AttributeError):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), None
    return 0, None


def processor_name():
    with contextlib.suppress(OSError):
        with open("/proc/cpuinfo") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        command = ["sysctl", "-n", "machdep.cpu.brand_string"]
        name = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True).stdout
        return name.decode().strip()
    return platform.processor() or platform.machine() or "CPU"


def surroundings():
    """The operating system's name, and whether this is WSL or a container."""
    names = {"linux": "linux", "win32": "windows", "darwin": "macos"}

    def says(path, *words):
        with contextlib.suppress(OSError):
            with open(path) as file:
                text = file.read().lower()
            return any(word in text for word in words)
        return False

    container = (
        os.path.exists("/.dockerenv")
        or os.path.exists("/run/.containerenv")
        or bool(os.environ.get("KUBERNETES_SERVICE_HOST"))
        or says("/proc/1/cgroup", "docker", "kubepods", "containerd", "lxc")
    )
    return names.get(sys.platform, sys.platform), says("/proc/sys/kernel/osrelease", "microsoft"), container


def gib(size):
    return "%.2f GiB" % (size / (1 << 30))


# ---------------------------------------------------------------------------------------------------------------------
# Models of our own. Their forward returns the outputs and the loss, if there is something to learn; their modules are called as the estimate calls
# them, which matters to the targets of LoRA.


def own_families(smoothing=0.0):
    """The classes, made only now because their bases come from PyTorch. `smoothing` is that of their labels."""
    from torch import nn
    from torch.nn import functional as F

    def cross_entropy(logits, targets, **options):
        """None where nothing is given to learn: inference."""
        return None if targets is None else F.cross_entropy(logits, targets, label_smoothing=smoothing, **options)

    class Mlp(nn.Module):
        def __init__(self, d_in, hidden, layers, d_out):
            super().__init__()
            net = []
            for i in range(layers):
                last = i == layers - 1
                net.append(nn.Linear(d_in if i == 0 else hidden, d_out if last else hidden))
                if not last:
                    net.append(nn.ReLU())
            self.net = nn.Sequential(*net)

        def forward(self, inputs, targets=None):
            logits = self.net(inputs)
            return logits, cross_entropy(logits, targets)

    class GptBlock(nn.Module):
        def __init__(self, n_embd, n_head, dropout, bias):
            super().__init__()
            self.n_head, self.dropout = n_head, dropout
            self.ln1 = nn.LayerNorm(n_embd, bias=bias)
            self.qkv = nn.Linear(n_embd, 3 * n_embd, bias=bias)
            self.proj = nn.Linear(n_embd, n_embd, bias=bias)
            self.ln2 = nn.LayerNorm(n_embd, bias=bias)
            self.fc = nn.Linear(n_embd, 4 * n_embd, bias=bias)
            self.out = nn.Linear(4 * n_embd, n_embd, bias=bias)
            self.drop = nn.Dropout(dropout)

        def attention(self, x):
            batch, seq, width = x.shape
            q, k, v = self.qkv(self.ln1(x)).split(width, dim=2)
            q = q.view(batch, seq, self.n_head, width // self.n_head).transpose(1, 2)
            k = k.view(batch, seq, self.n_head, width // self.n_head).transpose(1, 2)
            v = v.view(batch, seq, self.n_head, width // self.n_head).transpose(1, 2)
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=self.dropout)
            y = y.transpose(1, 2).contiguous().view(batch, seq, width)
            return self.drop(self.proj(y))

        def forward(self, x):
            x = x + self.attention(x)
            return x + self.drop(self.out(F.gelu(self.fc(self.ln2(x)))))

    class NanoGpt(nn.Module):
        def __init__(self, n_layer, n_head, n_embd, vocab_size, block_size, dropout, bias):
            super().__init__()
            self.wte = nn.Embedding(vocab_size, n_embd)
            self.wpe = nn.Embedding(block_size, n_embd)
            for table in (self.wte, self.wpe):
                nn.init.normal_(table.weight, std=0.02)
            self.drop = nn.Dropout(dropout)
            self.h = nn.ModuleList([GptBlock(n_embd, n_head, dropout, bias) for _ in range(n_layer)])
            self.ln_f = nn.LayerNorm(n_embd, bias=bias)
            self.head = nn.Linear(n_embd, vocab_size, bias=False)
            self.head.weight = self.wte.weight

        def forward(self, inputs, targets=None):
            positions = torch.arange(inputs.shape[1], device=inputs.device)
            x = self.drop(self.wte(inputs) + self.wpe(positions))
            for block in self.h:
                x = block(x)
            logits = self.head(self.ln_f(x))
            if targets is None:
                return logits, None
            return logits, cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1)

    class NBeatsBlock(nn.Module):
        def __init__(self, layers, width, theta, backcast, horizon):
            super().__init__()
            fc = []
            for i in range(layers):
                fc += [nn.Linear(backcast if i == 0 else width, width), nn.ReLU()]
            self.fc = nn.Sequential(*fc)
            self.tb = nn.Linear(width, theta, bias=False)
            self.tf = nn.Linear(width, theta, bias=False)
            self.b = nn.Linear(theta, backcast)
            self.f = nn.Linear(theta, horizon)

        def forward(self, x):
            hidden = self.fc(x)
            return self.b(self.tb(hidden)), self.f(self.tf(hidden))

    class NBeats(nn.Module):
        def __init__(self, stacks, layers, width, theta, backcast, horizon):
            super().__init__()
            blocks = [NBeatsBlock(layers, width, theta, backcast, horizon) for _ in range(stacks)]
            self.blocks = nn.ModuleList(blocks)

        def forecast(self, x):
            forecast = None
            for block in self.blocks:
                backcast, part = block(x)
                x = x - backcast
                forecast = part if forecast is None else forecast + part
            return forecast

        def forward(self, inputs, targets=None):
            forecast = self.forecast(inputs)
            return forecast, None if targets is None else F.mse_loss(forecast, targets)

    class GatLayer(nn.Module):
        def __init__(self, n_in, n_out, heads, concat, dropout):
            super().__init__()
            self.concat, self.dropout = concat, nn.Dropout(dropout)
            self.w = nn.Parameter(torch.randn(heads, n_in, n_out) / math.sqrt(n_in))
            self.a1 = nn.Parameter(torch.randn(heads, n_out, 1) / math.sqrt(n_out))
            self.a2 = nn.Parameter(torch.randn(heads, n_out, 1) / math.sqrt(n_out))

        def forward(self, x, adjacency):
            x = self.dropout(x)
            h = torch.matmul(x, self.w)
            e = F.leaky_relu(torch.matmul(h, self.a1) + torch.matmul(h, self.a2).transpose(1, 2), 0.2)
            # Float16 does not reach to -9e15.
            e = e.masked_fill(adjacency == 0, max(-9e15, torch.finfo(e.dtype).min))
            attention = self.dropout(F.softmax(e, dim=-1))
            o = torch.matmul(attention, h)
            if self.concat:
                return F.elu(o.permute(1, 0, 2).reshape(x.shape[0], -1))
            return o.mean(dim=0)

    class Gat(nn.Module):
        def __init__(self, n_feat, n_hid, n_heads, n_class, dropout):
            super().__init__()
            self.l1 = GatLayer(n_feat, n_hid, n_heads, True, dropout)
            self.l2 = GatLayer(n_hid * n_heads, n_class, 1, False, dropout)

        def forward(self, inputs, adjacency, targets=None):
            logits = self.l2(self.l1(inputs, adjacency), adjacency)
            return logits, cross_entropy(logits, targets)

    class Classifier(nn.Module):
        """A torchvision model with its loss."""

        def __init__(self, net):
            super().__init__()
            self.net = net

        def forward(self, inputs, targets=None):
            logits = self.net(inputs)
            if not isinstance(logits, tuple):
                return logits, cross_entropy(logits, targets)
            # Inception in training has a second classifier halfway.
            logits, aux = logits
            loss = cross_entropy(logits, targets)
            return logits, loss + 0.4 * cross_entropy(aux, targets)

    return {"mlp": Mlp, "nanogpt": NanoGpt, "nbeats": NBeats, "gat": Gat, "torchvision": Classifier}


# The keys of each family that the model is made of, with what holds when one is missing.
FAMILIES = {
    "mlp": {"d_in": 1024, "hidden": 4096, "layers": 4, "d_out": 10},
    "nanogpt": {"n_layer": 12, "n_head": 12, "n_embd": 768, "vocab_size": 50304, "block_size": 1024, "dropout": 0.0,
                "bias": False},
    "nbeats": {"stacks": 30, "layers": 4, "width": 512, "theta": 32, "backcast": 96, "horizon": 24},
    "gat": {"n_feat": 1433, "n_hid": 8, "n_heads": 8, "n_class": 7, "dropout": 0.6},
    "resnet": {"variant": "resnet50", "num_classes": 1000},
    "convnext": {"variant": "convnext_tiny", "num_classes": 1000},
    "swin": {"variant": "swin_t", "num_classes": 1000},
    "vgg": {"variant": "vgg16", "num_classes": 1000},
    "mobilenetv2": {"variant": "mobilenet_v2", "num_classes": 1000},
    "mobilenetv3": {"variant": "mobilenet_v3_large", "num_classes": 1000},
    "mnasnet": {"variant": "mnasnet1_0", "num_classes": 1000},
    "regnet": {"variant": "regnet_y_400mf", "num_classes": 1000},
    "efficientnet": {"variant": "efficientnet_b0", "num_classes": 1000},
    "densenet": {"variant": "densenet121", "num_classes": 1000},
    "inception": {"variant": "inception_v3", "num_classes": 1000},
}
TORCHVISION = {"resnet": ("resnet", "resnext", "wide_resnet"), "convnext": ("convnext",), "swin": ("swin",),
               "vgg": ("vgg",), "mobilenetv2": ("mobilenet_v2",), "mobilenetv3": ("mobilenet_v3",),
               "mnasnet": ("mnasnet",), "regnet": ("regnet",), "efficientnet": ("efficientnet",),
               "densenet": ("densenet",), "inception": ("inception",)}


def family_keys(model):
    family = model["family"]
    if family not in FAMILIES:
        known = ", ".join(FAMILIES)
        raise Stop("unsupported", "the family %s cannot be measured" % clean(family), "use one of %s" % known)
    return {name: model.get(name, default) for name, default in FAMILIES[family].items()}


def build_family(scenario, packages):
    model, training = scenario["model"], scenario["training"]
    family, keys = model["family"], family_keys(model)
    if training["checkpointing"] != "none":
        message = "the family %s has no gradient checkpointing" % family
        raise Stop("unsupported", message, 'use checkpointing = "none", or a Hugging Face model')
    if family == "gat" and scenario["input"]["batch"] != 1:
        raise Stop("unsupported", "gat trains on one whole graph at a time", "use batch = 1, and more nodes with seq")
    classes = own_families(training.get("label_smoothing", 0.0))
    if family not in TORCHVISION:
        return classes[family](**keys)
    variant = keys["variant"]
    if not any(variant.startswith(prefix) for prefix in TORCHVISION[family]):
        message = "%s is no variant of %s" % (clean(variant), family)
        raise Stop("unsupported", message, "name one of torchvision's, such as %s" % FAMILIES[family]["variant"])
    try:
        net = packages["torchvision"].models.get_model(variant, weights=None, num_classes=keys["num_classes"])
    except (ValueError, AttributeError) as error:
        message = "torchvision %s has no %s" % (packages["torchvision"].__version__, clean(variant))
        raise Stop("unsupported", message, "name another variant, or upgrade torchvision") from error
    return classes["torchvision"](net)


# ---------------------------------------------------------------------------------------------------------------------
# Hugging Face models, from their config with random weights

AUTO_CLASSES = {
    "causal-lm": "AutoModelForCausalLM",
    "masked-lm": "AutoModelForMaskedLM",
    "sequence-classification": "AutoModelForSequenceClassification",
    "seq2seq-lm": "AutoModelForSeq2SeqLM",
    "image-classification": "AutoModelForImageClassification",
    "contrastive": "AutoModel",
    "speech-seq2seq": "AutoModelForSpeechSeq2Seq",
}
# Model types of convolutions alone, and those whose attention is eager whatever is asked for: transformers builds them with
# "eager" only.
WITHOUT_ATTENTION = ("convnext", "convnextv2", "resnet", "gpt_neo", "gptj", "bloom", "deberta-v2", "gpt_oss")
# Those that also see: their class is another one, and the text has a config of its own.
WITH_IMAGES = ("qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe")
# What peft calls them; without one it adds adapters and nothing else.
PEFT_TASKS = {"causal-lm": "CAUSAL_LM", "seq2seq-lm": "SEQ_2_SEQ_LM"}
# Keys of a config.json that say where it comes from or how it was stored, not what the model is.
FOREIGN_KEYS = ("model_type", "architectures", "auto_map", "dtype", "torch_dtype", "transformers_version",
                "_name_or_path", "_attn_implementation", "attn_implementation", "use_cache")


def new_tokens(scenario):
    """How many tokens are to be generated; None where nothing is: in training, and where inference is one forward."""
    return scenario["input"].get("max_new_tokens") if scenario["training"]["mode"] == "inference" else None


def uses_cache(scenario, config):
    """Whether a forward makes and returns keys and values. A generation does. A single forward does not, and a training
    step as the scenario says; where it does not say, as core/scenario/src/training.rs has it."""
    model, training = scenario["model"], scenario["training"]
    speech = model["task"] == "speech-seq2seq"
    said = config.get("use_cache")
    if said is None and isinstance(config.get("text_config"), dict):
        said = config["text_config"].get("use_cache")
    if training["mode"] != "train":
        return new_tokens(scenario) is not None or (speech and said is not False)
    if "use_cache" in training:
        return training["use_cache"]
    if speech:
        return said is not False
    whole = training.get("loss_impl", "full") == "full" and not training.get("label_smoothing")
    if not training["keep_outputs"] or not whole:
        return False
    return said is not False if "catalog" in model else said is True


def read_config(scenario, config, transformers):
    """The config object that the job's dictionary stands for."""
    if config.get("quantization_config"):
        message = "the config asks for quantised weights, which cannot be made without the checkpoint"
        raise Stop("unsupported", message, "take quantization_config out of the config")
    keys = {name: value for name, value in config.items() if name not in FOREIGN_KEYS}
    if scenario["model"]["task"] == "image-classification" and not {"num_labels", "id2label"} & keys.keys():
        # transformers would make two; the estimate takes ImageNet's.
        keys["num_labels"] = 1000
    model_type = config.get("model_type")
    try:
        made = transformers.AutoConfig.for_model(model_type, **keys)
    except Exception as error:
        message = "transformers %s does not take this config: %s" % (transformers.__version__, clean(error))
        raise Stop("unsupported", message, "check model_type, or upgrade transformers") from error
    made.use_cache = uses_cache(scenario, config)
    if model_type in WITH_IMAGES:
        made.text_config.use_cache = made.use_cache
    # What a batch of random tokens needs and not every config says.
    if scenario["model"]["task"] in ("seq2seq-lm", "speech-seq2seq", "sequence-classification"):
        # A decoder classifies a single sample without looking for padding.
        single = scenario["model"]["task"] == "sequence-classification" and scenario["input"]["batch"] == 1
        if getattr(made, "pad_token_id", None) is None and not single:
            made.pad_token_id = 0
        if getattr(made, "is_encoder_decoder", False) and getattr(made, "decoder_start_token_id", None) is None:
            made.decoder_start_token_id = made.pad_token_id
    return made


def build_hugging_face(scenario, config, dtype, transformers):
    """The base model; adapters and checkpointing come when its large weights are known."""
    task = scenario["model"]["task"]
    if task not in AUTO_CLASSES:
        message = "a Hugging Face model cannot be run for %s" % clean(task)
        raise Stop("unsupported", message, "use one of %s" % ", ".join(AUTO_CLASSES))
    named = "dtype" if version_of(transformers.__version__) >= (5, 0) else "torch_dtype"
    attention = "eager" if config.model_type in WITHOUT_ATTENTION else scenario["training"]["attention"]
    options = {"attn_implementation": attention, named: dtype}
    sees = task == "causal-lm" and config.model_type in WITH_IMAGES
    try:
        kind = "AutoModelForImageTextToText" if sees else AUTO_CLASSES[task]
        return getattr(transformers, kind).from_config(config, **options)
    except (ValueError, KeyError, AttributeError, TypeError, ImportError) as error:
        message = "transformers %s does not build this model: %s" % (transformers.__version__, clean(error))
        raise Stop("unsupported", message, 'check the config and the task; attention = "eager" works everywhere') from error


def add_adapters(model, scenario, peft):
    lora, task = scenario["training"]["lora"], scenario["model"]["task"]
    targets, rank = lora["targets"], lora["rank"]
    if targets == "all-linear" and "family" in scenario["model"]:
        # peft finds the output head, which stays as it is, in Hugging Face models only.
        linears = [name for name, module in model.named_modules() if isinstance(module, torch.nn.Linear)]
        targets = [name for name in linears if name != "head"]
    try:
        options = peft.LoraConfig(
            r=rank,
            lora_alpha=2 * rank,
            lora_dropout=lora["dropout"],
            target_modules=targets if isinstance(targets, str) else list(targets),
            task_type=None if "family" in scenario["model"] else PEFT_TASKS.get(task),
            use_dora=lora.get("dora", False),
            modules_to_save=lora.get("modules_to_save"),
        )
        if lora.get("autocast_adapter_dtype", True):
            return peft.get_peft_model(model, options)
        return peft.get_peft_model(model, options, autocast_adapter_dtype=False)
    except (ValueError, TypeError) as error:
        message = "peft %s does not add these adapters: %s" % (peft.__version__, clean(error))
        raise Stop("unsupported", message, 'name modules as the model does, or use targets = "all-linear"') from error


def quantized(training):
    return training.get("quantization", "none") != "none"


def prepared(training):
    """Whether a quantized base goes through peft's prepare_model_for_kbit_training."""
    return training["mode"] == "train" and training.get("prepare_kbit", True)


def loaded_dtype(training):
    """What the weights are loaded in: before they are quantized, the dtype the quantized layers compute in."""
    if quantized(training):
        names = {"fp16-amp": torch.float16, "bf16-amp": torch.bfloat16}
    else:
        names = {}
    names.update(fp16=torch.float16, bf16=torch.bfloat16)
    # A frozen base may be loaded in another dtype than goes with the precision.
    said = training.get("base_dtype", "precision")
    return getattr(torch, said) if said != "precision" else names.get(training["precision"], torch.float32)


def quantize(model, training, packages, device):
    """The model on the device as `from_pretrained` with a BitsAndBytesConfig leaves it, ready for adapters."""
    transformers, bitsandbytes = packages["transformers"], packages["bitsandbytes"]
    from transformers.quantizers import AutoHfQuantizer

    word = training["quantization"]
    if word == "int8":
        options = transformers.BitsAndBytesConfig(load_in_8bit=True)
    else:
        options = transformers.BitsAndBytesConfig(
            load_in_4bit=True,
            bnb_4bit_quant_type="nf4",
            bnb_4bit_use_double_quant=word == "nf4-double",
            bnb_4bit_compute_dtype=loaded_dtype(training),
            bnb_4bit_quant_storage=training.get("quant_storage", "uint8"),
        )
    quantizer = AutoHfQuantizer.from_config(options)
    before = dict(model.named_modules())
    quantizer.preprocess_model(model=model, device_map=None)
    for name, module in model.named_modules():
        old = before.get(name)
        if module is old or not isinstance(module, (bitsandbytes.nn.Linear4bit, bitsandbytes.nn.Linear8bitLt)):
            continue
        # One after the other, so that the device never holds more than one of them as it was.
        with torch.no_grad():
            weight = old.weight.detach().to(device.name)
            if is_large(weight):
                fill(weight)
            if not isinstance(old, torch.nn.Linear):
                weight = weight.t().contiguous()  # transformers' Conv1D
            module.weight = quantized_parameter(module, weight, options, bitsandbytes)
        module.bias = old.bias
        old.weight = None
    quantizer.postprocess_model(model)
    model.to(device.name)
    if prepared(training):
        # What is not quantized becomes float32, and what that frees is given back. It freezes the base as well, which
        # get_peft_model does all the same.
        model = packages["peft"].prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)
    return model


def quantized_parameter(module, weight, options, bitsandbytes):
    if isinstance(module, bitsandbytes.nn.Linear8bitLt):
        numbers, scales, _ = bitsandbytes.functional.int8_vectorwise_quant(weight.to(torch.float16))
        return bitsandbytes.nn.Int8Params(numbers, requires_grad=False, has_fp16_weights=False, CB=numbers, SCB=scales)
    made = bitsandbytes.nn.Params4bit(
        weight,
        requires_grad=False,
        compress_statistics=options.bnb_4bit_use_double_quant,
        quant_type=options.bnb_4bit_quant_type,
        quant_storage=options.bnb_4bit_quant_storage,
        module=module,
    )
    return made.to(weight.device)


def numbers_in(parameter):
    """How many numbers it stands for: a four-bit weight holds two in a byte."""
    state = getattr(parameter, "quant_state", None)
    return parameter.numel() if state is None else math.prod(state.shape)


def fill(weight):
    weight.normal_(0.0, min(0.02, weight[0].numel() ** -0.5))


# As core/exchange/src/write/keep_selected.py has it, line for line: `compute_intensive_ops` of torch/_functorch/partitioners.py,
# and what torchtitan adds to them (`SelectiveAC` in torchtitan/distributed/activation_checkpoint.py).
def keep_selected():
    """Layers are computed again in backward, but for what takes time; of products of two matrices every other one is kept."""
    from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

    names = "mm addmm bmm convolution convolution_backward _scaled_mm max topk".split()
    names += [f"_scaled_dot_product_{kernel}_attention" for kernel in ("flash", "efficient", "cudnn")]
    names += ["_flash_attention_forward", "_efficient_attention_forward"]
    kept = {getattr(torch.ops.aten, name).default for name in names if hasattr(torch.ops.aten, name)}
    products = {False: 0, True: 0}

    def policy(context, op, *args, **kwargs):
        if op is torch.ops.aten.mm.default:
            products[context.is_recompute] += 1
            if products[context.is_recompute] % 2 == 0:
                return CheckpointPolicy.PREFER_RECOMPUTE
        return CheckpointPolicy.MUST_SAVE if op in kept else CheckpointPolicy.PREFER_RECOMPUTE

    return create_selective_checkpoint_contexts(policy)


def spare_layers(model, every):
    """Leaves the checkpoint of every `every`-th layer of each stack on, and of the others off."""
    from transformers.modeling_layers import GradientCheckpointingLayer

    stacks = [stack for stack in model.modules() if isinstance(stack, torch.nn.ModuleList)]
    layers = [(place, layer) for stack in stacks for place, layer in enumerate(stack, 1)
              if isinstance(layer, GradientCheckpointingLayer)]
    if not layers:
        raise Stop("unsupported", "the layers of this model cannot be checkpointed one by one",
                   "leave checkpoint_every out")
    for place, layer in layers:
        layer.gradient_checkpointing = place % every == 0


def enable_checkpointing(model, training):
    keywords = {"use_reentrant": False, "preserve_rng_state": False}
    if training["checkpointing"] == "selective":
        keywords["context_fn"] = keep_selected
    try:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=keywords)
    except (ValueError, TypeError) as error:
        message = "this model has no gradient checkpointing: %s" % clean(error)
        raise Stop("unsupported", message, 'use checkpointing = "none"') from error
    if training.get("checkpoint_every", 1) > 1:
        spare_layers(model, training["checkpoint_every"])
    if training.get("lora") is not None:
        # The frozen layers before the first adapter would otherwise have no gradient to recompute for.
        model.enable_input_require_grads()


# ---------------------------------------------------------------------------------------------------------------------
# One of several ranks: how a model is spread over them, as core/parallel has it


def check_cards(kind):
    """A rank has a card of its own."""
    here = int(os.environ["LOCAL_WORLD_SIZE"])
    if kind == "mps":
        raise Stop("few-devices", "Metal has one device, and the scenario %d" % here, "use --device cpu, or one card")
    if kind == "cuda" and torch.cuda.is_available() and torch.cuda.device_count() < here:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        among = "" if visible is None else " (CUDA_VISIBLE_DEVICES is %s)" % clean(visible)
        message = "the scenario has %d cards, PyTorch sees %d%s" % (here, torch.cuda.device_count(), among)
        raise Stop("few-devices", message, "take as many --gpus as there are, or --device cpu")


class Ranks:
    """This process among those that train together."""

    def __init__(self, scenario, device):
        import torch.distributed as distributed

        if not distributed.is_available():
            message = "this PyTorch was built without torch.distributed"
            raise Stop("unsupported", message, "install a build of PyTorch that has it, or use one card")
        self.scenario, self.device, self.distributed = scenario, device, distributed
        self.parallel = scenario["parallel"]
        self.strategy = self.parallel.get("strategy", "ddp")
        if self.strategy not in SPREAD:
            message = "the strategy %s cannot be measured" % clean(self.strategy)
            raise Stop("unsupported", message, "use one of %s" % ", ".join(SPREAD))
        if scenario["training"].get("loss_impl", "full") != "full":
            message = "a loss of another kind goes past what spreads the model: it is measured on one card only"
            raise Stop("unsupported", message, 'use loss_impl = "full"')
        # NCCL has no part on a card that is not there.
        self.hollow = device.kind == "cuda" and is_hollow()
        distributed.init_process_group("cpu:gloo,cuda:nccl" if device.kind == "cuda" and not self.hollow else "gloo")
        self.rank, self.counts = distributed.get_rank(), None
        self.sent = {}
        self.watch("all_gather_into_tensor", "gathered", lambda output, _: output)
        self.watch("reduce_scatter_tensor", "reduced", lambda _, given: given)

    def own_path(self, path):
        """Of a file that every rank writes: the first takes the name itself."""
        if not path or self.rank == 0:
            return path
        root, ending = os.path.splitext(path)
        return "%s-rank%d%s" % (root, self.rank, ending)

    # ---- what is sent

    def watch(self, name, kind, whole):
        """Counts the buffers that a collective is called with: the larger one of both, which holds every rank's part."""
        call = getattr(self.distributed, name)

        @functools.wraps(call)
        def counted(output, given, *args, **kwargs):
            buffer = whole(output, given)
            key = kind, buffer.numel() * buffer.element_size()
            self.sent[key] = self.sent.get(key, 0) + 1
            if self.hollow:
                # gloo copies what it reduces on the card, and holds on to what it gathers: NCCL does neither. Nothing is computed
                # there, so nothing is missed.
                return Done() if kwargs.get("async_op") else None
            return call(output, given, *args, **kwargs)

        # Wrappers give both by name, or in this order.
        setattr(self.distributed, name, lambda *args, **kwargs: counted(*args, **named(kwargs)))

    def count_anew(self):
        self.sent = {}

    def buffers(self, model):
        """What the last step sent through, by size: the buckets of DDP's reducer, what FSDP gathered and reduced."""
        sent = dict(self.sent)
        if self.strategy == "ddp":
            told = model._get_ddp_logging_data()
            sizes = told.get("rebuilt_bucket_sizes") or told.get("bucket_sizes") or ""
            for size in str(sizes).split(","):
                if size.strip():
                    key = "bucket", int(size)
                    sent[key] = sent.get(key, 0) + 1
        return [{"kind": kind, "bytes": size, "count": count} for (kind, size), count in sorted(sent.items())]

    # ---- the model

    def place(self, config):
        """Where the model is made: on the `meta` device, on the `host`, or whole on the `device`."""
        if self.strategy == "fsdp1" or self.strategy.startswith("zero"):
            return "host"
        if self.strategy != "fsdp2":
            return "device"
        on_card = quantized(self.scenario["training"])
        place = self.fsdp().get("load", "cuda" if on_card else "meta")
        # Parameters that are shared come apart on the meta device.
        if place == "meta" and (getattr(config, "tie_word_embeddings", False) or on_card):
            return "device"
        return {"meta": "meta", "cpu": "host", "cuda": "device"}[place]

    def fsdp(self):
        return self.parallel.get("fsdp") or {}

    def spread(self, model):
        total = sum(numbers_in(p) for p in model.parameters())
        trainable = sum(p.numel() for p in model.parameters() if p.requires_grad)
        self.counts = {"total": total, "trainable": trainable}
        try:
            return getattr(self, SPREAD[self.strategy])(model)
        except (ValueError, TypeError, AttributeError, ImportError, NotImplementedError) as error:
            message = "PyTorch %s does not spread this model with %s: %s" % (torch.__version__, self.strategy, clean(error))
            raise Stop("unsupported", message, "use another strategy") from error

    def alone(self, model):
        return model

    def with_ddp(self, model):
        options = {name: value for name, value in (self.parallel.get("ddp") or {}).items() if name != "no_sync"}
        own = [self.device.index] if self.device.kind == "cuda" else None
        return torch.nn.parallel.DistributedDataParallel(model, device_ids=own, **options)

    def mesh(self):
        from torch.distributed.device_mesh import init_device_mesh

        copies, count = self.parallel.get("replicate", 1), cards(self.scenario)
        if copies == 1:
            return init_device_mesh(self.device.kind, (count,))
        return init_device_mesh(self.device.kind, (copies, count // copies), mesh_dim_names=("replicate", "shard"))

    def dtype(self, key):
        return {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}.get(self.fsdp().get(key))

    def with_fsdp2(self, model):
        try:
            from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard
        except ImportError as error:
            message = "PyTorch %s has no torch.distributed.fsdp.fully_shard: it came with 2.6" % torch.__version__
            raise Stop("unsupported", message, 'python -m pip install --upgrade "torch>=2.6"') from error
        keys = self.fsdp()
        policy = MixedPrecisionPolicy(param_dtype=self.dtype("param_dtype"), reduce_dtype=self.dtype("reduce_dtype"))
        options = {"mp_policy": policy, "mesh": self.mesh()}
        if keys.get("cpu_offload"):
            pinned = self.device.kind == "cuda" and not self.hollow and keys.get("pin_memory", True)
            options["offload_policy"] = CPUOffloadPolicy(pin_memory=pinned)
        reshard = {True: True, "true": True, False: False, "false": False}.get(keys.get("reshard_after_forward"))
        if reshard is not None:
            options["reshard_after_forward"] = reshard
        on_meta = next(model.parameters()).is_meta
        wrap = keys.get("wrap", "layer")
        if wrap == "torchtitan":
            fully_shard(model.model.embed_tokens, **options)
        if wrap != "root":
            for block in blocks(model):
                fully_shard(block, **options)
        if wrap == "torchtitan":
            fully_shard([model.model.norm, model.lm_head], **{"reshard_after_forward": False, **options})
        fully_shard(model, **options)
        if on_meta:
            model.to_empty(device="cpu" if keys.get("cpu_offload") else self.device.name)
        for module in model.modules():
            for name, buffer in list(module._buffers.items()):
                if buffer is None:
                    continue
                if keys.get("cpu_offload"):
                    module._buffers[name] = buffer = buffer.to(self.device.name)
                if on_meta:
                    # Positions of zero are as good as any.
                    buffer.zero_()
        if not keys.get("reshard_after_backward", True):
            model.set_reshard_after_backward(False)
        return model

    def with_fsdp1(self, model):
        from torch.distributed import fsdp
        from torch.distributed.fsdp.wrap import lambda_auto_wrap_policy

        if self.device.kind == "cpu":
            message = "FullyShardedDataParallel needs a card: PyTorch runs it on no processor"
            raise Stop("unsupported", message, "use strategy = fsdp2, or a card")
        keys = self.fsdp()
        wrapped = {id(block) for block in blocks(model)} if keys.get("wrap", "layer") != "root" else set()
        if keys.get("wrap") == "peft":
            # `fsdp_auto_wrap_policy` of peft: every leaf that is trained besides.
            leaves = (module for module in model.modules() if not list(module.children()))
            weights = ((module, getattr(module, "weight", None)) for module in leaves)
            wrapped |= {id(module) for module, weight in weights if weight is not None and weight.requires_grad}
        precision = None
        if keys.get("param_dtype") or keys.get("reduce_dtype"):
            precision = fsdp.MixedPrecision(param_dtype=self.dtype("param_dtype"), reduce_dtype=self.dtype("reduce_dtype"))
        ahead = {"pre": fsdp.BackwardPrefetch.BACKWARD_PRE, "post": fsdp.BackwardPrefetch.BACKWARD_POST, "none": None}
        sharding = keys.get("sharding_strategy", "full-shard").upper().replace("-", "_")
        return fsdp.FullyShardedDataParallel(
            model, auto_wrap_policy=functools.partial(lambda_auto_wrap_policy, lambda_fn=lambda module: id(module) in wrapped),
            mixed_precision=precision, use_orig_params=keys.get("use_orig_params", False), device_id=self.device.index,
            sharding_strategy=fsdp.ShardingStrategy[sharding],
            cpu_offload=fsdp.CPUOffload(offload_params=True) if keys.get("cpu_offload") else None,
            backward_prefetch=ahead[keys.get("backward_prefetch", "pre")],
        )

    # ---- the loop

    def micro_batch(self, model, last):
        """What a micro-batch is run in: of an accumulation only the last one may have its gradients summed."""
        every = self.fsdp().get("sync_every_micro_batch", True)
        if self.strategy == "fsdp2":
            if not every:
                model.set_requires_gradient_sync(last)
            return contextlib.nullcontext()
        if self.strategy.startswith("zero"):
            return contextlib.nullcontext()
        quiet = not every if self.strategy == "fsdp1" else (self.parallel.get("ddp") or {}).get("no_sync", True)
        return model.no_sync() if quiet and not last else contextlib.nullcontext()


# DeepSpeed's engine spreads the model itself, with its optimizer: `Zero`.
SPREAD = {"ddp": "with_ddp", "fsdp2": "with_fsdp2", "fsdp1": "with_fsdp1", "zero-0": "alone", "zero-1": "alone",
          "zero-2": "alone", "zero-3": "alone"}


class Done:
    """A collective that was to run beside the step, and is over. FSDP holds what it gathers for longer where there is none."""

    def wait(self, timeout=None):
        return True

    def is_completed(self):
        return True


def named(kwargs):
    """The two tensors of a collective by the names that `counted` has for them."""
    names = {"output_tensor": "output", "input_tensor": "given", "input": "given"}
    return {names.get(name, name): value for name, value in kwargs.items()}


def blocks(model):
    """The outermost entries of lists of modules: what FSDP cuts one by one."""
    found = []

    def walk(module):
        for child in module.children():
            if isinstance(child, (torch.nn.ModuleList, torch.nn.Sequential)):
                found.extend(child)
            else:
                walk(child)

    walk(model)
    return [block for block in found if any(True for _ in block.parameters())]


# ---------------------------------------------------------------------------------------------------------------------
# Building


def without_large_randomness():
    """Leaves large weights unfilled while the model is built on the host: they are filled on the device."""
    from torch.overrides import TorchFunctionMode

    random = {"normal_", "uniform_", "trunc_normal_", "kaiming_normal_", "kaiming_uniform_", "xavier_normal_",
              "xavier_uniform_", "erfinv_", "orthogonal_"}

    class WithoutLargeRandomness(TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            kwargs = kwargs or {}
            if getattr(function, "__name__", None) in random:
                tensor = args[0] if args else kwargs.get("tensor")
                if isinstance(tensor, torch.Tensor) and is_large(tensor):
                    return tensor
            return function(*args, **kwargs)

    return WithoutLargeRandomness()


def is_large(tensor):
    return tensor.dim() >= 2 and tensor.numel() >= LARGE


def build(scenario, config, packages, device):
    """The model on the device, in the scenario's mode. Nothing but its parameters and buffers is ever made there."""
    training = scenario["training"]
    dtype = loaded_dtype(training)
    if quantized(training) and config is None:
        message = "the family %s is no model that transformers quantizes" % clean(scenario["model"]["family"])
        raise Stop("unsupported", message, "leave quantization out, or use a Hugging Face model")
    # Of several ranks, where the model is made before it is spread: whole on the device, but for FSDP.
    place = "device" if device.ranks is None else device.ranks.place(config)
    with without_large_randomness(), torch.device("meta") if place == "meta" else contextlib.nullcontext():
        if config is None:
            torch.set_default_dtype(dtype)
            try:
                model = build_family(scenario, packages)
            finally:
                torch.set_default_dtype(torch.float32)
        else:
            model = build_hugging_face(scenario, config, dtype, packages["transformers"])
        if quantized(training):
            model = quantize(model, training, packages, device)
            if prepared(training):
                dtype = torch.float32
        if training.get("lora") is not None:
            model = add_adapters(model, scenario, packages["peft"])
    if training["checkpointing"] != "none":
        enable_checkpointing(model, training)
    model.train(training["mode"] == "train")
    if place == "device":
        model.to(device.name)
    if place != "meta":
        fill_large(model)
    if device.ranks is not None:
        model = device.ranks.spread(model)
    if place == "meta":
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                fill_shard(name, parameter.to_local())
    return model, dtype


def fill_large(model):
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if is_large(parameter) and parameter.is_floating_point() and "lora_" not in name:
                fill(parameter)


def fill_shard(name, part):
    """What was made on the meta device holds nothing at all."""
    if part.dim() >= 2:
        part.normal_(0.0, 0.02)
    else:
        part.fill_(1.0 if name.endswith("weight") else 0.0)


def make_optimizers(training, model, parameters, packages, device, channel):
    """The optimizers, in the order they step: one, but for Muon, which leaves a part of the parameters to AdamW."""
    name, implementation = training["optimizer"], training["optimizer_impl"]
    if name == "adafactor":
        transformers = packages["transformers"]
        if hasattr(transformers, "Adafactor"):
            Adafactor = transformers.Adafactor
        else:
            from transformers.optimization import Adafactor
        return [Adafactor(parameters, lr=1e-4, scale_parameter=False, relative_step=False)]
    if name in ("adamw-8bit", "paged-adamw", "paged-adamw-8bit"):
        bitsandbytes = import_for_cuda("bitsandbytes", "the optimizer %s" % name, device, channel)
        named = {"adamw-8bit": "AdamW8bit", "paged-adamw": "PagedAdamW", "paged-adamw-8bit": "PagedAdamW8bit"}[name]
        return [getattr(bitsandbytes.optim, named)(parameters, lr=1e-4)]
    if name == "adafactor-torch":
        if not hasattr(torch.optim, "Adafactor"):
            message = "PyTorch %s has no Adafactor: it came with 2.5" % torch.__version__
            raise Stop("unsupported", message, 'python -m pip install --upgrade "torch>=2.5", or use optimizer = "adafactor"')
    if name == "lion" and implementation == "fused":
        bitsandbytes = import_for_cuda("bitsandbytes", "the optimizer lion, fused,", device, channel)
        return [bitsandbytes.optim.Lion(parameters, lr=1e-4)]
    if name == "lion":
        import_package("lion_pytorch", "the optimizer lion")
        if implementation == "foreach":
            from lion_pytorch.foreach import Lion
        else:
            from lion_pytorch import Lion
        return [Lion(parameters, lr=1e-4, weight_decay=1e-2)]
    if name == "muon":
        if not hasattr(torch.optim, "Muon"):
            message = "PyTorch %s has no Muon: it came with 2.9" % torch.__version__
            raise Stop("unsupported", message, 'python -m pip install --upgrade "torch>=2.9", or use another optimizer')
        matrices = hidden_matrices(model, parameters)
        chosen = {id(p) for p in matrices}
        rest = [p for p in parameters if id(p) not in chosen]
        muon = [torch.optim.Muon(matrices, lr=1e-4)] if matrices else []
        # An optimizer without parameters is an error.
        return muon + ([classic_optimizer("adamw", training, rest)] if rest else [])
    return [classic_optimizer(name, training, parameters)]


def hidden_matrices(model, parameters):
    """The parameters that are Muon's: matrices, but for tables of embeddings and the output head."""
    outer = {id(module.weight) for module in model.modules() if isinstance(module, torch.nn.Embedding)}
    for module in model.modules():
        head = module.get_output_embeddings() if hasattr(module, "get_output_embeddings") else None
        if head is not None:
            outer.add(id(head.weight))
    return [p for p in parameters if p.dim() == 2 and id(p) not in outer]


def classic_optimizer(name, training, parameters):
    implementation = training["optimizer_impl"]
    options = {"foreach": {"foreach": True}, "fused": {"fused": True}, "for-loop": {"foreach": False}}[implementation]
    classes = {"sgd": torch.optim.SGD, "sgd-momentum": torch.optim.SGD, "adam": torch.optim.Adam,
               "adamw": torch.optim.AdamW, "adagrad": torch.optim.Adagrad, "rmsprop": torch.optim.RMSprop,
               "nadam": torch.optim.NAdam, "adamax": torch.optim.Adamax,
               "rmsprop-momentum": torch.optim.RMSprop, "rmsprop-centered": torch.optim.RMSprop,
               "rmsprop-centered-momentum": torch.optim.RMSprop, "adafactor-torch": getattr(torch.optim, "Adafactor", None)}
    if name not in classes:
        known = ", ".join(list(classes) + ["adafactor", "adamw-8bit", "paged-adamw", "paged-adamw-8bit", "lion", "muon"])
        raise Stop("unsupported", "the optimizer %s cannot be measured" % clean(name), "use one of %s" % known)
    if name.endswith("-momentum"):
        options["momentum"] = 0.9
    if training.get("weight_decay"):
        options["weight_decay"] = training["weight_decay"]
    if training.get("amsgrad"):
        options["amsgrad"] = True
    if name.startswith("rmsprop-centered"):
        options["centered"] = True
    try:
        return classes[name](parameters, lr=1e-4, **options)
    except (RuntimeError, TypeError, ValueError) as error:
        message = "PyTorch %s has no %s %s here: %s" % (torch.__version__, implementation, name, clean(error))
        raise Stop("unsupported", message, 'use optimizer_impl = "foreach"') from error


def import_for_cuda(name, needed_for, device, channel):
    """A package whose kernels run on CUDA only."""
    if device.kind != "cuda":
        message = "%s needs %s, which runs on CUDA only" % (needed_for, name)
        raise Stop("unsupported", message, "use --device cuda, or another recipe")
    package = import_package(name, needed_for)
    channel.note("%s %s" % (name, getattr(package, "__version__", "of unknown version")))
    return package


def make_average(model):
    """The moving average of the weights: a copy of the whole model on its own device."""
    from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

    return AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.999))


def make_scaler(kind, scale=None):
    """A GradScaler, which PyTorch has for every device since 2.3 and for CUDA before."""
    options = {} if scale is None else {"init_scale": scale}
    if hasattr(torch.amp, "GradScaler"):
        return torch.amp.GradScaler(kind, **options)
    if kind == "cuda":
        return torch.cuda.amp.GradScaler(**options)
    message = "PyTorch %s has no GradScaler for %s" % (torch.__version__, kind)
    raise Stop("unsupported", message, 'upgrade torch, or use precision = "bf16-amp"')


def make_inputs(scenario, config, dtype, device):
    """A function that makes a random batch of so many samples on the device: the model's arguments by name. Labels are
    among them where there is something to learn."""
    where = {"device": device.name}
    given, task = scenario["input"], scenario["model"]["task"]
    trains, generates = scenario["training"]["mode"] == "train", new_tokens(scenario) is not None

    def floats(*shape):
        return torch.randn(shape, dtype=dtype, **where)

    def integers(most, *shape):
        return torch.randint(0, max(1, most), shape, **where)

    if config is None:
        return own_inputs(scenario, floats, integers)

    text = getattr(config, "text_config", None) or config
    vision = getattr(config, "vision_config", None) or config
    vocabulary = getattr(text, "vocab_size", None)
    seq = given.get("seq")

    def mask(samples, tokens):
        made = torch.ones((samples, tokens), dtype=torch.int64, **where)
        padding = max(1, tokens // 4)
        if given["attention_mask"] != "padded":
            return made
        if generates and not getattr(config, "is_encoder_decoder", False):
            # What a decoder is to go on with stands at the end.
            made[:, : min(padding, tokens - 1)].zero_()
        else:
            made[:, tokens - padding :].zero_()
        return made

    def tokens(samples):
        batch = {"input_ids": integers(vocabulary, samples, seq)}
        if not trains:
            pass
        elif task == "seq2seq-lm":
            batch["labels"] = integers(vocabulary, samples, given.get("target_seq") or seq)
        elif task == "sequence-classification":
            regression = config.num_labels == 1
            batch["labels"] = floats(samples) if regression else integers(config.num_labels, samples)
        else:
            batch["labels"] = integers(vocabulary, samples, seq)
        if given["attention_mask"] != "none":
            batch["attention_mask"] = mask(samples, seq)
        return batch

    def images(samples):
        size = given.get("image") or getattr(vision, "image_size", None) or 224
        high, wide = size if isinstance(size, (list, tuple)) else (size, size)
        return floats(samples, getattr(vision, "num_channels", 3), high, wide)

    def labelled_images(samples):
        batch = {"pixel_values": images(samples)}
        if trains:
            batch["labels"] = integers(config.num_labels, samples)
        return batch

    def pairs(samples):
        # Texts are cut to the positions the text tower has, as its tokenizer does.
        positions = getattr(text, "max_position_embeddings", None) or seq or 77
        batch = {"input_ids": integers(vocabulary, samples, min(seq or positions, positions))}
        batch["pixel_values"] = images(samples)
        if trains:
            batch["return_loss"] = True
        return batch

    def speech(samples):
        batch = {"input_features": floats(samples, config.num_mel_bins, 2 * config.max_source_positions)}
        if trains:
            batch["labels"] = integers(vocabulary, samples, seq)
        return batch

    makers = {"image-classification": labelled_images, "contrastive": pairs, "speech-seq2seq": speech}
    if task not in makers or (task == "speech-seq2seq" and trains):
        if not seq:
            raise Stop("bad-job", "%s needs input.seq" % task, "say how many tokens a sample has")
        if not vocabulary:
            raise Stop("unsupported", "the config has no vocab_size, which %s needs" % task, "check the task")
    return makers.get(task, tokens)


def own_inputs(scenario, floats, integers):
    family, keys = scenario["model"]["family"], family_keys(scenario["model"])
    seq, image = scenario["input"].get("seq"), scenario["input"].get("image") or 224
    if family in ("nanogpt", "gat") and not seq:
        raise Stop("bad-job", "%s needs input.seq" % family, "say how many tokens or nodes there are")

    def graph(samples):
        # Every second edge on average, and every node its own neighbour. In place: nothing else is made on the device.
        batch = {"inputs": floats(seq, keys["n_feat"]), "adjacency": floats(seq, seq)}
        batch["adjacency"].uniform_().round_().fill_diagonal_(1)
        return batch

    # What goes in, and what is to be learnt of it.
    inputs, targets = {
        "mlp": (lambda n: {"inputs": floats(n, keys["d_in"])}, lambda n: integers(keys["d_out"], n)),
        "nanogpt": (lambda n: {"inputs": integers(keys["vocab_size"], n, seq)}, lambda n: integers(keys["vocab_size"], n, seq)),
        "nbeats": (lambda n: {"inputs": floats(n, keys["backcast"])}, lambda n: floats(n, keys["horizon"])),
        "gat": (graph, lambda n: integers(keys["n_class"], seq)),
    }.get(family, (lambda n: {"inputs": floats(n, 3, image, image)}, lambda n: integers(keys["num_classes"], n)))

    def labelled(samples):
        batch = inputs(samples)
        batch["targets"] = targets(samples)
        return batch

    return labelled if scenario["training"]["mode"] == "train" else inputs


# ---------------------------------------------------------------------------------------------------------------------
# Losses that are not the model's own


def make_loss(scenario, own, device, channel):
    """What computes a micro-batch's loss outside the model, if anything does: a function of the model, the batch and
    the autocast region to run the model in. It answers the outputs and the loss."""
    training, task = scenario["training"], scenario["model"]["task"]
    implementation, smoothing = training.get("loss_impl", "full"), training.get("label_smoothing", 0.0)
    if implementation != "full":
        if own or task != "causal-lm":
            message = "loss_impl = %s is for the causal language models of Hugging Face" % clean(implementation)
            raise Stop("unsupported", message, 'use loss_impl = "full"')
        if smoothing:
            message = "the Trainer smooths labels on all logits, which loss_impl = %s does not make" % implementation
            raise Stop("unsupported", message, 'use loss_impl = "full", or leave label_smoothing out')
        if implementation == "chunked":
            return chunked_loss
        return fused_linear_loss(device, channel)
    if not smoothing or (own and task != "forecasting"):
        return None
    if task in ("forecasting", "contrastive", "seq2seq-lm", "speech-seq2seq"):
        message = "labels are not smoothed for the task %s" % task
        raise Stop("unsupported", message, "leave label_smoothing out")
    return smoothed_loss(smoothing, task)


def body_and_head(model):
    """The model without its output head, the head, and the config."""
    inner = model.get_base_model() if hasattr(model, "get_base_model") else model
    body = inner.base_model
    # Llama 4's class says that it is called `language_model`, as in the model with images, and calls it `model`.
    body = inner.model if body is inner else body
    return body, inner.get_output_embeddings(), inner.config


def shifted(labels):
    """Each token's label is the next one; what is padded is ignored."""
    return torch.nn.functional.pad(labels, (0, 1), value=-100)[..., 1:].contiguous()


def chunked_logits(model, batch, chunks):
    """The logits of each chunk of the sequence, as torchtune's `TransformerDecoder.chunked_output` makes them."""
    body, head, config = body_and_head(model)
    cap = getattr(config, "final_logit_softcapping", None)

    def project(hidden):
        logits = head(hidden)
        if cap is not None:
            logits = logits / cap
            logits = torch.tanh(logits)
            logits = logits * cap
        return logits

    return [project(chunk) for chunk in body(**batch)[0].chunk(chunks, dim=1)]


def chunked_cross_entropy(logits, labels, chunks):
    """torchtune's `CEWithChunkedOutputLoss`: one chunk at a time is made float32."""
    count = (labels != -100).sum()
    labels = [chunk.reshape(-1) for chunk in labels.chunk(chunks, dim=1)]
    logits = [chunk.reshape(-1, chunk.size(-1)) for chunk in logits]
    total = 0.0
    for chunk, targets in zip(logits, labels):
        total += torch.nn.functional.cross_entropy(chunk.float(), targets, ignore_index=-100, reduction="sum")
    return total / count


def chunked_loss(model, batch, autocast, chunks=8):
    batch = dict(batch)
    labels = batch.pop("labels")
    with autocast:
        logits = chunked_logits(model, batch, chunks)
        # A name of its own, as in torchtune's recipes: they are there until the loss is.
        labels = shifted(labels)
        return logits, chunked_cross_entropy(logits, labels, chunks)


def fused_linear_loss(device, channel):
    import_for_cuda("liger_kernel", "loss_impl = fused-linear", device, channel)
    try:
        from liger_kernel.transformers.model.loss_utils import LigerForCausalLMLoss
    except Exception as error:
        raise broken("liger_kernel", "missing-package", error)

    def compute(model, batch, autocast):
        batch = dict(batch)
        labels = batch.pop("labels")
        with autocast:
            body, head, config = body_and_head(model)
            options = {"hidden_size": head.weight.shape[1], "lm_head_weight": head.weight, "labels": labels}
            if getattr(head, "bias", None) is not None:
                options["bias"] = head.bias
            if getattr(config, "final_logit_softcapping", None) is not None:
                options["final_logit_softcapping"] = config.final_logit_softcapping
            # `LigerCausalLMOutputWithPast` has the loss and no logits.
            loss = LigerForCausalLMLoss(body(**batch)[0], **options)
            return loss, loss

    return compute


def smoothed_loss(smoothing, task):
    """What the Trainer does with `label_smoothing_factor`: the model is not given its labels, `accelerate` makes its
    logits float32 after autocast, and `LabelSmoother` computes the loss."""
    try:
        from transformers.trainer_pt_utils import LabelSmoother
    except Exception as error:
        raise broken("transformers", "missing-package", error)
    smoother = LabelSmoother(epsilon=smoothing)

    def compute(model, batch, autocast):
        batch = dict(batch)
        labels = batch.pop("labels")
        with autocast:
            logits = model(**batch).logits
        if not isinstance(autocast, contextlib.nullcontext):
            logits = logits.float()
        loss = smoother({"logits": logits}, labels, shift_labels=task == "causal-lm")
        return logits, loss

    return compute


class Trainer:
    """What the loop of transformers' Trainer holds and does beside one written by hand: `_run_epoch`, `get_batch_samples` and
    `training_step` of `transformers/trainer.py`, `backward` of `accelerate/accelerator.py`."""

    def __init__(self, device, transformers):
        version = tuple(int(part) for part in re.findall(r"\d+", transformers)[:2])
        self.averages, self.takes_norms, self.shifts = version >= (4, 57), version >= (5, 8), version >= (5, 17)
        self.losses = torch.tensor(0.0, device=device)
        self.batches = self.items = self.norm = None

    def fetch(self, make_batch, sizes):
        """All micro-batches of a step; the last step's are there until these are counted."""
        batches = [make_batch(samples) for samples in sizes]
        labels = (batch["labels"][..., 1:] if self.shifts else batch["labels"] for batch in batches)
        items = sum(given.ne(-100).sum() for given in labels)
        self.batches, self.items = batches, items

    def compute_loss(self, model, batch, autocast):
        """The loss, beside outputs that `accelerate` makes float32."""
        with autocast:
            output = model(**batch, num_items_in_batch=self.items)
        if not isinstance(autocast, contextlib.nullcontext):
            half = (torch.float16, torch.bfloat16)
            output = {k: v.float() if getattr(v, "dtype", None) in half else v for k, v in output.items()}
        loss = output["loss"]
        if self.averages:
            loss *= 1
        return loss

    def add(self, loss):
        if not (torch.isnan(loss) or torch.isinf(loss)):
            self.losses += loss

    def clip(self, parameters, largest):
        if self.takes_norms:
            self.norm = None
            largest = math.inf if largest is None else largest
        if largest is not None:
            self.norm = torch.nn.utils.clip_grad_norm_(parameters, largest)


# ---------------------------------------------------------------------------------------------------------------------
# The loop


class Run:
    """One model and its optimizer on one device, through as many attempts as are asked for."""

    def __init__(self, job, config, packages, device, channel):
        self.begin(job, device, channel)
        training = self.training
        self.compute_loss = make_loss(self.scenario, config is None, device, channel)
        with self.phase("load"):
            self.model, dtype = build(self.scenario, config, packages, device)
            self.average = make_average(self.model) if training.get("ema") else None
            self.parameters = [p for p in self.model.parameters() if p.requires_grad]
            # Adagrad makes its state here.
            self.optimizers = make_optimizers(training, self.model, self.parameters, packages, device, channel)
            loop = training.get("trainer", "none")
            if loop in ("torchvision", "nanogpt"):
                message = "%s's own loop is not measured here" % loop
                raise Stop("unsupported", message, "rehearse its script, or leave trainer out")
            if loop == "transformers":
                self.trainer = Trainer(device.name, packages["transformers"].__version__)
        self.scaler = make_scaler(device.kind) if training["precision"] == "fp16-amp" else None
        self.make_batch = make_inputs(self.scenario, config, dtype, device)

    def begin(self, job, device, channel):
        """What training and inference have in common, before there is a model."""
        self.job, self.device, self.channel = job, device, channel
        self.scenario, self.training = job["scenario"], job["scenario"]["training"]
        self.reports_phases = job.get("phases", True)
        self.ranks = getattr(device, "ranks", None)
        self.attempt = 0
        self.peaks = Peaks()
        self.step_peaks = Peaks()
        self.where = {"phase": "load", "step": None, "micro_batch": None}
        # What the loop's names hold between micro-batches.
        self.batch = self.loss = self.outputs = None
        # Where transformers' Trainer runs the loop.
        self.trainer = None

        if self.training.get("compile"):
            message = "the estimate is that of the run without torch.compile, and so is what is measured"
            raise Stop("unsupported", message, "leave compile out")
        self.optimizers, self.scaler = [], None
        self.amp = {"fp16-amp": torch.float16, "bf16-amp": torch.bfloat16}.get(self.training["precision"])

    def counts(self):
        if self.ranks is not None:
            return self.ranks.counts
        total = sum(numbers_in(p) for p in self.model.parameters())
        return {"total": total, "trainable": sum(p.numel() for p in self.parameters)}

    @contextlib.contextmanager
    def phase(self, name, step=None, micro_batch=None):
        """One phase of the loop."""
        self.enter(name, step, micro_batch)
        yield
        self.leave()

    def enter(self, name, step=None, micro_batch=None):
        """A phase begins: its own peaks, and the device waited for before and after."""
        self.where = {"phase": name, "step": step, "micro_batch": micro_batch}
        if self.reports_phases:
            self.device.synchronize()
            self.device.reset_peaks()
            self.entered = time.perf_counter_ns()

    def leave(self):
        """The phase ends, and is told of."""
        device = self.device
        if not self.reports_phases:
            device.check()
            return
        device.synchronize()
        micros = (time.perf_counter_ns() - self.entered) // 1000
        figures = device.figures()
        self.peaks.see(figures)
        self.step_peaks.see(figures)
        peak_allocated, peak_reserved, end_allocated, end_reserved, _ = figures
        self.channel.emit(
            "phase", attempt=self.attempt, name=self.where["phase"], step=self.where["step"],
            micro_batch=self.where["micro_batch"], peak_allocated=peak_allocated, peak_reserved=peak_reserved,
            end_allocated=end_allocated, end_reserved=end_reserved, micros=micros, process=device.process(),
        )
        device.check()

    def autocast(self):
        if self.amp is None:
            return contextlib.nullcontext()
        return torch.autocast(self.device.kind, dtype=self.amp)

    def zero_grad(self, step):
        with self.phase("zero_grad", step):
            for optimizer in self.optimizers:
                optimizer.zero_grad(set_to_none=self.training["zero_grad"] == "set-to-none")

    def micro_batch(self, step, number, samples, divide):
        """Input, forward and backward of one micro-batch. Answers its share of the step's loss."""
        with self.phase("input", step, number):
            # The last batch is let go of only when the new one takes its name.
            self.batch = self.make_batch(samples)
        if number == 1 and self.training["zero_grad_at"] == "before-forward":
            self.zero_grad(step)
        with self.phase("forward", step, number):
            if self.compute_loss is None:
                with self.autocast():
                    output = self.model(**self.batch)
            else:
                output = self.compute_loss(self.model, self.batch, self.autocast())
            # The last micro-batch's loss and outputs have lived until here.
            if isinstance(output, tuple):
                output, self.loss = output
            else:
                self.loss = output.loss
            self.outputs = output if self.training["keep_outputs"] else None
            del output
            if divide is not None:
                self.loss = divide(self.loss)
            root = self.loss if self.scaler is None else self.scaler.scale(self.loss)
        if number == 1 and self.training["zero_grad_at"] == "before-backward":
            self.zero_grad(step)
        with self.phase("backward", step, number):
            root.backward()
            del root
            # Kept for the report with its graph, as loops do, and with the leaves that the forward made for itself (T5's
            # position bias under checkpointing). With adapters the graph is let go of, as in the reference rows.
            if self.training.get("lora") is not None:
                self.loss = self.loss.detach()
        return self.loss.item()

    def trainers_micro_batch(self, step, number, sizes):
        """As the Trainer does it: all micro-batches come first, and its name of the last loss is taken after backward."""
        trainer = self.trainer
        with self.phase("input", step, number):
            if number == 1:
                trainer.fetch(self.make_batch, sizes)
            self.batch = trainer.batches[number - 1]
        with self.phase("forward", step, number):
            loss = trainer.compute_loss(self.model, self.batch, self.autocast())
            # `accelerate` divides by the accumulation that it knows of: none.
            divided = loss / 1
            root = divided if self.scaler is None else self.scaler.scale(divided)
        with self.phase("backward", step, number):
            root.backward()
            del root, divided
            self.loss = loss.detach()
            del loss
            trainer.add(self.loss)
        return self.loss.item()

    def update(self, step):
        """Clips, steps, and clears the gradients. Answers whether the scaler let the optimizer step."""
        with self.phase("clip", step):
            if self.scaler is not None:
                for optimizer in self.optimizers:
                    self.scaler.unscale_(optimizer)
            if self.trainer is not None:
                self.trainer.clip(self.parameters, 1.0 if self.training["clip_grad_norm"] else None)
            elif self.training["clip_grad_norm"]:
                if self.ranks is not None and self.ranks.strategy == "fsdp1":
                    self.model.clip_grad_norm_(1.0)
                else:
                    torch.nn.utils.clip_grad_norm_(self.parameters, 1.0)
        skipped = False
        with self.phase("optimizer", step):
            if self.scaler is None:
                for optimizer in self.optimizers:
                    optimizer.step()
            else:
                before = self.scaler.get_scale()
                for optimizer in self.optimizers:
                    self.scaler.step(optimizer)
                self.scaler.update()
                # The scale falls when the gradients were not finite, and then only.
                skipped = self.scaler.get_scale() < before
            if self.average is not None:
                self.average.update_parameters(self.model)
        if self.training["zero_grad_at"] == "after-step":
            self.zero_grad(step)
        return skipped

    def one_step(self, step, sizes):
        """One optimizer step. Answers its mean loss and whether it was skipped."""
        whole = sum(sizes)
        even = len(set(sizes)) == 1
        loss = 0.0
        if self.trainer is not None:
            for number in range(1, len(sizes) + 1):
                loss += self.trainers_micro_batch(step, number, sizes)
            return loss, self.update(step)
        for number, samples in enumerate(sizes, 1):
            divide = None
            if len(sizes) > 1:
                # Leftover samples make a smaller last micro-batch: each counts by its share.
                divide = (lambda x: x / len(sizes)) if even else (lambda x, n=samples: x * (n / whole))
            last = number == len(sizes)
            with contextlib.nullcontext() if self.ranks is None else self.ranks.micro_batch(self.model, last):
                loss += self.micro_batch(step, number, samples, divide)
        return loss, self.update(step)

    def steps(self, sizes, count):
        """The optimizer steps of an attempt, or its runs in inference. Answers how many losses were not finite."""
        infinite = 0
        for step in range(1, count + 1):
            self.step_peaks = Peaks()
            if self.ranks is not None:
                self.ranks.count_anew()
            if not self.reports_phases:
                self.device.reset_peaks()
            start = time.perf_counter_ns()
            loss, skipped = self.one_step(step, sizes)
            self.device.synchronize()
            micros = (time.perf_counter_ns() - start) // 1000
            if not self.reports_phases:
                figures = self.device.figures()
                self.peaks.see(figures)
                self.step_peaks.see(figures)
            self.finished = step
            if loss is not None and not math.isfinite(loss):
                infinite += 1
                if infinite == 1:
                    self.channel.note("the loss of step %d is not finite; memory does not depend on it" % step)
            samples = sum(sizes)
            self.channel.emit(
                "step", attempt=self.attempt, step=step, micros=micros,
                loss=loss if loss is not None and math.isfinite(loss) else None,
                scale=None if self.scaler is None else self.scaler.get_scale(), skipped=skipped, samples=samples,
                tokens=self.tokens(samples), peak_allocated=self.step_peaks.allocated,
                peak_reserved=self.step_peaks.reserved, process=self.device.process(),
            )
            if step == 1:
                self.device.tighten(self.channel)
        return infinite

    def tokens(self, samples):
        """How many tokens that is, where a sample is a sequence of them: of a generation those it makes."""
        if new_tokens(self.scenario) is not None:
            return samples * new_tokens(self.scenario)
        if self.scenario["model"]["task"] in ("causal-lm", "masked-lm", "sequence-classification", "seq2seq-lm"):
            return samples * self.scenario["input"]["seq"]
        return None

    def sizes(self, batch, accumulation, samples):
        """Samples of each micro-batch of a step: the last one is smaller where they do not divide."""
        # Without a number of samples, those the job began with, where the two can keep to it.
        effective = samples or self.scenario["input"]["batch"] * self.training["accumulation"]
        if samples or (batch <= effective and accumulation == -(-effective // batch)):
            full, rest = divmod(effective, batch)
            return [batch] * full + ([rest] if rest else [])
        return [batch] * accumulation

    def run_attempt(self, batch, accumulation, steps, samples):
        """One attempt, with every end an attempt can have: finished, out of memory, over the limit."""
        self.peaks, self.finished = Peaks(), 0
        retries = self.device.figures()[4]
        self.device.reset_peaks()
        sizes, guard = self.sizes(batch, accumulation, samples), None
        try:
            infinite = self.steps(sizes, steps)
            if self.ranks is not None:
                self.channel.emit("buffers", attempt=self.attempt, buffers=self.ranks.buffers(self.model))
            if infinite and infinite == steps:
                self.channel.note("not one loss of this attempt was finite: its speed and memory stand all the same")
            self.record_trace(sizes)
        except Exception as error:
            kind = self.device.out_of_memory(error)
            if kind is None:
                raise
            self.peaks.see(self.device.figures())
            guard = {"kind": kind, "message": clean(error)}
            guard.update(self.where)
        # Only here, where the exception and the frames it holds are gone, can the tensors in them be let go.
        if guard is not None:
            self.clean_up()
            figures = self.device.figures()
            self.channel.emit("guard", attempt=self.attempt, allocated_after=figures[2], reserved_after=figures[3], **guard)
        self.write_snapshot()
        now = self.device.figures()[4]
        self.channel.emit(
            "attempt_end", attempt=self.attempt, outcome="finished" if guard is None else guard["kind"],
            steps=self.finished, peak_allocated=self.peaks.allocated, peak_reserved=self.peaks.reserved,
            retries=None if now is None else now - retries,
        )
        self.attempt += 1

    def clean_up(self):
        """Lets go of the graph, the gradients and the cache; the model and a whole optimizer state stay."""
        self.batch = self.loss = self.outputs = None
        for optimizer in self.optimizers:
            optimizer.zero_grad(set_to_none=True)
            if self.where["phase"] == "optimizer":
                # It may have been halfway through making its state.
                optimizer.state.clear()
        if self.scaler is not None:
            # The old one may wait for an update that never came.
            self.scaler = make_scaler(self.device.kind, self.scaler.get_scale())
        gc.collect()
        self.device.empty_cache()

    def record_trace(self, sizes):
        """One more step under PyTorch's profiler, which would slow the measured ones."""
        path = self.job.get("trace")
        if not path:
            return
        self.job["trace"] = None
        self.channel.progress("recording one more step for the trace")
        from torch.profiler import ProfilerActivity, profile

        activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if self.device.kind == "cuda" else [])
        reports, self.reports_phases = self.reports_phases, False
        try:
            with profile(activities=activities, record_shapes=True, profile_memory=True) as profiler:
                self.one_step(self.finished + 1, sizes)
                self.device.synchronize()
        finally:
            self.reports_phases = reports
        self.channel.progress("writing the trace")
        # The ending tells PyTorch whether to compress.
        write_whole(path, profiler.export_chrome_trace, ".gz" if path.endswith(".gz") else ".json")

    def write_snapshot(self):
        path = self.job.get("snapshot")
        if path:
            self.channel.progress("writing the memory snapshot")
            write_whole(path, torch.cuda.memory._dump_snapshot, ".pickle")


class Inference(Run):
    """One model on one device, in evaluation and without gradients: a greedy generation where it makes text, else one
    forward. What training calls a step is one of these here, from fresh inputs to what comes out, and begins with nothing
    left of the last."""

    def __init__(self, job, config, packages, device, channel):
        self.begin(job, device, channel)
        with self.phase("load"):
            self.model, dtype = build(self.scenario, config, packages, device)
        self.parameters = [p for p in self.model.parameters() if p.requires_grad]
        self.make_batch = make_inputs(self.scenario, config, dtype, device)
        self.asked, self.begun = new_tokens(self.scenario), 0
        if self.asked is not None:
            self.settings = plain_generation(self.model, self.asked, packages["transformers"])
            watch_tokens(self.model, self.token)

    def one_step(self, step, sizes):
        for number, samples in enumerate(sizes, 1):
            with self.phase("input", step, number):
                self.batch = self.make_batch(samples)
            if self.asked is None:
                self.forward(step, number)
            else:
                self.generate(step)
            self.batch = None
        return None, False

    def forward(self, step, number):
        with self.phase("forward", step, number):
            with torch.no_grad(), self.autocast():
                output = self.model(**self.batch)
        del output

    def generate(self, step):
        """Prefill and decode. One autocast region around all of it: the weights' copies are made once."""
        self.begun, self.told = 0, time.monotonic()
        self.enter("prefill", step)
        with torch.no_grad(), self.autocast():
            output = self.model.generate(**self.batch, generation_config=self.settings)
        self.leave()
        del output
        if self.begun != self.asked:
            message = "this model's generate made %d of %d tokens" % (self.begun, self.asked)
            raise Stop("unsupported", message, "report it with the config: a generation of all of them was expected")

    def token(self):
        """The forward of another token is about to begin; of the second, what followed the first one's is over: that is
        where the prompt is done with."""
        self.begun += 1
        if self.begun > self.asked:
            # Its test for the end is answered by the card: one that computes nothing would never end.
            message = "this model's generate goes on after the %d tokens that were asked for" % self.asked
            raise Stop("unsupported", message, "see whether the card computes at all, and report it with the config")
        if self.begun == 2:
            step = self.where["step"]
            self.leave()
            self.enter("decode", step)
        self.device.check()
        now = time.monotonic()
        if now - self.told > STILL_THERE:
            self.told = now
            self.channel.progress("token %d of %d" % (self.begun, self.asked))


def plain_generation(model, tokens, transformers):
    """Settings for a greedy generation of exactly so many tokens: nothing the config says ends it earlier, and nothing is
    sampled, searched or suppressed."""
    inner = model.get_base_model() if hasattr(model, "get_base_model") else model
    if not inner.can_generate():
        message = "transformers %s cannot generate with a %s" % (transformers.__version__, type(inner).__name__)
        raise Stop("unsupported", message, "check model_type and task")
    settings = transformers.GenerationConfig(max_new_tokens=tokens, do_sample=False, use_cache=True)
    # What `generate` falls back to must say nothing either.
    inner.generation_config = transformers.GenerationConfig()
    if getattr(inner.config, "is_encoder_decoder", False):
        settings.decoder_start_token_id = inner.config.decoder_start_token_id
    if getattr(inner.config, "forced_decoder_ids", None) is not None:
        # What Whisper would begin with besides: language and task.
        inner.config.forced_decoder_ids = None
    return settings


def watch_tokens(model, about_to_begin):
    """Has `about_to_begin` called before what every token's forward needs is made. Every version of `generate` asks the
    model for that once a token; a wrapper around it holds nothing that its caller does not hold anyway."""
    inner = model.get_base_model() if hasattr(model, "get_base_model") else model
    prepare = inner.prepare_inputs_for_generation

    # Its signature is looked at.
    @functools.wraps(prepare)
    def watched(*args, **kwargs):
        about_to_begin()
        return prepare(*args, **kwargs)

    inner.prepare_inputs_for_generation = watched


class Zero(Run):
    """DeepSpeed's own loop: its engine clips, accumulates, steps and lets gradients go."""

    def __init__(self, job, config, packages, device, channel):
        self.begin(job, device, channel)
        training = self.training
        os.environ.update(DS_ACCELERATOR=device.kind, DS_SKIP_CUDA_CHECK="1")
        deepspeed = import_package("deepspeed", "the strategy %s" % self.ranks.strategy)
        channel.note("deepspeed %s" % deepspeed.__version__)
        if device.kind == "cuda" and self.ranks.hollow:
            without_overflows()
            # It prints tensors, and the host would ask the card for numbers that are not there.
            torch._tensor_str._str = lambda *_, **__: "tensor(...)"
        with self.phase("load"):
            # The engine casts a model itself, but what a quantized one computes in is said when it is loaded.
            loaded = training if quantized(training) else dict(training, precision="fp32")
            model, _ = build(dict(self.scenario, training=loaded), config, packages, device)
            trained = [p for p in model.parameters() if p.requires_grad]
            optimizer = make_optimizers(training, model, trained, packages, device, channel)[0]
            self.model = deepspeed.initialize(model=model, optimizer=optimizer, config=zero_config(self.scenario),
                                              dist_init_required=False)[0]
        self.parameters = trained
        dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(training["precision"], torch.float32)
        self.make_batch = make_inputs(self.scenario, config, dtype, device)

    def one_step(self, step, sizes):
        loss = 0.0
        for number, samples in enumerate(sizes, 1):
            with self.phase("input", step, number):
                self.batch = self.make_batch(samples)
            with self.phase("forward", step, number):
                output = self.model(**self.batch)
                self.loss = output[1] if isinstance(output, tuple) else output.loss
                self.outputs = output if self.training["keep_outputs"] else None
                del output
            with self.phase("backward", step, number):
                self.model.backward(self.loss)
                if self.training.get("lora") is not None:
                    self.loss = self.loss.detach()
                if number < len(sizes):
                    self.model.step()
            loss += self.loss.item() / len(sizes)
        with self.phase("optimizer", step):
            self.model.step()
        return loss, False


def without_overflows():
    """On a card that computes nothing every truth that the host reads is the same: DeepSpeed would find that gradients overflow and
    skip every step. What it looks at is looked at all the same."""
    import deepspeed.runtime.utils
    from deepspeed.runtime import bf16_optimizer
    from deepspeed.runtime.fp16 import unfused_optimizer
    from deepspeed.runtime.zero import stage3, stage_1_and_2

    asked = deepspeed.runtime.utils.is_invalid_grad_norm

    def never(norm):
        asked(norm)
        return False

    def real(norm):
        """What nobody computed may be the root of something negative."""
        return lambda *args, **kwargs: abs(norm(*args, **kwargs))

    looked = deepspeed.runtime.utils.CheckOverflow._has_inf_or_nan

    def found(gradient, index):
        looked(gradient, index)
        return False

    serial = deepspeed.runtime.utils.CheckOverflow.has_overflow

    def never_found(self, *args, **kwargs):
        serial(self, *args, **kwargs)
        return False

    deepspeed.runtime.utils.CheckOverflow._has_inf_or_nan = staticmethod(found)
    deepspeed.runtime.utils.CheckOverflow.has_overflow = never_found
    for module in (deepspeed.runtime.utils, stage_1_and_2, stage3, bf16_optimizer, unfused_optimizer):
        if hasattr(module, "is_invalid_grad_norm"):
            module.is_invalid_grad_norm = never
        if hasattr(module, "get_weight_norm"):
            module.get_weight_norm = real(module.get_weight_norm)
    for kind in (stage_1_and_2.DeepSpeedZeroOptimizer, stage3.DeepSpeedZeroOptimizer_Stage3):
        for name in ("_check_overflow", "has_overflow"):
            checks = getattr(kind, name, None)
            if checks is None:
                continue

            def check(self, *args, checks=checks, **kwargs):
                checks(self, *args, **kwargs)
                self.overflow = False
                return False

            setattr(kind, name, check)


def zero_config(scenario):
    """What DeepSpeed is told, in its own keys."""
    training, parallel = scenario["training"], scenario["parallel"]
    later = ("prefetch_bucket_size", "param_persistence_threshold", "max_live_parameters", "max_reuse_distance")
    zero = {"stage": int(parallel["strategy"][-1])}
    keys = dict(parallel.get("zero") or {})
    pinned = keys.pop("offload_pin_memory", True)
    swapped = {
        "offload_buffer_count": ("offload_optimizer", "buffer_count"), "offload_param_buffer_count": ("offload_param", "buffer_count"),
        "offload_param_buffer_size": ("offload_param", "buffer_size"), "offload_param_max_in_cpu": ("offload_param", "max_in_cpu"),
    }
    swap = {swapped[key]: keys.pop(key) for key in list(keys) if key in swapped}
    aio = {key[len("aio_"):]: keys.pop(key) for key in list(keys) if key.startswith("aio_")}
    for key, value in keys.items():
        offload = {"device": value, "pin_memory": pinned}
        if value == "nvme":
            # Files of the run: they go with the folder.
            offload["nvme_path"] = tempfile.mkdtemp(prefix="plimsoll-nvme-")
            offload.update({name: said for (of, name), said in swap.items() if of == key})
        zero["stage3_" + key if key in later else key] = offload if key.startswith("offload") else value
    config = {
        "train_micro_batch_size_per_gpu": scenario["input"]["batch"], "gradient_accumulation_steps": training["accumulation"],
        "zero_optimization": zero, "zero_allow_untested_optimizer": True, "zero_force_ds_cpu_optimizer": False,
    }
    if aio:
        config["aio"] = aio
    if training["clip_grad_norm"]:
        config["gradient_clipping"] = 1.0
    if training["precision"] in ("bf16", "fp16"):
        config[training["precision"]] = {"enabled": True}
    return config


MODES = {"train": Run, "inference": Inference}


class Peaks:
    """The highest figures of several stretches."""

    allocated = None
    reserved = None

    def see(self, figures):
        if figures[0] is not None:
            self.allocated = max(self.allocated or 0, figures[0])
            self.reserved = max(self.reserved or 0, figures[1])


def write_whole(path, write, ending):
    """Has `write` fill a file beside `path` and then puts it there, so that a half-written one is never seen."""
    path = os.path.abspath(path)
    handle, part = tempfile.mkstemp(suffix=ending, prefix=".plimsoll-", dir=os.path.dirname(path))
    os.close(handle)
    try:
        write(part)
        os.replace(part, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(part)
        raise


# ---------------------------------------------------------------------------------------------------------------------
# Start to end


def check_job(job):
    """Refuses what this worker does not speak or cannot read."""
    if job.get("protocol") != PROTOCOL:
        message = "the job speaks protocol %s, this worker %d" % (clean(job.get("protocol")), PROTOCOL)
        raise Stop("protocol", message, "use the worker of the same plimsoll")
    try:
        scenario = job["scenario"]
        for key in ("optimizer", "optimizer_impl", "precision", "accumulation", "checkpointing", "attention", "mode",
                    "clip_grad_norm", "zero_grad", "zero_grad_at", "keep_outputs"):
            scenario["training"][key]
        scenario["input"]["batch"], scenario["model"]["task"]
        # Models without one leave it out.
        scenario["input"].setdefault("attention_mask", "none")
        if job.get("config") is None and "family" not in scenario["model"]:
            raise KeyError("config")
        if job.get("device") not in DEVICES:
            raise KeyError("device")
        if scenario["training"]["mode"] not in MODES:
            raise KeyError("training.mode")
    except (KeyError, TypeError) as error:
        raise Stop("bad-job", "the job lacks %s" % clean(error), "this is a bug of plimsoll: report it")


def say_hello(packages, training, device, channel):
    system, wsl, container = surroundings()
    names = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF")
    settings = [os.environ[name] for name in names if os.environ.get(name)]
    described = {"kind": device.kind}
    described.update(device.describe())
    versions = {name: getattr(package, "__version__", None) for name, package in packages.items()}
    if training["optimizer"] == "adamw-8bit" or (training["optimizer"], training["optimizer_impl"]) == ("lion", "fused"):
        # Imported only when the optimizer is made.
        versions["bitsandbytes"] = versions["bitsandbytes"] or installed("bitsandbytes")
    channel.emit(
        "hello", protocol=PROTOCOL, pid=os.getpid(), python=platform.python_version(), torch=str(torch.__version__),
        cuda=torch.version.cuda, hip=torch.version.hip, os=system, wsl=wsl, container=container,
        cudnn=torch.backends.cudnn.version() if torch.backends.cudnn.is_available() else None,
        alloc_conf=settings[0] if settings else None, device=described, **versions
    )


def work(channel, is_rank=False):
    global torch, STARTED
    job = channel.receive("bad-job")
    check_job(job)
    scenario, config = job["scenario"], job.get("config")
    if cards(scenario) > 1 and not is_rank:
        Leader(channel, job).run()
        return
    STARTED = job.get("started", STARTED)
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

    channel.progress("importing PyTorch")
    torch = import_torch()
    packages = import_for(scenario, config)
    kind = best_device(job["device"]) if job.get("best") else job["device"]
    if is_rank:
        check_cards(kind)
    device = DEVICES[kind](int(os.environ["LOCAL_RANK"]) if is_rank else job.get("index") or 0)
    say_hello(packages, scenario["training"], device, channel)
    if is_rank:
        device.ranks = Ranks(scenario, device)
        for name in ("snapshot", "trace"):
            job[name] = device.ranks.own_path(job.get(name))

    torch.manual_seed(job.get("seed") or 0)
    if job.get("snapshot"):
        if device.kind != "cuda":
            raise Stop("unsupported", "PyTorch records memory snapshots on CUDA only", "leave the snapshot out")
        # Not who frees: looking for that clears an exception that is on its way, such as the one by which checkpointing ends
        # what it computes again, and the backward fails with "returned NULL without setting an exception".
        torch.cuda.memory._record_memory_history(context="alloc", stacks="python", max_entries=1000000)
    if job.get("limit") is not None:
        device.cap(job["limit"], channel)
    if config is not None:
        config = read_config(scenario, config, packages["transformers"])
    channel.progress("building the model")
    try:
        kind = MODES[scenario["training"]["mode"]]
        if device.ranks is not None and device.ranks.strategy.startswith("zero"):
            kind = Zero
        run = kind(job, config, packages, device, channel)
    except Exception as error:
        kind = device.out_of_memory(error)
        if kind is None:
            raise
        what = "the limit is too low for the model's weights" if kind == "limit" else "the weights alone do not fit"
        raise Stop("out-of-memory", "%s: %s" % (what, clean(error)), "take a smaller model, or a precision with smaller weights") from error
    channel.emit("ready", parameters=run.counts(), batch=scenario["input"]["batch"], accumulation=scenario["training"]["accumulation"])

    while True:
        command = channel.receive("protocol")
        if command.get("command") == "finish":
            channel.emit("bye")
            return
        if command.get("command") != "attempt":
            raise Stop("protocol", "an unknown command", "use the worker of the same plimsoll")
        asked = [command.get(name) for name in ("batch", "accumulation", "steps")]
        if not all(isinstance(number, int) and number > 0 for number in asked):
            raise Stop("protocol", "an attempt without batch, accumulation and steps", "use the worker of the same plimsoll")
        run.run_attempt(*asked, samples=command.get("samples"))


# What the CUDA libraries take is loaded when a kernel is first called for: each of these calls for some that those before it
# did not. Names are told as they stand here.


def first_kernel():
    torch.ones(4096, device="cuda").add_(1)


def matrix_product(dtype):
    left = torch.zeros(512, 512, device="cuda", dtype=dtype, requires_grad=True)
    (left @ left).sum().backward()


def biased_linear():
    layer = torch.nn.Linear(512, 512, device="cuda", dtype=torch.bfloat16)
    torch.nn.functional.gelu(layer(torch.zeros(64, 512, device="cuda", dtype=torch.bfloat16))).sum().backward()


def attention():
    heads = torch.zeros(1, 8, 256, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    torch.nn.functional.scaled_dot_product_attention(heads, heads, heads, is_causal=True).sum().backward()


def convolution():
    layer = torch.nn.Conv2d(16, 16, 3, padding=1, device="cuda")
    layer(torch.zeros(2, 16, 32, 32, device="cuda")).sum().backward()


def optimizer_step():
    weight = torch.zeros(4096, device="cuda", requires_grad=True)
    weight.grad = torch.zeros_like(weight)
    torch.optim.AdamW([weight]).step()


LIBRARIES = (
    ("context", lambda: None),
    ("first kernel", first_kernel),
    ("matrix product, fp32", lambda: matrix_product(torch.float32)),
    ("matrix product, bf16", lambda: matrix_product(torch.bfloat16)),
    ("linear with bias, bf16", biased_linear),
    ("attention, bf16", attention),
    ("convolution, fp32", convolution),
    ("AdamW step", optimizer_step),
)


def libraries():
    """What this process holds of a card beside PyTorch's own memory, after each of a few first calls: one line of JSON each."""
    global torch
    torch = import_torch()
    device = Cuda(0)
    for name, call in LIBRARIES:
        told = {"step": name}
        try:
            call()
            device.synchronize()
        except Exception as error:
            told["error"] = "%s: %s" % (type(error).__name__, clean(error))
        gc.collect()
        told.update(beside=device.beside_pytorch(), reserved=torch.cuda.memory_reserved(0))
        print(json.dumps(told), flush=True)


# Errors of PyTorch that say it cannot do this here, and what to do about each.
REFUSALS = (
    ("driver version is insufficient", "update the card's driver, or install a build of torch for an older one"),
    ("Unable to JIT load", "DeepSpeed builds a part of itself here: python -m pip install ninja, and a C++ compiler"),
    ("no kernel image is available", "this PyTorch has no kernels for this card: install a newer build of torch"),
    ("not implemented for", "use another precision: this PyTorch has no kernel for this one on this device"),
    ("is not currently implemented", "this PyTorch lacks an operator on this device: upgrade torch"),
    ("does not support bfloat16", "use another precision"),
    ("User specified an unsupported autocast", "upgrade torch, or use another precision"),
)


def main():
    is_rank = sys.argv[1:2] == ["--rank"]
    channel = Channel(join(sys.argv[2]) if is_rank else None)
    faulthandler.enable()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    die_with_parent()
    code = 0
    try:
        work(channel, is_rank)
    except Stop as stop:
        traceback.print_exc()
        cause = traceback.format_exc() if stop.__cause__ is not None else None
        whose = {} if stop.rank is None else {"rank": stop.rank}
        channel.emit("error", kind=stop.kind, message=stop.message, hint=stop.hint, traceback=cause, **whose)
        code = 3
    except Exception as error:
        traceback.print_exc()
        hint = next((hint for words, hint in REFUSALS if words in str(error)), None)
        kind, code = ("internal", 1) if hint is None else ("unsupported", 3)
        message = "%s: %s" % (type(error).__name__, clean(error))
        hint = hint or "run it again with the traceback at hand and report it"
        channel.emit("error", kind=kind, message=message, hint=hint, traceback=traceback.format_exc())
    # The interpreter's own ending would wait for the device and for threads.
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    if sys.argv[1:] == ["--libraries"]:
        libraries()
    else:
        main()
