"""Starts of Python for the price of one: a process that has imported PyTorch forks once for each that is asked for.

    python ready.py serve MODULE ...     prints the path of what is to be started in place of Python, and forks until its
                                         standard input is closed
    FOLDER/python [-u] FILE | -c CODE | -m MODULE ...
                                         as Python would have it: arguments, environment, folder, standard streams, process
                                         group, signals that are passed on, exit code

What is asked for otherwise, or with a library that is to be loaded before all others, is started as ever. What a module
reads from the environment while it is imported it has read in the server's, and whoever has a module of his own for one
that is imported here must not ask here.
"""

import os
import signal
import sys

DOOR = "door"
# A script of the shell: the path of a Python may be longer than what fits behind `#!`, and have a space in it.
PYTHON = """#!/bin/sh
exec '{python}' -IS '{here}' ask '{door}' '{python}' "$0" "$@"
"""
# Exit code of one that ended with the server.
LOST = 97
PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


def parsed(arguments):
    """What Python is to run: `-c`, `-m` or a file's name, and `sys.argv` for it; None where that is not known here."""
    rest = arguments[1:] if arguments[:1] == ["-u"] else arguments
    if not rest or (rest[0] in ("-c", "-m") and len(rest) < 2):
        return None
    if rest[0] == "-c":
        return "-c", rest[1], ["-c"] + rest[2:]
    if rest[0] == "-m":
        return "-m", rest[1], ["-m"] + rest[2:]
    return None if rest[0].startswith("-") else ("file", rest[0], rest)


def ended(code):
    """Ends as one that had this code, or by the signal whose number it is below zero."""
    if code < 0:
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code & 0xFF)


# ---------------------------------------------------------------------------------------------------------------------
# What is started in place of Python


def ask(door, python, me, arguments):
    if parsed(arguments) is None or os.environ.get("LD_PRELOAD"):
        os.execv(python, [python] + arguments)
    import json
    import socket

    server = socket.socket(socket.AF_UNIX)
    server.connect(door)
    request = {
        "me": me, "arguments": arguments, "folder": os.getcwd(), "environment": dict(os.environ),
        "group": os.getpgrp(), "session": os.getsid(0),
    }
    text = json.dumps(request).encode()
    socket.send_fds(server, [b"%16d" % len(text)], [0, 1, 2])
    server.sendall(text)
    for number in PASSED_ON:
        if signal.getsignal(number) == signal.SIG_DFL:
            signal.signal(number, lambda number, _: server.sendall(b"%4d" % number))
    # The child has them now: whoever reads what it writes waits for its end, not for ours.
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)
    answer = server.recv(16)
    code = int(answer) if answer else LOST
    ended(code)


# ---------------------------------------------------------------------------------------------------------------------
# The server


class Child:
    """One that was forked, and who asked for it."""

    def __init__(self, connection, pid):
        self.connection, self.pid, self.ended = connection, pid, os.pidfd_open(pid)

    def end(self):
        """Whoever asked is gone."""
        try:
            if os.getpgid(self.pid) == self.pid:
                os.killpg(self.pid, signal.SIGKILL)
            os.kill(self.pid, signal.SIGKILL)
        except OSError:
            # It has ended itself.
            pass

    def reaped(self):
        code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        try:
            self.connection.sendall(b"%d" % code)
        except OSError:
            pass
        self.forgotten()

    def forgotten(self):
        self.connection.close()
        os.close(self.ended)


def serve(modules):
    import gc
    import importlib
    import selectors
    import shutil
    import socket
    import tempfile

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # What is asked for finds what it would find without us.
    if not getattr(sys.flags, "safe_path", False):
        sys.path.remove(os.path.dirname(os.path.abspath(__file__)))
    folder = tempfile.mkdtemp(prefix="plimsoll-ready-")
    door, program = os.path.join(folder, DOOR), os.path.join(folder, "python")
    with open(program, "w") as file:
        file.write(PYTHON.format(python=sys.executable, here=os.path.abspath(__file__), door=door))
    os.chmod(program, 0o755)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(door)
    listener.listen(64)
    # Who asks from now on waits until everything is imported. What is printed meanwhile is no answer.
    print(program, flush=True)
    os.dup2(2, 1)
    for module in modules:
        try:
            importlib.import_module(module)
        except ImportError as error:
            print("%s is imported by whoever needs it: %s" % (module, error), file=sys.stderr)
    gc.collect()
    gc.freeze()

    count = 0
    events, children = selectors.DefaultSelector(), set()
    events.register(listener, selectors.EVENT_READ)
    events.register(0, selectors.EVENT_READ)
    while True:
        for key, _ in events.select():
            child = key.data
            if key.fileobj == 0:
                if not os.read(0, 4096):
                    for child in children:
                        child.end()
                    shutil.rmtree(folder, ignore_errors=True)
                    told = "%d processes after one start of Python: %.1f s of processors for all\n"
                    os.write(2, (told % (count, sum(os.times()[:4]))).encode())
                    return
            elif child is None:
                connection = listener.accept()[0]
                asked = received(connection)
                if asked is None:
                    continue
                pid = os.fork()
                if pid == 0:
                    events.close()
                    listener.close()
                    connection.close()
                    for other in children:
                        other.forgotten()
                    become(*asked)
                for descriptor in asked[1]:
                    os.close(descriptor)
                child, count = Child(connection, pid), count + 1
                children.add(child)
                events.register(child.ended, selectors.EVENT_READ, child)
                events.register(connection, selectors.EVENT_READ, child)
            elif child not in children:
                # Both of its events came at once.
                continue
            elif key.fileobj == child.ended:
                children.remove(child)
                events.unregister(child.ended)
                if child.connection.fileno() in events.get_map():
                    events.unregister(child.connection)
                child.reaped()
            else:
                try:
                    number = child.connection.recv(4)
                except OSError:
                    number = b""
                if number:
                    os.kill(child.pid, int(number))
                else:
                    events.unregister(child.connection)
                    child.end()


def received(connection):
    """A request and its standard streams."""
    import json
    import socket

    head, streams, _, _ = socket.recv_fds(connection, 16, 3)
    try:
        left, text = int(head), b""
        while len(text) < left:
            chunk = connection.recv(left - len(text))
            if not chunk:
                raise ValueError("it ended")
            text += chunk
        return json.loads(text), streams
    except ValueError:
        for descriptor in streams:
            os.close(descriptor)
        connection.close()
        return None


# ---------------------------------------------------------------------------------------------------------------------
# The process that was asked for


def become(request, streams):
    """Runs what was asked for, as Python would have, and ends."""
    import ctypes
    import random

    for number, descriptor in enumerate(streams):
        os.dup2(descriptor, number)
        os.close(descriptor)
    PR_SET_PDEATHSIG = 1
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if os.getsid(0) == request["session"]:
        try:
            os.setpgid(0, request["group"])
        except OSError:
            os.setpgid(0, 0)
    else:
        os.setsid()
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    random.seed()
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()
    if "torch" in sys.modules:
        # The pool of threads is made anew after a fork by whoever asks first; where two threads do at once, one is given none.
        sys.modules["torch"].set_num_threads(sys.modules["torch"].get_num_threads())
    arguments = request["arguments"]
    unbuffered = arguments[:1] == ["-u"]
    sys.stdin = open(0, closefd=False)
    sys.stdout = open(1, "w", closefd=False)
    sys.stdout.reconfigure(line_buffering=os.isatty(1), write_through=unbuffered)
    sys.stderr = open(2, "w", closefd=False, errors="backslashreplace")
    sys.stderr.reconfigure(line_buffering=True)
    sys.executable, sys.orig_argv = request["me"], [request["me"]] + arguments
    code = 1
    try:
        run(*parsed(arguments))
        code = 0
    except SystemExit as asked:
        code = asked.code if isinstance(asked.code, int) else 0 if asked.code is None else 1
        if asked.code is not None and not isinstance(asked.code, int):
            print(asked.code, file=sys.stderr)
    except KeyboardInterrupt:
        code = -signal.SIGINT
    except BaseException:
        sys.excepthook(*sys.exc_info())
    leave(code)


def run(how, what, arguments):
    import importlib.util
    import types

    sys.argv = arguments
    paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    if not os.environ.get("PYTHONSAFEPATH") or sys.version_info < (3, 11):
        paths.insert(0, os.path.dirname(os.path.abspath(what)) if how == "file" else "")
    sys.path[:0] = paths
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    if how == "-m":
        main.__spec__ = importlib.util.find_spec(what)
        main.__file__ = sys.argv[0] = main.__spec__.origin
        code = main.__spec__.loader.get_code(what)
    elif how == "-c":
        code = compile(what, "<string>", "exec")
    else:
        main.__file__ = what
        with open(what, "rb") as file:
            code = compile(file.read(), what, "exec")
    exec(code, main.__dict__)


def leave(code):
    """What Python does at its end, without taking everything apart."""
    import atexit
    import threading

    try:
        threading._shutdown()
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    except Exception:
        code = code or 120
    ended(code)


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(sys.argv[2:])
    else:
        ask(sys.argv[2], sys.argv[3], sys.argv[4], sys.argv[5:])
