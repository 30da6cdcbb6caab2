"""Runs the worker many times for the price of one start: each run is a process forked off after the imports.

    python several.py WORKER.py

Each line of standard input is a list of lines that a worker is to read; it is answered with one line: the lines the
worker wrote, what it wrote to standard error, and its exit code. The worker's own `main` runs, on pipes of its own.
"""

import importlib.util
import json
import os
import sys
import tempfile

import peft  # noqa: F401
import torch._dynamo  # noqa: F401  the optimizers import it
import torchvision  # noqa: F401
import transformers  # noqa: F401

specification = importlib.util.spec_from_file_location("worker", sys.argv[1])
worker = importlib.util.module_from_spec(specification)
specification.loader.exec_module(worker)


def run(lines):
    commands, write_commands = os.pipe()
    read_events, events = os.pipe()
    with tempfile.TemporaryFile() as errors:
        child = os.fork()
        if child == 0:
            os.dup2(commands, 0)
            os.dup2(events, 1)
            os.dup2(errors.fileno(), 2)
            for descriptor in (commands, write_commands, read_events, events):
                os.close(descriptor)
            worker.main()
            os._exit(99)
        os.close(commands)
        os.close(events)
        os.write(write_commands, "".join(line + "\n" for line in lines).encode())
        with os.fdopen(read_events, "rb") as out:
            written = out.read().decode().splitlines()
        status = os.waitpid(child, 0)[1]
        os.close(write_commands)
        errors.seek(0)
        text = errors.read().decode(errors="replace")
    return {"lines": written, "stderr": text, "code": os.waitstatus_to_exitcode(status)}


for line in sys.stdin:
    sys.stdout.write(json.dumps(run(json.loads(line))) + "\n")
    sys.stdout.flush()
