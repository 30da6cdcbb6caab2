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

    def cap(self, limit, channel, trains):
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

    def cap(self, limit, channel, trains):
        """PyTorch may take of the limit what the context and the libraries leave."""
        self.limit = limit
        self.load_libraries(trains)
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
            # What was reserved before that was known.
            held = now + torch.cuda.max_memory_reserved(self.index)
            if held > self.limit:
                raise LimitReached("the process held %s, the limit is %s" % (gib(held), gib(self.limit)))

    def load_libraries(self, trains):
        """cuBLAS in the thread of the forward and, where there is one, in that of the backward: what it takes of the card is known before
        anything is limited. PyTorch's own memory is as it was before."""
        if not hasattr(torch._C, "_cuda_clearCublasWorkspaces"):
            return
        small = torch.ones(8, 8, device=self.name, requires_grad=trains)
        product = (small @ small).sum()
        if trains:
            product.backward()
        del small, product
        torch._C._cuda_clearCublasWorkspaces()
        torch.cuda.empty_cache()
        self.reset_peaks()

    def set_fraction(self):
        left = self.limit - (self.context or 0)
        if left <= 0:
            message = "the limit of %s is below what the context alone takes" % gib(self.limit)
            raise Stop("out-of-memory", message, "raise the limit")
        torch.cuda.set_per_process_memory_fraction(min(1.0, left / self.properties.total_memory), self.index)

    def beside_pytorch(self):
        """What this process holds on the card beside PyTorch's own memory, as the driver says of it; else the card's use now,
        less that before."""
        reserved = torch.cuda.memory_reserved(self.index)
        of_process = self.on_this_card(nvml_of_process())
        if of_process is not None:
            return max(0, of_process - reserved)
        now, before = self.on_this_card(nvml_used()), self.on_this_card(self.used_before)
        return None if now is None or before is None else max(0, now - before - reserved)

    def on_this_card(self, figures):
        uuid = str(getattr(self.properties, "uuid", "")).lower()
        names = [name for name in figures if uuid and name.lower().endswith(uuid)] or (list(figures) if len(figures) == 1 else [])
        return figures[names[0]] if names else None

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

    def cap(self, limit, channel, trains):
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
