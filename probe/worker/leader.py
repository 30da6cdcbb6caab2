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
