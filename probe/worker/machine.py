# ---------------------------------------------------------------------------------------------------------------------
# What the driver and the operating system tell


def is_hollow():
    """Whether `plimsoll rehearse` stands in for the card: its library is loaded, and kernels do nothing."""
    with contextlib.suppress(OSError, TypeError):
        return hasattr(ctypes.CDLL(None), "plimsoll_hollow_absent")
    return False


def nvml_cards(read):
    """What `read(nvml, card)` says of every NVIDIA card, by the card's UUID, where it says anything; empty where NVML does not answer."""
    said = {}
    try:
        nvml = ctypes.CDLL("nvml.dll" if sys.platform == "win32" else "libnvidia-ml.so.1")
        if nvml.nvmlInit_v2() != 0:
            return said
        count = ctypes.c_uint()
        if nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)) == 0:
            for index in range(count.value):
                card, uuid = ctypes.c_void_p(), ctypes.create_string_buffer(96)
                if (
                    nvml.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(index), ctypes.byref(card)) == 0
                    and nvml.nvmlDeviceGetUUID(card, uuid, ctypes.c_uint(96)) == 0
                ):
                    figure = read(nvml, card)
                    if figure is not None:
                        said[uuid.value.decode()] = figure
        nvml.nvmlShutdown()
    except (OSError, AttributeError):
        pass
    return said


def nvml_used():
    """Bytes in use on every NVIDIA card."""

    class Memory(ctypes.Structure):
        _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]

    def used(nvml, card):
        memory = Memory()
        return memory.used if nvml.nvmlDeviceGetMemoryInfo(card, ctypes.byref(memory)) == 0 else None

    return nvml_cards(used)


def nvml_of_process():
    """Bytes that this process holds of every NVIDIA card it uses, where the driver names processes as the system does."""

    class Process(ctypes.Structure):
        _fields_ = [("pid", ctypes.c_uint), ("used", ctypes.c_ulonglong), ("instance", ctypes.c_uint), ("part", ctypes.c_uint)]

    most, unknown = 256, 2**64 - 1

    def held(nvml, card):
        count, found = ctypes.c_uint(most), (Process * most)()
        if nvml.nvmlDeviceGetComputeRunningProcesses_v3(card, ctypes.byref(count), found) != 0:
            return None
        ours = [each.used for each in found[: count.value] if each.pid == os.getpid() and each.used != unknown]
        return sum(ours) if ours else None

    return nvml_cards(held)


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
