# ---------------------------------------------------------------------------------------------------------------------
# Talking to the orchestrator


class Stop(Exception):
    """Ends the worker with an `error` event that says what is wrong and what to do."""

    def __init__(self, kind, message, hint, rank=None):
        super().__init__(message)
        self.kind, self.message, self.hint, self.rank = kind, message, hint, rank


# Events that may wait for the next one, and for how many seconds since the last was sent: what is drawn ten times a
# second needs no more.
QUICK = ("phase", "step")
TOGETHER = 0.1


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
